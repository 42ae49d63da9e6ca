"""The card of a node: each state of a log, from files that were written for it, and as `quorum --nodes` shows it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_codec.files.state_files import EpochEntry, QuorumState, format_leader_epoch_checkpoint
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
