"""Requests and responses between brokers and the active controller, and between brokers, with the fields of their Kafka
schemas.

`sender` is the incarnation of the asking process: it stands for the connection that a response comes back on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kraft_engine.brokers.replicas import TopicPartition


@dataclass(frozen=True, slots=True)
class Listener:
    """An endpoint as a registration stores it; `security_protocol` by Kafka's number."""

    name: str = "PLAINTEXT"
    port: int = 9092
    security_protocol: int = 0


PLAINTEXT, SSL = Listener(), Listener("SSL", 9093, 1)


@dataclass(frozen=True, slots=True)
class BrokerRegistrationRequest:
    """`may_wait` says that the broker can try again soon: its last incarnation's session may still be open."""

    broker_id: int
    incarnation_id: bytes
    listener: Listener
    previous_broker_epoch: int
    log_dirs: tuple[bytes, ...]
    rack: str | None
    may_wait: bool

    @property
    def sender(self) -> bytes:
        return self.incarnation_id


@dataclass(frozen=True, slots=True)
class BrokerRegistrationResponse:
    sender: bytes
    error: str
    broker_epoch: int = -1


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatRequest:
    sender: bytes
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_shut_down: bool
    offline_log_dirs: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatResponse:
    sender: bytes
    error: str
    should_shut_down: bool = False


@dataclass(frozen=True, slots=True)
class AlterPartitionRequest:
    """One partition of an AlterPartition; `new_isr` pairs each member with its broker epoch, -1 where the leader does
    not know it. `attempt` lets the leader match an answer to its attempt.
    """

    sender: bytes
    broker_id: int
    broker_epoch: int
    key: TopicPartition
    leader_epoch: int
    partition_epoch: int
    new_isr: tuple[tuple[int, int], ...]
    leader_recovery_state: int
    attempt: int

    @property
    def isr(self) -> list[int]:
        return [broker for broker, _ in self.new_isr]


@dataclass(frozen=True, slots=True)
class AlterPartitionResponse:
    sender: bytes
    error: str
    key: TopicPartition
    attempt: int


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirsRequest:
    """The dirs that a broker has put replicas in. It is repeated until the metadata says so, and needs no answer."""

    sender: bytes
    broker_id: int
    broker_epoch: int
    assignments: tuple[tuple[TopicPartition, bytes], ...]


@dataclass(frozen=True, slots=True)
class ControllerRegistrationRequest:
    """A controller of this incarnation is there (KIP-919)."""

    controller_id: int
    incarnation_id: bytes

    @property
    def sender(self) -> bytes:
        return self.incarnation_id


@dataclass(frozen=True, slots=True)
class ControllerRegistrationResponse:
    sender: bytes
    error: str


BrokerRequest = BrokerRegistrationRequest | BrokerHeartbeatRequest | AlterPartitionRequest
BrokerResponse = BrokerRegistrationResponse | BrokerHeartbeatResponse | AlterPartitionResponse


def refused(request: BrokerRequest, error: str) -> BrokerResponse:
    """The response with this error and no data."""
    if isinstance(request, BrokerRegistrationRequest):
        return BrokerRegistrationResponse(request.sender, error)
    if isinstance(request, BrokerHeartbeatRequest):
        return BrokerHeartbeatResponse(request.sender, error)
    return AlterPartitionResponse(request.sender, error, request.key, request.attempt)


class FetchPosition(NamedTuple):
    """A follower's fetch position in one partition."""

    key: TopicPartition
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int


class FetchedPart(NamedTuple):
    """A leader's answer for one partition: where the logs diverge, or (epoch, value) of records from the fetch offset
    on.
    """

    key: TopicPartition
    leader_epoch: int
    fetch_offset: int
    diverging: tuple[int, int] | None
    records: tuple[tuple[int, int], ...]
    high_watermark: int


@dataclass(frozen=True, slots=True)
class DataFetchRequest:
    """A follower's fetch of all partitions that one broker leads."""

    broker_id: int
    broker_epoch: int
    positions: tuple[FetchPosition, ...]


@dataclass(frozen=True, slots=True)
class DataFetchResponse:
    parts: tuple[FetchedPart, ...]


@dataclass(frozen=True, slots=True)
class GetReplicaLogInfoRequest:
    """KIP-966, never shipped: the end of a replica's log, for unclean recovery."""

    broker_id: int
    key: TopicPartition
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class GetReplicaLogInfoResponse:
    """`broker_epoch` shows whether the broker restarted since, `current_leader_epoch` whether the answer is stale."""

    broker_id: int
    broker_epoch: int
    key: TopicPartition
    last_written_epoch: int
    current_leader_epoch: int
    log_end_offset: int
