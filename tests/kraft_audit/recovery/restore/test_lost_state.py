"""`restore-kit --only-lost`: what a lost log created or changed, and nothing that the cluster has or changed itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kraft_codec.files.properties import format_meta_properties, meta_properties
from kraft_codec.files.state_files import PartitionMetadata, QuorumState, format_partition_metadata
from kraft_codec.text.java_text import uuid_text
from tests.builders.logs import CLUSTER_ID, write_node
from tests.builders.printed_scripts import Call, calls_of
from tests.builders.restorable_logs import RestorableLog

STRAY = "new-0.0123456789abcdef0123456789abcdef-stray"


def common() -> RestorableLog:
    """What both logs hold."""
    log = RestorableLog().start(1, 2)
    log.create("old", [1], [2], retention_ms="1")
    log.create("dropped", [1])
    log.config("BROKER", "", "log.retention.ms", "100")
    log.config("BROKER", "", "num.io.threads", "8")
    log.acl(2, "old", "User:revoked", 3)
    log.scram("same", 1, 4096)
    log.quota({"user": "same"}, "producer_byte_rate", 1.0)
    return log


@pytest.fixture
def parted(tmp_path: Path) -> tuple[Path, bytes]:
    """Node 1 goes on in epoch 2, as nodes 2 and 3 did not; they go on in epoch 3. And the id of a lost topic."""
    shared = common()
    lost, canonical = shared.copy(), shared.copy()
    lost.lead(1, epoch=2)
    topic_id = lost.create("new", [1, 2], [2, 1], cleanup_policy="compact")
    lost.create("both", [1])
    lost.config("TOPIC", "old", "retention.ms", "2")
    lost.config("BROKER", "", "log.retention.ms", "200")
    lost.config("BROKER", "", "num.io.threads", "9")
    lost.acl(2, "new", "User:alice", 3)
    lost.acl(2, "new", "User:alice", 4)
    lost.scram("bob", 2, 8192)
    lost.quota({"client-id": None}, "consumer_byte_rate", 5.0)
    lost.quota({"user": "same"}, "producer_byte_rate", 0.0, remove=True)
    lost.token("User:alice")
    lost.add("ProducerIds", {"brokerId": 1, "brokerEpoch": 5, "nextProducerId": 4_000})
    canonical.lead(2, epoch=3)
    canonical.create("both", [2])
    canonical.create("kept", [2])
    canonical.config("BROKER", "", "num.io.threads", "10")
    canonical.acl(2, "kept", "User:carol", 3)
    voters = QuorumState(1, 2, 3, -1, "A" * 22)
    folder = tmp_path / "disks"
    write_node(folder, 1, lost.content, state=QuorumState(1, 1, 2, -1, "A" * 22))
    for node in (2, 3):
        write_node(folder, node, canonical.content, state=voters)
    return folder, topic_id


def kit(kraft_audit: Any, *arguments: object) -> dict[str, Any]:
    ended = kraft_audit("restore-kit", *arguments, "--only-lost", "-o", "json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_what_the_lost_log_created_or_changed_is_brought_back(kraft_audit: Any, parted: tuple[Path, bytes]) -> None:
    found = kit(kraft_audit, parted[0])
    assert [(each["kind"], each["subject"]) for each in found["commands"]] == [
        ("broker config", "all brokers"),
        ("topic", "new"),
        ("topic config", "old"),
        ("client quota", "client-id default"),
        ("SCRAM credential", "bob SCRAM-SHA-512"),
        ("ACL", "User:alice on topic new"),
    ]
    texts = [each["command"] for each in found["commands"]]
    assert texts[0].endswith("--add-config log.retention.ms=200")
    assert texts[1].endswith("--topic new --replica-assignment 1:2,2:1 --config cleanup.policy=compact")
    assert texts[2].endswith("--entity-type topics --entity-name old --add-config retention.ms=2")
    assert len(found["lost"]) == 1


def test_what_is_left_out_is_named(kraft_audit: Any, parted: tuple[Path, bytes]) -> None:
    left = {(each["kind"], each["subject"]): each["reason"] for each in kit(kraft_audit, parted[0])["left_out"]}
    assert "another topic of this name" in left["topic", "both"]
    assert "both logs changed it" in left["config", "BROKER num.io.threads"]
    assert "deleted in the lost log" in left["client quota", "user same producer_byte_rate"]
    assert ("delegation token", "of User:alice, renewed by User:r") in left
    assert len(left) == 4


def test_rights_that_are_there_again_are_taken_away_by_hand(kraft_audit: Any, parted: tuple[Path, bytes]) -> None:
    """The script names the commands at its end, and runs none of them."""
    ended = kraft_audit("restore-kit", parted[0], "--only-lost", "--internal-topics")
    assert ended.out.splitlines()[-2:] == [
        "# These rights were taken away in the lost log, and are there again. Take them away once more:",
        '#   kafka-configs --bootstrap-server "$BOOTSTRAP_SERVER" --alter --entity-type users --entity-name same '
        "--delete-config producer_byte_rate",
    ]


def test_logs_that_agree_have_nothing_to_bring_back(kraft_audit: Any, tmp_path: Path) -> None:
    for node in (1, 2, 3):
        write_node(tmp_path, node, common().content)
    found = kit(kraft_audit, tmp_path)
    assert (found["commands"], found["left_out"], found["lost"]) == ([], [], [])


def test_a_branch_that_is_named_is_what_the_cluster_goes_on_with(kraft_audit: Any, parted: tuple[Path, bytes]) -> None:
    """Node 1's log in the place of the canonical one: what the other log had more is lost."""
    offset = common().next_offset
    found = kit(kraft_audit, parted[0], "--branch", f"2@{offset}")
    assert [(each["kind"], each["subject"]) for each in found["commands"]] == [
        ("topic", "kept"),
        ("ACL", "User:carol on topic kept"),
    ]


def test_partitions_that_a_topic_had_more_are_added(kraft_audit: Any, tmp_path: Path) -> None:
    shared = RestorableLog().start(1, 2)
    topic_id = shared.create("grown", [1])
    lost, canonical = shared.copy(), shared.copy()
    lost.lead(1, epoch=2)
    lost.assign(topic_id, 1, [2, 1])
    canonical.lead(2, epoch=3)
    write_node(tmp_path, 1, lost.content, state=QuorumState(1, 1, 2, -1, "A" * 22))
    for node in (2, 3):
        write_node(tmp_path, node, canonical.content, state=QuorumState(1, 2, 3, -1, "A" * 22))
    (command,) = kit(kraft_audit, tmp_path)["commands"]
    assert command["command"].endswith("--alter --topic grown --partitions 2 --replica-assignment 1,2:1")


def test_a_rescue_s_loss_is_found_by_its_own_file(kraft_audit: Any, tmp_path: Path) -> None:
    """The old disks are read where the rescue read them, or where they are now; a secret that stayed is no loss."""
    log, disks = common(), tmp_path / "disks"
    cut = log.next_offset - 1
    log.lead(3, epoch=2)
    log.create("late", [2, 1], retention_ms="3")
    log.acl(2, "late", "User:alice", 3)
    write_node(disks, 3, log.content, state=QuorumState(1, 3, 2, -1, "A" * 22))
    arguments = ["--gone", "1,2", "--from", "3", "--endpoint", "127.0.0.1:9093", "--out", tmp_path / "rescued"]
    ended = kraft_audit("rescue", disks, *arguments, "--to", str(cut))
    assert ended.code == 0, ended.err
    found = kit(kraft_audit, tmp_path / "rescued")
    assert [(each["kind"], each["subject"]) for each in found["commands"]] == [
        ("topic", "late"),
        ("ACL", "User:alice on topic late"),
    ]
    assert found["left_out"] == []
    shutil.move(disks, tmp_path / "moved")
    ended = kraft_audit("restore-kit", tmp_path / "rescued", "--only-lost")
    assert (ended.code, "--old-disks" in ended.err) == (3, True)
    again = kit(kraft_audit, tmp_path / "rescued", "--old-disks", tmp_path / "moved")
    assert again["commands"] == found["commands"]


def data_dir(folder: Path, broker: int, logs: dict[str, bytes]) -> Path:
    """A broker's data dir with the folders of these partitions, each with its topic's id."""
    dir_of = folder / f"broker {broker}"
    for name, topic_id in logs.items():
        (dir_of / name).mkdir(parents=True)
        text = format_partition_metadata(PartitionMetadata(0, uuid_text(topic_id)))
        (dir_of / name / "partition.metadata").write_bytes(text)
        (dir_of / name / "00000000000000000000.log").write_bytes(b"")
    identity = meta_properties(
        cluster_id=CLUSTER_ID, node_id=broker, directory_id=uuid_text(b"b" * 15 + bytes([broker]))
    )
    (dir_of / "meta.properties").write_bytes(format_meta_properties(identity))
    return dir_of


def test_the_steps_for_old_logs_move_them_back(kraft_audit: Any, parted: tuple[Path, bytes], tmp_path: Path) -> None:
    """The printed steps, run as they are on the data dirs that were read, put each old log where the new one was."""
    disks, topic_id = parted
    new_id = b"o" * 16
    broker_dir = data_dir(disks, 11, {STRAY: topic_id, "new-0": new_id, "old-0": topic_id})
    found = kit(kraft_audit, disks)
    assert {(log["broker_id"], log["folder"]) for log in found["old_logs"] if log["folder"]} == {
        (11, str(broker_dir / STRAY))
    }
    assert {log["broker_id"] for log in found["old_logs"] if log["folder"] is None} == {1, 2}
    script = kraft_audit("restore-kit", disks, "--only-lost").out
    assert {log["leader_epoch"] for log in found["old_logs"]} == {0}
    assert "above the one that the old topic had (new 0)" in script
    assert "next producer id is above 4000" in script
    (step,) = [line.partition("broker 11: ")[2] for line in script.splitlines() if "broker 11: " in line]
    calls_of(f"TOPIC_ID=1234567890123456789012\n{step}\n", tmp_path / "bash")
    assert sorted(path.name for path in broker_dir.iterdir()) == ["meta.properties", "new-0", "old-0"]
    metadata = (broker_dir / "new-0" / "partition.metadata").read_text()
    assert metadata == "version: 0\ntopic_id: 1234567890123456789012\n"
    assert (disks / "broker 11.new-0" / "partition.metadata").read_bytes() != metadata.encode()


def test_a_script_of_what_is_lost_runs_as_printed(kraft_audit: Any, parted: tuple[Path, bytes], tmp_path: Path) -> None:
    script = kraft_audit("restore-kit", parted[0], "--only-lost").out
    calls: list[Call] = calls_of(
        script, tmp_path / "bash", **dict.fromkeys(("BOOTSTRAP_SERVER", "PASSWORD_OF_bob"), "x")
    )
    assert [call.tool for call in calls] == [
        "kafka-configs",
        "kafka-topics",
        "kafka-configs",
        "kafka-configs",
        "kafka-configs",
        "kafka-acls",
    ]
