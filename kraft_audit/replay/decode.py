"""Each distinct batch decoded once: sound or refused, its records indexed and redacted, ready for columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kraft_audit.replay.continuity import Rows
from kraft_audit.replay.reconcile import Slice, Window
from kraft_audit.replay.scanner import Chunk
from kraft_codec.columns import RecordIndex, index_records, redact, row_groups
from kraft_codec.errors import Reason
from kraft_codec.kernels.codes import OK, REASONS
from kraft_codec.redaction import Redactor
from kraft_codec.schemas import METADATA_BY_NAME, Dialect

NO_OP: Final = METADATA_BY_NAME["NoOpRecord"].number
NOT_DECODED: Final = -1


@dataclass(slots=True, eq=False)
class DecodedBatches:
    """What decoding said of each distinct batch of a window, one element a batch.

    `status` is a kernel's status (0: sound), `error_in_batch` where in the batch the error stands, and `noop_count`
    NOT_DECODED where the batch was not asked for.
    """

    status: npt.NDArray[np.uint8]
    error_in_batch: Rows
    noop_count: Rows

    @classmethod
    def unknown(cls, count: int) -> DecodedBatches:
        return cls(np.zeros(count, np.uint8), np.zeros(count, np.int64), np.full(count, NOT_DECODED, np.int64))


@dataclass(slots=True, eq=False)
class Records:
    """The records of some batches of one chunk, secrets overwritten.

    `is_redacted` tells which records held a secret.
    """

    index: RecordIndex
    chunk: Chunk
    is_redacted: npt.NDArray[np.bool_]

    @property
    def leader_epoch(self) -> Rows:
        """That of each record's batch."""
        return self.chunk.index.leader_epoch[self.index.batch_row].astype(np.int64)

    @property
    def batch_crc(self) -> Rows:
        """That of each record's batch."""
        return self.chunk.index.crc[self.index.batch_row].astype(np.int64)

    def file_position(self, row: int) -> int:
        """Where an undecodable record's error stands in its file."""
        return self.chunk.file_position + self.index.error_position(row)

    def reason(self, row: int) -> Reason:
        return self.index.reason(row) or Reason.BAD_RECORD


class Decoder:
    """Decodes by one dialect, with the redactor of one cluster; None where nothing decoded leaves this process."""

    def __init__(self, dialect: Dialect, redactor: Redactor | None) -> None:
        self.dialect = dialect
        self.redactor = redactor

    def window(self, window: Window, wanted: npt.NDArray[np.bool_]) -> Iterator[tuple[Slice, Rows, Records]]:
        """(slice, batch numbers, records) of the wanted batches, in the order of the distinct batches.

        The order is that of the log, whoever the bytes come from, because the redactor numbers short secrets as it
        meets them. Batches that turn out unsound have no records; `judge` tells them.
        """
        slice_of, row_of = window.sources(wanted)
        numbers = np.flatnonzero(slice_of >= 0)
        changes = np.flatnonzero(slice_of[numbers][1:] != slice_of[numbers][:-1]) + 1
        for run in np.split(numbers, changes):
            if len(run):
                part = window.slices[int(slice_of[run[0]])]
                yield from self._slice(part, run, row_of[run])

    def _slice(self, part: Slice, numbers: Rows, rows: Rows) -> Iterator[tuple[Slice, Rows, Records]]:
        start = 0
        for group in row_groups(part.chunk.index, rows):
            yield part, numbers[start : start + len(group)], self.records(part.chunk, group)
            start += len(group)

    def chunk(self, chunk: Chunk) -> Iterator[tuple[Rows, Records]]:
        """(places, records) of all kept batches of a chunk."""
        start = 0
        for group in row_groups(chunk.index, chunk.rows):
            yield np.arange(start, start + len(group)), self.records(chunk, group)
            start += len(group)

    def records(self, chunk: Chunk, rows: Rows) -> Records:
        """The records of a chunk's batches at `rows`; each batch may be asked for once, as its bytes change."""
        index = index_records(chunk.buffer, chunk.index, rows, self.dialect)
        is_redacted = np.zeros(len(index), bool) if self.redactor is None else redact(index, self.redactor)
        return Records(index, chunk, is_redacted)


def judge(decoded: DecodedBatches, numbers: Rows, records: Records) -> None:
    """Notes what decoding said of the batches `numbers`, which `records` are of."""
    index = records.index
    decoded.status[numbers] = index.batch_status
    decoded.error_in_batch[numbers] = index.batch_status_position - records.chunk.index.position[index.selected]
    is_noop = (index.api_key == NO_OP) & ~index.is_control & (index.status == OK)
    place = np.searchsorted(index.selected, index.batch_row[is_noop])
    counts = np.bincount(place, minlength=len(index.selected))
    decoded.noop_count[numbers] = np.where(index.batch_status == OK, counts, NOT_DECODED)


def reason_of(status: int) -> Reason:
    """The reason that a status which is not OK stands for."""
    return REASONS[status] or Reason.BAD_RECORD
