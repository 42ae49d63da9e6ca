"""Hourly runs go on from what the run before kept, and say why where they cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.fleet_plan import is_turn
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import LedgerState
from kraft_audit.lake.maintenance import DeltaMaintainer, maintain_lake
from kraft_audit.lake.settings import FleetSettings, MaintainSettings
from kraft_audit.lake.staging import state_store
from kraft_audit.lake.staging.cluster_reading import SCRUB
from kraft_audit.lake.staging.state_store import STATES_FOLDER
from kraft_audit.tables import kept_parts
from tests.builders.hourly_disks import HourlyDisks

MakeFleet = Callable[..., FleetSettings]
USELESS = "what was kept is of no use: "


class HourlyLake:
    """A fleet of one simulated cluster whose disks grow; `pass_hour` runs, and returns what a person reads of it."""

    def __init__(self, make_fleet: MakeFleet, without_spark: ModuleType, folder: Path) -> None:
        self.disks = HourlyDisks("random", 2, folder / "disks", keeps_later_snapshots=False)
        self.shares = iter((0.5, 0.6, 0.7, 0.8, 0.9, 1.0))
        self.disks.pass_hour(3, share=next(self.shares))
        self.fleet = make_fleet({"one": [self.disks.root]}).model_copy(update={"go_on": True})
        self.runs = without_spark
        self.run()

    def pass_hour(self, **settings: Any) -> list[str]:
        self.disks.pass_hour(3, share=next(self.shares), stands_still=0.0)
        if settings:
            self.fleet = self.fleet.model_copy(update=settings)
        return self.run()

    def run(self) -> list[str]:
        lines: list[str] = []
        assert self.runs.run(self.fleet, lines=lines).exit_code == 0
        return [str(line).partition("one: ")[2] for line in lines if "read from its first byte" in line]

    @property
    def state(self) -> LedgerState:
        (state,) = Ledger(DeltaLake(self.fleet.lake)).states().values()
        return state

    def files(self) -> list[Path]:
        return [path for path in Path(self.fleet.lake, STATES_FOLDER).rglob("*") if path.is_file()]


@pytest.fixture
def lake(make_fleet: MakeFleet, without_spark: ModuleType, tmp_path: Path) -> HourlyLake:
    return HourlyLake(make_fleet, without_spark, tmp_path)


@pytest.mark.slow
def test_an_hour_goes_on_from_the_state_that_its_plan_names(lake: HourlyLake) -> None:
    names = {lake.state.kept_state}
    for _ in range(4):
        assert lake.pass_hour() == []
        names.add(lake.state.kept_state)
    assert len(names) == 5
    assert {path.name for path in lake.files()} == names
    maintained = list(maintain_lake(DeltaLake(lake.fleet.lake), maintainer(lake), MaintainSettings()))
    assert (maintained[0].table, maintained[0].files_vacuumed) == (STATES_FOLDER, 2)
    assert len(lake.files()) == 3
    assert lake.pass_hour() == []


@pytest.mark.slow
def test_states_are_kept_as_changes_of_one_that_stays_while_it_is_needed(
    lake: HourlyLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((state_store, "BASE_BYTES_MIN"), (kept_parts, "LEAF_BYTES_MIN")):
        monkeypatch.setattr(module, name, 1)
    monkeypatch.setattr(kept_parts, "SHARE_MAX", 100.0)
    base = lake.state.kept_state
    for _ in range(3):
        assert lake.pass_hour() == []
        assert lake.state.kept_state.endswith(f"-{base}")
    assert len(lake.files()) == 4
    for _ in range(2):
        (maintained, *_) = maintain_lake(DeltaLake(lake.fleet.lake), maintainer(lake), MaintainSettings())
        assert (maintained.table, maintained.files_vacuumed) == (STATES_FOLDER, 0), "all three are of the first one"
    monkeypatch.setattr(kept_parts, "SHARE_MAX", 0.0)
    assert lake.pass_hour() == []
    assert "-" not in lake.state.kept_state, "it has changed too much"
    monkeypatch.setattr(kept_parts, "SHARE_MAX", 100.0)
    assert lake.pass_hour() == []
    for path in lake.files():
        if "-" not in path.name:
            path.unlink()
    assert lake.run() == []
    lake.disks.pass_hour(2, share=1.0, stands_still=0.0)
    assert lake.run() == [f"read from its first byte: {USELESS}it is not in the lake"]


def maintainer(lake: HourlyLake) -> DeltaMaintainer:
    return DeltaMaintainer(DeltaLake(lake.fleet.lake), 1 << 20)


@pytest.mark.slow
def test_one_line_says_why_all_of_a_cluster_was_read(lake: HourlyLake) -> None:
    for path in lake.files():
        path.unlink()
    assert lake.pass_hour() == [f"read from its first byte: {USELESS}it is not in the lake"]
    for path in lake.files():
        path.write_bytes(path.read_bytes()[:-1])
    assert lake.pass_hour() == [f"read from its first byte: {USELESS}its bytes are not those that were written"]
    (cluster,) = lake.fleet.clusters
    changed = cluster.model_copy(update={"defaults": {"unclean.leader.election.enable": "true"}})
    (line,) = lake.pass_hour(clusters=[changed])
    assert line.startswith(f"read from its first byte: {USELESS}it was kept with another ")
    assert lake.pass_hour(scrub_plans=1) == [f"read from its first byte: {SCRUB}"]
    assert lake.pass_hour(scrub_plans=0) == []


def test_each_history_has_its_turn_once() -> None:
    for history in ("a", "b", "SPA6Lw-19VaaSAxl6jMkhw"):
        assert sum(is_turn(history, number, 168) for number in range(1, 169)) == 1
        assert not any(is_turn(history, number, 0) for number in range(1, 169))
    assert len({tuple(number for number in range(1, 169) if is_turn(str(n), number, 168)) for n in range(50)}) > 30
