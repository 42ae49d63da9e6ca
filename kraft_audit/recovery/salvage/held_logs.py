"""Which captured disks hold what of each loss, and from which offset on: what `salvage --plan` says.

A disk holds records of a loss while it has not followed the elected leader. They are the records of earlier leader
epochs from the first offset that the leader does not surely have.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kraft_audit.losses.disk_proofs import leader_log, parts_at
from kraft_audit.losses.log_ends import segments_of
from kraft_audit.losses.replica_disks import ReplicaLog
from kraft_audit.recovery.salvage.held_batches import held_bytes
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.broker_returns import broker_returns, is_reserved
from kraft_audit.rules.columns.loss_holders import HolderState, Loss, LossHolder, losses
from kraft_audit.rules.columns.partition_states import PartitionStates, partition_states
from kraft_audit.rules.columns.witnesses import LossEvent, Reason
from kraft_audit.tables.silver import SNAPSHOT
from kraft_codec.errors import CodecError
from kraft_codec.storage.random_access import Storage


class CopyState(enum.StrEnum):
    """What was captured of a holder's log: its segments, only its small files, nothing, or a log that has followed."""

    CAPTURED = "captured"
    NO_SEGMENTS = "no_segments"
    NOT_CAPTURED = "not_captured"
    FOLLOWED = "followed"


@dataclass(frozen=True, slots=True)
class CapturedLog:
    """A captured log with segments, and the offset from which on its records are those of a loss."""

    log: ReplicaLog
    from_offset: int


@dataclass(frozen=True, slots=True)
class HeldLog:
    """One holder of a loss with what was captured of it: logs with segments, and about how many bytes are wanted.

    `path` names its folder where one was captured, or as its broker names it.
    """

    holder: LossHolder
    state: CopyState
    logs: tuple[CapturedLog, ...] = ()
    size_bytes: int = 0
    path: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether its disk surely had everything: it was a witness, stopped in order, and was read."""
        is_sure = self.holder.is_witness and self.holder.now is HolderState.STOPPED
        return self.state is CopyState.CAPTURED and is_sure


@dataclass(frozen=True, slots=True)
class SalvageableLoss:
    """A loss with its holders. `from_offset` is None where no log of a holder was captured.

    `basis` says what the bound rests on. With `is_exact` the leader has none of the records from it on.
    """

    loss: Loss
    from_offset: int | None
    basis: str
    is_exact: bool
    held: tuple[HeldLog, ...]

    @property
    def to_offset(self) -> int | None:
        return self.loss.proof.to_offset

    @property
    def logs(self) -> Iterator[CapturedLog]:
        """What to read, the surest first."""
        for each in self.held:
            yield from each.logs

    @property
    def size_bytes(self) -> int:
        return max((each.size_bytes for each in self.held), default=0)

    @property
    def missing(self) -> tuple[HeldLog, ...]:
        """The intact holders of which nothing can be read, unless another one surely had everything."""
        if any(each.is_whole for each in self.held):
            return ()
        return tuple(
            each
            for each in self.held
            if each.holder.now.is_intact and each.state in (CopyState.NO_SEGMENTS, CopyState.NOT_CAPTURED)
        )

    def missing_text(self, each: HeldLog) -> str:
        """Why the records of a holder cannot be had from what was captured, and what to copy."""
        broker, name = each.holder.broker_id, self.loss.event.name
        if each.state is CopyState.NO_SEGMENTS:
            return f"broker {broker}: its segments were not captured: copy {each.path} from broker {broker} as a folder"
        return f"broker {broker}: its log dir was not captured: copy LOG_DIR/{name} and LOG_DIR/meta.properties from it"


def salvageable(history: ClusterHistory, storage: Storage) -> list[SalvageableLoss]:
    """Every possible or proven loss, in the order of the log, with what the captured disks hold of it."""
    reported = [loss for loss in losses(history) if loss.grade.is_reported]
    wanted = {(loss.event.topic, loss.event.partition) for loss in reported}
    logs = history.read_disks(wanted, {}) if wanted else {}
    found = []
    for loss in reported:
        event = loss.event
        own = [log for log in logs.get((event.topic, event.partition), ()) if log.topic_id == event.topic_id]
        found.append(_salvageable(history, storage, loss, own))
    return found


def _salvageable(history: ClusterHistory, storage: Storage, loss: Loss, logs: Sequence[ReplicaLog]) -> SalvageableLoss:
    event, first = loss.event, loss.proof.from_offset
    leader = None if first is None else _leader_log(history, event, logs)
    basis = "where the present leader's log goes on, by its leader-epoch-checkpoint"
    held, bounds = [], []
    for holder in _by_sureness(loss):
        state, its = copies_of(storage, event, holder, logs)
        captured = []
        for log in its if state is CopyState.CAPTURED else ():
            if first is None:
                bound = _own_bound(history, event, log)
            else:
                bound = (first if leader is None else parts_at(log, leader, first)), basis
            bounds.append(bound)
            captured.append(CapturedLog(log, bound[0]))
        sizes = (held_bytes(storage, each.log.path, each.from_offset) for each in captured)
        path = max((log.path for log in its), default=None)
        held.append(HeldLog(holder, state, tuple(captured), max(sizes, default=0), path))
    lowest, basis = min(bounds, default=(first, basis if first is not None else "no log of a holder was captured"))
    return SalvageableLoss(loss, lowest, basis, first is not None, tuple(held))


def _leader_log(history: ClusterHistory, event: LossEvent, logs: Sequence[ReplicaLog]) -> ReplicaLog | None:
    """The log of who leads now, as `from_offset` was read from it."""
    states = partition_states(history)
    leads = int(states.leader[states.newest_row(event.row)])
    return leader_log(logs, event.topic_id, leads if leads >= 0 else event.leader_id, event.leader_epoch)


def _by_sureness(loss: Loss) -> list[LossHolder]:
    """The holders whose disk may be worth something, those that surely have everything first.

    One that came back since counts as well, with what was captured of it before; one that brought its records back
    does not.
    """
    order = list(HolderState)
    worth = [each for each in loss.holders if each.then.is_intact and each.now is not HolderState.BACK]
    return sorted(worth, key=lambda each: (not each.is_witness, order.index(each.now), each.broker_id))


def copies_of(
    storage: Storage, event: LossEvent, holder: LossHolder, logs: Sequence[ReplicaLog]
) -> tuple[CopyState, list[ReplicaLog]]:
    """What was captured of a holder's replica, the longest log first."""
    directory = holder.directory_id
    is_named = bool(directory) and not is_reserved(directory)
    its = [
        log
        for log in logs
        if log.broker_id == holder.broker_id and (not is_named or log.directory_id in (None, directory))
    ]
    if not its:
        return CopyState.NOT_CAPTURED, []
    unspoilt = [log for log in its if not _has_followed(log, event)]
    with_segments = [log for log in unspoilt if _has_segments(storage, log)]
    if with_segments:
        return CopyState.CAPTURED, sorted(with_segments, key=lambda log: -(log.log_end_offset or 0))
    return (CopyState.NO_SEGMENTS, unspoilt) if unspoilt else (CopyState.FOLLOWED, its)


def _has_followed(log: ReplicaLog, event: LossEvent) -> bool:
    """Whether a log has records of the elected leader, or of a later one: it was truncated before it took them."""
    epochs = [epoch for epoch, _ in log.epochs]
    if log.leader_epoch is not None:
        epochs.append(log.leader_epoch)
    return any(epoch >= event.leader_epoch for epoch in epochs)


def _has_segments(storage: Storage, log: ReplicaLog) -> bool:
    if Path(log.path).is_absolute():  # as a broker names it: kraft-capture brought its small files alone
        return False
    try:
        return bool(segments_of(storage, log.path))
    except CodecError:
        return False


# Where no leader's disk says where its log goes on


def _own_bound(history: ClusterHistory, event: LossEvent, log: ReplicaLog) -> tuple[int, str]:
    """The first offset of a holder's log that the elected leader does not surely have, and what shows it.

    Whoever a leader takes into the ISR has all that the log held when that leader's epoch began, and a leader's own
    log is what the others follow (Partition.isFollowerInSync, Kafka 4.3). A crash since then may have taken any of it.
    """
    epoch = _last_sure_epoch(history, event)
    start = log.log_start_offset or 0
    if epoch is None:
        return start, f"the start of the log on broker {log.broker_id}: nothing shows what the leader kept"
    later = [first for entry, first in log.epochs if entry >= epoch]
    if later:
        return max(start, later[0]), f"the start of leader epoch {epoch} on broker {log.broker_id}"
    if log.epochs and log.log_end_offset is not None:
        return log.log_end_offset, f"the end of the log on broker {log.broker_id}, which has nothing of epoch {epoch}"
    return start, f"the start of the log on broker {log.broker_id}, which has no leader-epoch-checkpoint"


def _last_sure_epoch(history: ClusterHistory, event: LossEvent) -> int | None:
    """The last leader epoch at whose start the elected leader surely held the whole log; None where none is known."""
    states, leader = partition_states(history), event.leader_id
    if event.own is not None and event.own.reason is not Reason.LEFT:
        return None
    first = event.row
    while not states.is_first[first]:
        first -= 1
    sure: tuple[int, int] | None = None
    for row in range(first, event.row):
        if leader not in states.nodes("replicas", row) or (row > first and _is_other_log(states, row, leader)):
            sure = None
        if _is_surely_whole(states, row, leader):
            sure = int(states.leader_epoch[row]), int(states.from_offset[row])
    if sure is None:
        return None
    crashed = (
        each.broker_id == leader and not each.is_clean and sure[1] < each.offset <= event.offset
        for each in broker_returns(history)
    )
    return None if any(crashed) else sure[0]


def _is_other_log(states: PartitionStates, row: int, broker: int) -> bool:
    """Whether the broker's log may be another one than before: records are missing in between, or its log dir moved."""
    if states.value("cause", row) == SNAPSHOT or states.partition_epoch[row] - states.partition_epoch[row - 1] > 1:
        return True
    before, after = (
        dict(zip(states.nodes("replicas", each), states.value("directories", each) or (), strict=False))
        for each in (row - 1, row)
    )
    was = before.get(broker, "")
    return bool(was) and not is_reserved(was) and after.get(broker, was) != was


def _is_surely_whole(states: PartitionStates, row: int, broker: int) -> bool:
    """Whether a row shows that a broker has all that was written before the row's leader epoch: it begins to lead, the
    leader takes it into the ISR, or the partition was just made."""
    leader, epoch = int(states.leader[row]), int(states.leader_epoch[row])
    is_member = broker in states.nodes("isr", row)
    if states.is_first[row]:
        return is_member and int(states.partition_epoch[row]) == 0
    if epoch != states.leader_epoch[row - 1]:
        return leader == broker
    has_joined = is_member and broker not in states.nodes("isr", row - 1)
    return has_joined and leader >= 0 and leader == states.leader[row - 1]


def by_partition(found: Sequence[SalvageableLoss]) -> list[list[SalvageableLoss]]:
    """The losses of each partition together, by leader epoch."""
    groups: dict[tuple[str, int], list[SalvageableLoss]] = defaultdict(list)
    for each in found:
        groups[each.loss.event.topic_id, each.loss.event.partition].append(each)
    return [sorted(group, key=lambda each: each.loss.event.leader_epoch) for group in groups.values()]
