"""Whether each batch of a replica's log fits between its neighbours.

A batch's CRC starts behind its base offset and leader epoch (`DefaultRecordBatch`), so a flipped bit there is seen by
its neighbours only: offsets run without a gap and epochs never fall. Where one batch alone does not fit, it is refused;
where the log goes on from there, the step is reported and what follows is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kraft_codec.columns import BatchIndex
from kraft_codec.errors import Reason
from kraft_codec.kernels.codes import REASONS

Rows = npt.NDArray[np.int64]


_REPEATS: Final = "where the log already reaches"


def is_repeated(reason: str, detail: str) -> bool:
    """Whether a damage is a batch of offsets that the log holds already: nothing is missing for it."""
    return reason == Reason.OVERLAP and _REPEATS in detail


@dataclass(slots=True)
class LogState:
    """Where a log stands: `next_offset` is None where nothing is known, `epoch` that of the last batch that was kept.

    `is_hole_explained` is set where bytes before this point were refused or could not be read: a gap there is no news.
    """

    next_offset: int | None = None
    epoch: int = -1
    is_hole_explained: bool = False


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The header after the last row at hand, where there is one."""

    base_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with `row_count` rows from `row` on; `is_refused` where they are not kept."""

    row: int
    row_count: int
    reason: Reason
    detail: str
    is_refused: bool


def judge(batches: BatchIndex, state: LogState, after: Neighbour | None) -> tuple[Rows, list[Finding]]:
    """The rows that are kept, ascending, and what was found; moves `state` behind the last row."""
    if not len(batches) or (batches.is_continuous and _start_fits(batches, state) and _end_fits(batches, after)):
        _stand_behind(batches, len(batches) - 1, state)
        return np.arange(len(batches), dtype=np.int64), []
    return _Judge(batches, state, after).run()


def _start_fits(batches: BatchIndex, state: LogState) -> bool:
    """Whether the first batch goes on where the log stands, in no older epoch."""
    is_next = state.next_offset is None or state.next_offset == batches.base_offset[0]
    return bool(is_next and batches.leader_epoch[0] >= state.epoch)


def _end_fits(batches: BatchIndex, after: Neighbour | None) -> bool:
    """Whether the last batch has no younger epoch than what follows."""
    return after is None or bool(batches.leader_epoch[-1] <= after.leader_epoch)


def _stand_behind(batches: BatchIndex, row: int, state: LogState) -> None:
    if row >= 0:
        state.next_offset = int(batches.base_offset[row]) + int(batches.last_offset_delta[row]) + 1
        state.epoch = int(batches.leader_epoch[row])
        state.is_hole_explained = False


class _Judge:
    def __init__(self, batches: BatchIndex, state: LogState, after: Neighbour | None) -> None:
        self.batches = batches
        self.state = state
        self.after = after
        self.count = len(batches)
        self.findings: list[Finding] = []
        self.last_offset = batches.last_offset  # wraps only where is_impossible
        self.is_impossible = (
            (batches.base_offset < 0) | (batches.last_offset_delta < 0) | (self.last_offset < batches.base_offset)
        )

    def run(self) -> tuple[Rows, list[Finding]]:
        odd_rows = np.flatnonzero(self._is_odd())
        pieces: list[Rows] = []
        row = 0
        while row < self.count:
            if not self._keeps(row):
                row += 1
                continue
            # Behind a row that was kept, all rows up to the next odd one fit each other.
            following = odd_rows[np.searchsorted(odd_rows, row, side="right") :]
            end = int(following[0]) if len(following) else self.count
            pieces.append(np.arange(row, end, dtype=np.int64))
            _stand_behind(self.batches, end - 1, self.state)
            row = end
        return (np.concatenate(pieces) if pieces else np.zeros(0, np.int64)), self.findings

    def _is_odd(self) -> npt.NDArray[np.bool_]:
        base, epoch = self.batches.base_offset, self.batches.leader_epoch
        odd: npt.NDArray[np.bool_] = (self.batches.status != 0) | self.is_impossible
        odd[1:] |= (base[1:] != self.last_offset[:-1] + 1) | (epoch[1:] < epoch[:-1])
        odd[:-1] |= epoch[:-1] > epoch[1:]
        odd[0] |= not _start_fits(self.batches, self.state)
        odd[-1] |= not _end_fits(self.batches, self.after)
        return odd

    def _neighbour(self, row: int) -> Neighbour | None:
        if row < self.count:
            if self.batches.status[row] or self.is_impossible[row]:
                return None
            return Neighbour(int(self.batches.base_offset[row]), int(self.batches.leader_epoch[row]))
        return self.after if row == self.count else None

    def _keeps(self, row: int) -> bool:
        status = int(self.batches.status[row])
        if status:
            reason = REASONS[status] or Reason.BAD_RECORD
            self._refuse(row, reason, _BROKEN.get(reason, "the batch cannot be trusted"))
            return False
        if self.is_impossible[row]:
            base, delta = int(self.batches.base_offset[row]), int(self.batches.last_offset_delta[row])
            self._refuse(row, Reason.BAD_RECORD, f"base offset {base} with last offset delta {delta}")
            return False
        return self._fits_offsets(row) and self._fits_epochs(row)

    def _fits_offsets(self, row: int) -> bool:
        expected = self.state.next_offset
        base = int(self.batches.base_offset[row])
        if expected is None or base == expected:
            return True
        following = self._neighbour(row + 1)
        behind = expected + int(self.batches.last_offset_delta[row]) + 1
        step = Reason.GAP if base > expected else Reason.OVERLAP
        if following is not None and following.base_offset == behind:
            self._refuse(row, step, f"base offset {base} stands between {expected} and {behind}")
            self.state.next_offset = behind
            return False
        if base < expected:
            self._overlap(row, base, expected)
            return False
        if not self.state.is_hole_explained:
            detail = f"{base - expected} offsets are missing: {expected} is expected, {base} follows"
            self.findings.append(Finding(row, 1, Reason.GAP, detail, False))
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
            self.findings.append(Finding(row, 1, Reason.EPOCH_WENT_BACK, detail, False))
            return True
        if following is not None and before <= following.leader_epoch < epoch:
            # One of the two is wrong. The batch behind them tells which; without one, the epoch that nobody shares.
            is_next_wrong = second.leader_epoch >= epoch if second is not None else following.leader_epoch != before
            if not is_next_wrong:
                detail = f"epoch {epoch} stands before epoch {following.leader_epoch}"
                self._refuse(row, Reason.EPOCH_WENT_BACK, detail)
                self.state.next_offset = int(self.last_offset[row]) + 1
                return False
        return True

    def _refuse(self, row: int, reason: Reason, detail: str) -> None:
        self.findings.append(Finding(row, 1, reason, detail, True))
        self.state.is_hole_explained = True

    def _overlap(self, row: int, base: int, expected: int) -> None:
        """Refuses a batch of offsets that the log already holds; a run of them is one finding."""
        last = self.findings[-1] if self.findings else None
        if last is not None and last.reason is Reason.OVERLAP and last.is_refused and last.row + last.row_count == row:
            self.findings[-1] = Finding(last.row, last.row_count + 1, last.reason, last.detail, True)
            return
        detail = f"base offset {base} {_REPEATS} {expected}"
        self.findings.append(Finding(row, 1, Reason.OVERLAP, detail, True))


_BROKEN: Final = {
    Reason.BAD_CRC: "the CRC does not match the bytes",
    Reason.BAD_MAGIC: "the magic byte is not 2",
}
