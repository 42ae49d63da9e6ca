"""Two to four runs at once on one lake, in a hundred interleavings: the tables are those of one run alone."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kraft_audit.lake import delta as lake_module
from kraft_audit.lake.delta import COMMIT_ATTEMPTS, DeltaLake
from kraft_audit.lake.ledger import Ledger, PlanStatus
from kraft_audit.lake.ledger_state import Manifest
from kraft_audit.lake.pipeline import Run, Step
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.tables import LAKE_TABLES
from tests.builders.interleaving import Actor, TurnLake, interleave

INTERLEAVINGS = int(os.environ.get("KRAFT_AUDIT_INTERLEAVINGS", "100"))
FIRST_SEED = int(os.environ.get("KRAFT_AUDIT_INTERLEAVINGS_SEED", "1"))
FEW = 4
CLUSTER = "torn-write"
MakeFleet = Callable[..., FleetSettings]


class Staged:
    """A plan that was staged once: every run brings the same rows in files of its own, as two readers would."""

    def __init__(self, lake: Path, manifest: Manifest, keep: Path) -> None:
        self.manifest, self.keep = manifest, keep
        for file in manifest.files:
            (keep / file.table).mkdir(parents=True, exist_ok=True)
            shutil.copy(lake / file.table / file.path, keep / file.table / Path(file.path).name)

    def by(self, lake: Path, actor: int, number: int) -> Manifest:
        assert number == 1, "there is one thing to plan"
        files = []
        for file in self.manifest.files:
            path = Path(file.path)
            own = path.with_name(f"run-{actor}-{path.name}")
            target = lake / file.table / own
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                os.link(self.keep / file.table / path.name, target)
            files.append(replace(file, path=str(own)))
        return replace(self.manifest, files=tuple(files))


@pytest.fixture
def prepared(
    small_corpus: Path, tmp_path: Path, make_fleet: MakeFleet, copy_aged: Callable[[Path, Path], None],
    without_spark: ModuleType, lake_hash: Callable[..., dict[str, str]],
) -> tuple[FleetSettings, Path, Staged, dict[str, str]]:  # fmt: skip
    """The fleet, an empty lake to copy, what staging gives, and the tables of a run that was alone."""
    copy_aged(small_corpus / CLUSTER, tmp_path / "logs")
    fleet = make_fleet({CLUSTER: [tmp_path / "logs"]}, lake="empty")
    without_spark.run(fleet, only=Step.CLOSE)
    alone = fleet.model_copy(update={"lake": str(tmp_path / "alone")})
    manifests: list[Manifest] = []

    def stage(number: int) -> Manifest:
        manifests.append(without_spark.stager(alone)(number))
        return manifests[0]

    assert without_spark.run(alone, stage=stage).failed == {}
    staged = Staged(Path(alone.lake), manifests[0], tmp_path / "staged")
    return fleet, tmp_path / "empty", staged, lake_hash(alone.lake)


def check_interleaving(
    seed: int, prepared: Any, folder: Path, lake_hash: Callable[..., dict[str, str]], met: Counter[str]
) -> None:
    """One interleaving: whoever lives ends well, and the tables are right; where all died, the next run mends it."""
    fleet, empty, staged, expected = prepared
    chance = random.Random(seed)  # noqa: S311
    place = folder / f"lake-{seed}"
    shutil.copytree(empty, place)
    here = fleet.model_copy(update={"lake": str(place)})

    def work(actor: Actor) -> Any:
        stage = partial(staged.by, place, actor.name)
        return Run(here, TurnLake(here.lake, actor), stage, lambda _: None).all_steps()

    count = 2 + seed % 3
    dies_at = [chance.randrange(1, 120) if chance.random() < 0.3 else None for _ in range(count)]
    actors = [Actor(number, work, dies) for number, dies in enumerate(dies_at)]
    interleave(actors, chance)
    assert [actor.problem for actor in actors] == [None] * count, f"seed {seed}"
    living = [actor for actor in actors if not actor.was_killed]
    assert all(actor.result.failed == {} for actor in living), f"seed {seed}"
    met["killed"] += count - len(living)
    met["turns"] += sum(actor.turns for actor in actors)
    met["all died"] += not living
    if not living:
        Run(here, DeltaLake(here.lake), partial(staged.by, place, 99), lambda _: None).all_steps()
    assert Ledger(DeltaLake(here.lake)).status() == PlanStatus(1, 1, 1), f"seed {seed}"
    assert lake_hash(here.lake) == expected, f"seed {seed}"
    met["runs whose files were taken"] = max(met["runs whose files were taken"], _owners(here.lake))
    shutil.rmtree(place)


def _owners(uri: str) -> int:
    """How many runs brought files: one manifest is recorded, whoever commits it."""
    names = [Path(file).name for table in LAKE_TABLES for file in DeltaLake(uri).open(table).file_uris()]
    return len({name.split("-")[1] for name in names if name.startswith("run-")})


def run_seeds(
    seeds: range, prepared: Any, folder: Path, lake_hash: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> Counter[str]:
    met: Counter[str] = Counter()
    waits: list[float] = []
    monkeypatch.setattr(lake_module, "time", SimpleNamespace(time_ns=lake_module.time.time_ns, sleep=waits.append))
    for seed in seeds:
        waits.clear()
        check_interleaving(seed, prepared, folder, lake_hash, met)
        met["commits met another's"] += len(waits)
        assert len(waits) < COMMIT_ATTEMPTS, f"seed {seed}: a storm of {len(waits)} retries"
    assert met["runs whose files were taken"] == 1
    return met


@pytest.mark.slow
def test_runs_in_a_few_interleavings(
    prepared: Any, tmp_path: Path, lake_hash: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_seeds(range(1, 1 + FEW), prepared, tmp_path, lake_hash, monkeypatch)


@pytest.mark.ci
@pytest.mark.timeout(900)
def test_runs_in_a_hundred_interleavings(
    prepared: Any, tmp_path: Path, lake_hash: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """KRAFT_AUDIT_INTERLEAVINGS says how many."""
    met = run_seeds(range(FIRST_SEED, FIRST_SEED + INTERLEAVINGS), prepared, tmp_path, lake_hash, monkeypatch)
    assert met["killed"] > INTERLEAVINGS // 10
    assert met["commits met another's"] > INTERLEAVINGS // 10
    assert met["turns"] > 50 * INTERLEAVINGS
