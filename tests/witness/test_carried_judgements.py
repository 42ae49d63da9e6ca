"""Random runs, judged round by round from the rows that matter, and as a whole: both say the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_engine import simulate
from tests.builders.carried_judgements import Chain, carried_between, operation_ends_of, slowed
from tests.witness.audited import Audited
from tests.witness.runs import seed_count

KINDS = ("random", "random-wide", "random-lifelike", "random-beyond", "random-raft-beyond", "random-upgrade")
PACE = 2_000
"""Runs last minutes: slowed, most of a log is more than an hour old, and few of its rows matter."""
DRAFTS = ("random-kip856", "random-kip642")


def rounds_of(kind: str, seed: int, out: Path) -> Sequence[ClusterHistory]:
    """What each round of captures and all before it show: logs that end where they ended then."""
    simulate(kind, seed, out)
    audited = Audited.of(out)
    numbers = sorted({replica.capture_number for replica in audited.plan.replicas})
    return [
        Audited(
            replace(audited.plan, replicas=tuple(r for r in audited.plan.replicas if r.capture_number <= number))
        ).history
        for number in numbers
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, *DRAFTS])
def test_each_round_from_what_the_one_before_left(kind: str, tmp_path: Path) -> None:
    judged_count = 0
    for seed in range(seed_count(1)):
        rounds = rounds_of(kind, seed, tmp_path / str(seed))
        for found in carried_between([slowed(history, PACE, rounds[0].begin_ms) for history in rounds]):
            assert found == [], f"{kind}, seed {seed}"
            judged_count += 1
    assert judged_count


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random-wide", "random-lifelike"])
def test_steps_between_any_two_operations(kind: str, tmp_path: Path) -> None:
    """A chain of steps leaves what one step leaves, and a step without anything new leaves the same bytes."""
    for seed in range(seed_count(1)):
        history = rounds_of(kind, seed, tmp_path / str(seed))[-1]
        ends = operation_ends_of(history)
        chain = Chain(history)
        for to_offset in sorted(random.Random(seed).sample(ends[:-1], 3)):  # noqa: S311  # not a secret
            if chain.state is not None:
                assert chain.differences(to_offset) == [], f"{kind}, seed {seed}, to {to_offset}"
            octets = chain.step(to_offset).to_bytes()
            assert chain.step(to_offset).to_bytes() == octets
            assert Chain(history).step(to_offset).to_bytes() == octets
        assert chain.differences() == [], f"{kind}, seed {seed}"
