"""What an answer says of disks that were read and are no evidence: what would decide, and how to go on."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kraft_audit.recovery.may_i.electorate import DiskDoubt, VoterDisk
from kraft_audit.rules.columns.quorum_standing import DECIDING_FILES
from kraft_audit.text.readable import nouns

EMPTIED: Final = DiskDoubt("its log is empty, and leader-epoch-checkpoint is not")
"""Its log was not copied, or somebody deleted it."""


def doubts_of(disks: Iterable[VoterDisk]) -> dict[int, DiskDoubt]:
    """By node, why its disk is no evidence."""
    return {disk.node_id: disk.doubt for disk in disks if disk.doubt is not None}


def doubt_reason(doubts: Mapping[int, DiskDoubt]) -> str:
    """Which disks an answer depends on, and what is wrong with each."""
    return " ".join(f"It depends on the disk of node {node}: {doubts[node].reason}." for node in sorted(doubts))


def doubt_steps(doubts: Collection[int], path: str, command: str, without: str | None) -> tuple[str, ...]:
    """What would decide: a copy that agrees with itself. `without` asks again as if these nodes were stopped."""
    which = nouns("node", sorted(doubts))
    again = f"Copy {DECIDING_FILES} of {which} again below {shlex.quote(path)}, then: {command}"
    if without is None:
        return again, f"If the copy says the same, keep {which} stopped and its disk as it is."
    return again, f"If the copy says the same, keep {which} stopped with its disk as it is: {without}"
