"""A seed gives the bytes that it gave when they were pinned: on whatever platform and version of Python this runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_engine.runs.simulate import scenario_names
from scripts.pin_trees import main, pinned, played

PINNED = pinned()


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "seed"), PINNED, ids=lambda value: str(value))
def test_a_seed_gives_the_pinned_bytes(scenario: str, seed: int) -> None:
    assert played(scenario, seed) == PINNED[scenario, seed], (
        f"{scenario}, seed {seed}, gives other bytes: where that is meant, `python scripts/pin_trees.py --write`"
    )


def test_every_kind_of_random_run_is_pinned() -> None:
    assert {name for name in scenario_names() if name.startswith("random")} < {scenario for scenario, _ in PINNED}


def test_what_differs_is_reported_and_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pinned.txt"
    monkeypatch.setattr("scripts.pin_trees.FILE", file)
    file.write_text("# about\nlast-known-leader 1 00\n", encoding="utf-8")
    assert main([]) == 1
    assert "last-known-leader, seed 1: " in capsys.readouterr().out
    assert main(["--write"]) == 0
    assert main([]) == 0
    assert file.read_text(encoding="utf-8").startswith("# about\nlast-known-leader 1 ")
