"""2,000 seeds of 5,000 events and more, over every dialect, within the model and beyond it: replay and findings equal
truth."""

from __future__ import annotations

import pytest

from tests.witness.confusion import confusion_table
from tests.witness.runs import regressions, seed_count
from tests.witness.sweep import EVENTS_MIN, SHARES, kinds, sweep, table

SEEDS = 2_000
FIRST_SEED = 100_000
SECONDS_MAX = 1_500


@pytest.mark.ci
@pytest.mark.timeout(SECONDS_MAX)
def test_replay_and_findings_equal_truth_on_two_thousand_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    seeds = seed_count(SEEDS)
    done = sweep(seeds, FIRST_SEED, print)
    rows, disagreements = done.rows, done.disagreements
    with capsys.disabled():
        print(f"\n{table(rows)}\n\n{confusion_table(done.findings)}")  # noqa: T201
    known = tuple(f"{one['scenario']} seed {one['seed']}:" for one in regressions("open_seeds"))
    assert [text for text in disagreements if not text.startswith(known)] == []
    played = {f"{scenario} seed {seed}:" for scenario, seed in kinds(seeds, FIRST_SEED)}
    mended = [one for one in known if one in played and not any(text.startswith(one) for text in disagreements)]
    assert mended == [], "a seed that agrees again belongs among the kept ones"
    assert set(rows) == set(SHARES)
    assert all(row.events >= EVENTS_MIN * row.seeds for row in rows.values())
    assert all(row.counts["captures"] or row.counts["rounds"] for row in rows.values())
