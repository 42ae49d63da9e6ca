"""Hourly runs read what earlier captures showed by the name that the plan before recorded, or say why they cannot."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import LedgerState
from kraft_audit.lake.maintenance import STATES_KEPT, DeltaMaintainer, maintain_lake
from kraft_audit.lake.settings import MaintainSettings
from kraft_audit.lake.staging.state_store import STATES_FOLDER, get_state
from kraft_audit.pipeline.earlier_captures import EarlierCaptures
from tests.builders.hourly_disks import HourlyDisks
from tests.builders.lakes import MakeFleet

FORGOTTEN = "what earlier captures showed is not known any more: "


class HourlyLake:
    """A fleet of one simulated cluster whose disks grow; `pass_hour` runs, and returns the warnings."""

    def __init__(self, make_fleet: MakeFleet, without_spark: ModuleType, folder: Path) -> None:
        self.disks = HourlyDisks("random", 2, folder / "disks", keeps_later_snapshots=False)
        self.shares = iter((0.5, 0.6, 0.7, 0.8, 0.9, 1.0))
        self.fleet = make_fleet({"one": [self.disks.root]})
        self.runs = without_spark
        assert self.pass_hour() == []

    def pass_hour(self) -> list[str]:
        self.disks.pass_hour(3, share=next(self.shares), stands_still=0.0)
        lines: list[str] = []
        assert self.runs.run(self.fleet, lines=lines).exit_code == 0
        return [str(line).partition("one: ")[2] for line in lines if FORGOTTEN in str(line)]

    @property
    def state(self) -> LedgerState:
        (state,) = Ledger(DeltaLake(self.fleet.lake)).states().values()
        return state

    @property
    def capture_numbers(self) -> set[int]:
        """The captures that the newest state knows."""
        (history,) = Ledger(DeltaLake(self.fleet.lake)).states()
        earlier = EarlierCaptures.from_bytes(get_state(self.fleet.lake, history, self.state.kept_state))
        return set(earlier.tables["captures"]["capture_number"].to_pylist())

    def files(self) -> list[Path]:
        return [path for path in Path(self.fleet.lake, STATES_FOLDER).rglob("*") if path.is_file()]


@pytest.fixture
def lake(make_fleet: MakeFleet, without_spark: ModuleType, tmp_path: Path) -> HourlyLake:
    return HourlyLake(make_fleet, without_spark, tmp_path)


@pytest.mark.slow
def test_an_hour_reads_the_state_that_the_plan_before_names(lake: HourlyLake) -> None:
    names = {lake.state.kept_state}
    for _ in range(4):
        assert lake.pass_hour() == []
        names.add(lake.state.kept_state)
    assert len(names) == 5
    assert {path.name for path in lake.files()} == names
    assert {3, 4} <= lake.capture_numbers, "those of the newest two hours"
    maintainer = DeltaMaintainer(DeltaLake(lake.fleet.lake), 1 << 20)
    maintained = list(maintain_lake(DeltaLake(lake.fleet.lake), maintainer, MaintainSettings()))
    assert (maintained[0].table, maintained[0].files_vacuumed) == (STATES_FOLDER, 5 - STATES_KEPT)
    assert lake.state.kept_state in {path.name for path in lake.files()}
    assert lake.pass_hour() == []


@pytest.mark.slow
def test_one_line_says_why_earlier_captures_are_not_known(lake: HourlyLake) -> None:
    for path in lake.files():
        path.unlink()
    assert lake.pass_hour() == [f"{FORGOTTEN}it is not in the lake"]
    assert lake.capture_numbers == {0}, "what this hour captured is all that is known"
    for path in lake.files():
        path.write_bytes(path.read_bytes()[:-1])
    assert lake.pass_hour() == [f"{FORGOTTEN}its bytes are not those that were written"]
    assert lake.pass_hour() == []
    assert lake.capture_numbers == {0, 1}
