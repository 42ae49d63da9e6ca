"""The lanes of controllers: what their captured disks prove. Which epochs each led, when it was a voter, what it holds.

A leader's LeaderChange proves its election, on whichever branch it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kraft_audit.capture.disk_trust import DiskTrust, disk_trust
from kraft_audit.capture.found_log import VoterKey
from kraft_audit.capture.plan import identity_of, replica_identity
from kraft_audit.picture.drawn_log import committed_part
from kraft_audit.picture.happened import Band, BandKind, Lane, Mark, MarkKind, merged
from kraft_audit.picture.log_branches import PartedRun, led_until, parted_logs, times_held
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import lacks_its_log, newest_captures, newest_watermark, replica_end
from kraft_audit.rules.columns.nodes import broker_states
from kraft_audit.rules.columns.voter_sets import canonical_sets
from kraft_audit.text.readable import is_time, offset_span, plural


@dataclass(frozen=True, slots=True)
class _Led:
    """An epoch with its leader, as long as records prove it."""

    epoch: int
    leader_id: int
    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class _Member:
    """Whether a disk was a voter for a time."""

    from_ms: int
    to_ms: int
    is_voter: bool


@dataclass(frozen=True, slots=True)
class _Disk:
    """What is known of one disk: its newest capture, or None where only an earlier capture has it, or none at all.

    `first_ms` and `last_ms` are the times of the first record that it ever held and of the last one that it held when
    it was captured last; `end_offset` is the end of its log then. `runs` are what it held of branches.
    """

    capture: TableRow | None
    first_ms: int | None = None
    last_ms: int | None = None
    end_offset: int | None = None
    runs: Sequence[PartedRun] = field(default=())

    @property
    def is_known(self) -> bool:
        return self.capture is not None or self.last_ms is not None


def controller_lanes(history: ClusterHistory, from_ms: int, to_ms: int) -> Iterator[Lane]:
    """A lane for each voter's disk and each captured controller, by id.

    A disk that was not captured gets no band but the epochs that other logs prove it led.
    """
    led = list(_led_epochs(history, to_ms))
    keys = _keys(history, led)
    members = {key: list(_membership(history, key, from_ms, to_ms)) for key in keys}
    for key in keys:
        own = [epoch for epoch in led if _disk_that_led(epoch, members) == key]
        is_shared = sum(id_ == key[0] for id_, _ in keys) > 1
        disk = _disk(history, key)
        begin = _begins_ms(history, key, members[key], from_ms, is_shared=is_shared)
        if begin is not None and disk.first_ms is not None:
            begin = max(begin, disk.first_ms)
        bands = [] if begin is None else list(_held_bands(disk, members[key], begin, to_ms))
        bands += [Band(BandKind.LEADER, epoch.from_ms, epoch.to_ms, f"leader, epoch {epoch.epoch}") for epoch in own]
        bands += [Band(BandKind.DIVERGED, run.from_ms, max(run.from_ms + 1, run.to_ms)) for run in disk.runs]
        standing, alarms = _standing(history, disk, is_voter=members[key][-1].is_voter)
        name = f"{key[1][:4]}…: " if is_shared and key[1] else ""
        end_label = "" if disk.last_ms is None or not disk.end_offset else f"log ends at {disk.end_offset}"
        role = "voter" if members[key][-1].is_voter else "observer"
        marks = tuple(_marks(disk, members[key], own, to_ms))
        yield Lane(str(key[0]), role, tuple(bands), marks, disk.last_ms, end_label, name + standing, alarms)


def _keys(history: ClusterHistory, led: Sequence[_Led]) -> list[VoterKey]:
    voters = {(voter["voter_id"], voter["directory_id"]) for row in canonical_sets(history) for voter in row["voters"]}
    ids = {id_ for id_, _ in voters} | {row["controller_id"] for row in history.rows("controller_changes")}
    brokers = broker_states(committed_part(history))
    disks: set[VoterKey] = {
        (row["node_id"], row["directory_id"])
        for row in newest_captures(history)
        if row["accepted"] and row["node_id"] is not None and (row["node_id"] in ids or row["node_id"] not in brokers)
    }
    ids |= {epoch.leader_id for epoch in led}
    keys = disks | {(id_, directory) for id_, directory in voters if directory is not None}
    keys |= {(id_, None) for id_ in ids if not any(own == id_ for own, _ in keys)}
    return sorted(keys, key=lambda key: (key[0], key[1] or ""))


def _disk_that_led(epoch: _Led, members: Mapping[VoterKey, Sequence[_Member]]) -> VoterKey | None:
    """The disk of the leader's id that was a voter then; where none is known to have been, the first of that id."""
    own = [key for key in members if key[0] == epoch.leader_id]
    voters = [key for key in own if any(m.is_voter and m.from_ms <= epoch.from_ms <= m.to_ms for m in members[key])]
    return next(iter((*voters, *own)), None)


def _disk(history: ClusterHistory, key: VoterKey) -> _Disk:
    """What the newest capture of a disk holds; where a capture holds no record, when it held any before."""
    captures = [
        row
        for row in newest_captures(history)
        if row["accepted"] and row["node_id"] == key[0] and (key[1] is None or row["directory_id"] == key[1])
    ]
    capture = captures[-1] if captures else None
    identity = replica_identity(*key, "", "") if capture is None else identity_of(capture)
    times, logs = times_held(history, identity), parted_logs(history)
    runs = () if logs is None else tuple(logs.runs_of(identity))
    first_ms, last_ms, end_offset = times or (None, None, None)
    time = None if capture is None else capture["last_timestamp_ms"]
    if capture is not None and time is not None and is_time(time) and time > 0:
        last_ms, end_offset = time, replica_end(capture)
    return _Disk(capture, first_ms, last_ms, end_offset, runs)


def _held_bands(disk: _Disk, members: Sequence[_Member], begin: int, to_ms: int) -> Iterator[Band]:
    """Follower or observer, as far as a disk holds the log. A disk that holds a snapshot alone has no end in time."""
    until = disk.last_ms
    if until is None and disk.capture is not None and disk_trust(disk.capture) is DiskTrust.READ:
        until = None if lacks_its_log(disk.capture) else to_ms
    if until is not None:
        kinds = {True: BandKind.FOLLOWER, False: BandKind.OBSERVER}
        held = [Band(kinds[m.is_voter], max(m.from_ms, begin), min(m.to_ms, until)) for m in members]
        yield from merged(held)


def _marks(disk: _Disk, members: Sequence[_Member], led: Sequence[_Led], to_ms: int) -> Iterator[Mark]:
    for before, after in pairwise(members):
        if before.is_voter is not after.is_voter:
            yield Mark(MarkKind.ADDED if after.is_voter else MarkKind.REMOVED, after.from_ms)
    for epoch in led:
        yield Mark(MarkKind.ELECTED, epoch.from_ms, f"elected leader of epoch {epoch.epoch}")
    for run in disk.runs:
        if run.is_cut:
            text = f"truncated: a later capture of this disk lacks what it held from offset {run.from_offset} on"
            yield Mark(MarkKind.CUT, run.to_ms, text)
    if disk.capture is not None and _is_empty(disk.capture):
        yield Mark(MarkKind.EMPTY, to_ms, "its newest capture holds no record; when it lost them is not known")


def _is_empty(capture: TableRow) -> bool:
    return disk_trust(capture) is DiskTrust.EMPTY and not lacks_its_log(capture)


def _membership(history: ClusterHistory, key: VoterKey, from_ms: int, to_ms: int) -> Iterator[_Member]:
    """When a disk was a voter and when not, from the picture's begin to its end."""
    moments: list[tuple[int, bool]] = []
    for row in canonical_sets(history):
        at = row["timestamp_ms"]
        at = from_ms if at is None or not moments or not is_time(at) else min(max(at, from_ms), to_ms)
        moments.append((at, any(_is_same(voter, key) for voter in row["voters"])))
    moments = moments or [(from_ms, False)]
    ends = [*(at for at, _ in moments[1:]), to_ms]
    for (at, is_voter), end in zip(moments, ends, strict=True):
        yield _Member(at, end, is_voter)


def _is_same(voter: TableRow, key: VoterKey) -> bool:
    return voter["voter_id"] == key[0] and (None in (voter["directory_id"], key[1]) or voter["directory_id"] == key[1])


def _begins_ms(
    history: ClusterHistory, key: VoterKey, members: Sequence[_Member], from_ms: int, *, is_shared: bool
) -> int | None:
    """Since when a disk is known to take part; None where nothing says so, as of a second disk that never voted.

    A later voter first appears as a voter or, where its id has one disk alone, as a registered controller.
    """
    if members[0].is_voter:
        return from_ms
    seen = [member.from_ms for member in members if member.is_voter]
    if is_shared:
        return min(seen, default=None)
    seen += [
        row["timestamp_ms"]
        for row in history.rows_by_offset("controller_changes")
        if row["controller_id"] == key[0] and row["cause"] != "snapshot" and is_time(row["timestamp_ms"])
    ]
    return min(seen, default=from_ms)


def _led_epochs(history: ClusterHistory, to_ms: int) -> Iterator[_Led]:
    """Each epoch that had a leader, from its first record to its last one that the leader's own disk or the log holds.

    Where batches are not known, a canonical epoch lasts until the next one.
    """
    rows = [row for row in history.rows("leader_epochs") if row["from_offset"] is not None]
    rows.sort(key=lambda row: (row["epoch"], not row["canonical"], row["leader_id"] or 0))
    for row in rows:
        begin = row["timestamp_ms"]
        if row["leader_id"] is not None and begin is not None and is_time(begin):
            end = led_until(history, row)
            if end is None:
                later = (each["timestamp_ms"] for each in rows if each["canonical"] and each["epoch"] > row["epoch"])
                end = next((time for time in later if time is not None), to_ms) if row["canonical"] else begin
            yield _Led(row["epoch"], row["leader_id"], begin, max(begin, min(end, to_ms)))


def _standing(history: ClusterHistory, disk: _Disk, *, is_voter: bool) -> tuple[str, bool]:
    """How a disk stands beside what is committed, and whether that is trouble."""
    capture, mark = disk.capture, newest_watermark(history)
    if capture is None:
        return ("replaced" if disk.is_known else "not captured"), False
    low = 0 if mark is None else mark["low"]
    trust = disk_trust(capture)
    if trust is DiskTrust.SUSPECT:
        return "contradicts itself", True
    if trust is DiskTrust.UNREAD:
        return "log not readable", True
    if lacks_its_log(capture):
        return "log not copied", False
    if trust is DiskTrust.EMPTY:
        return "empty", bool(low) and is_voter
    parted = [run.from_offset for run in disk.runs if run.is_held]
    if parted:
        return f"diverged at {min(parted)}", True
    end = replica_end(capture)
    if mark is None:
        return f"end {end}", False
    if end < low:
        return f"lacks {plural(low - end, 'record')}", True
    log_end = mark["canonical_end_offset"]
    if log_end is not None and low < end and low < log_end:
        return f"has {offset_span(low, end).removeprefix('offsets ').removeprefix('offset ')}", False
    return f"end {end}", False
