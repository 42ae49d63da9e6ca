"""Which voters a replica counts after it has cut its log: those of its log, and up to Kafka 4.3 not all of those."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_engine.consensus.leader import append
from kraft_engine.runs.scenario_stage import Stage


@pytest.mark.parametrize(("release", "is_blind"), [("3.9.2", True), ("4.3.1", True), ("4.4.0", False)])
def test_a_replica_that_cut_its_log_misses_a_voter_until_it_restarts(
    release: str, is_blind: bool, tmp_path: Path
) -> None:
    stage = Stage(5, tmp_path, release=release, metadata_version=21)
    stage.controllers(1, 2, 3)
    stage.spare_controller(4)
    old = stage.leader()
    others = [node_id for node_id in (1, 2, 3) if node_id != old.id]
    stage.isolate(old.id)
    for _ in range(60):
        append(old, (("NoOpRecord", 0, {}),), is_control=False)
    uncommitted_end = old.log.end_offset
    stage.until(lambda: stage.leader().id in others, "another leader")
    stage.run_ms(4_000)
    stage.until(lambda: stage.caught_up(4), "controller 4 catching up with the new leader")
    assert stage.add_voter(4) == ""
    stage.heal()
    stage.settle()
    added_at = stage.leader().history.last_offset
    assert added_at is not None
    assert added_at < uncommitted_end
    ids = [node.voters.ids for node in stage.cluster.nodes() if node.voters is not None and node.id == old.id]
    assert ids == [(1, 2, 3) if is_blind else (1, 2, 3, 4)]
    stage.stop(old.id)
    stage.start(old.id)
    stage.settle()
    voters = stage.node(old.id).voters
    assert voters is not None
    assert voters.ids == (1, 2, 3, 4)
