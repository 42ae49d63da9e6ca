"""The voters of a quorum at kraft.version 0: a history of what leaders, quorum-states and configurations named.

The engine gives every process its own controller.quorum.voters and plays elections by them: which voters each leader
went by is taken from its memory, not from what it wrote.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

import kraft_audit as audit
from kraft_audit.cluster import Cluster
from kraft_audit.quorum.static_voters import NamedVoters, StaticVoters, voters_named_since
from kraft_audit.rules.columns.voter_sets import current_set, electing_set, voter_ids
from kraft_codec.files.state_files import parse_quorum_state
from kraft_engine.consensus.raft import LEADER
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.scenarios.scenario import load

LOG_DIR = "__cluster_metadata-0"


def the_cluster(path: Path) -> Cluster:
    (cluster,) = audit.open(str(path))
    return cluster


def random_reconfigurations(seed: int, out: Path) -> dict[int, tuple[int, ...]]:
    """A static quorum whose configuration changes a voter at a time, with a capture after each roll.

    By epoch, the voters that its leader went by.
    """
    chance = random.Random(seed)  # noqa: S311  # not a secret
    stage = Stage(seed, out)
    voters = tuple(range(1, chance.choice((1, 2, 3)) + 1))
    stage.controllers(*voters, static=True)
    went_by: dict[int, tuple[int, ...]] = {}
    for number in range(4):
        stage.controller().write([("NoOpRecord", 0, {})])
        stage.settle()
        for node in stage.cluster.nodes():
            if node.role == LEADER:
                went_by[node.epoch] = tuple(sorted(node.static_voters.ids))
        stage.capture(f"roll-{number}")
        grows = len(voters) == 1 or (len(voters) < 4 and chance.random() < 0.6)
        changed = (*voters, len(voters) + 1) if grows else voters[:-1]
        for node_id in voters:
            stage.stop(node_id)
        stage.configure_voters(changed, changed)
        voters = changed
        for node_id in voters:
            stage.start(node_id)
    return went_by


@pytest.mark.parametrize("seed", range(6))
def test_the_set_of_each_epoch_is_the_one_that_its_leader_went_by(seed: int, tmp_path: Path) -> None:
    went_by = random_reconfigurations(seed, tmp_path)
    assert len(set(went_by.values())) >= 2
    history = the_cluster(tmp_path).history
    led = {row["epoch"]: row for row in history.rows("leader_epochs") if row["leader_change_offset"] is not None}
    found = {epoch: voter_ids(electing_set(history, led[epoch]["leader_change_offset"])) for epoch in went_by}
    assert found == {epoch: frozenset(ids) for epoch, ids in went_by.items()}
    assert voter_ids(current_set(history)) == frozenset(went_by[max(went_by)])


@pytest.mark.parametrize("seed", range(3))
def test_a_log_whose_first_leader_change_is_gone_begins_with_the_voters_named_next(seed: int, tmp_path: Path) -> None:
    """quorum-state of the leader itself counts before what later leaders listed."""
    state = NamedVoters(1, 5, 1, (1, 2, 3))
    known = StaticVoters(led={5: (1, 2, 3), 9: (1,)}, named=((7, (1, 2)),))
    assert known.first_of(5, ()) == state.voters
    assert known.first_of(6, ()) == (1, 2)
    assert known.first_of(8 + seed % 2, ()) == (1,)
    assert known.first_of(10, ()) == (1,)
    assert known.first_of(None, ()) == (1,)
    assert StaticVoters((4, 5), known.led, known.named).first_of(6, ()) == (4, 5)


ONE, THREE = (1,), (1, 2, 3)


@pytest.mark.parametrize(
    ("states", "voters", "since"),
    [
        pytest.param([NamedVoters(1, 3, 1, ONE)], ONE, None, id="the leader names its own"),
        pytest.param([NamedVoters(1, 3, 1, THREE)], ONE, THREE, id="the leader was started with others"),
        pytest.param([NamedVoters(2, 3, 1, THREE)], ONE, None, id="another node was, and the leader is not captured"),
        pytest.param([NamedVoters(2, 4, -1, THREE)], ONE, THREE, id="a node with others is in a later epoch"),
        pytest.param([NamedVoters(2, 4, -1, THREE), NamedVoters(1, 3, 1, ONE)], ONE, None, id="the leader differs"),
        pytest.param([NamedVoters(1, 3, 1, THREE), NamedVoters(11, 3, 1, ONE)], ONE, THREE, id="a broker differs"),
        pytest.param([NamedVoters(1, 3, 1, ONE), NamedVoters(2, 3, 1, THREE)], THREE, None, id="who left differs"),
        pytest.param([NamedVoters(1, 3, 1, ())], ONE, None, id="no voters are named"),
    ],
)
def test_which_voters_the_next_election_goes_by(
    states: list[NamedVoters], voters: tuple[int, ...], since: tuple[int, ...] | None
) -> None:
    assert voters_named_since(states, voters, 3, 1) == since


def test_voters_shows_a_set_that_no_leader_has_named_yet(kraft_audit: Any, tmp_path: Path) -> None:
    """The one voter of a quorum was started again as one of three, and the others were not started."""
    stage = Stage(3, tmp_path)
    stage.controllers(1, static=True)
    stage.settle()
    stage.stop(1)
    stage.configure_voters((1,), (1, 2, 3))
    stage.start(1)
    stage.run_ms(20_000)
    stage.capture("alone")
    state = parse_quorum_state((tmp_path / "alone" / "node-1" / LOG_DIR / "quorum-state").read_bytes())
    assert set(state.current_voters or ()) == {1, 2, 3}
    rows = the_cluster(tmp_path).voters().to_pylist()
    assert [(row["ended_by"], [each["voter_id"] for each in row["voters"]]) for row in rows] == [
        ("superseded", [1]),
        ("in_effect", [1, 2, 3]),
    ]
    assert rows[1]["from_offset"] == the_cluster(tmp_path).history.rows("captures")[0]["log_end_offset"]
    assert rows[1]["named_by"] == ["quorum-state of node 1"]
    assert "1 of 3 voters captured" in kraft_audit("check", tmp_path).out


@pytest.mark.parametrize("name", ["static-scale-in", "static-growth"])
def test_voters_names_what_each_set_is_known_by(kraft_audit: Any, name: str, tmp_path: Path) -> None:
    stage = load()[name].play(4, tmp_path)
    epochs = {node.epoch for node in stage.cluster.nodes()}
    rows = the_cluster(tmp_path).voters().to_pylist()
    newest = rows[-1]
    assert newest["ended_by"] == "in_effect"
    assert {newest["from_epoch"]} == epochs
    changes = [line for line in newest["named_by"] if line.startswith("LeaderChange")]
    assert changes == [f"LeaderChange of epoch {newest['from_epoch']}"]
    files = [line for line in newest["named_by"] if line.startswith("quorum-state")]
    last = sorted((path for path in tmp_path.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)[-1]
    assert [line.rpartition(" since ")[2] for line in files] == [last.name]
    shown = kraft_audit("quorum", "--voters", tmp_path).out
    assert re.search(rf"{newest['from_epoch']} .* static .* in_effect .*LeaderChange", shown)


def test_a_scaled_out_quorum_counts_the_voters_that_its_leader_went_by(kraft_audit: Any, cases: Path) -> None:
    """Kafka 4.1.2: two new controllers elected themselves by their own configuration, beside the old single voter."""
    path = cases / "static-scale-out-may-i" / "in.tgz"
    checked = kraft_audit("check", path)
    assert "3 of 3 voters captured" in checked.out.splitlines()[0]
    assert "KQ006" not in kraft_audit("check", path, "--findings", "--include-resolved").out
    sets = json.loads(kraft_audit("quorum", "--voters", path, "--output", "json").out)
    shown = [(row["ended_by"], [each["voter_id"] for each in row["voters"]], row["named_by"][1]) for row in sets]
    assert shown == [
        ("in_effect", [1, 2, 3], "quorum-state of nodes 1, 2, 3 and 11 since 2-new-pair-leads"),
        ("truncated", [1], "quorum-state of nodes 1 and 11 since 1-new-formatted-all-stopped"),
    ]
    before = kraft_audit("check", path, "--capture", "1-new-formatted-all-stopped")
    assert "1 of 1 voters captured" in before.out.splitlines()[0]
