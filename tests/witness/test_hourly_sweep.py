"""What a sweep of hours counts, and that it goes on from its journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.hourly_seeds import SeedResult
from tests.witness import hourly_sweep
from tests.witness.hourly_sweep import main, results, too_little


@pytest.mark.slow
def test_a_sweep_goes_on_from_its_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = tmp_path / "journal"
    (played,) = results([12], journal)
    assert not played.failures
    assert played.chains_compared + played.findings_compared
    with journal.open("a", encoding="utf-8") as file:
        file.write('{"seed": 13, "chains_co')
    monkeypatch.setattr("tests.witness.journal.ProcessPoolExecutor", NoPool)
    assert list(results([12], journal)) == [played]
    assert journal.read_text(encoding="utf-8").count("\n") == 1


class NoPool:
    """Where nothing is left to play."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> NoPool:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, _: object, jobs: list[int], chunksize: int) -> list[SeedResult]:
        assert (jobs, chunksize) == ([], hourly_sweep.SEEDS_AT_A_TIME)
        return []


def test_a_sweep_that_compared_nothing_has_not_passed() -> None:
    compared = SeedResult(1, chains_compared=1, findings_compared=5)
    assert too_little([compared, SeedResult(2)]) == []
    assert len(too_little([compared, SeedResult(2), SeedResult(3)])) == 1
    assert len(too_little([SeedResult(1)])) == 2


def test_a_seed_that_differs_fails_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played = [SeedResult(7, 1, 5), SeedResult(8, 1, 5, ("pair: KQ001 differs",))]
    monkeypatch.setattr(hourly_sweep, "results", lambda seeds, journal: played[: len(seeds)])
    assert main(["1", "7"]) == 0
    assert main(["2", "7"]) == 1
    shown = capsys.readouterr()
    assert "seed 8: pair: KQ001 differs" in shown.err
    assert "2 seeds, 1 differ" in shown.out
