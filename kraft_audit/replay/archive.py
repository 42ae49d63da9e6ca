"""Rows of `archive`: each distinct batch as bytes that may be kept for ever, in runs of about 256 KiB.

Runs come out of what was just decoded, secrets overwritten in the buffer that was read. Whole stretches of it are
copied; only batches that hold a secret, or a record that this codec does not know, are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.replay.continuity import Rows
from kraft_audit.replay.decode import Records
from kraft_audit.replay.plan import ClusterPlan
from kraft_audit.replay.replica import Replica
from kraft_audit.replay.rows import LOG, value_hash
from kraft_audit.replay.snapshots import Snapshot
from kraft_codec.columns_batches import BatchIndex
from kraft_codec.compression import Codec
from kraft_codec.kernels.codes import OK
from kraft_codec.rewriting import NO_OP_VALUE, plain_image, records_to_rewrite, rewritten, with_new_crc
from kraft_codec.tables import ARCHIVE, build_rows

RUN_BYTES: Final = 256 << 10
KeyedHash = Callable[[memoryview], str]


@dataclass(slots=True)
class _Run:
    """Batches of one epoch that follow each other, until there are enough of them."""

    source: str
    epoch: int
    from_offset: int
    to_offset: int
    first_crc: int
    last_crc: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    batch_count: int = 0
    record_count: int = 0
    size_bytes: int = 0
    pieces: list[bytes] = field(default_factory=list)
    changed: list[dict[str, Any]] = field(default_factory=list)
    unknown: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Changed:
    """A batch that is not kept byte for byte."""

    content: bytes
    is_redacted: bool
    unknown: list[dict[str, Any]]


class Archiver:
    """Gathers the batches of one plan into runs; each batch is offered once, in the order of the log.

    `goes_on_from` is the end of what earlier plans archived of this cluster, `reads_from` the first offset that this
    plan reads: where the one does not reach the other, and behind every hole, the next snapshot is kept too.
    """

    def __init__(
        self, cluster_id: str, plan: int, keyed_hash: KeyedHash, *, goes_on_from: int, reads_from: int | None
    ) -> None:
        self.cluster_id = cluster_id
        self.plan = plan
        self.keyed_hash = keyed_hash
        self._runs: dict[int, _Run] = {}
        self._reaches = goes_on_from
        self._needs_snapshot_from = reads_from if reads_from is not None and reads_from > goes_on_from else None

    def wants(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot is kept: what a node was formatted with, and the first one that a part of the log needs.

        Asked when the log has been offered up to the snapshot's end.
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
        """Takes the sound batches of `records`, whose bytes came from that replica; gives the runs that are full."""
        index, batches = records.index, records.index.batches
        is_sound = index.batch_status == OK
        rows = index.selected[is_sound]
        if not len(rows):
            return
        if source == LOG:
            self._note_holes(batches.base_offset[rows], batches.last_offset[rows])
        changed = self._changed(records)
        full: list[dict[str, Any]] = []
        for start, end in _stretches(batches, rows, changed):
            full += self._take(source, replica, records, rows[start:end], changed.get(int(rows[start])))
        if full:
            yield build_rows(ARCHIVE, full)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The runs that are not full."""
        if self._runs:
            yield build_rows(ARCHIVE, [self._row(self._runs[replica]) for replica in sorted(self._runs)])
        self._runs.clear()

    def _note_holes(self, base_offset: Rows, last_offset: Rows) -> None:
        before = np.maximum.accumulate(np.concatenate(([self._reaches], last_offset + 1)))
        holes = np.flatnonzero(base_offset > before[:-1])
        if len(holes):
            self._needs_snapshot_from = int(base_offset[holes[-1]])
        self._reaches = int(before[-1])

    def _changed(self, records: Records) -> dict[int, _Changed]:
        """The batches to be written anew, by their rows in the chunk's index."""
        index = records.index
        is_odd = records_to_rewrite(index)
        touched = np.unique(index.batch_row[is_odd | records.is_redacted])
        return {row: self._anew(records, row, is_odd) for row in touched.tolist()}

    def _anew(self, records: Records, row: int, is_odd: npt.NDArray[np.bool_]) -> _Changed:
        index = records.index
        first, end = np.searchsorted(index.batch_row, (row, row + 1)).tolist()
        codec = Codec(int(index.batches.codec[row]))
        image = plain_image(index, row, len(records.chunk.buffer))
        unknown_rows = [one for one in range(first, end) if index.status[one] != OK]
        unknown = [self._unknown(records, one) for one in unknown_rows]
        is_redacted = bool(records.is_redacted[first:end].any())
        if codec is Codec.NONE and not is_odd[first:end].any():
            return _Changed(with_new_crc(image), is_redacted, unknown)
        no_ops = dict.fromkeys(index.offset[unknown_rows].tolist(), NO_OP_VALUE)
        return _Changed(rewritten(image, codec, no_ops), is_redacted, unknown)

    def _unknown(self, records: Records, row: int) -> dict[str, Any]:
        index = records.index
        number, version = int(index.api_key[row]), int(index.version[row])
        return {
            "offset": int(index.offset[row]),
            "is_control": bool(index.is_control[row]),
            "type_number": None if number < 0 else number,
            "record_version": None if version < 0 else version,
            "value_bytes": max(int(index.value_length[row]), 0),
            "value_hash": value_hash(index, row, self.keyed_hash),
        }

    def _take(
        self, source: str, replica: int, records: Records, rows: Rows, changed: _Changed | None
    ) -> Iterator[dict[str, Any]]:
        """Appends one stretch to the replica's run, or begins another where it does not go on there; the full ones."""
        batches = records.index.batches
        first, last = int(rows[0]), int(rows[-1])
        epoch, base_offset = int(batches.leader_epoch[first]), int(batches.base_offset[first])
        run = self._runs.get(replica)
        if run is not None and (run.source, run.epoch, run.to_offset) != (source, epoch, base_offset):
            yield self._row(self._runs.pop(replica))
            run = None
        if run is None:
            first_crc, time_ms = int(batches.crc[first]), int(batches.base_timestamp_ms[first])
            run = _Run(source, epoch, base_offset, base_offset, first_crc, 0, time_ms, time_ms)
            self._runs[replica] = run
        if changed is None:
            end = int(batches.position[last]) + int(batches.size_bytes[last])
            content = records.chunk.buffer[int(batches.position[first]) : end].tobytes()
        else:
            content = changed.content
            crc = int(batches.crc[first])
            run.changed.append({"base_offset": base_offset, "original_crc": crc, "is_redacted": changed.is_redacted})
            run.unknown += changed.unknown
        run.pieces.append(content)
        run.size_bytes += len(content)
        run.to_offset, run.last_crc = int(batches.last_offset[last]) + 1, int(batches.crc[last])
        run.batch_count += len(rows)
        run.record_count += int(batches.record_count[rows].sum())
        run.max_timestamp_ms = max(run.max_timestamp_ms, int(batches.max_timestamp_ms[rows].max()))
        if run.size_bytes >= RUN_BYTES:
            yield self._row(self._runs.pop(replica))

    def _row(self, run: _Run) -> dict[str, Any]:
        return {
            "cluster_id": self.cluster_id,
            "source": run.source,
            "leader_epoch": run.epoch,
            "from_offset": run.from_offset,
            "to_offset": run.to_offset,
            "first_crc": run.first_crc,
            "last_crc": run.last_crc,
            "base_timestamp_ms": run.base_timestamp_ms,
            "max_timestamp_ms": run.max_timestamp_ms,
            "batch_count": run.batch_count,
            "record_count": run.record_count,
            "size_bytes": run.size_bytes,
            "content": b"".join(run.pieces),
            "changed_batches": run.changed,
            "unknown_records": run.unknown,
            "plan": self.plan,
        }


def archiver_of(plan: ClusterPlan, replicas: Sequence[Replica], keyed_hash: KeyedHash) -> Archiver:
    """The archiver of one reading of a plan."""
    starts = [replica.log.reads_from_offset for replica in replicas if replica.log is not None]
    reads_from = min((start for start in starts if start is not None), default=None)
    return Archiver(plan.cluster_id, plan.number, keyed_hash, goes_on_from=plan.decoded_to, reads_from=reads_from)


def _stretches(batches: BatchIndex, rows: Rows, changed: dict[int, _Changed]) -> Iterator[tuple[int, int]]:
    """Ranges of `rows` that can be copied at once: neighbours in bytes, offsets and epoch, about a run's size.

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
