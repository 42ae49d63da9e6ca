"""What is said of voters that are cut off, of dead majorities, flipped epochs and emptied disks, and what is true."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.recovery.may_i.permission import Action, Question, Verdict
from kraft_audit.rules.columns.quorum_standing import QuorumStanding, Standing
from kraft_engine.scenarios.scenario import load

pytestmark = pytest.mark.slow
SEED = 3


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("played")
    for name in ("cut-off-voter", "voter-alone", "epoch-bit", "controllers-emptied"):
        load()[name].play(SEED, folder / name)
    return folder


def standing_of(path: Path) -> QuorumStanding:
    with kraft_audit.open(str(path)) as (cluster,):
        return cluster.standing()


def elected(folder: Path) -> tuple[int, int]:
    """(epoch, leader id) of the newest LeaderChange that the engine wrote."""
    lines = [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()]
    return max((line["epoch"], line["leader"]) for line in lines if line["kind"] == "elected")


def test_one_copy_does_not_tell_a_cut_off_voter_from_a_dead_majority(played: Path) -> None:
    for capture in ("cut-off-voter/one-is-cut-off", "voter-alone/candidates-are-left"):
        found = standing_of(played / capture)
        assert found.standing is Standing.UNDECIDED
        assert "is cut off and the others work, or" in found.reason


def test_two_copies_tell_that_the_others_work(played: Path) -> None:
    found = standing_of(played / "cut-off-voter")
    assert found.standing is Standing.HEALTHY
    assert (found.epoch, found.leader_id) == elected(played / "cut-off-voter")


def test_a_flipped_epoch_is_no_disk_to_start(played: Path) -> None:
    capture = played / "epoch-bit" / "flipped"
    with kraft_audit.open(str(capture)) as (cluster,):
        (wrong,) = cluster.standing().distrusted
        assert cluster.standing().standing is Standing.UNDECIDED
        assert (cluster.standing().epoch, cluster.standing().leader_id) == elected(played / "epoch-bit")
        asked = Question(Action.START, wrong.node_id, str(capture))
        assert cluster.may_i(asked).verdict is Verdict.UNDECIDED


def test_emptied_controllers_may_not_elect_themselves(played: Path) -> None:
    capture = played / "controllers-emptied" / "brokers-persist"
    with kraft_audit.open(str(capture)) as (cluster,):
        assert cluster.standing().standing not in (Standing.HEALTHY, Standing.AT_REST, Standing.EMPTY)
        for node_id in (1, 2, 3):
            assert cluster.may_i(Question(Action.START, node_id, str(capture))).verdict is not Verdict.YES
