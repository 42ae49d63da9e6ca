"""2,000 seeds of 5,000 events and more, over every dialect, within the model and beyond it: replay equals truth."""

from __future__ import annotations

import os

import pytest

from tests.witness.sweep import EVENTS_MIN, SHARES, sweep, table

SEEDS = 2_000
FIRST_SEED = 100_000
SECONDS_MAX = 1_500


@pytest.mark.ci
@pytest.mark.timeout(SECONDS_MAX)
def test_replay_equals_truth_on_two_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    rows, disagreements = sweep(int(os.environ.get("KRAFT_SEEDS", SEEDS)), FIRST_SEED, print)
    with capsys.disabled():
        print(f"\n{table(rows)}")  # noqa: T201
    assert disagreements == []
    assert set(rows) == set(SHARES)
    assert all(row.events >= EVENTS_MIN * row.seeds for row in rows.values())
    assert all(row.counts["captures"] or row.counts["rounds"] for row in rows.values())
