"""From a plan to tables: one pass over one cluster's replicas, in bounded memory.

`analyze` is what the command calls on a laptop and what a Spark task calls on a worker. It yields (table, RecordBatch)
in an order that depends on the plan and the bytes alone, whatever order the replicas stand in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.replay.archive import Archiver, archiver_of
from kraft_audit.replay.captures import captures_batch, files_batch
from kraft_audit.replay.cluster import Clock, OpenStorage, open_replicas, wall_clock_ms
from kraft_audit.replay.decode import DecodedBatches, Decoder, Records, judge
from kraft_audit.replay.emit import Emitter, TableRows
from kraft_audit.replay.plan import ClusterPlan, KnownBatches, Selection
from kraft_audit.replay.presence import KnownWindow, Presence
from kraft_audit.replay.reconcile import Window, windows
from kraft_audit.replay.replica import Replica
from kraft_audit.replay.rows import LOG, records_batch
from kraft_audit.replay.scanner import CHUNK_BYTES_MAX, ChangedError, ScanSettings
from kraft_audit.replay.snapshots import Snapshot, SnapshotCopy, check_copies, chunks_of, find_snapshots
from kraft_audit.replay.typed import record_type_batch, record_type_message, record_type_schema
from kraft_codec.redaction import Redactor
from kraft_codec.schemas import Dialect
from kraft_codec.tables import ARCHIVE, BATCHES, CAPTURES, DECODE_ERRORS, FILES, RECORDS, slices

__all__ = ["TABLES", "analyze", "analyze_record_type", "record_type_schema"]

TABLES: Final = frozenset({CAPTURES.name, FILES.name, BATCHES.name, RECORDS.name, ARCHIVE.name, DECODE_ERRORS.name})
"""What `analyze` gives; of any other table it gives nothing."""
EVERYTHING: Final = Selection()
ToRows = Callable[[Records, str], pa.RecordBatch]


def analyze(
    plan: ClusterPlan,
    tables: frozenset[str] = TABLES,
    *,
    open_storage: OpenStorage,
    redactor: Redactor,
    known: KnownBatches | None = None,
    selection: Selection = EVERYTHING,
    clock_ms: Clock = wall_clock_ms,
    stop_on_change: bool = False,
    chunk_bytes_max: int = CHUNK_BYTES_MAX,
) -> Iterator[TableRows]:
    """The rows of `tables`, in batches of at most 65,000 rows.

    `known` is what closed plans hold of this cluster, asked where a replica lags, is new or was cut. `redactor` carries
    the cluster's redaction state, and holds the new one at the end. With `stop_on_change` (the pipeline) bytes other
    than the planned ones raise ChangedError; without it they are a row. Only `captures.read_from_ms` and `read_to_ms`
    depend on the clock. `chunk_bytes_max` bounds what is read at a time, and so memory and the first row's delay.
    Raises InputError where a storage can no longer be opened.
    """

    def to_rows(records: Records, source: str) -> pa.RecordBatch:
        return records_batch(
            records, source, selection, redactor.keyed_hash, cluster_id=plan.cluster_id, plan=plan.number
        )

    with ExitStack() as stack:
        replicas, settings = open_replicas(
            plan,
            stack,
            open_storage,
            redactor.keyed_hash,
            clock_ms,
            stop_on_change=stop_on_change,
            chunk_bytes_max=chunk_bytes_max,
        )
        reading = _Reading(plan, replicas, settings, tables, redactor, known, selection, clock_ms, to_rows)
        for name, batch in reading.rows():
            yield from ((name, part) for part in slices(batch))


def analyze_record_type(
    plan: ClusterPlan,
    record_type: str,
    *,
    open_storage: OpenStorage,
    redactor: Redactor,
    selection: Selection = EVERYTHING,
) -> Iterator[pa.RecordBatch]:
    """The records of one type with their fields as typed columns, by `record_type_schema(record_type, dialect)`.

    Raises ValueError where the dialect has no such type. Undecodable records have no row.
    """
    message = record_type_message(record_type, Dialect(plan.dialect))

    def to_rows(records: Records, source: str) -> pa.RecordBatch:
        return record_type_batch(records, message, source, selection, cluster_id=plan.cluster_id, plan=plan.number)

    with ExitStack() as stack:
        replicas, settings = open_replicas(plan, stack, open_storage, redactor.keyed_hash, wall_clock_ms)
        tables = frozenset({RECORDS.name})
        reading = _Reading(plan, replicas, settings, tables, redactor, None, selection, wall_clock_ms, to_rows)
        for _, batch in reading.rows():
            yield from slices(batch)


class _Reading:
    """One run over one cluster."""

    def __init__(
        self,
        plan: ClusterPlan,
        replicas: list[Replica],
        settings: ScanSettings,
        tables: frozenset[str],
        redactor: Redactor,
        known: KnownBatches | None,
        selection: Selection,
        clock_ms: Clock,
        to_rows: ToRows,
    ) -> None:
        self.plan = plan
        self.replicas = replicas
        self.settings = settings
        self.tables = tables
        self.known = known
        self.selection = selection
        self.clock_ms = clock_ms
        self.to_rows = to_rows
        self.wants_records = RECORDS.name in tables
        self.emitter = Emitter(plan, replicas, tables, selection, redactor.keyed_hash)
        self.archiver: Archiver | None = None
        if ARCHIVE.name in tables:
            self.archiver = archiver_of(plan, replicas, redactor.keyed_hash)
        is_kept = self.wants_records or self.archiver is not None
        self.decoder = Decoder(Dialect(plan.dialect), redactor if is_kept else None)

    def rows(self) -> Iterator[TableRows]:
        """Rows of the wanted tables, and of no other."""
        yield from self.emitter.planned_damages()
        yield from self.emitter.damages()
        yield from self._logs_and_snapshots()
        for replica in self.replicas:
            if replica.log is None:
                replica.close(self.clock_ms)
        yield from self.emitter.damages()
        selected = [replica for replica in self.replicas if self.emitter.is_selected(replica)]
        if CAPTURES.name in self.tables:
            yield CAPTURES.name, captures_batch([replica for replica in selected if not replica.is_unchanged])
        if FILES.name in self.tables:
            yield FILES.name, files_batch(selected)

    def _logs_and_snapshots(self) -> Iterator[TableRows]:
        readable = [replica for replica in self.replicas if replica.log is not None]
        presence = Presence(self.plan.cluster_id, readable, self.known, self.plan.decoded_to)
        snapshots = find_snapshots(readable)
        # A snapshot comes where the log reaches its end: short secrets are numbered as they are met, in log order.
        cuts = sorted({snapshot.end_offset for snapshot in snapshots})
        for window in windows(readable, self.emitter.take_refused, self._close, cuts):
            while snapshots and snapshots[0].end_offset <= window.from_offset:
                yield from self._snapshot(snapshots.pop(0))
            yield from self._window(window, presence)
        for rest in presence.rest():
            yield from self.emitter.batches(None, rest, presence, DecodedBatches.unknown(0))
        yield from self.emitter.refused()
        for snapshot in snapshots:
            yield from self._snapshot(snapshot)
        if self.archiver is not None:
            yield from ((ARCHIVE.name, run) for run in self.archiver.finish())

    def _close(self, replica: Replica) -> None:
        replica.close(self.clock_ms)

    def _window(self, window: Window, presence: Presence) -> Iterator[TableRows]:
        known = presence.known(window.batches, window.to_offset)
        decoded = DecodedBatches.unknown(len(window.batches))
        if known is not None:
            known.fill_noop_counts(decoded.noop_count)
        for part, numbers, records in self.decoder.window(window, self._wanted(window, known)):
            judge(decoded, numbers, records)
            self.emitter.undecodable(part.replica, records)
            if self.wants_records:
                yield RECORDS.name, self.to_rows(records, LOG)
            if self.archiver is not None:
                yield from ((ARCHIVE.name, run) for run in self.archiver.add(LOG, part.replica.number, records))
        self.emitter.unsound(window.slices, decoded)
        yield from self.emitter.refused()
        yield from self.emitter.batches(window, known, presence, decoded)
        yield from self.emitter.damages()

    def _wanted(self, window: Window, known: KnownWindow | None) -> npt.NDArray[np.bool_]:
        """Which batches to decode: not those of earlier plans; where records alone are asked, only those in range."""
        batches, selection = window.batches, self.selection
        wanted = np.ones(len(batches), bool)
        if known is not None:
            wanted &= ~known.decoded(len(batches))
        if self.tables == {RECORDS.name}:
            if selection.from_offset is not None:
                wanted &= batches.last_offset >= selection.from_offset
            if selection.to_offset is not None:
                wanted &= batches.base_offset < selection.to_offset
        return wanted

    def _snapshot(self, snapshot: Snapshot) -> Iterator[TableRows]:
        check_copies(snapshot, self.settings, self.plan.known_sources)
        archiver = self.archiver if self.archiver is not None and self.archiver.wants(snapshot) else None
        for copy in snapshot.copies:
            if copy.is_known:
                continue
            try:
                yield from self._copy(copy, snapshot, archiver)
            except ChangedError as error:
                if self.settings.stop_on_change:
                    raise
                tally = copy.replica.tallies[copy.file.name]
                copy.replica.damage.add(tally, error.reason, error.detail, position=error.position)
        yield from self.emitter.damages()

    def _copy(self, copy: SnapshotCopy, snapshot: Snapshot, archiver: Archiver | None) -> Iterator[TableRows]:
        """The rows of one copy; the records of the one that is decoded."""
        replica = copy.replica
        for chunk in chunks_of(copy, self.settings):
            chunk.tally = replica.tallies[copy.file.name]
            self.emitter.take_refused(replica, chunk, snapshot.source)
            yield from self.emitter.refused()
            decoded = None
            if copy is snapshot.decoded:
                decoded = DecodedBatches.unknown(len(chunk))
                for numbers, records in self.decoder.chunk(chunk):
                    judge(decoded, numbers, records)
                    self.emitter.undecodable(replica, records)
                    if self.wants_records:
                        yield RECORDS.name, self.to_rows(records, snapshot.source)
                    if archiver is not None:
                        kept = archiver.add(snapshot.source, replica.number, records)
                        yield from ((ARCHIVE.name, run) for run in kept)
                for number in np.flatnonzero(decoded.status != 0).tolist():
                    self.emitter.refuse(replica, chunk, int(chunk.rows[number]), decoded, number)
            if BATCHES.name in self.tables and self.emitter.is_selected(replica):
                yield BATCHES.name, self.emitter.copy_batches(replica, chunk, snapshot.source, decoded)


def as_tables(rows: Sequence[TableRows]) -> dict[str, pa.Table]:
    """Collected rows as one Arrow table a name: for tests and notebooks, where all of it fits in memory."""
    names = {name for name, _ in rows}
    return {name: pa.Table.from_batches([batch for one, batch in rows if one == name]) for name in sorted(names)}
