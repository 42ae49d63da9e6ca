"""Rules about changes of the voter set: each one safe only if every majority before it meets every one after it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from kraft_audit.rules.canonical import canonical_log, log_batches, watermarks_in_order
from kraft_audit.rules.captured import captures_in_order, replica_end
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.majorities import disjoint_majorities, kafka_overlap_verdict
from kraft_audit.rules.model import Case, Evidence, Scope, Severity, Threshold, Thresholds, undecided
from kraft_audit.rules.registry import rule
from kraft_audit.rules.voter_view import (
    Change,
    Key,
    change_evidence,
    changes,
    ids_of,
    metadata_between,
    named,
    was_pending,
    was_uncommitted,
)
from kraft_codec.schemas import Dialect


def _subject(change: Change) -> str:
    return f"voter set at offset {change.offset}"


def _case(change: Change, summary: str, *evidence: Evidence) -> Case:
    row = change.row
    return Case(
        _subject(change),
        summary,
        from_offset=change.offset,
        from_ms=row["timestamp_ms"],
        epoch=row["from_epoch"],
        evidence=(change_evidence(change), *evidence),
        is_over=not row["canonical"],
    )


@rule("KV001", "disjoint-majorities", Severity.CRITICAL, Scope.VOTERS, needs=("voter_sets",))
def kv001(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for change in changes(history):
        pair = disjoint_majorities(change.before, change.after)
        if pair is None or not change.is_membership:
            continue
        first, second = pair
        both = change.before | change.after
        verdict = "passes" if kafka_overlap_verdict(change.before, change.after) else "fails"
        yield _case(
            change,
            f"{named(first, both)} is a majority of {named(change.before, both)}, "
            f"{named(second, both)} of {named(change.after, both)}, and they share no voter",
            Evidence(f"Kafka's own overlap test {verdict} this change (it only logs a failure)"),
        )


@rule("KV002", "more-than-one-voter-changed", Severity.HIGH, Scope.VOTERS, needs=("voter_sets",))
def kv002(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for change in changes(history):
        added, removed = change.after - change.before, change.before - change.after
        if len(added) > 1 or len(removed) > 1 or (added and removed):
            parts = [f"adds {named(added, change.before)}"] * bool(added) + [
                f"removes {named(removed, change.after)}"
            ] * bool(removed)
            yield _case(change, f"one record {' and '.join(parts)}")


@rule(
    "KV003",
    "change-before-epoch-committed",
    Severity.CRITICAL,
    Scope.VOTERS,
    needs=("voter_sets", "leader_epochs", "batches", "watermarks"),
    dialects=(Dialect.KIP853,),
)
def kv003(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for change in changes(history):
        if not change.is_membership or change.row["kraft_version"] == 0:
            continue
        start = _leader_change(history, change)
        if start is None:
            yield undecided(
                _subject(change),
                "the LeaderChange of its epoch was not read",
                from_offset=change.offset,
                epoch=change.row["from_epoch"],
            )
            continue
        yield from _judged_by_epoch(history, change, start)


def _leader_change(history: ClusterHistory, change: Change) -> int | None:
    offsets = [
        row["leader_change_offset"]
        for row in history.rows("leader_epochs")
        if row["epoch"] == change.row["from_epoch"] and row["leader_change_offset"] is not None
    ]
    return max((offset for offset in offsets if offset <= change.offset), default=min(offsets, default=None))


def _judged_by_epoch(history: ClusterHistory, change: Change, start: int) -> Iterator[Case]:
    fact = Evidence(f"LeaderChange of epoch {change.row['from_epoch']} at offset {start}", offset=start)
    if change.offset < start:
        yield _case(change, "the change stands before the LeaderChange of its epoch", fact)
    elif _in_one_batch(history, change.row["from_epoch"], start, change.offset):
        yield _case(change, "the change stands in the batch of its epoch's LeaderChange", fact)
    elif metadata_between(history, change.row["from_epoch"], start, change.offset):
        return
    else:
        seen = was_uncommitted(history, start, change.offset, change.row["from_epoch"])
        if seen:
            yield _case(change, "a capture holds the change while the LeaderChange of its epoch is not committed", fact)
        elif seen is None:
            yield undecided(
                _subject(change),
                "no metadata record of its epoch lies between the LeaderChange and the change, and no capture tells",
                from_offset=change.offset,
                epoch=change.row["from_epoch"],
            )


def _in_one_batch(history: ClusterHistory, epoch: int, first: int, second: int) -> bool:
    """Another branch may hold one batch of another epoch at both offsets."""
    batches = log_batches(history)
    covers = (batches.base_offset <= first) & (batches.last_offset >= second) & (batches.leader_epoch == epoch)
    return bool(covers.any())


@rule("KV004", "overlapping-changes", Severity.CRITICAL, Scope.VOTERS, needs=("voter_sets", "watermarks"))
def kv004(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    if history.dialect is Dialect.KIP856:
        return  # KV801 judges those
    chain = [change for change in changes(history) if change.row["canonical"]]
    for first, second in pairwise(chain):
        if _from_same_predecessor(first, second):
            yield _case(
                second,
                f"builds on {named(first.before)}, as the change at offset {first.offset} does",
                change_evidence(first),
            )
        elif first.is_membership and second.is_membership:
            yield from _while_uncommitted(history, first, second)
    for change in changes(history):
        if not change.row["canonical"] and change.is_membership:
            yield from _open_neighbours(history, change)


def _while_uncommitted(history: ClusterHistory, first: Change, second: Change) -> Iterator[Case]:
    pending = was_pending(history, first, second)
    if pending is True:
        summary = f"appended while the change at offset {first.offset} was not committed"
        yield _case(second, summary, change_evidence(first))
    elif pending:
        yield undecided(
            _subject(second),
            pending,
            from_offset=second.offset,
            epoch=second.row["from_epoch"],
        )


def _from_same_predecessor(first: Change, second: Change) -> bool:
    """Whether the second set is one step from what the first replaced, and not from what the first made."""
    return (
        _distance(first.before, first.after) == 1
        and _distance(first.before, second.after) == 1
        and _distance(first.after, second.after) > 1
    )


def _distance(left: frozenset[Key], right: frozenset[Key]) -> int:
    return len(left ^ right)


def _open_neighbours(history: ClusterHistory, change: Change) -> Iterator[Case]:
    """Two membership changes of one epoch on a branch that vanished: neither was ever committed."""
    for other in changes(history):
        same_branch = not other.row["canonical"] and other.row["from_epoch"] == change.row["from_epoch"]
        if same_branch and other.is_membership and other.offset < change.offset and other.after == change.before:
            yield _case(
                change, f"appended while the change at offset {other.offset} was not committed", change_evidence(other)
            )


@rule("KV006", "reverted-voter-change", Severity.MEDIUM, Scope.VOTERS, needs=("voter_sets",))
def kv006(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for change in changes(history):
        if not change.row["canonical"] and change.is_membership:
            step = f"{named(change.before, change.after)} → {named(change.after, change.before)}"
            yield _case(change, f"{step} never became part of the canonical log")


@rule(
    "KV010",
    "removed-leader-still-writes",
    Severity.HIGH,
    Scope.VOTERS,
    needs=("captures", "voter_sets", "leader_epochs", "batches", "watermarks"),
    thresholds=(Threshold("grace_seconds", 30, "how long after its proven removal a leader may still write"),),
)
def kv010(history: ClusterHistory, thresholds: Thresholds) -> Iterator[Case]:
    grace_ms = int(float(thresholds["grace_seconds"]) * 1000)
    log = canonical_log(history)
    for change in changes(history):
        gone = ids_of(change.before) - ids_of(change.after)
        epoch = change.row["from_epoch"]
        if not change.row["canonical"] or not gone & _leaders(history, epoch):
            continue
        later = (log.leader_epoch == epoch) & (log.base_offset > change.offset)
        last_ms = int(log.timestamp_ms[later].max()) if later.any() else None
        leader = min(gone & _leaders(history, epoch))
        proven_ms = _proven_ms(history, change, leader)
        subject = f"leader {leader} of epoch {epoch}"
        where = {"from_offset": change.offset, "from_ms": change.row["timestamp_ms"], "epoch": epoch}
        if last_ms is None:
            continue
        if proven_ms is not None and last_ms > proven_ms + grace_ms:
            seconds = (last_ms - proven_ms) // 1000
            evidence = Evidence(f"last batch {seconds} s after a capture proved the removal", timestamp_ms=last_ms)
            yield Case(
                subject,
                f"still wrote {seconds} s after its removal",
                evidence=(change_evidence(change), evidence),
                **where,
            )
        elif change.row["timestamp_ms"] is not None and last_ms > change.row["timestamp_ms"] + grace_ms:
            yield undecided(subject, "it wrote on after its removal; no capture tells when that was committed", **where)


def _proven_ms(history: ClusterHistory, change: Change, leader: int) -> int | None:
    """An append time by which a change was surely committed: of the leader's first batch that a capture of it which
    proves the change does not hold yet. None where no capture of the leader proves it."""
    log = canonical_log(history)
    for watermark in watermarks_in_order(history):
        if watermark["low"] <= change.offset:
            continue
        taken = [r for r in captures_in_order(history) if r["capture_number"] == watermark["capture_number"]]
        ends = [replica_end(row) for row in taken if row["node_id"] == leader]
        if not ends:
            continue
        later = (log.base_offset >= max(ends)) & (log.leader_epoch == change.row["from_epoch"])
        held_ms = [row["last_timestamp_ms"] for row in taken if row["last_timestamp_ms"] is not None]
        return max(int(log.timestamp_ms[later].min()), *held_ms) if later.any() else None
    return None


def _leaders(history: ClusterHistory, epoch: int) -> set[int]:
    return {r["leader_id"] for r in history.rows("leader_epochs") if r["epoch"] == epoch and r["leader_id"] is not None}


@rule("KV015", "removed-controller-rejoined", Severity.MEDIUM, Scope.VOTERS, needs=("voter_sets",))
def kv015(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    removed_at: dict[Key, Change] = {}
    for change in changes(history):
        if not change.row["canonical"]:
            continue
        for key in sorted(change.added, key=str):
            if key in removed_at and key[1] is not None:
                yield _case(
                    change,
                    f"voter {key[0]} ({key[1]}) is back after its removal at offset {removed_at[key].offset}",
                    change_evidence(removed_at[key]),
                )
        for key in change.removed:
            removed_at[key] = change
