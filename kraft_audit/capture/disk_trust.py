"""How far a captured disk counts: whether its log was read, and whether its own files agree about it.

No CRC covers a batch's epoch. Where log and leader-epoch-checkpoint differ, the copy is torn, or one of the two is not
what Kafka wrote. Such a disk is suspect: its log is set aside, and it counts neither for nor against anything, like a
disk that could not be read. What its bytes would mean if they were the disk's matters to elections alone.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any


class DiskTrust(enum.StrEnum):
    """What a captured disk is evidence of."""

    READ = "read"
    SUSPECT = "suspect"
    UNREAD = "unread"
    EMPTY = "empty"

    @property
    def counts(self) -> bool:
        """Whether the disk is evidence at all: an empty log is one, a log that was not read is none."""
        return self in (DiskTrust.READ, DiskTrust.EMPTY)


def disk_trust(row: Mapping[str, Any]) -> DiskTrust:
    """The trust of a disk by its row of `captures`."""
    return trust_of(row["doubt"], row["log_end_offset"], row["snapshot_end_offset"], row["bytes_unread"])


def trust_of(doubt: str | None, end_offset: int | None, snapshot_end: int | None, bytes_unread: int) -> DiskTrust:
    """The trust of a disk whose log was read up to `end_offset` (None: not at all), with a newest snapshot or none.

    Args:
        doubt: why its log was set aside; None where its own files agree.
        end_offset: the offset after the last batch of its log, exclusive; None where no segment was read.
        snapshot_end: the end offset, exclusive, of its newest complete snapshot; None without one.
        bytes_unread: how many bytes of the capture could not be read.

    Returns:
        SUSPECT before anything else: what a contradictory disk holds is not known, however much of it was read.
    """
    if doubt is not None:
        return DiskTrust.SUSPECT
    if end_offset is None and bytes_unread > 0:
        return DiskTrust.UNREAD
    return DiskTrust.READ if end_offset or snapshot_end else DiskTrust.EMPTY
