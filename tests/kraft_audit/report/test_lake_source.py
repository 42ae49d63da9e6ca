"""A report of a lake says what a report of the same log dirs says, and from which versions of the tables."""

from __future__ import annotations

import csv
import datetime
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from kraft_audit.commands.cli import run_command
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.plan_events import PlanStatus
from kraft_audit.lake.settings import load_fleet
from kraft_audit.report import lake_source
from kraft_audit.report.cluster_page import ClusterView, cluster_view
from kraft_audit.report.fleet_page import Fleet, fleet_view
from kraft_audit.report.lake_answer import lake_situation
from kraft_audit.report.lake_source import LakeSource, is_lake
from kraft_audit.report.openmetrics import cluster_samples
from kraft_audit.report.report_files import write_file
from kraft_audit.report.report_source import ClusterInput
from kraft_audit.report.site import write_site
from kraft_audit.text.exit_codes import EXIT_UNREADABLE
from kraft_audit.text.readable import DAY_MS, MINUTE_MS
from tests.builders.captures import SAMPLES
from tests.builders.lakes import write_fleet
from tests.builders.report_sources import path_source
from tests.builders.without_spark import run

pytestmark = pytest.mark.slow  # a lake is made first

PATHS = {
    "elr": f"{SAMPLES}/elr-06-kill-13-last-replica.tgz",
    "more at risk than are shown": "mini-3.9.2",
    "once at risk": "mini-4.4.0",
    "never at risk": "divergence",
    "reverted": "uncommitted-voter-change",
}


@pytest.fixture(scope="module")
def lake(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    clusters = [{"name": name, "paths": [str(small_corpus / path)]} for name, path in PATHS.items()]
    (folder / "fleet.yaml").write_text(yaml.safe_dump({"lake": "lake", "clusters": clusters}))
    run(load_fleet(folder / "fleet.yaml", environment={}))
    return folder / "lake"


def without_plan(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("plan", "to_offset", "proven")}


def _drawn(view: ClusterView) -> dict[str, Any]:
    """What a picture shows."""
    picture = view.picture
    assert picture is not None
    return {
        "counts": {
            series.kind: list(zip(series.times_ms.tolist(), series.counts.tolist(), strict=True))
            for series in picture.series
        },
        "brokers": [(lane.name, lane.standing, lane.marks) for lane in picture.brokers],
        "controllers": picture.controllers,
        "partitions": (picture.partitions, picture.losses),
        "log end": (picture.log_end.times_ms.tolist(), picture.log_end.offsets.tolist(), picture.log_end.committed),
        "incidents": [(bracket.label, bracket.from_ms, bracket.is_open) for bracket in picture.brackets],
    }


def test_a_lake_reports_what_its_log_dirs_report(lake: Path, small_corpus: Path) -> None:
    assert is_lake(str(lake))
    assert not is_lake(str(small_corpus))
    from_lake = {given.cluster_id: given for given in LakeSource(str(lake), has_pages=True).clusters()}
    assert {given.name for given in from_lake.values()} == set(PATHS)
    for path in PATHS.values():
        (given,) = path_source(small_corpus / path).clusters()
        same = from_lake[given.cluster_id]
        here, there = cluster_view(given), cluster_view(same)
        for name in ("controls", "ledgers", "partitions_at_risk", "partition_count", "open_counts", "clear_rules"):
            assert getattr(there, name) == getattr(here, name), name
        assert (there.exposure.from_ms, there.exposure.to_ms) == (here.exposure.from_ms, here.exposure.to_ms)
        if here.exposure.from_ms is not None and here.exposure.to_ms is not None:
            edges = [*range(here.exposure.from_ms, here.exposure.to_ms, MINUTE_MS), here.exposure.to_ms]
            assert there.exposure.within(edges) == pytest.approx(here.exposure.within(edges))
        assert there.metadata_version == here.metadata_version
        assert _drawn(there) == _drawn(here)
        assert same.situation == given.situation
        assert there.answer == here.answer
        assert there.answer
        assert there.permissions == here.permissions, "what may-i answers of the disks, with the path of the disks"
        assert there.permission_lines
        for name in ("open_incidents", "resolved_incidents"):
            stories = [
                [(row["headline"], list(row["effects"]), list(row["events"])) for row in getattr(view, name)]
                for view in (here, there)
            ]
            assert stories[0] == stories[1], name
        assert [without_plan(row) for row in there.voter_sets] == [without_plan(row) for row in here.voter_sets]
        assert {row["epoch"] for row in there.leader_epochs} == {row["epoch"] for row in here.leader_epochs}
        assert here.watermark is not None
        assert there.watermark is not None
        assert [there.watermark[name] for name in ("low", "high")] == [here.watermark[name] for name in ("low", "high")]
        assert len(there.replicas) == len(here.replicas)
        reported = {(name, *sorted(labels.items())): value for name, labels, value in cluster_samples(given)}
        for name, labels, value in cluster_samples(same):
            known = {key: text for key, text in labels.items() if key != "cluster"}
            if "timestamp" not in name:
                assert reported[(name, *sorted(known.items()))] == value


# One capture of each state of a quorum, and of what comes first beside it; captures of one cluster share its history.
ANSWERED = (
    *("elr/29-stopped", "six/06-three-of-six-down", "split/01-two-quorums", "dynamic-quorum/11-2voters-one-dead"),
    *("dynamic-quorum/00-formatted-not-started", "phantom/03-phantom", "static-to-dynamic-upgrade/00-formatted"),
    *("jbod/03-stopped", "torn-write/10-short-write-follower", "uncommitted-voter-change/10-add-voter-uncommitted"),
)


@pytest.mark.ci
@pytest.mark.parametrize("name", ANSWERED)
def test_a_lake_answers_what_check_answers(name: str, captured_logs: Path, tmp_path: Path) -> None:
    def without_operations(given: ClusterInput) -> list[tuple[str, str]]:
        """What uncommitted records would do is not in the rows that pages read, nor who holds what waits."""
        lines = [
            (line.word, re.sub(r"(not proven committed): .*", r"\1.", line.text)) for line in given.situation.lines
        ]
        if "wait for a majority" not in lines[0][1]:
            return lines
        assert [word for word, _ in lines[1:2]] == ["NEXT"]
        assert any("kraft-audit check" in text for _, text in lines[1:])
        return lines[:1]

    fleet = tmp_path / "fleet.yaml"
    entry = {"name": "live", "paths": [str(captured_logs / name)]}
    fleet.write_text(yaml.safe_dump({"lake": "lake", "clusters": [entry]}))
    assert run(load_fleet(fleet, environment={})).failed == {}
    here, there = (
        sorted(source.clusters(), key=without_operations)
        for source in (path_source(captured_logs / name), LakeSource(str(tmp_path / "lake"), has_pages=True))
    )
    assert list(map(without_operations, here)) == list(map(without_operations, there))
    for disks, read in zip(here, there, strict=True):
        assert disks.permissions is not None
        assert read.permissions is not None
        assert read.permissions.rows == disks.permissions.rows
        assert read.permissions.cannot_be_lost == disks.permissions.cannot_be_lost
        assert bool(read.permissions.skipped) == ("formatted" in name), "no archive of a log without a batch"


def test_what_cannot_be_asked_of_a_lake_is_said(lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_source, "REPORT_CLUSTERS_ASKED_MAX", len(PATHS) - 1)
    for given in LakeSource(str(lake), has_pages=True).clusters():
        assert given.permissions is not None
        assert f"{len(PATHS)} clusters" in str(given.permissions.skipped)
        assert "may-i ACTION NODE" in str(given.permissions.skipped)
    monkeypatch.undo()
    shutil.copytree(lake, tmp_path / "lake")
    shutil.rmtree(tmp_path / "lake" / "archive")
    for given in LakeSource(str(tmp_path / "lake"), has_pages=True).clusters():
        assert "may-i ACTION NODE" in str(given.permissions and given.permissions.skipped)


def test_what_no_rule_judged_is_open_and_names_what_to_check(lake: Path) -> None:
    for given in LakeSource(str(lake)).clusters():
        (state, *_) = lake_situation(given.history, given.findings, given.incidents, frozenset()).lines
        root = given.history.rows("captures")[0]["root"]
        assert (state.word, f"kraft-audit check {root}" in state.text) == ("UNDECIDED", True)


def test_what_needs_batches_is_what_the_findings_say(lake: Path) -> None:
    """Stalled and undecided quorums, as the newest plan judged them."""
    given = next(given for given in LakeSource(str(lake)).clusters() if given.name == "never at risk")
    (of_quorum, *_) = [row for row in given.findings if row["status"] == "raised"]
    stalled = {**of_quorum, "rule": "KQ024", "subject": "quorum", "summary": "offsets 4 to 9 wait", "is_over": False}
    stalled |= {"state": "open", "severity_now": "critical"}
    undecided = {**stalled, "status": "undecided", "state": "undecided", "reason": "if the copies are of one moment"}
    words = []
    for finding in (stalled, undecided):
        (state, *_) = lake_situation(given.history, [finding], [], given.judged_rules or frozenset()).lines
        words.append((state.word, state.text))
    assert words == [("QUORUM", "Offsets 4 to 9 wait."), ("UNDECIDED", "If the copies are of one moment.")]


@pytest.mark.parametrize(("sample", "rows_a_partition"), [("elr", None), ("divergence", 1)])
def test_of_many_plans_only_what_is_reported_is_read(
    sample: str, rows_a_partition: int | None, small_corpus: Path, tmp_path: Path
) -> None:
    """A run for each capture, and an idle one: pages show what they show of all captures read at once."""
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        yaml.safe_dump({"lake": "lake", "clusters": [{"name": "live", "paths": [str(tmp_path / "live")]}]})
    )
    captures = sorted(folder for folder in (small_corpus / sample).glob("[0-9]*") if folder.is_dir())
    for capture in [*captures, captures[-1]]:
        shutil.rmtree(tmp_path / "live", ignore_errors=True)
        shutil.copytree(capture, tmp_path / "live")
        assert run(load_fleet(fleet, environment={})).failed == {}
    (given,) = path_source(small_corpus / sample).clusters()
    (same,) = LakeSource(str(tmp_path / "lake")).clusters()
    here, there = cluster_view(given), cluster_view(same)
    for name in ("ledgers", "partitions_at_risk", "partition_count"):
        assert getattr(there, name) == getattr(here, name), name
    assert (there.exposure.from_ms, there.exposure.to_ms) == (here.exposure.from_ms, here.exposure.to_ms)
    assert len(there.replicas) == len(here.replicas)
    lake = DeltaLake(str(tmp_path / "lake"))
    for table in ("captures", "watermarks"):
        held = {row["plan"] for row in same.history.rows(table)}
        everything = {row["plan"] for row in lake.query(f"SELECT DISTINCT plan FROM {table}", table).to_pylist()}  # noqa: S608
        assert held < everything, table
    assert same.judged_rules == {row["rule"] for row in given.findings}
    if rows_a_partition is not None:
        assert len(same.history.table("partition_changes")) == rows_a_partition * (there.partition_count or 0) > 0


def test_a_cluster_without_a_partition(small_corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(
        small_corpus / "mini-3.9.2", tmp_path / "logs", ignore=shutil.ignore_patterns("*.log", "*.checkpoint")
    )
    fleet = write_fleet(tmp_path, {"nothing": [tmp_path / "logs"]})
    run(fleet)
    assert [given.history.cluster_id for given in LakeSource(fleet.lake).clusters()]


def test_the_versions_are_reported(lake: Path, tmp_path: Path) -> None:
    as_of = LakeSource(str(lake)).as_of()
    assert as_of.plan == 1
    versions = {version.table: version for version in as_of.versions}
    assert {"plans", "captures", "partition_changes", "findings_staged"} <= versions.keys()
    assert all(value.committed_ms is not None for value in versions.values())
    assert run_command(["report", str(lake), "--out", str(tmp_path / "site")]) == 0
    text = (tmp_path / "site" / "index.html").read_text()
    assert "plan 1." in text
    assert f'<td class="n">{versions["plans"].version}</td>' in text
    assert as_of.rules_version in text


def test_merged_findings_and_daily_risk_win(lake: Path, tmp_path: Path) -> None:
    """Where the gold tables are, states, waivers and exposure are theirs."""
    from deltalake import write_deltalake

    copied = tmp_path / "lake"
    shutil.copytree(lake, copied)
    (first, *_) = LakeSource(str(copied)).clusters()
    rows = [dict(row) for row in first.findings if row["status"] == "raised" and not row["is_over"]]
    waiver = pa.struct([(name, pa.string()) for name in ("who", "why", "until")])
    for number, row in enumerate(rows):
        row.pop("newest_plan", None)
        row["state"] = ("open", "waived", "resolved")[number % 3]
        row["waiver"] = {"who": "Ada", "why": "known", "until": "2027-01-01"} if row["state"] == "waived" else None
        row["expired_waiver"] = None
        row["closed_ms"] = 1_795_300_000_000 if row["state"] == "resolved" else None
    table = pa.Table.from_pylist(rows)
    for name, type_ in (("waiver", waiver), ("expired_waiver", waiver), ("closed_ms", pa.int64())):
        column = pa.array([row[name] for row in rows], type_)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    for name in ("reason", "to_offset", "to_ms", "to_time", "epoch"):
        if pa.types.is_null(table.schema.field(name).type):
            table = table.drop_columns([name]).append_column(name, pa.nulls(len(rows), pa.int64()))
    write_deltalake(str(copied / "findings"), table)
    day = datetime.date(2026, 11, 20)
    risk = {
        "cluster_id": [first.cluster_id] * 2,
        "day": [day, day],
        "topic": ["a", "b"],
        "exposure_minutes": [1.5, 2.0],
    }
    write_deltalake(str(copied / "partition_risk"), pa.table(risk))

    reported = {given.cluster_id: given for given in LakeSource(str(copied)).clusters()}[first.cluster_id]
    view = cluster_view(reported)
    assert sum(view.open_counts.values()) == sum(row["state"] == "open" for row in rows)
    assert len(view.waived) == sum(row["state"] == "waived" for row in rows) > 0
    assert sum(group.count for group in view.closed_groups) == sum(row["state"] == "resolved" for row in rows)
    midnight = int(datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC).timestamp() * 1000)
    assert reported.exposed_minutes == {midnight: 3.5}
    assert view.exposure.within([midnight, midnight + DAY_MS]) == [3.5]
    fleet = Fleet()
    fleet.add(reported, view)
    assert fleet_view(fleet)["step"] == "day"
    write_site(LakeSource(str(copied)), tmp_path / "site")
    with (tmp_path / "site" / "findings.csv").open(newline="") as file:
        states = {row["finding_id"]: row["state"] for row in csv.DictReader(file)}
    assert {row["finding_id"]: row["state"] for row in rows}.items() <= states.items()


def test_a_plan_that_closes_while_tables_are_opened_is_not_reported(
    lake: Path, small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(lake.parent, tmp_path / "copied")
    fleet = tmp_path / "copied" / "fleet.yaml"
    fleet.write_text(
        yaml.safe_dump({"lake": "lake", "clusters": [{"name": "late", "paths": [str(small_corpus / "jbod")]}]})
    )
    before = {given.cluster_id: len(given.findings) for given in LakeSource(str(lake)).clusters()}

    class OvertakenLedger(Ledger):
        def status(self) -> PlanStatus:
            found = super().status()
            assert run(load_fleet(fleet, environment={})).failed == {}
            return found

    monkeypatch.setattr("kraft_audit.report.lake_source.Ledger", OvertakenLedger)
    source = LakeSource(str(tmp_path / "copied" / "lake"))
    assert source.as_of().plan == 1
    assert {given.cluster_id: len(given.findings) for given in source.clusters()} == before
    monkeypatch.undo()
    later = LakeSource(str(tmp_path / "copied" / "lake"))
    assert (later.as_of().plan, len(list(later.clusters()))) == (2, len(before) + 1)


def test_a_data_file_that_is_gone_is_reported_in_one_line(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = tmp_path / "lake"
    shutil.copytree(lake, copied)
    for file in (copied / "captures").rglob("*.parquet"):
        file.unlink()
    assert run_command(["report", str(copied), "--out", str(tmp_path / "site")]) == EXIT_UNREADABLE
    [line] = capsys.readouterr().err.splitlines()
    assert "cannot be read" in line
    assert "captures/" in line


def test_a_table_that_is_gone_is_reported_in_one_line(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(lake, tmp_path / "lake")
    shutil.rmtree(tmp_path / "lake" / "exposure_changes")
    assert run_command(["report", str(tmp_path / "lake"), "--out", str(tmp_path / "site")]) == EXIT_UNREADABLE
    [line] = capsys.readouterr().err.splitlines()
    assert "no table exposure_changes" in line


def test_options_of_judging_are_refused_for_a_lake(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_command(["report", str(lake), "--out", str(tmp_path / "site"), "--default", "min.insync.replicas=2"])
    assert code == 2
    assert "PATH is a lake, whose rules ran when it was written" in capsys.readouterr().err
    assert run_command(["report", str(lake), "--out", str(lake / "site")]) == 2


def test_a_lake_gives_auditors_the_same_bytes_again(lake: Path, tmp_path: Path) -> None:
    """OSCAL and OCSF have the times of plans, not of the clock."""
    written = []
    for name in ("a", "b"):
        write_site(LakeSource(str(lake)), tmp_path / name / "site")
        write_file(LakeSource(str(lake)), "ocsf", tmp_path / name / "findings.jsonl")
        files = (*(tmp_path / name / "site" / "oscal").iterdir(), tmp_path / name / "findings.jsonl")
        written.append({str(file.relative_to(tmp_path / name)): file.read_bytes() for file in files})
    assert written[0] == written[1]
    events = [json.loads(line) for line in written[0]["findings.jsonl"].splitlines()]
    assert len({event["resources"][0]["namespace"] for event in events}) == len(PATHS)
    results = json.loads(written[0]["site/oscal/assessment-results.json"])["assessment-results"]
    closed = DeltaLake(str(lake)).query("SELECT max(at_ms) AS at_ms FROM plans WHERE event = 'closed'", "plans")
    modified = datetime.datetime.fromisoformat(results["metadata"]["last-modified"]).timestamp()
    assert round(modified * 1000) == closed["at_ms"][0].as_py()
    assert len(results["results"]) == len(PATHS)
