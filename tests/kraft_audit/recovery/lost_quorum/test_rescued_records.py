"""The records of a rescued state: read again, they give what the replay of the log gives, whatever was in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_audit.quorum.voter_history import Endpoint
from kraft_audit.recovery.lost_quorum.rescue_request import RescueRefusedError, RescueRequest
from kraft_audit.recovery.lost_quorum.rescued_records import StateRecords
from kraft_codec.records.batch import Batch, read_batches
from kraft_codec.records.record import decode_records, read_metadata_value, write_metadata_value
from tests.builders.logs import Log, write_node

TOPIC, OTHER = bytes([1] * 16), bytes([2] * 16)
ACL: dict[str, Any] = {"resourceType": 2, "resourceName": "orders", "patternType": 3, "principal": "User:a"}
ACL |= {"host": "*", "operation": 3, "permissionType": 3}
SCRAM = {"mechanism": 1, "salt": b"s" * 8, "storedKey": b"stored", "serverKey": b"server", "iterations": 4096}
TOKEN: dict[str, Any] = {"owner": "User:a", "requester": "User:a", "renewers": ["User:b"], "issueTimestamp": 1}
TOKEN |= {"maxTimestamp": 9, "expirationTimestamp": 5}
OWNED = "a-token-id-of-22-chars-"
"""Long enough for a fingerprint: short secrets are numbered by whoever reads them."""
STATE = ("topic_changes", "config_changes", "feature_changes", "broker_changes", "partition_changes")


def value(name: str, fields: dict[str, Any], version: int = 0) -> bytes:
    return write_metadata_value(f"{name}Record", version, fields)


def broker(broker_id: int) -> bytes:
    point = {"name": "PLAINTEXT", "host": "b", "port": 9092, "securityProtocol": 0}
    fields = {"brokerId": broker_id, "incarnationId": bytes([broker_id] * 16), "brokerEpoch": 5, "endPoints": [point]}
    return value("RegisterBroker", {**fields, "rack": "r1", "logDirs": [bytes([9] * 16)]}, 3)


def quota(user: str, *, remove: bool = False) -> bytes:
    entity = [{"entityType": "user", "entityName": user}]
    return value("ClientQuota", {"entity": entity, "key": "producer_byte_rate", "value": 1.5, "remove": remove})


def eventful() -> Log:
    """Every kind of record that sets, changes or removes something, in and out of transactions."""
    log = Log()
    log.lead(1, epoch=1)
    log.append(value("FeatureLevel", {"name": "metadata.version", "featureLevel": 27}))
    log.append(value("FeatureLevel", {"name": "share.version", "featureLevel": 1}))
    log.append(broker(11), broker(12), broker(13))
    log.append(value("UnfenceBroker", {"id": 11, "epoch": 5}))
    log.append(value("BrokerRegistrationChange", {"brokerId": 12, "brokerEpoch": 5, "fenced": -1}))
    change = {"brokerId": 12, "brokerEpoch": 5, "inControlledShutdown": 1, "logDirs": [bytes([7] * 16)]}
    log.append(value("BrokerRegistrationChange", change, 2))
    log.append(value("UnregisterBroker", {"brokerId": 13, "brokerEpoch": 5}))
    for topic_id, name in ((TOPIC, "orders"), (OTHER, "gone")):
        log.append(value("Topic", {"name": name, "topicId": topic_id}))
        assigned = {"topicId": topic_id, "partitionId": 0, "replicas": [11, 12], "isr": [11, 12], "leader": 11}
        assigned |= {"leaderEpoch": 0, "partitionEpoch": 0, "directories": [bytes([9] * 16)] * 2}
        log.append(value("Partition", assigned, 1))
        log.append(value("Config", {"resourceType": 2, "resourceName": name, "name": "retention.ms", "value": "7"}))
    log.append(value("PartitionChange", {"topicId": TOPIC, "partitionId": 0, "isr": [12], "leader": 12}, 1))
    log.append(value("Config", {"resourceType": 4, "resourceName": "", "name": "a", "value": "1"}))
    log.append(value("Config", {"resourceType": 4, "resourceName": "", "name": "a", "value": None}))
    log.append(value("RemoveTopic", {"topicId": OTHER}))
    log.append(quota("kept"), quota("removed"), quota("removed", remove=True))
    for number in (1, 2):
        log.append(value("AccessControlEntry", {"id": bytes([number] * 16), **ACL}))
        log.append(value("UserScramCredential", {"name": f"u{number}", **SCRAM}))
        log.append(value("DelegationToken", {"tokenId": f"{OWNED}{number}", **TOKEN}))
    log.append(value("RemoveAccessControlEntry", {"id": bytes([1] * 16)}))
    log.append(value("RemoveUserScramCredential", {"name": "u1", "mechanism": 1}))
    log.append(value("RemoveDelegationToken", {"tokenId": f"{OWNED}1"}))
    log.append(value("ProducerIds", {"brokerId": 11, "brokerEpoch": 5, "nextProducerId": 4_000}))
    for ended in ("EndTransaction", "AbortTransaction"):
        log.append(value("BeginTransaction", {}))
        log.append(value("Topic", {"name": ended, "topicId": ended.encode()[:16].ljust(16, b".")}))
        log.append(value(ended, {}))
    log.noop()
    return log


def rescued(folder: Path, log: Log, target: Path, **more: Any) -> Any:
    write_node(folder, 1, log.content)
    request = RescueRequest(1, target, endpoints=(Endpoint("", "127.0.0.1", 9093),), **more)
    with kraft_audit.open(str(folder), defaults={"controller.quorum.voters": "1"}) as clusters:
        (cluster,) = clusters
        return cluster.rescue(request, [1])


def rows(path: Path, table: str) -> list[str]:
    key = b"k" * 32
    with kraft_audit.open(str(path), redaction_key=key) as clusters:
        (cluster,) = clusters
        found = cluster.state().rows(table)
    added = 0 if path.name == "new" else 1_000
    skipped = {"from_offset", "from_epoch", "timestamp_ms", "cause", "cause_broker_id", "election"}
    shown = []
    for row in found:
        if row.get("exists", True) and row.get("name") != "kraft.version" and row.get("kind") != "PRODUCER_IDS":
            epochs = {name: row[name] + added for name in ("leader_epoch", "partition_epoch") if name in row}
            shown.append(str({name: each for name, each in {**row, **epochs}.items() if name not in skipped}))
    return sorted(shown)


def records_of(target: Path) -> list[tuple[str, dict[str, Any]]]:
    (file,) = target.rglob("*.checkpoint")
    content = file.read_bytes()
    found = [batch for batch in read_batches(content) if isinstance(batch, Batch)]
    decoded = [record for batch in found for record in decode_records(content, batch.header)]
    return [(record.message.name, record.fields or {}) for record in decoded if record.message is not None]


def test_a_rescued_state_is_the_replayed_one(tmp_path: Path) -> None:
    rescued(tmp_path / "old", eventful(), tmp_path / "new")
    for table in (*STATE, "security_changes"):
        assert rows(tmp_path / "new", table) == rows(tmp_path / "old", table), table


def test_secrets_stay_what_they_are_and_ids_are_fenced(tmp_path: Path) -> None:
    found = records_of(rescued_dir(tmp_path))
    credentials = [fields for name, fields in found if name == "UserScramCredentialRecord"]
    assert [(each["name"], each["storedKey"], each["serverKey"]) for each in credentials] == [
        ("u2", b"stored", b"server")
    ]
    assert [fields["tokenId"] for name, fields in found if name == "DelegationTokenRecord"] == [f"{OWNED}2"]
    (producers,) = [fields for name, fields in found if name == "ProducerIdsRecord"]
    assert producers == {"brokerId": -1, "brokerEpoch": -1, "nextProducerId": 4_000 + 1_000 * 1_000}
    names = [name for name, _ in found]
    assert not {"NoOpRecord", "BeginTransactionRecord", "EndTransactionRecord"} & set(names)
    assert next(fields["name"] for name, fields in found if name == "FeatureLevelRecord") == "metadata.version"
    declared = (tmp_path / "new" / "rescue.json").read_bytes()
    assert b"stored" not in declared
    assert OWNED.encode() not in declared


def rescued_dir(tmp_path: Path) -> Path:
    rescued(tmp_path / "old", eventful(), tmp_path / "new")
    return tmp_path / "new"


@pytest.mark.parametrize("registered", [0, 1, 3, 4])
@pytest.mark.parametrize(
    ("change", "version", "least"),
    [
        ({"fenced": -1}, 0, 0),
        ({"fenced": 1, "inControlledShutdown": 1}, 1, 1),
        ({"logDirs": [bytes([7] * 16)]}, 2, 3),
        ({"cordonedLogDirs": [bytes([7] * 16)]}, 3, 4),
        ({"inControlledShutdown": 1, "cordonedLogDirs": []}, 3, 4),
    ],
)
def test_a_changed_registration_has_the_version_that_can_say_it(
    registered: int, change: dict[str, Any], version: int, least: int
) -> None:
    point = {"name": "PLAINTEXT", "host": "b", "port": 9092, "securityProtocol": 0}
    fields = {"brokerId": 11, "incarnationId": bytes(16), "brokerEpoch": 5, "endPoints": [point]}
    log = Log()
    log.append(value("RegisterBroker", fields, registered))
    log.append(value("BrokerRegistrationChange", {"brokerId": 11, "brokerEpoch": 5, **change}, version))
    state = StateRecords()
    for batch in read_batches(log.content):
        assert isinstance(batch, Batch)
        state.add(decode_records(log.content, batch.header))
    ((name, written, kept),) = [each for each in state.records([], 0) if each[0] != "ProducerIdsRecord"]
    assert (name, written) == ("RegisterBrokerRecord", max(registered, least))
    read = read_metadata_value(write_metadata_value(name, written, kept)).fields
    said = {key: each > 0 if isinstance(each, int) else each for key, each in change.items()}
    assert {key: read[key] for key in said} == said


@pytest.mark.parametrize("name", ["EndTransaction", "AbortTransaction"])
def test_a_cut_is_never_inside_a_transaction(name: str, tmp_path: Path) -> None:
    log = Log()
    log.lead(1, epoch=1)
    log.append(value("FeatureLevel", {"name": "metadata.version", "featureLevel": 27}))
    before = log.next_offset
    log.append(value("BeginTransaction", {}))
    log.append(value("Topic", {"name": "inside", "topicId": TOPIC}))
    inside = log.next_offset - 1
    log.append(value(name, {}))
    found = rescued(tmp_path / "old", log, tmp_path / "new", to_offset=inside)
    assert found.cut == before
    assert "TopicRecord" not in [each for each, _ in records_of(tmp_path / "new")]


@pytest.mark.parametrize("state", [1, 2])
def test_an_unfinished_migration_from_zookeeper_is_refused(state: int, tmp_path: Path) -> None:
    log = Log()
    log.lead(1, epoch=1)
    log.append(value("FeatureLevel", {"name": "metadata.version", "featureLevel": 21}))
    log.append(value("ZkMigrationState", {"zkMigrationState": state}))
    with pytest.raises(RescueRefusedError, match="ZooKeeper"):
        rescued(tmp_path / "old", log, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("level", "is_static"), [(19, True), (21, False)])
def test_below_metadata_version_3_9_the_quorum_stays_static(level: int, is_static: bool, tmp_path: Path) -> None:
    log = Log()
    log.lead(1, epoch=1)
    log.append(value("FeatureLevel", {"name": "metadata.version", "featureLevel": level}))
    assert rescued(tmp_path / "old", log, tmp_path / "new").node.is_static == is_static


def test_a_poisoned_record_is_left_behind(tmp_path: Path) -> None:
    """A record that nothing can decode: with it there is no state, and before it there is."""
    log = eventful()
    log.append(b"\x01\x7f\x00")
    with pytest.raises(RescueRefusedError, match="could not be decoded"):
        rescued(tmp_path / "old", log, tmp_path / "first")
    found = rescued(tmp_path / "old", log, tmp_path / "new", to_offset=log.next_offset - 2)
    assert found.cut == log.next_offset - 1
