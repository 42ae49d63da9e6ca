"""What to do next, in the order in which it has to be done: which disks and nodes come first, and which not at all."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kraft_audit.findings.check_text import last_holder
from kraft_audit.incidents.folding import FoldedFindings, open_findings
from kraft_audit.incidents.incident import IncidentKind
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.captures import newest_captures, newest_round, replica_name
from kraft_audit.rules.columns.declared_recovery import waiting_recovery
from kraft_audit.rules.columns.kafka_commands import steps
from kraft_audit.rules.columns.lost_records import lost_voters, start_is_safe, undecided_majority
from kraft_audit.rules.columns.quorum_standing import QuorumStanding, Standing
from kraft_audit.rules.families.log_files import HOLDS_OTHER_BYTES
from kraft_audit.rules.registry import words_for
from kraft_audit.rules.rule_model import Finding
from kraft_audit.text.readable import any_of, capitalized, listed

SUBJECTS_NAMED: Final = 3


def what_next(history: ClusterHistory, standing: QuorumStanding, folded: FoldedFindings, path: str) -> Iterator[str]:
    """The steps to take now, the first one first; none where nothing has to be done. `path` is what was read."""
    quoted = shlex.quote(path)
    altered = altered_disks(folded)
    if steps := list(next_steps(history, disks_lost(history, folded), quoted)):
        yield from steps
    elif standing.standing is Standing.MAJORITY_LOST:
        gone = ",".join(map(str, standing.gone))
        yield "Stop all controllers and keep every disk, of brokers too: each may hold the best copy of the log."
        yield f"Find the copy to go on from:   kraft-audit rescue-plan {quoted} --gone {gone}"
    elif altered:
        yield f"{_stop_altered(altered)}   kraft-audit diverge {quoted}"
    elif standing.standing is Standing.STALLED:
        yield from (finding.what_to_do for finding in open_findings(folded) if finding.rule == "KQ024")
    elif standing.standing is Standing.NO_LEADER and history.operator.is_running:
        text = f"{standing.majority} of controllers {listed(sorted(standing.voters))} have to reach each other"
        yield f"{text}: see their server.log and the network between them. Wipe none of them."
        yield f"What may be done to each of them:   kraft-audit quorum {quoted}"
    elif standing.standing is Standing.NO_LEADER:
        yield from _start_voters(history, standing, quoted)
    elif (waiting := waiting_recovery(history)) is not None:
        node_id = waiting.rescue.node_id
        yield f"Start node {node_id} as the procedure says that `rescue` printed. Start no old disk, then check again."
    elif standing.standing is Standing.AT_REST:
        first = _start_first(folded)
        if first:
            yield first
    else:
        alone = [f for f in open_findings(folded) if f.rule == "KP001" and "leader -1" in f.summary]
        if alone:
            holders = list(dict.fromkeys(last_holder(finding) for finding in alone))
            names = listed([finding.subject for finding in alone[:SUBJECTS_NAMED]])
            its, them = ("its disk", "it") if len(holders) == 1 else ("their disks", "them")
            text = f"Start broker {listed(holders)} first, with {its}. Do not wipe {them}, do not reassign {names}."
            yield f"{text}   kraft-audit recover-plan {quoted}"
        elif any(finding.rule == "KP002" for finding in open_findings(folded)):
            yield f"See who has to come back first:   kraft-audit recover-plan {quoted}"


def altered_disks(folded: FoldedFindings) -> list[Finding]:
    """Findings that name a disk with other bytes than a majority of the voters holds."""
    findings = (finding for finding in open_findings(folded) if finding.rule == "KQ022")
    return [finding for finding in findings if finding.summary.startswith(HOLDS_OTHER_BYTES)]


def _stop_altered(altered: Sequence[Finding]) -> str:
    """What to do with disks that a majority contradicts; one that holds what was written first is not replaced."""
    nodes = any_of([finding.subject for finding in altered])
    holds_the_first = {finding.what_to_do for finding in altered} & {words_for("KQ022", "outvoted")["what_to_do"]}
    if holds_the_first:
        return f"Do not let {nodes} lead: stop it, and keep its disk as it is until the logs were compared."
    return f"Do not let {nodes} lead: stop it, keep its disk, replace it."


def _start_voters(history: ClusterHistory, standing: QuorumStanding, quoted: str) -> Iterator[str]:
    """Which voters to start so that a majority runs, and who leads then where the disks show it."""
    epochs = dict(standing.epochs)
    newest = [voter for voter, epoch in epochs.items() if epoch == standing.epoch]
    older = sorted((voter for voter in epochs if voter not in newest), key=lambda voter: -epochs[voter])
    needed = standing.majority - len(newest)
    if needed == 1 and older:
        ends, are_missing = _log_ends(history, standing), bool(standing.missing)
        outcome = _election(ends, newest, older[0], are_missing=are_missing)
        alike = sorted(
            voter for voter in older[1:] if _election(ends, newest, voter, are_missing=are_missing) == outcome
        )
        others = f" (or {any_of(alike)} alone)" if alike else ""
        asked = f"kraft-audit may-i start {older[0]} {quoted}"
        asked += f" --stopped {','.join(map(str, sorted(older[1:])))}" if older[1:] else ""
        yield f"Start controller {older[0]} alone, with its own disk{others}: {outcome}.   {asked}"
    elif needed > 0 and len(older) >= needed:
        yield f"Start {needed} of controllers {listed(sorted(older))}, with their own disks."
    else:
        yield f"Start {listed(sorted(epochs))} with their own disks, and copy them before if you can."
    if newest:
        yield f"Do not remove or wipe {any_of(newest)}."


def _log_ends(history: ClusterHistory, standing: QuorumStanding) -> dict[int, tuple[int, int]]:
    """(last epoch, end offset) of each captured voter, which elections compare (KafkaRaftClient, OffsetAndEpoch)."""
    return {
        row["node_id"]: max(
            (_epoch(row["last_epoch"]), row["log_end_offset"] or 0),
            (_epoch(row["snapshot_epoch"]), row["snapshot_end_offset"] or 0),
        )
        for row in newest_round(history)
        if row["node_id"] in standing.captured
    }


def _epoch(epoch: int | None) -> int:
    return -1 if epoch is None else epoch


def _election(ends: Mapping[int, tuple[int, int]], running: Sequence[int], started: int, *, are_missing: bool) -> str:
    """Who can lead when `started` makes `running` a majority by one vote, and whether that is known to lose nothing.

    Each of them has to grant its vote, so only a log that is not behind any of theirs can win. Nothing is lost where no
    captured log goes further. Voters that were not captured may run, and lead.
    """
    electorate = [*running, started]
    if any(voter not in ends for voter in electorate) or are_missing:
        return "a majority runs then, and the disks do not show who will lead"
    best = max(ends[voter] for voter in electorate)
    able = [voter for voter in electorate if ends[voter] == best]
    if len(able) == len(electorate):
        leads = "their logs end alike, so any of them may lead"
    else:
        leads = f"{any_of(sorted(able))} will lead"
    longer = sorted(voter for voter, end in ends.items() if end > best)
    if longer:
        return f"{leads}, without what only {any_of(longer)} holds"
    return f"{leads} and nothing is lost"


def _start_first(folded: FoldedFindings) -> str:
    """Of a whole cluster that stopped: the broker that alone is in sync of the most partitions comes first."""
    alone = Counter(
        last_holder(finding)
        for incident in folded.incidents
        if incident.kind is IncidentKind.CLUSTER_STOP
        for finding in incident.findings
        if finding.rule == "KP001" and not finding.is_over
    )
    if not alone:
        return ""
    broker, count = alone.most_common(1)[0]
    held = "partition has only it in its" if count == 1 else "partitions have only it in their"
    return f"Start broker {broker} first: {count} {held} ISR."


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
    return f"{capitalized(summary)}.{more}"


def next_steps(history: ClusterHistory, lost: Sequence[Finding], quoted_path: str) -> Iterator[str]:
    """What comes before anything else; nothing where no disk lost records, or may have.

    Without the table `batches` it is what the finding advises.
    """
    if not history.has("batches"):
        yield from (finding.what_to_do for finding in lost[:1])
        return
    losses = lost_voters(history)
    if lost and losses.lacking:
        went_back = {row["node_id"] for row in losses.lacking if replica_name(row) in {each.subject for each in lost}}
        yield from steps(history, losses, went_back)
        if losses.is_majority_lost or start_is_safe(history, losses):
            node_id = losses.proven[0].node_id if losses.proven else losses.lacking[0]["node_id"]
            yield f"What starting it would do:   kraft-audit may-i start {node_id} {quoted_path}"
    elif lost:
        yield lost[0].what_to_do
    elif undecided_majority(history) is not None:
        yield f"Do not start node {any_of([each.node_id for each in losses.lost])} before that is decided."
