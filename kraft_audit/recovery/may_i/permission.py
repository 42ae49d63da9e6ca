"""What may be asked about a node, and the form of an answer: yes, no or undecided, why, and what next.

An answer is about the disks as they were read, and about a set of nodes that is assumed to run: the node itself, and
all voters that are neither said to be gone nor known to be stopped.
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Collection
from dataclasses import dataclass

from kraft_audit.recovery.may_i.durability import Durability
from kraft_audit.text.readable import pasted_ids


class Action(enum.StrEnum):
    """What may be asked about a node."""

    START = "start"
    RESTART = "restart"
    WIPE = "wipe"
    FORMAT = "format"
    SCALE_IN = "scale-in"
    DELETE_VOLUME = "delete-volume"

    @property
    def empties_disk(self) -> bool:
        """Whether the node's disk holds no record any more once it is done."""
        return self in (Action.WIPE, Action.FORMAT, Action.DELETE_VOLUME)


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
    `is_standalone`: the disk would be formatted with `--standalone`.
    """

    action: Action
    node_id: int
    path: str
    gone: frozenset[int] = frozenset()
    stopped: frozenset[int] = frozenset()
    copied: CopiedLogs | None = None
    voters: frozenset[int] = frozenset()
    is_standalone: bool = False


@dataclass(frozen=True, slots=True)
class RollQuestion:
    """Which node may be restarted next in a rolling restart; `restarted` are those that are done."""

    path: str
    gone: frozenset[int] = frozenset()
    stopped: frozenset[int] = frozenset()
    voters: frozenset[int] = frozenset()
    restarted: frozenset[int] = frozenset()

    def restart(self, node_id: int) -> Question:
        """The question about one node."""
        return Question(Action.RESTART, node_id, self.path, self.gone, self.stopped, voters=self.voters)

    def command(self, restarted: Collection[int]) -> str:
        """The same question once these were restarted; nobody is stopped then."""
        words = ["kraft-audit", "may-i", "roll", shlex.quote(self.path)]
        named = (("gone", self.gone), ("voters", self.voters), ("restarted", restarted))
        for name, ids in named:
            words += [f"--{name}", pasted_ids(ids)] if ids else []
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Permission:
    """An answer: `reason` in a sentence or two, `next_steps` as lines to follow, `running` who is assumed to run.

    `cannot_be_lost` is None where no log is known to be the canonical one. `order` is of a rolling restart: the nodes
    that are left, and with a yes the first of them is next.
    """

    verdict: Verdict
    reason: str
    next_steps: tuple[str, ...] = ()
    running: tuple[int, ...] = ()
    cannot_be_lost: Durability | None = None
    order: tuple[int, ...] = ()

    @property
    def next_node(self) -> int | None:
        """The node that a rolling restart takes next; None while it waits, and once it is done."""
        return self.order[0] if self.order and self.verdict is Verdict.YES else None
