"""What `may-i` answers about every node of a quorum, as rows: for `quorum` and for the page of a cluster.

All voters are assumed to run. What does not fit the bounds is left out, and `skipped` says why.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kraft_audit.recovery.may_i.durability import Durability, durability
from kraft_audit.recovery.may_i.node_permission import controllers_of, node_permission
from kraft_audit.recovery.may_i.permission import Action, Question, Verdict
from kraft_audit.recovery.may_i.start_safety import StartSafety
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.nodes import broker_states
from kraft_audit.rules.columns.partition_states import partition_states

CONTROLLERS_MAX: Final = 20
"""Of each several questions are asked, and each looks at every majority of the voters."""
ASKED: Final = {
    "controller": tuple(action for action in Action if action is not Action.FORMAT),
    "broker": (Action.START, Action.RESTART, Action.WIPE, Action.DELETE_VOLUME),
}
"""By role, what is asked: to format is to wipe, and a broker with replicas never leaves just so."""
BROKER_LOOKS_MAX: Final = 1_000_000
"""Brokers times states of partitions: each question about a broker looks at all of them."""


@dataclass(frozen=True, slots=True)
class PermissionRow:
    """One answer: may this be done to this node, why, and what comes first; `role` is controller or broker."""

    node_id: int
    role: str
    action: str
    verdict: str
    reason: str
    next_steps: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """The first sentence of the reason."""
        return f"{self.reason.split('. ', 1)[0].rstrip('.')}."

    @property
    def first(self) -> str:
        """What must come first; nothing where it may be done."""
        return self.next_steps[0] if self.next_steps and self.verdict != Verdict.YES else ""


@dataclass(frozen=True, slots=True)
class Permissions:
    """The rows of all nodes, and what no election can lose; `skipped` says what was not asked, and how to ask it."""

    rows: tuple[PermissionRow, ...] = ()
    cannot_be_lost: Durability | None = None
    skipped: str | None = None


@dataclass(frozen=True, slots=True)
class PermissionLine:
    """Rows of one node with one answer, as people read them."""

    node_id: int
    role: str
    actions: tuple[str, ...]
    row: PermissionRow


def permissions(safety: StartSafety | None, undecided: str | None, history: ClusterHistory, path: str) -> Permissions:
    """The answers about controllers, and of brokers what may not be done, or is undecided. `path`: what was read."""

    def answers(role: str, node_ids: Iterable[int]) -> Iterator[PermissionRow]:
        for node_id in node_ids:
            for action in ASKED[role]:
                answer = node_permission(Question(action, node_id, path), safety, undecided, history)
                if answer is not None:
                    verdict = answer.verdict.value
                    yield PermissionRow(node_id, role, action.value, verdict, answer.reason, answer.next_steps)

    controllers = controllers_of(safety, history)
    rows: list[PermissionRow] = []
    skipped = []
    if len(controllers) > CONTROLLERS_MAX:
        skipped.append(f"{len(controllers)} controllers")
    else:
        rows += answers("controller", controllers)
    brokers = [node for node, states in broker_states(history).items() if states.newest["exists"]]
    looks = len(brokers) * len(partition_states(history))
    if looks > BROKER_LOOKS_MAX:
        skipped.append(f"{len(brokers)} brokers with {len(partition_states(history))} states of partitions")
    else:
        others = sorted(set(brokers) - set(controllers))
        rows += (row for row in answers("broker", others) if row.verdict != Verdict.YES)
    reason = f"{' and '.join(skipped)}: too many to ask about all. {ask_one(path)}" if skipped else None
    return Permissions(tuple(rows), None if safety is None else durability(safety), reason)


def ask_one(path: str) -> str:
    """How to ask about one node."""
    return f"Ask about one:   kraft-audit may-i ACTION NODE {shlex.quote(path)}"


def permission_lines(permissions: Permissions) -> list[PermissionLine]:
    """The rows with equal answers about one node joined."""
    joined: dict[tuple[int, str, str, tuple[str, ...]], list[PermissionRow]] = {}
    for row in permissions.rows:
        steps = row.next_steps[:1] if row.verdict != Verdict.YES else ()
        joined.setdefault((row.node_id, row.verdict, row.why, steps), []).append(row)
    return [
        PermissionLine(rows[0].node_id, rows[0].role, tuple(row.action for row in rows), rows[0])
        for rows in joined.values()
    ]
