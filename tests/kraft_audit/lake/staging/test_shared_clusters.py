"""A large cluster is read by several tasks: the lake is that of one task, whatever happens to one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from kraft_audit.capture.plan import plan_from_json
from kraft_audit.lake import waves
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import Manifest
from kraft_audit.lake.pipeline import Run
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.lake.staging.local_stager import LocalStager
from kraft_audit.lake.staging.plan_staging import PlanStaging
from kraft_audit.spark.source import StagingReader
from tests.builders.hourly_disks import HourlyDisks
from tests.builders.lakes import CLUSTERS, write_fleet

pytestmark = pytest.mark.slow
LOST: Final = {"data_file": None, "summary": None, "state": None, "failure": "its process was killed"}
"""What a manifest says of a cluster whose attempt failed."""
LakeHash = Callable[..., dict[str, str]]


@pytest.fixture(autouse=True)
def _small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waves, "SHARE_BYTES_MIN", 1)


def fleets(folder: Path, clusters: dict[str, list[Path | str]], processors: int) -> tuple[FleetSettings, FleetSettings]:
    """The same fleet with a lake that one processor fills, and one for several."""
    alone = write_fleet(folder, clusters, lake="alone", file="alone.yaml").model_copy(update={"processors": 1})
    return alone, write_fleet(folder, clusters).model_copy(update={"processors": processors})


def shares_of(fleet: FleetSettings, plan: int) -> list[int]:
    planned = Ledger(DeltaLake(fleet.lake)).planned(plan)
    return sorted(plan_from_json(text).shares for _, text in planned)


def test_the_tables_are_those_of_one_task(
    small_corpus: Path, tmp_path: Path, without_spark: ModuleType, lake_hash: LakeHash
) -> None:
    alone, shared = fleets(tmp_path, {name: [small_corpus / name] for name in CLUSTERS}, 6)
    without_spark.run(alone)
    assert Run(shared, DeltaLake(shared.lake), LocalStager(shared, 2), lambda _: None).all_steps().exit_code == 0
    assert shares_of(alone, 1) == [1, 1, 1]
    assert shares_of(shared, 1)[-1] > 1
    assert lake_hash(shared.lake) == lake_hash(alone.lake)
    assert not list(Path(shared.lake, "_staging").rglob("*.*")), "what the tasks left for each other is gone"


@pytest.mark.parametrize(("kind", "seed"), [("random-wide", 0), ("random-lifelike", 1)])
def test_the_next_hour_goes_on_from_what_they_left(
    kind: str, seed: int, tmp_path: Path, without_spark: ModuleType, lake_hash: LakeHash
) -> None:
    disks = HourlyDisks(kind, seed, tmp_path / "disks", events=6_000)
    alone, shared = fleets(tmp_path, {"one": [disks.root]}, 3)
    for hour, share in enumerate((0.5, 0.8, 1.0), 1):
        disks.pass_hour(len(disks.captures) - 1, share=share, stands_still=0.0)
        for fleet in (alone, shared):
            without_spark.run(fleet)
        assert lake_hash(shared.lake) == lake_hash(alone.lake), hour
        assert shares_of(shared, hour) == [3 if hour == 1 else 1], "an hour has little to read"


@pytest.mark.parametrize("lost", [".0", ".1", ""])
def test_a_cluster_of_which_a_share_is_lost_is_read_by_one_task(
    lost: str, small_corpus: Path, tmp_path: Path, without_spark: ModuleType, lake_hash: LakeHash
) -> None:
    alone, shared = fleets(tmp_path, {"mini": [small_corpus / CLUSTERS[0]]}, 2)
    without_spark.run(alone)
    read: list[str] = []

    def stage(number: int) -> Manifest:
        options = {"table": "staged", "lake": shared.lake, "plan": str(number), "tasks": "2"}
        options["redactionkeyfile"] = shared.redaction_key_file or ""

        def job(parts: Sequence[str]) -> list[dict[str, Any]]:
            read.extend(parts)
            reader = StagingReader(options | {"parts": ",".join(parts)})
            rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
            return [row | LOST if (row["part"], row["data_file"]) == (f"00000{lost}", None) else row for row in rows]

        return PlanStaging(Ledger(DeltaLake(shared.lake)), shared.lake, number, 30, job).manifest()

    without_spark.run(shared, stage=stage)
    assert read == ["00000.0", "00000.1", *([] if lost else ["00000"]), "00000-2"]
    assert lake_hash(shared.lake) == lake_hash(alone.lake)
