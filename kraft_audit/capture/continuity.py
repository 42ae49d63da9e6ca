"""Whether each batch of a replica's log fits between its neighbours, and where the log goes on after damage.

A batch's CRC begins after its base offset and leader epoch (DefaultRecordBatch, Kafka 4.3.0). A flipped bit in those is
seen by its neighbours only: offsets run without a gap and epochs never fall. Where one batch alone does not fit, it is
refused; where the log goes on from there, the step is reported and what follows is kept.

Kafka cuts a log at the first bytes that it cannot frame. The batches after them are evidence all the same: a sector of
zeros in the middle of a log leaves whole batches after it. They are found by what a header has to look like, and
believed only where the CRC is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_codec.columns import BatchIndex
from kraft_codec.errors import Reason
from kraft_codec.kernels.codes import REASONS
from kraft_codec.records.batch import BATCH_LENGTH_MAX, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, crc32c, read_header
from kraft_codec.storage.random_access import Buffer, RandomAccess

SEARCH_BYTES: Final = 1 << 20
"""How much is searched for a header at a time."""
CHECKED_BYTES_FACTOR: Final = 2
CHECKED_BYTES_FREE: Final = 16 << 20
"""Bytes of supposed batches whose CRC is computed at most: a fixed part, and a factor of the bytes that remain."""
NEAR_BYTES: Final = (256 << 10, 17 << 20)
"""How much is searched for two batches in a row: as most logs have them, and as the largest batches need."""
OFFSETS_AHEAD_MAX: Final = 1 << 40
"""A header that claims an offset so far ahead is chance or a trap."""
_MAGIC_AT: Final = 16
_CRC_COVERED_FROM: Final = 21
_REASON_TEXTS: Final = {
    Reason.BAD_CRC: "the CRC does not match the bytes",
    Reason.BAD_MAGIC: "the magic byte is not 2",
}
_REPEATS: Final = "where the log already reaches"


def run_begins(values: npt.NDArray[Any], before: int | None = None) -> Mask:
    """Which values differ from the one before them; the first one does where it is not `before`."""
    begins = np.ones(len(values), bool)
    begins[1:] = values[1:] != values[:-1]
    if before is not None:
        begins[:1] = values[:1] != before
    return begins


def is_repeated(reason: str, detail: str) -> bool:
    """Whether a damage is a batch whose offsets the log already holds: no record is missing because of it."""
    return reason == Reason.OVERLAP and _REPEATS in detail


@dataclass(slots=True)
class LogState:
    """Where a log stands after the batches so far.

    `next_offset`: the offset that the next batch should begin at, None where it is not known. `epoch`: that of the last
    accepted batch, -1 for none. `is_gap_explained`: bytes before this point were refused or could not be read, so a gap
    here has been reported already.
    """

    next_offset: int | None = None
    epoch: int = -1
    is_gap_explained: bool = False


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Offset and epoch of the header that follows the last batch of a chunk."""

    base_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ContinuityProblem:
    """What is wrong with `row_count` batches from row `row` on. `is_refused`: they do not become part of the log."""

    row: int
    row_count: int
    reason: Reason
    detail: str
    is_refused: bool


def check_continuity(
    batches: BatchIndex, state: LogState, after: Neighbour | None
) -> tuple[Rows, list[ContinuityProblem]]:
    """The rows of the accepted batches, ascending, and the problems found; moves `state` past the last batch.

    `after` is the header that follows these batches in the file, None at its end.
    """
    if not len(batches) or (batches.is_continuous and _start_fits(batches, state) and _end_fits(batches, after)):
        _move_past(batches, len(batches) - 1, state)
        return np.arange(len(batches), dtype=np.int64), []
    return _ContinuityCheck(batches, state, after).run()


def _start_fits(batches: BatchIndex, state: LogState) -> bool:
    """Whether the first batch begins where the log stands, in the same or a later epoch."""
    is_next = state.next_offset is None or state.next_offset == batches.base_offset[0]
    return bool(is_next and batches.leader_epoch[0] >= state.epoch)


def _end_fits(batches: BatchIndex, after: Neighbour | None) -> bool:
    """Whether the last batch ends with its records, and what follows has its epoch or a later one."""
    has_its_records = batches.last_offset_delta[-1] + 1 == batches.record_count[-1]
    return bool(has_its_records and (after is None or batches.leader_epoch[-1] <= after.leader_epoch))


def _move_past(batches: BatchIndex, row: int, state: LogState) -> None:
    if row >= 0:
        state.next_offset = int(batches.base_offset[row]) + int(batches.last_offset_delta[row]) + 1
        state.epoch = int(batches.leader_epoch[row])
        state.is_gap_explained = False


class _ContinuityCheck:
    def __init__(self, batches: BatchIndex, state: LogState, after: Neighbour | None) -> None:
        self.batches = batches
        self.state = state
        self.after = after
        self.count = len(batches)
        self.problems: list[ContinuityProblem] = []
        self.last_offset = batches.last_offset  # wraps only where is_impossible
        self.is_impossible = (
            (batches.base_offset < 0) | (batches.last_offset_delta < 0) | (self.last_offset < batches.base_offset)
        )

    def run(self) -> tuple[Rows, list[ContinuityProblem]]:
        odd_rows = np.flatnonzero(self._is_odd())
        pieces: list[Rows] = []
        row = 0
        while row < self.count:
            if not self._accepts(row):
                row += 1
                continue
            # After an accepted row all rows up to the next odd one fit each other.
            following = odd_rows[np.searchsorted(odd_rows, row, side="right") :]
            end = int(following[0]) if len(following) else self.count
            pieces.append(np.arange(row, end, dtype=np.int64))
            _move_past(self.batches, end - 1, self.state)
            row = end
        return (np.concatenate(pieces) if pieces else np.zeros(0, np.int64)), self.problems

    def _is_odd(self) -> Mask:
        base, epoch = self.batches.base_offset, self.batches.leader_epoch
        odd: Mask = (self.batches.status != 0) | self.is_impossible
        odd[1:] |= (base[1:] != self.last_offset[:-1] + 1) | (epoch[1:] < epoch[:-1])
        odd[:-1] |= epoch[:-1] > epoch[1:]
        odd[0] |= not _start_fits(self.batches, self.state)
        odd |= self.batches.last_offset_delta + 1 != self.batches.record_count
        odd[-1] |= not _end_fits(self.batches, self.after)
        return odd

    def _neighbour(self, row: int) -> Neighbour | None:
        if row < self.count:
            if self.batches.status[row] or self.is_impossible[row]:
                return None
            return Neighbour(int(self.batches.base_offset[row]), int(self.batches.leader_epoch[row]))
        return self.after if row == self.count else None

    def _accepts(self, row: int) -> bool:
        status = int(self.batches.status[row])
        if status:
            reason = REASONS[status] or Reason.BAD_RECORD
            self._refuse(row, reason, _REASON_TEXTS.get(reason, "the batch cannot be trusted"))
            return False
        if self.is_impossible[row]:
            base, delta = int(self.batches.base_offset[row]), int(self.batches.last_offset_delta[row])
            self._refuse(row, Reason.BAD_RECORD, f"base offset {base} with last offset delta {delta}")
            return False
        return self._fits_offsets(row) and self._fits_epochs(row) and self._ends_with_its_records(row)

    def _ends_with_its_records(self, row: int) -> bool:
        """Whether the end that a batch claims is where its records end (BatchBuilder, Kafka 4.3.0), or the next begins.

        One forged end would make every later batch of the log a repetition, and this log the longest.
        """
        base, delta = int(self.batches.base_offset[row]), int(self.batches.last_offset_delta[row])
        count, following = int(self.batches.record_count[row]), self._neighbour(row + 1)
        if delta + 1 == count or (following is not None and following.base_offset == base + delta + 1):
            return True
        self._refuse(row, Reason.BAD_RECORD, f"last offset delta {delta} with {count} records")
        if following is not None:
            self.state.next_offset = max(following.base_offset, base + 1)
        return False

    def _fits_offsets(self, row: int) -> bool:
        expected = self.state.next_offset
        base = int(self.batches.base_offset[row])
        if expected is None or base == expected:
            return True
        following = self._neighbour(row + 1)
        after_this = expected + int(self.batches.last_offset_delta[row]) + 1
        step = Reason.GAP if base > expected else Reason.OVERLAP
        if following is not None and following.base_offset == after_this:
            self._refuse(row, step, f"base offset {base} stands between {expected} and {after_this}")
            self.state.next_offset = after_this
            return False
        if base < expected:
            self._overlap(row, base, expected)
            return False
        if not self.state.is_gap_explained:
            detail = f"{base - expected} offsets are missing: {expected} is expected, {base} follows"
            self.problems.append(ContinuityProblem(row, 1, Reason.GAP, detail, False))
        return True

    def _fits_epochs(self, row: int) -> bool:
        before, epoch = self.state.epoch, int(self.batches.leader_epoch[row])
        following, second = self._neighbour(row + 1), self._neighbour(row + 2)
        if epoch < before:
            if following is not None and following.leader_epoch >= before:
                self._refuse(row, Reason.EPOCH_WENT_BACK, f"epoch {epoch} stands between {before} and later ones")
                self.state.next_offset = int(self.last_offset[row]) + 1
                return False
            detail = f"epoch {epoch} follows epoch {before}"
            self.problems.append(ContinuityProblem(row, 1, Reason.EPOCH_WENT_BACK, detail, False))
            return True
        if following is not None and before <= following.leader_epoch < epoch:
            # One of the two is wrong. The batch after them decides which; without one, the epoch that no neighbour has.
            is_next_wrong = second.leader_epoch >= epoch if second is not None else following.leader_epoch != before
            if not is_next_wrong:
                detail = f"epoch {epoch} stands before epoch {following.leader_epoch}"
                self._refuse(row, Reason.EPOCH_WENT_BACK, detail)
                self.state.next_offset = int(self.last_offset[row]) + 1
                return False
        return True

    def _refuse(self, row: int, reason: Reason, detail: str) -> None:
        self.problems.append(ContinuityProblem(row, 1, reason, detail, True))
        self.state.is_gap_explained = True

    def _overlap(self, row: int, base: int, expected: int) -> None:
        """Refuses a batch whose offsets the log already holds; a run of such batches is one problem."""
        last = self.problems[-1] if self.problems else None
        if last is not None and last.reason is Reason.OVERLAP and last.is_refused and last.row + last.row_count == row:
            self.problems[-1] = ContinuityProblem(last.row, last.row_count + 1, last.reason, last.detail, True)
            return
        detail = f"base offset {base} {_REPEATS} {expected}"
        self.problems.append(ContinuityProblem(row, 1, Reason.OVERLAP, detail, True))


def next_batch(
    file: RandomAccess, position: int, *, at_least_offset: int, search_bytes: int = SEARCH_BYTES
) -> int | None:
    """The position of the first whole batch with a right CRC in file[position:], None where there is none.

    `at_least_offset` is where the log stands; a header with an earlier offset, or one far ahead, is not taken for one.
    The time is bounded: when the CRCs of false headers have cost twice the bytes that remain, the search ends.
    `search_bytes` are read at a time.
    """
    budget = CHECKED_BYTES_FREE + CHECKED_BYTES_FACTOR * (file.size_bytes - position)
    while True:
        # A header whose first bytes are zero may begin before the next byte that is not.
        position = max(position, file.next_data(position) - (HEADER_BYTES - 1))
        length = min(search_bytes, file.size_bytes - position)
        if length < HEADER_BYTES:
            return None
        window = file.read_at(position, length)
        for candidate in possible_headers(window, at_least_offset).tolist():
            size_bytes = read_header(window.data, candidate).size_bytes
            if position + candidate + size_bytes > file.size_bytes:
                continue
            budget -= size_bytes
            if budget < 0:
                return None
            if _is_batch(file, position + candidate, size_bytes):
                return position + int(candidate)
        position += length - (HEADER_BYTES - 1)


def offset_near(file: RandomAccess, position: int, *, at_least_offset: int) -> int | None:
    """The base offset of a batch soon after a position, believed if the next header follows it; None without one.

    Few bytes are read, and no CRC is computed: for whoever needs a likely offset, and no proof.
    """
    for length in NEAR_BYTES:
        window = file.read_at(position, min(length, file.size_bytes - position))
        for start in possible_headers(window, at_least_offset).tolist() if len(window) >= HEADER_BYTES else ():
            header = read_header(window.data, start)
            end = start + header.size_bytes
            if end + HEADER_BYTES <= len(window):
                following = read_header(window.data, end)
                if following.magic == MAGIC and following.base_offset == header.last_offset + 1:
                    return header.base_offset
    return None


def possible_headers(window: Buffer, at_least_offset: int) -> Rows:
    """Positions where a header could start: magic 2, a length that a batch can have, an offset that can follow."""
    starts = len(window) - HEADER_BYTES + 1
    likely = np.flatnonzero(window[_MAGIC_AT : _MAGIC_AT + starts] == MAGIC)
    length = _big_endian(window, likely + 8, 4)
    likely = likely[(length >= HEADER_BYTES - LOG_OVERHEAD_BYTES) & (length <= BATCH_LENGTH_MAX)]
    offset = _big_endian(window, likely, 8)
    return likely[(offset >= at_least_offset) & (offset < at_least_offset + OFFSETS_AHEAD_MAX)]


def _big_endian(window: Buffer, positions: Rows, size_bytes: int) -> Rows:
    value = np.zeros(len(positions), np.int64)
    for byte in range(size_bytes):
        value = (value << 8) | window[positions + byte]
    return value


def _is_batch(file: RandomAccess, position: int, size_bytes: int) -> bool:
    batch = file.read_at(position, size_bytes).data
    return crc32c(batch[_CRC_COVERED_FROM:]) == read_header(batch, 0).crc
