"""What disks prove of lost records: cases by hand, and a model of replicas whose losses are known record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.losses.disk_proofs import (
    DoubtfulElection,
    LostRange,
    PossibleHolder,
    ProvenLoss,
    from_offset,
    is_ruled_out,
    leader_log,
    lost_from,
    proven_losses,
    to_offset,
    vanished_epochs,
)
from kraft_audit.losses.replica_disks import ReplicaLog

TOPIC_ID, OTHER_ID = "AAAAAAAAAAAAAAAAAAAABQ", "AAAAAAAAAAAAAAAAAAAABw"
EVENT_MS = 50_000


def holder(broker_id: int, state: str, *, is_sure: bool = True, directory_id: str | None = None) -> PossibleHolder:
    return PossibleHolder(broker_id, directory_id, state, is_sure)


def election(
    leader: int, leader_epoch: int, holders: Sequence[PossibleHolder] = (), rival_since: int | None = None
) -> DoubtfulElection:
    return DoubtfulElection(TOPIC_ID, leader, leader_epoch, EVENT_MS, tuple(holders), rival_since)


def disk(
    broker_id: int,
    *epochs: tuple[int, int],
    end: int | None = None,
    high_watermark: int | None = None,
    topic_id: str = TOPIC_ID,
    read_ms: int | None = EVENT_MS,
    capture: int = 0,
) -> ReplicaLog:
    last = epochs[-1][0] if epochs else None
    log = ReplicaLog(broker_id, end, last, high_watermark, epochs, topic_id)
    return replace(log, read_not_before_ms=read_ms, capture_number=capture)


def proofs(
    events: Sequence[DoubtfulElection], logs: Sequence[ReplicaLog], leader: ReplicaLog
) -> list[tuple[object, ...]]:
    found = proven_losses(events, [*logs, leader], leader)
    return [
        (each.range.leader_epoch, each.range.from_offset, each.range.to_offset, each.events, each.disks)
        for each in found
    ]


def test_an_unclean_leader_that_lacks_what_stopped_disks_hold() -> None:
    """9..17 were acknowledged by 12 and 13, both down; 11 was elected with 9 records and went on."""
    leader = disk(11, (1, 0), (7, 9), end=14, high_watermark=14)
    stopped = [disk(broker, (1, 0), end=18, high_watermark=18) for broker in (12, 13)]
    event = election(11, 7, [holder(12, "stopped"), holder(13, "down")])
    assert from_offset(leader, 7) == 9
    assert proofs([event], stopped, leader) == [(1, 9, 18, (7,), ((12, None), (13, None)))]
    assert to_offset(event, stopped) == 18
    assert not is_ruled_out(event, stopped, leader)


def test_the_leaders_own_watermark_from_before_it_crashed() -> None:
    """T0..T4 of KIP-966: 12..16 were visible on broker 1's own disk, then gone with its page cache."""
    before = disk(1, (4, 0), end=17, high_watermark=17, read_ms=EVENT_MS - 1)
    leader = disk(1, (4, 0), (5, 12), end=12, high_watermark=12, capture=1)
    event = election(1, 5)
    assert proofs([event], [before], leader) == [(4, 12, 17, (5,), ((1, None),))]
    assert not is_ruled_out(event, [before], leader), "the crash of a sole replica"
    assert leader_log([before, leader], TOPIC_ID, 1, 5) is leader
    assert leader_log([before], TOPIC_ID, 1, 5) is None, "it was read before the event"
    assert leader_log([before, leader], OTHER_ID, 1, 5) is None


@pytest.mark.parametrize(
    ("held", "lost"),
    [
        (disk(12, (1, 0), end=18, high_watermark=9), []),
        (disk(12, (1, 0), end=18, high_watermark=11), [(1, 9, 11)]),
        (disk(12, (1, 0), end=10, high_watermark=18), []),  # truncated since: 18 may be of a log before
        (disk(12, (1, 0), (3, 11), end=14, high_watermark=18), [(1, 9, 11)]),
        (disk(12, (1, 0), end=18, high_watermark=None), []),
        (disk(12, (1, 0), high_watermark=18), [(1, 9, 18)]),
        (disk(12, (1, 0), (3, 11), end=18, high_watermark=18), [(1, 9, 11), (3, 11, 18)]),
        (disk(12, (1, 0), (7, 9), end=18, high_watermark=18), []),
        (disk(12, (1, 0), end=18, high_watermark=18, topic_id=OTHER_ID), []),
        (replace(disk(12, (1, 0), (3, 11), high_watermark=18), is_watermark_older=True), [(1, 9, 11)]),
        (replace(disk(12, (1, 0), end=18, high_watermark=18), log_start_offset=15), [(1, 15, 18)]),
        (replace(disk(12, end=18, high_watermark=18)), []),
    ],
)
def test_only_what_a_disk_surely_held_below_its_own_watermark(
    held: ReplicaLog, lost: list[tuple[int, int, int]]
) -> None:
    leader = disk(11, (1, 0), (7, 9), end=30, high_watermark=30)
    found = proven_losses([election(11, 7)], [held, leader], leader)
    assert [each.range for each in found] == [LostRange(*each) for each in lost]


def test_one_offset_lost_twice() -> None:
    """Offset 9 of epoch 1 went with epoch 3, offset 9 of epoch 3 with epoch 5."""
    leader = disk(3, (1, 0), (5, 9), end=20, high_watermark=20)
    first = disk(1, (1, 0), end=12, high_watermark=12)
    second = disk(2, (1, 0), (3, 9), end=11, high_watermark=11)
    assert proofs([election(2, 3), election(3, 5)], [first, second], leader) == [
        (1, 9, 12, (3,), ((1, None),)),
        (3, 9, 11, (5,), ((2, None),)),
    ]


def test_a_loss_belongs_to_the_first_event_and_not_to_a_later_harmless_one() -> None:
    leader = disk(3, (1, 0), (3, 9), (6, 40), end=50, high_watermark=50)
    held = disk(1, (1, 0), end=45, high_watermark=45)
    assert proofs([election(2, 3), election(3, 6)], [held], leader) == [(1, 9, 45, (3,), ((1, None),))]


def test_without_a_checkpoint_that_shows_which_it_was_one_of_them() -> None:
    """The leader has nothing of epoch 3: where broker 2's log ended when it was elected, its disk alone says."""
    leader = disk(3, (1, 0), (6, 9), end=50, high_watermark=50)
    held = disk(1, (1, 0), end=20, high_watermark=20)
    events = [election(2, 3), election(3, 6)]
    assert proofs(events, [held], leader) == [(1, 9, 20, (3, 6), ((1, None),))]
    second = disk(2, (1, 0), (3, 14), end=15, high_watermark=9)
    assert proofs(events, [held, second], leader) == [
        (1, 9, 14, (6,), ((1, None),)),
        (1, 14, 20, (3,), ((1, None),)),
    ]
    (shared, *_) = proven_losses(events, [held], leader)
    assert shared == ProvenLoss(LostRange(1, 9, 20), (3, 6), ((1, None),))
    assert not shared.is_of_one_event


def test_a_leader_that_parted_before_its_log_ended() -> None:
    """Broker 3 was cut off with 17 records of epoch 3; 7 and 8 of epoch 6 were visible when it was elected again."""
    held = disk(2, (3, 0), (6, 7), end=11, high_watermark=9)
    leader = disk(3, (3, 0), (8, 17), end=23, high_watermark=23)
    event = election(3, 8, rival_since=6)
    losses = proven_losses([event], [held], leader)
    assert [(loss.range, loss.events) for loss in losses] == [(LostRange(6, 7, 9), (8,))]
    assert from_offset(leader, 8) == 17
    assert lost_from(event, [event], [held], losses, leader) is None, (
        "it followed the leader of epoch 6, as far as is known, never"
    )


def test_where_a_loss_begins_is_known_of_a_replica_that_followed_the_leader_before() -> None:
    event = election(3, 8, rival_since=6)
    followed = disk(3, (3, 0), (7, 14), (8, 17), end=23, high_watermark=23)
    assert lost_from(event, [event], [], [], followed) == 17
    assert lost_from(replace(event, rival_since=8), [event], [], [], followed) is None
    apart = disk(3, (3, 0), (8, 17), end=23, high_watermark=23)
    assert lost_from(event, [event], [], [], apart) is None
    assert lost_from(replace(event, rival_since=None), [event], [], [], apart) == 17, "it led itself, or was in the ISR"


def test_where_a_loss_begins_is_hidden_by_a_later_event_of_another_log() -> None:
    """Broker 2 lost from epoch 3 on, broker 3 from epoch 6 on: what broker 2's log held is on no disk that was read."""
    first, second = election(2, 3), election(3, 6)
    unseen = disk(3, (1, 0), (6, 9), end=50, high_watermark=50)
    assert [lost_from(each, [first, second], [], [], unseen) for each in (first, second)] == [None, 9]
    seen = disk(3, (1, 0), (3, 5), (6, 9), end=50, high_watermark=50)
    assert [lost_from(each, [first, second], [], [], seen) for each in (first, second)] == [5, 9]
    assert lost_from(first, [first, replace(second, leader=2)], [], [], unseen) == 9, "one log"


def test_what_a_later_leader_has_again_was_lost_by_the_one_after_it() -> None:
    """Epoch 5 began without 9..14, epoch 7 on a disk that has them, epoch 9 without them."""
    again = disk(2, (1, 0), (7, 15), end=16, high_watermark=16)
    leader = disk(1, (1, 0), (9, 9), end=30, high_watermark=30)
    found = proven_losses([election(1, 5), election(2, 7), election(1, 9)], [again, leader], leader)
    assert [(loss.range, loss.events) for loss in found] == [(LostRange(1, 9, 15), (9,)), (LostRange(7, 15, 16), (9,))]
    back = disk(2, (1, 0), (7, 15), end=30, high_watermark=30)
    assert proven_losses([election(1, 5), election(2, 7)], [disk(3, (1, 0), end=15, high_watermark=15)], back) == []


def test_an_offset_that_retention_moved_is_no_bound() -> None:
    assert from_offset(disk(1, (7, 9)), 7) is None
    assert from_offset(disk(1, (7, 0)), 7) == 0
    assert from_offset(disk(1, (3, 9), (8, 11)), 7) == 11
    assert from_offset(disk(1, (3, 9)), 7) is None
    assert from_offset(disk(1), 7) is None
    held = disk(12, (1, 0), end=18, high_watermark=18)
    (loss,) = proven_losses([election(11, 7)], [held], disk(11, (7, 9), end=30))
    assert loss.range == LostRange(1, 9, 18), "what the leader has there is of epoch 7; below it has nothing any more"


@pytest.mark.parametrize(
    ("possible", "read", "is_ruled_out_by_it"),
    [
        (holder(12, "stopped"), disk(12, (1, 0), end=9), True),
        (holder(12, "stopped"), disk(12, (1, 0), (2, 9), end=9), True),
        (holder(12, "stopped"), disk(12, end=0), True),
        (holder(12, "stopped"), disk(12, (1, 0), end=10), False),
        (holder(12, "stopped"), disk(12, (1, 0), (2, 8), end=9), False),
        (holder(12, "stopped"), disk(12, (1, 0)), False),
        (holder(12, "stopped"), disk(12, end=9), False),
        (holder(12, "stopped"), disk(12, (1, 0), end=9, read_ms=EVENT_MS - 1), False),
        (holder(12, "stopped"), disk(12, (1, 0), end=9, read_ms=None), False),
        (holder(12, "stopped"), disk(12, (1, 0), (7, 9), end=9), False),
        (holder(12, "stopped"), disk(12, (1, 0), end=9, topic_id=OTHER_ID), False),
        (holder(12, "stopped", directory_id="b"), disk(12, (1, 0), end=9), False),
        (holder(12, "stopped", is_sure=False), disk(12, (1, 0), end=9), False),
        (holder(12, "down"), disk(12, (1, 0), end=9), False),
        (holder(12, "gone"), disk(12, (1, 0), end=9), False),
        (holder(12, "running"), disk(12, (1, 0), end=8), True),
        (holder(12, "running"), disk(12, (1, 0), end=9), False),
        (holder(12, "running"), disk(12, end=0), False),
        (holder(11, "running"), disk(11, (1, 0), end=8), False),
    ],
)
def test_ruled_out_by_a_sure_holder_that_ends_inside_the_leaders_log(
    possible: PossibleHolder, read: ReplicaLog, is_ruled_out_by_it: bool
) -> None:
    leader = disk(11, (1, 0), (7, 9), end=30, high_watermark=30)
    assert is_ruled_out(election(11, 7, [possible]), [read], leader) is is_ruled_out_by_it


def test_the_end_of_stopped_sure_holders_alone() -> None:
    holders = [holder(12, "stopped"), holder(13, "running"), holder(14, "stopped", is_sure=False), holder(15, "down")]
    logs = [disk(broker, (1, 0), end=broker) for broker in (12, 13, 14, 15)]
    assert to_offset(election(11, 7, holders), logs) == 12
    assert to_offset(election(11, 7, holders), [replace(logs[0], log_end_offset=None)]) is None
    assert to_offset(election(11, 7, holders), logs[1:]) is None


def test_epochs_that_left_nothing() -> None:
    leader = disk(11, (2, 0), (5, 9), (8, 30))
    assert vanished_epochs([1, 2, 3, 4, 5, 7, 7, 9], leader) == (3, 4, 7)
    assert vanished_epochs([1, 2], disk(11)) == ()


Record = tuple[int, int]
"""(leader epoch, offset)."""


@dataclass
class Replicas:
    """Three replicas of a partition, record by record.

    `visible` says in which epoch a record came below the high watermark; the leader has those in `held`. `lost_by` are
    the epochs of the elections that took one away, `may_lose` the elections outside the ISR.
    """

    logs: dict[int, list[int]] = field(default_factory=lambda: {1: [], 2: [], 3: []})
    epochs: dict[int, list[Record]] = field(default_factory=lambda: {1: [(1, 0)], 2: [], 3: []})
    marks: dict[int, int] = field(default_factory=lambda: {1: 0, 2: 0, 3: 0})
    isr: set[int] = field(default_factory=lambda: {1, 2, 3})
    leader: int = 1
    epoch: int = 1
    visible: dict[Record, int] = field(default_factory=dict)
    held: set[Record] = field(default_factory=set)
    lost_by: dict[Record, set[int]] = field(default_factory=dict)
    may_lose: list[DoubtfulElection] = field(default_factory=list)

    def append(self, count: int) -> None:
        self.logs[self.leader] += [self.epoch] * count

    def fetch(self, broker: int, count: int) -> None:
        if broker == self.leader:
            return
        own, theirs = self.logs[broker], self.logs[self.leader]
        same = next((at for at, pair in enumerate(zip(own, theirs, strict=False)) if pair[0] != pair[1]), None)
        same = min(len(own), len(theirs)) if same is None else same
        del own[same:]
        self.epochs[broker] = [entry for entry in self.epochs[broker] if entry[1] < same]
        for epoch in theirs[same : same + count]:
            if not self.epochs[broker] or self.epochs[broker][-1][0] != epoch:
                self.epochs[broker].append((epoch, len(own)))
            own.append(epoch)
        self.marks[broker] = min(self.marks[self.leader], len(own))

    def commit(self) -> None:
        end = min(len(self.logs[broker]) for broker in self.isr)
        self.marks[self.leader] = max(self.marks[self.leader], end)
        own = self.logs[self.leader]
        self.held |= {(own[at], at) for at in range(self.marks[self.leader])}
        for record in self.held:
            self.visible.setdefault(record, self.epoch)

    def join(self, broker: int) -> None:
        self.fetch(broker, 1_000)
        self.isr.add(broker)

    def leave(self, broker: int) -> None:
        if broker != self.leader:
            self.isr.discard(broker)

    def elect(self, broker: int, epochs_skipped: int) -> None:
        self.epoch += 1 + epochs_skipped
        is_clean = broker in self.isr
        self.leader = broker
        own = self.logs[broker]
        if self.epochs[broker] and self.epochs[broker][-1][1] == len(own):
            self.epochs[broker].pop()
        self.epochs[broker].append((self.epoch, len(own)))
        if is_clean:
            for follower in self.isr:
                self.fetch(follower, 1_000)
        else:
            self.isr = {broker}
            self.may_lose.append(election(broker, self.epoch))
        held = self.visible.keys() & set(zip(own, range(len(own)), strict=True))
        assert not (is_clean and self.held - held), "an election within the ISR loses nothing"
        for record in self.held - held:
            self.lost_by.setdefault(record, set()).add(self.epoch)
        self.held = held

    @property
    def absent(self) -> set[Record]:
        return self.visible.keys() - self.held

    def read(self, broker: int, capture: int) -> ReplicaLog:
        epochs = self.epochs[broker]
        return disk(broker, *epochs, end=len(self.logs[broker]), high_watermark=self.marks[broker], capture=capture)


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("fetch"), st.integers(1, 3), st.integers(0, 5)),
    st.tuples(st.just("commit")),
    st.tuples(st.just("join"), st.integers(1, 3)),
    st.tuples(st.just("leave"), st.integers(1, 3)),
    st.tuples(st.just("elect"), st.integers(1, 3), st.integers(0, 1)),
    st.tuples(st.just("read"), st.integers(1, 3)),
)


def _played(steps: Sequence[tuple[str, *tuple[int, ...]]], reads_all: bool) -> tuple[Replicas, list[ReplicaLog]]:
    replicas, logs = Replicas(), []
    for number, (name, *numbers) in enumerate(steps):
        if name == "elect" and reads_all:
            logs += [replicas.read(broker, number) for broker in (1, 2, 3)]
        if name == "read":
            logs.append(replicas.read(numbers[0], number))
        else:
            getattr(replicas, name)(*numbers)
    logs.append(replicas.read(replicas.leader, len(steps)))
    return replicas, logs


@given(st.lists(STEPS, min_size=4, max_size=40), st.booleans())
def test_what_is_proven_is_lost_by_that_event(steps: list[tuple[str, *tuple[int, ...]]], reads_all: bool) -> None:
    """Against the model's record by record; where every disk is read before each election, nothing is missed.

    What became visible only when a later leader brought it back may be given to the event before that leader.
    """
    replicas, logs = _played(steps, reads_all)
    leader = logs[-1]
    found = proven_losses(replicas.may_lose, logs, leader)
    proven: set[Record] = set()
    for loss in found:
        for offset in range(loss.range.from_offset, loss.range.to_offset):
            record = (loss.range.leader_epoch, offset)
            assert record in replicas.absent
            assert record not in proven
            assert replicas.lost_by[record] & set(loss.events) or min(loss.events) <= replicas.visible[record]
            proven.add(record)
    if reads_all:
        assert proven == replicas.absent
    for event in replicas.may_lose[:1]:  # later leaders may have parted below the end of their logs
        start = from_offset(leader, event.leader_epoch)
        lost = [record[1] for record in replicas.absent if event.leader_epoch in replicas.lost_by[record]]
        assert start is None or not lost or start <= min(lost)
