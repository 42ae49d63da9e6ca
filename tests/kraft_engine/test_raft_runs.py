"""Random runs of the quorum: nothing breaks within Raft's model, and every rule that is switched off is missed."""

from __future__ import annotations

import os

import pytest

from kraft_engine.schedule import RandomRun

SEED_COUNT = int(os.environ.get("KRAFT_SEEDS", "40"))
EVENT_COUNT = 5_000


def test_random_runs_keep_every_invariant() -> None:
    committed = elections = truncations = voter_sets = 0
    for seed in range(SEED_COUNT):
        run = RandomRun(seed)
        run.run(EVENT_COUNT)
        committed += run.invariants.ledger.committed_offset
        elections += len(run.invariants.elections)
        kinds = [kind for _, kind, _ in run.invariants.events]
        truncations += kinds.count("truncated")
        voter_sets += kinds.count("voters")
    # A run in which nothing happens proves nothing.
    assert committed > 100 * SEED_COUNT
    assert elections > 2 * SEED_COUNT
    assert truncations
    assert voter_sets > SEED_COUNT / 4


@pytest.mark.slow
def test_damage_beyond_the_model_is_labelled() -> None:
    damaged = effects = 0
    for seed in range(SEED_COUNT):
        run = RandomRun(seed, beyond_model=True)
        run.run(EVENT_COUNT)
        damaged += bool(run.invariants.beyond_model)
        effects += len(run.invariants.damage_effects)
        assert run.invariants.beyond_model or not run.invariants.damage_effects
    assert damaged
    assert effects or SEED_COUNT < 100


def test_a_seed_gives_the_same_run_twice() -> None:
    first, second = RandomRun(7), RandomRun(7)
    first.run(EVENT_COUNT)
    second.run(EVENT_COUNT)
    assert first.invariants.timeline == second.invariants.timeline
    assert first.invariants.events == second.invariants.events
