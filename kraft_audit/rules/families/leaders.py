"""Rules about the quorum's leaders: one an epoch, by a majority, one vote a replica; and a quorum that works now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import (
    audit_command,
    capture_evidence,
    capture_time,
    captures_in_order,
    newest_round,
    order_in_doubt,
    replica_end,
    replica_name,
)
from kraft_audit.rules.columns.log_batches import canonical_log
from kraft_audit.rules.columns.lost_records import undecided_majority
from kraft_audit.rules.columns.quorum_standing import QUORUM_TABLES, QuorumStanding, Standing, quorum_standing
from kraft_audit.rules.columns.voter_alone import newest_voter_alone
from kraft_audit.rules.columns.voter_sets import electing_set, ids_of, keys_of, voter_ids
from kraft_audit.rules.families.epochs import epoch_evidence
from kraft_audit.rules.families.log_files import damage_case, damage_rows
from kraft_audit.rules.registry import rule, texts
from kraft_audit.rules.rule_model import Case, Evidence, Thresholds, undecided
from kraft_audit.text.readable import listed, pasted_ids
from kraft_codec.errors import Reason


@rule("KQ003", control="quorum_safety", needs=("leader_epochs", "captures"))
def kq003(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    facts: dict[int, dict[tuple[int, int | None], Evidence]] = defaultdict(dict)
    for row in history.rows("leader_epochs"):
        if row["leader_id"] is not None and row["leader_change_offset"] is not None:
            facts[row["epoch"]].setdefault((row["leader_id"], row["leader_change_offset"]), epoch_evidence(row))
    for row in captures_in_order(history):
        epoch, leader = row["leader_epoch"], row["leader_id"]
        if epoch is None or leader is None or leader < 0:
            continue
        if leader not in {known for known, _ in facts[epoch]}:
            text = f"quorum-state of {replica_name(row)}: leader {leader} of epoch {epoch}"
            facts[epoch][leader, None] = _state_evidence(row, text)
    for epoch, known in sorted(facts.items()):
        if len(known) < 2:
            continue
        leaders = sorted({leader for leader, _ in known})
        what = f"leaders {leaders}"
        if len(leaders) == 1:
            what = f"leader {leaders[0]} with {len(known)} LeaderChange records"
        first = min((offset for _, offset in known if offset is not None), default=None)
        subject = f"epoch {epoch}"
        yield Case(subject, f"{subject} has {what}", first, epoch=epoch, evidence=tuple(known.values()))


def _state_evidence(row: TableRow, text: str) -> Evidence:
    return capture_evidence(row, text, epoch=row["leader_epoch"], file_name="quorum-state")


@rule("KQ004", control="quorum_safety", needs=("batches", "decode_errors"))
def kq004(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for row in damage_rows(history, {Reason.EPOCH_WENT_BACK}):
        if (row["file_name"] or "").endswith("leader-epoch-checkpoint"):
            continue  # KQ013 compares it with the log
        yield damage_case(row, f"leader epoch decreases: {row['detail']}")


@rule("KQ006", control="quorum_safety", needs=("leader_epochs", "voter_sets"))
def kq006(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for row in history.rows("leader_epochs"):
        change, granting = row["leader_change_offset"], row["granting_voters"]
        if change is None or granting is None:
            continue
        in_effect = electing_set(history, change) if row["canonical"] else None
        voters = voter_ids(in_effect) if in_effect else frozenset(row["voters"] or ())
        if not voters:
            continue
        grants = voters & frozenset(granting)
        subject = f"epoch {row['epoch']}"
        where = {"from_offset": change, "from_ms": row["timestamp_ms"], "epoch": row["epoch"]}
        text = f"LeaderChange lists voters {listed(row['voters'])}, granting {listed(granting) if granting else 'none'}"
        fact = Evidence(text, offset=change, epoch=row["epoch"])
        if len(grants) < majority(len(voters)):
            summary = f"leader {row['leader_id']} had {len(grants)} of {len(voters)} votes of {listed(sorted(voters))}"
            yield Case(subject, summary, evidence=(fact,), **where)
        elif row["leader_id"] not in voters and not _was_removed(history, row["leader_id"], change):
            summary = f"leader {row['leader_id']} is none of the voters {listed(sorted(voters))}"
            yield Case(subject, summary, evidence=(fact,), **where)


def _was_removed(history: ClusterHistory, leader_id: int, before: int) -> bool:
    return any(
        row["from_offset"] < before and leader_id in ids_of(keys_of(row["removed"]))
        for row in history.rows("voter_sets")
    )


@rule("KQ014", control="quorum_safety", needs=("captures", "leader_epochs"))
def kq014(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    votes: dict[tuple[Any, ...], dict[tuple[int, str | None], Evidence]] = defaultdict(dict)
    newest: dict[tuple[Any, ...], TableRow] = {}
    for row in captures_in_order(history):
        if row["node_id"] is None or row["leader_epoch"] is None:
            continue
        replica = (row["node_id"], row["directory_id"])
        before = newest.get(replica)
        is_later = before is not None and capture_time(before) < capture_time(row)
        if before is not None and is_later and row["leader_epoch"] < before["leader_epoch"]:
            yield _epoch_went_back(history, before, row)
        newest[replica] = row
        if row["voted_id"] is not None and row["voted_id"] >= 0:
            vote = (row["voted_id"], row["voted_directory_id"])
            _count_vote(votes[(*replica, row["leader_epoch"])], vote, _state_evidence(row, f"voted for {vote[0]}"))
    yield from _granted_twice(history)
    yield from _forgotten(history)
    for (node_id, directory_id, epoch), known in sorted(votes.items(), key=str):
        if len(known) > 1:
            names = sorted({candidate for candidate, _ in known})
            first_ms = min(fact.timestamp_ms for fact in known.values() if fact.timestamp_ms is not None)
            evidence = tuple(known.values())
            summary = f"voted in epoch {epoch} for {names}"
            where = {"from_ms": first_ms, "epoch": epoch, "directory_id": directory_id or ""}
            yield Case(f"node {node_id}", summary, evidence=evidence, **where)


def _epoch_went_back(history: ClusterHistory, before: TableRow, row: TableRow) -> Case:
    earlier, later = before["leader_epoch"], row["leader_epoch"]
    if (doubt := order_in_doubt(history, before, row)) is not None:
        reason = f"one copy of its disk has epoch {earlier}, another {later}; {doubt}"
        return undecided(replica_name(row), reason, epoch=later)
    return Case(
        replica_name(row),
        f"its persisted epoch went from {earlier} back to {later}",
        from_ms=before["read_to_ms"],
        epoch=later,
        evidence=(_state_evidence(before, f"epoch {earlier}"), _state_evidence(row, f"epoch {later}")),
        directory_id=row["directory_id"] or "",
    )


def _granted_twice(history: ClusterHistory) -> Iterator[Case]:
    """Voters that two leaders of one epoch name among those who elected them."""
    granted: dict[tuple[int, int], dict[int, Evidence]] = defaultdict(dict)
    for row in history.rows("leader_epochs"):
        if row["leader_id"] is None or row["leader_change_offset"] is None:
            continue
        for voter in row["granting_voters"] or ():
            text = f"LeaderChange of leader {row['leader_id']} names {voter} among its granting voters"
            fact = Evidence(text, offset=row["leader_change_offset"], epoch=row["epoch"])
            granted[voter, row["epoch"]].setdefault(row["leader_id"], fact)
    for (voter, epoch), leaders in sorted(granted.items()):
        if len(leaders) > 1:
            yield Case(
                f"node {voter}",
                f"elected {sorted(leaders)}, each leader of epoch {epoch}",
                from_offset=min(fact.offset for fact in leaders.values() if fact.offset is not None),
                epoch=epoch,
                evidence=tuple(leaders.values()),
            )


def _forgotten(history: ClusterHistory) -> Iterator[Case]:
    """Disks of a leader that, in the epoch that it led, know of no leader and no vote.

    A candidate enters its epoch with a vote for itself, and a leader keeps its own id up to a later epoch (QuorumState,
    4.3.0). So this disk was wiped or put back since, and has heard of the epoch from others.
    """
    directories: dict[int, set[str | None]] = defaultdict(set)
    for row in history.rows("voter_sets"):
        for voter in row["voters"]:
            directories[voter["voter_id"]].add(voter["directory_id"])
    led = {
        (row["leader_id"], row["epoch"]): row
        for row in history.rows("leader_epochs")
        if row["leader_id"] is not None and row["leader_change_offset"] is not None
    }
    reported: set[tuple[int, int]] = set()
    for row in captures_in_order(history):
        key = (row["node_id"], row["leader_epoch"])
        known = directories[row["node_id"]] - {None}
        is_disk_of_leader = not known or known == {row["directory_id"]}
        forgot = row["leader_id"] == -1 and row["voted_id"] == -1
        if key not in led or key in reported or not forgot or not is_disk_of_leader:
            continue
        reported.add(key)
        yield Case(
            replica_name(row),
            f"led epoch {row['leader_epoch']}, and its disk forgot it: it may vote in that epoch again",
            from_ms=row["read_to_ms"],
            epoch=row["leader_epoch"],
            evidence=(
                epoch_evidence(led[key]),
                _state_evidence(row, "no leader and no vote"),
                capture_evidence(row, f"its log ends at {replica_end(row)}"),
            ),
            directory_id=row["directory_id"] or "",
        )


def _count_vote(known: dict[tuple[int, str | None], Evidence], vote: tuple[int, str | None], fact: Evidence) -> None:
    """A vote without a directory equals one with a directory, for the same id."""
    if not any(id_ == vote[0] and None in (directory, vote[1]) for id_, directory in known):
        known.setdefault(vote, fact)


@rule("KQ023", control="quorum_safety", needs=QUORUM_TABLES)
def kq023(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    standing = quorum_standing(history)
    if standing.standing is Standing.NO_LEADER:
        epochs = dict(standing.epochs)
        asked = min(epochs, key=lambda voter: (epochs[voter], voter), default=None)
        summary = f"epoch {standing.epoch} has no leader: {standing.reason}"
        yield _quorum_case(history, standing, summary, "start", asked)
    elif standing.standing is Standing.UNDECIDED and standing.leader_id is None:
        yield undecided("quorum", standing.reason, epoch=standing.epoch)


@rule("KQ024", control="quorum_safety", needs=QUORUM_TABLES)
def kq024(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    standing = quorum_standing(history)
    if standing.standing is Standing.STALLED:
        ends = {row["node_id"]: replica_end(row) for row in newest_round(history) if row["node_id"] in standing.voters}
        asked = min(ends, key=lambda voter: (ends[voter], voter), default=None)
        yield _quorum_case(history, standing, standing.reason, "restart", asked)
    is_said = standing.reason == undecided_majority(history) or standing.distrusted  # by KQ020, KQ013 or KQ021
    if standing.standing is Standing.UNDECIDED and standing.leader_id is not None and not is_said:
        yield undecided("quorum", standing.reason, epoch=standing.epoch)


@rule("KQ025", control="quorum_safety", needs=QUORUM_TABLES)
def kq025(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    standing = quorum_standing(history)
    if standing.standing is Standing.MAJORITY_LOST:
        gone = pasted_ids(standing.gone)
        plan = audit_command(history, "rescue --plan", "--gone", gone)
        advice = f"{texts()['KQ025']['what_to_do']} Which copy to go on from:   {plan}"
        yield _quorum_case(history, standing, standing.reason)._replace(what_to_do=advice)


@rule("KQ026", control="quorum_safety", needs=QUORUM_TABLES)
def kq026(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    alone = newest_voter_alone(history)
    if alone is None or quorum_standing(history).standing is Standing.AT_REST:
        return  # whoever stops last stands for election alone
    evidence = tuple(_disks(history, quorum_standing(history)))
    for voter in alone.alone:
        yield Case(f"voter {voter}", alone.summary, epoch=alone.alone_epoch, evidence=evidence)


def _quorum_case(
    history: ClusterHistory, standing: QuorumStanding, summary: str, action: str = "", asked: int | None = None
) -> Case:
    """`action` on node `asked` is what `may-i` is to be asked about before."""
    offset, rule_id = standing.committed_to, {"start": "KQ023", "restart": "KQ024"}.get(action)
    advice = None
    if rule_id is not None and asked is not None:
        may_i = audit_command(history, "may-i", action, asked)
        advice = f"{texts()[rule_id]['what_to_do']} Ask before:   {may_i}"
    return Case(
        "quorum",
        summary,
        from_offset=offset,
        from_ms=None if not offset else canonical_log(history).time_at(offset - 1),
        epoch=standing.epoch,
        evidence=tuple(_disks(history, standing)),
        what_to_do=advice,
    )


def _disks(history: ClusterHistory, standing: QuorumStanding) -> Iterator[Evidence]:
    """What each voter's disk says of the epoch, and where its log ends."""
    for row in sorted(newest_round(history), key=replica_name):
        if row["node_id"] in standing.voters:
            text = f"{replica_name(row)}: persisted epoch {row['leader_epoch']}, ends at {replica_end(row)}"
            at: dict[str, Any] = {"offset": row["log_end_offset"], "epoch": row["leader_epoch"]}
            yield capture_evidence(row, text, file_name="quorum-state", **at)
