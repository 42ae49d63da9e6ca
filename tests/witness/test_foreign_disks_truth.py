"""A disk in a voter's place whose meta.properties names another cluster, and disks that merely lie beside a quorum."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.recovery.may_i.permission import Action, Question, Verdict
from kraft_audit.rules.rule_model import Finding, Status
from kraft_engine.runs.scenario_stage import Stage

OTHER = "kQHv733NQIew9aw9uCXnDA"
ABOVE = "zzzv733NQIew9aw9uCXnDA"


def quorum(out: Path, *, static: bool = True) -> Path:
    """The node dirs of a settled quorum of three."""
    stage = Stage(11, out)
    stage.controllers(1, 2, 3, static=static)
    stage.settle()
    return stage.capture("then")


def rename(node_dir: Path, cluster_id: str) -> None:
    meta = node_dir / "meta.properties"
    meta.write_text(re.sub(r"cluster\.id=.*", f"cluster.id={cluster_id}", meta.read_text()))


def format_again(node_dir: Path, cluster_id: str) -> None:
    """As `kafka-storage format` leaves it: meta.properties alone."""
    rename(node_dir, cluster_id)
    shutil.rmtree(node_dir / "__cluster_metadata-0")


def foreign(out: Path) -> list[list[Finding]]:
    """What KQ010 raises in each cluster there."""
    with kraft_audit.open(str(out)) as clusters:
        return [
            [each for each in cluster.check(only=("KQ010",)) if each.status is Status.RAISED] for cluster in clusters
        ]


@pytest.mark.parametrize("cluster_id", [OTHER, ABOVE])
@pytest.mark.parametrize("change", [rename, format_again])
@pytest.mark.parametrize("static", [True, False])
def test_a_disk_of_another_cluster_is_named_and_not_started(
    tmp_path: Path, change: object, static: bool, cluster_id: str
) -> None:
    capture = quorum(tmp_path / "out", static=static)
    assert callable(change)
    change(capture / "node-3", cluster_id)
    ((finding,),) = foreign(tmp_path / "out")
    with kraft_audit.open(str(tmp_path / "out")) as clusters:
        (cluster,) = clusters
        both = f"node 3 belongs to cluster {cluster_id}, the others to cluster {cluster.cluster_id}"
        assert finding.summary.endswith(both)
        answer = cluster.may_i(Question(Action.START, 3, "logs"))
        assert answer.verdict is Verdict.NO
        assert cluster_id in answer.reason
        assert cluster.may_i(Question(Action.RESTART, 1, "logs")).verdict is not Verdict.NO


def test_a_clone_with_its_own_id_is_another_cluster(tmp_path: Path) -> None:
    """Its nodes have the ids and the batches of the first one's, and all of them are there."""
    capture = quorum(tmp_path / "out")
    for node_dir in sorted(capture.iterdir()):
        if node_dir.is_dir():
            shutil.copytree(node_dir, capture / f"clone-{node_dir.name}")
            rename(capture / f"clone-{node_dir.name}", OTHER)
    assert foreign(tmp_path / "out") == [[], []]


def test_a_formatted_dir_that_no_voter_set_names_is_left_alone(tmp_path: Path) -> None:
    capture = quorum(tmp_path / "out")
    shutil.copytree(capture / "node-3", capture / "node-9")
    format_again(capture / "node-9", OTHER)
    meta = capture / "node-9" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=3", "node.id=9"))
    assert foreign(tmp_path / "out") == [[], []]
