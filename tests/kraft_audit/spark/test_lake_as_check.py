"""A lake says of log dirs what the commands say of them: the same findings, episodes and incidents."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kraft_audit
from kraft_audit.incidents.incident import incident_row
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.gold.findings_table import FindingsTable
from kraft_audit.lake.gold.gold_merge import GoldLake
from kraft_audit.lake.pipeline import lake_alone
from kraft_audit.lake.settings import FleetSettings
from kraft_audit.report.lake_source import LakeSource
from kraft_audit.rules.rule_model import Status
from tests.builders.history_lakes import histories, rows, write
from tests.builders.lakes import no_session
from tests.builders.logs import led, with_topics
from tests.builders.rescues import LostAndRescued, newest_history, raised
from tests.builders.without_spark import run_from_archive


def merged(fleet: FleetSettings) -> DeltaLake:
    lake = DeltaLake(fleet.lake)
    FindingsTable(GoldLake(lake, no_session)).update()
    return lake


def table(lake: DeltaLake, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.query(f"SELECT * FROM {name}", name).to_pylist()  # noqa: S608
    return found


@pytest.mark.slow
def test_findings_episodes_and_incidents_are_those_of_the_commands(
    samples: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType
) -> None:
    archive = samples / "elr-29-stopped.tgz"
    fleet = make_fleet({"elr": [archive]})
    without_spark.run(fleet)
    lake = merged(fleet)
    with kraft_audit.open(str(archive)) as clusters:
        (cluster,) = clusters
        judged = [each for each in cluster.check() if each.status is not Status.CLEAR]
        incidents = [incident_row(cluster.cluster_id, each) for each in cluster.incidents(judged).incidents]
    findings = {row["finding_id"]: row for row in table(lake, "findings")}
    assert findings.keys() == {each.finding_id for each in judged}
    lasting = {each.finding_id for each in judged if not each.is_over}
    undecided = {each.finding_id for each in judged if each.status is Status.UNDECIDED}
    assert {
        id_ for id_, row in findings.items() if row["state"] not in ("resolved", "undecided")
    } == lasting - undecided
    episodes = table(lake, "finding_episodes")
    assert sorted((row["finding_id"], row["from_offset"] or -1, row["to_offset"] or -1) for row in episodes) == sorted(
        (each.finding_id, each.from_offset or -1, each.to_offset or -1) for each in judged
    )
    assert len(episodes) > len(findings), "a finding with several episodes"
    found = {row["incident_id"]: row for row in table(lake, "incidents")}
    assert found.keys() == {row["incident_id"] for row in incidents}
    assert incidents
    same = ("kind", "severity", "subject", "headline", "from_offset", "to_offset", "is_open", "is_clean", "effects")
    for row in incidents:
        assert {name: found[row["incident_id"]][name] for name in same} == {name: _plain(row[name]) for name in same}
    explained = {(row["incident_id"], row["finding_id"]) for row in episodes if row["incident_id"]}
    assert explained == {(row["incident_id"], finding) for row in incidents for finding in row["finding_ids"]}
    assert explained


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.slow
def test_histories_that_prove_to_be_one_are_merged_and_the_others_findings_closed(
    tmp_path: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType
) -> None:
    """Copies of a log from before and after its cleaning, each alone; then one that reaches from one to the other."""
    log = with_topics(led(1, [1]), 9)
    early = with_topics(led(1, [1]), 3)
    write(tmp_path / "early", early)
    fleet = make_fleet({"one": [tmp_path / "*"]})
    without_spark.run(fleet)
    (tmp_path / "early").rename(tmp_path / "lake.early")
    write(tmp_path / "late", log, 1, 1, first=6)
    without_spark.run(fleet)
    merged(fleet)
    older, newer = sorted(histories(fleet), key=str)
    write(tmp_path / "whole", log, 1, 2)
    without_spark.run(fleet)
    lake = merged(fleet)
    assert histories(fleet)[newer]["merged_into"] == older
    states = {(row["cluster_id"], row["state"], row["closed_by"]) for row in rows(fleet, "findings")}
    assert (newer, "resolved", "merged") in states
    assert not [state for state in states if state[0] == newer and state[1] != "resolved"]
    assert {row["cluster_id"] for row in table(lake, "findings") if row["state"] == "open"} == {older}


@pytest.mark.slow
def test_a_declared_rescue_stands_in_a_lake_as_in_check(
    tmp_path: Path, make_fleet: Callable[..., FleetSettings], without_spark: ModuleType
) -> None:
    """The old disks first, then the rescued dir beside them, then from the archive alone: its findings are waived."""
    lost = LostAndRescued(tmp_path / "quorum")
    folder = lost.place("disks", {f"node-{node}": lost.old / f"node-{node}" for node in (1, 2)})
    fleet = make_fleet({"lost": [folder]})
    without_spark.run(fleet)
    assert not [row for row in table(merged(fleet), "incidents") if row["kind"] == "declared_rescue"]
    shutil.copytree(lost.rescued, folder / "rescued")
    without_spark.run(fleet)
    lake = merged(fleet)
    waived = {each.finding_id for each in raised(newest_history(folder)) if each.is_declared}
    assert waived
    for source in ("disks", "archive"):
        found = {row["finding_id"]: row for row in table(lake, "findings") if row["status"] == "raised"}
        assert {id_ for id_, row in found.items() if row["state"] == "waived"} == waived, source
        (incident,) = [row for row in table(lake, "incidents") if row["kind"] == "declared_rescue"]
        explained = {row["finding_id"] for row in table(lake, "finding_episodes") if row["incident_id"]}
        assert not incident["is_open"]
        assert waived <= explained, source
        assert all(found[id_]["state"] == "resolved" for id_ in explained - waived)
        (given,) = LakeSource(fleet.lake).clusters()
        (line,) = [line for line in given.situation.lines if line.word == "RESCUE"]
        assert line.text.startswith(incident["headline"])
        assert all(rule in line.text for rule in {row["rule"] for row in found.values() if row["state"] == "waived"})
        if source == "disks":
            run_from_archive(lake_alone(fleet.lake))
            lake = merged(fleet)
