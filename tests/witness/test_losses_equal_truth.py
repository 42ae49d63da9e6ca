"""What is announced as lost is what was lost: `data_lost` of a run's truth is a witness of KP020, and of `may-i`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kraft_engine.runs.harsh_run import HarshRun
from kraft_engine.scenarios.scenario import load
from tests.kraft_engine.scenarios.test_lossy_elections import LOSSES, NOTHING_LOST
from tests.witness.audited import Audited
from tests.witness.disk_permissions import asked
from tests.witness.losses_truth import lost_records, passed_over_for_nothing
from tests.witness.played import Played, play
from tests.witness.runs import regressions, seed_count
from tests.witness.truth import Truth

HARSH = "random-harsh"
QUICK_SEEDS, SEEDS, SEEDS_ASKED = 12, 30, 16


def compared(seeds: range, folder: Path) -> tuple[Counter[str], list[str]]:
    """Harsh runs against their truth: what was counted, and every disagreement."""
    counts: Counter[str] = Counter()
    reported = []
    for seed in seeds:
        played = play(HARSH, seed, folder / str(seed), is_judged=True)
        reported += [f"seed {seed}: {text}" for text in lost_records(played, counts)]
    return counts, reported


@pytest.mark.long
def test_every_loss_is_announced_where_it_happened(tmp_path: Path) -> None:
    """Recall, offset and leader, grades, holders, and the sure holders after every record."""
    counts, reported = compared(range(QUICK_SEEDS), tmp_path)
    assert reported == []
    assert min(counts["losses possible"], counts["losses unflushed"], counts["holders"], counts["copies gone"]) > 0
    assert counts["losses"] > QUICK_SEEDS
    assert min(counts["sure holders without a walk"], counts["copies without a walk"]) > 0


@pytest.mark.ci
def test_every_loss_is_announced_on_more_seeds(tmp_path: Path) -> None:
    seeds = seed_count(SEEDS)
    counts, reported = compared(range(20_000, 20_000 + seeds), tmp_path)
    assert reported == []
    assert counts["losses"] > seeds


@pytest.mark.ci
@pytest.mark.parametrize("row", regressions("loss_seeds"), ids=lambda item: f"{item['scenario']}-{item['seed']}")
def test_what_was_once_said_wrongly(row: dict[str, Any], tmp_path: Path) -> None:
    played = play(row["scenario"], row["seed"], tmp_path / "run", is_judged=True)
    assert list(lost_records(played, Counter())) == []


@pytest.mark.slow
def test_kills_alone_pass_over_nobody_but_by_an_unclean_election(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(2):
        played = play(HARSH, seed, tmp_path / str(seed), run=HarshRun(seed, power_cuts=False), is_judged=True)
        assert list(lost_records(played, counts)) == [], seed
        assert list(passed_over_for_nothing(played)) == [], seed
    assert counts["loss events"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LOSSES, *NOTHING_LOST])
def test_stories_of_losses(name: str, tmp_path: Path) -> None:
    stage = load()[name].play(1, tmp_path / "run")
    truth = Truth.of(tmp_path / "run")
    audited = Audited.said_to_be_one(tmp_path / "run", truth.run)
    counts: Counter[str] = Counter()
    played = Played(stage.world.event_count, truth, audited, stage.invariants.ledger.batches)
    assert list(lost_records(played, counts)) == []
    assert counts["losses"] == (name in LOSSES)


@pytest.mark.ci
def test_may_i_never_gives_the_last_copy_away() -> None:
    counts: Counter[str] = Counter()
    seeds = seed_count(SEEDS_ASKED)
    assert [text for seed in range(seeds) for text in asked(seed, counts, moments=2)] == []
    assert min(counts["only disks"], counts["holders of losses"], counts["wipe yes"], counts["start yes"]) > 0
