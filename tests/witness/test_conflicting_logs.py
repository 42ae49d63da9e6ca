"""Two logs that hold different records of one epoch at one offset are reported; two that part by epoch are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_engine import simulate
from tests.witness.audited import Audited


@pytest.mark.parametrize(("scenario", "is_split"), [("two-leaders-one-epoch", True), ("figure-8", False)])
def test_conflicting_epochs(scenario: str, is_split: bool, tmp_path: Path) -> None:
    simulate(scenario, 1, tmp_path / "run")
    audited = Audited.of(tmp_path / "run")
    assert any(item.evidence.conflicting_epochs or item.evidence.split_epochs for item in audited.rounds) == is_split
    assert any(item.evidence.conflicting_epochs for item in audited.rounds) == is_split
    if is_split:
        assert any(audited_round.interval.high is None for audited_round in audited.rounds)
