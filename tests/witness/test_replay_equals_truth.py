"""Replay equals truth on random runs of every dialect: voters, epochs, partitions, and both bounds of the interval."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.witness.beyond import BEYOND_MODEL, compare_beyond
from tests.witness.runs import (
    WITHIN_MODEL,
    RunResult,
    compare_seed,
    compare_seeds,
    disagreement_lines,
    regressions,
    seed_count,
)

SEEDS = 3
COMPARED = ("captures", "rounds", "points", "subsets", "epochs", "orders")


def compared(results: list[RunResult]) -> Counter[str]:
    total: Counter[str] = Counter()
    for result in results:
        total.update(result.counts)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("scenario", WITHIN_MODEL)
def test_replay_equals_truth(scenario: str) -> None:
    results = list(compare_seeds(scenario, range(1_000, 1_000 + seed_count(SEEDS))))
    assert disagreement_lines(results) == []
    counts = compared(results)
    assert all(counts[what] for what in (*COMPARED, "voter sets", "snapshots")), counts
    assert scenario != "random" or counts["partition states"] > 30 * len(results)


@pytest.mark.ci
@pytest.mark.parametrize(
    "regression", regressions("seeds"), ids=lambda regression: f"{regression['scenario']}-{regression['seed']}"
)
def test_what_once_disagreed_agrees(regression: dict[str, object]) -> None:
    compare = compare_beyond if regression["scenario"] in BEYOND_MODEL else compare_seed
    assert disagreement_lines([compare(str(regression["scenario"]), int(str(regression["seed"])))]) == []
