"""Interfaces that a Raft node depends on: a witness, a dialect of membership, a state machine, an address book."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kraft_engine.brokers.image import Image
from kraft_engine.consensus.replica_log import SnapshotId
from kraft_engine.consensus.voter_sets import Endpoint, ReplicaKey, VoterSet

if TYPE_CHECKING:
    from kraft_engine.brokers.partition import Partition
    from kraft_engine.brokers.replica_manager import ReplicaManager
    from kraft_engine.brokers.replicas import Replica, TopicPartition
    from kraft_engine.consensus.leader_state import LeaderState
    from kraft_engine.consensus.log_batches import Batch
    from kraft_engine.consensus.raft import RaftNode
    from kraft_engine.invariants.switches import Switches
    from kraft_engine.world.world import World


class Witness(Protocol):
    """Sees every step that safety depends on: implemented by the invariants."""

    def role_changed(self, node: RaftNode) -> None: ...
    def persisted(self, node: RaftNode) -> None: ...
    def elected(self, node: RaftNode, voters: VoterSet, grants: tuple[ReplicaKey, ...]) -> None: ...
    def appended(self, node: RaftNode, batch: Batch, *, by_leader: bool) -> None: ...
    def synced(self, node: RaftNode) -> None: ...
    def truncating(self, node: RaftNode, end_offset: int, *, by_snapshot: bool) -> None: ...
    def watermark_moved(self, node: RaftNode, *, by_leader: bool) -> None: ...
    def voters_changed(self, node: RaftNode, offset: int, voters: VoterSet) -> None: ...
    def snapshot_made(self, node: RaftNode, snapshot_id: SnapshotId) -> None: ...
    def cleaned(self, node: RaftNode) -> None: ...
    def truncated(self, node: RaftNode) -> None: ...
    def saw_epoch(self, node: RaftNode, epoch: int) -> None: ...
    def acknowledged(self, node: RaftNode, epoch: int) -> None: ...
    def crashed(self, node: RaftNode) -> None: ...
    def note(self, node: RaftNode, text: str) -> None: ...


class Membership(Protocol):
    """A dialect's rules of membership: KIP-853 as shipped, or a draft."""

    name: str
    # The error for a request that names another voter key than the receiver's.
    wrong_voter_error: str
    # Whether a vote is persisted with the candidate's directory id although kraft.version is 0.
    votes_with_directory: bool
    # Whether a replica that does not know that it is a voter answers NOT_VOTER to BeginQuorumEpoch and EndQuorumEpoch.
    refuses_epochs_as_observer: bool
    # Whether EndQuorumEpoch names the voter that it is for (KIP-856), and is refused by any other replica.
    end_epoch_names_voter: bool

    def refuses_start(self, node: RaftNode) -> str:
        """Why a replica with this log and configuration fails to start; "" where it does not."""

    def stored_voters(self, node: RaftNode) -> tuple[tuple[int, ...], int]:
        """CurrentVoters and AppliedOffset as quorum-state is to hold them now."""

    def apply(self, node: RaftNode, batch: Batch) -> None:
        """Takes the control records of a batch that this replica has just appended."""

    def start_of_epoch(self, node: RaftNode, leader: LeaderState) -> tuple[tuple[str, int, dict[str, Any]], ...]:
        """The control records of an epoch's first batch."""

    def may_vote_for(self, node: RaftNode, candidate: ReplicaKey) -> bool:
        """Whether the dialect lets this node vote for such a candidate at all."""

    def refused(self, node: RaftNode, candidate: ReplicaKey) -> None:
        """What the dialect lets a node do that may not vote for this candidate."""

    def high_watermark_moved(self, node: RaftNode, leader: LeaderState) -> None: ...

    def poll_leader(self, node: RaftNode, leader: LeaderState, now_us: int) -> int:
        """Pending work of a leader; returns when it wants to be called again."""

    def poll_follower(self, node: RaftNode, now_us: int) -> None: ...

    def handle(self, node: RaftNode, source: int, correlation: int, body: Any) -> bool:
        """A message that is not KIP-595's; true where the dialect knows it."""

    def data_allowed(self, node: RaftNode, leader: LeaderState) -> bool:
        """Whether the state machine may write."""


class StateMachine(Protocol):
    """The state machine on top of the log: the controller."""

    def epoch_committed(self, node: RaftNode) -> None: ...
    def message(self, node: RaftNode, source: int, body: Any) -> None: ...
    def resigned(self, node: RaftNode) -> None: ...
    def watermark_moved(self, node: RaftNode) -> None: ...
    def snapshot_image(self, node: RaftNode, offset: int) -> Image | None:
        """The image to snapshot at `offset`; None where none may be taken there."""


class BrokerHost(Protocol):
    """The calls that a broker makes to the machine that it runs on."""

    world: World
    switches: Switches

    # Whether brokers say where they put replicas (KIP-858), and are unfenced only after that.
    brokers_report_directories: bool

    def node_of(self, slot: int) -> RaftNode | None: ...
    def is_paused(self, slot: int) -> bool: ...
    def stop_process(self, slot: int) -> None: ...
    def image_of(self, slot: int) -> Image: ...
    def min_isr(self, slot: int, key: TopicPartition) -> int: ...
    def watermark_min_isr(self, slot: int, key: TopicPartition) -> int:
        """How many members the ISR needs for the high watermark to move; 0 before 3.7."""

    def sees_active(self, slot: int, broker_id: int) -> bool: ...
    def became_leader(
        self, broker: ReplicaManager, key: TopicPartition, replica: Replica, partition: Partition
    ) -> None: ...
    def counted(
        self, broker: ReplicaManager, leader_epoch: int, key: TopicPartition, replica: Replica, fetch: tuple[int, int]
    ) -> None:
        """A fetch of (follower's id, offset) is about to be counted."""

    def lost_from_disk(self, broker: ReplicaManager, key: TopicPartition, values: list[int], cause: str) -> None:
        """Records that this broker's disk does not hold any more: "unflushed", "emptied" or "deleted"."""

    def data_watermark_moved(self, broker: ReplicaManager, key: TopicPartition, replica: Replica) -> None: ...
    def acknowledged(
        self, broker: ReplicaManager, key: TopicPartition, replica: Replica, ack: tuple[int, int]
    ) -> None: ...


class Addresses(Protocol):
    """Finds nodes: by the id that a voter's endpoint leads to, and the ids that a node may ask for the leader."""

    def slot_of(self, node_id: int) -> int: ...
    def endpoint_of(self, node_id: int) -> tuple[str, int]: ...
    def further_endpoints_of(self, node_id: int) -> tuple[Endpoint, ...]: ...
    def bootstrap_ids(self) -> tuple[int, ...]: ...
    def max_kraft_version(self, node_id: int) -> int: ...
    def client_reply(self, correlation: int, body: Any) -> None: ...
    def died(self, slot: int) -> None: ...
    def refused(self, slot: int) -> None: ...
