"""Rules about changes of the voter set: each one safe only if every majority before it meets every one after it.

KV601 to KV803 are about the membership protocols that never shipped: KIP-642 (targets and steps), KIP-856 (single
records).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from kraft_audit.capture.found_log import VoterKey
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import (
    capture_evidence,
    captures_in_order,
    newest_captures,
    newest_watermark,
    replica_end,
    replica_name,
    watermarks_in_order,
)
from kraft_audit.rules.columns.configured_voters import configured_voters
from kraft_audit.rules.columns.log_batches import canonical_log, log_batches
from kraft_audit.rules.columns.log_runs import is_held
from kraft_audit.rules.columns.voter_sets import (
    Change,
    canonical_changes,
    canonical_sets,
    change_evidence,
    changes,
    comparable,
    disjoint_majorities,
    ids_of,
    kafka_overlap_verdict,
    keys_of,
    leaders_of,
    metadata_between,
    named,
    reconfigurations,
    set_evidence,
    uncommitted_at_end,
    was_pending,
    was_uncommitted,
)
from kraft_audit.rules.registry import rule, words_for
from kraft_audit.rules.rule_model import Case, Evidence, Thresholds, case_at, threshold, undecided
from kraft_codec.schemas import Dialect


def _change_case(change: Change, summary: str, *evidence: Evidence) -> Case:
    return case_at(
        change.row,
        change.subject,
        summary,
        epoch=change.row["from_epoch"],
        evidence=(change_evidence(change), *evidence),
        is_over=not change.row["canonical"],
    )


def _undecided_change(change: Change, reason: str) -> Case:
    return undecided(change.subject, reason, from_offset=change.offset, epoch=change.row["from_epoch"])


@rule("KV001", control="quorum_safety", needs=("voter_sets", "captures", "broker_changes", "controller_changes"))
def kv001(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for change in changes(history):
        if change.is_membership and (summary := _no_common_voter(change)) is not None:
            verdict = "passes" if kafka_overlap_verdict(change.before, change.after) else "fails"
            fact = Evidence(f"Kafka's own overlap test {verdict} this change (it only logs a failure)")
            yield _change_case(change, summary, fact)
    for change in reconfigurations(history):
        if (summary := _no_common_voter(change)) is not None:
            configured = configured_voters(history)
            is_over = not configured.are_different and not configured.emptied
            yield _change_case(change, summary)._replace(is_over=is_over, **words_for("KV001", "static"))


def _no_common_voter(change: Change) -> str | None:
    """Two majorities that do not meet; None where every two do."""
    pair = disjoint_majorities(change.before, change.after)
    if pair is None:
        return None
    first, second = pair
    both = change.before | change.after
    return (
        f"{named(first, both)} is a majority of {named(change.before, both)}, "
        f"{named(second, both)} of {named(change.after, both)}, and they share no voter"
    )


@rule("KV002", control="change_management", needs=("voter_sets",))
def kv002(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for change in changes(history):
        added, removed = change.after - change.before, change.before - change.after
        if len(added) > 1 or len(removed) > 1 or (added and removed):
            parts = [f"adds {named(added, change.before)}"] if added else []
            parts += [f"removes {named(removed, change.after)}"] if removed else []
            yield _change_case(change, f"one record {' and '.join(parts)}")


@rule(
    "KV003",
    control="change_management",
    needs=("voter_sets", "leader_epochs", "batches", "watermarks"),
    dialects=(Dialect.KIP853,),
)
def kv003(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for change in changes(history):
        if not change.is_membership or change.row["kraft_version"] == 0:
            continue
        start = _leader_change(history, change)
        if start is None:
            yield _undecided_change(change, "the LeaderChange of its epoch was not read")
        else:
            yield from _judged_by_epoch(history, change, start)


def _leader_change(history: ClusterHistory, change: Change) -> int | None:
    offsets = [
        row["leader_change_offset"]
        for row in history.rows("leader_epochs")
        if row["epoch"] == change.row["from_epoch"] and row["leader_change_offset"] is not None
    ]
    return max((offset for offset in offsets if offset <= change.offset), default=min(offsets, default=None))


def _judged_by_epoch(history: ClusterHistory, change: Change, start: int) -> Iterator[Case]:
    epoch = change.row["from_epoch"]
    fact = Evidence(f"LeaderChange of epoch {epoch} at offset {start}", offset=start)
    if change.offset < start:
        yield _change_case(change, "the change stands before the LeaderChange of its epoch", fact)
    elif log_batches(history).covering(start, change.offset, epoch).any():
        yield _change_case(change, "the change stands in the batch of its epoch's LeaderChange", fact)
    elif not metadata_between(history, epoch, start, change.offset):
        seen = was_uncommitted(history, start, change.offset, epoch)
        if seen:
            summary = "a capture holds the change while the LeaderChange of its epoch is not committed"
            yield _change_case(change, summary, fact)
        elif seen is None:
            reason = (
                "no metadata record of its epoch lies between the LeaderChange and the change, and no capture shows "
                "whether the LeaderChange was committed then"
            )
            yield _undecided_change(change, reason)


@rule("KV004", control="change_management", needs=("voter_sets", "watermarks"))
def kv004(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    if history.dialect is Dialect.KIP856:
        return  # KV801 judges those
    for first, second in pairwise(canonical_changes(history)):
        if _from_same_predecessor(first, second):
            summary = f"builds on {named(first.before)}, as the change at offset {first.offset} does"
            yield _change_case(second, summary, change_evidence(first))
        elif first.is_membership and second.is_membership:
            yield from _while_uncommitted(history, first, second, _appended_while(first, "not committed"))
    for change in changes(history):
        if not change.row["canonical"] and change.is_membership:
            yield from _open_neighbours(history, change)


def _appended_while(first: Change, state: str) -> str:
    return f"appended while the change at offset {first.offset} was {state}"


def _while_uncommitted(
    history: ClusterHistory, first: Change, second: Change, summary: str, *, if_unknown: str | None = None
) -> Iterator[Case]:
    """The second change is unsafe if the first was not committed when it was appended."""
    pending = was_pending(history, first, second)
    if pending is True:
        yield _change_case(second, summary, change_evidence(first))
    elif pending is not False and (reason := pending or if_unknown) is not None:
        yield _undecided_change(second, reason)


def _from_same_predecessor(first: Change, second: Change) -> bool:
    """Whether the second set is one step from what the first replaced, and not from what the first made.

    Where a set of a snapshot stands between them, changes in a gap led to it.
    """
    made, replaced = comparable(first.after, second.before)
    return (
        made == replaced
        and len(first.before ^ first.after) == 1
        and len(first.before ^ second.after) == 1
        and len(first.after ^ second.after) > 1
    )


def _open_neighbours(history: ClusterHistory, change: Change) -> Iterator[Case]:
    """Two membership changes of one epoch on a branch that vanished: neither was ever committed."""
    for earlier in changes(history):
        same_branch = not earlier.row["canonical"] and earlier.row["from_epoch"] == change.row["from_epoch"]
        if same_branch and earlier.is_membership and earlier.offset < change.offset and earlier.after == change.before:
            yield _change_case(change, _appended_while(earlier, "not committed"), change_evidence(earlier))


@rule("KV005", control="quorum_safety", needs=("captures", "voter_sets", "watermarks"))
def kv005(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    last = max(canonical_sets(history), key=lambda row: row["from_offset"], default=None)
    for row in history.rows("voter_sets"):
        if row["source"] != "log" or (row["canonical"] and (row is not last or not (row["added"] or row["removed"]))):
            continue
        offset, epoch = row["from_offset"], row["from_epoch"]
        holders = [
            capture
            for capture in captures_in_order(history)
            if (capture["log_end_offset"] or 0) > offset and is_held(history, capture, offset, epoch)
        ]
        if not holders:
            continue
        is_uncommitted = uncommitted_at_end(history, offset) if row["canonical"] else _was_seen_open(history, row)
        subject = f"voter set at offset {offset}, epoch {epoch}"
        if is_uncommitted:
            nodes = ", ".join(sorted({replica_name(capture) for capture in holders}))
            held = (capture_evidence(capture, f"{replica_name(capture)} held it") for capture in holders[:5])
            yield case_at(
                row,
                subject,
                f"{named(keys_of(row['voters']))} is in use on {nodes} and was not committed",
                epoch=epoch,
                evidence=(set_evidence(row), *held),
                is_over=_is_contradicted(history, row)
                or not any(is_held(history, capture, offset, epoch) for capture in newest_captures(history)),
            )
        elif is_uncommitted is None and row["canonical"]:
            reason = "the captures do not show whether it is committed"
            yield undecided(subject, reason, from_offset=offset, from_ms=row["timestamp_ms"], epoch=epoch)


def _is_contradicted(history: ClusterHistory, row: TableRow) -> bool:
    """Whether another record was committed at the set's offset: whoever still holds the set will truncate it."""
    newest = newest_watermark(history)
    return not row["canonical"] and newest is not None and (newest["low"] or 0) > row["from_offset"]


def _was_seen_open(history: ClusterHistory, row: TableRow) -> bool:
    """A set on another branch was in use without being committed, unless a low ever covered it with that epoch."""
    return not any(
        bound["low"] > row["from_offset"] and bound["low_epoch"] == row["from_epoch"]
        for bound in history.rows("watermarks")
    )


@rule("KV006", control="change_management", needs=("voter_sets",))
def kv006(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for change in changes(history):
        if not change.row["canonical"] and change.is_membership:
            step = f"{named(change.before, change.after)} → {named(change.after, change.before)}"
            yield _change_case(change, f"{step} never became part of the canonical log")


@dataclass(frozen=True, slots=True)
class RemovedLeaderLimits(Thresholds):
    grace_seconds: float = threshold(30, "how long after its proven removal a leader may still write")


@rule(
    "KV010",
    control="quorum_safety",
    needs=("captures", "voter_sets", "leader_epochs", "batches", "watermarks"),
    thresholds=RemovedLeaderLimits,
)
def kv010(history: ClusterHistory, limits: RemovedLeaderLimits) -> Iterator[Case]:
    grace_ms = int(limits.grace_seconds * 1000)
    log = canonical_log(history)
    for change in canonical_changes(history):
        epoch, removed_ms = change.row["from_epoch"], change.row["timestamp_ms"]
        removed_leaders = (ids_of(change.before) - ids_of(change.after)) & leaders_of(history, epoch)
        later = (log.leader_epoch == epoch) & (log.base_offset > change.offset)
        if not removed_leaders or not later.any():
            continue
        last_ms = int(log.timestamp_ms[later].max())
        leader = min(removed_leaders)
        proven_ms = _proven_ms(history, change, leader)
        subject = f"leader {leader} of epoch {epoch}"
        if proven_ms is not None and last_ms > proven_ms + grace_ms:
            seconds = (last_ms - proven_ms) // 1000
            fact = Evidence(f"last batch {seconds} s after a capture proved the removal", timestamp_ms=last_ms)
            evidence = (change_evidence(change), fact)
            summary = f"still wrote {seconds} s after its removal"
            yield case_at(change.row, subject, summary, epoch=epoch, evidence=evidence)
        elif removed_ms is not None and last_ms > removed_ms + grace_ms:
            reason = "it wrote on after its removal; no capture shows when that was committed"
            yield undecided(subject, reason, from_offset=change.offset, from_ms=removed_ms, epoch=epoch)


def _proven_ms(history: ClusterHistory, change: Change, leader: int) -> int | None:
    """A time by which a change was certainly committed; None where no capture of the leader proves it.

    It is the append time of the leader's first batch after a capture of the leader that proves the change.
    """
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


@rule("KV015", control="change_management", needs=("voter_sets",))
def kv015(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    removed_at: dict[VoterKey, Change] = {}
    for change in canonical_changes(history):
        for key in sorted(change.added, key=str):
            if key in removed_at and key[1] is not None:
                summary = f"voter {key[0]} ({key[1]}) is back after its removal at offset {removed_at[key].offset}"
                yield _change_case(change, summary, change_evidence(removed_at[key]))
        removed_at.update(dict.fromkeys(change.removed, change))


def _judged_draft(history: ClusterHistory, first: Change, second: Change, summary: str) -> Iterator[Case]:
    reason = f"no capture shows whether the record at offset {first.offset} was committed then"
    yield from _while_uncommitted(history, first, second, summary, if_unknown=reason)


@rule("KV601", control="change_management", needs=("voter_sets", "watermarks"), dialects=(Dialect.KIP642,))
def kv601(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for first, second in pairwise(canonical_changes(history)):
        before, after = first.row["target_voters"], second.row["target_voters"]
        if first.is_membership and before is not None and after is not None and before != after:
            step = f"the step at offset {first.offset} was not committed"
            yield from _judged_draft(history, first, second, f"the target went from {before} to {after} while {step}")


@rule("KV602", control="change_management", needs=("voter_sets",), dialects=(Dialect.KIP642,))
def kv602(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for change in changes(history):
        if len(change.before ^ change.after) > 1:
            yield _change_case(change, f"one step leads from {named(change.before)} to {named(change.after)}")


@rule("KV801", control="change_management", needs=("voter_sets", "watermarks"), dialects=(Dialect.KIP856,))
def kv801(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    bootstrap = _bootstrap_offsets(history)
    for first, second in pairwise(canonical_changes(history)):
        if first.is_membership and second.is_membership and second.offset not in bootstrap:
            yield from _judged_draft(history, first, second, _appended_while(first, "pending"))


@rule("KV802", control="change_management", needs=("voter_sets", "watermarks"), dialects=(Dialect.KIP856,))
def kv802(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    added_by: dict[VoterKey, Change] = {}
    for change in canonical_changes(history):
        for key in sorted(change.removed, key=str):
            if key in added_by:
                summary = f"removes voter {key[0]}, whose addition at offset {added_by[key].offset} was not committed"
                yield from _judged_draft(history, added_by[key], change, summary)
        added_by.update(dict.fromkeys(change.added, change))


@rule("KV803", control="quorum_safety", needs=("voter_sets", "batches"), dialects=(Dialect.KIP856,))
def kv803(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    offsets = _bootstrap_offsets(history)
    split = [change for change in changes(history) if change.offset in offsets]
    if split:
        first = next(row for row in canonical_sets(history) if row["source"] == "log")
        batches = f"{len(split) + 1} control batches, first {named(keys_of(first['voters']))}"
        yield _change_case(split[0], f"the first voters came by {batches}", *map(change_evidence, split[1:3]))


def _has_bare_id(row: TableRow) -> bool:
    return any(voter["directory_id"] is None for voter in row["voters"])


def _bootstrap_offsets(history: ClusterHistory) -> set[int]:
    """Additions that follow the first set in its epoch before any metadata record: they belong to the bootstrap.

    Where the configured ids are known, the bootstrap is what gives each of them its first UUID.
    """
    sets = canonical_sets(history)
    if not sets or sets[0]["source"] != "log":
        named_later = [row["from_offset"] for before, row in pairwise(sets) if _has_bare_id(before)]
        return set(named_later[1:])
    log = canonical_log(history)
    first = sets[0]["from_offset"]
    data = log.base_offset[~log.is_control & (log.base_offset > first)]
    until = int(data[0]) if len(data) else log.end_offset
    return {
        change.offset
        for change in canonical_changes(history)
        if first < change.offset < until
        and change.added
        and not change.removed
        and change.row["from_epoch"] == sets[0]["from_epoch"]
    }
