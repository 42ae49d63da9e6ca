"""Incidents of brokers: stops, losses, freezes, restarts, restart loops, and nodes that gave up the broker's role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from kraft_audit.incidents.early_stops import early_stops
from kraft_audit.incidents.incident import Incident, IncidentEvent, IncidentKind
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.broker_returns import feature_levels
from kraft_audit.rules.columns.broker_stops import BrokerStop, Stop, broker_stops, stopped_uncommitted
from kraft_audit.rules.columns.log_batches import canonical_log
from kraft_audit.rules.columns.nodes import Absence, Departure, broker_states, in_groups
from kraft_audit.rules.columns.quorum_standing import quorum_standing
from kraft_audit.rules.columns.rivals import rivals_of_loop, rivals_text
from kraft_audit.text.readable import duration, listed, nouns
from kraft_codec.schemas.releases import FIRST_LEVEL_WITH_CONTROLLED_SHUTDOWN, METADATA_VERSION_FEATURE

LOOP_STARTS: Final = 3
"""A process that ended so often without a clean stop, each time soon after its start, restarts in a loop."""
LOOP_RUN_MS: Final = 30_000
"""A process that ran for longer between two ends is in no loop."""
MOVES_TAKE_MS: Final = 5_000
"""So long before its fence a broker of 3.2 may have begun its shutdown; stops of strangers took 0.1 s."""

ADVICE: Final[Mapping[IncidentKind, str]] = {
    IncidentKind.BROKER_FREEZE: (
        "Do not wipe it. Look at GC pauses, disk waits and the network to the controllers at these times; restart it "
        "only if it stays fenced, by a controlled shutdown."
    ),
    IncidentKind.RESTART_LOOP: (
        "Stop whatever restarts it, and keep its disk: each start without a clean stop may cost it its place in the "
        "ISR or ELR. Read the last lines of its server.log, mend the cause, then start it once."
    ),
}
"""What to do about an open incident of a kind, where no finding's advice says it."""


def broker_incidents(history: ClusterHistory) -> Iterator[Incident]:
    """What brokers did, group by group; first the brokers that restart in a loop."""
    standing = quorum_standing(history)
    registered = {broker for broker, states in broker_states(history).items() if states.newest["exists"]}
    stopped, loops = set(standing.stopped_brokers), list(_loops(history))
    left_out = {stop.absence for loop in loops for stop in loop} | stopped_uncommitted(history, standing.voters)
    yield from (_loop_incident(history, loop) for loop in loops)
    stops = {_from_its_batch(history, stop.absence): stop for stop in broker_stops(history)}
    rest = [absence for absence, stop in stops.items() if stop.absence not in left_out]
    for absences in in_groups(rest):
        group = [replace(stops[absence], absence=absence) for absence in absences]
        away = {absence.broker_id for absence in absences if absence.to_offset is None}
        if away and standing.is_stopped_in_order and away <= stopped:
            yield _with_its_moves(history, _stop_incident(group, stopped))
        else:
            incident = _absence_incident(group, is_open=bool(away), registered=registered)
            yield replace(incident, early_stops=early_stops(history, group))


def _from_its_batch(history: ClusterHistory, absence: Absence) -> Absence:
    """The same absence from the start of its batch: what a fencing does to partitions is written before it, in one
    batch (ReplicationControlManager.handleBrokerFenced)."""
    log = canonical_log(history)
    row = log.row_of(absence.from_offset)
    return absence if row is None else replace(absence, from_offset=int(log.base_offset[row]))


def _loops(history: ClusterHistory) -> Iterator[list[BrokerStop]]:
    """Runs of ends of one broker's process without a clean stop, each soon after it came back. Where other brokers
    left meanwhile, somebody rolls the cluster."""
    run: list[BrokerStop] = []
    for stop in (*broker_stops(history), None):
        if run and (stop is None or not _goes_on(run[-1], stop)):
            if len(run) >= LOOP_STARTS:
                yield run
            run = []
        if stop is not None and stop.stop in _ENDS:
            run.append(stop)


_ENDS: Final = (Stop.CRASHED, Stop.LOST, Stop.OPEN)
"""What a process may look like that ended by itself."""


def _goes_on(last: BrokerStop, stop: BrokerStop) -> bool:
    """Whether a broker ended again, soon after it came back."""
    is_same = stop.absence.broker_id == last.absence.broker_id and stop.stop in _ENDS
    return is_same and last.absence.to_ms is not None and stop.absence.from_ms - last.absence.to_ms <= LOOP_RUN_MS


def _loop_incident(history: ClusterHistory, loop: Sequence[BrokerStop]) -> Incident:
    """A broker that ends again and again; over where it has run since for longer than it ever did."""
    first, last = _from_its_batch(history, loop[0].absence), loop[-1].absence
    ran_ms = None if last.to_ms is None or history.end_ms is None else history.end_ms - last.to_ms
    is_open = ran_ms is None or ran_ms <= LOOP_RUN_MS
    verb = "restarts" if is_open else "restarted"
    took = duration((last.to_ms or last.from_ms) - first.from_ms)
    headline = (
        f"Broker {last.broker_id} {verb} in a loop: {len(loop)} times in {took}, none after a controlled shutdown"
    )
    return Incident(
        IncidentKind.RESTART_LOOP,
        str(last.broker_id),
        headline,
        first.from_offset,
        first.from_ms,
        None if is_open else last.to_offset,
        None if is_open else last.to_ms,
        is_open=is_open,
        events=_events([replace(stop, absence=_from_its_batch(history, stop.absence)) for stop in loop]),
        key=f"loop of {last.broker_id}",
        rivals=rivals_of_loop(loop),
        advice=ADVICE[IncidentKind.RESTART_LOOP],
    )


def _stop_incident(group: list[BrokerStop], stopped: set[int]) -> Incident:
    """The whole cluster stopped in order."""
    left = [stop for stop in group if stop.absence.to_offset is None]
    return Incident(
        IncidentKind.CLUSTER_STOP,
        ", ".join(str(stop.absence.broker_id) for stop in left),
        "Whole cluster stopped, in order"
        if len(stopped) > 1
        else f"Broker {left[0].absence.broker_id}, the only one, stopped in order",
        left[0].absence.from_offset,
        left[0].absence.from_ms,
        is_clean=True,
        events=_events(left),
    )


def _with_its_moves(history: ClusterHistory, stop: Incident) -> Incident:
    """Before metadata.version 3.3-IV3 no record says that a controlled shutdown begins: leaders move some operations
    before the fence, and are part of the stop."""
    levels, log = feature_levels(history, METADATA_VERSION_FEATURE), canonical_log(history)
    if stop.from_offset is None or stop.from_ms is None:
        return stop
    if levels.at(stop.from_offset) >= FIRST_LEVEL_WITH_CONTROLLED_SHUTDOWN:
        return stop
    moved = np.flatnonzero((log.timestamp_ms >= stop.from_ms - MOVES_TAKE_MS) & (log.base_offset <= stop.from_offset))
    return replace(stop, from_offset=int(log.base_offset[moved[0]])) if len(moved) else stop


def _absence_incident(group: list[BrokerStop], *, is_open: bool, registered: set[int]) -> Incident:
    absences = [stop.absence for stop in group]
    brokers = list(dict.fromkeys(absence.broker_id for absence in absences))
    ends = [(absence.to_offset, absence.to_ms) for absence in absences if absence.to_offset is not None]
    to_offset, to_ms = (None, None) if is_open else max(ends)
    kind, newest = _kind(group, is_open=is_open), {stop.absence.broker_id: stop.stop for stop in group}
    return Incident(
        kind,
        ", ".join(map(str, brokers)),
        _headline(group, brokers, registered, is_open=is_open),
        absences[0].from_offset,
        absences[0].from_ms,
        to_offset,
        to_ms,
        is_open,
        all(stop.is_in_order for stop in group),
        _events(group),
        rivals=rivals_text(set(newest.values())),
        advice=ADVICE.get(kind, ""),
    )


def _kind(group: Sequence[BrokerStop], *, is_open: bool) -> IncidentKind:
    hows = {stop.stop for stop in group}
    if hows == {Stop.ROLE_CHANGED}:
        return IncidentKind.ROLE_CHANGE
    if all(stop.is_in_order for stop in group):
        return IncidentKind.BROKER_STOP
    if hows == {Stop.STARTING}:
        return IncidentKind.BROKER_RESTART
    if hows <= {Stop.FROZEN, Stop.CUT_OFF}:
        return IncidentKind.BROKER_FREEZE
    if not is_open and all(stop.absence.departure is Departure.RESTARTED for stop in group):
        return IncidentKind.BROKER_RESTART
    return IncidentKind.BROKER_LOSS


def _headline(group: Sequence[BrokerStop], brokers: list[int], registered: set[int], *, is_open: bool) -> str:
    named = nouns("Broker", brokers)
    verb = "were" if len(brokers) > 1 else "was"
    if len(brokers) > 1 and set(brokers) == registered and not is_open:
        named, verb = f"All brokers ({listed(brokers)})", "were"
    hows = {stop.stop for stop in group}
    if hows <= _WHAT.keys() and len(hows) == 1:
        return f"{named} {_WHAT[hows.pop()].format(verb=verb, s='s' if len(brokers) == 1 else '')}"
    if hows <= {Stop.CONTROLLED, Stop.IDLE}:
        state = f"{verb} stopped " + ("by controlled shutdown" if hows == {Stop.CONTROLLED} else "in order")
        return f"{named} {state}" if is_open else f"{named} {state} and came back"
    if not is_open:
        if all(stop.absence.departure is Departure.RESTARTED for stop in group):
            return f"{named} {verb} restarted"
        return f"{named} {verb} away and came back"
    return _open_headline(group, brokers)


_WHAT: Final = {
    Stop.UNREGISTERED: "{verb} unregistered",
    Stop.ROLE_CHANGED: "{verb} given up: controllers with the same ids run on, and nobody unregistered the brokers",
    Stop.STARTING: "{verb} stopped or lost before the node started again, and {verb} not back yet",
    Stop.CUT_OFF: "run{s}, and the controller hears no heartbeat from it",
    Stop.FROZEN: "{verb} fenced and came back as the same process: frozen, or cut off from the controller",
}


def _open_headline(group: Sequence[BrokerStop], brokers: list[int]) -> str:
    """What is said of brokers that are away, not all of them in order: who, and whether that is certain."""
    newest = {stop.absence.broker_id: stop.stop for stop in group}
    if len(brokers) == 1:
        if newest[brokers[0]] is Stop.OPEN:
            return f"Broker {brokers[0]} is away: lost, or stopped in order while it led nothing"
        return f"Broker {brokers[0]} was lost, without a controlled shutdown"
    in_order = [broker for broker in brokers if newest[broker] in (Stop.CONTROLLED, Stop.IDLE)]
    unknown = [broker for broker in brokers if newest[broker] is Stop.OPEN]
    if unknown and len(in_order) + len(unknown) == len(brokers):
        return (
            f"{nouns('Broker', brokers)} are away: {nouns('broker', unknown)} may have been lost, or stopped in order"
        )
    lost = [broker for broker in brokers if broker not in in_order]
    if in_order and not unknown:
        were = "were" if len(in_order) > 1 else "was"
        rest = f"; {nouns('broker', in_order)} {were} stopped in order"
        return (_open_headline([stop for stop in group if stop.absence.broker_id in lost], lost)) + rest
    none = (
        "not all by controlled shutdown" if any(stop.is_in_order for stop in group) else "none by controlled shutdown"
    )
    return f"{nouns('Broker', brokers)} were lost one after the other, {none}"


_STEPS: Final = {
    Stop.CONTROLLED: "broker {} began its controlled shutdown",
    Stop.IDLE: "broker {} stopped at once: it led nothing, so it was fenced",
    Stop.UNREGISTERED: "broker {} unregistered",
}


def _events(group: Sequence[BrokerStop]) -> tuple[IncidentEvent, ...]:
    events = []
    for stop in group:
        absence = stop.absence
        is_again = absence.departure is Departure.RESTARTED
        otherwise = (
            "broker {} registered again without a controlled shutdown before" if is_again else "broker {} fenced"
        )
        step = _STEPS.get(stop.stop, otherwise).format(absence.broker_id)
        events.append((absence.from_offset, absence.from_ms, step.format(absence.broker_id)))
    events += [
        (a.to_offset, a.to_ms, f"broker {a.broker_id} back after {duration(a.to_ms - a.from_ms)}")
        for a in (stop.absence for stop in group)
        if a.to_offset is not None and a.to_ms is not None
    ]
    return tuple(IncidentEvent(time_ms, text) for _, time_ms, text in sorted(events))
