"""Clusters of a fleet that cannot be read stay in sight: in `plans`, in the quality gate, on the fleet's page."""

from __future__ import annotations

import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kraft_audit.lake import fleet_plan as planning
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.gold.findings_table import FindingsTable
from kraft_audit.lake.gold.gold_merge import GoldLake
from kraft_audit.lake.gold.risk import RiskTables
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.quality.quality_gate import judge_lake
from kraft_audit.report.lake_source import LakeSource
from kraft_audit.report.site import write_site
from tests.builders.lakes import CopyAged, MakeFleet, no_session


def staged(lake: DeltaLake) -> list[tuple[Any, ...]]:
    sql = "SELECT plan, cluster_name, outcome FROM plans WHERE event = 'staged' AND outcome IS NOT NULL"
    return sorted(tuple(row.values()) for row in lake.query(sql, "plans").to_pylist())


def unread_by_quality(lake: DeltaLake) -> set[str]:
    (verdict,) = [verdict for verdict in judge_lake(lake, docs="").verdicts if verdict.clause == "unread_clusters"]
    assert verdict.passed is (verdict.cluster_count == 0)
    return set(verdict.clusters)


@pytest.fixture
def junk(tmp_path: Path) -> Path:
    (tmp_path / "junk.tgz").write_bytes(b"no archive" * 100)
    return tmp_path / "junk.tgz"


@pytest.mark.ci
def test_a_cluster_that_no_plan_could_read_is_reported_everywhere(
    small_corpus: Path,
    tmp_path: Path,
    junk: Path,
    make_fleet: MakeFleet,
    without_spark: ModuleType,
    copy_aged: CopyAged,
) -> None:
    nowhere = tmp_path / "nowhere"
    copy_aged(small_corpus / "mini-4.4.0", tmp_path / "good")
    fleet = make_fleet({"gone": [nowhere], "good": [tmp_path / "good"], "junk": [junk]})
    first = without_spark.run(fleet)
    assert (first.exit_code, first.clusters, set(first.failed)) == (3, 1, {"gone", "junk"})
    lake = DeltaLake(fleet.lake)
    assert staged(lake) == [(1, "gone", "failed"), (1, "good", "read"), (1, "junk", "failed")]
    assert unread_by_quality(lake) == {"gone", "junk"}
    site = write_site(LakeSource(fleet.lake), tmp_path / "site")
    assert (site.clusters, site.not_read) == (1, 2)
    page = (tmp_path / "site" / "index.html").read_text()
    assert f"{nowhere}: " in page
    assert 'id="not-read"' in page
    assert "kraft_audit_clusters_not_read 2" in (tmp_path / "site" / "metrics.prom").read_text()
    # It is known by now: an hourly run opens no plan for it, and still fails.
    second = without_spark.run(fleet)
    assert (second.exit_code, second.plans) == (3, [])
    assert unread_by_quality(lake) == {"gone", "junk"}
    # Where it can be read again, that is known too.
    copy_aged(small_corpus / "mini-3.9.2", nowhere)
    junk.unlink()
    with tarfile.open(junk, "w:gz") as archive:
        archive.add(small_corpus / "torn-write", "torn-write")
    assert without_spark.run(fleet).exit_code == 0
    assert unread_by_quality(lake) == set()
    assert LakeSource(fleet.lake).as_of().not_read == ()


@pytest.mark.ci
def test_a_cluster_whose_log_dirs_are_all_of_another(
    small_corpus: Path, tmp_path: Path, make_fleet: MakeFleet, without_spark: ModuleType, copy_aged: CopyAged
) -> None:
    """A wrong cluster_id: nothing of it would be read, which no run calls a success, neither the first nor the next."""
    copy_aged(small_corpus / "mini-4.4.0", tmp_path / "logs")
    fleet = make_fleet({"named": [tmp_path / "logs"]})
    (named,) = fleet.clusters
    wrong = fleet.model_copy(update={"clusters": [named.model_copy(update={"cluster_id": "x" * 22})]})
    for plans in ([1], []):
        ended = without_spark.run(wrong)
        assert (ended.exit_code, ended.plans) == (3, plans)
        assert "no log dir is of cluster xxxxxxxxxxxxxxxxxxxxxx" in ended.failed["named"]
    # Said rightly, it is read: nothing was noted as known.
    assert without_spark.run(fleet).exit_code == 0
    assert unread_by_quality(DeltaLake(fleet.lake)) == set()


@pytest.mark.ci
def test_a_fleet_of_which_nothing_can_be_read_is_in_the_ledger(
    small_corpus: Path, tmp_path: Path, make_fleet: MakeFleet, without_spark: ModuleType
) -> None:
    fleet = make_fleet({"gone": [tmp_path / "nowhere"]})
    assert without_spark.run(fleet).exit_code == 3
    lake = DeltaLake(fleet.lake)
    assert staged(lake) == [(1, "gone", "failed")]
    assert Ledger(lake).status().open == ()
    assert set(Ledger(lake).unread()) == {"gone"}
    # The gold tables take such a plan without Spark, and the gate has nothing else against it.
    gold = GoldLake(lake, no_session)
    assert FindingsTable(gold).update() == [1]
    assert RiskTables(gold).update() == []
    assert [verdict.clause for verdict in judge_lake(lake, docs="").verdicts if not verdict.passed] == [
        "unread_clusters"
    ]


@pytest.mark.ci
def test_a_part_of_a_cluster_that_is_out_of_reach(
    small_corpus: Path, tmp_path: Path, make_fleet: MakeFleet, without_spark: ModuleType, copy_aged: CopyAged,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Reported beside what was read, reported again after half a day, and no more when it is back with nothing new."""
    first, two = tmp_path / "one", tmp_path / "two"
    copy_aged(small_corpus / "mini-4.4.0", first)
    copy_aged(small_corpus / "mini-4.4.0", two)
    hidden = tmp_path / "hidden"
    fleet = make_fleet({"half": [first, two]})
    assert without_spark.run(fleet).exit_code == 0
    two.rename(hidden)
    lake = DeltaLake(fleet.lake)
    assert without_spark.run(fleet).plans == [2]
    assert staged(lake)[1:] == [(2, "half", "failed")]
    assert without_spark.run(fleet).plans == []
    monkeypatch.setattr(planning, "UNREAD_AGAIN_MS", 0)
    assert without_spark.run(fleet).plans == [3]
    monkeypatch.undo()
    hidden.rename(two)
    assert without_spark.run(fleet).plans == [4]
    assert staged(lake)[-1] == (4, "half", "unchanged")
    assert unread_by_quality(lake) == set()
    assert without_spark.run(fleet).plans == []


@pytest.mark.ci
def test_an_archive_that_was_cut_short_stays_undecided_in_later_plans(
    small_corpus: Path, tmp_path: Path, make_fleet: MakeFleet, without_spark: ModuleType, copy_aged: CopyAged
) -> None:
    with tarfile.open(tmp_path / "whole.tgz", "w:gz") as archive:
        archive.add(small_corpus / "divergence" / "10-uncommitted-suffix-live", "10-uncommitted-suffix-live")
    whole = (tmp_path / "whole.tgz").read_bytes()
    (tmp_path / "cut.tgz").write_bytes(whole[: len(whole) * 9 // 10])
    fleet = make_fleet({"cut": [tmp_path / "cut.tgz", tmp_path / "more"]})
    (tmp_path / "more").mkdir()
    lines: list[Any] = []
    without_spark.run(fleet, lines=lines)
    assert any("cut short at byte" in str(line) and "replicas may be missing" in str(line) for line in lines)
    lake = DeltaLake(fleet.lake)
    for plan in (1, 2):
        sql = f"SELECT DISTINCT status FROM findings_staged WHERE plan = {plan} AND rule = 'KQ008'"  # noqa: S608
        assert lake.query(sql, "findings_staged").to_pylist() == [{"status": "undecided"}], plan
        copy_aged(small_corpus / "divergence" / "11-dead-node-diverged", tmp_path / "more" / "11-dead-node-diverged")
        without_spark.run(fleet)
    reported = lake.query("SELECT DISTINCT plan FROM decode_errors WHERE reason = 'BAD_FILE'", "decode_errors")
    assert reported.to_pylist() == [{"plan": 1}], "reported once"
