"""What to do next, in the order in which it has to be done: which disks and nodes come first, and which not at all."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from kraft_audit.findings.check_text import last_holder, operations_from
from kraft_audit.findings.membership import membership_steps
from kraft_audit.findings.urgent_steps import contradiction_steps, worst_step
from kraft_audit.incidents.folding import FoldedFindings
from kraft_audit.recovery.leaderless_partitions import leaderless_rows
from kraft_audit.recovery.start_order import first_start
from kraft_audit.replay.branch_choice import PartedLog
from kraft_audit.rules.cluster_history import ClusterHistory, unclean_election_enabled
from kraft_audit.rules.columns.broker_stops import last_voter
from kraft_audit.rules.columns.captures import (
    newest_captures,
    newest_round,
    newest_watermark,
    replica_end,
    replica_name,
)
from kraft_audit.rules.columns.configured_voters import configured_voters
from kraft_audit.rules.columns.declared_recovery import waiting_recovery
from kraft_audit.rules.columns.kafka_commands import steps
from kraft_audit.rules.columns.loss_holders import Loss, losses
from kraft_audit.rules.columns.lost_records import LostVoters, lost_voters, start_is_safe, undecided_majority
from kraft_audit.rules.columns.needed_software import software_needed
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.rules.columns.quorum_standing import DECIDING_FILES, QuorumStanding, Standing
from kraft_audit.rules.columns.shorter_logs import copy_again
from kraft_audit.rules.columns.unheld_records import UnheldRecords, unheld_records
from kraft_audit.rules.columns.voter_alone import VoterAlone, newest_voter_alone
from kraft_audit.rules.families.log_files import HOLDS_OTHER_BYTES
from kraft_audit.rules.registry import words_for
from kraft_audit.rules.rule_model import LOSS, Finding
from kraft_audit.text.readable import (
    and_more,
    any_of,
    capitalized,
    listed,
    natural,
    nouns,
    offset_span,
    pasted_ids,
    utc_time,
)
from kraft_audit.text.shell_commands import with_copy, written_by_echo

ACKNOWLEDGED_FILE: Final = "acknowledged-losses.yaml"
"""A file of its own: a team's waivers.yaml is not to be written over."""
SUBJECTS_NAMED: Final = 3


def what_next(history: ClusterHistory, standing: QuorumStanding, folded: FoldedFindings, path: str) -> Iterator[str]:
    """The steps to take now, the first one first; none where nothing has to be done. `path` is what was read."""
    quoted = shlex.quote(path)
    steps = list(contradiction_steps(standing, folded, quoted)) or list(_by_standing(history, standing, folded, path))
    yield from steps or worst_step(standing, folded, quoted)


def _by_standing(history: ClusterHistory, standing: QuorumStanding, folded: FoldedFindings, path: str) -> Iterator[str]:
    quoted = shlex.quote(path)
    altered = altered_disks(folded)
    if steps := list(next_steps(history, disks_lost(history, folded), quoted)):
        yield from steps
    elif standing.standing is Standing.MAJORITY_LOST:
        gone = pasted_ids(standing.gone)
        yield "Stop all controllers and keep every disk, of brokers too: each may hold the best copy of the log."
        yield f"Find the copy to go on from:   kraft-audit rescue --plan {quoted} --gone {gone}"
    elif standing.standing is Standing.UNDECIDED and (again := copy_again(history)) is not None:
        yield again
    elif standing.standing is Standing.NO_LOG:
        return  # what a copy without its log shows may be long past
    elif standing.distrusted:
        yield from _copy_distrusted(standing, quoted)
    elif standing.standing is Standing.UNDECIDED and (alone := newest_voter_alone(history)) is not None:
        yield from _ask_alone(alone, quoted)
    elif altered:
        yield f"{_stop_altered(altered)}   kraft-audit quorum --diverge {quoted}"
    elif standing.standing is Standing.STALLED and (last := last_voter(history, standing.voters)) is not None:
        needed = standing.majority - (len(standing.voters) - len(last.stopped))
        stopped = sorted(last.stopped)
        which = f"controller {any_of(stopped)}" if needed == 1 else f"{needed} of controllers {listed(stopped)}"
        text = f"Start {which}, with its own disk: a majority needs {needed} more beside node {last.node_id}."
        yield f"{text} Stop none of them then.   kraft-audit may-i start {last.stopped[-1]} {quoted}"
    elif standing.standing is Standing.STALLED:
        yield from (finding.what_to_do for finding in folded.open if finding.rule == "KQ024")
    elif standing.standing is Standing.NO_LEADER and any(each.rule == "KV017" for each in folded.open):
        yield from _set_voters_alike(history, quoted)
    elif standing.standing is Standing.NO_LEADER and history.operator.is_running:
        text = f"{standing.majority} of controllers {listed(sorted(standing.voters))} have to reach each other"
        yield f"{text}: see their server.log and the network between them. Wipe none of them."
        yield f"What may be done to each of them:   kraft-audit quorum {quoted}"
    elif standing.standing is Standing.NO_LEADER:
        yield from _start_voters(history, standing, quoted)
    elif standing.standing is Standing.UNDECIDED and history.parted:
        yield from _name_parted(history, quoted)
    elif standing.standing is Standing.UNDECIDED and (brokers := _beside_contradiction(history, standing)):
        yield f"Start nothing. Which records each disk holds:   kraft-audit quorum --diverge {quoted}"
        who = f"{nouns('broker', brokers)} may hold the old log"
        text = f"If controllers {listed(standing.voters)} were formatted anew, {who}"
        yield f"{text}:   kraft-audit rescue --plan {quoted} --gone {pasted_ids(standing.voters)}"
    elif standing.standing is Standing.UNDECIDED and (unheld := unheld_records(history)) is not None:
        yield from _ask_lagging(unheld, history, quoted)
    elif history.parted:
        yield from _keep_parted(history, quoted)
    elif standing.lacks_majority and standing.missing:
        yield from _fetch_first(standing, quoted)
    elif (waiting := waiting_recovery(history)) is not None:
        node_id = waiting.rescue.node_id
        yield f"Start node {node_id} as the procedure says that `rescue` printed. Start no old disk, then check again."
    else:
        lost = open_losses(history, folded)
        held_back = [each for each in lost if each.intact]
        if held_back:
            yield from _copy_first(held_back, quoted)
        elif standing.standing is Standing.AT_REST:
            yield from _start_first(history, path)
        else:
            yield from _lead_again(history, folded, path)
            yield from membership_steps(history, standing)
        if lost and not held_back:
            yield from _acknowledge(history, lost, quoted)


def _copy_distrusted(standing: QuorumStanding, quoted: str) -> Iterator[str]:
    """What decides about voters' disks that are no evidence."""
    nodes = [disk.node_id for disk in standing.distrusted]
    text = f"Copy {DECIDING_FILES} of {nouns('controller', nodes)} again, then check again."
    yield f"{text} Start, wipe or remove none before:   kraft-audit may-i start {nodes[0]} {quoted}"


def _name_parted(history: ClusterHistory, quoted: str) -> Iterator[str]:
    """Which records only some disks hold, where no log is canonical, and how to go on with each log."""
    first, *others = history.parted
    stopped = sorted({node for log in others for node in log.node_ids} - set(first.node_ids))
    disks = "this disk" if len(first.node_ids) == 1 else "these disks"
    stay = f": keep {disks}, and keep {listed(stopped)} stopped" if stopped else ""
    plan = f"kraft-audit rescue --plan {quoted} --branch"
    yield f"Start nothing. {_only_on(first)}{stay}. To go on with their log:   {plan} {first.name}"
    for log in others:
        yield f"{_only_on(log)}. To go on with theirs instead:   {plan} {log.name}"
    yield f"First records of each side by side:   kraft-audit quorum --diverge {quoted}"


def _keep_parted(history: ClusterHistory, quoted: str) -> Iterator[str]:
    """Two leaders of one epoch wrote, and one of their logs won: what the others hold may have been committed too."""
    for log in history.parted:
        which = f"disk{'s' * (len(log.node_ids) > 1)} of {nouns('node', log.node_ids)}"
        yield f"Keep the {which}. {_only_on(log)}.   kraft-audit state {quoted} --branch {log.name}"
    yield f"First records of each side by side:   kraft-audit quorum --diverge {quoted}"


def _only_on(log: PartedLog) -> str:
    topics = f"topic{'s' * (len(log.topics) > 1)} {listed(log.topics)}" if log.topics else "no topic"
    verb = "lives" if log.to_offset - log.from_offset == 1 else "live"
    span = capitalized(offset_span(log.from_offset, log.to_offset))
    return f"{span} of epoch {log.epoch} ({topics}) {verb} only on {nouns('node', log.node_ids)}"


def _beside_contradiction(history: ClusterHistory, standing: QuorumStanding) -> list[int]:
    """The captured nodes that are no voters, where logs contradict each other so that none is canonical."""
    newest = newest_watermark(history)
    if newest is None or newest["canonical_end_offset"] is not None:
        return []
    others = {row["node_id"] for row in newest_round(history) if row["log_end_offset"]} - set(standing.voters)
    return sorted(node for node in others if node is not None)


def _ask_lagging(waiting: UnheldRecords, history: ClusterHistory, quoted: str) -> Iterator[str]:
    """How to tell followers that do not fetch from copies that are older; whoever holds the records alone is kept."""
    done = operations_from(history, waiting.from_offset) if history.has("topic_changes") else []
    what = f" ({', '.join(done)})" if done else ""
    span = f"offsets {waiting.from_offset} to {waiting.to_offset - 1}{what}"
    which = "no other voter that was read" if waiting.unread else "no other voter"
    yield f"Do not restart or wipe {nouns('node', waiting.holders)}: {which} holds {span}."
    yield f"If the nodes run, check their live dirs:   kraft-audit check {quoted} --running"
    every = listed(sorted((*waiting.holders, *waiting.lagging, *waiting.unread)))
    yield f"If these are copies, copy controllers {every} again, and check both copies in one folder."
    first = any_of(waiting.holders)
    text = f"If the nodes are stopped, start {first} with its own disk before any other"
    yield f"{text}:   kraft-audit may-i start {waiting.holders[0]} {quoted}"


def _fetch_first(standing: QuorumStanding, quoted: str) -> Iterator[str]:
    """Which disks to fetch, the last known leader's first, and what to ask where they are gone."""
    missing = sorted(standing.missing, key=lambda voter: (voter != standing.leader_id, voter))
    led = f", which led epoch {standing.epoch}" if missing[0] == standing.leader_id else ""
    copy = f"kraft-capture --config /etc/kafka/server.properties --tar node-{missing[0]}.tgz"
    needed = standing.majority - len(standing.captured)
    then = f"; then {needed - 1} of {listed(missing[1:])}" if needed > 1 else ""
    yield f"Copy the disk of controller {missing[0]} first{led}{then}. On its host:   {copy}"
    gone = pasted_ids({*standing.missing, *standing.gone})
    yield f"If {'they are' if len(missing) > 1 else 'it is'} lost for good:   kraft-audit check {quoted} --gone {gone}"


def _set_voters_alike(history: ClusterHistory, quoted: str) -> Iterator[str]:
    """A node reads its controller.quorum.voters when it starts, so all stop before the first does."""
    ids = configured_voters(history).suggested
    asked = f"kraft-audit may-i start {ids[0]} {quoted} --voters {pasted_ids(ids)}" if ids else ""
    if ids[1:]:
        asked += f" --stopped {pasted_ids(ids[1:])}"
    text = "Stop all controllers, set controller.quorum.voters alike on every node, then start them one by one."
    yield f"{text}   {asked}".rstrip()


def _ask_alone(alone: VoterAlone, quoted: str) -> Iterator[str]:
    """How to tell a voter that is cut off from one that is left alone; nothing is started without the last leader."""
    leader, gone = alone.leader_id, pasted_ids(alone.others)
    yield f"See whether node {leader} runs and writes. If the nodes run:   kraft-audit check {quoted} --running"
    yield f"If the disks of {listed(alone.others)} are lost:   kraft-audit check {quoted} --gone {gone}"
    asked = f"kraft-audit may-i start {leader} {quoted} --stopped {pasted_ids({*alone.others} - {leader})}"
    text = f"Otherwise start node {leader}, the last leader, with its own disk before any other"
    yield f"{text}: it holds all that its epoch committed.   {asked}"


def _lead_again(history: ClusterHistory, folded: FoldedFindings, path: str) -> Iterator[str]:
    """Who has to come back first so that partitions without a leader get one: what `recover-plan` says in full."""
    alone = [f for f in last_replicas(folded) if "leader -1" in f.summary]
    if not alone and not any(finding.rule == "KP002" for finding in folded.open):
        return
    broker, text = first_start(history, path)
    if alone:
        holders = sorted({last_holder(finding) for finding in alone}, key=int)
        names = listed([finding.subject for finding in alone[:SUBJECTS_NAMED]])
        them = "it" if holders == [str(broker)] else f"broker{'s' * (len(holders) > 1)} {any_of(holders)}"
        text += f"{' ' * bool(text)}Do not wipe {them}, do not reassign {names}."
    text = text or "See who has to come back first:"
    yield f"{text}   kraft-audit recover-plan {shlex.quote(path)}"


def last_replicas(folded: FoldedFindings) -> list[Finding]:
    """The open findings about partitions at one replica, in an order that no table's order of rows changes."""
    alone = (finding for finding in folded.open if finding.rule == "KP001")
    return sorted(alone, key=lambda finding: (finding.from_offset or 0, natural(finding.subject)))


def open_losses(history: ClusterHistory, folded: FoldedFindings) -> list[Loss]:
    """The losses that nobody has acknowledged, in the order of the log."""
    known = {(finding.subject, finding.from_offset) for finding in folded.open if finding.rule == LOSS}
    return [loss for loss in losses(history) if (loss.event.name, loss.event.offset) in known]


def _copy_first(held_back: Sequence[Loss], quoted: str) -> Iterator[str]:
    """What saves the lost records: their holders stay stopped until their log dirs are copied."""
    brokers = sorted({holder.broker_id for each in held_back for holder in each.intact})
    names = list(dict.fromkeys(each.event.name for each in held_back))
    shown = listed(names[:SUBJECTS_NAMED]) + and_more(len(names) - SUBJECTS_NAMED)
    its = "its log dirs" if len(brokers) == 1 else "their log dirs"
    yield f"Do not start or wipe broker {any_of(brokers)} before {its} of {shown} are copied to another place."
    start = f"kraft-audit may-i start {brokers[0]} {quoted} --copied DIR"
    yield f"With the copies in a folder COPY:   kraft-audit salvage {with_copy(quoted)} --out DIR; {start}"


def _acknowledge(history: ClusterHistory, lost: Sequence[Loss], quoted: str) -> Iterator[str]:
    """Nothing can be saved any more: what to compare, and the waiver to paste."""
    before = utc_time(max(each.event.timestamp_ms for each in lost) + 1000)
    yield f"Compare what producers were acknowledged with what is there:   kraft-audit check {quoted} --rule {LOSS}"
    waiver = [f"waivers: [{{rule: {LOSS},", f"cluster: {history.cluster_id},", f"before: {before},"]
    file = written_by_echo(ACKNOWLEDGED_FILE, [*waiver, "who: YOU, why: WHAT WAS DONE}]"])
    yield f"Then acknowledge it:   {file}; kraft-audit check {quoted} --waivers {ACKNOWLEDGED_FILE}"


def _ask_observers(history: ClusterHistory, losses: LostVoters, quoted: str) -> Iterator[str]:
    """Where no voter holds what was committed: which other disks hold a log, and how to go on from one of them."""
    voters = sorted(voter["voter_id"] for voter in losses.voters)
    ends = {row["node_id"]: replica_end(row) for row in newest_round(history) if row["node_id"] not in voters}
    holders = sorted(node for node, end in ends.items() if node is not None and end >= losses.low)
    if len(losses.lacking) < len(losses.voters) or not holders:
        return
    gone = pasted_ids(voters)
    text = f"Only {nouns('node', holders)} hold{'s' * (len(holders) == 1)} the log, to offset"
    yield (
        f"{text} {max(ends[node] for node in holders) - 1}: keep {'its disk' if len(holders) == 1 else 'their disks'}. "
        f"If {listed(voters)} were formatted anew:   kraft-audit rescue --plan {quoted} --gone {gone}"
    )


def altered_disks(folded: FoldedFindings) -> list[Finding]:
    """Findings that name a disk with other bytes than a majority of the voters holds."""
    findings = (finding for finding in folded.open if finding.rule == "KQ022")
    return [finding for finding in findings if finding.summary.startswith(HOLDS_OTHER_BYTES)]


def _stop_altered(altered: Sequence[Finding]) -> str:
    """What to do with disks that a majority contradicts; one that holds what was written first is not replaced."""
    fetch_anew = words_for("KQ022", "observer")["what_to_do"]
    observers = [finding for finding in altered if finding.what_to_do == fetch_anew]
    if len(observers) == len(altered):
        nodes = listed([finding.subject for finding in altered]) + ", one at a time" * (len(altered) > 1)
        return f"Stop {nodes}, move only its __cluster_metadata-0 away, and start it: it fetches the log anew."
    altered = [finding for finding in altered if finding not in observers]
    nodes = any_of([finding.subject for finding in altered])
    holds_the_first = {finding.what_to_do for finding in altered} & {words_for("KQ022", "outvoted")["what_to_do"]}
    if holds_the_first:
        return f"Do not let {nodes} lead: stop it, and keep its disk as it is until the logs were compared."
    return f"Do not let {nodes} lead: stop it, keep its disk, replace it."


def _start_voters(history: ClusterHistory, standing: QuorumStanding, quoted: str) -> Iterator[str]:
    """Which voters to start so that a majority runs, and who leads then where the disks show it."""
    epochs = dict(standing.epochs)
    newest = [voter for voter, epoch in epochs.items() if epoch == standing.epoch]
    release = software_needed(history)
    software = "" if release is None else f" and Kafka {release} or later"
    older = sorted((voter for voter in epochs if voter not in newest), key=lambda voter: -epochs[voter])
    needed = standing.majority - len(newest)
    if (alone := newest_voter_alone(history)) is not None and alone.leader_id in older:
        # It holds every record that was committed in the last epoch that had a leader.
        older.sort(key=lambda voter: voter != alone.leader_id)
    if needed == 1 and older:
        ends, are_missing = _log_ends(history, standing), bool(standing.missing)
        outcome = _election(ends, newest, older[0], are_missing=are_missing)
        others_alike = older[1:] if alone is None else []
        alike = sorted(
            voter for voter in others_alike if _election(ends, newest, voter, are_missing=are_missing) == outcome
        )
        others = f" (or {any_of(alike)} alone)" if alike else ""
        asked = f"kraft-audit may-i start {older[0]} {quoted}"
        asked += f" --stopped {pasted_ids(older[1:])}" if older[1:] else ""
        yield f"Start controller {older[0]} alone, with its own disk{software}{others}: {outcome}.   {asked}"
    elif needed > 0 and len(older) >= needed:
        first = "" if alone is None else f", {alone.leader_id} among them"
        yield f"Start {needed} of controllers {listed(sorted(older))}, with their own disks{software}{first}."
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


def _start_first(history: ClusterHistory, path: str) -> Iterator[str]:
    """Of a whole cluster that stopped: which broker comes first, where partitions wait for one alone or may be led
    uncleanly."""
    alone: Counter[int] = Counter()
    states = partition_states(history)
    rows = np.flatnonzero(states.is_last & states.exists & (states.size("isr") == 1) & (states.size("elr") == 0))
    alone.update(states.nodes("isr", row)[0] for row in rows.tolist() if states.size_of("replicas", row) > 1)
    waiting = {states.topic(row) for row in leaderless_rows(history)}
    if not alone and not any(unclean_election_enabled(history, topic) for topic in waiting):
        return
    broker, text = first_start(history, path)
    if broker is None or not text.startswith("Start "):
        yield f"{text or 'See who has to come back first:'}   kraft-audit recover-plan {shlex.quote(path)}"
    elif count := alone[broker]:
        held = "partition has only it in its" if count == 1 else "partitions have only it in their"
        yield f"Start broker {broker} first: {count} {held} ISR."


LOST_DISKS: Final = ("KQ020", "KQ021")


def disks_lost(history: ClusterHistory, folded: FoldedFindings) -> list[Finding]:
    """Findings about what the newest captures lack; an older one may have fetched it again since."""
    newest = {(row["path"] or row["root"], row["read_to_ms"]) for row in newest_captures(history)}
    return [
        finding
        for finding in folded.open
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
        yield from _ask_observers(history, losses, quoted_path)
    elif lost:
        yield lost[0].what_to_do
    elif undecided_majority(history) is not None:
        yield f"Do not start node {any_of(sorted(row['node_id'] for row in losses.lacking))} before that is decided."
        yield from _ask_observers(history, losses, quoted_path)
