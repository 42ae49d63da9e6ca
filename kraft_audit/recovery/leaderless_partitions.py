"""A plan for partitions without a leader: what Kafka will do by itself, and what KIP-966's strategies would choose.

It plans; it never acts. Shipped: PartitionChangeBuilder.electLeader of Kafka 4.3.0. Proposed and never
shipped: KIP-966, unclean recovery, `Balanced` (wait for the last known ELR and leader, then take the longest log) and
`Aggressive` (take the longest log among those that answer).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from kraft_audit.losses.replica_disks import ReplicaLog, ReplicaLogs
from kraft_audit.rules.cluster_history import ClusterHistory, elr_level, unclean_election_enabled
from kraft_audit.rules.columns.broker_stops import gone_brokers
from kraft_audit.rules.columns.nodes import is_up
from kraft_audit.rules.columns.partition_states import PartitionStates, partition_states
from kraft_audit.rules.columns.sure_copies import Copies, copies
from kraft_audit.text.readable import any_of, when


@dataclass(frozen=True, slots=True)
class Choice:
    """What one strategy does: who leads (None: it waits), what is waited for, what is lost; None where unknown.

    Any of `waits_for` that is back ends the waiting; `bring_first` are those of them to bring back before the others.
    `lost_records` were below a captured high watermark, so consumers may have read them. `lost_records_max` counts all
    that another captured log holds and the chosen one lacks; what only uncaptured disks hold is in neither.
    """

    leader: int | None
    waits_for: tuple[int, ...]
    text: str
    lost_records: int | None = None
    lost_records_max: int | None = None
    bring_first: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """One leaderless partition and its choices.

    `down` are the replicas that are away and may come back, `sure` those in ISR or ELR that surely hold everything,
    `off_disk` those whose broker does not have the partition's log dir any more.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    since_ms: int
    unclean_election_enabled: bool
    shipped: Choice
    balanced: Choice
    aggressive: Choice
    logs: tuple[ReplicaLog, ...] = ()
    down: tuple[int, ...] = ()
    sure: tuple[int, ...] = ()
    off_disk: tuple[int, ...] = ()


def recovery_plans(
    history: ClusterHistory, logs: ReplicaLogs | None = None, stopped: Collection[int] = ()
) -> list[RecoveryPlan]:
    """A plan for each partition that has no leader at the end of the log, in the order of topics and numbers.

    `stopped` are brokers that stopped though the log says that they run: what they lead has no leader either.
    """
    states = partition_states(history)
    plans = [_plan(history, states, row, logs or {}, stopped) for row in leaderless_rows(history, stopped)]
    return sorted(plans, key=lambda plan: (plan.topic, plan.partition))


def leaderless_rows(history: ClusterHistory, stopped: Collection[int] = ()) -> list[int]:
    """The newest rows of partitions without a leader, those that `stopped` brokers lead among them."""
    states = partition_states(history)
    rows: list[int] = np.flatnonzero(states.is_last & states.exists & np.isin(states.leader, [-1, *stopped])).tolist()
    return rows


def _plan(
    history: ClusterHistory, states: PartitionStates, row: int, logs: ReplicaLogs, stopped: Collection[int]
) -> RecoveryPlan:
    lists = {name: tuple(states.nodes(name, row)) for name in ("replicas", "isr", "elr", "last_known_elr")}
    topic, partition = states.topic(row), int(states.partition[row])
    up = tuple(broker for broker in lists["replicas"] if is_up(history, broker) and broker not in stopped)
    is_unclean = unclean_election_enabled(history, topic)
    topic_id = states.value("topic_id", row)
    captured = tuple(log for log in logs.get((topic, partition), ()) if log.topic_id in (None, topic_id))
    known = {log.broker_id: log for log in captured}
    since = row
    while not states.is_first[since] and states.leader[since - 1] == -1:
        since -= 1
    held, gone = copies(history, row), gone_brokers(history)
    shipped = _shipped(lists, up, is_unclean, elr_level(history) > 0, known, held)
    return RecoveryPlan(
        topic,
        partition,
        lists["replicas"],
        lists["isr"],
        lists["elr"],
        lists["last_known_elr"],
        int(states.timestamp_ms[since]),
        is_unclean,
        shipped,
        _proposed(_balanced(lists, up, known), shipped),
        _proposed(_aggressive(lists, up, known), shipped),
        captured,
        down=tuple(broker for broker in lists["replicas"] if broker not in up and broker not in gone),
        sure=tuple(sorted(held.sure)),
        off_disk=tuple(sorted(held.off_disk)),
    )


def _shipped(
    lists: Mapping[str, tuple[int, ...]],
    up: tuple[int, ...],
    is_unclean: bool,
    has_elr: bool,
    known: Mapping[int, ReplicaLog],
    held: Copies,
) -> Choice:
    """Facts 6.2: the ISR, else the ELR, else the last known leader, else any live replica where unclean is enabled."""
    eligible = lists["isr"] or lists["elr"]
    safe = [broker for broker in lists["replicas"] if broker in eligible and broker in up]
    if safe:
        return _eligible_leader(next((each for each in safe if each not in held.off_disk), safe[0]), known, held)
    last = lists["last_known_elr"]
    if has_elr and not eligible and len(last) == 1 and last[0] in up:
        text = f"elects broker {last[0]}, the last known leader, though it came back uncleanly"
        return Choice(last[0], (), text, *_lost(last[0], known))
    if is_unclean and up:
        chosen = next(broker for broker in lists["replicas"] if broker in up)
        text = f"elects broker {chosen} uncleanly, the first live replica, whatever its log holds"
        if lists["elr"]:
            text += f"; gives up ELR {list(lists['elr'])}"
        return Choice(chosen, (), text, *_lost(chosen, known))
    members = tuple(broker for broker in eligible if broker in lists["replicas"])
    able = tuple(broker for broker in members if broker not in held.off_disk)
    heir = last[0] if has_elr and len(last) == 1 and last[0] in lists["replicas"] else None
    heir = None if heir in held.off_disk else heir
    if members and not able and not is_unclean:
        return _waits_for_dir(members[0])
    if is_unclean:
        return _whoever_is_live_first(lists["replicas"], able, heir)
    if able:
        text = f"waits until {_one_of(able)} is back, without loss if it was clean"
        if heir is not None and not lists["isr"]:
            each = "it" if len(able) == 1 else "each of them"
            text += f"; if {each} crashed, elects broker {heir}, the last known leader, once back, with possible loss"
        return Choice(None, able, text)
    if heir is not None and not eligible:
        return Choice(None, last, f"waits for broker {heir}, the last known leader, and elects it as it is")
    return Choice(None, lists["replicas"], "waits for an operator: no replica is eligible and no last leader is known")


def _proposed(choice: Choice, shipped: Choice) -> Choice:
    """What a proposed strategy does with an eligible replica that is up: no better than what Kafka itself does."""
    if choice.lost_records == 0 and shipped.lost_records != 0:
        return shipped
    return choice


def _eligible_leader(broker: int, known: Mapping[int, ReplicaLog], held: Copies) -> Choice:
    """An eligible replica that is up: what it holds is what its witnesses' history says of it."""
    if broker in held.off_disk:
        return _waits_for_dir(broker)
    if broker not in held.sure:
        text = f"elects broker {broker}, which may lack acknowledged records: it crashed, or was passed over"
        return Choice(broker, (), text, *_lost(broker, known))
    if held.since is not None:
        since = f"since {when(held.since.timestamp_ms)}, and may lack what was acknowledged before"
        return Choice(broker, (), f"elects broker {broker}, which holds everything acknowledged {since}")
    return Choice(broker, (), f"elects broker {broker}, which holds everything acknowledged", 0)


def _waits_for_dir(broker: int) -> Choice:
    """A member that holds the records in a log dir which its broker's last registration does not list."""
    text = (
        f"waits for the log dir of broker {broker} that this partition is in: the broker does not have it now. With an "
        f"empty disk in its place, broker {broker} leads with an empty log, and every record is lost"
    )
    return Choice(None, (broker,), text)


def _whoever_is_live_first(replicas: tuple[int, ...], able: tuple[int, ...], heir: int | None) -> Choice:
    """Unclean election on, no replica up: whoever is unfenced first leads, with ISR and ELR given up unless it is a
    member that stopped cleanly; one that crashed has left them when it registered.
    """
    first = tuple(broker for broker in replicas if broker in (able or (heir,)))
    first = tuple(sorted(first, key=lambda broker: broker != heir))
    others = [broker for broker in replicas if broker not in first]
    text = "elects whichever replica is live first, with possible loss, as unclean election is on"
    if first:
        back = f"bring broker {any_of(first)} back"
        text += f"; {back} before {any_of(others)}" if others else f"; {back}"
        text += ": without loss if it was clean" if able else ", which led last"
    return Choice(None, replicas, text, bring_first=first)


def _balanced(lists: Mapping[str, tuple[int, ...]], up: tuple[int, ...], known: Mapping[int, ReplicaLog]) -> Choice:
    """KIP-966 Balanced: never unclean while an eligible replica may return; then, with all last known members up, the
    longest log among them and whoever else answers.
    """
    eligible = lists["isr"] or lists["elr"]
    safe = [broker for broker in lists["replicas"] if broker in eligible and broker in up]
    if safe:
        return Choice(safe[0], (), f"elects broker {safe[0]}, which is eligible", 0)
    if eligible:
        return Choice(
            None, eligible, f"waits for {_one_of(eligible)}, which {'is' if len(eligible) == 1 else 'are'} eligible"
        )
    wanted = lists["last_known_elr"]
    missing = tuple(broker for broker in wanted if broker not in up)
    if not wanted:
        return Choice(None, (), "cannot choose: no last known member is recorded")
    if missing:
        return Choice(None, missing, f"waits for all of the last known {list(wanted)}: {list(missing)} are away")
    return _longest_of(up, known)


def _aggressive(lists: Mapping[str, tuple[int, ...]], up: tuple[int, ...], known: Mapping[int, ReplicaLog]) -> Choice:
    """KIP-966 Aggressive: the longest log among the replicas that answer now."""
    eligible = [b for b in lists["replicas"] if b in (lists["isr"] or lists["elr"]) and b in up]
    if eligible:
        return Choice(eligible[0], (), f"elects broker {eligible[0]}, which is eligible", 0)
    if not up:
        return Choice(None, lists["replicas"], "waits for any replica: none is up")
    return _longest_of(up, known)


def _longest_of(up: tuple[int, ...], known: Mapping[int, ReplicaLog]) -> Choice:
    """The election of the longest log among the replicas that are up, of which there is one at least."""
    chosen = _longest(up, known) if len(up) > 1 else up[0]
    if chosen is None:
        return Choice(None, (), f"would take the longest log among {list(up)}; {_not_captured(up, known)}")
    why = "the only replica that is up" if len(up) == 1 else "the longest log among those up"
    return Choice(chosen, (), f"elects broker {chosen}, {why}", *_lost(chosen, known))


def _one_of(brokers: tuple[int, ...]) -> str:
    return f"broker {brokers[0]}" if len(brokers) == 1 else f"one of {list(brokers)}"


def _longest(brokers: tuple[int, ...], known: Mapping[int, ReplicaLog]) -> int | None:
    """The highest (leader epoch, end offset), as KIP-966 compares them; None unless all ends are known."""
    ends = {}
    for broker in brokers:
        log = known.get(broker)
        if log is None or log.log_end_offset is None or log.leader_epoch is None:
            return None
        ends[broker] = (log.leader_epoch, log.log_end_offset, -broker)
    return max(ends, key=lambda broker: ends[broker])


def _not_captured(brokers: tuple[int, ...], known: Mapping[int, ReplicaLog]) -> str:
    missing = [broker for broker in brokers if broker not in known or known[broker].log_end_offset is None]
    return f"where the logs of {missing} end was not captured"


def _lost(chosen: int, known: Mapping[int, ReplicaLog]) -> tuple[int | None, int | None]:
    """(records that were visible by a captured high watermark, all records of captured logs) that the chosen lacks."""
    mine = known.get(chosen)
    if mine is None or mine.log_end_offset is None:
        return None, None
    visible, held = [], []
    for log in known.values():
        common = common_end(log, mine)
        if log.high_watermark is not None:
            has_diverged = log.log_end_offset is not None and common < min(log.log_end_offset, mine.log_end_offset)
            visible.append(max(0, log.high_watermark - (common if has_diverged else mine.log_end_offset)))
        if log.log_end_offset is not None and log is not mine:
            held.append(max(0, log.log_end_offset - common))
    lost = max(visible, default=None)
    return lost, None if lost is None and not held else max([*held, lost or 0])


def common_end(log: ReplicaLog, leader: ReplicaLog) -> int:
    """The end of what a follower keeps of its log when it follows that leader.

    It is the end of the newest epoch that both began at one offset (the truncation of KIP-101 and KIP-279). Where
    epochs were not captured, it is the end of the shorter log.
    """
    end = leader.log_end_offset or 0
    if log.log_end_offset is None:
        return end
    shorter = min(end, log.log_end_offset)
    if not log.epochs or not leader.epochs:
        return shorter
    theirs = dict(leader.epochs)
    same = [place for place, (epoch, start) in enumerate(log.epochs) if theirs.get(epoch) == start]
    if not same:
        # Entries below the log start are trimmed: two logs without a common epoch share nothing that is known.
        return min(shorter, log.epochs[0][1], leader.epochs[0][1])
    place = same[-1]
    epoch = log.epochs[place][0]
    ours = log.epochs[place + 1][1] if place + 1 < len(log.epochs) else log.log_end_offset
    later = [start for later_epoch, start in leader.epochs if later_epoch > epoch]
    return min(ours, min(later, default=end), shorter)
