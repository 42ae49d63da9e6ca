"""The table `losses` of a lake, when brokers' disks were captured in one hour and not in the next."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kraft_audit import open as open_captures
from kraft_audit.commands.cli import run_command
from kraft_audit.findings.loss_rows import loss_rows
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.settings import FleetSettings

SAID = ("grade", "severity", "from_offset", "lost_ranges", "saved_until", "plan")


def newest_loss(lake: DeltaLake) -> dict[str, Any]:
    rows = lake.query(f"SELECT {', '.join(SAID)} FROM losses ORDER BY plan", "losses").to_pylist()  # noqa: S608
    return rows[-1]


@pytest.mark.slow
def test_what_disks_proved_stays_proven_when_they_are_not_captured_again(
    tmp_path: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType
) -> None:
    """The holders come back in the second hour, so that the row is written anew."""
    assert run_command(["simulate", "loss-holders-came-back", "--out", str(tmp_path / "story")]) == 0
    logs = tmp_path / "logs"
    fleet = make_fleet({"c": [logs]})
    shutil.copytree(tmp_path / "story" / "held", logs)
    assert without_spark.run(fleet).exit_code == 0
    first = newest_loss(DeltaLake(str(fleet.lake)))
    proven = [{"leader_epoch": 1, "from_offset": 9, "to_offset": 18}]
    assert first == {**first, "grade": "proven", "from_offset": 9, "lost_ranges": proven, "saved_until": None}
    shutil.rmtree(logs)
    not_captured = shutil.ignore_patterns("orders-*", "*-offset-checkpoint")
    shutil.copytree(tmp_path / "story" / "truncated", logs, ignore=not_captured)
    assert without_spark.run(fleet).exit_code == 0
    second = newest_loss(DeltaLake(str(fleet.lake)))
    assert second["plan"] > first["plan"]
    assert second["saved_until"] is not None
    assert second == {**first, "saved_until": second["saved_until"], "plan": second["plan"]}


@pytest.mark.slow
def test_a_loss_is_written_again_when_its_disks_are_captured_later(tmp_path: Path) -> None:
    assert run_command(["simulate", "loss-holders-stopped", "--out", str(tmp_path / "story")]) == 0
    (capture,) = (each for each in (tmp_path / "story").iterdir() if each.is_dir())
    with open_captures(str(capture)) as (cluster,):
        history = cluster.history
        (row,) = loss_rows(history)
        assert row["grade"] == "proven"
        later = 1_000_000
        assert list(loss_rows(history, since=later)) == [row], "its disks are captured anew"
        assert list(loss_rows(replace(history, captured_from=1), since=later)) == [], "it was known before"
        assert list(loss_rows(replace(history, captured_from=1), since=row["offset"])) == [row], "it is new"
