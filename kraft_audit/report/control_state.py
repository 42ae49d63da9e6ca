"""The state of one control of one cluster: met, weakened, not met, undecided, or not judged."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kraft_audit.findings.urgent_steps import URGENT
from kraft_audit.rules.cluster_history import TableRow
from kraft_audit.rules.frameworks import requirements
from kraft_audit.rules.registry import control_of, rules
from kraft_audit.rules.rule_model import ACCEPTED, CONTROLS, LOSS, ControlName, Severity


class ControlStatus(enum.StrEnum):
    """The result of a control, the worst first, as tables and files name it. Only `met` is green."""

    NOT_MET = "not_met"
    UNDECIDED = "undecided"
    NOT_JUDGED = "not_judged"
    WEAKENED = "weakened"
    MET = "met"

    @property
    def words(self) -> str:
        """The status as people read it."""
        return self.value.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Control:
    """One control of one cluster over the time of its log, and by which rules; `rules` are those that were judged.

    `since_ms` is when the oldest open cause began. `acknowledged` are losses within that time that a person accepted:
    they weaken it. The rules `resolved_by` weakened it, or it was not met by them, until `resolved_ms`. `requirements`
    are those of frameworks that it is evidence for.
    """

    name: str
    claim: str
    status: ControlStatus
    since_ms: int | None
    not_met_by: tuple[str, ...]
    weakened_by: tuple[str, ...]
    acknowledged: tuple[TableRow, ...]
    waived_by: tuple[str, ...]
    undecided_by: tuple[str, ...]
    resolved_by: tuple[str, ...]
    resolved_ms: int | None
    rules: tuple[str, ...]
    requirements: tuple[str, ...]


def control_state(
    name: ControlName, findings: Sequence[TableRow], judged: Collection[str], covered: tuple[int, int] | None
) -> Control:
    """The state of a control by the findings of its cluster. `covered` is the time of its log, None where unknown."""
    mine = [finding for finding in findings if control_of(finding["rule"]) == name]
    raised = [f for f in mine if f["status"] == "raised" and f["severity"] != Severity.LOW.value]
    active = [f for f in raised if f["state"] == "open"]
    severe = [f for f in active if f["severity"] in URGENT]
    acknowledged = tuple(f for f in raised if is_acknowledged_loss(f) and _is_within(f["from_ms"], covered))
    weakening = [f for f in active if f["severity"] not in URGENT] + list(acknowledged)
    undecided = {f["rule"] for f in mine if f["state"] == "undecided"}
    resolved = [f for f in raised if f["state"] == "resolved"]
    checked = tuple(rule.id for rule in rules().values() if rule.control == name and rule.id in judged)
    return Control(
        name=name.replace("_", " "),
        claim=CONTROLS[name],
        status=_status(bool(severe), bool(undecided), bool(weakening), bool(checked)),
        since_ms=min((f["from_ms"] for f in severe or weakening if f["from_ms"] is not None), default=None),
        not_met_by=_rules_of(severe),
        weakened_by=_rules_of(weakening),
        acknowledged=acknowledged,
        waived_by=_rules_of([f for f in raised if f["state"] in ACCEPTED]),
        undecided_by=tuple(sorted(undecided)),
        resolved_by=_rules_of(resolved),
        resolved_ms=max((f["to_ms"] for f in resolved if f["to_ms"] is not None), default=None),
        rules=checked,
        requirements=tuple(map(str, requirements(name))),
    )


def is_acknowledged_loss(finding: TableRow) -> bool:
    """Whether a person acknowledged this loss of records."""
    return finding["rule"] == LOSS and finding["status"] == "raised" and finding["state"] in ACCEPTED


def _status(is_severe: bool, is_undecided: bool, is_weakened: bool, is_judged: bool) -> ControlStatus:
    """What is undecided is not called weakened: a weakened control still satisfies, and that is not known."""
    if is_severe:
        return ControlStatus.NOT_MET
    if is_undecided:
        return ControlStatus.UNDECIDED
    if is_weakened:
        return ControlStatus.WEAKENED
    return ControlStatus.MET if is_judged else ControlStatus.NOT_JUDGED


def _is_within(time_ms: int | None, covered: tuple[int, int] | None) -> bool:
    """Whether a time may lie in a period: one that is not known may."""
    return time_ms is None or covered is None or covered[0] <= time_ms <= covered[1]


def _rules_of(findings: Sequence[TableRow]) -> tuple[str, ...]:
    return tuple(sorted({finding["rule"] for finding in findings}))
