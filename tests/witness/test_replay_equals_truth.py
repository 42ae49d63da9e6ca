"""Replay equals truth on random runs of every dialect: voters, epochs, partitions, and both bounds of the interval."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.witness.beyond import BEYOND_MODEL, compare_beyond
from tests.witness.runs import WITHIN_MODEL, RunResult, compare_seed, compare_seeds, regressions, seed_count, told

SEEDS = 3
COMPARED = ("captures", "rounds", "points", "subsets", "epochs", "orders")


def compared(results: list[RunResult]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in results:
        total.update(one.counts)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("scenario", WITHIN_MODEL)
def test_replay_equals_truth(scenario: str) -> None:
    results = list(compare_seeds(scenario, range(1_000, 1_000 + seed_count(SEEDS))))
    assert told(results) == []
    counts = compared(results)
    assert all(counts[what] for what in (*COMPARED, "voter sets", "snapshots")), counts
    assert scenario != "random" or counts["partition states"] > 50 * len(results)


@pytest.mark.slow
@pytest.mark.parametrize("kept", regressions("seeds"), ids=lambda kept: f"{kept['scenario']}-{kept['seed']}")
def test_what_once_disagreed_agrees(kept: dict[str, object]) -> None:
    compare = compare_beyond if kept["scenario"] in BEYOND_MODEL else compare_seed
    assert told([compare(str(kept["scenario"]), int(str(kept["seed"])))]) == []
