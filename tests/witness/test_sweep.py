"""A hundred seeds of 5,000 events and more, over every dialect, within the model and beyond it: replay and findings
equal truth. `make soak` plays thousands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.witness.confusion import confusion_table
from tests.witness.runs import regressions, seed_count
from tests.witness.sweep import EVENTS_MIN, SHARES, sweep, table

SEEDS = 100
FIRST_SEED = 100_000


@pytest.mark.ci
@pytest.mark.timeout(1800)
def test_replay_and_findings_equal_truth_on_a_hundred_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    seeds = seed_count(SEEDS)
    done = sweep(seeds, FIRST_SEED, print)
    rows, disagreements = done.rows, done.disagreements
    with capsys.disabled():
        print(f"\n{table(rows)}\n\n{confusion_table(done.findings)}")  # noqa: T201
    known = tuple(f"{regression['scenario']} seed {regression['seed']}:" for regression in regressions("open_seeds"))
    assert [text for text in disagreements if not text.startswith(known)] == []
    played = {f"{scenario} seed {seed}:" for scenario, seed in done.played}
    mended = [item for item in known if item in played and not any(text.startswith(item) for text in disagreements)]
    assert mended == [], "a seed that agrees again belongs among the kept ones"
    assert len(done.played) == seeds
    assert set(rows) == set(SHARES)
    assert all(row.events >= EVENTS_MIN * row.seeds for row in rows.values())
    assert all(row.counts["captures"] or row.counts["rounds"] for row in rows.values())


@pytest.mark.slow
def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    only, journal = ("random-raft", "random-beyond"), tmp_path / "journal"
    whole = sweep(3, FIRST_SEED, print, only)
    sweep(2, FIRST_SEED, print, only, journal)
    first = journal.read_text()
    journal.write_text(first + first[: len(first) // 3])  # the third seed's line was being written
    reported_again = sweep(3, FIRST_SEED, print, only, journal)
    lines = journal.read_text().splitlines()
    assert (len(lines), "\n".join(lines[:2]) + "\n") == (3, first)
    assert reported_again.findings == whole.findings
    assert [(row.seeds, row.counts) for row in reported_again.rows.values()] == [
        (row.seeds, row.counts) for row in whole.rows.values()
    ]
