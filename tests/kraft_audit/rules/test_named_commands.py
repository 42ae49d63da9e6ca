"""Advice about the quorum names the command that answers what comes next, with the node and the path that was read."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import kraft_audit as audit
from kraft_audit.rules.rule_model import Finding, Status
from tests.builders.histories import HistoryBuilder, directory
from tests.builders.log_stories import emptied
from tests.builders.logs import Log, write_node
from tests.builders.rescues import newest_history, three_controllers


def pasted(finding: Finding) -> list[str]:
    """The last command of this tool in an advice, as a shell takes it."""
    assert "kraft-audit " in finding.what_to_do, finding.what_to_do
    return shlex.split(finding.what_to_do.rpartition("kraft-audit ")[2])


@pytest.mark.parametrize("rule", ["KQ020", "KQ021"])
def test_a_voter_that_lost_its_log_is_asked_about(rule: str) -> None:
    """Node 3, whose log is empty, is the one that the command names."""
    build = HistoryBuilder()
    emptied(2)(build)
    (finding,) = build.raised(rule)
    assert pasted(finding) == ["may-i", "start", "3", "/captures"]


def test_an_altered_disk_is_asked_about(tmp_path: Path, kraft_audit: Any) -> None:
    log = Log()
    log.lead(1, epoch=1)
    log.topic("first")
    altered = log.copy()
    log.topic("true")
    altered.topic("else")
    for each in (log, altered):
        each.topic("last")
    for node in (1, 2, 3):
        write_node(tmp_path, node, (altered if node == 3 else log).content)
    found = [f for f in newest_history(tmp_path).check(only=["KQ022"]) if f.status is Status.RAISED]
    for finding in found:
        if "--diverge" not in finding.what_to_do and "Copy the disks" not in finding.what_to_do:
            assert pasted(finding) == ["may-i", "format", "3", str(tmp_path)]
            assert kraft_audit(*pasted(finding)).code in (0, 1, 4)
    assert found


@pytest.mark.parametrize("rule", ["KQ023", "KQ025"])
def test_a_quorum_that_stopped_names_what_to_ask(kraft_audit: Any, tmp_path: Path, rule: str) -> None:
    folder = three_controllers(tmp_path / "three")
    for node in (1, 2, 3):
        state = next((folder / f"node-{node}").rglob("quorum-state"))
        fields = json.loads(state.read_text())
        fields |= {"leaderId": -1, "votedId": -1, "leaderEpoch": fields["leaderEpoch"] + (node != 3)}
        state.write_text(json.dumps(fields))
    gone = () if rule == "KQ023" else (1, 2)
    with audit.open(str(folder), gone=gone) as clusters:
        (cluster,) = clusters
        (finding,) = [f for f in cluster.check(only=[rule]) if f.status is Status.RAISED]
    expected = ["may-i", "start", "3"] if rule == "KQ023" else ["rescue", "--plan"]
    command = pasted(finding)
    assert command[: len(expected)] == expected
    assert str(folder) in command
    assert kraft_audit(*command).code in (0, 1, 4)


def test_a_registration_in_the_way_names_upgrade_check() -> None:
    """For the level that it blocks, at the path that was read."""
    build = HistoryBuilder().three_nodes().feature("metadata.version", 25)
    features = [{"name": "metadata.version", "min_supported_version": 7, "max_supported_version": 25}]
    newer = [{**features[0], "max_supported_version": 33}]
    for node in (1, 2, 3):
        build.controller(node, features=newer)
    build.controller(9, features=features)
    (finding,) = build.raised("KB008")
    assert pasted(finding) == ["upgrade-check", "/captures", "--to", "4.4-IV2"]
    assert directory(9) not in finding.what_to_do
