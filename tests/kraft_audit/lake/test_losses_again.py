"""A run from the archive has no broker's disk, and takes back nothing that those disks proved."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.settings import FleetSettings
from kraft_engine.runs.simulate import simulate


@pytest.mark.slow
def test_a_proven_loss_stays_proven(
    tmp_path: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType
) -> None:
    simulate("last-replica-standing", 7, tmp_path / "logs")
    fleet = make_fleet({"incident": [tmp_path / "logs"]})
    assert without_spark.run(fleet).failed == {}
    shutil.rmtree(tmp_path / "logs")
    assert without_spark.run_from_archive(fleet) == 2
    lake = DeltaLake(fleet.lake)
    rows = lake.query("SELECT plan, topic, partition, grade FROM losses ORDER BY plan", "losses").to_pylist()
    one = {"topic": "orders", "partition": 0, "grade": "proven"}
    assert rows == [{"plan": 1, **one}, {"plan": 2, **one}]
    staged = lake.query(
        "SELECT plan, severity FROM findings_staged WHERE rule = 'KP020'", "findings_staged"
    ).to_pylist()
    assert {(row["plan"], row["severity"]) for row in staged} == {(1, "critical"), (2, "critical")}
