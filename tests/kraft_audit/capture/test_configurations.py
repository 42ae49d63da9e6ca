"""Which configuration counts for a node dir: its own, one above it with its node.id, or the one that --config names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_audit.capture.node_card import NodeCard
from kraft_codec.files.state_files import QuorumState
from tests.builders.logs import CLUSTER_ID, led, with_topics, write_node

FOREIGN = "kQHv733NQIew9aw9uCXnDA"


def written(file: Path, node_id: int, voters: str = "1@a:9093,2@b:9093", more: str = "") -> Path:
    file.write_text(f"process.roles=controller\nnode.id={node_id}\ncontroller.quorum.voters={voters}\n{more}")
    return file


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """The disks of two voters, each in a folder of its host."""
    log = with_topics(led(1, [1, 2]), 3)
    for node_id in (1, 2):
        state = QuorumState(0, 1, 1, -1, current_voters=(1, 2))
        write_node(tmp_path / "captures" / f"host-{node_id}", node_id, log.content, state=state)
    return tmp_path / "captures"


def cards(path: Path, **options: Any) -> dict[int | None, NodeCard]:
    with kraft_audit.open(str(path), **options) as clusters:
        (cluster,) = clusters
        return {card.node_id: card for card in cluster.nodes()}


def test_a_configuration_in_a_node_dir_is_its_own_whatever_id_it_says(capture: Path) -> None:
    written(capture / "host-1" / "node-1" / "server.properties", 7)
    card = cards(capture)[1]
    assert (card.configuration, card.configured_node_id) == ("host-1/node-1/server.properties", 7)
    assert (card.roles, card.configured_voters) == (("controller",), (1, 2))


def test_above_a_node_dir_the_nearest_with_its_id_counts(capture: Path) -> None:
    written(capture / "host-1" / "controller.properties", 1, "1@a:9093")
    written(capture / "controller.properties", 1, "1@a:9093,9@i:9093")
    written(capture / "server.properties", 2)
    found = cards(capture)
    assert found[1].configuration == "host-1/controller.properties"
    assert found[1].configured_voters == (1,)
    assert found[2].configuration == "server.properties"


def test_neither_another_node_s_file_nor_two_that_differ_nor_one_above_path_counts(capture: Path) -> None:
    written(capture / "host-1" / "server.properties", 2)
    written(capture / "host-2" / "server.properties", 2)
    written(capture / "host-2" / "controller.properties", 2, "2@b:9093")
    written(capture.parent / "server.properties", 1)
    assert [card.configuration for card in cards(capture).values()] == [None, None]


def test_two_equal_files_are_one(capture: Path) -> None:
    written(capture / "host-2" / "server.properties", 2)
    written(capture / "host-2" / "controller.properties", 2)
    assert cards(capture)[2].configured_voters == (1, 2)


def test_an_unreadable_configuration_of_a_node_dir_says_where_it_is_and_nothing_else(capture: Path) -> None:
    (capture / "host-1" / "node-1" / "server.properties").write_text("node.id=\\u00g0\n")
    card = cards(capture)[1]
    assert (card.configuration, card.roles, card.configured_voters) == ("host-1/node-1/server.properties", None, None)


def test_a_named_configuration_comes_first(capture: Path, tmp_path: Path) -> None:
    written(capture / "host-1" / "server.properties", 1)
    named = written(tmp_path / "named.conf", 1, "1@a:9093", "ssl.key.password=hunter2\nbroker.session.timeout.ms=6000")
    found = cards(capture, configurations={1: named})
    assert (found[1].configuration, found[1].configured_voters) == (str(named), (1,))
    assert found[1].timeouts == ("broker.session.timeout.ms=6000",)
    assert found[2].configuration is None


def test_the_command_names_configurations_and_shows_what_they_say(kraft_audit: Any, capture: Path) -> None:
    named = written(capture.parent / "2.conf", 2, more="ssl.key.password=hunter2\n")
    answer = kraft_audit("quorum", capture, "--nodes", "--config", f"2={named}", "-o", "json")
    documents = json.loads(answer.out)
    assert [document["configured_voters"] for document in documents] == [None, [1, 2]]
    assert "hunter2" not in answer.out
    shown = kraft_audit("quorum", capture, "--nodes", "--config", f"2={named}").out.splitlines()
    assert "controller  1,2" in shown[3]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("7=FILE", "node 7: there are 1, 2"),
        ("x=FILE", "expected ID=FILE, for example 3=/etc/kafka/server.properties"),
        ("1=", "expected ID=FILE"),
        ("1=FILE/none", "none"),
        ("1=EMPTY", "no node.id and no other setting of a node"),
    ],
)
def test_a_configuration_without_use_is_refused(kraft_audit: Any, capture: Path, option: str, said: str) -> None:
    named, empty = written(capture.parent / "1.conf", 1), capture.parent / "empty.conf"
    empty.write_text("ssl.key.password=hunter2\n")
    answer = kraft_audit("check", capture, "--config", option.replace("FILE", str(named)).replace("EMPTY", str(empty)))
    assert answer.code in (2, 3)
    assert said in answer.err
    assert "hunter2" not in answer.err


def test_a_node_of_two_clusters_needs_one_named(kraft_audit: Any, capture: Path) -> None:
    other = with_topics(led(1, [1]), 5)
    write_node(capture / "other", 1, other.content, cluster_id=FOREIGN, directory_id="E" * 21 + "A")
    named = written(capture.parent / "1.conf", 1)
    answer = kraft_audit("quorum", capture, "--nodes", "--config", f"1={named}")
    assert (answer.code, "2 clusters have such a node: add --cluster" in answer.err) == (2, True)
    one = kraft_audit("quorum", capture, "--nodes", "--config", f"1={named}", "--cluster", CLUSTER_ID, "-o", "json")
    assert json.loads(one.out)[0]["configured_voters"] == [1, 2]
