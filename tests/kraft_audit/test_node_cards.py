"""The card of a node: each state of a log, from files that were written for it, and as `quorum --nodes` shows it."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_audit.capture.node_card import NodeCard
from kraft_codec.file_names import offset_index_name, producer_state_name, snapshot_name
from kraft_codec.files.indexes import PREALLOCATED_OFFSET_INDEX_BYTES, format_producer_state
from kraft_codec.files.properties import format_meta_properties, meta_properties
from kraft_codec.files.state_files import (
    CleanShutdown,
    EpochEntry,
    QuorumState,
    format_clean_shutdown,
    format_leader_epoch_checkpoint,
)
from kraft_codec.records.record import write_metadata_value
from tests.builders.logs import CLUSTER_ID, DIRECTORIES, led, with_topics, write_node

FOREIGN = "kQHv733NQIew9aw9uCXnDA"


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """Five voters of a static quorum: whole, shorter than it was, without its log, never started, another cluster's."""
    log = with_topics(led(1, [1, 2, 3, 4, 5]), 8)
    state = QuorumState(0, 1, 3, 1, current_voters=(1, 2, 3, 4, 5))
    epochs = {"leader-epoch-checkpoint": format_leader_epoch_checkpoint((EpochEntry(1, 0), EpochEntry(3, 40)))}
    write_node(tmp_path, 1, log.content, state=state)
    write_node(tmp_path, 2, log.content, state=state, files=epochs)
    write_node(tmp_path, 3, {}, state=state, files=epochs)
    shutil.rmtree(write_node(tmp_path, 4, {}, directory_id=DIRECTORIES[3]) / "__cluster_metadata-0")
    write_node(tmp_path, 5, log.content, state=state, cluster_id=FOREIGN)
    return tmp_path


def test_each_file_speaks(nodes: Path) -> None:
    with kraft_audit.open(str(nodes)) as clusters:
        (cluster,) = clusters
        cards = {card.node_id: card for card in cluster.nodes()}
    assert {node_id: card.log for node_id, card in cards.items()} == {
        1: "read",
        2: "shorter",
        3: "missing",
        4: "unstarted",
        5: "foreign",
    }
    assert [(card.log_end_offset, card.reached_epoch, card.reached_offset) for card in cards.values()] == [
        (9, None, None),
        (9, 3, 40),
        (None, 3, 40),
        (None, None, None),
        (None, None, None),
    ]
    assert {card.cluster_id for card in cards.values()} == {CLUSTER_ID, FOREIGN}
    assert cards[4].directory_id == DIRECTORIES[3]
    assert cards[4].current_voters is None
    assert cards[3].current_voters == (1, 2, 3, 4, 5)
    assert (cards[3].leader_epoch, cards[3].leader_id, cards[3].voted_id) == (3, 1, 1)


def test_the_command_shows_the_cards(kraft_audit: Any, nodes: Path) -> None:
    answer = kraft_audit("quorum", nodes, "--nodes")
    states = [line.split()[2] for line in answer.out.splitlines()[2:]]
    assert states == ["read", "shorter", "missing", "unstarted", "foreign"]
    documents = json.loads(kraft_audit("quorum", nodes, "--nodes", "-o", "json").out)
    assert [document["current_voters"] for document in documents][:2] == [[1, 2, 3, 4, 5]] * 2


INDEX = PREALLOCATED_OFFSET_INDEX_BYTES
LOG = with_topics(led(1, [1]), 8)
END = LOG.next_offset


def card_of(path: Path) -> NodeCard:
    with kraft_audit.open(str(path)) as clusters:
        (cluster,) = clusters
        (card,) = cluster.nodes()
    return card


@pytest.mark.parametrize(
    ("named", "index_bytes", "has_clean_file", "closed"),
    [
        (END, INDEX - 8, False, "in order"),
        (END, INDEX, True, "in order"),
        (END, INDEX, False, None),
        (END - 1, INDEX, True, "open"),
        (None, INDEX, False, "open"),
        (END - 1, 0, True, None),
        (None, None, False, None),
    ],
)
def test_how_a_log_was_left(
    tmp_path: Path, named: int | None, index_bytes: int | None, has_clean_file: bool, closed: str | None
) -> None:
    """Kafka 4.3 cuts the index when it closes the log, 4.4 does not; each names a `.snapshot` after the end."""
    files = {} if named is None else {producer_state_name(named): format_producer_state()}
    node = write_node(tmp_path, 1, LOG.content, files=files)
    if index_bytes is not None:
        with (node / "__cluster_metadata-0" / offset_index_name(0)).open("wb") as index:
            index.truncate(index_bytes)
    if has_clean_file:
        (node / ".kafka_cleanshutdown").write_bytes(format_clean_shutdown(CleanShutdown(0, 5)))
    assert card_of(tmp_path).closed == closed


def test_a_snapshot_that_was_about_to_be_deleted_and_other_log_dirs(tmp_path: Path) -> None:
    node = write_node(tmp_path, 1, LOG.content, directory_id=DIRECTORIES[0])
    for end in (4, 6):
        (node / "__cluster_metadata-0" / f"{snapshot_name(end, 1)}.deleted").write_bytes(b"")
    for number, own_id, directory_id in ((2, 1, DIRECTORIES[2]), (3, 1, DIRECTORIES[1]), (4, 7, DIRECTORIES[3])):
        (tmp_path / f"disk-{number}").mkdir()
        meta = meta_properties(cluster_id=CLUSTER_ID, node_id=own_id, directory_id=directory_id)
        (tmp_path / f"disk-{number}" / "meta.properties").write_bytes(format_meta_properties(meta))
    with kraft_audit.open(str(tmp_path)) as clusters:
        cards = {card.node_id: card for cluster in clusters for card in cluster.nodes()}
    assert (cards[1].deleted_snapshot_end_offset, cards[1].snapshot_end_offset) == (6, None)
    assert cards[1].further_directory_ids == (DIRECTORIES[1], DIRECTORIES[2])
    assert cards[7].further_directory_ids == ()


def test_what_the_log_says_of_each_node(samples: Path) -> None:
    """A cluster of Kafka 4.3."""
    with kraft_audit.open(str(samples / "jbod.tgz")) as clusters:
        (cluster,) = clusters
        cards = {card.node_id: card for card in cluster.nodes()}
        registered = {row["broker_id"]: row for row in cluster.table("broker_changes").to_pylist()}
    said = {node_id: card.in_log for node_id, card in cards.items() if card.in_log is not None}
    assert {node_id: each.voter_directory_id for node_id, each in said.items()} == {
        1: cards[1].directory_id,
        11: None,
        12: None,
    }
    assert (said[1].bootstrap_voters, said[11].bootstrap_voters) == ((1,), None)
    assert {each.needs_release for each in said.values()} == {"4.3"}
    (broker,) = said[11].registrations
    assert (broker.role, broker.levels) == ("broker", (7, 30))
    assert broker.in_controlled_shutdown == registered[11]["in_controlled_shutdown"]
    assert list(broker.directory_ids) == registered[11]["log_dirs"]
    assert cards[11].directory_id in broker.directory_ids
    assert [each.role for each in said[1].registrations] == ["controller"]


def test_a_log_that_ends_before_an_upgrade_needs_less(tmp_path: Path) -> None:
    level = {"name": "metadata.version", "featureLevel": 21}
    log = with_topics(led(1, [1]), 2)
    log.append(write_metadata_value("FeatureLevelRecord", 0, level))
    early = log.content
    log.append(write_metadata_value("FeatureLevelRecord", 0, {**level, "featureLevel": 25}))
    write_node(tmp_path, 1, log.content)
    write_node(tmp_path, 2, early)
    with kraft_audit.open(str(tmp_path)) as clusters:
        (cluster,) = clusters
        needed = {card.node_id: card.in_log.needs_release for card in cluster.nodes() if card.in_log is not None}
    assert needed == {1: "4.0", 2: "3.9"}


def test_the_table_has_the_cards(nodes: Path) -> None:
    with kraft_audit.open(str(nodes)) as clusters:
        (cluster,) = clusters
        cards = {card.path: card for card in cluster.nodes()}
        rows = cluster.table("node_cards").to_pylist()
    assert len(rows) == len(cards) == 5
    for row in rows:
        card = {**asdict(cards[row["path"]]), "own_cluster_id": cards[row["path"]].cluster_id, "cluster_id": CLUSTER_ID}
        same = {name: card[name] for name in row.keys() & card.keys()}
        assert {name: row[name] for name in same} == {
            name: list(value) if isinstance(value, tuple) else value for name, value in same.items()
        }
    assert {field.name for field in fields(NodeCard)} - {"in_log"} <= rows[0].keys()
