"""What is open in each cluster of a lake, as the end of a run says it: the quorum, incidents, and what none explains.

The quorum has an alarm where a rule about it is open: that none is open is no proof that it works.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kraft_audit.capture.plan import cluster_id_of
from kraft_audit.tables.bronze import PLANS
from kraft_audit.tables.gold import FINDINGS, INCIDENT_FINDINGS, INCIDENTS, SEVERITIES
from kraft_audit.text.readable import plural

if TYPE_CHECKING:
    from kraft_audit.lake.closed_plans import ClosedPlans
    from kraft_audit.lake.delta import Lake

QUORUM_BY_RULE: Final = {
    "KQ025": "majority lost",
    "KQ023": "no leader",
    "KQ024": "stalled",
    "KQ021": "empty log",
    "KQ020": "log went back",
}
"""The state of a quorum by the rule whose open finding says it, the worst first."""
STOPPED: Final = "stopped in order"
UNDECIDED: Final = "undecided"
NO_ALARM: Final = "no alarm"
SHOWN_CLUSTERS: Final = 20
SHOWN_INCIDENTS: Final = 3


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """One cluster as the newest closed plan left it: `incidents` are sentences, `findings` open ones by severity.

    `unexplained` are the open findings of severity critical or high that no incident explains, by rule.
    """

    cluster_id: str
    name: str
    quorum: str
    incidents: tuple[str, ...]
    findings: Mapping[str, int]
    unexplained: Mapping[str, int]

    @property
    def urgency(self) -> tuple[Any, ...]:
        """Clusters in the order of this are the most urgent first."""
        is_broken = self.quorum in QUORUM_BY_RULE.values()
        counts = tuple(-self.findings.get(severity, 0) for severity in SEVERITIES)
        return (not is_broken, *counts, self.name, self.cluster_id)


def cluster_summaries(lake: Lake, closed: ClosedPlans) -> list[ClusterSummary]:
    """What is open in each cluster that a closed plan read, the most urgent first."""
    names = lake.query(
        "SELECT cluster_id, max(cluster_name) AS name FROM plans WHERE event = 'staged' AND outcome = 'read' "  # noqa: S608
        f"AND {closed.where()} AND cluster_id IS NOT NULL GROUP BY cluster_id",
        PLANS.name,
    ).to_pylist()
    findings = _by_cluster(
        lake.query(
            "SELECT cluster_id, rule, status, severity, explained_id IS NOT NULL AS is_explained, count(*) AS n "
            "FROM findings LEFT JOIN (SELECT DISTINCT finding_id AS explained_id FROM incident_findings) AS explained "
            "ON explained_id = findings.finding_id WHERE state = 'open' "
            "GROUP BY cluster_id, rule, status, severity, explained_id IS NOT NULL",
            *(FINDINGS.name, INCIDENT_FINDINGS.name),
        ).to_pylist()
    )
    incidents = _by_cluster(
        lake.query(
            "SELECT cluster_id, kind, severity, headline FROM incidents WHERE is_open ORDER BY from_offset",
            INCIDENTS.name,
        ).to_pylist()
    )
    summaries = [
        _summary(row["cluster_id"], row["name"], findings[row["cluster_id"]], incidents[row["cluster_id"]])
        for row in names
    ]
    return sorted(summaries, key=lambda summary: summary.urgency)


def _by_cluster(rows: Sequence[Mapping[str, Any]]) -> defaultdict[str, list[Mapping[str, Any]]]:
    rows_by_cluster: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        rows_by_cluster[row["cluster_id"]].append(row)
    return rows_by_cluster


def _summary(
    cluster_id: str, name: str, findings: Sequence[Mapping[str, Any]], incidents: Sequence[Mapping[str, Any]]
) -> ClusterSummary:
    counts = dict.fromkeys(SEVERITIES, 0)
    unexplained: dict[str, int] = defaultdict(int)
    raised = [row for row in findings if row["status"] == "raised"]
    for row in raised:
        counts[row["severity"]] += row["n"]
        if row["severity"] in SEVERITIES[:2] and not row["is_explained"]:
            unexplained[row["rule"]] += row["n"]
    ordered = sorted(incidents, key=lambda row: SEVERITIES.index(row["severity"]))
    headlines = tuple(dict.fromkeys(row["headline"] for row in ordered))
    return ClusterSummary(
        cluster_id,
        name if cluster_id == cluster_id_of(cluster_id) else f"{name}, another log",
        _quorum(findings, incidents),
        headlines,
        counts,
        dict(sorted(unexplained.items())),
    )


def _quorum(findings: Sequence[Mapping[str, Any]], incidents: Sequence[Mapping[str, Any]]) -> str:
    raised = {row["rule"] for row in findings if row["status"] == "raised"}
    for rule, state in QUORUM_BY_RULE.items():
        if rule in raised:
            return state
    if any(row["kind"] == "cluster_stop" for row in incidents):
        return STOPPED
    undecided = {row["rule"] for row in findings if row["status"] == "undecided"}
    return UNDECIDED if undecided & {"KQ023", "KQ024", "KQ025"} else NO_ALARM


def summaries_text(summaries: Sequence[ClusterSummary]) -> list[str]:
    """A line for each cluster: its quorum, and what is open; clusters of which nothing is open are counted."""
    shown = [summary for summary in summaries if summary.quorum != NO_ALARM or summary.incidents or summary.unexplained]
    lines: list[str] = []
    width = max((len(summary.name) for summary in shown[:SHOWN_CLUSTERS]), default=0)
    for summary in shown[:SHOWN_CLUSTERS]:
        what = _open_lines(summary)
        lines.append(f"  {summary.name:<{width}}  {summary.quorum:<16}  {what[0]}")
        lines += [f"  {'':<{width}}  {'':<16}  {more}" for more in what[1:]]
    if len(shown) > SHOWN_CLUSTERS:
        more_clusters = plural(len(shown) - SHOWN_CLUSTERS, "more cluster")
        lines.append(f"  {more_clusters} with something open: kraft-audit report LAKE")
    if quiet := len(summaries) - len(shown):
        lines.append(f"  {plural(quiet, 'cluster')} without an open incident or alarm")
    return lines


def _open_lines(summary: ClusterSummary) -> list[str]:
    """The open incidents, the findings of severity critical and high that none explains, or that there is none."""
    lines = list(summary.incidents[:SHOWN_INCIDENTS])
    if (more := len(summary.incidents) - SHOWN_INCIDENTS) > 0:
        lines.append(f"and {plural(more, 'more open incident')}")
    if summary.unexplained:
        rules = ", ".join(f"{rule}{f' ({count})' if count > 1 else ''}" for rule, count in summary.unexplained.items())
        lines.append(f"{'also ' if lines else ''}critical or high: {rules}")
    return lines or ["no open incident"]
