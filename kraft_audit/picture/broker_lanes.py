"""The lanes of brokers: what their registrations in the log say of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kraft_audit.picture.happened import Band, BandKind, Lane, Mark, MarkKind, merged
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.nodes import BrokerStates, broker_states, is_active
from kraft_audit.text.readable import plural

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
