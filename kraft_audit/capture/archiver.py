"""Rows of `archive`: each distinct batch as bytes that may be stored for ever, in runs of about 256 KiB.

Runs are copied from the chunks that were just decoded, in which secrets are already overwritten. Long ranges are copied
at once; only batches with a secret, or with a record that this codec does not know, are rewritten one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kraft_audit.capture.bronze_rows import LOG_SOURCE
from kraft_audit.capture.decoded_records import Records, value_hash
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.replica import Replica
from kraft_audit.capture.scanner import ValueHash
from kraft_audit.capture.snapshots import Snapshot
from kraft_audit.tables.bronze import ARCHIVE
from kraft_audit.tables.contract import build_rows
from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_codec.columns.batches import BatchIndex
from kraft_codec.columns.rewriting import NO_OP_VALUE, plain_image, records_to_rewrite, rewritten, with_new_crc
from kraft_codec.kernels.codes import OK
from kraft_codec.records.compression import Codec

RUN_BYTES: Final = 256 << 10


@dataclass(slots=True)
class _ArchiveRun:
    """Consecutive batches of one epoch, collected until they fill a row of `archive`; named as its columns."""

    source: str
    leader_epoch: int
    from_offset: int
    to_offset: int
    first_crc: int
    last_crc: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    batch_count: int = 0
    record_count: int = 0
    size_bytes: int = 0
    content: list[bytes] = field(default_factory=list)
    changed_batches: list[dict[str, Any]] = field(default_factory=list)
    unknown_records: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _ChangedBatch:
    """A batch that is not archived byte for byte."""

    content: bytes
    is_redacted: bool
    unknown: list[dict[str, Any]]


class Archiver:
    """Collects the batches of one plan into runs; every batch is added once, in log order.

    Where this reading begins after what earlier plans archived, and after every gap, the next snapshot is archived too.
    """

    def __init__(self, plan: ClusterPlan, replicas: Sequence[Replica], keyed_hash: ValueHash) -> None:
        self._plan = plan
        self._keyed_hash = keyed_hash
        self._runs: dict[int, _ArchiveRun] = {}
        self._reaches = plan.decoded_to
        starts = (replica.log.reads_from_offset for replica in replicas if replica.log is not None)
        reads_from = min((start for start in starts if start is not None), default=0)
        self._needs_snapshot_from = reads_from if reads_from > self._reaches else None

    def wants(self, snapshot: Snapshot) -> bool:
        """Whether to archive a snapshot: the one a node was formatted with, and the first one after a gap.

        To be asked when the log has been added up to the snapshot's end.
        """
        copy = snapshot.decoded
        if copy is None or not copy.is_complete:
            return False
        if snapshot.end_offset == 0:
            return True
        wanted = self._needs_snapshot_from is not None and snapshot.end_offset >= self._needs_snapshot_from
        if wanted or snapshot.end_offset > self._reaches:
            self._needs_snapshot_from = None
            self._reaches = max(self._reaches, snapshot.end_offset)
            return True
        return False

    def add(self, source: str, replica: int, records: Records) -> Iterator[pa.RecordBatch]:
        """Adds the valid batches of `records`, which were read from that replica; yields the runs that are full."""
        index, batches = records.index, records.index.batches
        is_valid = index.batch_status == OK
        rows = index.selected[is_valid]
        if not len(rows):
            return
        if source == LOG_SOURCE:
            self._note_gaps(batches.base_offset[rows], batches.last_offset[rows])
        changed = self._changed(records)
        full: list[dict[str, Any]] = []
        for start, end in _copied_ranges(batches, rows, changed):
            full += self._take(source, replica, records, rows[start:end], changed.get(int(rows[start])))
        if full:
            yield build_rows(ARCHIVE, full)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The remaining runs."""
        if self._runs:
            yield build_rows(ARCHIVE, [self._row(self._runs[replica]) for replica in sorted(self._runs)])
        self._runs.clear()

    def _note_gaps(self, base_offset: Rows, last_offset: Rows) -> None:
        before = np.maximum.accumulate(np.concatenate(([self._reaches], last_offset + 1)))
        gaps = np.flatnonzero(base_offset > before[:-1])
        if len(gaps):
            self._needs_snapshot_from = int(base_offset[gaps[-1]])
        self._reaches = int(before[-1])

    def _changed(self, records: Records) -> dict[int, _ChangedBatch]:
        """The batches that have to be rewritten, by row of the chunk's index."""
        index = records.index
        is_odd = records_to_rewrite(index)
        touched = np.unique(index.batch_row[is_odd | records.is_redacted])
        return {row: self._changed_batch(records, row, is_odd) for row in touched.tolist()}

    def _changed_batch(self, records: Records, row: int, is_odd: Mask) -> _ChangedBatch:
        index = records.index
        first, end = np.searchsorted(index.batch_row, (row, row + 1)).tolist()
        codec = Codec(int(index.batches.codec[row]))
        image = plain_image(index, row, len(records.chunk.buffer))
        unknown_rows = [record for record in range(first, end) if index.status[record] != OK]
        unknown = [self._unknown(records, record) for record in unknown_rows]
        is_redacted = bool(records.is_redacted[first:end].any())
        if codec is Codec.NONE and not is_odd[first:end].any():
            return _ChangedBatch(with_new_crc(image), is_redacted, unknown)
        no_ops = dict.fromkeys(index.offset[unknown_rows].tolist(), NO_OP_VALUE)
        return _ChangedBatch(rewritten(image, codec, no_ops), is_redacted, unknown)

    def _unknown(self, records: Records, row: int) -> dict[str, Any]:
        index = records.index
        number, version = int(index.api_key[row]), int(index.version[row])
        return {
            "offset": int(index.offset[row]),
            "is_control": bool(index.is_control[row]),
            "type_number": None if number < 0 else number,
            "record_version": None if version < 0 else version,
            "value_bytes": max(int(index.value_length[row]), 0),
            "value_hash": value_hash(index, row, self._keyed_hash),
        }

    def _take(
        self, source: str, replica: int, records: Records, rows: Rows, changed: _ChangedBatch | None
    ) -> Iterator[dict[str, Any]]:
        """Appends a range of batches to the replica's run, or begins a new run; yields the runs that are complete."""
        batches = records.index.batches
        first, last = int(rows[0]), int(rows[-1])
        epoch, base_offset = int(batches.leader_epoch[first]), int(batches.base_offset[first])
        run = self._runs.get(replica)
        if run is not None and (run.source, run.leader_epoch, run.to_offset) != (source, epoch, base_offset):
            yield self._row(self._runs.pop(replica))
            run = None
        if run is None:
            first_crc, time_ms = int(batches.crc[first]), int(batches.base_timestamp_ms[first])
            run = _ArchiveRun(source, epoch, base_offset, base_offset, first_crc, 0, time_ms, time_ms)
            self._runs[replica] = run
        if changed is None:
            end = int(batches.position[last]) + int(batches.size_bytes[last])
            content = records.chunk.buffer[int(batches.position[first]) : end].tobytes()
        else:
            content = changed.content
            changes = {"original_crc": int(batches.crc[first]), "is_redacted": changed.is_redacted}
            run.changed_batches.append({"base_offset": base_offset, **changes})
            run.unknown_records += changed.unknown
        run.content.append(content)
        run.size_bytes += len(content)
        run.to_offset, run.last_crc = int(batches.last_offset[last]) + 1, int(batches.crc[last])
        run.batch_count += len(rows)
        run.record_count += int(batches.record_count[rows].sum())
        run.max_timestamp_ms = max(run.max_timestamp_ms, int(batches.max_timestamp_ms[rows].max()))
        if run.size_bytes >= RUN_BYTES:
            yield self._row(self._runs.pop(replica))

    def _row(self, run: _ArchiveRun) -> dict[str, Any]:
        row = {column.name: getattr(run, column.name) for column in fields(run)}
        own = {"cluster_id": self._plan.cluster_id, "plan": self._plan.number}
        return {**row, **own, "content": b"".join(run.content)}


def _copied_ranges(batches: BatchIndex, rows: Rows, changed: dict[int, _ChangedBatch]) -> Iterator[tuple[int, int]]:
    """Ranges of `rows` that can be copied at once: adjacent bytes and offsets, one epoch, about RUN_BYTES long.

    A changed batch is a range of its own.
    """
    position, size = batches.position[rows], batches.size_bytes[rows].astype(np.int64)
    is_changed = np.isin(rows, np.fromiter(changed, np.int64, len(changed)))
    starts = np.ones(len(rows), bool)
    starts[1:] = (
        (position[1:] != position[:-1] + size[:-1])
        | (batches.base_offset[rows[1:]] != batches.last_offset[rows[:-1]] + 1)
        | (batches.leader_epoch[rows[1:]] != batches.leader_epoch[rows[:-1]])
        | is_changed[1:]
        | is_changed[:-1]
    )
    cuts = np.flatnonzero(starts)
    reaches = np.cumsum(size)
    for start, end in zip(cuts.tolist(), [*cuts[1:].tolist(), len(rows)], strict=True):
        while start < end:
            before = int(reaches[start - 1]) if start else 0
            stop = min(end, int(np.searchsorted(reaches, before + RUN_BYTES)) + 1)
            yield start, stop
            start = stop
