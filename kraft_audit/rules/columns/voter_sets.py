"""Voter sets as the voter rules compare them: changes, what of them was committed, and whether majorities meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Set
from dataclasses import dataclass
from operator import itemgetter
from typing import TypeVar

from kraft_audit.capture.found_log import VoterKey
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.quorum.quorum_tables import voter_set_rows
from kraft_audit.quorum.static_voters import NamedVoters, declared_voters, voters_named_since
from kraft_audit.quorum.voter_history import STATIC, static_set
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, once_per_history
from kraft_audit.rules.columns.captures import (
    captures_in_order,
    newest_round,
    newest_watermark,
    replica_end,
    watermarks_in_order,
)
from kraft_audit.rules.columns.log_batches import canonical_log
from kraft_audit.rules.rule_model import Evidence, evidence_at
from kraft_codec.schemas import Dialect

_Member = TypeVar("_Member", bound=tuple[object, ...])


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the voter set: the keys before and after, as `voter_sets` has it."""

    row: TableRow
    before: frozenset[VoterKey]
    after: frozenset[VoterKey]
    added: frozenset[VoterKey]
    removed: frozenset[VoterKey]

    @property
    def offset(self) -> int:
        return int(self.row["from_offset"])

    @property
    def subject(self) -> str:
        return f"voter set at offset {self.offset}"

    @property
    def is_membership(self) -> bool:
        return bool(self.added or self.removed)


def keys_of(voters: list[TableRow]) -> frozenset[VoterKey]:
    return frozenset((voter["voter_id"], voter["directory_id"]) for voter in voters)


def is_voter_disk(row: TableRow, voters: Collection[VoterKey]) -> bool:
    """Whether a captured disk is one of the voters: by id alone where either side lacks a directory id.

    At kraft.version 0 a static voter that is formatted again still votes.
    """
    return any(
        row["node_id"] == id_ and (None in (directory, row["directory_id"]) or row["directory_id"] == directory)
        for id_, directory in voters
    )


def comparable(
    before: frozenset[VoterKey], after: frozenset[VoterKey]
) -> tuple[frozenset[VoterKey], frozenset[VoterKey]]:
    """Both sets by (id, directory), or by id alone where either side lacks a directory id."""
    if any(directory is None for _, directory in before | after):
        return frozenset((id_, None) for id_, _ in before), frozenset((id_, None) for id_, _ in after)
    return before, after


def sets_in_order(history: ClusterHistory) -> list[TableRow]:
    """All voter sets, the canonical branch first, each ascending by offset."""
    rows = history.rows("voter_sets")
    return sorted(rows, key=lambda row: (not row["canonical"], row["from_offset"], row["from_epoch"]))


def canonical_sets(history: ClusterHistory) -> list[TableRow]:
    return [row for row in sets_in_order(history) if row["canonical"]]


def changes(history: ClusterHistory) -> list[Change]:
    """Every change of the set by records on any branch; the first set of a branch is none."""
    return [change for change in _all_changes(history) if change.row["source"] == "log"]


def reconfigurations(history: ClusterHistory) -> list[Change]:
    """Every change of a static set: a leader named other voters than the leader before it.

    Where a log parted, its own voters were changed into those that the canonical log has at the same offset.
    """
    found = [change for change in _all_changes(history) if change.row["source"] == STATIC]
    own = [change for change in found if change.row["canonical"]]
    for row in (change.row for change in found if not change.row["canonical"]):
        taken = set_at(history, row["from_offset"])
        before, after = keys_of(row["voters"]), frozenset() if taken is None else keys_of(taken["voters"])
        if taken is not None and taken["source"] == STATIC:
            own.append(Change(row, before, after, after - before, before - after))
    return own


@once_per_history
def _all_changes(history: ClusterHistory) -> list[Change]:
    """The changes of voter sets. A set's own row says what it replaced: the voters that stayed, and those removed.

    What a set replaced is unknown where nothing was captured of a part of the log before it: another may have stood
    there.
    """
    voter_changes = []
    spans = _captured_spans(history)
    before_canonical: TableRow | None = None
    rows = sets_in_order(history)
    first_sets = [keys_of(row["voters"]) for row in rows if row["source"] == "bootstrap" and not row["canonical"]]
    for row in rows:
        after = keys_of(row["voters"])
        if not row["canonical"] and after in first_sets:
            continue  # another quorum's first set, which replaced nothing
        added, removed = keys_of(row["added"]), keys_of(row["removed"])
        if row["canonical"]:
            previous, before_canonical = before_canonical, row
            if previous is None:
                continue
            first, last = previous["from_offset"] + 1, row["from_offset"]
            if spans and not any(start <= first and last < end for start, end in spans):
                continue
            before = keys_of(previous["voters"])
        else:
            before = (after - added) | removed
        if row["source"] in ("log", STATIC):
            voter_changes.append(Change(row, *comparable(before, after), added, removed))
    return voter_changes


def _captured_spans(history: ClusterHistory) -> list[tuple[int, int]]:
    """The offsets [from, to) of the canonical log that were captured without a gap, as `leader_epochs` has them."""
    spans: list[tuple[int, int]] = []
    for row in sorted(history.rows("leader_epochs"), key=lambda row: row["from_offset"] or 0):
        start, end = row["from_offset"], row["to_offset"]
        if not row["canonical"] or start is None or end is None:
            continue
        if spans and start <= spans[-1][1]:
            start, end = spans[-1][0], max(end, spans.pop()[1])
        spans.append((start, end))
    return spans


def canonical_changes(history: ClusterHistory) -> list[Change]:
    """The changes on the canonical log, ascending."""
    return [change for change in changes(history) if change.row["canonical"]]


@once_per_history
def current_set(history: ClusterHistory) -> TableRow | None:
    """The voter set in effect now: that at the end of the canonical log, or a static one of a later start."""
    newest = max(canonical_sets(history), key=itemgetter("from_offset"), default=None)
    if newest is None or newest["source"] != STATIC or newest["kraft_version"] or history.dialect != Dialect.KIP853:
        return newest
    led = [row for row in history.rows("leader_epochs") if row["canonical"] and row["leader_change_offset"] is not None]
    last = max(led, key=itemgetter("epoch"), default=None)
    if last is None:
        return newest
    states = (
        NamedVoters(row["node_id"], row["leader_epoch"], row["leader_id"], tuple(sorted(row["current_voters"])))
        for row in newest_round(history)
        if row["current_voters"] and row["leader_epoch"] is not None
    )
    declared = declared_voters(history.defaults)
    since = voters_named_since(states, voter_ids(newest), last["epoch"], last["leader_id"], declared)
    if since is None:
        return newest
    (row,) = voter_set_rows([static_set(since)])
    return {**newest, "voters": row["voters"]}


def electing_set(history: ClusterHistory, leader_change: int) -> TableRow | None:
    """The canonical set whose voters elected the leader of a LeaderChange.

    At kraft.version 0 it is the one that the LeaderChange itself begins, if the leader goes by other voters than the
    one before.
    """
    own = set_at(history, leader_change)
    if own is not None and own["source"] == STATIC and own["from_offset"] == leader_change:
        return own
    return set_at(history, leader_change - 1)


def set_at(history: ClusterHistory, offset: int) -> TableRow | None:
    """The canonical set in effect once the record at `offset` was appended."""
    rows = (row for row in canonical_sets(history) if row["from_offset"] <= offset)
    return max(rows, key=itemgetter("from_offset"), default=None)


def named(keys: Collection[VoterKey], among: Collection[VoterKey] = ()) -> str:
    """Voters as people read them: {1 2 3}; with the directory where an id stands for two voters here or in `among`."""
    counts = Counter(id_ for id_, _ in {*keys, *among})
    parts = [
        f"{id_}@{directory}" if counts[id_] > 1 else str(id_)
        for id_, directory in sorted(keys, key=lambda key: (key[0], key[1] or ""))
    ]
    return "{" + " ".join(parts) + "}"


def ids_of(keys: frozenset[VoterKey]) -> frozenset[int]:
    return frozenset(id_ for id_, _ in keys)


def voter_ids(voter_set: TableRow | None) -> frozenset[int]:
    """The ids in a row of `voter_sets`; none without a row."""
    return frozenset() if voter_set is None else frozenset(voter["voter_id"] for voter in voter_set["voters"])


def leaders_of(history: ClusterHistory, epoch: int) -> set[int]:
    """Who led an epoch, on any log."""
    rows = history.rows("leader_epochs")
    return {row["leader_id"] for row in rows if row["epoch"] == epoch and row["leader_id"] is not None}


def change_evidence(change: Change) -> Evidence:
    """The change itself: offset, epoch, before → after."""
    row = change.row
    branch = "" if row["canonical"] else " (not on the canonical log)"
    return evidence_at(
        row,
        f"{change.subject}, epoch {row['from_epoch']}{branch}",
        epoch=row["from_epoch"],
        before=named(change.before, change.after),
        after=named(change.after, change.before),
    )


def set_evidence(row: TableRow) -> Evidence:
    """A voter set itself: its voters, where it stands, when it was written."""
    text = f"voter set {named(keys_of(row['voters']))} from {row['source']}, offset {row['from_offset']}"
    return evidence_at(row, text, epoch=row["from_epoch"])


def was_uncommitted(
    history: ClusterHistory, offset: int, when_offset: int, epoch: int, *, by_one_round: bool = True
) -> bool | None:
    """Whether the record at `offset` was not committed yet when the one at `when_offset` was, in `epoch`.

    True where captures show it: a log held both, and everything from `offset` on was excluded when the reading of a
    later round began, or of the same one, unless its disks are of different moments: that round proves more committed
    than it leaves open, or its leader's disk ends before another's. False where captures prove `offset` committed
    before `when_offset` was there. None where no capture decides.

    Disks copied one after the other, the leader's last, can look like one moment: `by_one_round` says whether a single
    round is taken at its word.
    """
    had_both = False
    for row in watermarks_in_order(history):
        end = row["canonical_end_offset"]
        has_both = end is not None and end > when_offset and row["canonical_epoch"] >= epoch
        is_excluded = row["high"] is not None and row["high"] <= offset
        if is_excluded and (had_both or (by_one_round and has_both and _may_be_one_moment(history, row))):
            return True
        if end is not None and row["low"] > offset and end <= when_offset:
            return False
        had_both = had_both or has_both
    return None


def was_pending(history: ClusterHistory, first: Change, second: Change) -> bool | str | None:
    """Whether the first change was not committed when the second was appended.

    A text where a single round alone says so, which does not decide it; None where no capture decides.
    """
    where = (first.offset, second.offset, second.row["from_epoch"])
    if was_uncommitted(history, *where, by_one_round=False):
        return True
    if not (by_one_round := was_uncommitted(history, *where)):
        return by_one_round
    return (
        f"its capture shows it beside the change at offset {first.offset}, not committed there: so it was, "
        "if the disks are of one moment; another capture decides"
    )


def _may_be_one_moment(history: ClusterHistory, watermark: TableRow) -> bool:
    """Whether nothing shows that a round with an upper bound has disks of different moments."""
    return watermark["low"] <= watermark["high"] and not _was_leader_read_earlier(history, watermark)


def _was_leader_read_earlier(history: ClusterHistory, watermark: TableRow) -> bool:
    """Whether a round holds more of an epoch than the disk of its leader, which holds all of it at any one moment."""
    epoch, end = watermark["canonical_epoch"], watermark["canonical_end_offset"]
    leaders = leaders_of(history, epoch)
    return end is not None and any(
        row["node_id"] in leaders and replica_end(row) < end
        for row in captures_in_order(history)
        if row["capture_number"] == watermark["capture_number"]
    )


def uncommitted_at_end(history: ClusterHistory, offset: int) -> bool | None:
    """Whether the record at `offset` is uncommitted by the newest captures; None where they do not decide."""
    newest = newest_watermark(history)
    if newest is None or newest["low"] > offset:
        return None if newest is None else False
    return True if newest["high"] is not None and newest["high"] <= offset else None


def metadata_between(history: ClusterHistory, epoch: int, from_offset: int, to_offset: int) -> bool:
    """Whether a metadata record of `epoch` stands in (from_offset, to_offset) on any log: the controller writes none
    before its epoch is committed (KafkaRaftClient and QuorumController 4.3.0)."""
    log = canonical_log(history)
    mask = (
        (log.leader_epoch == epoch) & ~log.is_control & (log.base_offset > from_offset) & (log.last_offset < to_offset)
    )
    return bool(mask.any())


def disjoint_majorities(
    before: Set[_Member], after: Set[_Member]
) -> tuple[frozenset[_Member], frozenset[_Member]] | None:
    """A majority of each set such that they share no voter, or None where every two majorities meet.

    A majority takes as many voters as it can from outside the other set and needs the rest from the common ones: two
    disjoint ones exist exactly when those needs together fit in the common voters. An empty set has no majority.
    """
    if not before or not after:
        return None
    common = sorted(before & after, key=repr)
    only_before, only_after = sorted(before - after, key=repr), sorted(after - before, key=repr)
    size_before, size_after = majority(len(before)), majority(len(after))
    need_before = max(0, size_before - len(only_before))
    need_after = max(0, size_after - len(only_after))
    if need_before + need_after > len(common):
        return None
    first = {*only_before[:size_before], *common[:need_before]}
    second = {*only_after[:size_after], *common[need_before : need_before + need_after]}
    return frozenset(first), frozenset(second)


def kafka_overlap_verdict(before: Set[_Member], after: Set[_Member]) -> bool:
    """What Kafka's own test says: VoterSet.hasOverlappingMajority (3.9 to 4.4); weaker than its name."""
    return len(before - after) <= 1 and len(after - before) <= 1
