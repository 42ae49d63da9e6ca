"""No *yes* to what `check` warns of: damaged logs, two committed versions, voters and copies that only seem there.

Each case was a yes once, or a rescue that stood on a disk of which nothing was read.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_audit.recovery.may_i.broker_permission import broker_permission
from kraft_audit.recovery.may_i.permission import Action, Permission, Question, RollQuestion, Verdict
from kraft_engine.runs.simulate import simulate
from tests.builders.captures import copy_nodes
from tests.builders.histories import HistoryBuilder

pytestmark = pytest.mark.slow

DAMAGED = {
    "altered-batch": "KQ022",
    "epoch-went-back": "KQ004",
    "offset-gap": "KQ007",
    "cut-at-the-front": "KQ007",
    "bit-rot": "KQ008",
}
"""Scenarios in which node 2 has a log that it cannot go on with, and what `check` raises."""
CHANGES = (Action.DELETE_VOLUME, Action.FORMAT, Action.SCALE_IN, Action.RESTART)
Asked = Callable[..., Permission]


@pytest.fixture
def asked() -> Asked:
    def ask(path: Path, action: Action, node_id: int, *gone: int) -> Permission:
        with kraft_audit.open(str(path)) as (cluster,):
            found = cluster.may_i(Question(action, node_id, "PATH", gone=frozenset(gone)))
        assert isinstance(found, Permission)
        return found

    return ask


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("damaged")

    def made(scenario: str) -> Path:
        if not (folder / scenario).exists():
            simulate(scenario, 1, folder / scenario)
        return folder / scenario

    return made


@pytest.mark.parametrize("scenario", DAMAGED)
def test_a_node_with_a_damaged_log_is_neither_started_nor_needed(
    scenario: str, damaged: Callable[[str], Path], asked: Asked
) -> None:
    path = damaged(scenario)
    for action, node_id in ((Action.START, 2), (Action.RESTART, 2), (Action.RESTART, 1)):
        answer = asked(path, action, node_id)
        assert answer.verdict is Verdict.NO, (action, node_id)
        assert f"({DAMAGED[scenario]})" in answer.reason
        assert "disk of node 2 is not fit" in answer.reason
    assert asked(path, Action.START, 1).verdict is Verdict.YES, "its own disk is sound"
    with kraft_audit.open(str(path)) as (cluster,):
        assert cluster.may_i_roll(RollQuestion("PATH")).verdict is Verdict.NO


def test_a_disk_that_was_replaced_since_is_fit(damaged: Callable[[str], Path], asked: Asked, tmp_path: Path) -> None:
    source = damaged("offset-gap")
    for capture in ("1", "2"):
        shutil.copytree(source, tmp_path / capture, ignore=shutil.ignore_patterns("truth*", "timeline*"))
    (now,) = (tmp_path / "2").rglob("node-2/__cluster_metadata-0")
    (sound,) = (tmp_path / "2").rglob("node-1/__cluster_metadata-0")
    for log in sound.glob("*.log"):
        shutil.copy2(log, now)
    assert asked(tmp_path / "1", Action.RESTART, 2).verdict is Verdict.NO
    answer = asked(tmp_path, Action.RESTART, 2)
    assert "not fit" not in answer.reason


@pytest.mark.parametrize("action", [Action.WIPE, Action.DELETE_VOLUME, Action.START, Action.RESTART])
def test_the_last_disk_of_what_was_committed_once_is_left_alone(action: Action, tmp_path: Path, asked: Asked) -> None:
    """Offsets to 44 were proven committed before node 3 was emptied; only node 2 holds them, and 1 and 3 went on."""
    simulate("wiped-voter", 5, tmp_path / "run")
    answer = asked(tmp_path / "run", action, 2)
    assert answer.verdict is Verdict.NO
    assert "offset 44 was committed in epoch 1" in answer.reason


@pytest.mark.parametrize("action", CHANGES)
@pytest.mark.parametrize("node_id", [1, 3])
def test_a_voter_is_its_disk_and_not_its_id(action: Action, node_id: int, captured_logs: Path, asked: Asked) -> None:
    """Node 2 runs with another disk than the voter's: of three voters two have one."""
    answer = asked(captured_logs / "phantom" / "03-phantom", action, node_id)
    assert answer.verdict is Verdict.NO
    assert answer.cannot_be_lost is not None
    assert answer.cannot_be_lost.gone_count == 1


def test_disks_go_by_their_own_voter_sets(captured_logs: Path, asked: Asked) -> None:
    """Node 3 alone goes by {2, 3, 4}; without it, nodes 2 and 4 go by {1, 2, 3, 4}, of which they are no majority."""
    path = captured_logs / "uncommitted-voter-change" / "20-remove-voter-uncommitted"
    answer = asked(path, Action.DELETE_VOLUME, 3, 1)
    assert answer.verdict is Verdict.NO
    assert "no leader could ever be elected again" in answer.reason


def lose(build: HistoryBuilder) -> Permission:
    answer = broker_permission(Question(Action.WIPE, 13, "PATH"), build.history())
    assert answer is not None
    return answer


@pytest.mark.parametrize(("low", "verdict"), [(30, Verdict.UNDECIDED), (34, Verdict.YES)])
def test_who_joined_by_an_uncommitted_record_is_no_copy(build: HistoryBuilder, low: int, verdict: Verdict) -> None:
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, to=34).log(2, 3, to=low).watermark(low, low, end=34)
    for node_id, end in ((1, 34), (2, low), (3, low)):
        build.capture(node_id, end)
    build.brokers(12, 13).partition("t-0", 10, "created", replicas=[12, 13], isr=[12, 13], leader=13)
    build.partition("t-0", 20, "fenced", replicas=[12, 13], isr=[13], leader=13, effective_min_isr=1)
    build.partition("t-0", 33, "expanded", replicas=[12, 13], isr=[12, 13], leader=13, effective_min_isr=1)
    answer = lose(build)
    assert answer.verdict is verdict
    assert verdict is Verdict.YES or "joined the ISR by records that are not proven committed" in answer.reason


def test_a_minority_of_the_controllers_says_yes_to_no_broker(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(2, to=40).watermark(0, None, end=40).capture(2, 40)
    build.brokers(12, 13).partition("t-0", 10, "created", replicas=[12, 13], isr=[12, 13], leader=13)
    answer = lose(build)
    assert answer.verdict is Verdict.UNDECIDED
    assert "too few controllers" in answer.reason


def plan_without(source: Path, folder: Path, nodes: tuple[int, ...], without_log: int, *gone: int) -> Any:
    with kraft_audit.open(str(copy_nodes(source, folder, nodes, without_log))) as (cluster,):
        return cluster.rescue_plan(gone)


def test_a_voter_whose_log_is_missing_may_hold_the_better_copy(captured_logs: Path, tmp_path: Path) -> None:
    plan = plan_without(captured_logs / "six" / "06-three-of-six-down", tmp_path, (3, 6), 6, 1, 2, 4, 5)
    assert plan.verdict.value == "undecided"
    assert "node 6" in plan.reason


def test_a_broker_whose_log_is_missing_proves_no_end(captured_logs: Path, tmp_path: Path) -> None:
    plan = plan_without(captured_logs / "divergence" / "00-healthy", tmp_path, (1, 2, 3, 11), 11, 1, 2)
    assert not plan.is_end_proven
    assert plan.uncaptured_brokers == (11,)
