"""Names that no Kafka accepts, and voters by the thousand: people read short lines, programs read all of it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from kraft_audit.text.output import Format, Output, ShownColumn, abridged
from kraft_codec.files.state_files import QuorumState
from kraft_codec.records.record import write_metadata_value
from tests.builders.commands import Command
from tests.builders.logs import Log, led, write_node

LONG = 32_000


def test_a_name_of_255_characters_is_whole() -> None:
    assert abridged(f"topic {'x' * 255} is") == f"topic {'x' * 255} is"
    assert abridged(f"topic {'x' * 256} is") == f"topic {'x' * 60}…{'x' * 60} (256 characters) is"


def test_paths_and_documents_are_no_names() -> None:
    path = "/".join(["folder" * 40] * 20)
    document = '{"partitions":[' + ",".join(f'{{"topic":"orders","partition":{number}}}' for number in range(99)) + "]}"
    assert abridged(path) == path
    assert abridged(document) == document


def test_programs_get_names_in_full() -> None:
    name = "x" * LONG
    for output in Format:
        stream = io.StringIO()
        Output(output, stream).rows([{"topic": name}], [ShownColumn("topic", "topic")])
        assert (name in stream.getvalue()) is (output is not Format.TABLE)


def hostile(voters: list[int]) -> Log:
    """Topics, a broker's host and rack with names of 32,000 characters; two partitions have no leader."""
    log = led(1, voters)
    log.append(write_metadata_value("FeatureLevelRecord", 0, {"name": "metadata.version", "featureLevel": 25}))
    endpoint = {"name": "P", "host": "h" * LONG, "port": 9092, "securityProtocol": 0}
    broker = {"brokerId": 11, "incarnationId": b"i" * 16, "brokerEpoch": 1, "endPoints": [endpoint], "features": []}
    broker |= {"rack": "r" * LONG, "fenced": False, "inControlledShutdown": False}
    log.append(write_metadata_value("RegisterBrokerRecord", 1, broker))
    for letter, leader in (("a", 11), ("b", -1), ("c", -1)):
        topic_id = letter.encode() * 16
        log.append(write_metadata_value("TopicRecord", 0, {"name": letter * LONG, "topicId": topic_id}))
        partition = {"partitionId": 0, "topicId": topic_id, "replicas": [11], "isr": [11], "leader": leader}
        partition |= {"removingReplicas": [], "addingReplicas": [], "leaderEpoch": 0, "partitionEpoch": 0}
        log.append(write_metadata_value("PartitionRecord", 0, {**partition, "leaderRecoveryState": 0}))
    return log


ASKED = (
    ("check",),
    ("check", "--findings"),
    ("partitions",),
    ("quorum",),
    ("quorum", "--nodes"),
    ("quorum", "--voters"),
    ("timeline",),
    ("recover-plan",),
    ("rescue", "--plan", "--gone", "2,3"),
    ("state",),
)


@pytest.mark.slow
@pytest.mark.parametrize(("voter_count", "commands"), [(3, ASKED), (20_000, (("check",), ("quorum", "--voters")))])
def test_lines_stay_short(
    kraft_audit: Command, tmp_path: Path, voter_count: int, commands: tuple[tuple[str, ...], ...]
) -> None:
    voters = list(range(1, voter_count + 1))
    content = hostile(voters).content
    for node_id in (1, 2, 3):
        write_node(tmp_path, node_id, content, state=QuorumState(0, 1, 1, -1, current_voters=tuple(voters)))
    for asked, *options in commands:
        lines = kraft_audit(asked, tmp_path, *options).out.splitlines()
        assert lines
        assert max(map(len, lines)) < 2_000, (asked, max(lines, key=len)[:300])
