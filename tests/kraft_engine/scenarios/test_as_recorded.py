"""The engine against what real Kafka 4.3.1 was seen to write: bytes and records noted by hand from its logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kraft_engine.runs.scenario_stage import Stage

# The first log batch of a standalone controller 1 on CONTROLLER 127.0.0.1:19001, as Kafka 4.3.1 wrote it: LeaderChange,
# KRaftVersion and Voters in one control batch; CRC, timestamps and the directory id are left out.
FIRST_BATCH_HEAD = bytes.fromhex("0000000000000000 000000a2 00000001 02")
FIRST_BATCH_ATTRIBUTES = bytes.fromhex("0020 00000002")
FIRST_BATCH_RECORDS = (
    bytes.fromhex(
        "3a 00 00 00 08 00000002 26 0000 00000001 02 00000001 00 02 00000001 00 00 00"
        "1e 00 00 02 08 00000005 0a 0000 0001 00 00"
        "8201 00 00 04 08 00000006 6e 0000 02 00000001"
    ),
    bytes.fromhex("02 0b")
    + b"CONTROLLER"
    + bytes.fromhex("0a")
    + b"127.0.0.1"
    + bytes.fromhex("4a39 00 0000 0001 00 00 00 00"),
)
STANDALONE_SNAPSHOT_BYTES = 241


def test_the_first_batch_of_a_standalone_quorum_is_kafkas(tmp_path: Path) -> None:
    stage = Stage(1, tmp_path)
    stage.cluster.endpoints[1] = ("127.0.0.1", 19001)
    stage.controllers(1)
    folder = stage.capture("one") / "node-1" / "__cluster_metadata-0"
    octets = (folder / "00000000000000000000.log").read_bytes()
    directory = stage.cluster.processes[0].disk.directory
    assert octets[:17] == FIRST_BATCH_HEAD
    assert octets[21:27] == FIRST_BATCH_ATTRIBUTES
    assert octets[61:174] == FIRST_BATCH_RECORDS[0] + directory + FIRST_BATCH_RECORDS[1]
    snapshot = folder / "00000000000000000000-0000000000.checkpoint"
    assert len(snapshot.read_bytes()) == STANDALONE_SNAPSHOT_BYTES


def test_the_first_data_batch_of_a_new_cluster(tmp_path: Path) -> None:
    """Begin, metadata.version, the other features by name, min.insync.replicas where ELR is on, End."""
    stage = Stage(1, tmp_path)
    stage.controllers(1)
    batch = stage.invariants.ledger.batches[1]
    names = [name for name, _, _ in batch.records]
    assert names[0] == "BeginTransactionRecord"
    assert names[-2:] == ["ConfigRecord", "EndTransactionRecord"]
    features = [fields["name"] for name, _, fields in batch.records if name == "FeatureLevelRecord"]
    assert features == ["metadata.version", *sorted(features[1:])]
    assert len({batch.timestamp_ms}) == 1


def changes(stage: Stage) -> list[dict[str, Any]]:
    """Every PartitionChangeRecord so far, without its key."""
    found = []
    for batch in stage.leader().log.batches:
        for name, _, fields in batch.records:
            if name == "PartitionChangeRecord":
                found.append({key: value for key, value in fields.items() if key not in ("partitionId", "topicId")})
    return found


def test_the_trace_to_the_last_known_leader(tmp_path: Path) -> None:
    """RF 3 (11, 12, 13), min ISR 2, unclean election off: each event's record as a real cluster wrote it."""
    stage = Stage(3, tmp_path)
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13], configs={"min.insync.replicas": "2"})
    stage.partitions.data_beyond_model = True
    for broker_id in (11, 12, 13):
        stage.kill_broker(broker_id, power_cut=False)
    assert changes(stage) == [
        {"isr": [12, 13], "leader": 12},
        {"isr": [13], "leader": 13, "eligibleLeaderReplicas": [12]},
        {"isr": [], "leader": -1, "eligibleLeaderReplicas": [12, 13], "lastKnownElr": [13]},
    ]
    stage.start_broker(12)
    assert changes(stage)[3:] == [{"eligibleLeaderReplicas": [13]}]
    stage.start_broker(13)
    assert changes(stage)[4:6] == [
        {"eligibleLeaderReplicas": []},
        {"isr": [13], "leader": 13, "leaderRecoveryState": 1, "lastKnownElr": []},
    ]
    stage.until(lambda: len(changes(stage)) > 6, "recovery")
    assert changes(stage)[6] == {"isr": [12, 13], "leaderRecoveryState": 0}


def test_min_isr_one_still_fills_the_elr(tmp_path: Path) -> None:
    """With min ISR 1 the last member enters the ELR when the ISR empties."""
    stage = Stage(3, tmp_path)
    stage.controllers(1)
    stage.brokers(11, 12)
    stage.topic("orders", [11, 12])
    stage.kill_broker(11, power_cut=False)
    stage.kill_broker(12, power_cut=False)
    assert changes(stage) == [
        {"isr": [12], "leader": 12},
        {"isr": [], "leader": -1, "eligibleLeaderReplicas": [12], "lastKnownElr": [12]},
    ]


def test_a_reassignment_that_lowers_the_replicas_leaves_a_stale_elr(tmp_path: Path) -> None:
    """Completing [1,2,3] -> [1] under min ISR writes Replicas=[1] and an ELR outside the replicas: as shipped."""
    stage = Stage(3, tmp_path)
    stage.controllers(1)
    stage.brokers(1_1, 12, 13)
    orders = stage.topic("orders", [11, 12, 13], [11, 12, 13], configs={"min.insync.replicas": "2"})
    from kraft_engine.brokers.controller_admin import reassign

    reassign(stage.controller(), orders, 1, [11])
    stage.run_ms(500)
    assert changes(stage)[-1]["replicas"] == [11]
    assert changes(stage)[-1]["eligibleLeaderReplicas"] == [12, 13]
    assert changes(stage)[-1]["leader"] == 11
