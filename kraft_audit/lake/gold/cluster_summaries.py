"""What is open in each cluster of a lake, as the end of a run says it: which clusters need action, and for what.

The table of findings says which clusters those are. What is wrong in one, since when and what to do next is what its
situation says (`report.lake_situations`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kraft_audit.capture.plan import cluster_id_of
from kraft_audit.lake.views import query_of
from kraft_audit.tables.bronze import PLANS
from kraft_audit.tables.gold import FINDINGS, HISTORIES, SEVERITIES
from kraft_audit.text.readable import plural, when

if TYPE_CHECKING:
    from kraft_audit.lake.closed_plans import ClosedPlans
    from kraft_audit.lake.lake import Lake

SHOWN_CLUSTERS: Final = 20


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """One cluster as the newest closed plan left it: `findings` are open ones by severity.

    A cluster `needs_action` while a finding of severity critical or high is open, or its quorum cannot be judged.
    `wrong` is then what is wrong, `since_ms` when that began and `next_command` what to run; empty and None where only
    Spark reaches the lake, whose situations nobody sums up.
    """

    cluster_id: str
    name: str
    needs_action: bool
    findings: Mapping[str, int]
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
    sql = "SELECT cluster_id, severity, count(*) AS n FROM findings WHERE state = 'open' GROUP BY cluster_id, severity"
    counts: defaultdict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(SEVERITIES, 0))
    for row in lake.query(sql, FINDINGS.name).to_pylist():
        counts[row["cluster_id"]][row["severity"]] = row["n"]
    summaries = [_summary(row["cluster_id"], row["name"], counts[row["cluster_id"]]) for row in names]
    return sorted(summaries, key=lambda summary: summary.urgency)


def _summary(cluster_id: str, name: str, counts: Mapping[str, int]) -> ClusterSummary:
    shown = name if cluster_id == cluster_id_of(cluster_id) else f"{name}, another log"
    return ClusterSummary(cluster_id, shown, any(counts[severity] for severity in SEVERITIES[:2]), counts)


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
        counts = [f"{summary.findings[severity]} {severity}" for severity in SEVERITIES[:2]]
        return f"{' and '.join(counts)} findings are open"
    since = "" if summary.since_ms is None else f", since {when(summary.since_ms)} UTC"
    return f"{summary.wrong}{since}.   {command_text(summary.next_command)}"
