"""What was not read is never reported as sound: by exit codes, by rules, by controls, and by a line on stderr."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from kraft_audit.rules.judging import NOTHING_READ
from kraft_audit.rules.registry import rules
from tests.builders.report_sources import path_source

META = "version=1\ncluster.id=SPA6Lw-19VaaSAxl6jMkhw\nnode.id=1\ndirectory.id=IztfOUj9Tn6xWIrmebIevg\n"


@pytest.fixture
def never_started(tmp_path: Path) -> Path:
    """A node that was formatted and holds no log, as one whose log was lost."""
    node = tmp_path / "node-1"
    (node / "__cluster_metadata-0").mkdir(parents=True)
    (node / "meta.properties").write_text(META)
    return node


@pytest.mark.slow
def test_a_cluster_of_which_nothing_was_read_does_not_pass(kraft_audit, never_started: Path) -> None:
    ended = kraft_audit("check", never_started)
    assert ended.code == 3
    assert ended.error_lines == [f"kraft-audit: {never_started}: cluster SPA6Lw-19VaaSAxl6jMkhw: {NOTHING_READ}"]
    assert "UNREADABLE" in ended.out
    assert "OK " not in ended.out
    listed = kraft_audit("check", never_started, "--findings").out
    assert f"UNDECIDED {len(rules())} rules   {NOTHING_READ}" in listed
    assert f"nothing raised, {len(rules())} undecided." in listed
    rows = json.loads(kraft_audit("check", never_started, "--all", "-o", "json", "--fail-on", "never").out)
    assert {row["status"] for row in rows} == {"undecided"}
    assert {row["rule"] for row in rows} == set(rules())


@pytest.mark.slow
def test_no_control_held_of_a_cluster_of_which_nothing_was_read(
    kraft_audit, never_started: Path, tmp_path: Path
) -> None:
    from kraft_audit.report.cluster_page import cluster_view
    from kraft_audit.report.fleet_page import Fleet, fleet_view

    (given,) = path_source(never_started).clusters()
    view = cluster_view(given)
    assert {control.status for control in view.controls} == {"undecided"}
    assert (view.clear_rules, view.partition_count) == ((), None)
    fleet = Fleet()
    fleet.add(given, view)
    shown = fleet_view(fleet)
    assert {standing: count for standing, count in shown["standings"] if count} == {"not read": 1}
    site = tmp_path / "site"
    assert kraft_audit("report", never_started, "--out", site).code == 0
    assert "1 cluster without a log that could be read" in (site / "index.html").read_text()
    assert "No open findings" not in (site / "clusters" / f"{given.cluster_id}.html").read_text()
    assert "partition_count{" not in (site / "metrics.prom").read_text()


@pytest.fixture
def cut_short(small_corpus: Path, tmp_path: Path) -> Path:
    """An archive of three voters' disks of which a copy ended early."""
    whole = tmp_path / "whole.tgz"
    with tarfile.open(whole, "w:gz") as archive:
        for node in sorted((small_corpus / "divergence").glob("*/node-*"))[:4]:
            archive.add(node, arcname=node.name)
    cut = tmp_path / "cut.tgz"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    return cut


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "quorum --voters", "quorum", "state", "dump", "quorum --diverge"])
def test_a_cut_archive_is_reported_once_by_every_command_that_reads(kraft_audit, cut_short: Path, command: str) -> None:
    ended = kraft_audit(*command.split(), cut_short)
    size = cut_short.stat().st_size
    reported = [line for line in ended.error_lines if "cut short" in line]
    assert reported[0].startswith(
        f"kraft-audit: {cut_short}: the archive is cut short at byte {size}: replicas may be "
    )
    assert len(reported) == 1


@pytest.mark.slow
def test_the_rules_do_not_call_a_cut_archive_sound(kraft_audit, cut_short: Path) -> None:
    from kraft_audit.report.cluster_page import cluster_view

    rows = json.loads(kraft_audit("check", cut_short, "--rule", "KQ008", "-o", "json").out)
    assert {row["status"] for row in rows} == {"undecided"}
    assert f"cut.tgz at byte {cut_short.stat().st_size}" in {row["subject"] for row in rows}
    (given,) = path_source(cut_short).clusters()
    (integrity,) = [control for control in cluster_view(given).controls if control.name == "log integrity"]
    assert integrity.status != "met"
    assert "KQ008" in integrity.undecided_by


def test_a_folder_without_a_lake_and_a_missing_folder_have_different_errors(kraft_audit, tmp_path: Path) -> None:
    for command in (["lake", "tables"], ["lake", "maintain"], ["report", "--out", str(tmp_path / "site")]):
        nowhere = kraft_audit(*command, tmp_path / "nowhere")
        assert nowhere.code == 3
        assert "no such f" in nowhere.err
        assert "plans" not in nowhere.err
    (tmp_path / "folder").mkdir()
    assert "no lake: it has no table `plans`" in kraft_audit("lake", "tables", tmp_path / "folder").err


def test_check_says_that_a_lake_is_one(kraft_audit, tmp_path: Path) -> None:
    (tmp_path / "lake" / "plans" / "_delta_log").mkdir(parents=True)
    ended = kraft_audit("check", tmp_path / "lake")
    assert ended.code == 3
    assert ended.error_lines[0].startswith(f"kraft-audit: {tmp_path / 'lake'}: a lake, not log dirs")


def test_spark_settings_are_read_before_a_plan_waits_for_them(kraft_audit, small_corpus: Path, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(f"lake: lake\nclusters:\n  - name: one\n    paths: [{small_corpus / 'mini-4.4.0'}]\n")
    ended = kraft_audit("run", fleet, "--spark-conf", tmp_path / "nope.conf")
    assert ended.code == 3
    assert "nope.conf" in ended.err
    assert not (tmp_path / "lake").exists()
