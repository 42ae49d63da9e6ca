"""What maintenance forgets is never missed: clusters without changes for long are read from the archive, and judged, as
before.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from deltalake import DeltaTable

from kraft_audit.commands.cli import run_command
from kraft_audit.lake import maintenance
from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.gold.findings_table import FindingsTable
from kraft_audit.lake.gold.gold_merge import GoldLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.maintenance import DeltaMaintainer, Maintained, maintain_lake
from kraft_audit.lake.pipeline import lake_alone
from kraft_audit.lake.quality import promises
from kraft_audit.lake.quality.quality_gate import judge_lake
from kraft_audit.lake.settings import FleetSettings, MaintainSettings
from kraft_audit.lake.staging.archive_reading import REPLAYED, lake_clusters
from kraft_audit.tables import FINDINGS_STAGED
from kraft_audit.tables.gold import FINDINGS
from kraft_audit.text.readable import DAY_MS
from tests.builders.judged_tables import judge_only
from tests.builders.lakes import copied_lake, no_session, plan_rows, write_fleet
from tests.builders.without_spark import run_from_archive

pytestmark = pytest.mark.ci

Paths = dict[str, list[Path | str]]
CHECKPOINT_PLANS = 1
QUIET = ("mini-3.9.2", "torn-write")
BUSY = ("divergence", "elr")
SETTINGS = MaintainSettings(keep_days={"plans": 30, "files": 30, "records": 30})


def write_checkpoints_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint at every plan, not at every hundredth."""
    monkeypatch.setattr(Ledger.__init__, "__defaults__", (CHECKPOINT_PLANS,))
    monkeypatch.setattr(maintenance, "CHECKPOINT_PLANS", CHECKPOINT_PLANS)
    monkeypatch.setattr(promises, "CHECKPOINT_PLANS", CHECKPOINT_PLANS)


@pytest.fixture(scope="module")
def written(
    small_corpus: Path, tmp_path_factory: pytest.TempPathFactory, without_spark: ModuleType,
    copy_aged: Callable[[Path, Path], None],
) -> tuple[Path, Paths]:  # fmt: skip
    """A lake, and the paths of its clusters: two that say nothing after the first plan and the second, and two of which
    captures come in.
    """
    folder, paths = tmp_path_factory.mktemp("written"), Paths()
    with pytest.MonkeyPatch.context() as patch:
        write_checkpoints_often(patch)
        for name in QUIET:
            paths[name] = [small_corpus / name]
            without_spark.run(write_fleet(folder, paths))
        for name in BUSY:
            for capture in sorted(path for path in (small_corpus / name).iterdir() if path.name[:2].isdigit()):
                copy_aged(capture, root := folder / "logs" / capture.name)
                paths.setdefault(name, []).append(root)
                without_spark.run(write_fleet(folder, paths))
        FindingsTable(GoldLake(DeltaLake(str(folder / "lake")), no_session)).update()
    return folder / "lake", paths


@pytest.fixture
def fleet(written: tuple[Path, Paths], tmp_path: Path) -> FleetSettings:
    """Those clusters with a copy of the lake."""
    lake, paths = written
    copied_lake(lake, tmp_path)
    return write_fleet(tmp_path, paths)


@pytest.fixture(autouse=True)
def checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoints_often(monkeypatch)


def in_two_months(lake: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Maintained]:
    with monkeypatch.context() as later:
        then = time.time_ns() + 60 * DAY_MS * 1_000_000
        later.setattr("kraft_audit.lake.maintenance.time.time_ns", lambda: then)
        opened = DeltaLake(lake)
        done = maintain_lake(opened, DeltaMaintainer(opened, 256 << 20), SETTINGS)
        return {outcome.table: outcome for outcome in done}


def verdicts(lake: str) -> list[tuple[str, str, bool, int]]:
    judged = judge_lake(DeltaLake(lake), fresh_hours=1e9, docs="").verdicts
    return [(judgement.table, judgement.clause, judgement.passed, judgement.cluster_count) for judgement in judged]


def exported(lake: str, cluster: str, out: Path) -> dict[str, bytes]:
    assert run_command(["lake", "export", lake, "--cluster", cluster, "--out", str(out)]) == 0
    return {str(file.relative_to(out)): file.read_bytes() for file in out.rglob("*") if file.is_file()}


@pytest.mark.long
def test_clusters_without_news_are_as_before(
    fleet: FleetSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_spark: ModuleType
) -> None:
    lake, whole = fleet.lake, shutil.copytree(fleet.lake, tmp_path / "whole")
    closed = Ledger(DeltaLake(lake)).status().closed
    done = in_two_months(lake, monkeypatch)
    assert [value.failure for value in done.values() if value.failure] == []
    assert all(done[table].rows_forgotten > 0 for table in SETTINGS.keep_days)
    sql = "SELECT plan FROM plans GROUP BY plan HAVING bool_and(event = 'closed') ORDER BY plan"
    forgotten = DeltaLake(lake).query(sql, "plans").column("plan").to_pylist()
    assert forgotten == [3, 4], "of two plans nothing was the last that was said of a cluster"
    sql = "SELECT DISTINCT plan FROM findings"
    named = DeltaLake(lake).query(sql, FINDINGS.name).column("plan").to_pylist()
    assert set(named) & set(forgotten), "gold names plans that are forgotten"
    assert all(value.rows_forgotten == 0 for value in in_two_months(lake, monkeypatch).values())

    ledger, before = Ledger(DeltaLake(lake)), Ledger(DeltaLake(str(whole)))
    assert (ledger.states(), ledger.files()) == (before.states(), before.files())
    clusters = lake_clusters(DeltaLake(lake), ClosedPlans(closed))
    assert clusters == lake_clusters(DeltaLake(str(whole)), ClosedPlans(closed))
    assert {cluster.name for cluster in clusters} == {*QUIET, *BUSY}
    judged_now = verdicts(lake)
    assert judged_now == verdicts(str(whole))
    assert [verdict for verdict in judged_now if not verdict[2]] == []
    for cluster in QUIET:
        after, then = tmp_path / f"{cluster}-after", tmp_path / f"{cluster}-then"
        assert exported(lake, cluster, after) == exported(str(whole), cluster, then)

    again = without_spark.run(fleet)
    assert (again.plans, again.unchanged) == ([], len(clusters))
    reported = [run_from_archive(lake_alone(uri)) for uri in (lake, str(whole))]
    assert reported == [closed + 1, closed + 1]
    for table in sorted(REPLAYED | {FINDINGS_STAGED.name}):
        expected = [row.replace(str(whole), lake) for row in plan_rows(str(whole), table, closed + 1)]
        assert plan_rows(lake, table, closed + 1) == sorted(expected), table
    assert [verdict for verdict in verdicts(lake) if not verdict[2]] == []
    judged = {json.loads(row)["cluster_id"] for row in plan_rows(lake, FINDINGS_STAGED.name, closed + 1)}
    assert judged == {cluster.cluster_id for cluster in clusters}


def test_plans_that_gold_has_yet_to_take_stay(fleet: FleetSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of findings is made again: it has taken no plan."""
    shutil.rmtree(Path(fleet.lake) / FINDINGS.name)
    lake = DeltaLake(fleet.lake)
    GoldLake(lake, no_session).create(FINDINGS)
    assert in_two_months(fleet.lake, monkeypatch)["plans"].rows_forgotten == 0
    FindingsTable(GoldLake(lake, no_session)).update()
    assert in_two_months(fleet.lake, monkeypatch)["plans"].rows_forgotten > 0


def test_a_plan_that_never_was_is_still_reported(fleet: FleetSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    in_two_months(fleet.lake, monkeypatch)
    judge_only(monkeypatch, {FINDINGS.name})
    off = (FINDINGS.name, "rows_off_the_ledger", False, 1)
    assert off not in verdicts(fleet.lake)
    DeltaTable(f"{fleet.lake}/{FINDINGS.name}").update(updates={"plan": "0"}, predicate="rule = 'KV007'")
    assert off[:3] in [verdict[:3] for verdict in verdicts(fleet.lake)]
