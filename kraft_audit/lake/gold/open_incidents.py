"""What is open in each cluster of a lake, as the end of a run says it: which clusters need action, and for what.

The tables say which clusters those are. What is wrong in one, since when and what to do next is what its page says
(`report.needed_action`), which reads the cluster's history: a run asks for a few clusters, the worst.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kraft_audit.capture.plan import cluster_id_of
from kraft_audit.lake.views import query_of
from kraft_audit.tables.bronze import PLANS
from kraft_audit.tables.gold import FINDINGS, HISTORIES, INCIDENTS, SEVERITIES
from kraft_audit.text.readable import plural, when

if TYPE_CHECKING:
    from kraft_audit.lake.closed_plans import ClosedPlans
    from kraft_audit.lake.lake import Lake

SHOWN_CLUSTERS: Final = 20


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """One cluster as the newest closed plan left it: `incidents` are sentences, `findings` open ones by severity.

    `unexplained` are the open findings of severity critical or high that no incident explains, by rule. A cluster
    `needs_action` while a finding of severity critical or high is open. `wrong` is then what is wrong, `since_ms` when
    that began and `next_command` what to run, as its page says it; empty and None where its page was not asked.
    """

    cluster_id: str
    name: str
    needs_action: bool
    incidents: tuple[str, ...]
    findings: Mapping[str, int]
    unexplained: Mapping[str, int]
    wrong: str = ""
    since_ms: int | None = None
    next_command: str = ""

    @property
    def urgency(self) -> tuple[Any, ...]:
        """Clusters in the order of this are the most urgent first."""
        return (*(-self.findings.get(severity, 0) for severity in SEVERITIES), self.name, self.cluster_id)


def cluster_summaries(lake: Lake, closed: ClosedPlans) -> list[ClusterSummary]:
    """What is open in each cluster that a closed plan read, the most urgent first."""
    merged = "SELECT CAST(NULL AS STRING) AS history_id WHERE false"
    read = [PLANS.name]
    if lake.exists(HISTORIES.name):
        merged = (
            f"SELECT history_id FROM ({query_of(HISTORIES.name, str, closed)}) AS known WHERE merged_into IS NOT NULL"  # noqa: S608
        )
        read.append(HISTORIES.name)
    names = lake.query(
        "SELECT cluster_id, max(cluster_name) AS name FROM plans WHERE event = 'staged' AND outcome = 'read' "  # noqa: S608
        f"AND {closed.where()} AND cluster_id IS NOT NULL AND cluster_id NOT IN ({merged}) GROUP BY cluster_id",
        *read,
    ).to_pylist()
    findings = _by_cluster(
        lake.query(
            "SELECT cluster_id, rule, severity, incident_id IS NOT NULL AS is_explained, count(*) AS n "
            "FROM findings WHERE state = 'open' GROUP BY cluster_id, rule, severity, incident_id IS NOT NULL",
            FINDINGS.name,
        ).to_pylist()
    )
    incidents = _by_cluster(
        lake.query(
            "SELECT cluster_id, severity, headline FROM incidents WHERE state = 'open' ORDER BY from_offset",
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
    for row in findings:
        counts[row["severity"]] += row["n"]
        if row["severity"] in SEVERITIES[:2] and not row["is_explained"]:
            unexplained[row["rule"]] += row["n"]
    ordered = sorted(incidents, key=lambda row: SEVERITIES.index(row["severity"]))
    return ClusterSummary(
        cluster_id,
        name if cluster_id == cluster_id_of(cluster_id) else f"{name}, another log",
        any(counts[severity] for severity in SEVERITIES[:2]),
        tuple(dict.fromkeys(row["headline"] for row in ordered)),
        counts,
        dict(sorted(unexplained.items())),
    )


def need_text(summaries: Sequence[ClusterSummary]) -> str:
    """How many clusters need action."""
    count = sum(summary.needs_action for summary in summaries)
    return f"{count} of {plural(len(summaries), 'cluster')} {'needs' if count == 1 else 'need'} action"


def action_lines(summaries: Sequence[ClusterSummary], command_text: Callable[[str], str] = str) -> list[str]:
    """A line for each cluster that needs action: what is wrong, since when, and the next command."""
    urgent = [summary for summary in summaries if summary.needs_action]
    shown = urgent[:SHOWN_CLUSTERS]
    width = max((len(summary.name) for summary in shown), default=0)
    lines = [f"  {summary.name:<{width}}  {_action_text(summary, command_text)}" for summary in shown]
    if more := len(urgent) - len(shown):
        lines.append(f"  {plural(more, 'more cluster')}: the pages list them")
    return lines


def _action_text(summary: ClusterSummary, command_text: Callable[[str], str]) -> str:
    if not summary.wrong:
        rules = ", ".join(f"{rule}{f' ({count})' if count > 1 else ''}" for rule, count in summary.unexplained.items())
        return "; ".join([*summary.incidents[:1], *([f"critical or high: {rules}"] if rules else [])])
    since = "" if summary.since_ms is None else f", since {when(summary.since_ms)} UTC"
    return f"{summary.wrong}{since}.   {command_text(summary.next_command)}"
