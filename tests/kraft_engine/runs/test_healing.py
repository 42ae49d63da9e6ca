"""When faults end, progress comes: a leader, level replicas, answered changes, led partitions, whole ISRs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kraft_engine.drafts import Kip642Run, Kip856Run
from kraft_engine.invariants.run_invariants import RaftInvariants
from kraft_engine.invariants.switches import ALL_ON
from kraft_engine.runs.chronicle import InvariantViolationError
from kraft_engine.runs.healing import ELECTION_TIMEOUTS, could_elect
from kraft_engine.runs.hunt import hunt
from kraft_engine.runs.kafka_run import KafkaRun
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.runs.storms import ElectionStorm
from kraft_engine.runs.upgrades import UpgradeRun
from kraft_engine.runs.wide_run import WideRun
from kraft_engine.world.processes import Cluster
from kraft_engine.world.situations import describe, lay_out
from kraft_engine.world.world import World
from tests.builders.electable import heal_or_prove_leaderless, winning_sets

SITUATIONS = Path(__file__).resolve().parents[2] / "data" / "engine"
SEED_COUNT = int(os.environ.get("KRAFT_SEEDS", "30"))
KINDS: tuple[type[RandomRun] | type[KafkaRun], ...] = (
    RandomRun, ElectionStorm, UpgradeRun, Kip642Run, Kip856Run, KafkaRun, WideRun,
)  # fmt: skip
# Of a set of two voters, or of one with a dead disk, the leader was removed and stopped before the rest had the record.
LEADERLESS = ((RandomRun, 29), (RandomRun, 32), (ElectionStorm, 108), (UpgradeRun, 146), (WideRun, 150))
STRANDING = (
    "candidate_gives_up", "election_timer_keeps_running", "offered_snapshot_is_fetched",
    "stale_broker_registers_again", "unattached_asks_for_the_leader", "unfenced_broker_brings_elections",
)  # fmt: skip


def laid_out(seed: int, world: World) -> Cluster:
    situation = json.loads((SITUATIONS / f"healing-{seed}.json").read_text(encoding="utf-8"))
    return lay_out(situation, world, RaftInvariants(world))


@pytest.mark.parametrize("seed", [3012, 3021, 3023, 3026])
def test_a_quorum_without_pre_vote_elects_though_candidates_disturb(seed: int) -> None:
    """With a timer that began again at every epoch these went through some 500 epochs in 40 s without a leader."""
    for draws in range(10):
        world = World(draws)
        cluster = laid_out(seed, world)
        cluster.start_all()
        assert next(winning_sets(cluster), None) is not None
        limit_us = ELECTION_TIMEOUTS * cluster.settings.election_timeout_us
        assert world.run_until(lambda: cluster.ready_leader() is not None, limit_us=limit_us)  # noqa: B023


def test_no_rule_elects_where_a_removal_left_a_dead_voter_and_a_live_one() -> None:
    """Seed 3068: voter 2's disk was replaced, then voter 1 was removed. The set is a dead disk and voter 3."""
    cluster = laid_out(3068, World(0))
    cluster.start_all()
    assert not could_elect(cluster)
    assert next(winning_sets(cluster), None) is None
    assert RandomRun(3068).run(5_000) == 5_000  # the seed itself asks for no such removal any more


def test_a_situation_survives_being_laid_out() -> None:
    run = RandomRun(7)
    run.run(3_000)
    first = describe(run.cluster, run.invariants, "seed 7")
    world = World(0)
    invariants = RaftInvariants(world)
    assert describe(lay_out(first, world, invariants), invariants, "seed 7") == first


def test_an_observer_asks_the_leader_that_its_voter_set_does_not_name() -> None:
    """Two observers had read of voters 2, 3 and 5; the leader was 1, and each of the three answered so, for ever."""
    run = Kip642Run(317)
    run.run(5_000)
    assert run.heal()
    assert len({node.high_watermark for node in run.cluster.nodes()}) == 1


@pytest.mark.ci
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_random_runs_heal(kind: type[RandomRun] | type[KafkaRun]) -> None:
    healed = 0
    for seed in range(SEED_COUNT):
        run = kind(seed)
        run.run(5_000)
        healed += heal_or_prove_leaderless(run)
    assert healed >= 0.95 * SEED_COUNT


@pytest.mark.ci
@pytest.mark.parametrize(("kind", "seed"), LEADERLESS)
def test_a_run_without_a_leader_can_have_none(kind: type[RandomRun] | type[KafkaRun], seed: int) -> None:
    run = kind(seed)
    run.run(5_000)
    assert not heal_or_prove_leaderless(run)


@pytest.mark.ci
@pytest.mark.parametrize("seed", [87, 590])
def test_a_removed_leader_that_resigns_leaves_none_that_can_lead(seed: int) -> None:
    """It leads when the faults end, outside its own set. The only voter waits for pre-votes and fetches too late: it
    lacks the record that makes it the only one.
    """
    run = UpgradeRun(seed)
    run.run(5_000)
    leader = run.cluster.leader()
    assert leader is not None
    assert not leader.is_voter
    assert not heal_or_prove_leaderless(run)


@pytest.mark.ci
@pytest.mark.parametrize("rule", STRANDING)
def test_a_rule_of_progress_is_missed(rule: str) -> None:
    catch = hunt(rule, seed_limit=30)
    assert catch is not None
    assert catch.invariant in (
        "BrokersAreUnfenced", "IsrIsWhole", "LeaderIsElected", "PartitionsAreLed", "ReplicasCatchUp",
    )  # fmt: skip


def test_a_quorum_that_stands_still_is_reported_with_every_role() -> None:
    run = RandomRun(3, switches=ALL_ON.without("unattached_asks_for_the_leader"))
    run.run(2_000)
    with pytest.raises(InvariantViolationError, match=r"ReplicasCatchUp: not within .* election timeouts"):
        run.heal()
