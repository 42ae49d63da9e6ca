"""The lanes of nodes: what a controller's captured disks prove, and what a broker's registrations in the log say.

Of a controller that is which epochs it led, and when it was a voter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from kraft_audit.capture.histories import VoterKey
from kraft_audit.picture.happened import Band, BandKind, Lane, Mark, MarkKind, merged
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import newest_captures, newest_watermark, replica_end
from kraft_audit.rules.columns.log_batches import canonical_log, log_batches
from kraft_audit.rules.columns.nodes import BrokerStates, broker_states, is_active
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
        lane = _lane(history, key, members[key], own, is_shared=is_shared, from_ms=from_ms, to_ms=to_ms)
        yield replace(lane, standing=f"{key[1][:4]}…: {lane.standing}") if is_shared and key[1] else lane


def _keys(history: ClusterHistory, led: Sequence[_Led]) -> list[VoterKey]:
    voters = {(voter["voter_id"], voter["directory_id"]) for row in canonical_sets(history) for voter in row["voters"]}
    ids = {id_ for id_, _ in voters} | {row["controller_id"] for row in history.rows("controller_changes")}
    brokers = broker_states(history)
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


def _lane(
    history: ClusterHistory,
    key: VoterKey,
    members: Sequence[_Member],
    led: Sequence[_Led],
    *,
    is_shared: bool,
    from_ms: int,
    to_ms: int,
) -> Lane:
    capture = _capture_of(history, key)
    marks = [
        Mark(MarkKind.ADDED if after.is_voter else MarkKind.REMOVED, after.from_ms)
        for before, after in pairwise(members)
        if before.is_voter is not after.is_voter
    ]
    marks += [Mark(MarkKind.ELECTED, epoch.from_ms) for epoch in led]
    ends_ms = None if capture is None else _end_ms(capture)
    bands: list[Band] = []
    if capture is not None:
        begin = from_ms if members[0].is_voter else _first_seen_ms(history, key, members, from_ms, is_shared=is_shared)
        until = to_ms if ends_ms is None else ends_ms
        kinds = {True: BandKind.FOLLOWER, False: BandKind.OBSERVER}
        held = [Band(kinds[m.is_voter], max(m.from_ms, begin), min(m.to_ms, until)) for m in members]
        bands += merged(held)
    bands += [Band(BandKind.LEADER, epoch.from_ms, epoch.to_ms, f"leader, epoch {epoch.epoch}") for epoch in led]
    standing, alarms = _standing(history, capture)
    if capture is not None and (parted := _parted_ms(history, capture)) is not None:
        at, offset = parted
        bands.append(Band(BandKind.DIVERGED, at, max(at + 1, ends_ms or to_ms), "diverged"))
        standing, alarms = f"diverged at {offset}", True
    role = "voter" if members[-1].is_voter else "observer"
    end_label = "" if capture is None else f"log ends at {replica_end(capture)}"
    return Lane(str(key[0]), role, tuple(bands), tuple(marks), ends_ms, end_label, standing, alarms)


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


def _first_seen_ms(
    history: ClusterHistory, key: VoterKey, members: Sequence[_Member], from_ms: int, *, is_shared: bool
) -> int:
    """When a later voter first appears: as a voter or, where its id has one disk alone, as a registered controller."""
    seen = [member.from_ms for member in members if member.is_voter]
    if not is_shared:
        seen += [
            row["timestamp_ms"]
            for row in history.rows_by_offset("controller_changes")
            if row["controller_id"] == key[0] and row["cause"] != "snapshot" and is_time(row["timestamp_ms"])
        ]
    return min(seen, default=from_ms)


def _capture_of(history: ClusterHistory, key: VoterKey) -> TableRow | None:
    """The newest capture of a disk that holds anything."""
    captures = [
        row
        for row in newest_captures(history)
        if row["accepted"] and row["node_id"] == key[0] and (key[1] is None or row["directory_id"] == key[1])
    ]
    return captures[-1] if captures else None


def _end_ms(capture: TableRow) -> int | None:
    time = capture["last_timestamp_ms"]
    return time if time is not None and is_time(time) and time > 0 else None


def _led_epochs(history: ClusterHistory, to_ms: int) -> Iterator[_Led]:
    """Each canonical epoch from its first record to its last one; where batches are not known, to the next epoch."""
    rows = [row for row in history.rows("leader_epochs") if row["canonical"] and row["from_offset"] is not None]
    rows.sort(key=lambda row: row["epoch"])
    log = canonical_log(history) if history.has("batches") else None
    for place, row in enumerate(rows):
        begin = row["timestamp_ms"]
        if row["leader_id"] is None or begin is None or not is_time(begin):
            continue
        following = [later["timestamp_ms"] for later in rows[place + 1 :] if later["timestamp_ms"] is not None]
        end = following[0] if following else to_ms
        if log is not None and row["to_offset"] is not None:
            end = log.time_at(row["to_offset"] - 1) or end
        yield _Led(row["epoch"], row["leader_id"], begin, max(begin, min(end, to_ms)))


def _parted_ms(history: ClusterHistory, capture: TableRow) -> tuple[int, int] | None:
    """When and at which offset the first record was appended that only another branch has."""
    if not history.has("batches") or not len(canonical_log(history).row):
        return None
    batches = log_batches(history)
    own = batches.held_by(capture) & ~batches.is_canonical
    if not own.any():
        return None
    offset = int(batches.base_offset[own].min())
    times = batches.timestamp_ms[own & (batches.base_offset == offset)]
    return int(times.min()), offset


def _standing(history: ClusterHistory, capture: TableRow | None) -> tuple[str, bool]:
    """How a disk stands beside what is committed, and whether it lacks some of it."""
    if capture is None:
        return "not captured", False
    mark = newest_watermark(history)
    end = replica_end(capture)
    if mark is None:
        return f"end {end}", False
    low, log_end = mark["low"], mark["canonical_end_offset"]
    if end < low:
        return f"lacks {plural(low - end, 'record')}", True
    if log_end is not None and low < end and low < log_end:
        return f"has {offset_span(low, end).removeprefix('offsets ').removeprefix('offset ')}", False
    return f"end {end}", False


QUIET_BROKERS_MAX: Final = 12
"""With more brokers than this, those to which nothing happened share a lane."""
STANDINGS: Final = {
    BandKind.IN_SERVICE: ("in service", False),
    BandKind.FENCED: ("fenced", True),
    BandKind.SHUTTING_DOWN: ("shutting down", False),
    BandKind.DOWN: ("stopped in order", False),
    BandKind.STARTING: ("not in service", False),
}


def broker_lanes(history: ClusterHistory, to_ms: int) -> Iterator[Lane]:
    """A lane for each broker that the log ever registered, by id; of very many, the quiet ones share the last lane."""
    lanes = [_broker_lane(broker, states, to_ms) for broker, states in broker_states(history).items()]
    if len(lanes) <= QUIET_BROKERS_MAX:
        yield from lanes
        return
    quiet = [lane for lane in lanes if lane.is_quiet]
    yield from (lane for lane in lanes if not lane.is_quiet)
    yield from _shared(quiet)


def _shared(quiet: Sequence[Lane]) -> Iterator[Lane]:
    """One lane for all of them, from the first that came into service on; none where none ever did."""
    bands = [band for lane in quiet for band in lane.bands]
    if bands:
        last = max(band.to_ms for band in bands)
        band = Band(BandKind.IN_SERVICE, min(band.from_ms for band in bands), last)
        yield Lane(plural(len(quiet), "more broker"), "", (band,), ends_ms=last, standing="in service")


def _broker_lane(broker: int, states: BrokerStates, to_ms: int) -> Lane:
    bands = list(_bands(states, to_ms))
    newest = bands[-1].kind if bands and bands[-1].to_ms == to_ms else None
    standing, alarms = ("unregistered", False) if newest is None else STANDINGS[newest]
    marks = tuple(_marks(states))
    return Lane(str(broker), "broker", merged(bands), marks, to_ms if newest else None, "", standing, alarms)


def _bands(states: BrokerStates, to_ms: int) -> Iterator[Band]:
    """What a broker was from each registration to the next; what served before and is fenced was lost or stopped."""
    ends = [*(int(row["timestamp_ms"]) for row in states.rows[1:]), to_ms]
    incarnation: str | None = None
    has_served = was_shutting_down = False
    for row, end in zip(states.rows, ends, strict=True):
        if not row["exists"]:
            incarnation = None
            continue
        if row["incarnation_id"] != incarnation:
            incarnation = row["incarnation_id"]
            # A snapshot does not say whether a broker that it holds as fenced ever served.
            has_served, was_shutting_down = row["cause"] == "snapshot", False
        kind = _kind(row, was_shutting_down=was_shutting_down, has_served=has_served)
        has_served |= kind is BandKind.IN_SERVICE
        was_shutting_down |= kind is BandKind.SHUTTING_DOWN
        yield Band(kind, int(row["timestamp_ms"]), end, "fenced" if kind is BandKind.FENCED else "")


def _kind(row: dict[str, Any], *, was_shutting_down: bool, has_served: bool) -> BandKind:
    if row["in_controlled_shutdown"] and not row["fenced"]:
        return BandKind.SHUTTING_DOWN
    if not row["fenced"]:
        return BandKind.IN_SERVICE
    if was_shutting_down or row["in_controlled_shutdown"]:
        return BandKind.DOWN
    return BandKind.FENCED if has_served else BandKind.STARTING


def _marks(states: BrokerStates) -> Iterator[Mark]:
    """Where a new incarnation registered that no controlled shutdown came before, and where log dirs failed."""
    before: dict[str, Any] | None = None
    was_in_order = True
    for row in states.rows:
        if before is not None and before["exists"] and row["exists"]:
            if row["incarnation_id"] != before["incarnation_id"]:
                if not was_in_order:
                    yield Mark(MarkKind.RESTARTED, row["timestamp_ms"])
                was_in_order = True
            elif row["cause"] == "log_dirs" and set(before["log_dirs"]) - set(row["log_dirs"]):
                yield Mark(MarkKind.LOG_DIR_FAILED, row["timestamp_ms"])
        if is_active(row):
            was_in_order = False
        elif row["in_controlled_shutdown"] or not row["exists"]:
            was_in_order = True
        before = row
