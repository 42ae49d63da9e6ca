"""Rules about leader epochs and votes: one leader an epoch, by a majority, and one vote a replica."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from kraft_audit.rules.canonical import LogBatches, canonical_log, identity_of, log_batches, moment_number
from kraft_audit.rules.captured import capture_evidence, captures_in_order, moment_of, replica_end, replica_name
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.majorities import majority_size
from kraft_audit.rules.model import Case, Evidence, Scope, Severity, Threshold, Thresholds
from kraft_audit.rules.registry import rule
from kraft_audit.rules.voter_view import ids_of, keys_of, set_at
from kraft_codec.schemas import Dialect

HOUR_MS = 3_600_000


def _epoch_evidence(row: dict[str, Any]) -> Evidence:
    leader = "no leader known" if row["leader_id"] is None else f"leader {row['leader_id']}"
    side = "" if row["canonical"] else " (not on the canonical log)"
    return Evidence(
        f"epoch {row['epoch']}: {leader}, from offset {row['from_offset']}{side}",
        offset=row["leader_change_offset"] if row["leader_change_offset"] is not None else row["from_offset"],
        epoch=row["epoch"],
        timestamp_ms=row["timestamp_ms"],
    )


@rule("KQ003", "two-leaders-one-epoch", Severity.CRITICAL, Scope.LOG, needs=("leader_epochs", "captures"))
def kq003(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    facts: dict[int, dict[tuple[int, int | None], Evidence]] = defaultdict(dict)
    for row in history.rows("leader_epochs"):
        if row["leader_id"] is not None and row["leader_change_offset"] is not None:
            facts[row["epoch"]].setdefault((row["leader_id"], row["leader_change_offset"]), _epoch_evidence(row))
    for row in captures_in_order(history):
        epoch, leader = row["leader_epoch"], row["leader_id"]
        if epoch is None or leader is None or leader < 0:
            continue
        if leader not in {known for known, _ in facts[epoch]}:
            text = f"quorum-state of {replica_name(row)}: leader {leader} of epoch {epoch}"
            facts[epoch][leader, None] = capture_evidence(row, text, epoch=epoch, file_name="quorum-state")
    for epoch, known in sorted(facts.items()):
        if len(known) > 1:
            leaders = sorted({leader for leader, _ in known})
            what = (
                f"leaders {leaders}"
                if len(leaders) > 1
                else f"leader {leaders[0]} with {len(known)} LeaderChange records"
            )
            offsets = [offset for _, offset in known if offset is not None]
            yield Case(
                f"epoch {epoch}",
                f"epoch {epoch} has {what}",
                from_offset=min(offsets, default=None),
                epoch=epoch,
                evidence=tuple(known.values()),
            )


@rule("KQ005", "epoch-without-leader-change", Severity.HIGH, Scope.LOG, needs=("leader_epochs", "batches"))
def kq005(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for row in history.rows("leader_epochs"):
        first, change = row["from_offset"], row["leader_change_offset"]
        if first is None or (change is None and _begins_what_was_read(history, first, row["epoch"])):
            continue
        case = Case(
            f"epoch {row['epoch']}",
            f"epoch {row['epoch']} begins at offset {first} without a LeaderChange",
            from_offset=first,
            from_ms=row["timestamp_ms"],
            epoch=row["epoch"],
            evidence=(_epoch_evidence(row),),
        )
        if change is None:
            yield case
        elif change > first and not _is_first_batch_of_draft(history, first, change):
            summary = f"epoch {row['epoch']} begins at offset {first}, its LeaderChange stands at {change}"
            yield Case(
                case.subject,
                summary,
                from_offset=first,
                from_ms=case.from_ms,
                epoch=case.epoch,
                evidence=case.evidence,
                severity=Severity.LOW,
            )


def _begins_what_was_read(history: ClusterHistory, first: int, epoch: int) -> bool:
    """Whether no log held what stands before beside it: the epoch may have begun there.

    So it did where an earlier capture ends at `first` in the same epoch, and a later one begins there. What stood below
    a log that was cleaned up to `first` may have been cut and written anew before.
    """
    if any(row["epoch"] == epoch and row["to_offset"] == first for row in history.rows("leader_epochs")):
        return True
    batches = log_batches(history)
    cleaned = {
        (identity_of(row), moment_number(row)) for row in history.rows("captures") if row["log_start_offset"] == first
    }
    begins = np.flatnonzero((batches.base_offset == first) & (batches.leader_epoch == epoch))
    ends = np.flatnonzero(batches.last_offset == first - 1)
    return first > 0 and not any(
        ((batches.replica[ends] == batches.replica[row]) & _at_one_time(batches, ends, row)).any()
        for row in begins.tolist()
        if (batches.identities[batches.replica[row]], int(batches.since[row])) not in cleaned
    )


def _at_one_time(batches: LogBatches, rows: npt.NDArray[np.int64], row: int) -> npt.NDArray[np.bool_]:
    """Which of some batches a replica held in a capture in which it held another one, too."""
    together: npt.NDArray[np.bool_] = (batches.since[rows] < batches.until[row]) & (
        batches.since[row] < batches.until[rows]
    )
    return together


def _is_first_batch_of_draft(history: ClusterHistory, first: int, change: int) -> bool:
    """KIP-642: the first leader writes the configured voters as an assignment, in one batch with its LeaderChange."""
    if history.dialect is not Dialect.KIP642:
        return False
    log = canonical_log(history)
    return log.row_of(first) is not None and log.row_of(first) == log.row_of(change)


@rule("KQ006", "leader-not-elected", Severity.CRITICAL, Scope.LOG, needs=("leader_epochs", "voter_sets"))
def kq006(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for row in history.rows("leader_epochs"):
        change, granting = row["leader_change_offset"], row["granting_voters"]
        if change is None or granting is None:
            continue
        in_effect = set_at(history, change - 1) if row["canonical"] else None
        voters = ids_of(keys_of(in_effect["voters"])) if in_effect else frozenset(row["voters"] or ())
        if not voters:
            continue
        grants = voters & frozenset(granting)
        subject = f"epoch {row['epoch']}"
        where = {"from_offset": change, "from_ms": row["timestamp_ms"], "epoch": row["epoch"]}
        fact = Evidence(
            f"LeaderChange lists voters {row['voters']}, granting {granting}", offset=change, epoch=row["epoch"]
        )
        if len(grants) < majority_size(len(voters)):
            summary = f"leader {row['leader_id']} had {len(grants)} of {len(voters)} votes of {sorted(voters)}"
            yield Case(subject, summary, evidence=(fact,), **where)
        elif row["leader_id"] not in voters and not _was_removed(history, row["leader_id"], change):
            summary = f"leader {row['leader_id']} is none of the voters {sorted(voters)}"
            yield Case(subject, summary, evidence=(fact,), **where)


def _was_removed(history: ClusterHistory, leader_id: int, before: int) -> bool:
    return any(
        row["from_offset"] < before and leader_id in ids_of(keys_of(row["removed"]))
        for row in history.rows("voter_sets")
    )


@rule("KQ014", "vote-twice", Severity.CRITICAL, Scope.LOG, needs=("captures", "leader_epochs"))
def kq014(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    votes: dict[tuple[Any, ...], dict[tuple[int, str | None], Evidence]] = defaultdict(dict)
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in captures_in_order(history):
        if row["node_id"] is None or row["leader_epoch"] is None:
            continue
        replica = (row["node_id"], row["directory_id"])
        before = newest.get(replica)
        if before is not None and row["leader_epoch"] < before["leader_epoch"] and moment_of(before) < moment_of(row):
            yield Case(
                replica_name(row),
                f"its persisted epoch went from {before['leader_epoch']} back to {row['leader_epoch']}",
                from_ms=before["read_to_ms"],
                epoch=row["leader_epoch"],
                evidence=(
                    capture_evidence(before, f"epoch {before['leader_epoch']}", file_name="quorum-state"),
                    capture_evidence(row, f"epoch {row['leader_epoch']}", file_name="quorum-state"),
                ),
            )
        newest[replica] = row
        if row["voted_id"] is not None and row["voted_id"] >= 0:
            fact = capture_evidence(
                row, f"voted for {row['voted_id']}", file_name="quorum-state", epoch=row["leader_epoch"]
            )
            _count_vote(votes[(*replica, row["leader_epoch"])], (row["voted_id"], row["voted_directory_id"]), fact)
    yield from _granted_twice(history)
    yield from _forgotten(history)
    for (node_id, _directory, epoch), known in sorted(votes.items(), key=str):
        if len(known) > 1:
            names = sorted({candidate for candidate, _ in known})
            yield Case(
                f"node {node_id}",
                f"voted in epoch {epoch} for {names}",
                from_ms=min(e.timestamp_ms for e in known.values() if e.timestamp_ms is not None),
                epoch=epoch,
                evidence=tuple(known.values()),
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
    told: set[tuple[int, int]] = set()
    for row in captures_in_order(history):
        key = (row["node_id"], row["leader_epoch"])
        known = directories[row["node_id"]] - {None}
        is_disk_of_leader = not known or known == {row["directory_id"]}
        forgot = row["leader_id"] == -1 and row["voted_id"] == -1
        if key not in led or key in told or not forgot or not is_disk_of_leader:
            continue
        told.add(key)
        yield Case(
            replica_name(row),
            f"led epoch {row['leader_epoch']}, and its disk forgot it: it may vote in that epoch again",
            from_ms=row["read_to_ms"],
            epoch=row["leader_epoch"],
            evidence=(
                _epoch_evidence(led[key]),
                capture_evidence(row, "no leader and no vote", file_name="quorum-state", epoch=row["leader_epoch"]),
                capture_evidence(row, f"its log ends at {replica_end(row)}"),
            ),
        )


def _count_vote(known: dict[tuple[int, str | None], Evidence], vote: tuple[int, str | None], fact: Evidence) -> None:
    """A vote without a directory is the same as one with, for the same id."""
    same = [other for other in known if other[0] == vote[0] and None in (other[1], vote[1])]
    if not same:
        known.setdefault(vote, fact)


@rule(
    "KQ016",
    "election-storm",
    Severity.MEDIUM,
    Scope.LOG,
    needs=("leader_epochs",),
    thresholds=(
        Threshold("max_epochs_an_hour", 12, "leader epochs within any hour"),
        Threshold("max_burnt_epochs", 20, "epochs in a row that elected nobody"),
    ),
)
def kq016(history: ClusterHistory, thresholds: Thresholds) -> Iterator[Case]:
    rows = [row for row in history.rows("leader_epochs") if row["canonical"]]
    # An epoch is told in pieces where a gap between captures lies in it: it began once.
    began = {
        row["epoch"]: row
        for row in sorted(rows, key=lambda row: row["from_offset"] or 0, reverse=True)
        if row["timestamp_ms"] is not None
    }
    yield from _storms([began[epoch] for epoch in sorted(began)], int(thresholds["max_epochs_an_hour"]))
    burnt = (row["epoch"] for row in rows if row["ended_by"] == "burnt")
    yield from _longest_burnt_run(sorted(burnt), int(thresholds["max_burnt_epochs"]))


def _storms(timed: list[dict[str, Any]], limit: int) -> Iterator[Case]:
    """Each stretch of epochs that goes on while the hour before the newest of them holds more than `limit`."""
    busiest = 0
    start = first = 0
    for end, row in enumerate(timed):
        while row["timestamp_ms"] - timed[start]["timestamp_ms"] > HOUR_MS:
            start += 1
        count = end - start + 1
        if count > limit:
            first = first if busiest else start
            busiest = max(busiest, count)
        elif busiest:
            yield _storm(timed[first:end], busiest)
            busiest = 0
    if busiest:
        yield _storm(timed[first:], busiest)


def _storm(epochs: list[dict[str, Any]], busiest: int) -> Case:
    first, last = epochs[0], epochs[-1]
    text = f"{busiest} epochs within an hour, from epoch {first['epoch']}"
    if len(epochs) > busiest:
        text = f"up to {busiest} epochs within an hour, {len(epochs)} from epoch {first['epoch']} to {last['epoch']}"
    return Case(
        "leader epochs",
        text,
        from_offset=first["from_offset"],
        from_ms=first["timestamp_ms"],
        epoch=first["epoch"],
        evidence=tuple(_epoch_evidence(each) for each in epochs[:10]),
    )


def _longest_burnt_run(burnt: list[int], limit: int) -> Iterator[Case]:
    """The longest alone: such epochs have no offset and no time by which several findings could be told apart."""
    longest = run = range(0)
    for epoch in burnt:
        run = range(run.start, epoch + 1) if run and run.stop == epoch else range(epoch, epoch + 1)
        longest = max(longest, run, key=len)
    if len(longest) > limit:
        yield Case(
            "burnt epochs",
            f"{len(longest)} epochs in a row elected nobody, {longest[0]} to {longest[-1]}",
            epoch=longest[0],
            from_ms=None,
            evidence=(Evidence(f"epochs {longest[0]} to {longest[-1]} have no record", epoch=longest[-1]),),
        )
