"""Stage: read clusters once for all tables and leave their rows as data files that no transaction names yet.

Runs in a process of its own, over plain values. What goes back is the manifest, a few rows a cluster. A cluster that
fails leaves nothing and does not disturb the others in its part; a lake that cannot be written fails the task.
"""

from __future__ import annotations

import ctypes
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

from kraft_audit.capture.plan import SEVERAL_DEFAULTS, ClusterPlan, SilverPosition, plan_from_json
from kraft_audit.lake.data_files import BUFFERED_BYTES, DataFile, TableWriter
from kraft_audit.lake.ledger_state import ClusterOutcome, StateChange, state_to_json
from kraft_audit.lake.staging.state_store import put_state
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.text.watched_work import doing
from kraft_codec.errors import CodecError, InputError

# Rows of a cluster wait in memory until it has been read to its end; a cluster with more rows gets files of its own.
CLUSTER_BYTES: Final = 32 << 20
OURS: Final = re.compile(r"[/\\](kraft_codec|kraft_audit)[/\\]")
LARGEST_OFFSET: Final = (1 << 63) - 1
FORGOTTEN: Final = "forgotten"
"""The part of a cluster's summary that says why what earlier captures showed is not known."""
# The rows that cross back to the driver.
MANIFEST_SCHEMA: Final = pa.schema(
    [
        pa.field("cluster_number", pa.int32()),
        pa.field("cluster_name", pa.string()),
        pa.field("cluster_id", pa.string()),
        pa.field("failure", pa.string()),
        pa.field("state", pa.string()),
        pa.field("summary", pa.string()),
        pa.field("data_file", pa.string()),
        pa.field("part", pa.string()),
    ]
)


class StageError(Exception):
    """A plan could not be staged: the lake cannot be written, or workers were lost. The plan stays open."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"plan {number} could not be staged and stays open for the next run: {why}")


@dataclass(frozen=True, slots=True)
class ReadingEnd:
    """What a reading leaves for the next plan: the state of its redaction, and what was kept, None for nothing.

    `forgotten` says why what earlier plans kept could not be read; None where it could, or there was nothing.
    """

    redaction_state: str
    kept_state: bytes | None = None
    forgotten: str | None = None


class Reading(Protocol):
    """One cluster being read: its rows, and after them its end."""

    def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]: ...

    def end(self) -> ReadingEnd: ...


ReadCluster = Callable[[ClusterPlan], Reading]


@dataclass(slots=True)
class Tally:
    """Counts for the summary of a cluster while it is read, and what the next plan must know of it."""

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

    def summary(self, plan: ClusterPlan, forgotten: str | None = None) -> dict[str, Any]:
        why = {} if forgotten is None else {FORGOTTEN: forgotten}
        return {
            **why,
            "replicas": len({replica.identity for replica in plan.replicas}),
            "captures": len(plan.replicas),
            "rows": dict(sorted(self.rows.items())),
            "records": dict(sorted(self.record_types.items())),
            "damage": dict(sorted(self.damage.items())),
            "batch_bytes": self.bytes_read,
        }

    def change(self, plan: ClusterPlan, redaction_state: str, kept_state: str = "") -> StateChange:
        new_sources = tuple(sorted(self.sources - {"log", *plan.known_sources}))
        is_same = redaction_state == plan.redaction_state
        silver = None if self.replayed is None else _position(plan, self.replayed)
        changed = None if is_same else redaction_state
        return StateChange(self.decoded_to, new_sources, changed, silver=silver, kept_state=kept_state)


def _position(plan: ClusterPlan, replayed: dict[str, Any]) -> SilverPosition:
    """The position of the silver tables after a row of `replays`."""
    epochs = tuple((epoch["epoch"], epoch["to_offset"]) for epoch in replayed["epochs"])
    names = ("settled_offset", "to_offset", "low", "low_epoch", "began_at")
    from_offset, default_min_isr, before = replayed["from_offset"], plan.default_min_isr, plan.silver
    is_complete = from_offset < max(1, replayed["started_at"], replayed["gap_to_offset"] or 0)
    is_more = replayed["to_offset"] > from_offset
    if before is not None and before.default_min_isr not in (None, default_min_isr) and not (is_more and is_complete):
        # Earlier rows stay as they are, with their default; from here on rows have another default.
        default_min_isr = SEVERAL_DEFAULTS if is_more else before.default_min_isr
    return SilverPosition(**{name: replayed[name] for name in names}, epochs=epochs, default_min_isr=default_min_isr)


def stage_clusters(
    lake_uri: str,
    clusters: Sequence[tuple[int, str]],
    read_cluster: ReadCluster,
    label: str,
    begins: Callable[[int | None, str], None] = lambda number, name: None,
) -> Iterator[pa.RecordBatch]:
    """Read each (number, plan as JSON) and yield manifest batches: a row a cluster, at the end a row a data file.

    `begins` is called with the number and name of each cluster before it is read, and with None before the files of
    all are finished.
    """
    return_freed_memory()
    shared = WriterSet(lake_uri, label)
    for number, text in clusters:
        plan = plan_from_json(text)
        begins(number, plan.name)
        outcome, own_files = stage_cluster(lake_uri, number, plan, read_cluster, shared, f"{label}-{number}")
        yield _manifest_batch([outcome], own_files)
    begins(None, "")
    yield _manifest_batch([], shared.close())


def stage_cluster(
    lake_uri: str, number: int, plan: ClusterPlan, read_cluster: ReadCluster, shared: WriterSet, label: str
) -> tuple[ClusterOutcome, list[DataFile]]:
    """Read one cluster to its end, then hand its rows to `shared`; a large cluster has files of its own."""
    tally = Tally()
    sink = ClusterSink(lake_uri, label, shared)
    failure, end = None, ReadingEnd("")
    rows = _guarded(plan, read_cluster)
    try:
        for item in rows:
            if isinstance(item, Failure):
                failure = item.text
            elif isinstance(item, ReadingEnd):
                end = item
            else:
                tally.add(*item)
                sink.write(*item)
    except BaseException:
        sink.abandon()
        raise
    if failure is None:
        doing(f"writing the rows of {plan.name}")
        files = sink.finish()
        # Before the manifest names it; a state that no plan comes to name is only unused space.
        state_name = "" if end.kept_state is None else put_state(lake_uri, plan.key, end.kept_state)
        change = tally.change(plan, end.redaction_state, state_name)
        summary = tally.summary(plan, end.forgotten)
        return ClusterOutcome(number, plan.name, plan.key, None, change, summary), files
    sink.abandon()
    return ClusterOutcome(number, plan.name, plan.key, failure, StateChange(), {}), []


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a cluster could not be read, on one line."""

    text: str


def _guarded(
    plan: ClusterPlan, read_cluster: ReadCluster
) -> Iterator[tuple[str, pa.RecordBatch] | ReadingEnd | Failure]:
    """The rows, then the end; or, at any point, the failure of this cluster.

    Only errors of reading are caught here: errors of writing are raised in the consumer, not in this generator.
    """
    try:
        reading = read_cluster(plan)
        yield from reading.rows()
        yield reading.end()
    except (CodecError, InputError) as problem:
        yield Failure(failure_line(str(problem)))
    except Exception as problem:
        # A bug of ours must not stop the other clusters either. Its message is left out: it may hold bytes of a record.
        yield Failure(f"internal error: {type(problem).__name__} at {_where(problem)}")


def _where(problem: Exception) -> str:
    """The innermost places in our own packages, enough to find the bug."""
    ours = [frame for frame in traceback.extract_tb(problem.__traceback__) if OURS.search(frame.filename)]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(ours[-3:]))


def failure_line(text: str) -> str:
    return " ".join(text.split())[:1000]


class WriterSet:
    """The writers of all tables, which share a buffer limit."""

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
        self.flush_to(BUFFERED_BYTES)

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for their row group."""
        return sum(writer.pending_bytes for writer in self._writers.values())

    def flush_to(self, buffered_bytes: int) -> None:
        """Write the largest row groups until at most this many bytes wait."""
        while self.pending_bytes > buffered_bytes:
            max(self._writers.values(), key=lambda writer: writer.pending_bytes).flush()

    def close(self) -> list[DataFile]:
        return [file for _, writer in sorted(self._writers.items()) for file in writer.close()]

    def abandon(self) -> None:
        for writer in self._writers.values():
            writer.abandon()


class ClusterSink:
    """Holds one cluster's rows until it is known that the cluster can be read to its end.

    At most BUFFERED_BYTES wait here and in `shared` together.
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
            # The whole buffer is for the large cluster's own row groups.
            self._shared.flush_to(0)
            self._own = WriterSet(self._lake_uri, self._label)
            self._move_waiting_to(self._own)
        else:
            self._shared.flush_to(BUFFERED_BYTES - self._waiting_bytes)

    def finish(self) -> list[DataFile]:
        """The cluster has been read: return its own files, none if its rows went into the shared files."""
        if self._own is not None:
            return self._own.close()
        self._move_waiting_to(self._shared)
        return []

    def abandon(self) -> None:
        self._waiting = []
        if self._own is not None:
            self._own.abandon()

    def _move_waiting_to(self, target: WriterSet) -> None:
        for table, batch in self._waiting:
            target.write(table, batch)
        self._waiting, self._waiting_bytes = [], 0


def _counts(column: pa.Array) -> dict[str, int]:
    counted = pc.value_counts(column)
    return dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))


def _manifest_batch(outcomes: Sequence[ClusterOutcome], files: Sequence[DataFile]) -> pa.RecordBatch:
    empty = dict.fromkeys(MANIFEST_SCHEMA.names)
    rows: list[dict[str, Any]] = [
        {
            **empty,
            "cluster_number": outcome.cluster_number,
            "cluster_name": outcome.cluster_name,
            "cluster_id": outcome.cluster_id,
            "failure": outcome.failure,
            "state": state_to_json(outcome.change),
            "summary": json.dumps(outcome.summary),
        }
        for outcome in outcomes
    ]
    rows += [{**empty, "data_file": file.to_json()} for file in files]
    return pa.RecordBatch.from_pylist(rows, schema=MANIFEST_SCHEMA)


_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 4 << 20


def return_freed_memory() -> None:
    """Make Arrow's and NumPy's large blocks go back to the system as soon as they are freed.

    Otherwise Arrow's own pool and glibc each keep freed blocks of many megabytes for their next allocation, and not for
    each other: a fifth of a worker's peak. The numbers are M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt(3). Where
    the C library has no mallopt, only Arrow's blocks go back.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
