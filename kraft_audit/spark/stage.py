"""Stage: read clusters once for all tables and leave their rows as data files that nobody sees yet.

Runs inside a Spark task, over plain values; what goes back to the driver is the manifest, a few rows a cluster. A
cluster that fails leaves nothing, whatever its neighbours in the task do; a lake that cannot be written fails the task.
"""

from __future__ import annotations

import json
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.replay.plan import TWO_DEFAULTS, ClusterPlan, SilverPosition, from_json
from kraft_audit.spark.data_files import BUFFERED_BYTES, DataFile, TableWriter
from kraft_audit.spark.failpoints import failpoint
from kraft_audit.spark.ledger_state import ClusterOutcome, StateChange, to_json
from kraft_audit.spark.tables import LAKE_TABLES
from kraft_audit.spark.worker_memory import keep_little
from kraft_codec.errors import CodecError, InputError

# Rows of a cluster wait in memory until the cluster has been read to its end; one that has more gets files of its own.
CLUSTER_BYTES: Final = 32 << 20
OURS: Final = re.compile(r"[/\\](kraft_codec|kraft_audit)[/\\]")
LARGEST_OFFSET: Final = (1 << 63) - 1
# The rows that cross back to the driver.
MANIFEST: Final = pa.schema(
    [
        pa.field("cluster_number", pa.int32()),
        pa.field("cluster_name", pa.string()),
        pa.field("cluster_id", pa.string()),
        pa.field("failure", pa.string()),
        pa.field("state", pa.string()),
        pa.field("summary", pa.string()),
        pa.field("data_file", pa.string()),
    ]
)


class Reading(Protocol):
    """One cluster being read: rows first, the state of its redaction when they have ended."""

    def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]: ...

    def redaction_state(self) -> str: ...


ReadCluster = Callable[[ClusterPlan], Reading]


@dataclass(slots=True)
class Tally:
    """What went by while a cluster was read: counts for the summary, and what the next plan must know."""

    rows: Counter[str] = field(default_factory=Counter)
    record_types: Counter[str] = field(default_factory=Counter)
    damage: Counter[str] = field(default_factory=Counter)
    sources: set[str] = field(default_factory=set)
    decoded_to: int = 0
    bytes_read: int = 0
    replayed: dict[str, Any] | None = None

    def add(self, table: str, batch: pa.RecordBatch) -> None:
        self.rows[table] += batch.num_rows
        if batch.num_rows == 0:
            return
        match table:
            case "records":
                self.record_types.update(_counts(batch.column("record_type")))
            case "decode_errors":
                self.damage.update(_counts(batch.column("reason")))
            case "batches":
                self._add_batches(batch)
            case "replays":
                self.replayed = batch.to_pylist()[-1]

    def _add_batches(self, batch: pa.RecordBatch) -> None:
        source = batch.column("source")
        self.sources.update(pc.unique(source).to_pylist())
        # The CRC does not cover a batch's offsets, so a valid one may claim any.
        log_ends = batch.column("last_offset").filter(pc.and_(pc.equal(source, "log"), batch.column("valid")))
        if len(log_ends):
            self.decoded_to = max(self.decoded_to, min(pc.max(log_ends).as_py() + 1, LARGEST_OFFSET))
        self.bytes_read += pc.sum(batch.column("size_bytes")).as_py()

    def summary(self, plan: ClusterPlan) -> dict[str, Any]:
        return {
            "replicas": len({replica.identity for replica in plan.replicas}),
            "captures": len(plan.replicas),
            "rows": dict(sorted(self.rows.items())),
            "records": dict(sorted(self.record_types.items())),
            "damage": dict(sorted(self.damage.items())),
            "batch_bytes": self.bytes_read,
        }

    def change(self, plan: ClusterPlan, redaction_state: str) -> StateChange:
        new_sources = tuple(sorted(self.sources - {"log", *plan.known_sources}))
        is_same = redaction_state == plan.redaction_state
        silver = None if self.replayed is None else _position(plan, self.replayed)
        return StateChange(self.decoded_to, new_sources, None if is_same else redaction_state, silver=silver)


def _position(plan: ClusterPlan, replayed: dict[str, Any]) -> SilverPosition:
    """Where a row of `replays` says that the silver tables stand."""
    epochs = tuple((one["epoch"], one["to_offset"]) for one in replayed["epochs"])
    names = ("settled_offset", "to_offset", "low", "low_epoch", "began_at")
    from_offset, default_min_isr, before = replayed["from_offset"], plan.default_min_isr, plan.silver
    is_all_told = from_offset < max(1, replayed["started_at"], replayed["gap_to_offset"] or 0)
    is_more = replayed["to_offset"] > from_offset
    if before is not None and before.default_min_isr not in (None, default_min_isr) and not (is_more and is_all_told):
        # What was told before stands as it was told: with its default, and from here on with another one.
        default_min_isr = TWO_DEFAULTS if is_more else before.default_min_isr
    return SilverPosition(**{name: replayed[name] for name in names}, epochs=epochs, default_min_isr=default_min_isr)


def stage_clusters(
    lake_uri: str, clusters: Sequence[tuple[int, str]], read_cluster: ReadCluster, label: str
) -> Iterator[pa.RecordBatch]:
    """Read each (number, plan as JSON) and yield manifest batches: one row a cluster, at the end one a data file."""
    keep_little()
    shared = WriterSet(lake_uri, label)
    for number, text in clusters:
        plan = from_json(text)
        outcome, own_files = stage_cluster(lake_uri, number, plan, read_cluster, shared, f"{label}-{number}")
        yield _manifest_batch([outcome], own_files)
        failpoint("in-stage")
    yield _manifest_batch([], shared.close())


def stage_cluster(
    lake_uri: str, number: int, plan: ClusterPlan, read_cluster: ReadCluster, shared: WriterSet, label: str
) -> tuple[ClusterOutcome, list[DataFile]]:
    """Read one cluster: its rows go to `shared` when it has been read to its end, or to files of its own if large."""
    tally = Tally()
    sink = ClusterSink(lake_uri, label, shared)
    failure, redaction_state = None, ""
    rows = _guarded(plan, read_cluster)
    try:
        for item in rows:
            if isinstance(item, Failure):
                failure = item.text
            elif isinstance(item, str):
                redaction_state = item
            else:
                tally.add(*item)
                sink.write(*item)
    except BaseException:
        sink.abandon()
        raise
    if failure is None:
        files = sink.hand_over()
        change = tally.change(plan, redaction_state)
        return ClusterOutcome(number, plan.name, plan.cluster_id, None, change, tally.summary(plan)), files
    sink.abandon()
    return ClusterOutcome(number, plan.name, plan.cluster_id, failure, StateChange(), {}), []


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a cluster could not be read, on one line."""

    text: str


def _guarded(plan: ClusterPlan, read_cluster: ReadCluster) -> Iterator[tuple[str, pa.RecordBatch] | str | Failure]:
    """The rows, then the redaction state; or, at any point, the failure of this cluster alone.

    Only what reading raises is caught here: what writing raises is raised in the consumer, not in this generator.
    """
    try:
        reading = read_cluster(plan)
        yield from reading.rows()
        yield reading.redaction_state()
    except (CodecError, InputError) as problem:
        yield Failure(one_line(str(problem)))
    except Exception as problem:
        # A fault of ours must not take the other clusters along either. Its message may hold bytes of a record.
        yield Failure(f"internal error: {type(problem).__name__} at {_where(problem)}")


def _where(problem: Exception) -> str:
    """The innermost places in our own packages, enough to find the fault by."""
    ours = [frame for frame in traceback.extract_tb(problem.__traceback__) if OURS.search(frame.filename)]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(ours[-3:]))


def one_line(text: str) -> str:
    return " ".join(text.split())[:1000]


class WriterSet:
    """Writers of all tables that share a buffer limit."""

    def __init__(self, lake_uri: str, label: str) -> None:
        self._lake_uri = lake_uri
        self._label = label
        self._writers: dict[str, TableWriter] = {}

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        writer = self._writers.get(table)
        if writer is None:
            writer = TableWriter(self._lake_uri, table, LAKE_TABLES[table].schema, self._label)
            self._writers[table] = writer
        writer.write(batch)
        self.leave(BUFFERED_BYTES)

    @property
    def pending_bytes(self) -> int:
        """What waits for its row group."""
        return sum(writer.pending_bytes for writer in self._writers.values())

    def leave(self, buffered_bytes: int) -> None:
        """Writes the largest row groups until no more than this much waits."""
        while self.pending_bytes > buffered_bytes:
            max(self._writers.values(), key=lambda writer: writer.pending_bytes).flush()

    def close(self) -> list[DataFile]:
        return [file for _, writer in sorted(self._writers.items()) for file in writer.close()]

    def abandon(self) -> None:
        for writer in self._writers.values():
            writer.abandon()


class ClusterSink:
    """Where one cluster's rows go while it is not known whether it can be read to its end.

    What waits here and what waits in `shared` is at most BUFFERED_BYTES together.
    """

    def __init__(self, lake_uri: str, label: str, shared: WriterSet) -> None:
        self._lake_uri = lake_uri
        self._label = label
        self._shared = shared
        self._waiting: list[tuple[str, pa.RecordBatch]] = []
        self._waiting_bytes = 0
        self._own: WriterSet | None = None

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        if self._own is not None:
            self._own.write(table, batch)
            return
        self._waiting.append((table, batch))
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes > CLUSTER_BYTES:
            # All of the room is for the large one's own row groups.
            self._shared.leave(0)
            self._own = WriterSet(self._lake_uri, self._label)
            self._pour(self._own)
        else:
            self._shared.leave(BUFFERED_BYTES - self._waiting_bytes)

    def hand_over(self) -> list[DataFile]:
        """The cluster has been read: its own files, or none where its rows went into the shared ones."""
        if self._own is not None:
            return self._own.close()
        self._pour(self._shared)
        return []

    def abandon(self) -> None:
        self._waiting = []
        if self._own is not None:
            self._own.abandon()

    def _pour(self, target: WriterSet) -> None:
        for table, batch in self._waiting:
            target.write(table, batch)
        self._waiting, self._waiting_bytes = [], 0


def _counts(column: pa.Array) -> dict[str, int]:
    counted = pc.value_counts(column)
    return dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))


def _manifest_batch(outcomes: Sequence[ClusterOutcome], files: Sequence[DataFile]) -> pa.RecordBatch:
    empty = dict.fromkeys(MANIFEST.names)
    rows: list[dict[str, Any]] = [
        {
            **empty,
            "cluster_number": outcome.cluster_number,
            "cluster_name": outcome.cluster_name,
            "cluster_id": outcome.cluster_id,
            "failure": outcome.failure,
            "state": to_json(outcome.change),
            "summary": json.dumps(outcome.summary),
        }
        for outcome in outcomes
    ]
    rows += [{**empty, "data_file": file.to_json()} for file in files]
    return pa.RecordBatch.from_pylist(rows, schema=MANIFEST)
