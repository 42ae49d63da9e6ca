"""Partitions of the lost part whose logs become strays: each is named, and the kit brings its topic back first."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from kraft_codec.file_names import segment_name
from kraft_codec.records.record import write_metadata_value
from tests.builders.logs import Log, led, write_node

OLD, AGAIN, NEW, OFFSETS = (bytes([number]) * 16 for number in (1, 2, 3, 4))


def say(log: Log, record: str, **fields: Any) -> None:
    log.append(write_metadata_value(record, 0, fields))


def topic(log: Log, name: str, topic_id: bytes, partitions: int = 1) -> None:
    say(log, "TopicRecord", name=name, topicId=topic_id)
    for number in range(partitions):
        partition(log, topic_id, number)


def partition(log: Log, topic_id: bytes, number: int) -> None:
    say(log, "PartitionRecord", partitionId=number, topicId=topic_id, replicas=[11], isr=[11], leader=11, leaderEpoch=0)


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    """A broker's copy that goes on after the last controller's that is left, and its data dir."""
    log = led(1, (1, 2, 3))
    point = {"name": "PLAINTEXT", "host": "b11.example", "port": 9092, "securityProtocol": 0}
    say(log, "RegisterBrokerRecord", brokerId=11, brokerEpoch=2, fenced=False, endPoints=[point])
    say(log, "FeatureLevelRecord", name="metadata.version", featureLevel=21)
    topic(log, "grows", NEW)
    topic(log, "again", OLD)
    whole = log.copy()
    partition(whole, NEW, 1)
    say(whole, "RemoveTopicRecord", topicId=OLD)
    topic(whole, "again", AGAIN)
    topic(whole, "__consumer_offsets", OFFSETS)
    disks = tmp_path / "disks"
    write_node(disks, 1, log.content)
    write_node(disks, 11, whole.content)
    (disks / "node-11" / "__consumer_offsets-0").mkdir()
    (disks / "node-11" / "__consumer_offsets-0" / segment_name(0)).write_bytes(b"")
    return disks


def test_every_partition_that_the_rescued_state_does_not_know(kraft_audit: Any, lost: Path, tmp_path: Path) -> None:
    arguments = ["--gone", "2,3", "--from", "1", "--node-id", "5", "--endpoint", "c5.example:9093"]
    ended = kraft_audit("rescue", lost, *arguments, "--out", tmp_path / "new", "-o", "json")
    assert ended.code == 0, ended.err
    written = json.loads(ended.out)
    found = {(stray["topic"], stray["partition"]): stray["kind"] for stray in written["strays"]}
    assert found == {
        ("grows", 1): "added partitions",
        ("again", 0): "topics deleted and made again",
        ("__consumer_offsets", 0): "internal topics",
    }
    steps = [[step["text"], *step["commands"]] for step in written["procedure"]]
    texts = ["\n".join(lines) for lines in steps]
    places = [
        next(place for place, text in enumerate(texts) if mark in text)
        for mark in ("Start all brokers", "Keep clients away", "--delete --topic again", "BOOTSTRAP_SERVER=", "rotate")
    ]
    assert places == sorted(places)
    stray = texts[places[1]]
    assert f"__consumer_offsets-0 (broker 11 {lost}/node-11/__consumer_offsets-0)" in stray
    assert "grows-1 (broker 11)" in stray

    (line,) = [line for lines in steps for line in lines if "restore-kit" in line]
    assert "--internal-topics" in line
    assert kraft_audit(*shlex.split(line.partition("kraft-audit ")[2])).code == 0
    script = (tmp_path / "new-kit" / "restore.sh").read_text()
    assert "--create --if-not-exists --topic again" in script
    assert "--create --if-not-exists --topic __consumer_offsets" in script
    assert "--alter --topic grows --partitions 2" in script
    assert "delete the topic that is there" in script
    assert {name for name in ("again", "grows", "__consumer_offsets") if f"broker 11: DIR/{name}-*" in script} == {
        "again",
        "grows",
    }
