"""What `check` opens with where voters' disks lost committed records: what happened, and what to do and not to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kraft_audit.incidents.folding import FoldedFindings, open_findings
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.captures import newest_captures, replica_name
from kraft_audit.rules.columns.lost_records import lost_voters, start_is_safe, undecided_majority
from kraft_audit.rules.columns.replacing_voters import steps
from kraft_audit.rules.rule_model import Finding
from kraft_audit.text.readable import any_of

LOST_DISKS: Final = ("KQ020", "KQ021")


def disks_lost(history: ClusterHistory, folded: FoldedFindings) -> list[Finding]:
    """Findings about what the newest captures lack; an older one may have fetched it again since."""
    newest = {(row["path"] or row["root"], row["read_to_ms"]) for row in newest_captures(history)}
    return [
        finding
        for finding in open_findings(folded)
        if finding.rule in LOST_DISKS
        and any((fact.path, fact.timestamp_ms) in newest for fact in list(finding.evidence)[-1:])
    ]


def loss_sentence(lost: Sequence[Finding]) -> str:
    """What the first finding says, and how many more of its rule there are."""
    summary, count = lost[0].summary, sum(finding.rule == lost[0].rule for finding in lost) - 1
    more = f" {count} more: --rule {lost[0].rule}" if count else ""
    return f"{summary[:1].upper()}{summary[1:]}.{more}"


def next_steps(history: ClusterHistory, lost: Sequence[Finding], quoted_path: str) -> Iterator[str]:
    """What comes before anything else; nothing where no disk lost records, or may have.

    Without the table `batches` it is what the finding advises.
    """
    if not history.has("batches"):
        yield from (finding.what_to_do for finding in lost[:1])
        return
    found = lost_voters(history)
    if lost and found.lacking:
        went_back = {row["node_id"] for row in found.lacking if replica_name(row) in {each.subject for each in lost}}
        yield from steps(history, found, went_back)
        if found.is_majority_lost or start_is_safe(history, found):
            node_id = found.proven[0].node_id if found.proven else found.lacking[0]["node_id"]
            yield f"What starting it would do:   kraft-audit may-i start {node_id} {quoted_path}"
    elif lost:
        yield lost[0].what_to_do
    elif undecided_majority(history) is not None:
        yield f"Do not start node {any_of([each.node_id for each in found.lost])} before that is decided."
