"""Acknowledged or readable records that an elected leader lacks: which, by what election, and who still holds them.

A replica's records are told apart by their values, of which a run writes each once. What a replica held when the
controller elected is noted at that moment, because a broker hears of its election later.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kraft_engine.brokers.image import Image
from kraft_engine.brokers.partition import NO_LEADER, RECOVERED, UNCHANGED, Partition
from kraft_engine.brokers.replica_manager import ReplicaManager
from kraft_engine.brokers.replicas import Replica, TopicPartition
from kraft_engine.consensus.log_batches import Record
from kraft_engine.invariants.run_invariants import RaftInvariants

PARTITION_RECORDS = ("PartitionRecord", "PartitionChangeRecord")
RUNNING, STOPPED, DOWN, OFFLINE = "running", "stopped", "down", "offline"
"""The state of a holder: its broker runs; was stopped in order; was not; runs or not, and the log dir has failed."""


NEVER_HELD = "never held"
"""Why a leader lacks a record where its disk did not lose it ("unflushed", "emptied", "deleted" with its replica)."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A replica's log as it lay on its broker's disk, with the state of that broker."""

    broker: int
    directory: bytes
    state: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """Who held what when the controller wrote an election; `is_there`: the elected broker's registered process ran."""

    time_us: int
    is_there: bool
    copies: tuple[Copy, ...]


@dataclass(frozen=True, slots=True)
class Election:
    """A committed record that sets a leader, -1 too. `offset` is the record's, `append_ms` its batch's time.

    `recovering`: the partition is RECOVERING from then on.
    """

    leader_epoch: int
    leader: int
    offset: int
    append_ms: int
    recovering: bool


@dataclass(slots=True)
class OpenLoss:
    """Records lost by one election, and the brokers whose disks hold at least the first of them."""

    key: TopicPartition
    leader_epoch: int
    from_offset: int
    first_value: int
    holders: set[int] = field(default_factory=set)


class LostRecords:
    """Follows one run's records from their acknowledgement to the disk that held them last."""

    def __init__(self, raft: RaftInvariants, brokers: Mapping[int, ReplicaManager]) -> None:
        self._raft = raft
        self._brokers = brokers
        self._acknowledged: dict[TopicPartition, set[int]] = defaultdict(set)
        # The leader epochs of the committed records, by offset; why and when a broker's disk lost a value.
        self._epochs: dict[TopicPartition, list[int]] = defaultdict(list)
        self._causes: dict[tuple[int, TopicPartition], dict[int, tuple[str, int]]] = defaultdict(dict)
        self._moments: dict[tuple[TopicPartition, int, int], Moment] = {}
        self._elections: dict[TopicPartition, list[Election]] = defaultdict(list)
        self._recovering: dict[TopicPartition, bool] = {}
        self._read_batches = 0
        self._open: dict[TopicPartition, list[OpenLoss]] = defaultdict(list)

    # What happens to records

    def operation(self, image: Image, records: list[Record]) -> None:
        """Notes who holds what when the controller writes an election."""
        for name, _, fields in records:
            if name not in PARTITION_RECORDS or fields.get("leader", UNCHANGED) < 0:
                continue
            key = (fields["topicId"], fields["partitionId"])
            partition = image.partitions.get(key[0], {}).get(key[1])
            if partition is not None:
                self._moments[key, partition.leader_epoch, partition.leader] = self._moment(
                    image, key, partition.leader
                )

    def committed(self, key: TopicPartition, replica: Replica, start: int, end: int) -> None:
        """The high watermark passed the leader's records [start, end)."""
        epochs = self._epochs[key]
        del epochs[start:]
        epochs += replica.epochs[start:end]

    def acknowledged(self, key: TopicPartition, value: int) -> None:
        self._acknowledged[key].add(value)

    def lost_from_disk(self, broker: int, key: TopicPartition, values: list[int], cause: str) -> None:
        causes = self._causes[broker, key]
        for value in values:
            causes[value] = (cause, self._raft.world.now_us)
        self.look_at_copies(key)

    # What an election loses

    def lost(
        self, leader: ReplicaManager, partition: Partition, common: int, committed: list[int], led_epoch: int
    ) -> dict[str, Any]:
        """The fields of `data_lost` for the records [common, len(committed)), which this leader lacks.

        `led_epoch` is the last leader epoch before this one in which a broker led. The election is the first one since
        then that made this broker the leader while it ran with a log that lacked them.
        """
        key = (partition.topic_id, partition.index)
        lost = committed[common:]
        election = self._election(leader.id, partition, led_epoch, common, lost[0])
        moment = self._moments.get((key, election.leader_epoch, leader.id))
        copies = moment.copies if moment is not None else self._copies_of(key)
        holders = [_holder(copy, common, lost) for copy in copies if copy.broker != leader.id]
        held = [holder for holder in holders if holder["to_offset"] > common]
        causes = self._causes[leader.id, key]
        by_cause = Counter(causes[value][0] if value in causes else NEVER_HELD for value in lost)
        brokers = {holder["broker"] for holder in held}
        self._open[key].append(OpenLoss(key, election.leader_epoch, common, lost[0], brokers))
        return {
            "leader_epoch": election.leader_epoch,
            "election_offset": election.offset,
            "election_ms": election.append_ms,
            "acknowledged": sum(value in self._acknowledged[key] for value in lost),
            "ranges": self._ranges(key, common, lost),
            "causes": dict(sorted(by_cause.items())),
            "holders": held,
        }

    def acknowledged_too_late(self, key: TopicPartition, replica: Replica, offset: int) -> dict[str, Any]:
        """The fields of `data_lost` for a record that a leader acknowledges which is replaced and has not heard of it.

        The first unclean election after its own forfeits the record: one that is elected cleanly follows it until then.
        """
        self._read_elections()
        later = [
            election
            for election in self._elections[key]
            if election.leader_epoch > replica.leader_epoch and election.leader != NO_LEADER
        ]
        election = next((election for election in later if election.recovering), later[0])
        epoch = replica.epochs[offset]
        span = {"leader_epoch": epoch, "from_offset": offset, "to_offset": offset + 1, "acknowledged": 1}
        return {
            "leader": election.leader,
            "leader_epoch": election.leader_epoch,
            "election_offset": election.offset,
            "election_ms": election.append_ms,
            "acknowledged": 1,
            "ranges": [span],
            "causes": {NEVER_HELD: 1},
            "holders": [],
        }

    def _election(self, leader: int, partition: Partition, led_epoch: int, common: int, first_value: int) -> Election:
        self._read_elections()
        key = (partition.topic_id, partition.index)
        found = Election(partition.leader_epoch, leader, -1, -1, bool(partition.recovering))
        for election in reversed(self._elections[key]):
            if election.leader_epoch > partition.leader_epoch or election.leader == NO_LEADER:
                continue
            if election.leader_epoch <= led_epoch or election.leader != leader:
                break
            if found.offset >= 0 and not self._lacked(key, election, common, first_value):
                break
            found = election
        return found

    def _lacked(self, key: TopicPartition, election: Election, common: int, first_value: int) -> bool:
        """Whether the elected broker was there, and its log lacked this record then and ever after.

        A dead broker loses nothing before it has registered again: until then the controller takes it for the old one.
        """
        moment = self._moments.get((key, election.leader_epoch, election.leader))
        if moment is None or not moment.is_there:
            return False
        lost_later = self._causes[election.leader, key].get(first_value, ("", -1))[1] > moment.time_us
        own = next((copy.values for copy in moment.copies if copy.broker == election.leader), ())
        return not lost_later and own[common : common + 1] != (first_value,)

    def _read_elections(self) -> None:
        batches = self._raft.ledger.batches
        recovering = self._recovering
        for batch in batches[self._read_batches :]:
            if batch.is_control:
                continue
            for index, (name, _, fields) in enumerate(batch.records):
                if name not in PARTITION_RECORDS:
                    continue
                key = (fields["topicId"], fields["partitionId"])
                if fields.get("leaderRecoveryState", -1) != -1:
                    recovering[key] = fields["leaderRecoveryState"] != RECOVERED
                if fields.get("leader", UNCHANGED) == UNCHANGED:
                    continue
                elections = self._elections[key]
                created = name == "PartitionRecord"
                epoch = fields["leaderEpoch"] if created else elections[-1].leader_epoch + 1
                offset = batch.base_offset + index
                elections.append(
                    Election(epoch, fields["leader"], offset, batch.timestamp_ms, recovering.get(key, False))
                )
        self._read_batches = len(batches)

    def _ranges(self, key: TopicPartition, common: int, lost: list[int]) -> list[dict[str, int]]:
        """The lost offsets by the leader epoch of their records, with how many of each were acknowledged."""
        ranges: list[dict[str, int]] = []
        for offset, (epoch, value) in enumerate(zip(self._epochs[key][common:], lost, strict=False), common):
            if not ranges or ranges[-1]["leader_epoch"] != epoch:
                ranges.append({"leader_epoch": epoch, "from_offset": offset, "to_offset": offset, "acknowledged": 0})
            ranges[-1]["to_offset"] = offset + 1
            ranges[-1]["acknowledged"] += value in self._acknowledged[key]
        return ranges

    # Who holds what

    def _moment(self, image: Image, key: TopicPartition, leader: int) -> Moment:
        broker, registered = self._brokers[leader], image.brokers.get(leader, {})
        is_there = broker.running and registered.get("incarnationId") == broker.incarnation
        return Moment(self._raft.world.now_us, is_there, self._copies_of(key))

    def _copies_of(self, key: TopicPartition) -> tuple[Copy, ...]:
        copies = []
        for broker_id in sorted(self._brokers):
            broker = self._brokers[broker_id]
            replica = broker.replicas.get(key)
            if replica is not None:
                copies.append(Copy(broker_id, broker.dir_of(key), _state(broker, key), tuple(replica.values)))
        return tuple(copies)

    def look_at_copies(self, key: TopicPartition) -> None:
        """Notes which holders of lost records hold the first of them no more: `copy_gone`."""
        for loss in self._open.get(key, ()):
            for broker_id in sorted(loss.holders):
                replica = self._brokers[broker_id].replicas.get(key)
                if replica is None or replica.values[loss.from_offset : loss.from_offset + 1] != [loss.first_value]:
                    loss.holders.discard(broker_id)
                    self._raft.record(
                        "copy_gone", topic_id=key[0], partition=key[1], leader_epoch=loss.leader_epoch,
                        broker=broker_id, copies_left=len(loss.holders),
                    )  # fmt: skip

    def elected(self, leader: ReplicaManager, key: TopicPartition, partition: Partition) -> None:
        """A leader took over: where it holds records that an earlier election lost, they are back: `data_back`."""
        self.look_at_copies(key)
        for loss in self._open.get(key, ()):
            if leader.id in loss.holders and partition.leader_epoch > loss.leader_epoch:
                self._raft.record(
                    "data_back", topic_id=key[0], partition=key[1], leader_epoch=loss.leader_epoch,
                    from_offset=loss.from_offset, leader=leader.id, back_in_epoch=partition.leader_epoch,
                )  # fmt: skip


def _state(broker: ReplicaManager, key: TopicPartition) -> str:
    if broker.is_offline(key):
        return OFFLINE
    if broker.running:
        return RUNNING
    return STOPPED if broker.clean_epoch >= 0 else DOWN


def _holder(copy: Copy, common: int, lost: list[int]) -> dict[str, Any]:
    """How far a copy holds the lost records: [common, to_offset) of them are on that disk."""
    end = common
    for mine, value in zip(copy.values[common:], lost, strict=False):
        if mine != value:
            break
        end += 1
    return {
        "broker": copy.broker, "directory_id": copy.directory, "state": copy.state, "to_offset": end,
        "holds_all": end == common + len(lost),
    }  # fmt: skip
