"""Where a plan left the log of each replica, and where each log stands at the ends of the others, for the next plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kraft_audit.capture.plan import BatchKey, Identity

if TYPE_CHECKING:
    from kraft_audit.capture.branches import LogEnd
    from kraft_audit.capture.reconcile import Window
    from kraft_audit.capture.replica import Replica

ReplicaPlace = tuple[str, str]
"""Root and path of a replica: no two replicas of a plan have the same."""


class NotResumableError(Exception):
    """Why a cluster must be read from its start; the text says it in a few words."""


@dataclass(frozen=True, slots=True)
class LogMark:
    """Where the batch that begins at an offset stands in the log of a replica."""

    offset: int
    file_name: str
    position: int


@dataclass(frozen=True, slots=True)
class KeptLog:
    """The log of one replica as a plan read it.

    `last_batch` stands in `file_name`, which was read to `scanned_to`; both are None where the log has no batch.
    `end_offset` and `last_epoch` are those of its last batch, `branch` is its branch. `marks` are the ends of other
    logs, below its own end. `is_lossy`: bytes of it could not be read.
    """

    root: str
    path: str
    identity: Identity
    file_name: str | None
    last_batch: BatchKey | None
    scanned_to: int
    end_offset: int
    last_epoch: int
    branch: int | None
    last_timestamp_ms: int | None = None
    is_lossy: bool = False
    marks: tuple[LogMark, ...] = ()

    @property
    def place(self) -> ReplicaPlace:
        return self.root, self.path

    def mark_at(self, offset: int) -> LogMark:
        """Where the batch stands that begins at an offset. Raises NotResumableError where none is known."""
        mark = next((mark for mark in self.marks if mark.offset == offset), None)
        if mark is None:
            raise NotResumableError(f"{self.path}: no batch is known to begin at offset {offset}")
        return mark


class LogMarks:
    """Follows the windows of a reading.

    A log's end is wanted from the moment it is known: no window before that has passed it.
    """

    def __init__(self) -> None:
        self._wanted: list[int] = []
        self._marks: dict[int, dict[int, LogMark]] = defaultdict(dict)

    def want(self, offset: int) -> None:
        """From now on the batch of each log that begins there is noted."""
        if offset not in self._wanted:
            self._wanted.append(offset)

    def take(self, window: Window) -> None:
        """Notes what a window shows."""
        for part in window.slices:
            marks = self._marks[part.replica.number]
            bases = part.chunk.base_offset[part.start : part.end]
            for offset in self._wanted:
                place = int(np.searchsorted(bases, offset))
                if place < len(bases) and bases[place] == offset:
                    chunk, row = part.chunk, int(part.rows[place])
                    position = chunk.file_position + int(chunk.index.position[row])
                    marks[offset] = LogMark(offset, chunk.tally.plan.name, position)

    def kept_logs(self, replicas: Sequence[Replica], ends: Sequence[LogEnd]) -> list[KeptLog]:
        """The logs of all replicas as they were read; `ends` are in their order."""
        offsets = {end.end_offset for end in ends if end.branch is not None}
        logs = []
        for replica, end in zip(replicas, ends, strict=True):
            log = _kept_log(replica, end)
            known = {mark.offset: mark for mark in log.marks} | self._marks[replica.number]
            marks = [known[offset] for offset in sorted(offsets & known.keys()) if offset < log.end_offset]
            logs.append(replace(log, marks=tuple(marks)))
        return logs


def _kept_log(replica: Replica, end: LogEnd) -> KeptLog:
    """The log with the marks that it was kept with before."""
    marks = () if replica.earlier is None else replica.earlier.marks
    if replica.at_rest is not None:
        return replace(replica.at_rest, branch=end.branch, marks=marks)
    log, plan = replica.log, replica.plan
    last = next((tally for tally in reversed(log.segments) if tally.last_batch), None) if log is not None else None
    return KeptLog(
        root=plan.root,
        path=plan.path,
        identity=plan.identity,
        file_name=None if last is None else last.plan.name,
        last_batch=None if last is None else last.last_batch,
        scanned_to=0 if last is None else last.scanned_to,
        end_offset=end.end_offset,
        last_epoch=end.last_epoch,
        branch=end.branch,
        last_timestamp_ms=None if log is None else log.last_timestamp_ms,
        is_lossy=log is not None and log.scanner.is_lossy,
        marks=marks,
    )
