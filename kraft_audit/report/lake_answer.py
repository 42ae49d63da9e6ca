"""The situation of a cluster, from the rows of a lake.

It is made without its batches. What needs them, whether a quorum is stalled, whether logs contradict
each other and whether a majority of disks lost records, the newest plan has judged: its findings say so (KQ020, KQ023,
KQ024, KQ025). Where it did not, the answer is undecided and names what to check.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from kraft_audit.findings.answer import AnswerLine
from kraft_audit.findings.situation import Situation, situation_of
from kraft_audit.incidents.folding import FoldedFindings, fold_into
from kraft_audit.incidents.incident import Incident, IncidentKind
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import newest_watermark, path_read
from kraft_audit.rules.columns.lost_records import ends_before_its_snapshot
from kraft_audit.rules.columns.quorum_standing import QuorumStanding, Standing, quorum_standing
from kraft_audit.rules.rule_model import (
    ACCEPTED,
    DeferredEvidence,
    Evidence,
    Finding,
    FindingState,
    Scope,
    Severity,
    Status,
    Waiver,
)

SETS_OF_VOTERS: Final = "voters "
"""How the subject of KQ020 begins where it is open whether a majority of the voters lost records."""
JUDGED: Final = {"KQ025": Standing.MAJORITY_LOST, "KQ024": Standing.STALLED}
"""What a finding of the quorum says of it, the first one first."""
IN_ORDER: Final = {IncidentKind.DECLARED_RESCUE: -1, IncidentKind.QUORUM: 0, IncidentKind.NO_LEADER: 2}


def lake_situation(
    history: ClusterHistory, findings: Sequence[TableRow], incidents: Sequence[TableRow], judged: frozenset[str]
) -> Situation:
    """The situation as of the newest plan and its merged findings. `judged` are the rules that the plan judged."""
    path = path_read(history)
    standing = _standing(history, findings, judged, path)
    made = situation_of(history, standing, _folded(findings, incidents), path)
    if standing.standing is Standing.UNDECIDED and not any(line.word == "NEXT" for line in made.lines):
        step = AnswerLine("NEXT", f"The disks say what to do:   kraft-audit check {shlex.quote(path)}")
        return replace(made, lines=(*made.lines, step))
    return made


def _standing(
    history: ClusterHistory, findings: Sequence[TableRow], judged: frozenset[str], path: str
) -> QuorumStanding:
    standing = quorum_standing(history)
    if standing.standing in (Standing.EMPTY, Standing.NO_LOG, Standing.NOT_JUDGED):
        return standing
    shown = [row for row in findings if row["subject"] and row["state"] != FindingState.RESOLVED]
    for rule, meant in JUDGED.items():
        for row in shown:
            if row["rule"] == rule and row["status"] == "raised":
                return replace(standing, standing=meant, reason=row["summary"])
    for row in shown:
        is_of_quorum = row["rule"] in ("KQ023", "KQ024")
        is_of_majority = row["rule"] == "KQ020" and row["subject"].startswith(SETS_OF_VOTERS)
        if row["status"] == "undecided" and (is_of_quorum or is_of_majority) and row["reason"]:
            return replace(standing, standing=Standing.UNDECIDED, reason=row["reason"])
    if standing.standing in (Standing.HEALTHY, Standing.AT_REST) and not _is_judged(history, judged):
        reason = f"the lake's tables do not show whether the quorum works: kraft-audit check {path}"
        return replace(standing, standing=Standing.UNDECIDED, reason=reason)
    return standing


def _is_judged(history: ClusterHistory, judged: frozenset[str]) -> bool:
    """Whether the rules that know the batches were asked, and a log is canonical, or none but for a copy's two
    moments."""
    newest = newest_watermark(history)
    if newest is None or not {"KQ020", "KQ024"} <= judged:
        return False
    return newest["canonical_end_offset"] is not None or ends_before_its_snapshot(history, newest["low"]) is not None


def _folded(findings: Sequence[TableRow], incidents: Sequence[TableRow]) -> FoldedFindings:
    known = [_incident(row) for row in incidents if row.get("closed_by") in (None, "ended")]
    known.sort(key=lambda incident: (IN_ORDER.get(incident.kind, 1), incident.from_offset or 0))
    return fold_into(known, [_finding(row) for row in findings if row["status"] != Status.CLEAR.value])


def _incident(row: TableRow) -> Incident:
    """Without its events and effects, which no line of the answer shows."""
    names = (
        "subject",
        "headline",
        "from_offset",
        "from_ms",
        "to_offset",
        "to_ms",
        "is_open",
        "is_clean",
        "incident_id",
    )
    values: dict[str, Any] = {name: row[name] for name in names}
    return Incident(IncidentKind(row["kind"]), **values)


def _finding(row: TableRow) -> Finding:
    same = (
        *("finding_id", "cluster_id", "rule", "name", "subject", "summary", "reason", "from_offset", "to_offset"),
        *("from_ms", "to_ms", "epoch", "why", "what_to_do"),
    )
    is_waived = row["state"] in ACCEPTED
    return Finding(
        **{name: row[name] for name in same},
        severity=Severity(row["severity"]),
        scope=Scope(row["scope"]),
        status=Status(row["status"]),
        is_over=row["state"] == FindingState.RESOLVED,
        evidence=DeferredEvidence(_evidence, row["evidence"]),
        waiver=_waiver(row) if is_waived else None,
    )


def _evidence(facts: Sequence[TableRow]) -> tuple[Evidence, ...]:
    return tuple(Evidence(**fact) for fact in facts)


def _waiver(row: TableRow) -> Waiver:
    accepted = row["waiver"]
    return Waiver(row["rule"], row["cluster_id"], row["subject"], accepted["who"], accepted["why"], accepted["until"])
