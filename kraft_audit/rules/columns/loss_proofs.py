"""What captured brokers' disks say of loss events: bounds, proofs, and that nothing was lost.

The log alone knows who may lack records; the leader-epoch-checkpoint of the leader and of whoever held more know which.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from kraft_audit.losses.disk_proofs import (
    DoubtfulElection,
    LostRange,
    PossibleHolder,
    is_ruled_out,
    leader_log,
    lost_from,
    proven_losses,
    to_offset,
    vanished_epochs,
)
from kraft_audit.losses.replica_disks import ReplicaLog, ReplicaLogs
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.partition_states import PartitionStates, partition_states
from kraft_audit.rules.columns.witnesses import LossEvent


@dataclass(frozen=True, slots=True)
class DiskProof:
    """What disks say of one event. Offsets are those of the partition.

    * `from_offset`: nothing below it was lost; None: not known. `to_offset`: nothing from it on was; None: not known.
    * `ranges`: what disks held below their high watermark and the leader lacks; with `is_shared` this event or another
      one lost it, one of before the log begins, too.
    * `is_ruled_out`: a replica that surely held everything ends inside the leader's log.
    * `vanished_epochs`: leader epochs that could acknowledge, and of which the leader's log has nothing; no proof.
    """

    from_offset: int | None = None
    to_offset: int | None = None
    ranges: tuple[LostRange, ...] = ()
    is_shared: bool = False
    is_ruled_out: bool = False
    vanished_epochs: tuple[int, ...] = ()


NO_DISKS = DiskProof()


def disk_proofs(
    history: ClusterHistory, events: Sequence[LossEvent], holders: Sequence[tuple[PossibleHolder, ...]]
) -> list[DiskProof]:
    """What the captured disks say of each event with its holders, in their order."""
    logs = doubted_logs(history, {(each.topic, each.partition) for each in events})
    proofs = dict.fromkeys(range(len(events)), NO_DISKS)
    by_partition: dict[tuple[str, int], list[int]] = defaultdict(list)
    for number, each in enumerate(events):
        by_partition[each.topic_id, each.partition].append(number)
    for numbers in by_partition.values():
        first = events[numbers[0]]
        found = _of_partition(
            history,
            [events[number] for number in numbers],
            [_doubtful(events[number], holders[number]) for number in numbers],
            logs.get((first.topic, first.partition), ()),
        )
        proofs.update(zip(numbers, found, strict=True))
    return [proofs[number] for number in range(len(events))]


def doubted_logs(history: ClusterHistory, wanted: Collection[tuple[str, int]]) -> ReplicaLogs:
    """What brokers' disks hold of the (topic, partition)s of all loss events; read once."""
    return history.known(
        "replica logs",
        lambda: history.read_disks(wanted, _taken_ms(history)) if wanted else {},
    )


def _taken_ms(history: ClusterHistory) -> dict[int, int]:
    """When each capture was taken at the earliest: the newest record that any log of it holds."""
    times: dict[int, int] = {}
    for row in history.rows("captures"):
        if row["last_timestamp_ms"] is not None:
            number = row["capture_number"]
            times[number] = max(times.get(number, row["last_timestamp_ms"]), row["last_timestamp_ms"])
    return times


def _doubtful(event: LossEvent, holders: tuple[PossibleHolder, ...]) -> DoubtfulElection:
    return DoubtfulElection(event.topic_id, event.leader_id, event.leader_epoch, event.timestamp_ms, holders)


def _of_partition(
    history: ClusterHistory,
    events: Sequence[LossEvent],
    doubted: Sequence[DoubtfulElection],
    logs: Sequence[ReplicaLog],
) -> list[DiskProof]:
    """The proofs of one partition's events, by the log of who leads it now."""
    states = partition_states(history)
    newest = states.newest_row(events[0].row)
    same = [log for log in logs if log.topic_id == doubted[0].topic_id]
    leads = int(states.leader[newest])
    if leads < 0:
        leads = doubted[-1].leader
    leader = leader_log(same, doubted[0].topic_id, leads)
    if leader is None:
        return [DiskProof(to_offset=to_offset(each, same)) for each in doubted]
    doubted = [
        replace(each, rival_since=_rival_since(states, event)) for event, each in zip(events, doubted, strict=True)
    ]
    begins = int(states.leader_epoch[states.first_row(newest)]) if history.states_from else 0
    proven = proven_losses(doubted, same, leader, begins)
    proofs = []
    for event, each in zip(events, doubted, strict=True):
        # What was read of the leader before the event does not say what it held when it was elected.
        knows = leader_log(same, each.topic_id, leads, each.leader_epoch) is not None
        own = [loss for loss in proven if knows and each.leader_epoch in loss.events]
        proofs.append(
            DiskProof(
                lost_from(each, doubted, same, proven, leader) if knows else None,
                to_offset(each, same),
                tuple(loss.range for loss in own),
                any(not loss.is_of_one_event for loss in own),
                knows and not own and is_ruled_out(each, same, leader),
                vanished_epochs(_acknowledging(history, event), leader) if knows else (),
            )
        )
    return proofs


def _rival_since(states: PartitionStates, event: LossEvent) -> int | None:
    """The first leader epoch of the leader just before an event; None where the elected replica's log is part of its.

    A pause ends that leader's time: it may have crashed, and have lost its own tail.
    """
    row = event.row - 1
    while row >= 0 and not states.is_first[row + 1] and states.leader[row] < 0:
        row -= 1
    if row < 0 or states.is_first[row + 1] or states.leader[row] == event.leader_id:
        return None
    rival = states.leader[row]
    while not states.is_first[row] and states.leader[row - 1] == rival:
        row -= 1
    since = int(states.leader_epoch[row])
    return None if _joined(states, event, row) else since


def _joined(states: PartitionStates, event: LossEvent, row: int) -> bool:
    """Whether the elected replica joined the ISR in a row after `row`: only who has fetched from that leader does.

    One that was in the ISR all along may never have followed it, and may hold a tail that it never had.
    """
    return any(
        event.leader_id in states.nodes("isr", each) and event.leader_id not in states.nodes("isr", each - 1)
        for each in range(row + 1, event.row)
    )


def _acknowledging(history: ClusterHistory, event: LossEvent) -> list[int]:
    """The leader epochs before an event, since its leader last held everything, in which acks=all could succeed."""
    states = partition_states(history)
    since = event.row if event.own is None else event.own.row
    return [
        int(states.leader_epoch[row])
        for row in range(since, event.row)
        if states.leader[row] >= 0 and states.size_of("isr", row) >= states.effective_min_isr[row]
    ]
