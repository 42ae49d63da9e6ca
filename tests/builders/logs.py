"""Reading log dirs in tests: small ones made here, batch by batch, and Kafka's own with what Kafka says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.plan import ClusterPlan, Selection
from kraft_audit.reading import BRONZE_TABLES
from kraft_audit.tables.bronze import BRONZE as CONTRACTS
from kraft_audit.tables.contract import build_rows
from kraft_codec.file_names import segment_name
from kraft_codec.files.properties import format_meta_properties, meta_properties
from kraft_codec.files.state_files import QuorumState, format_quorum_state
from kraft_codec.records.batch import read_header, write_batch
from kraft_codec.records.record import write_control_value, write_metadata_value
from kraft_codec.records.redaction import Redactor
from kraft_codec.schemas import CONTROL_TYPE_BY_NAME, Dialect
from kraft_codec.storage.opener import open_storage
from kraft_codec.text.java_text import uuid_text
from tests.builders.readings import as_tables, bronze_rows

KEY = b"k" * 32
NOW_MS = 1_700_000_000_000
CLUSTER_ID = "SPA6Lw-19VaaSAxl6jMkhw"
DIRECTORIES = [f"{letter * 21}A" for letter in "ABCDEF"]
Rows = list[dict[str, Any]]


class Revealing(Redactor):
    """Leaves secrets as they are: what Kafka prints can be compared."""

    def overwrite(self, *arguments: Any, **more: Any) -> None:
        pass


class Reading:
    """Runs of `analyze` over a path, with nothing left to the clock."""

    selection = Selection()

    def plans(self, path: Path, **options: Any) -> list[ClusterPlan]:
        return plan_path(str(path), open_storage=open_storage, captured_at_ms=NOW_MS, **options)

    def plan(self, path: Path, **options: Any) -> ClusterPlan:
        (plan,) = self.plans(path, **options)
        return plan

    def rows(
        self, plan: ClusterPlan, tables: Iterable[str] = BRONZE_TABLES, **options: Any
    ) -> list[tuple[str, pa.RecordBatch]]:
        settings: dict[str, Any] = {
            "open_storage": open_storage,
            "redactor": Redactor(KEY),
            "clock_ms": lambda: NOW_MS,
            **options,
        }
        return list(bronze_rows(plan, frozenset(tables), **settings))

    def tables(self, plan: ClusterPlan, **options: Any) -> dict[str, Rows]:
        found = as_tables(self.rows(plan, **options))
        return {name: found[name].to_pylist() if name in found else [] for name in sorted(BRONZE_TABLES)}

    def of(self, path: Path, **options: Any) -> dict[str, Rows]:
        return self.tables(self.plan(path), **options)

    def revealed(self, path: Path) -> dict[str, Rows]:
        return self.of(path, redactor=Revealing(KEY))


@pytest.fixture(scope="session")
def reading() -> Reading:
    return Reading()


@dataclass
class Log:
    """A log under construction: batches of one or more records, offsets running on."""

    next_offset: int = 0
    epoch: int = 1
    timestamp_ms: int = NOW_MS - 1_000_000
    batches: list[bytes] = field(default_factory=list)

    def append(self, *values: bytes, epoch: int | None = None, base_offset: int | None = None) -> bytes:
        """One data batch."""
        self.epoch = self.epoch if epoch is None else epoch
        return self._write([(None, value) for value in values], base_offset=base_offset)

    def topic(self, name: str, **more: Any) -> bytes:
        value = write_metadata_value("TopicRecord", 0, {"name": name, "topicId": name.encode()[:16].ljust(16, b".")})
        return self.append(value, **more)

    def noop(self) -> bytes:
        return self.append(write_metadata_value("NoOpRecord", 0, {}))

    def control(self, name: str, fields: dict[str, Any], epoch: int | None = None) -> bytes:
        """One control batch of one record."""
        return self.controls((name, fields), epoch=epoch)

    def controls(self, *records: tuple[str, dict[str, Any]], epoch: int | None = None) -> bytes:
        """One control batch."""
        self.epoch = self.epoch if epoch is None else epoch
        written = []
        for name, fields in records:
            control = CONTROL_TYPE_BY_NAME[Dialect.KIP853][name]
            key = b"\x00\x00" + control.number.to_bytes(2, "big")
            written.append((key, write_control_value(control, fields)))
        return self._write(written, is_control=True)

    def lead(self, leader_id: int, epoch: int) -> bytes:
        fields = {"version": 0, "leaderId": leader_id, "voters": [], "grantingVoters": []}
        return self.control("LEADER_CHANGE", fields, epoch=epoch)

    def _write(self, records: Sequence[Any], *, is_control: bool = False, base_offset: int | None = None) -> bytes:
        self.timestamp_ms += 1
        at = self.next_offset if base_offset is None else base_offset
        batch = write_batch(
            base_offset=at,
            leader_epoch=self.epoch,
            timestamp_ms=self.timestamp_ms,
            records=records,
            is_control=is_control,
        )
        self.batches.append(batch)
        self.next_offset = at + len(records)
        return batch

    @property
    def content(self) -> bytes:
        return b"".join(self.batches)

    def copy(self) -> Log:
        return replace(self, batches=list(self.batches))


def write_node(
    folder: Path,
    node_id: int,
    segments: dict[int, bytes] | bytes,
    *,
    cluster_id: str | None = CLUSTER_ID,
    directory_id: str | None = None,
    state: QuorumState | None = None,
    files: dict[str, bytes] | None = None,
) -> Path:
    """A node dir: `segments` by base offset, more `files` of the log dir by name."""
    node = folder / f"node-{node_id}"
    log_dir = node / "__cluster_metadata-0"
    log_dir.mkdir(parents=True, exist_ok=True)
    for base_offset, content in ({0: segments} if isinstance(segments, bytes) else segments).items():
        (log_dir / segment_name(base_offset)).write_bytes(content)
    if cluster_id is not None:
        identity = meta_properties(
            cluster_id=cluster_id, node_id=node_id, directory_id=directory_id or uuid_text(b"d" * 15 + bytes([node_id]))
        )
        (node / "meta.properties").write_bytes(format_meta_properties(identity))
    (log_dir / "quorum-state").write_bytes(format_quorum_state(state or QuorumState(1, 1, 1, -1, "A" * 22)))
    for name, content in (files or {}).items():
        (log_dir / name).write_bytes(content)
    return node


@pytest.fixture(scope="session")
def node() -> Callable[..., Path]:
    return write_node


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def usual_log() -> Log:
    """Two leaders, some topics, some NoOps."""
    log = Log()
    log.lead(1, epoch=1)
    for number in range(6):
        log.topic(f"first-{number}")
        log.noop()
    log.lead(2, epoch=2)
    for number in range(6):
        log.topic(f"second-{number}")
    return log


def headers_of(content: bytes) -> list[Any]:
    """The headers of whole batches that stand one after the other."""
    position, found = 0, []
    while position < len(content):
        header = read_header(content, position)
        found.append(header)
        position += header.size_bytes
    return found


@pytest.fixture(scope="session")
def headers() -> Callable[[bytes], list[Any]]:
    return headers_of


@pytest.fixture(scope="session")
def empty() -> Callable[[str], pa.RecordBatch]:
    return lambda name: build_rows(CONTRACTS[name], [])


def led(leader_id: int, voters: Sequence[int], epoch: int = 1, *, start_ms: int = 1_700_000_000_000) -> Log:
    """A log that begins with the LeaderChange of a static quorum."""
    log = Log(timestamp_ms=start_ms)
    fields = {
        "version": 0,
        "leaderId": leader_id,
        "voters": [{"voterId": voter} for voter in voters],
        "grantingVoters": [],
    }
    log.control("LEADER_CHANGE", fields, epoch=epoch)
    return log


def with_topics(log: Log, count: int = 3) -> Log:
    for number in range(count):
        log.topic(f"topic-{number}")
    return log
