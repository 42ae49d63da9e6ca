"""Where a plan left the log of each replica, for the next one to go on from."""

from __future__ import annotations

from dataclasses import dataclass

from kraft_audit.capture.plan import BatchKey, Identity

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
