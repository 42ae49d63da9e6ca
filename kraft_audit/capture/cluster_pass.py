"""One pass over all replicas of a cluster: rows of the bronze tables, the survey, and the batches that are kept.

The replicas are read in lock step by windows of offsets (`reconcile`); each distinct batch is decoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from kraft_audit.capture.archiver import Archiver
from kraft_audit.capture.borne_snapshots import doubt_unborne_snapshots
from kraft_audit.capture.bronze_rows import LOG_SOURCE, BronzeRows, TableRows, captures_batch, files_batch
from kraft_audit.capture.decoded_records import DecodedBatches, Decoder, Records, judge
from kraft_audit.capture.earlier_survey import EarlierSurvey, earlier_logs
from kraft_audit.capture.log_facts import LogFacts
from kraft_audit.capture.log_parts import WHOLE_LOG
from kraft_audit.capture.node_card import node_cards_batch
from kraft_audit.capture.plan import ClusterPlan, Selection
from kraft_audit.capture.presence import Presence
from kraft_audit.capture.reconcile import Slice, Window, windows
from kraft_audit.capture.record_store import RecordStore, StoredBatches, StoredWindow
from kraft_audit.capture.replica import ReadingSettings, Replica, open_replicas
from kraft_audit.capture.scanner import Chunk
from kraft_audit.capture.snapshots import Snapshot, SnapshotChecker, SnapshotCopy, find_snapshots
from kraft_audit.capture.survey import Survey, SurveyBuilder
from kraft_audit.tables.bronze import ARCHIVE, CAPTURES, FILES, NODE_CARDS, RECORDS
from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_codec.kernels.codes import OK

ToRows = Callable[[Records, str], pa.RecordBatch]


class ClusterPass:
    """The pass over the replicas of one plan, and what it leaves: `windows` and `snapshots`, if records are kept.

    `to_rows` makes the rows of `records` of decoded records and their source. `stack` closes the storages. `earlier` is
    what a survey knew before. `facts` learn who holds which batch.
    """

    def __init__(
        self,
        plan: ClusterPlan,
        settings: ReadingSettings,
        tables: frozenset[str],
        to_rows: ToRows,
        *,
        store: RecordStore,
        stack: ExitStack,
        keeps_records: bool,
        earlier: EarlierSurvey | None = None,
        facts: LogFacts | None = None,
    ) -> None:
        dialect = plan.read_as
        self.plan = plan
        self.tables = tables
        self.is_done = False
        self.windows: list[StoredWindow] = []
        self.snapshots: dict[str, Snapshot] = {}
        self._replicas, self._scan_settings = open_replicas(plan, settings, stack)
        self._readable = [replica for replica in self._replicas if replica.log is not None]
        self._settings = settings
        self._store = store
        self._keeps_records = keeps_records
        self._to_rows = to_rows
        self._wants_records = RECORDS.name in tables
        self._emitter = BronzeRows(
            plan, self._replicas, tables, settings.selection, settings.redactor.keyed_hash, facts
        )
        self._archiver = None
        if ARCHIVE.name in tables:
            self._archiver = Archiver(plan, self._readable, settings.redactor.keyed_hash)
        self._redacts = self._wants_records or self._archiver is not None
        self._decoder = Decoder(dialect, settings.redactor if self._redacts else None)
        is_all_decoded = tables != {RECORDS.name} or settings.selection == Selection()
        is_all_decoded &= settings.part == WHOLE_LOG
        self._reached = [0] * len(self._replicas)
        self._survey = None
        if is_all_decoded and plan.is_whole:
            self._survey = SurveyBuilder(self._replicas, dialect)
        self._earlier = earlier

    def surveyed(self) -> Survey:
        """The survey of what was read."""
        if self._survey is None:
            raise ValueError("only a whole plan, all of it decoded, is surveyed")
        return self._survey.survey

    def rows(self) -> Iterator[TableRows]:
        """Rows of the wanted tables, and of no other."""
        yield from self._emitter.planned_damages()
        yield from self._emitter.damages()
        yield from self._logs_and_snapshots()
        for replica in self._replicas:
            if replica.log is None:
                replica.close(self._settings.clock_ms)
        doubt_unborne_snapshots(self._readable)
        has_logs = any(replica.log is not None and replica.log.end_offset for replica in self._readable)
        for replica in self._readable:
            replica.compare_end_with_files(beside_logs=has_logs)
        yield from self._emitter.damages()
        selected = [replica for replica in self._replicas if self._emitter.is_selected(replica)]
        if self.tables & {CAPTURES.name, NODE_CARDS.name}:
            captures = captures_batch([replica for replica in selected if not replica.is_unchanged])
            if CAPTURES.name in self.tables:
                yield CAPTURES.name, captures
            if NODE_CARDS.name in self.tables:
                yield NODE_CARDS.name, node_cards_batch(captures.to_pylist())
        if FILES.name in self.tables:
            yield FILES.name, files_batch(selected)
        if self._survey is not None:
            self._survey.finish()
            if self._earlier is not None:
                self._survey.survey.earlier_logs += earlier_logs(self._earlier, self._survey.survey)
        self.is_done = True

    def _logs_and_snapshots(self) -> Iterator[TableRows]:
        presence = Presence(self.plan.cluster_id, self._readable, self._settings.known, self.plan.decoded_to)
        part = self._settings.part
        snapshots = [each for each in find_snapshots(self._readable) if part.holds_snapshot(each.end_offset)]
        # A snapshot comes where the log reaches its end: short secrets are numbered as they are met, in log order.
        cuts = sorted({snapshot.end_offset for snapshot in snapshots})
        for window in windows(self._readable, self._take_refused, self._close, cuts, part):
            while snapshots and snapshots[0].end_offset <= window.from_offset:
                yield from self._snapshot(snapshots.pop(0))
            yield from self._window(window, presence)
        for rest in presence.rest():
            yield from self._emitter.batches(None, rest, presence, DecodedBatches.unknown(0))
        yield from self._emitter.refused()
        for snapshot in snapshots:
            yield from self._snapshot(snapshot)
        if self._archiver is not None:
            yield from ((ARCHIVE.name, run) for run in self._archiver.finish())

    def _take_refused(self, replica: Replica, chunk: Chunk) -> None:
        """Refused batches may claim any offset: a chunk's belong to the part in which its first sound batch is."""
        at = int(chunk.base_offset[0]) if len(chunk) else self._reached[replica.number]
        if len(chunk):
            self._reached[replica.number] = int(chunk.base_offset[-1])
        if self._settings.part.holds(at):
            self._emitter.take_refused(replica, chunk)

    def _close(self, replica: Replica) -> None:
        replica.close(self._settings.clock_ms)

    def _window(self, window: Window, presence: Presence) -> Iterator[TableRows]:
        labels = None if self._survey is None else self._survey.add_window(window)
        known = presence.known(window.batches, window.to_offset) if self.tables else None
        decoded = DecodedBatches.unknown(len(window.batches))
        if known is not None:
            known.fill_noop_counts(decoded.noop_count)
        is_known = np.zeros(len(window.batches), bool) if known is None else known.decoded(len(window.batches))
        for part, numbers, records in self._decoded(window, is_known, labels):
            judge(decoded, numbers, records)
            if self._survey is not None and labels is not None:
                self._survey.add_controls(window, labels, numbers, records)
            if self.tables and not is_known[numbers[0]]:
                yield from self._record_rows(part.replica, records)
        if self._survey is not None:
            self._survey.add_unsound(window, decoded)
        if self.tables:
            self._emitter.unsound(window.slices, decoded)
            yield from self._emitter.refused()
            yield from self._emitter.batches(window, known, presence, decoded)
            yield from self._emitter.damages()

    def _record_rows(
        self, replica: Replica, records: Records, source: str = LOG_SOURCE, *, is_archived: bool = True
    ) -> Iterator[TableRows]:
        self._emitter.undecodable(replica, records)
        if self._wants_records:
            yield RECORDS.name, self._to_rows(records, source)
        if self._archiver is not None and is_archived:
            yield from ((ARCHIVE.name, run) for run in self._archiver.add(source, replica.number, records))

    def _decoded(self, window: Window, is_known: Mask, labels: Rows | None) -> Iterator[tuple[Slice, Rows, Records]]:
        """(slice, batch numbers, records) of what is decoded while the cluster is read, in the order of the log.

        Records together are either of batches that earlier plans have decoded, or of none of these.

        Short secrets are numbered as they are met, whoever the bytes come from. Batches that are kept are put into the
        store on the way. Without tables control batches alone are decoded: the records of others where they are asked
        for, redacted along the branch that is asked for.
        """
        if self._keeps_records:
            stored = StoredWindow(window.from_offset, window.to_offset)
            self.windows.append(stored)
            everything = np.ones(len(window.batches), bool)
            groups = is_known.astype(np.int64) if self._redacts or labels is None else 2 * labels + is_known
            for part, numbers, rows in window.runs(everything, groups):
                branches = np.zeros(len(numbers), np.int64) if labels is None else labels[numbers]
                batches, chunk = self._store.add(part.replica, part.chunk, rows, branches)
                stored.parts.append(batches)
                if self.tables:
                    batch_records = []
                    for own, records in self._decoder.batches(chunk, numbers, chunk.rows):
                        batch_records.append(records)
                        yield part, own, records
                    self._store.keep_records(batches, batch_records, is_redacted=self._redacts)
            if self.tables:
                return
        for part, numbers, rows in window.runs(self._wanted(window, is_known), is_known.astype(np.int64)):
            yield from ((part, own, records) for own, records in self._decoder.batches(part.chunk, numbers, rows))

    def _wanted(self, window: Window, is_known: Mask) -> Mask:
        """Which batches to decode: not those of earlier plans; where records alone are asked, only those in range."""
        batches = window.batches
        if not self.tables:
            return window.header("is_control")
        wanted = ~is_known if self._survey is None else ~is_known | window.header("is_control")
        if self.tables == {RECORDS.name}:
            wanted &= self._settings.selection.includes(batches.base_offset, batches.last_offset)
        return wanted

    def _snapshot(self, snapshot: Snapshot) -> Iterator[TableRows]:
        keeps_bytes = self._keeps_records or bool(self.tables)
        checker = SnapshotChecker(self._scan_settings, self.plan.known_sources, self._store if keeps_bytes else None)
        checker.check(snapshot)
        if self._survey is not None:
            self._survey.add_snapshot(snapshot)
        if self.tables:
            is_archived = self._archiver is not None and self._archiver.wants(snapshot)
            for copy in snapshot.copies:
                if not copy.is_known:
                    is_decoded = copy is snapshot.decoded
                    yield from self._copy(copy, is_decoded=is_decoded, is_archived=is_archived)
                    if copy in snapshot.versions[1:]:
                        self._version(copy)
            yield from self._emitter.damages()
        if self._keeps_records:
            self.snapshots[snapshot.source] = snapshot
        else:
            for version in snapshot.versions or [copy for copy in (snapshot.decoded,) if copy is not None]:
                checker.forget(version)

    def _copy(self, copy: SnapshotCopy, *, is_decoded: bool, is_archived: bool) -> Iterator[TableRows]:
        """The rows of one copy; the records of the one that is decoded."""
        for number, chunk in enumerate(copy.chunks):
            self._emitter.take_refused(copy.replica, chunk, copy.source)
            yield from self._emitter.refused()
            decoded = DecodedBatches.unknown(len(chunk))
            if is_decoded:
                yield from self._copy_records(copy, copy.stored[number], decoded, is_archived=is_archived)
            yield from self._emitter.copy_batches(copy.replica, chunk, copy.source, decoded)

    def _version(self, copy: SnapshotCopy) -> None:
        """Says what of another version of a snapshot cannot be decoded; its records are no rows."""
        decoder = Decoder(self._decoder.dialect, None)
        for stored in copy.stored:
            chunk = self._store.chunk(stored)
            for records in self._judged(decoder, copy, chunk, DecodedBatches.unknown(len(chunk))):
                self._emitter.undecodable(copy.replica, records)

    def _judged(self, decoder: Decoder, copy: SnapshotCopy, chunk: Chunk, decoded: DecodedBatches) -> Iterator[Records]:
        """The records of a copy's chunk; `decoded` learns what cannot be decoded, and each such batch is refused."""
        for numbers, records in decoder.batches(chunk, np.arange(len(chunk)), chunk.rows):
            judge(decoded, numbers, records)
            yield records
        for number in np.flatnonzero(decoded.status != OK).tolist():
            self._emitter.refuse(copy.replica, chunk, int(chunk.rows[number]), decoded, number)

    def _copy_records(
        self, copy: SnapshotCopy, stored: StoredBatches, decoded: DecodedBatches, *, is_archived: bool
    ) -> Iterator[TableRows]:
        chunk = stored.place if isinstance(stored.place, Chunk) else self._store.chunk(stored)
        batch_records = []
        for records in self._judged(self._decoder, copy, chunk, decoded):
            batch_records.append(records)
            yield from self._record_rows(copy.replica, records, copy.source, is_archived=is_archived)
        if self._keeps_records:
            self._store.keep_records(stored, batch_records, is_redacted=self._redacts)
