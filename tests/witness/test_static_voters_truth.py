"""`may-i start` and `restart` of a static quorum whose nodes go by different configurations, against what then happens.

At kraft.version 0 each node goes by its own controller.quorum.voters. The engine gives every process its own set, plays
what was asked about, and its ledger says whether a committed batch is missing in a leader's log.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.recovery.may_i.permission import Action, Permission, Question, Verdict
from kraft_codec.errors import ChoiceError
from kraft_engine.consensus.raft import LEADER
from kraft_engine.runs.scenario_stage import Stage


def start_all(stage: Stage, *node_ids: int) -> None:
    for node_id in node_ids:
        stage.cluster.start(stage.cluster.processes[stage.slot(node_id)])


def lacks_committed(stage: Stage, count: int) -> bool:
    """Whether a leader lacks one of the first `count` committed batches."""
    committed = stage.invariants.ledger.batches[:count]
    leaders = [node for node in stage.cluster.nodes() if node.role == LEADER]
    return any(node.log.batch_at(batch.base_offset) is not batch for node in leaders for batch in committed)


def ask(
    out: Path, action: Action, node_id: int, *, stopped: Collection[int] = (), voters: Collection[int] = ()
) -> Permission:
    question = Question(action, node_id, "logs", stopped=frozenset(stopped), voters=frozenset(voters))
    with kraft_audit.open(str(out)) as clusters:
        (cluster,) = clusters
        return cluster.may_i(question)


@pytest.fixture
def scaled_out(tmp_path: Path) -> Stage:
    """A static quorum of one with records; 2 and 3 are formatted beside it, and every configuration names 1, 2, 3."""
    stage = Stage(5, tmp_path / "out")
    stage.controllers(1, static=True)
    stage.brokers(11)
    for name in ("a", "b", "c"):
        stage.topic(name, [11])
    stage.run_ms(1_000)
    stage.stop_broker(11)
    stage.stop(1)
    stage.configure_voters((1, 2, 3), (1, 2, 3))
    stage.capture("formatted")
    return stage


def test_new_controllers_of_a_static_quorum_do_not_start_without_the_old_one(scaled_out: Stage, tmp_path: Path) -> None:
    for node_id in (2, 3):
        answer = ask(tmp_path / "out", Action.START, node_id, stopped=(1,))
        assert answer.verdict is Verdict.NO
        assert "Nodes 2 and 3 were formatted and never started; quorum-state names voter 1 on node" in answer.reason
        assert "they elect 2 or 3 with an empty log" in answer.reason
    count = len(scaled_out.invariants.ledger.batches)
    assert count > 3
    scaled_out.invariants.damage("another controller.quorum.voters on each node")
    start_all(scaled_out, 2, 3)
    scaled_out.run_ms(30_000)
    assert lacks_committed(scaled_out, count), "as on Kafka 4.1.2, the two elect themselves with an empty log"


def test_the_way_that_is_advised_keeps_every_record(scaled_out: Stage, tmp_path: Path) -> None:
    """First the old one, then one of the new, then the other: each a yes, with what the configurations read."""
    count = len(scaled_out.invariants.ledger.batches)
    denied = ask(tmp_path / "out", Action.START, 2, stopped=(1,), voters=(1, 2, 3))
    assert denied.verdict is Verdict.NO
    assert denied.reason.startswith("Node 2 could be elected by 2 and 3, and lacks committed records from offset 0")
    assert denied.next_steps[0].endswith("may-i start 1 logs --stopped 2 --voters 1,2,3")
    for node_id, stopped in ((1, (2, 3)), (2, (3,))):
        answer = ask(tmp_path / "out", Action.START, node_id, stopped=stopped, voters=(1, 2, 3))
        assert answer.verdict is Verdict.YES, node_id
        assert answer.reason.endswith("while controller.quorum.voters on 1, 2 and 3 still reads 1,2,3.")
        start_all(scaled_out, node_id)
        scaled_out.run_ms(20_000)
        assert not lacks_committed(scaled_out, count)
    scaled_out.settle_controllers()
    start_all(scaled_out, 3)
    scaled_out.settle_controllers()
    assert not lacks_committed(scaled_out, count)


def test_without_what_the_configurations_read_nothing_is_allowed(scaled_out: Stage, tmp_path: Path) -> None:
    alone = ask(tmp_path / "out", Action.START, 2, stopped=(1, 3))
    old = ask(tmp_path / "out", Action.START, 1, stopped=(2, 3))
    assert (alone.verdict, old.verdict) == (Verdict.UNDECIDED, Verdict.UNDECIDED)
    assert "no quorum-state of it lists currentVoters" in alone.reason
    assert "Nodes 2 and 3 were formatted and never started" in old.reason
    assert all(answer.next_steps[-1].endswith("--voters 1,2,3") for answer in (alone, old))


def test_a_healthy_static_quorum_gets_a_yes_with_its_condition(tmp_path: Path) -> None:
    stage = Stage(6, tmp_path / "out")
    stage.controllers(1, 2, 3, static=True)
    stage.settle()
    stage.capture("healthy")
    for action in (Action.START, Action.RESTART):
        answer = ask(tmp_path / "out", action, 2)
        assert answer.verdict is Verdict.YES
        assert answer.reason.endswith("This holds while controller.quorum.voters on 1, 2 and 3 still reads 1,2,3.")


def test_a_node_that_lost_its_voters_forbids_the_next_restart(tmp_path: Path) -> None:
    """controller.quorum.voters was taken out of one node's configuration: a roll that goes on leaves no leader."""
    stage = Stage(7, tmp_path / "out")
    stage.controllers(1, 2, 3, static=True)
    stage.settle()
    first = stage.leader().id
    stage.stop(first)
    stage.until(lambda: stage.leader().id != first, "another leader")
    stage.configure_voters((first,), ())
    start_all(stage, first)
    stage.run_ms(20_000)
    stage.capture("rolled")
    second, third = sorted({1, 2, 3} - {first})
    answer = ask(tmp_path / "out", Action.RESTART, second)
    assert answer.verdict is Verdict.NO
    assert f"no voters on node {first}" in answer.reason
    assert f"voters 1, 2 and 3 on nodes {second} and {third}" in answer.reason
    assert answer.next_steps[0] == "Set controller.quorum.voters alike on 1, 2 and 3 first."
    started = ask(tmp_path / "out", Action.START, first)
    assert started.verdict is Verdict.UNDECIDED
    assert f"node {first} names no voters" in started.reason


def test_voters_are_refused_where_records_name_them(tmp_path: Path) -> None:
    stage = Stage(8, tmp_path / "out")
    stage.controllers(1, 2, 3)
    stage.settle()
    stage.capture("dynamic")
    assert "controller.quorum.voters" not in ask(tmp_path / "out", Action.RESTART, 2).reason
    with pytest.raises(ChoiceError, match=r"records name the voters at kraft\.version 1: leave --voters out"):
        ask(tmp_path / "out", Action.RESTART, 2, voters=(1, 2, 3))


def played(seed: int, folder: Path) -> Verdict:
    """A static quorum whose nodes are configured at random; a yes is followed, and loses nothing while it holds."""
    chance = random.Random(seed)  # noqa: S311
    out = folder / str(seed)
    stage = Stage(seed, out)
    old = list(range(1, chance.choice((1, 2, 3)) + 1))
    stage.controllers(*old, static=True)
    stage.settle()
    for node_id in old:
        stage.stop(node_id)
    count = len(stage.invariants.ledger.batches)
    nodes = list(range(1, chance.choice((3, 4)) + 1))
    sets = [tuple(old), tuple(nodes), tuple(nodes[:3])]
    for node_id in nodes:
        stage.configure_voters((node_id,), chance.choice(sets))
    ran = [node_id for node_id in nodes if chance.random() < 0.3]
    stage.invariants.damage("another controller.quorum.voters on each node")
    start_all(stage, *ran)
    stage.run_ms(chance.choice((500, 5_000)))
    if lacks_committed(stage, count):
        return Verdict.NO
    for node_id in ran:
        stage.cluster.crash(stage.slot(node_id))
    stage.capture("then")
    asked = chance.choice(nodes)
    stopped = [node_id for node_id in nodes if node_id != asked and chance.random() < 0.5]
    answer = ask(out, Action.START, asked, stopped=stopped)
    if answer.verdict is Verdict.YES and "still reads" in answer.reason:
        voters = [int(each) for each in answer.reason.rstrip(".").rsplit(" ", 1)[1].split(",")]
        stage.configure_voters(nodes, voters)
    if answer.verdict is Verdict.YES:
        start_all(stage, *(node_id for node_id in nodes if node_id not in stopped))
        stage.run_ms(30_000)
        assert not lacks_committed(stage, count), (seed, answer.reason)
    return answer.verdict


def test_no_yes_loses_a_record_of_a_quorum_whose_configurations_differ(tmp_path: Path) -> None:
    counts = Counter(played(seed, tmp_path) for seed in range(60))
    assert min(counts[verdict] for verdict in Verdict) >= 5, counts
