"""What brokers' disks prove of an election that may have lost records: bounds, lost ranges, and that nothing was lost.

Functions over values: nothing is read here. Offsets are those of the partition; ranges are half open. Two logs that
hold the same (leader epoch, offset) hold the same records up to there (KIP-101, KIP-279).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kraft_audit.losses.replica_disks import ReplicaLog

BEFORE_THE_LOG: Final = -1
_STOPPED: Final = "stopped"
_RUNNING: Final = "running"
DiskId = tuple[int, str | None]
"""Broker id, directory id."""


@dataclass(frozen=True, slots=True)
class PossibleHolder:
    """A replica that holds, or may hold, what the elected leader lacks; `is_sure` if it is a member of W.

    `state` is stopped, down, running or gone: that of when its disk was read, or newer. One that was started after the
    event is not `stopped` any more, as it truncates its log before it is unfenced, and leaves no trace of that where
    nothing was written since.
    """

    broker_id: int
    directory_id: str | None
    state: str
    is_sure: bool


@dataclass(frozen=True, slots=True)
class DoubtfulElection:
    """An election that may have lost records: `leader` was elected with `leader_epoch` at `timestamp_ms`.

    `rival_since` is the first leader epoch of whoever led just before it, without a pause; None where the elected
    replica led itself, was in the ISR under that leader, or left the ISR of one that went on: then its log is a part of
    what was lost from.
    """

    topic_id: str
    leader: int
    leader_epoch: int
    timestamp_ms: int
    holders: tuple[PossibleHolder, ...]
    rival_since: int | None = None


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets of one leader epoch: an offset can be lost twice, in two epochs."""

    leader_epoch: int
    from_offset: int
    to_offset: int


@dataclass(frozen=True, slots=True)
class ProvenLoss:
    """Records that were below a high watermark, that `disks` held when they were read, and that the leader lacks.

    `events` are the leader epochs of the events that may have lost them: of one alone, or of one of several,
    BEFORE_THE_LOG among them where an election that is not known may have done it.
    """

    range: LostRange
    events: tuple[int, ...]
    disks: tuple[DiskId, ...]

    @property
    def is_of_one_event(self) -> bool:
        return len(self.events) == 1


def leader_log(logs: Iterable[ReplicaLog], topic_id: str, leader: int, leader_epoch: int = -1) -> ReplicaLog | None:
    """The newest reading of the present leader's log that knows an epoch at or after `leader_epoch`; None: none does.

    A reading from before the event says nothing about what the leader kept.
    """
    own = [log for log in logs if log.broker_id == leader and log.topic_id == topic_id]
    knowing = [log for log in own if log.epochs and log.epochs[-1][0] >= leader_epoch]
    return max(knowing, key=lambda log: log.order, default=None)


def from_offset(log: ReplicaLog, leader_epoch: int) -> int | None:
    """The first offset that an event of this epoch can have lost, or less: where the present leader's log goes on.

    It is the start of the first epoch at or after that of the event, in the leader's leader-epoch-checkpoint: its log
    end offset when it was elected. None where that is not known: no such epoch, or nothing before it is left. Retention
    moves the start of the oldest epoch up (LeaderEpochFileCache.truncateFromStart, 4.3), beyond what was lost.
    The leader of a second event may have parted from the others before it: `lost_from` knows that.
    """
    entry = _first_since(log.epochs, leader_epoch)
    if entry is None or (entry == log.epochs[0] and entry[1] > 0):
        return None
    return entry[1]


def lost_from(
    event: DoubtfulElection,
    events: Sequence[DoubtfulElection],
    logs: Iterable[ReplicaLog],
    losses: Iterable[ProvenLoss],
    leader: ReplicaLog,
) -> int | None:
    """`from_offset` of an event, or less where it is proven that it, or it or another, lost records; None: not known.

    The elected replica may have records that no later leader had, as one that led and was cut off. So the bound is
    known only where it followed the leader before it, and where the log in question follows from it: that
    leader-epoch-checkpoint has an entry of both times. The present leader's may follow from another replica, elected
    later; then only a log with an entry of the event's own epoch shows where the elected one ended. Where it may have
    parted from the leader before it, only the disk of a sure holder shows where.

    Args:
        events: all events of the partition.
        logs: everything that was read of the partition.
    """
    logs = list(logs)
    later = [other for other in events if other.leader_epoch > event.leader_epoch and other.leader != event.leader]
    elected: ReplicaLog | None = leader
    if not all(_has_epoch(leader, event.leader_epoch, other.leader_epoch) for other in later):
        own = (log for log in logs if log.topic_id == event.topic_id)
        elected = next((log for log in own if _has_epoch(log, event.leader_epoch, event.leader_epoch + 1)), None)
    first = None if elected is None else from_offset(elected, event.leader_epoch)
    if elected is None or first is None:
        return None
    if event.rival_since is not None and not _has_epoch(elected, event.rival_since, event.leader_epoch):
        held = (log for _, log in _untouched(event, logs) if (log.log_end_offset or 0) > first)
        first = min((parts_at(log, elected, first) for log in held), default=None)
    losses = list(losses)
    again = _led_for_nothing(event, events, logs)
    if again is not None and first is not None:
        before = lost_from(again, events, logs, losses, leader)
        first = None if before is None else min(first, before)
    proven = (loss.range.from_offset for loss in losses if event.leader_epoch in loss.events)
    return None if first is None else min([first, *proven])


def _led_for_nothing(
    event: DoubtfulElection, events: Iterable[DoubtfulElection], logs: Iterable[ReplicaLog]
) -> DoubtfulElection | None:
    """The election of the same leader just before, where no log shows that it ever began to lead by it.

    Then what that election would have lost was lost by this one.
    """
    earlier = (other for other in events if other.leader_epoch < event.leader_epoch)
    before = max(earlier, key=lambda other: other.leader_epoch, default=None)
    if before is None or before.leader != event.leader:
        return None
    return None if any(_has_epoch(log, before.leader_epoch, event.leader_epoch) for log in logs) else before


def _has_epoch(log: ReplicaLog, low: int, high: int) -> bool:
    return any(low <= epoch < high for epoch, _ in log.epochs)


def parts_at(log: ReplicaLog, leader: ReplicaLog, first: int) -> int:
    """Where a log parts from the leader's: at `first`, or before it where both have other epochs at one offset.

    That is so where an earlier election had already parted them. Logs that parted never hold the same again (KIP-101).
    """
    starts = sorted({start for _, start in (*log.epochs, *leader.epochs) if start < first})
    for start in starts:
        is_in_both = all(each.epochs and each.epochs[0][1] <= start for each in (log, leader))
        if is_in_both and _epoch_at(log.epochs, start) != _epoch_at(leader.epochs, start):
            return start
    return first


def to_offset(event: DoubtfulElection, logs: Iterable[ReplicaLog]) -> int | None:
    """The offset after the last that a stopped, sure holder had; None unless such a disk was read before it followed.

    Running holders have been seen to end below what was lost.
    """
    ends = [
        log.log_end_offset
        for holder, log in _untouched(event, list(logs))
        if holder.state == _STOPPED and log.log_end_offset is not None
    ]
    return max(ends, default=None)


def is_ruled_out(event: DoubtfulElection, logs: Iterable[ReplicaLog], leader: ReplicaLog) -> bool:
    """Whether the event lost nothing: a sure holder was read before it followed, and all of its log is the leader's.

    That all disks agree now is no evidence: all may lack the same tail. So an event whose only sure holder was the
    elected leader itself, as after the crash of a sole replica, is never ruled out.

    Args:
        leader: the present leader's log, read after the event.
    """
    return any(
        _is_inside(log, leader, may_have_followed=holder.state == _RUNNING)
        for holder, log in _untouched(event, list(logs))
        if holder.state in (_STOPPED, _RUNNING)
    )


def proven_losses(
    events: Iterable[DoubtfulElection], logs: Iterable[ReplicaLog], leader: ReplicaLog, begins: int = 0
) -> list[ProvenLoss]:
    """What captured disks prove to be lost of one partition, by epoch and offset.

    A record (leader epoch, offset) is lost if some disk of the same topic id, read at any time, held it below its own
    high watermark and end, and the leader's log has, or goes on in, another epoch at that offset. It was lost by the
    first event after the last leader that surely had it. Where no checkpoint shows what the log of an event's leader
    held when it was elected, that event or a later one lost it. Records that the leader has again are not lost.

    Args:
        events: all events of the partition; their topic id is that of `leader`.
        logs: everything that was read of the partition, of any broker and time.
        leader: the present leader's log, as it was read last.
        begins: the partition's leader epoch where the metadata log begins; elections before it are not known.
    """
    epochs_of_events = sorted(event.leader_epoch for event in events)
    same = [log for log in (*logs, leader) if log.topic_id is not None and log.topic_id == leader.topic_id]
    elected = [_ElectedLog(epoch, _at_election(epoch, epochs_of_events, same, leader)) for epoch in epochs_of_events]
    cuts = sorted({*(start for log in same for _, start in log.epochs), *(log.log_end_offset or 0 for log in same)})
    pieces: dict[tuple[int, tuple[int, ...]], list[tuple[int, int, DiskId]]] = defaultdict(list)
    for log in same:
        disk = (log.broker_id, log.directory_id)
        for epoch, start, end in _visible_ranges(log):
            bounds = [start, *(cut for cut in cuts if start < cut < end), end]
            for low, high in itertools.pairwise(bounds):
                if _lacks(leader, epoch, low):
                    seen = _last_seen(epoch, low, same)
                    candidates = _losers(epoch, low, elected, seen)
                    if candidates:
                        candidates = candidates if seen >= begins else (BEFORE_THE_LOG, *candidates)
                        pieces[epoch, candidates].append((low, high, disk))
    losses = [
        ProvenLoss(LostRange(epoch, low, high), candidates, disks)
        for (epoch, candidates), parts in pieces.items()
        for low, high, disks in _joined(parts)
    ]
    return sorted(losses, key=lambda loss: (loss.range.leader_epoch, loss.range.from_offset, loss.events))


def vanished_epochs(acknowledging: Iterable[int], leader: ReplicaLog) -> tuple[int, ...]:
    """Leader epochs in which acks=all could succeed and of which the leader's checkpoint has nothing.

    Evidence, no proof: an epoch in which nothing was written leaves nothing either. Epochs below the checkpoint's first
    may have been deleted by retention, those above its last came after it was read.

    Args:
        acknowledging: leader epochs that the metadata log shows with as many members of the ISR as min ISR asks for.
    """
    held = {epoch for epoch, _ in leader.epochs}
    if not held:
        return ()
    return tuple(sorted({epoch for epoch in acknowledging if min(held) < epoch < max(held)} - held))


def _first_since(epochs: Sequence[tuple[int, int]], leader_epoch: int) -> tuple[int, int] | None:
    return next((entry for entry in epochs if entry[0] >= leader_epoch), None)


def _untouched(event: DoubtfulElection, logs: Sequence[ReplicaLog]) -> Iterator[tuple[PossibleHolder, ReplicaLog]]:
    """Sure holders with what was read of their disks after the event and before they followed.

    What was read before the event may have grown since.
    """
    for holder in event.holders:
        if not holder.is_sure or holder.broker_id == event.leader:
            continue
        for log in logs:
            is_its = log.broker_id == holder.broker_id and holder.directory_id in (None, log.directory_id)
            is_later = log.read_not_before_ms is not None and log.read_not_before_ms >= event.timestamp_ms
            has_followed = any(epoch >= event.leader_epoch for epoch, _ in log.epochs)
            if is_its and is_later and log.topic_id == event.topic_id and not has_followed:
                yield holder, log


def _is_inside(log: ReplicaLog, leader: ReplicaLog, *, may_have_followed: bool) -> bool:
    """Whether the (last epoch, end) of a log lies within the leader's epochs; False where either is not known.

    A log that ends exactly where the leader goes on in another epoch may have been truncated to there.
    """
    end = log.log_end_offset
    if end is None:
        return False
    written = [epoch for epoch, start in log.epochs if start < end]
    if not written:
        return end == 0 and not may_have_followed
    places = [place for place, (epoch, _) in enumerate(leader.epochs) if epoch == written[-1]]
    if not places:
        return False
    following = leader.epochs[places[0] + 1 :]
    theirs = following[0][1] if following else leader.log_end_offset
    return theirs is not None and (end < theirs if may_have_followed else end <= theirs)


def _visible_ranges(log: ReplicaLog) -> Iterator[tuple[int, int, int]]:
    """(epoch, from, to) of what a log held below its own high watermark and end."""
    visible_end = log.visible_end
    if visible_end is None:
        return
    for place, (epoch, start) in enumerate(log.epochs):
        end = log.epochs[place + 1][1] if place + 1 < len(log.epochs) else visible_end
        low = max(start, log.log_start_offset or 0)
        if low < min(end, visible_end):
            yield epoch, low, min(end, visible_end)


_Epochs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _ElectedLog:
    """The log of an event's leader as of its election, by each disk that shows it: (epochs, end)."""

    leader_epoch: int
    known: tuple[tuple[_Epochs, int], ...]

    def holds(self, epoch: int, offset: int) -> bool | None:
        """Whether it held a record; None where nothing shows it."""
        for epochs, end in self.known:
            if offset >= end:
                return False
            if offset >= epochs[0][1]:
                return _epoch_at(epochs, offset) == epoch
        return None


def _at_election(
    epoch: int, epochs_of_events: Sequence[int], logs: Sequence[ReplicaLog], leader: ReplicaLog
) -> tuple[tuple[_Epochs, int], ...]:
    """Whoever has an entry of the epoch has, below it, the log of that epoch's leader.

    An epoch in which nothing was written leaves no entry with followers. Then the next epoch that the leader has began
    where that one did, unless it was an event itself, or another one came in between.
    """
    known = [(log.epochs, start) for log in logs for entry, start in log.epochs if entry == epoch]
    following = _first_since(leader.epochs, epoch)
    if following is not None and not any(epoch < later <= following[0] for later in epochs_of_events):
        known.append((leader.epochs, following[1]))
    return tuple(known)


def _losers(epoch: int, offset: int, elected: Sequence[_ElectedLog], last_seen: int) -> tuple[int, ...]:
    """The events that may have lost a record: up to the first that surely did."""
    losers: list[int] = []
    for log in elected:
        if log.leader_epoch > last_seen:
            holds = log.holds(epoch, offset)
            if holds:
                losers.clear()
                continue
            losers.append(log.leader_epoch)
            if holds is not None:
                break
    return tuple(losers)


def _last_seen(epoch: int, offset: int, logs: Sequence[ReplicaLog]) -> int:
    """The last leader epoch of a disk that holds the record: the leader of that epoch had it too."""
    seen = [
        log.epochs[-1][0]
        for log in logs
        if log.epochs and log.epochs[0][1] <= offset and _epoch_at(log.epochs, offset) == epoch
    ]
    return max(seen, default=epoch)


def _lacks(leader: ReplicaLog, epoch: int, offset: int) -> bool:
    """Whether the leader's log surely has another record there, or goes on without it."""
    epochs = leader.epochs
    is_known = bool(epochs) and epochs[0][1] <= offset and epochs[-1][0] > epoch
    return is_known and _epoch_at(epochs, offset) != epoch


def _epoch_at(epochs: _Epochs, offset: int) -> int:
    """The epoch that an offset at or after the first entry lies in, if the log reaches it."""
    return max(entry for entry, start in epochs if start <= offset)


def _joined(pieces: Iterable[tuple[int, int, DiskId]]) -> Iterator[tuple[int, int, tuple[DiskId, ...]]]:
    """Ranges that touch or overlap as one, with all disks that held a part of it."""
    low, high, disks = 0, -1, set[DiskId]()
    for start, end, disk in sorted(pieces, key=lambda piece: piece[:2]):
        if start > high:
            if disks:
                yield low, high, _sorted(disks)
            low, high, disks = start, end, {disk}
        else:
            high = max(high, end)
            disks.add(disk)
    if disks:
        yield low, high, _sorted(disks)


def _sorted(disks: Iterable[DiskId]) -> tuple[DiskId, ...]:
    return tuple(sorted(disks, key=lambda disk: (disk[0], disk[1] or "")))
