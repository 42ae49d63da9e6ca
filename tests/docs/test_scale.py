"""docs/scale.md says what the estimate makes of the stored figures."""

from __future__ import annotations

import json

import pytest

from benchmarks.estimate import KEPT, MARKS, PAGE, STEPS, Fleet, Prices, as_markdown, step_seconds

MEASURED = json.loads(KEPT.read_text(encoding="utf-8"))["measured"]


def test_the_page_shows_what_the_estimate_computes() -> None:
    shown = MARKS.search(PAGE.read_text(encoding="utf-8"))
    assert shown is not None
    computed = as_markdown(Fleet(10_000, 7_000), MEASURED, Prices())
    assert shown[0] == f"{shown[1]}{computed}{shown[2]}", "python -m benchmarks.estimate --write"


def test_every_step_of_a_run_has_a_cost_that_grows_with_the_fleet() -> None:
    small, large = (step_seconds(Fleet(clusters, 7_000), MEASURED) for clusters in (100, 10_000))
    assert set(small) == set(STEPS)
    assert large == pytest.approx({step: 100 * seconds for step, seconds in small.items()})
    assert all(small[step] > 0 for step in ("plan", "stage", "findings", "risk"))
