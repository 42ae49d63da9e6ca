"""How brokers left, as far as the log and the disks of their nodes tell together.

The log alone leaves most of it open. Kafka grants a broker that leads nothing an immediate stop, which the log shows as
a plain fence, as it shows a lost one (BrokerHeartbeatManager.calculateNextBrokerState, Kafka 4.3.0); up to 3.2 every
stop is a plain fence. The broker's own copy of the metadata log decides: a process that was dead when the controller
fenced it never read that record, one that stopped in order read it and ended soon after, and one that reads on runs.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, once_per_history
from kraft_audit.rules.columns.captures import newest_captures
from kraft_audit.rules.columns.log_batches import canonical_log
from kraft_audit.rules.columns.nodes import Absence, Departure, absences, broker_states
from kraft_audit.rules.columns.voter_sets import current_set, voter_ids

STOP_TAKES_MS: Final = 60_000
"""So long a stopping broker may go on to read the log while it flushes and closes its partitions."""
LAST_WORD_MS: Final = 5_000
"""A log that ends so soon after its last broker left ends with it: nodes that run on write a NoOp every 500 ms."""
ROLE_GONE_MS: Final = 600_000
"""A voter whose broker is away for so long while its controller goes on gave up the role: no start takes longer."""
RAN_ON_MS: Final = 10_000
"""A voter whose log goes on for longer without a majority did not stop with the others."""
LONG_FENCED_MS: Final = 86_400_000
"""A broker that is fenced for longer than a day will hardly come back by itself."""
BURNT_EPOCHS: Final = 3
"""So many epochs may pass while three controllers stop in order; one that stands more often runs on."""


class Stop(enum.StrEnum):
    """How a broker left: what is known of it."""

    CONTROLLED = "controlled shutdown"
    IDLE = "immediate stop of a broker that led nothing"
    UNREGISTERED = "unregistered"
    LOST = "lost"
    OPEN = "stopped in order or lost"
    FROZEN = "frozen or cut off, and back as the same process"
    CRASHED = "registered again as a new process"
    STARTING = "its node started again"
    CUT_OFF = "runs, and the controller hears no heartbeat"
    ROLE_CHANGED = "its node runs on without the broker's role"


@dataclass(frozen=True, slots=True)
class BrokerStop:
    """One time away, and how the broker left."""

    absence: Absence
    stop: Stop

    @property
    def is_in_order(self) -> bool:
        """Whether the broker left as somebody wished. A clean stop alone is proof that everything was flushed."""
        return self.stop in (Stop.CONTROLLED, Stop.IDLE, Stop.UNREGISTERED, Stop.ROLE_CHANGED)


@once_per_history
def broker_stops(history: ClusterHistory) -> list[BrokerStop]:
    """How each broker left each time, in the order in which the absences began."""
    return [BrokerStop(absence, _stop(history, absence)) for absence in absences(history)]


def _stop(history: ClusterHistory, absence: Absence) -> Stop:
    if absence.departure is Departure.UNREGISTERED:
        return Stop.UNREGISTERED
    if absence.departure is Departure.CONTROLLED_SHUTDOWN:
        return Stop.CONTROLLED
    if absence.departure is Departure.RESTARTED:
        return Stop.CRASHED
    if absence.to_offset is None:
        return _open_fence(history, absence)
    states = broker_states(history)[absence.broker_id]
    before, back = states.at(absence.from_offset - 1), states.at(absence.to_offset)
    is_same = before is not None and back is not None and before["incarnation_id"] == back["incarnation_id"]
    return Stop.FROZEN if is_same else Stop.CRASHED


def _open_fence(history: ClusterHistory, absence: Absence) -> Stop:
    """How a broker left that was fenced, and is still away."""
    broker, fenced_at = absence.broker_id, absence.from_offset
    if broker_states(history)[broker].newest["incarnation_id"] != _incarnation(history, absence):
        return Stop.CRASHED  # it registered again, and was not unfenced
    if _is_of_an_earlier_process(history, absence):
        return Stop.STARTING
    log, ends = canonical_log(history), _own_ends(history, broker)
    if not ends or not len(log.base_offset):
        return Stop.OPEN
    own_end = max(ends)
    if own_end <= fenced_at:
        return Stop.LOST
    read_until, ended = log.time_at(own_end - 1), int(log.timestamp_ms[-1])
    if ended - absence.from_ms <= LAST_WORD_MS:
        is_end = own_end < log.end_offset or _nobody_is_left(history)
        return Stop.IDLE if is_end and not history.operator.is_running else Stop.OPEN
    if read_until is None or own_end >= log.end_offset or ended - read_until <= LAST_WORD_MS:
        if _gave_up_role(history, absence):
            return Stop.ROLE_CHANGED
        return Stop.OPEN if broker in voter_ids(current_set(history)) else Stop.CUT_OFF
    return Stop.IDLE if read_until - absence.from_ms <= STOP_TAKES_MS else Stop.OPEN


def _nobody_is_left(history: ClusterHistory) -> bool:
    return not any(states.is_active[-1] for states in broker_states(history).values())


def _incarnation(history: ClusterHistory, absence: Absence) -> str | None:
    before = broker_states(history)[absence.broker_id].at(absence.from_offset - 1)
    return None if before is None else before["incarnation_id"]


def _own_ends(history: ClusterHistory, node_id: int) -> list[int]:
    """Where the newest copies of a node's log end."""
    rows: Sequence[TableRow] = [row for row in newest_captures(history) if row["node_id"] == node_id]
    return [row["log_end_offset"] for row in rows if row["log_end_offset"] is not None]


def _is_of_an_earlier_process(history: ClusterHistory, absence: Absence) -> bool:
    """Whether the only voter fenced the broker on its own node in an epoch that it began after the broker's last sign.

    A single voter begins an epoch when its process starts: the broker is one of an earlier process.
    """
    if voter_ids(current_set(history)) != {absence.broker_id}:
        return False
    log, last = canonical_log(history), broker_states(history)[absence.broker_id].at(absence.from_offset - 1)
    epochs = () if last is None else (log.epoch_at(last["from_offset"]), log.epoch_at(absence.from_offset))
    return None not in epochs and len(set(epochs)) > 1


def _gave_up_role(history: ClusterHistory, absence: Absence) -> bool:
    """Whether the node registered as a controller after its broker was fenced, and no broker followed.

    A node with both roles registers both within a second or two of its start. Without registrations of controllers
    (before 3.7) only time tells.
    """
    node_id, ended = absence.broker_id, int(canonical_log(history).timestamp_ms[-1])
    rows = (row for row in history.rows("controller_changes") if row["controller_id"] == node_id and row["exists"])
    times_ms = [row["timestamp_ms"] for row in rows if row["from_offset"] > absence.from_offset]
    if times_ms:
        return ended - int(max(times_ms)) > LAST_WORD_MS
    return node_id in voter_ids(current_set(history)) and ended - absence.from_ms > ROLE_GONE_MS


def gone_brokers(history: ClusterHistory) -> dict[int, int]:
    """Brokers that were registered and will not come back, and since which offset: unregistered, or their node runs on
    without the role."""
    gone = {}
    for stop in broker_stops(history):
        if stop.stop is Stop.ROLE_CHANGED:
            gone[stop.absence.broker_id] = stop.absence.from_offset
    for broker, states in broker_states(history).items():
        if not states.newest["exists"]:
            gone[broker] = int(states.newest["from_offset"])
    return gone


# The whole cluster


@dataclass(frozen=True, slots=True)
class LastVoter:
    """A node that is left of a quorum whose other voters' nodes stopped in order: no majority was there to record its
    own stop. `since_ms` is when the majority was gone; `ran_on`: its disk shows that it went on after that.
    """

    node_id: int
    stopped: tuple[int, ...]
    since_ms: int
    ran_on: bool


def stopped_brokers(history: ClusterHistory, voters: Collection[int]) -> tuple[int, ...] | None:
    """The brokers in the order in which they left, where the log ends with all of them stopped in order; else None.

    A broker on a voter's node that was still active when the other voters' nodes had shut down counts too: no majority
    was left to record its own.
    """
    last = last_voter(history, voters)
    if last is not None and last.ran_on:
        return None
    left, active = _left_and_active(history, voters)
    if not left or (active and last is None):
        return None
    return (*(broker for _, broker in left), *active)


def last_voter(history: ClusterHistory, voters: Collection[int]) -> LastVoter | None:
    """The node that is left of a quorum whose other voters stopped in order with their brokers; None where a majority
    may still run."""
    left, active = _left_and_active(history, voters)
    if not left or not active or not set(active) <= set(voters):
        return None
    stopped_voters = [broker for _, broker in left if broker in voters]
    if len(voters) - len(stopped_voters) >= majority(len(voters)):
        return None
    away = (stop for stop in broker_stops(history) if stop.absence.to_offset is None)
    since_ms = _no_majority_from(away, voters)
    if since_ms is None:
        return None
    return LastVoter(active[-1], tuple(stopped_voters), since_ms, _ran_on(history, active, since_ms))


def _left_and_active(
    history: ClusterHistory, voters: Collection[int]
) -> tuple[list[tuple[int, int]] | None, list[int]]:
    """(offset, broker) of those that stopped in order, None where one was lost or it is open; and who is active."""
    away = {stop.absence.broker_id: stop for stop in broker_stops(history) if stop.absence.to_offset is None}
    alone_from_ms = _no_majority_from(away.values(), voters)
    left: list[tuple[int, int]] = []
    active: list[int] = []
    for broker, states in broker_states(history).items():
        if not states.newest["exists"]:
            continue
        stop = away.get(broker)
        if stop is not None and alone_from_ms is not None and _is_uncommitted(stop, alone_from_ms):
            active.append(broker)
        elif stop is not None and stop.stop in (Stop.CONTROLLED, Stop.IDLE):
            left.append((stop.absence.from_offset, broker))
        elif stop is not None and stop.stop is Stop.ROLE_CHANGED:
            continue
        elif states.newest["fenced"]:
            if states.is_active.any():
                return None, []
        else:
            active.append(broker)
    return sorted(left), sorted(active)


def _no_majority_from(away: Iterable[BrokerStop], voters: Collection[int]) -> int | None:
    """When so many voters' nodes had stopped in order with their brokers that no majority was left."""
    in_order = (Stop.CONTROLLED, Stop.IDLE)
    times_ms = sorted(
        each.absence.from_ms for each in away if each.stop in in_order and each.absence.broker_id in voters
    )
    needed = len(voters) - majority(len(voters))
    return times_ms[needed] if voters and len(times_ms) > needed else None


def _is_uncommitted(stop: BrokerStop, alone_from_ms: int) -> bool:
    """Whether a node without a majority fenced the broker: a node that is left alone fences its own, too."""
    is_fence = stop.absence.departure is Departure.FENCED
    return is_fence and stop.absence.from_ms - alone_from_ms > LAST_WORD_MS


def stopped_uncommitted(history: ClusterHistory, voters: Collection[int]) -> frozenset[Absence]:
    """The absences that a node wrote which ran on without a majority: part of the quorum's stop, not of a broker's."""
    last = last_voter(history, voters)
    if last is None or not last.ran_on:
        return frozenset()
    return frozenset(stop.absence for stop in broker_stops(history) if _is_uncommitted(stop, last.since_ms))


def _ran_on(history: ClusterHistory, active: Sequence[int], since_ms: int) -> bool:
    """Whether the log of a node that was left went on, or its epochs did, when no majority was there any more."""
    log = canonical_log(history)
    if len(log.base_offset) and int(log.timestamp_ms[-1]) - since_ms > RAN_ON_MS:
        return True
    own = (row for row in newest_captures(history) if row["node_id"] in active)
    return any((row["leader_epoch"] or 0) - (row["last_epoch"] or 0) > BURNT_EPOCHS for row in own)
