"""Voter sets as the voter rules compare them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from kraft_audit.rules.canonical import canonical_log, newest_watermark, watermarks_in_order
from kraft_audit.rules.captured import Row, captures_in_order, replica_end
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import Evidence

Key = tuple[int, str | None]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the voter set: the keys before and after, as `voter_sets` tells it."""

    row: Row
    before: frozenset[Key]
    after: frozenset[Key]
    added: frozenset[Key]
    removed: frozenset[Key]

    @property
    def offset(self) -> int:
        return int(self.row["from_offset"])

    @property
    def is_membership(self) -> bool:
        return bool(self.added or self.removed)


def keys_of(voters: list[dict[str, Any]]) -> frozenset[Key]:
    return frozenset((voter["voter_id"], voter["directory_id"]) for voter in voters)


def comparable(before: frozenset[Key], after: frozenset[Key]) -> tuple[frozenset[Key], frozenset[Key]]:
    """Both sets by (id, directory), or by id alone where either side lacks a directory id."""
    if any(directory is None for _, directory in before | after):
        return frozenset((id_, None) for id_, _ in before), frozenset((id_, None) for id_, _ in after)
    return before, after


def sets_in_order(history: ClusterHistory) -> list[Row]:
    """All voter sets, the canonical branch first, each ascending by offset."""
    rows = history.rows("voter_sets")
    return sorted(rows, key=lambda row: (not row["canonical"], row["from_offset"], row["from_epoch"]))


def canonical_sets(history: ClusterHistory) -> list[Row]:
    return [row for row in sets_in_order(history) if row["canonical"]]


def changes(history: ClusterHistory) -> list[Change]:
    """Every change of the set on any branch; the first set of a branch is none."""
    return history.known("voter changes", lambda: _changes(history))


def _changes(history: ClusterHistory) -> list[Change]:
    """What a set replaced is told by its own row: the voters that stayed, and those that it says were removed."""
    found = []
    before_canonical: Row | None = None
    other_firsts = [
        keys_of(row["voters"])
        for row in history.rows("voter_sets")
        if row["source"] == "bootstrap" and not row["canonical"]
    ]
    for row in sets_in_order(history):
        after = keys_of(row["voters"])
        if not row["canonical"] and after in other_firsts:
            continue  # another quorum's first set, which replaced nothing
        added, removed = keys_of(row["added"]), keys_of(row["removed"])
        if row["canonical"]:
            previous, before_canonical = before_canonical, row
            if previous is None:
                continue
            before = keys_of(previous["voters"])
        else:
            before = (after - added) | removed
        if row["source"] == "log":
            found.append(Change(row, *comparable(before, after), added, removed))
    return found


def current_set(history: ClusterHistory) -> Row | None:
    """The voter set at the end of the canonical log."""
    return max(canonical_sets(history), key=lambda row: row["from_offset"], default=None)


def set_at(history: ClusterHistory, offset: int) -> Row | None:
    """The canonical set in effect once the record at `offset` was appended."""
    rows = [row for row in canonical_sets(history) if row["from_offset"] <= offset]
    return max(rows, key=lambda row: row["from_offset"], default=None)


def named(keys: Collection[Key], among: Collection[Key] = ()) -> str:
    """Voters as people read them: {1 2 3}; with the directory where an id stands for two voters here or in `among`."""
    ids = [id_ for id_, _ in {*keys, *among}]
    parts = [
        f"{id_}@{directory}" if ids.count(id_) > 1 else str(id_)
        for id_, directory in sorted(keys, key=lambda key: (key[0], key[1] or ""))
    ]
    return "{" + " ".join(parts) + "}"


def ids_of(keys: frozenset[Key]) -> frozenset[int]:
    return frozenset(id_ for id_, _ in keys)


def change_evidence(change: Change) -> Evidence:
    """The change itself: offset, epoch, before → after."""
    row = change.row
    return Evidence(
        f"voter set at offset {row['from_offset']}, epoch {row['from_epoch']}"
        + ("" if row["canonical"] else " (not on the canonical log)"),
        offset=row["from_offset"],
        epoch=row["from_epoch"],
        timestamp_ms=row["timestamp_ms"],
        before=named(change.before, change.after),
        after=named(change.after, change.before),
    )


def was_uncommitted(
    history: ClusterHistory, offset: int, when_offset: int, epoch: int, *, by_one_round: bool = True
) -> bool | None:
    """Whether the record at `offset` was not committed yet when the one at `when_offset` was, in `epoch`.

    True where captures show it: a log held both, and everything from `offset` on was excluded when the reading of a
    later round began, or of the same one, unless its disks are of different moments: that round proves more committed
    than it leaves open, or its leader's disk ends before another's. False where captures prove `offset` committed
    before `when_offset` was there. None where no capture tells.

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

    A text where a single round alone says so, which does not decide it; None where no capture tells.
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


def _may_be_one_moment(history: ClusterHistory, watermark: Row) -> bool:
    """Whether nothing shows that a round with an upper bound has disks of different moments."""
    return watermark["low"] <= watermark["high"] and not _was_leader_read_earlier(history, watermark)


def _was_leader_read_earlier(history: ClusterHistory, watermark: Row) -> bool:
    """Whether a round holds more of an epoch than the disk of its leader, which holds all of it at any one moment."""
    epoch, end = watermark["canonical_epoch"], watermark["canonical_end_offset"]
    leaders = {row["leader_id"] for row in history.rows("leader_epochs") if row["epoch"] == epoch}
    return end is not None and any(
        row["node_id"] in leaders and row["node_id"] is not None and replica_end(row) < end
        for row in captures_in_order(history)
        if row["capture_number"] == watermark["capture_number"]
    )


def uncommitted_at_end(history: ClusterHistory, offset: int) -> bool | None:
    """Whether the record at `offset` is uncommitted by the newest captures; None where they do not tell."""
    newest = newest_watermark(history)
    if newest is None:
        return None
    if newest["low"] > offset:
        return False
    if newest["high"] is not None and newest["high"] <= offset:
        return True
    return None


def metadata_between(history: ClusterHistory, epoch: int, from_offset: int, to_offset: int) -> bool:
    """Whether a metadata record of `epoch` stands in (from_offset, to_offset) on any log: the controller writes none
    before its epoch is committed (KafkaRaftClient and QuorumController 4.3.0, facts 7.4)."""
    log = canonical_log(history)
    mask = (
        (log.leader_epoch == epoch) & ~log.is_control & (log.base_offset > from_offset) & (log.last_offset < to_offset)
    )
    return bool(mask.any())
