"""Two to four runs at once on one lake, in a hundred interleavings: the tables are those of one run alone."""

from __future__ import annotations

import contextlib
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

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kraft_audit.capture.plan import plan_from_json
from kraft_audit.lake import delta as lake_module
from kraft_audit.lake.data_files import write_rows
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.lake import COMMIT_ATTEMPTS
from kraft_audit.lake.ledger import Ledger, delta_schema
from kraft_audit.lake.ledger_state import Manifest
from kraft_audit.lake.pipeline import Run, Step
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.tables import LAKE_TABLES
from kraft_codec.errors import InputError
from tests.builders.interleaving import Actor, TurnLake, interleave
from tests.builders.lakes import MakeFleet

INTERLEAVINGS = int(os.environ.get("KRAFT_AUDIT_INTERLEAVINGS", "20"))
FIRST_SEED = int(os.environ.get("KRAFT_AUDIT_INTERLEAVINGS_SEED", "1"))
FEW = 4
STAGING_TURNS = 10
"""How often others may move while a run stages."""
CLUSTERS = ("torn-write", "divergence")
# Which plan read a cluster depends on who comes first.
BY_PLAN = frozenset({"plan", "first_plan"})


class Staged:
    """What staging gives of each cluster: every run writes these rows in files of its own, as two readers would."""

    def __init__(self, lake: DeltaLake, manifest: Manifest) -> None:
        self.outcomes = {outcome.cluster_name: outcome for outcome in manifest.outcomes}
        ids = {outcome.cluster_id: name for name, outcome in self.outcomes.items()}
        self.rows: dict[str, dict[str, pa.Table]] = {name: {} for name in self.outcomes}
        for table in sorted({file.table for file in manifest.files}):
            rows = lake.query(f"SELECT * FROM {table}", table).cast(delta_schema(table))  # noqa: S608
            for id_, name in ids.items():
                own = rows.filter(pc.equal(rows["cluster_id"], id_))
                if own.num_rows:
                    self.rows[name][table] = own

    def by(self, lake: DeltaLake, actor: int, number: int) -> Manifest:
        planned = [(place, plan_from_json(text)) for place, text in Ledger(lake).planned(number)]
        outcomes = [replace(self.outcomes[plan.name], cluster_number=place) for place, plan in planned]
        tables: dict[str, list[pa.Table]] = {}
        for _, plan in planned:
            for table, rows in self.rows[plan.name].items():
                tables.setdefault(table, []).append(_of_plan(rows, number))
        files = [
            write_rows(lake.uri, table, pa.concat_tables(rows), f"run-{actor}-{number}")
            for table, rows in tables.items()
        ]
        return Manifest(tuple(outcomes), tuple(files))


def _of_plan(rows: pa.Table, number: int) -> pa.Table:
    for name in BY_PLAN & set(rows.column_names):
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), pa.array([number] * rows.num_rows, pa.int64()))
    return rows


@pytest.fixture
def prepared(
    small_corpus: Path, tmp_path: Path, make_fleet: MakeFleet, copy_aged: Callable[[Path, Path], None],
    without_spark: ModuleType, lake_hash: Callable[..., dict[str, str]],
) -> tuple[FleetSettings, Path, Staged, dict[str, str]]:  # fmt: skip
    """The fleet, an empty lake to copy, what staging gives, and the tables of a run that was alone."""
    for name in CLUSTERS:
        copy_aged(small_corpus / name, tmp_path / "logs" / name)
    fleet = make_fleet({name: [tmp_path / "logs" / name] for name in CLUSTERS}, lake="empty")
    without_spark.run(fleet, only=Step.CLOSE)
    alone = fleet.model_copy(update={"lake": str(tmp_path / "alone")})
    manifests: list[Manifest] = []

    def stage(number: int) -> Manifest:
        manifests.append(without_spark.stager(alone)(number))
        return manifests[0]

    assert without_spark.run(alone, stage=stage).failed == {}
    staged = Staged(DeltaLake(alone.lake), manifests[0])
    return fleet, tmp_path / "empty", staged, lake_hash(alone.lake, BY_PLAN)


def check_interleaving(
    seed: int, prepared: Any, folder: Path, lake_hash: Callable[..., dict[str, str]], met: Counter[str]
) -> None:
    """One interleaving: whoever lives ends well, and the next run leaves the right tables, whoever died and where.

    Runs read one of the clusters or both, so that plans are open together and close in any order; some abandon a plan.
    """
    fleet, empty, staged, expected = prepared
    chance = random.Random(seed)  # noqa: S311
    place = folder / f"lake-{seed}"
    shutil.copytree(empty, place)
    here = fleet.model_copy(update={"lake": str(place)})

    def run_of(lake: DeltaLake, name: int, wanted: FleetSettings, turn: Callable[[], None] = lambda: None) -> Run:
        def stage(number: int) -> Manifest:
            for _ in range(STAGING_TURNS):
                turn()
            return staged.by(DeltaLake(here.lake), name, number)

        return Run(wanted, lake, stage, lambda _: None)

    def work(wanted: FleetSettings, abandons: int | None, after_turns: int, actor: Actor) -> Any:
        run = run_of(TurnLake(here.lake, actor), actor.name, wanted, actor.turn)
        if abandons is not None:
            for _ in range(after_turns):
                actor.turn()
            # Whether it is open by then, or staged already, is for the others to say.
            with contextlib.suppress(InputError):
                run.abandon(abandons)
                met["abandoned"] += 1
        with run.lake.reading_once():
            return run.all_steps()

    count = 2 + seed % 3
    actors = []
    for number in range(count):
        chosen = chance.choice([[0], [1], [0, 1]])
        wanted = here.model_copy(update={"clusters": [here.clusters[each] for each in chosen]})
        abandons = chance.choice([1, 1, 2]) if chance.random() < 0.3 else None
        dies = chance.randrange(1, 120) if chance.random() < 0.3 else None
        actors.append(Actor(number, partial(work, wanted, abandons, chance.randrange(60)), dies))
    interleave(actors, chance)
    assert [actor.problem for actor in actors] == [None] * count, f"seed {seed}"
    living = [actor for actor in actors if not actor.was_killed]
    assert all(actor.result.failed == {} for actor in living), f"seed {seed}"
    met["killed"] += count - len(living)
    met["turns"] += sum(actor.turns for actor in actors)
    met["all died"] += not living
    assert run_of(DeltaLake(here.lake), 99, here).all_steps().failed == {}
    status = Ledger(DeltaLake(here.lake)).status()
    closings = Ledger(DeltaLake(here.lake)).closings(0)
    assert (status.open, status.closed) == ((), status.opened), f"seed {seed}"
    assert lake_hash(here.lake, BY_PLAN) == expected, f"seed {seed}"
    assert 1 <= len(closings) <= 2, f"seed {seed}: each cluster is read by one plan"
    met["closed out of order"] += closings != sorted(closings, key=lambda closing: closing[1])
    owners = _owners(here.lake)
    assert all(len(of_plan) == 1 for of_plan in owners.values()), f"seed {seed}: one manifest counts"
    shutil.rmtree(place)


def _owners(uri: str) -> dict[str, set[str]]:
    """The runs that brought files, by plan."""
    owners: dict[str, set[str]] = {}
    for table in LAKE_TABLES:
        for file in DeltaLake(uri).open(table).file_uris():
            name = Path(file).name
            if name.startswith("run-"):
                _, actor, number, *_ = name.split("-")
                owners.setdefault(number, set()).add(actor)
    return owners


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
    return met


@pytest.mark.slow
def test_runs_in_a_few_interleavings(
    prepared: Any, tmp_path: Path, lake_hash: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_seeds(range(1, 1 + FEW), prepared, tmp_path, lake_hash, monkeypatch)


@pytest.mark.ci
@pytest.mark.timeout(900)
def test_runs_in_many_interleavings(
    prepared: Any, tmp_path: Path, lake_hash: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """KRAFT_AUDIT_INTERLEAVINGS says how many."""
    met = run_seeds(range(FIRST_SEED, FIRST_SEED + INTERLEAVINGS), prepared, tmp_path, lake_hash, monkeypatch)
    assert met["killed"] > INTERLEAVINGS // 10
    assert met["commits met another's"] > INTERLEAVINGS // 10
    assert met["turns"] > 50 * INTERLEAVINGS
    assert met["closed out of order"] > INTERLEAVINGS // 50
    assert met["abandoned"] > INTERLEAVINGS // 40, "some are abandoned before they are staged"
