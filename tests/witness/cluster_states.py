"""The committed metadata of an engine run folded record by record, by Kafka's wording and no code of the replay."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.witness.truth import PartitionState, Subject, Truth

TOPIC, BROKER = 2, 4
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
ELR, METADATA_VERSION = "eligible.leader.replicas.version", "metadata.version"

Line = dict[str, Any]


@dataclass
class ClusterState:
    """Everything as after the record at `offset`; `before` holds what its partitions were just before it.

    `concerned` are the partitions that the record may make another case of: those of its topic, as partition 0 counts
    for all of them; every one where a config or the active controller changed.
    """

    offset: int = -1
    line: Line = field(default_factory=dict)
    partitions: dict[Subject, PartitionState] = field(default_factory=dict)
    before: dict[Subject, PartitionState] = field(default_factory=dict)
    brokers: dict[int, Line] = field(default_factory=dict)
    controllers: dict[int, Line] = field(default_factory=dict)
    configs: dict[tuple[int, str, str], str] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    acls: dict[str, Line] = field(default_factory=dict)
    controller_id: int = -1
    concerned: Collection[Subject] = ()

    def min_isr(self, subject: Subject) -> int:
        """Topic, then the active controller's own node, then cluster, then 1; at most the replicas of the topic's
        partition 0 (getTopicEffectiveMinIsr)."""
        state = self.partitions[subject]
        scopes = ((TOPIC, state["topic"]), (BROKER, str(self.controller_id)), (BROKER, ""))
        value = next((self.configs[*scope, MIN_ISR] for scope in scopes if (*scope, MIN_ISR) in self.configs), "1")
        first = self.partitions.get((subject[0], 0), state)
        return min(int(value), len(first["replicas"]))


def states_of(truth: Truth, *, to_offset: int) -> Iterator[ClusterState]:
    """The state after each committed record below `to_offset` that changed something; one object, changed in place."""
    lines = [*truth.lines["partition"], *truth.lines["topic_removed"], *truth.lines["metadata"]]
    lines += truth.lines["leader_epoch"]
    state = ClusterState()
    by_offset: dict[int, list[Line]] = {}
    for line in lines:
        by_offset.setdefault(line["offset"], []).append(line)
    for offset in sorted(offset for offset in by_offset if offset < to_offset):
        state.offset, state.line, state.before = offset, by_offset[offset][0], {}
        for line in by_offset[offset]:
            _apply(state, truth, line)
        state.concerned = list(_concerned(state, by_offset[offset]))
        yield state


def _concerned(state: ClusterState, lines: Sequence[Line]) -> Iterator[Subject]:
    if any(line["kind"] == "leader_epoch" or line.get("type") == "ConfigRecord" for line in lines):
        yield from state.partitions
        return
    topics = {line["topic_id"] for line in lines if line["kind"] == "partition"}
    if topics:
        yield from (subject for subject in state.partitions if subject[0] in topics)


def _apply(state: ClusterState, truth: Truth, line: Line) -> None:
    if line["kind"] == "partition":
        subject = (line["topic_id"], line["partition"])
        if subject in state.partitions:
            state.before[subject] = state.partitions[subject]
        state.partitions[subject] = truth.partitions[subject, line["offset"]]
    elif line["kind"] == "topic_removed":
        gone = [subject for subject in state.partitions if subject[0] == line["topic_id"]]
        for subject in gone:
            topic = state.partitions.pop(subject)["topic"]
            for key in [key for key in state.configs if key[:2] == (TOPIC, topic)]:
                del state.configs[key]
    elif line["kind"] == "leader_epoch":
        state.controller_id = line["leader"]
    else:
        _apply_metadata(state, line["type"], line["fields"])


def _apply_metadata(state: ClusterState, name: str, fields: Line) -> None:
    if name == "ConfigRecord":
        key = (fields["resourceType"], fields["resourceName"], fields["name"])
        if fields["value"] is None:
            state.configs.pop(key, None)
        else:
            state.configs[key] = fields["value"]
    elif name == "FeatureLevelRecord":
        state.features[fields["name"]] = fields["featureLevel"]
    elif name == "AccessControlEntryRecord":
        state.acls[fields["id"]] = fields
    elif name == "RemoveAccessControlEntryRecord":
        state.acls.pop(fields["id"], None)
    elif name == "RegisterControllerRecord":
        state.controllers[fields["controllerId"]] = fields
    elif name == "UnregisterControllerRecord":
        state.controllers.pop(fields["controllerId"], None)
    elif not name.endswith("TransactionRecord"):
        _apply_broker(state, name, fields)


def _apply_broker(state: ClusterState, name: str, fields: Line) -> None:
    if name == "RegisterBrokerRecord":
        state.brokers[fields["brokerId"]] = dict(fields)
    elif name == "UnregisterBrokerRecord":
        state.brokers.pop(fields["brokerId"], None)
    elif name == "BrokerRegistrationChangeRecord":
        broker = state.brokers[fields["brokerId"]]
        if fields.get("fenced"):
            broker["fenced"] = fields["fenced"] > 0
        broker["inControlledShutdown"] = bool(broker.get("inControlledShutdown") or fields.get("inControlledShutdown"))
    else:
        state.brokers[fields["id"]]["fenced"] = name == "FenceBrokerRecord"
