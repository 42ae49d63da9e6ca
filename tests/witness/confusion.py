"""What a random run's truth says of each rule that it can decide, beside what the rule says: right, false, missed."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kraft_audit.rules.model import Status
from kraft_audit.rules.registry import check
from kraft_engine import simulate
from tests.witness.audited import Audited
from tests.witness.truth import PartitionState, Truth

NEVER_WITHIN_MODEL = (
    *("KV001", "KV002", "KV003", "KV004", "KV010"),
    *("KQ002", "KQ003", "KQ010", "KQ011", "KQ012", "KQ014", "KQ015", "KQ020"),
    *("KP013", "KP016", "KP017"),
)
"""Damage that no run within the model can do: each of these raised is a false alarm."""


def _last_copy(state: PartitionState) -> bool:
    return len(state["isr"]) + len(state["elr"]) == 1 and len(state["replicas"]) > 1


def _leaderless(state: PartitionState) -> bool:
    return bool(state["leader"] == -1)


def _recovering(state: PartitionState) -> bool:
    """An election that may have lost records says so in the state itself, whoever was elected."""
    return bool(state["leader_recovery_state"] == "RECOVERING")


UNSAFE_ELECTION = "KP003|KP004"
BY_STATE: dict[str, Callable[[PartitionState], bool]] = {
    "KP001": _last_copy,
    "KP002": _leaderless,
    UNSAFE_ELECTION: _recovering,
}
"""Rules that a partition's state alone decides, as rules.md words them."""
DECIDED = (*BY_STATE, *NEVER_WITHIN_MODEL)


@dataclass
class Confusion:
    """By rule: how many subjects were raised rightly or falsely, or missed; `clear` counts runs with none of them."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    disagreements: list[str] = field(default_factory=list)


def confusion_of(scenario: str, seed: int) -> Confusion:
    """Plays one seed within the model and compares every decided rule's subjects with the truth's."""
    with tempfile.TemporaryDirectory(prefix="kraft-witness-") as folder:
        out = Path(folder) / "run"
        simulate(scenario, seed, out)
        truth = Truth.of(out)
        audited = Audited.of(out, truth.run["dialect"])
        wanted_rules = {rule for name in DECIDED for rule in name.split("|")}
        # What stands above the truth's last commit may or may not have happened.
        findings = [
            one
            for one in check(audited.history, only=wanted_rules)
            if one.from_offset is None or one.from_offset < truth.committed_offset
        ]
        reached = audited.canonical_end
    result = Confusion()
    for rule in DECIDED:
        raised = {one.subject for one in findings if one.rule in rule.split("|") and one.status is Status.RAISED}
        wanted = _subjects(truth, BY_STATE[rule], reached) if rule in BY_STATE else set()
        counts = {"right": raised & wanted, "false": raised - wanted, "missed": wanted - raised}
        result.counts[rule] = Counter({kind: len(subjects) for kind, subjects in counts.items()})
        result.counts[rule]["clear"] += not raised and not wanted
        for kind in ("false", "missed"):
            result.disagreements += [f"{scenario} seed {seed}: {rule} {kind}: {one}" for one in sorted(counts[kind])]
    return result


def _subjects(truth: Truth, condition: Callable[[PartitionState], bool], reached: int) -> set[str]:
    """Partitions that were ever in a state, as far as a log was captured."""
    return {
        f"{state['topic']}-{subject[1]}"
        for (subject, offset), state in truth.partitions.items()
        if offset < reached and condition(state)
    }
