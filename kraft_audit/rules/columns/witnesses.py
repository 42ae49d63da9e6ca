"""Which replicas surely hold every acknowledged record of a partition, and elections that passed them over.

A *witness* of a partition holds every record that was below its high watermark, or acknowledged with acks=all. Members
of the ISR are witnesses from the moment that a leader takes them in. One stays a witness outside the ISR while that is
below min.insync.replicas, because nothing is acknowledged meanwhile (KIP-966; since 3.7 the watermark waits too,
KAFKA-15583). It is none any more once enough others acknowledge without it, once it comes back from a crash, which may
have taken what it had not flushed, once it is no replica, and once its directory was replaced.

A record that lets another replica lead than a witness is a *loss event*: the log of that leader becomes the truth.
Only this module says who the witnesses of a partition are. It reads `partition_changes` and `broker_changes` alone.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory, once_per_history
from kraft_audit.rules.columns.broker_returns import BrokerReturn, broker_returns, feature_levels, is_reserved
from kraft_audit.rules.columns.frame import distinct
from kraft_audit.rules.columns.log_batches import operation_ends
from kraft_audit.rules.columns.min_isr_settings import MinIsrChange, min_isr_settings
from kraft_audit.rules.columns.nodes import broker_states
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.rules.columns.walked_partitions import may_pass_over, moved_directories
from kraft_audit.tables.silver import SNAPSHOT
from kraft_codec.schemas.releases import FIRST_LEVEL_WITH_WAITING_WATERMARK, METADATA_VERSION_FEATURE


class Reason(enum.StrEnum):
    """Why a replica is no witness any more."""

    LEFT = "left"
    CRASHED = "crashed"
    REMOVED = "removed"
    EMPTIED = "emptied"
    PASSED = "passed"


class Label(enum.StrEnum):
    """How a replica came to lead that was no witness."""

    UNCLEAN_ELECTION = "unclean_election"
    LAST_KNOWN_LEADER = "last_known_leader"
    CAME_BACK_ALONE = "came_back_alone"
    STALE_ELIGIBLE = "stale_eligible"
    EMPTIED_REPLICA = "emptied_replica"
    OUTSIDE_ELIGIBLE = "outside_eligible"
    BEFORE_THE_LOG = "before_the_log"


@dataclass(frozen=True, slots=True)
class Leaving:
    """When a replica ceased to be a witness: the record's offset and time, and the partition's leader epoch then.

    `row` is the row of `partition_states` in effect.
    """

    broker_id: int
    reason: Reason
    offset: int
    timestamp_ms: int
    leader_epoch: int
    row: int


@dataclass(frozen=True, slots=True)
class LossEvent:
    """A record that made a replica lead that was no witness of everything acknowledged.

    `row` is the row of `partition_states` in effect from it on, `witnesses` are those before it, `leavings` how every
    other replica ceased to be one, by broker. `own` is the elected leader's own leaving; None where it never was one.
    `directories` are those of the replicas before it.
    """

    row: int
    label: Label
    topic: str
    topic_id: str
    partition: int
    offset: int
    timestamp_ms: int
    leader_id: int
    leader_epoch: int
    replaced_leader_id: int
    witnesses: frozenset[int]
    own: Leaving | None
    leavings: Mapping[int, Leaving]
    replicas: tuple[int, ...]
    directories: Mapping[int, str]
    min_isr: int

    @property
    def is_own_crash(self) -> bool:
        """Whether the leader's own disk may lack its tail; else it was passed over while others went on."""
        return self.own is not None and self.own.reason in (Reason.CRASHED, Reason.EMPTIED)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def key(self) -> str:
        """What identifies it within a history: the partition by the topic's id, and the leader epoch."""
        return f"{self.topic_id}-{self.partition} {self.leader_epoch}"


@dataclass(frozen=True, slots=True)
class Witnesses:
    """The witnesses of a partition as after a row and all that happened before the next one.

    `since` is the newest loss event: they hold what was acknowledged after it, and maybe not what was before.
    """

    members: frozenset[int]
    since: LossEvent | None


def witnesses(history: ClusterHistory, row: int) -> Witnesses:
    """The witnesses of the partition of a row of `partition_states`, until its next row."""
    states = partition_states(history)
    walked = walked_partition(history, states.newest_row(row))
    return walked.after[row - walked.first]


@once_per_history
def loss_events(history: ClusterHistory) -> list[LossEvent]:
    """Every loss event, in the order of the log."""
    return sorted(_loss_events(history), key=lambda e: (e.offset, e.topic, e.partition))


def _loss_events(history: ClusterHistory) -> Iterator[LossEvent]:
    states = partition_states(history)
    if not len(states):
        return
    for newest in distinct(states.newest_rows(may_pass_over(history, states))).tolist():
        yield from walked_partition(history, newest).events


# The walk over one partition


@dataclass(frozen=True, slots=True)
class WalkedPartition:
    """A partition from its first row on: its witnesses after each row, and its loss events."""

    first: int
    after: Sequence[Witnesses]
    events: Sequence[LossEvent]


def walked_partition(history: ClusterHistory, newest: int) -> WalkedPartition:
    """The walk over the partition whose newest row this is; made once."""
    walks: dict[int, WalkedPartition] = history.known("walks", dict)
    if newest not in walks:
        walks[newest] = _Walk(history, newest).walked()
    return walks[newest]


@once_per_history
def _return_offsets(history: ClusterHistory) -> list[int]:
    return [each.offset for each in broker_returns(history)]


@once_per_history
def _moved_rows(history: ClusterHistory) -> frozenset[int]:
    """Rows that assign directories, of partitions that had one which its broker has lost since."""
    return frozenset(moved_directories(history, partition_states(history)).tolist())


class _Walk:
    """The witnesses of one partition, record by record."""

    def __init__(self, history: ClusterHistory, newest: int) -> None:
        self.history = history
        self.states = states = partition_states(history)
        self.first = states.first_row(newest)
        self.newest = newest
        self.members: frozenset[int] = frozenset()
        self.leavings: dict[int, Leaving] = {}
        self.events: list[LossEvent] = []
        self._settings = min_isr_settings(history)
        self._moved = _moved_rows(history)
        self._levels = feature_levels(history, METADATA_VERSION_FEATURE)
        self._returns = broker_returns(history)
        self._offsets = _return_offsets(history)

    def walked(self) -> WalkedPartition:
        states, after = self.states, []
        for row in range(self.first, self.newest + 1):
            if row > self.first:
                if not self._begins_anew(row):  # who led when brokers came back within a gap is not known
                    self._pass(row - 1, int(states.from_offset[row]))
                after.append(self._now())
            self._step(row)
        self._pass(self.newest, np.iinfo(np.int64).max)
        after.append(self._now())
        return WalkedPartition(self.first, after, self.events)

    def _now(self) -> Witnesses:
        return Witnesses(self.members, self.events[-1] if self.events else None)

    def _step(self, row: int) -> None:
        """One row: it begins anew, or replicas join, one is elected, others leave."""
        states = self.states
        if not states.exists[row]:
            self.members = frozenset()
            return
        isr, leader = states.nodes("isr", row), int(states.leader[row])
        if row == self.first or self._begins_anew(row):
            self._begin(row, isr, leader)
            return
        joined = self._joining(row, isr)
        self._join(joined)
        self._empty(row)
        if leader >= 0 and states.leader_epoch[row] != states.leader_epoch[row - 1]:
            if states.recovering[row] and states.leader[row - 1] != leader:
                self._register(row, leader)
            self._elect(row, leader, joined)
            self._go_on_without_crashed(leader)
        self._leave(row, isr)

    def _begins_anew(self, row: int) -> bool:
        """Whether the row is of a snapshot, or other changes of the partition are missing before it."""
        states = self.states
        if states.value("cause", row) in (SNAPSHOT, "replaced"):
            return True
        return bool(states.partition_epoch[row] - states.partition_epoch[row - 1] > 1)

    def _begin(self, row: int, isr: Sequence[int], leader: int) -> None:
        states = self.states
        self.members = frozenset()
        self._join({*isr, *states.nodes("elr", row)})
        is_snapshot = states.value("cause", row) == SNAPSHOT
        if is_snapshot and states.recovering[row] and states.size_of("replicas", row) > 1 and not self.events:
            self.events.append(self._event(row, Label.BEFORE_THE_LOG, leader, None))

    def _joining(self, row: int, isr: Sequence[int]) -> set[int]:
        """Whom a standing leader takes into the ISR. A record that elects another one adds none but who a completed
        reassignment brought in: a member of the ELR that it elects comes as it is."""
        states = self.states
        if states.leader[row - 1] < 0 or states.recovering[row]:
            return set()
        joining = set(isr).difference(states.nodes("isr", row - 1))
        if states.leader[row] not in (states.leader[row - 1], -1):
            joining &= set(states.nodes("adding_replicas", row - 1)).difference(states.nodes("adding_replicas", row))
        return joining

    def _join(self, joining: Set[int]) -> None:
        self.members |= joining
        for broker in joining:
            self.leavings.pop(broker, None)

    def _register(self, row: int, leader: int) -> None:
        """The crash of a replica that registers in the operation that elects it, where its registration comes last.

        Kafka 4.0 elects the last known leader in the operation that takes it out of the ELR for an unclean stop; later
        releases wait until it is unfenced (PartitionChangeBuilder.canElectLastKnownLeader, 4.0.2 and 4.1.0).
        """
        offset = int(self.states.from_offset[row])
        (end,) = operation_ends(self.history, np.array([offset], np.int64)).tolist()
        for each in self._returns[bisect_right(self._offsets, offset) : bisect_left(self._offsets, end)]:
            if each.broker_id == leader and leader in self.members:
                self._leaves(leader, Reason.CRASHED, row - 1, each)

    def _elect(self, row: int, leader: int, joined: Set[int]) -> None:
        """A witness that was not eligible is a row as well: nobody but the log says that it held everything."""
        states = self.states
        if leader not in self.members:
            self._happened(row, self._label(row, leader), leader)
        elif leader not in {*states.nodes("isr", row - 1), *states.nodes("elr", row - 1), *joined}:
            self.events.append(self._event(row, Label.OUTSIDE_ELIGIBLE, leader, None))

    def _go_on_without_crashed(self, leader: int) -> None:
        """Who crashed before another leader begins lacks what that one writes, and not only its own tail."""
        for broker, each in self.leavings.items():
            if each.reason is Reason.CRASHED and broker != leader:
                self.leavings[broker] = replace(each, reason=Reason.PASSED)

    def _label(self, row: int, leader: int) -> Label:
        states = self.states
        leaving = self.leavings.get(leader)
        if leaving is not None and leaving.reason is Reason.EMPTIED:
            return Label.EMPTIED_REPLICA
        if leader in states.nodes("isr", row - 1):
            return Label.CAME_BACK_ALONE
        # Its own unclean registration may take it out of the ELR in the record that elects it.
        others = set(states.nodes("elr", row - 1)).difference({leader} if states.recovering[row] else ())
        is_empty = not states.nodes("isr", row - 1) and not others
        if is_empty and leader in states.nodes("last_known_elr", row - 1):
            return Label.LAST_KNOWN_LEADER
        if leader in states.nodes("elr", row - 1):
            return Label.STALE_ELIGIBLE
        return Label.UNCLEAN_ELECTION

    def _leave(self, row: int, isr: Sequence[int], at: MinIsrChange | None = None) -> None:
        """Who is no replica any more, and who is not in sync while enough others are, from a row or a change on."""
        replicas = set(self.states.nodes("replicas", row))
        for broker in self.members - replicas:
            self._leaves(broker, Reason.REMOVED, row)
        offset = int(self.states.from_offset[row]) if at is None else at.offset
        waits = self._levels.at(offset) >= FIRST_LEVEL_WITH_WAITING_WATERMARK
        if len(isr) >= (self._min_isr(row, offset) if waits else 1):
            for broker in self.members.difference(isr):
                self._leaves(broker, Reason.LEFT, row, at)

    def _leaves(self, broker: int, reason: Reason, row: int, at: BrokerReturn | MinIsrChange | None = None) -> None:
        states = self.states
        self.members -= {broker}
        self.leavings[broker] = Leaving(
            broker,
            reason,
            int(states.from_offset[row]) if at is None else at.offset,
            int(states.timestamp_ms[row]) if at is None else at.timestamp_ms,
            int(states.leader_epoch[row]),
            row,
        )

    def _empty(self, row: int) -> None:
        """A replica that got another directory because its broker has lost the one that it was in.

        The registration that has the new directory says so: a broker that comes back was seen to assign directories
        under its old broker epoch, before it registered (4.0.2).
        """
        states = self.states
        if row not in self._moved:
            return
        offset = int(states.from_offset[row])
        before, after = self._directories(row - 1), self._directories(row)
        for broker, directory in before.items():
            moved = after.get(broker, directory)
            if moved == directory or is_reserved(directory) or is_reserved(moved):
                continue
            log_dirs = self._registered(broker, moved, offset)
            if directory in log_dirs or not log_dirs:
                continue
            self._leaves(broker, Reason.EMPTIED, row)
            if states.leader[row] == broker and states.leader_epoch[row] == states.leader_epoch[row - 1]:
                self._happened(row, Label.EMPTIED_REPLICA, broker)

    def _registered(self, broker: int, directory: str, offset: int) -> Sequence[str]:
        """The directories of the first registration, from the one in effect on, that has this one; else of that one."""
        known = broker_states(self.history).get(broker)
        if known is None:
            return ()
        newest = known.at(offset)
        later = known.rows[int(np.searchsorted(known.offsets, offset, side="right")) :]
        rows = [row for row in (newest, *later) if row is not None]
        having = (row["log_dirs"] for row in rows if directory in row["log_dirs"])
        return next(having, () if newest is None else newest["log_dirs"])

    def _directories(self, row: int) -> dict[int, str]:
        replicas, directories = self.states.nodes("replicas", row), self.states.value("directories", row) or []
        return dict(zip(replicas, directories, strict=False))

    def _pass(self, row: int, to_offset: int) -> None:
        """What happens between a row and the next one: brokers come back, and the minimum changes."""
        if not self.states.exists[row]:
            return
        after = int(self.states.from_offset[row])
        start, end = bisect_right(self._offsets, after), bisect_left(self._offsets, to_offset)
        changes = self._changed_minimums(row, after, to_offset)
        between: list[BrokerReturn | MinIsrChange] = [*self._returns[start:end], *changes]
        for at in sorted(between, key=lambda each: each.offset):
            if isinstance(at, MinIsrChange):
                self._leave(row, self.states.nodes("isr", row), at)
            else:
                self._come_back(row, at)

    def _changed_minimums(self, row: int, after: int, before: int) -> list[MinIsrChange]:
        """Changes of min.insync.replicas that write no record of the partition, where somebody may leave by them."""
        states, settings = self.states, self._settings
        has_row = states.partition[row] == 0 and not settings.is_other
        if has_row or self.members <= set(states.nodes("isr", row)):
            return []
        return settings.changes(states.topic(row), int(states.leader[row]), after, before)

    def _come_back(self, row: int, at: BrokerReturn) -> None:
        """Who comes back from a crash is no witness."""
        if not at.is_clean and at.broker_id in self.members:
            self._leaves(at.broker_id, Reason.CRASHED, row, at)
            if self.states.leader[row] == at.broker_id:
                self._happened(row, Label.CAME_BACK_ALONE, at.broker_id, at)

    def _happened(self, row: int, label: Label, leader: int, at: BrokerReturn | None = None) -> None:
        """A loss event: from now on the leader's log is the truth. What happens to one leader again, with no other
        elected in between, belongs to its election."""
        event = self._event(row, label, leader, at)
        if self.events and self.events[-1].leader_epoch == event.leader_epoch:
            earlier = self.events.pop()
            is_worse = label is Label.EMPTIED_REPLICA
            event = replace(earlier, label=label, own=event.own) if is_worse else earlier
        self.events.append(event)
        for broker in self.members - {leader}:
            self._leaves(broker, Reason.PASSED, row, at)
        self.members = frozenset({leader})
        self.leavings.pop(leader, None)

    def _event(self, row: int, label: Label, leader: int, at: BrokerReturn | None) -> LossEvent:
        states = self.states
        before = row if at is not None or states.is_first[row] else row - 1
        return LossEvent(
            row=row,
            label=label,
            topic=states.topic(row),
            topic_id=str(states.value("topic_id", row)),
            partition=int(states.partition[row]),
            offset=int(states.from_offset[row]) if at is None else at.offset,
            timestamp_ms=int(states.timestamp_ms[row]) if at is None else at.timestamp_ms,
            leader_id=leader,
            leader_epoch=int(states.leader_epoch[row]),
            replaced_leader_id=int(states.leader[before]),
            witnesses=self.members,
            own=self.leavings.get(leader),
            leavings={broker: each for broker, each in self.leavings.items() if broker != leader},
            replicas=tuple(states.nodes("replicas", row)),
            directories=self._directories(before),
            min_isr=self._min_isr(row),
        )

    def _min_isr(self, row: int, offset: int | None = None) -> int:
        """The leader's minimum: the replayed one is the controller's, which counts the replicas of partition 0 for all
        partitions of a topic (getTopicEffectiveMinIsr); a leader counts its own (Partition.effectiveMinIsr)."""
        states = self.states
        wanted = int(states.effective_min_isr[row])
        settings = self._settings
        if settings.is_other or states.partition[row] != 0:
            since = int(states.from_offset[row]) if offset is None else offset
            own = settings.of(states.topic(row), int(states.leader[row]), since)
            wanted = own if settings.is_other else max(own, wanted)
        return max(1, min(wanted, states.size_of("replicas", row)))
