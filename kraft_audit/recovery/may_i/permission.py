"""What may be asked about a node, and the form of an answer: yes, no or undecided, why, and what next.

An answer is about the disks as they were read, and about a set of nodes that is assumed to run: the node itself, and
all voters that are neither said to be gone nor known to be stopped.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kraft_audit.recovery.may_i.durability import Durability


class Action(enum.StrEnum):
    """What may be asked about a node."""

    START = "start"
    RESTART = "restart"
    WIPE = "wipe"
    REMOVE = "remove"
    DELETE_VOLUME = "delete-volume"


class Verdict(enum.StrEnum):
    """The answer; the worst of several is the one that counts."""

    YES = "yes"
    UNDECIDED = "undecided"
    NO = "no"

    @property
    def rank(self) -> int:
        return list(Verdict).index(self)


@dataclass(frozen=True, slots=True)
class CopiedLogs:
    """A copy of what a broker holds of lost records; `lacking`: (key of a loss event, why it is not in the copy)."""

    path: str
    lacking: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Question:
    """`path` is where the disks were read, for commands to paste; `copied` a copy of what a start would truncate.

    `voters` are what controller.quorum.voters reads on every node by the user's word; empty where nobody says it.
    """

    action: Action
    node_id: int
    path: str
    gone: frozenset[int] = frozenset()
    stopped: frozenset[int] = frozenset()
    copied: CopiedLogs | None = None
    voters: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Permission:
    """An answer: `reason` in a sentence or two, `next_steps` as lines to follow, `running` who is assumed to run.

    `cannot_be_lost` is None where no log is known to be the canonical one.
    """

    verdict: Verdict
    reason: str
    next_steps: tuple[str, ...] = ()
    running: tuple[int, ...] = ()
    cannot_be_lost: Durability | None = None
