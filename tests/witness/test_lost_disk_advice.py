"""`check` and `may-i` say the same of a disk that lost records, and neither lets committed records be lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.recovery.may_i.permission import Action, Question, Verdict
from kraft_audit.rules.rule_model import Status
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.runs.simulate import simulate
from kraft_engine.scenarios.lost_disks import committed_without
from kraft_engine.world.disk_accidents import empty_segments

SCENARIOS = (
    *("wiped-voter-before-the-loss", "static-voter-formatted-again", "three-of-five-wiped"),
    "emptied-segments",
)


def verdict(cluster: kraft_audit.Cluster, node_id: int) -> Verdict:
    return cluster.may_i(Question(Action.START, node_id, "there")).verdict


@pytest.mark.parametrize("name", SCENARIOS)
def test_check_advises_a_start_just_where_may_i_allows_it(tmp_path: Path, name: str) -> None:
    allowed = set()
    for seed in range(2):
        out = tmp_path / str(seed)
        simulate(name, seed, out)
        with kraft_audit.open(str(out)) as clusters:
            (cluster,) = clusters
            raised = [each for each in cluster.check(only=("KQ020", "KQ021")) if each.status is Status.RAISED]
            for finding in raised:
                is_advised = "Do not start" not in finding.what_to_do
                for node_id in map(int, re.findall(r"\d+", finding.subject)):
                    assert is_advised == (verdict(cluster, node_id) is Verdict.YES), (seed, finding.subject)
                    allowed.add(is_advised)
    assert allowed == {name == "emptied-segments"}


def test_an_emptied_log_may_have_held_what_makes_a_majority(tmp_path: Path) -> None:
    """Three voters: what the leader and the emptied one had is committed, and the third, which lagged, lacks it.

    The engine plays it: the two elect the third, and its log has other records there.
    """
    out = tmp_path / "out"
    stage = Stage(1, out)
    _, (lagging, victim) = committed_without(stage, 1, 2, 3)
    committed = list(stage.invariants.ledger.batches)
    stage.disk_accident("segments emptied", victim, change=empty_segments)
    stage.capture("all-down")
    with kraft_audit.open(str(out)) as clusters:
        (cluster,) = clusters
        assert all(verdict(cluster, node_id) is not Verdict.YES for node_id in (1, 2, 3))
    stage.heal()
    for node_id in (lagging, victim):
        stage.start(node_id)
    stage.until(lambda: bool(stage.leaders()), "an election")
    (leader,) = stage.leaders()
    assert leader.id == lagging
    assert any(leader.log.batch_at(batch.base_offset) is not batch for batch in committed)
