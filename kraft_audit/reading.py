"""One reading of one cluster: every byte of its replicas is read once, and everything else is a view of that.

`ClusterReading` opens the replicas that a plan names and reads them in lock step by offsets: it frames and checks every
batch, decodes each distinct one once, and follows where the logs part. The rows of the bronze tables leave while it
reads. Which branch is the canonical log is known only at the end, so the bytes of the distinct batches go to a
`RecordStore`: memory, then a compressed private file. The records of a branch, and of a snapshot, come from there as
typed columns, in the order in which secrets are numbered: that of whoever asks, along one branch.

Chosen over a store of typed columns, which takes twice the room and would fix that order while the branch is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final

import numpy as np
import pyarrow as pa

from kraft_audit.capture.bronze_rows import LOG_SOURCE, TableRows
from kraft_audit.capture.cluster_pass import ClusterPass, ToRows
from kraft_audit.capture.decoded_records import (
    Decoder,
    Records,
    RecordWindow,
    record_type_batch,
    record_type_message,
    records_batch,
    typed_records,
)
from kraft_audit.capture.earlier_survey import EarlierSurvey
from kraft_audit.capture.log_facts import LogFacts
from kraft_audit.capture.plan import ClusterPlan, Selection
from kraft_audit.capture.record_store import RecordStore, StoredBatches, Wanted
from kraft_audit.capture.replica import ReadingSettings
from kraft_audit.capture.scanner import ChangedError, Chunk
from kraft_audit.capture.snapshots import Snapshot
from kraft_audit.capture.survey import Survey
from kraft_audit.tables.bronze import ARCHIVE, BATCHES, CAPTURES, DECODE_ERRORS, FILES, NODE_CARDS, RECORDS
from kraft_audit.tables.contract import slices
from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_codec.errors import Reason
from kraft_codec.kernels.codes import OK
from kraft_codec.schemas import CONTROL_TYPES, METADATA_RECORDS, Dialect
from kraft_codec.storage.random_access import Closeable

__all__ = ["BRONZE_TABLES", "ClusterReading", "ReadingSettings", "read_survey"]

BRONZE_TABLES: Final = frozenset(
    {CAPTURES.name, NODE_CARDS.name, FILES.name, BATCHES.name, RECORDS.name, ARCHIVE.name, DECODE_ERRORS.name}
)
"""What `ClusterReading.bronze` gives."""
UNREAD: Final = frozenset({Reason.UNREADABLE, Reason.CHANGED_DURING_READ})
"""Reasons why bytes are missing, whatever they would have said."""


class ClusterReading(Closeable):
    """The replicas of one plan, read once: by `bronze`, or by whatever is asked for first.

    With `keeps_records` the records of every branch and snapshot can be asked for afterwards, as often as wanted.
    `earlier` is an earlier survey, which has the leaders and voter sets of records that Kafka has deleted since. Raises
    InputError where a storage cannot be opened.
    """

    def __init__(
        self,
        plan: ClusterPlan,
        settings: ReadingSettings,
        *,
        keeps_records: bool = True,
        earlier: EarlierSurvey | None = None,
    ) -> None:
        self.plan = plan
        self._earlier = earlier
        self.settings = settings
        self.dialect = plan.read_as
        self.store = RecordStore()
        self._keeps_records = keeps_records
        self._stack = ExitStack()
        self._pass: ClusterPass | None = None

    def close(self) -> None:
        """Closes the storages and drops what was kept; the survey stays."""
        self._stack.close()
        self.store.close()
        if self._pass is not None:
            self._pass.windows.clear()
            self._pass.snapshots.clear()

    def bronze(self, tables: frozenset[str] = BRONZE_TABLES, facts: LogFacts | None = None) -> Iterator[TableRows]:
        """The rows of bronze tables, in batches of at most 65,000 rows, while the cluster is read: asked once, first.

        Other tables give nothing. The rows and their order depend on the plan and the bytes alone. `facts` learn who
        holds which batch, whether or not rows of `batches` are wanted.
        """
        yield from _in_slices(self._open(tables, facts).rows())

    def typed_records(self, record_type: str) -> Iterator[pa.RecordBatch]:
        """The records of one type, fields as typed columns, by `record_type_schema`: asked instead of `bronze`.

        Raises ValueError where the dialect has no such type. Records that cannot be decoded have no row.
        """
        message = record_type_message(record_type, self.dialect)
        plan, selection = self.plan, self.settings.selection

        def to_rows(records: Records, source: str) -> pa.RecordBatch:
            return record_type_batch(records, message, source, selection, cluster_id=plan.cluster_id, plan=plan.number)

        for _, batch in self._begin(frozenset({RECORDS.name}), to_rows).rows():
            yield from slices(batch)

    @property
    def survey(self) -> Survey:
        """Branches, ends, epochs, control records and snapshots of all replicas of a whole plan."""
        return self._done.surveyed()

    def windows(
        self, path: Sequence[int], from_offset: int = 0, to_offset: int | None = None
    ) -> Iterator[RecordWindow]:
        """The records of the branches in `path` (`Survey.path`) as typed columns, secrets redacted, by windows.

        They are those of the batches that begin in [from_offset, to_offset). Raises ChangedError where batches that no
        memory or file could hold are not in the storage any more.
        """
        on_path = np.array(path, np.int64)
        for window in self._done.windows:
            if window.to_offset <= from_offset or (to_offset is not None and window.from_offset >= to_offset):
                continue
            builder = _WindowBuilder(self.dialect)
            for part in window.parts:
                for records, mask in self._records(part, on_path, from_offset, to_offset):
                    builder.add(records, mask)
            if builder.end_offset is not None:
                end = window.to_offset if to_offset is None else min(window.to_offset, to_offset)
                # A window's end bounds where batches begin; the last one's records may lie after it.
                yield builder.build(max(window.from_offset, from_offset), max(end, builder.end_offset))

    def snapshot(self, source: str, version: int = 0) -> Iterator[RecordWindow]:
        """The records of one snapshot, by windows of the offsets inside it.

        `version` is the place in `SurveyedSnapshot.versions`, whose copies differ; 0 is what most disks hold. Raises
        ValueError for a source that the plan does not have, ChangedError where no copy could be read whole.
        """
        snapshot = self._done.snapshots.get(source)
        if snapshot is None:
            raise ValueError(f"no snapshot {source} in this plan")
        _require_readable(snapshot)
        copy = snapshot.versions[version] if version else snapshot.decoded or snapshot.copies[0]
        decoder = Decoder(self.dialect, self.settings.redactor)
        for chunk, stored in zip(copy.chunks, copy.stored, strict=True):
            builder = _WindowBuilder(self.dialect)
            for records, mask in self.store.records(stored, decoder):
                builder.add(records, mask)
            yield builder.build(int(chunk.base_offset[0]), int(chunk.last_offset[-1]) + 1)

    def log_records(self, from_offset: int, to_offset: int) -> Iterator[pa.RecordBatch]:
        """The rows of `records` of the log, on any branch, with offsets in [from_offset, to_offset)."""
        plan, keyed_hash = self.plan, self.settings.redactor.keyed_hash
        selection = Selection(from_offset=from_offset, to_offset=to_offset)

        def wanted(chunk: Chunk) -> Mask:
            return (chunk.last_offset >= from_offset) & (chunk.base_offset < to_offset)

        decoder = Decoder(self.dialect, self.settings.redactor)
        for window in self._done.windows:
            for part in window.parts:
                if part.first_offset < to_offset and part.end_offset > from_offset:
                    for records, _ in self.store.records(part, decoder, wanted):
                        yield records_batch(
                            records, LOG_SOURCE, selection, keyed_hash, cluster_id=plan.cluster_id, plan=plan.number
                        )

    def log_batches(self, path: Sequence[int], from_offset: int, to_offset: int) -> Iterator[tuple[Chunk, Rows]]:
        """(chunk, rows) of the batches of a path that hold any of the offsets, as they were read: secrets included."""
        on_path = np.array(path, np.int64)
        for window in self._done.windows:
            for part in window.parts:
                if part.first_offset < to_offset and part.end_offset > from_offset:
                    chunk = self.store.chunk(part)
                    is_wanted = np.isin(part.branches, on_path) & (chunk.last_offset >= from_offset)
                    rows = chunk.rows[is_wanted & (chunk.base_offset < to_offset)]
                    if len(rows):
                        yield chunk, rows

    def _records(
        self, part: StoredBatches, on_path: Rows, from_offset: int, to_offset: int | None
    ) -> Iterator[tuple[Records, Mask]]:
        is_on_path = np.isin(part.branches, on_path)
        end = part.last_base_offset + 1 if to_offset is None else to_offset
        if not is_on_path.any() or part.last_base_offset < from_offset or part.first_offset >= end:
            return

        def wanted(chunk: Chunk) -> Mask:
            return is_on_path & (chunk.base_offset >= from_offset) & (chunk.base_offset < end)

        is_whole = is_on_path.all() and part.first_offset >= from_offset and part.last_base_offset < end
        selects: Wanted | None = None if is_whole else wanted
        yield from self.store.records(part, Decoder(self.dialect, self.settings.redactor), selects)

    def _open(self, tables: frozenset[str], facts: LogFacts | None) -> ClusterPass:
        plan, keyed_hash, selection = self.plan, self.settings.redactor.keyed_hash, self.settings.selection

        def to_rows(records: Records, source: str) -> pa.RecordBatch:
            return records_batch(records, source, selection, keyed_hash, cluster_id=plan.cluster_id, plan=plan.number)

        return self._begin(tables, to_rows, facts)

    def _begin(self, tables: frozenset[str], to_rows: ToRows, facts: LogFacts | None = None) -> ClusterPass:
        if self._pass is not None:
            raise ValueError("a cluster is read once")
        self._pass = ClusterPass(
            self.plan,
            self.settings,
            tables & BRONZE_TABLES,
            to_rows,
            store=self.store,
            stack=self._stack,
            keeps_records=self._keeps_records,
            earlier=self._earlier,
            facts=facts,
        )
        return self._pass

    @property
    def _done(self) -> ClusterPass:
        """The pass, run to its end."""
        if self._pass is None:
            for _ in self.bronze(frozenset()):
                pass
        if self._pass is None or not self._pass.is_done:
            raise ValueError("the bronze rows must be taken to their end first")
        return self._pass


def _in_slices(rows: Iterator[TableRows]) -> Iterator[TableRows]:
    for name, batch in rows:
        yield from ((name, part) for part in slices(batch))


def read_survey(plan: ClusterPlan, settings: ReadingSettings) -> Survey:
    """The survey of a whole plan, for whoever needs nothing else. Raises InputError."""
    with ClusterReading(plan, settings, keeps_records=False) as reading:
        return reading.survey


class _WindowBuilder:
    """Gathers decoded batches into one window of typed columns."""

    def __init__(self, dialect: Dialect) -> None:
        self.end_offset: int | None = None
        self._dialect = dialect
        self._records: list[Records] = []
        self._masks: list[Mask | None] = []
        self._undecoded: list[Rows] = []

    def add(self, records: Records, mask: Mask) -> None:
        """Takes the records of the batches that `mask` picks of `records.index.selected`."""
        index = records.index
        picked = index.selected[mask]
        if not len(picked):
            return
        end = int(index.batches.last_offset[picked].max()) + 1
        self.end_offset = end if self.end_offset is None else max(end, self.end_offset)
        rows: Mask | None = None
        if not mask.all():
            is_picked = np.zeros(len(index.batches), bool)
            is_picked[picked] = True
            rows = is_picked[index.batch_row]
        is_undecodable = index.status != OK
        self._undecoded.append(index.offset[is_undecodable if rows is None else is_undecodable & rows])
        self._undecoded.append(index.batches.base_offset[index.selected[mask & (index.batch_status != OK)]])
        self._records.append(records)
        self._masks.append(rows)

    def build(self, from_offset: int, to_offset: int) -> RecordWindow:
        """The window with its bounds."""
        messages = [*METADATA_RECORDS, *(control.message for control in CONTROL_TYPES[self._dialect].values())]
        columns = typed_records([records.index for records in self._records], messages, self._masks)
        undecoded = np.sort(np.concatenate([np.zeros(0, np.int64), *self._undecoded]))
        return RecordWindow(from_offset, to_offset, columns, undecoded)


def _require_readable(snapshot: Snapshot) -> None:
    """Raises ChangedError where no copy is whole because one could not be read: a part of a state is no state."""
    if any(copy.is_complete for copy in snapshot.copies):
        return
    for copy in snapshot.copies:
        if copy.unread is not None and copy.unread.reason in UNREAD:
            error = copy.unread
            raise ChangedError(error.reason, error.position, f"snapshot {snapshot.source}: {error.detail}")
