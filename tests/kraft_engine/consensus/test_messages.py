"""The engine's requests carry what Kafka's do: the schemas inside Kafka's own jar say what that is."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import fields
from typing import Any

import pytest

from kraft_engine.brokers import broker_messages
from kraft_engine.consensus import messages
from kraft_engine.runs.schedule import RandomRun

# What one partition of one topic, one listener and logical time leave out, in every message.
FLAT = {"Topics", "TopicName", "Partitions", "PartitionIndex", "Partition", "Topic", "TopicId", "Name", "Listeners"}
ADDRESS = {"LeaderEndpoints", "Host", "Port"}
FETCH_SIZES = {
    "MinBytes", "MaxBytes", "PartitionMaxBytes", "IsolationLevel", "SessionId", "SessionEpoch", "ForgottenTopicsData",
    "RackId", "ReplicaState", "ReplicaEpoch",
}  # fmt: skip
# By message: the engine's field, and the schema fields that it stands for.
CARRIED: dict[type, dict[str, set[str]]] = {
    messages.VoteRequest: {
        "cluster_id": {"ClusterId"}, "voter": {"VoterId", "VoterDirectoryId"},
        "replica": {"ReplicaId", "ReplicaDirectoryId"}, "replica_epoch": {"ReplicaEpoch"},
        "last_epoch": {"LastOffsetEpoch"}, "last_offset": {"LastOffset"}, "pre_vote": {"PreVote"},
    },
    messages.BeginQuorumEpochRequest: {
        "cluster_id": {"ClusterId"}, "voter": {"VoterId", "VoterDirectoryId"}, "leader_id": {"LeaderId"},
        "leader_epoch": {"LeaderEpoch"}, "leader_endpoint": ADDRESS,
    },
    messages.EndQuorumEpochRequest: {
        "cluster_id": {"ClusterId"}, "leader_id": {"LeaderId"}, "leader_epoch": {"LeaderEpoch"},
        "preferred_candidates": {"PreferredCandidates", "CandidateId", "CandidateDirectoryId"},
        "leader_endpoint": ADDRESS,
    },
    messages.FetchRequest: {
        "cluster_id": {"ClusterId"}, "replica": {"ReplicaId", "ReplicaDirectoryId"}, "max_wait_us": {"MaxWaitMs"},
        "current_leader_epoch": {"CurrentLeaderEpoch"}, "fetch_offset": {"FetchOffset"},
        "last_fetched_epoch": {"LastFetchedEpoch"}, "high_watermark": {"HighWatermark"},
        "log_start_offset": {"LogStartOffset"},
    },
    messages.FetchSnapshotRequest: {
        "cluster_id": {"ClusterId"}, "replica": {"ReplicaId", "ReplicaDirectoryId"}, "position": {"Position"},
        "current_leader_epoch": {"CurrentLeaderEpoch"}, "snapshot_id": {"SnapshotId", "EndOffset", "Epoch"},
    },
    messages.AddRaftVoterRequest: {
        "cluster_id": {"ClusterId"}, "timeout_us": {"TimeoutMs"}, "ack_when_committed": {"AckWhenCommitted"},
        "voter": {"VoterId", "VoterDirectoryId", "Host", "Port"},
    },
    messages.RemoveRaftVoterRequest: {"cluster_id": {"ClusterId"}, "voter": {"VoterId", "VoterDirectoryId"}},
    messages.UpdateRaftVoterRequest: {
        "cluster_id": {"ClusterId"}, "current_leader_epoch": {"CurrentLeaderEpoch"},
        "voter": {"VoterId", "VoterDirectoryId", "Host", "Port", "KRaftVersionFeature", "MinSupportedVersion",
                  "MaxSupportedVersion"},
    },
    messages.DescribeQuorumRequest: {},
    broker_messages.BrokerRegistrationRequest: {
        "broker_id": {"BrokerId"}, "incarnation_id": {"IncarnationId"}, "rack": {"Rack"}, "log_dirs": {"LogDirs"},
        "listener": {"Host", "Port", "SecurityProtocol"}, "previous_broker_epoch": {"PreviousBrokerEpoch"},
    },
    broker_messages.BrokerHeartbeatRequest: {
        "broker_id": {"BrokerId"}, "broker_epoch": {"BrokerEpoch"}, "want_shut_down": {"WantShutDown"},
        "current_metadata_offset": {"CurrentMetadataOffset"}, "offline_log_dirs": {"OfflineLogDirs"},
    },
    broker_messages.AlterPartitionRequest: {
        "broker_id": {"BrokerId"}, "broker_epoch": {"BrokerEpoch"}, "leader_epoch": {"LeaderEpoch"},
        "partition_epoch": {"PartitionEpoch"}, "leader_recovery_state": {"LeaderRecoveryState"},
        "new_isr": {"NewIsrWithEpochs", "BrokerId", "BrokerEpoch"},
    },
}  # fmt: skip
# Left out: one cluster is one network here, all nodes support the same features, a broker never wants to be fenced.
LEFT_OUT: dict[type, set[str]] = {
    messages.FetchRequest: FETCH_SIZES,
    messages.FetchSnapshotRequest: {"MaxBytes"},
    broker_messages.BrokerRegistrationRequest: {
        "ClusterId", "Features", "MinSupportedVersion", "MaxSupportedVersion", "IsMigratingZkBroker",
    },
    broker_messages.BrokerHeartbeatRequest: {"WantFence", "CordonedLogDirs"},
}  # fmt: skip


def schema_of(classpath: str, name: str) -> dict[str, Any]:
    jar = next(path for path in classpath.split(":") if "kafka-clients" in path)
    with zipfile.ZipFile(jar) as opened:
        text = opened.read(f"common/message/{name}.json").decode()
    found: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return found


def newest_fields(entries: list[dict[str, Any]], newest: int) -> set[str]:
    names: set[str] = set()
    for entry in entries:
        low, _, high = entry["versions"].partition("-")
        if low.endswith("+") or newest <= int(high or low):
            names |= {entry["name"]} | newest_fields(entry.get("fields", []), newest)
    return names


@pytest.mark.kafka
@pytest.mark.parametrize("message", CARRIED, ids=lambda message: message.__name__)
def test_a_request_carries_the_fields_of_its_schema(message: type, kafka_classpath: str) -> None:
    schema = schema_of(kafka_classpath, message.__name__)
    newest = int(schema["validVersions"].split("-")[-1])
    carried = set().union(*CARRIED[message].values())
    assert newest_fields(schema["fields"], newest) - FLAT == (carried | LEFT_OUT.get(message, set())) - FLAT
    assert set(CARRIED[message]) <= {field.name for field in fields(message)}


def test_describe_quorum_says_what_the_leader_knows() -> None:
    run = RandomRun(2, static=False)
    leader = run.cluster.run_until_leader()
    correlation = run.cluster.ask(leader.slot, messages.DescribeQuorumRequest())
    answer = run.cluster.replies[correlation]
    assert isinstance(answer, messages.DescribeQuorumResponse)
    assert (answer.error, answer.leader_id, answer.leader_epoch) == ("", leader.id, leader.epoch)
    assert leader.voters is not None
    assert tuple(described.replica for described in answer.current_voters) == leader.voters.keys
    ends = {described.replica: described.log_end_offset for described in answer.current_voters}
    assert ends[leader.key] == leader.log.end_offset
    assert sum(end >= answer.high_watermark for end in ends.values()) > len(ends) // 2
    second = next((node for node in run.cluster.nodes() if node.slot != leader.slot), None)
    if second is not None:
        correlation = run.cluster.ask(second.slot, messages.DescribeQuorumRequest())
        assert run.cluster.replies[correlation].error == "NOT_LEADER_OR_FOLLOWER"
