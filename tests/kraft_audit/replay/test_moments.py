"""Copies without a whole log, and logs that contradict each other: what is shown of them, and which of them is asked.

The witness of a snapshot's state is the log that it stands for, replayed without the snapshot.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kraft_audit.cluster import Cluster
from kraft_audit.opened_cluster import NoCanonicalLogError
from kraft_audit.replay.cluster_state import BranchName, Place
from kraft_audit.rules.rule_model import Status
from kraft_codec.errors import ChoiceError
from kraft_codec.files.state_files import QuorumState
from kraft_engine import simulate
from tests.builders.logs import Log, write_node
from tests.builders.pictures import only_cluster

TABLES = ("broker_changes", "topic_changes", "partition_changes", "config_changes", "feature_changes")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quorum of three of which one node has a snapshot."""
    out = tmp_path_factory.mktemp("snapshot") / "run"
    simulate("good-snapshot", 4, out)
    return out / "good"


def snapshots(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("0*-*.checkpoint") if end_of(path)]


def end_of(path: Path) -> int:
    return int(path.name.split("-")[0])


def subjects(cluster: Cluster, at: int | None = None) -> dict[str, list[dict[str, object]]]:
    state = cluster.state(at)
    unlike = ("from_offset", "from_epoch", "timestamp_ms", "cause", "cause_broker_id", "election", "plan")
    return {
        name: sorted(
            ({key: value for key, value in row.items() if key not in unlike} for row in state.rows(name)), key=repr
        )
        for name in TABLES
    }


def without(copy: Path, folder: Path, *patterns: str) -> Path:
    shutil.copytree(copy, folder, ignore=shutil.ignore_patterns(*patterns))
    return folder


def snapshot_of_all(folder: Path) -> None:
    """The one snapshot on every disk: what a second disk bears out may stand above its log."""
    (snapshot,) = snapshots(folder)
    for log_dir in folder.rglob("__cluster_metadata-0"):
        if log_dir != snapshot.parent:
            shutil.copy(snapshot, log_dir)


@pytest.mark.parametrize("kept_batches", [0, 3])
def test_a_copy_without_its_whole_log_is_shown_as_of_its_snapshot(
    copy: Path, tmp_path: Path, kept_batches: int
) -> None:
    (snapshot,) = snapshots(copy)
    end = end_of(snapshot)
    replayed = only_cluster(without(copy, tmp_path / "log", snapshot.name))
    expected = subjects(replayed, end - 1)
    cut = without(copy, tmp_path / "cut")
    snapshot_of_all(cut)
    for log in cut.rglob("*.log"):
        if kept_batches:
            log.write_bytes(b"".join(batches_of(log.read_bytes())[:kept_batches]))
        else:
            log.unlink()
    cluster = only_cluster(cut)
    moment = cluster.moment()
    assert moment.end_offset == end
    assert moment.why_not_canonical is not None
    assert str(end) in moment.why_not_canonical
    assert cluster.state().offset == end - 1
    assert subjects(cluster) == expected
    voters = replayed.state(end - 1).voter_set
    assert cluster.state().voter_set is not None
    assert cluster.state().voter_set["voters"] == voters["voters"]
    changed = cluster.partitions().to_pylist()
    assert {(row["topic"], row["partition"], tuple(row["isr"])) for row in changed} == {
        (row["topic"], row["partition"], tuple(row["isr"])) for row in expected["partition_changes"]
    }
    assert all(finding.status is not Status.RAISED for finding in cluster.check(only=["KQ002"]))


def batches_of(content: bytes) -> list[bytes]:
    batches, position = [], 0
    while position < len(content):
        length = 12 + int.from_bytes(content[position + 8 : position + 12])
        batches.append(content[position : position + length])
        position += length
    return batches


def test_a_place_before_a_log_s_missing_end_is_shown_from_the_log(copy: Path, tmp_path: Path) -> None:
    cut = without(copy, tmp_path / "cut")
    snapshot_of_all(cut)
    for log in cut.rglob("*.log"):
        log.write_bytes(b"".join(batches_of(log.read_bytes())[:3]))
    cluster = only_cluster(cut)
    log_end = cluster.survey.ends[0].end_offset
    assert 0 < log_end < cluster.moment().end_offset
    assert cluster.state(log_end - 2).offset == log_end - 2


@pytest.fixture
def contradiction(tmp_path: Path) -> Path:
    """Two leaders of epoch 2, one topic each."""
    for node_id, topic in ((1, "mine"), (2, "theirs"), (3, "theirs")):
        log = Log()
        log.lead(1, 1)
        log.topic("common")
        log.lead(min(node_id, 2), 2)
        log.topic(topic)
        write_node(
            tmp_path, node_id, log.content, state=QuorumState(0, min(node_id, 2), 2, -1, current_voters=(1, 2, 3))
        )
    return tmp_path


def topics(cluster: Cluster, branch: str) -> set[str]:
    moment = cluster.moment(branch=BranchName.parse(branch))
    return {row["topic"] for row in moment.state(Place()).rows("topic_changes")}


def test_either_branch_of_a_contradiction_is_shown_by_name(contradiction: Path) -> None:
    cluster = only_cluster(contradiction)
    with pytest.raises(NoCanonicalLogError, match=r"2@2:1 .* 2@2:2|2@2:2 .* 2@2:1"):
        cluster.moment()
    with pytest.raises(ChoiceError, match="several"):
        cluster.moment(branch=BranchName.parse("2@2"))
    with pytest.raises(ChoiceError, match="no captured log"):
        cluster.moment(branch=BranchName.parse("7@2"))
    assert topics(cluster, "2@2:1") == {"common", "mine"}
    assert topics(cluster, "2@2:3") == topics(cluster, "2@4:2") == {"common", "theirs"}


def test_both_leaders_and_all_voters_of_a_contradiction_are_named(contradiction: Path) -> None:
    quorum = only_cluster(contradiction).quorum()
    assert quorum.leader_ids == (1, 2)
    assert [voter.voter_id for voter in quorum.voters] == [1, 2, 3]
    assert [row["role"] for row in quorum.replicas] == ["leader", "leader", "voter"]
    standing = only_cluster(contradiction).standing()
    assert standing.standing == "undecided"
    assert "1 and 2" in standing.reason


@pytest.mark.parametrize("text", ["", "2", "2@", "@3", "2@3:", "-1@3", "2@3:x"])
def test_a_branch_has_epoch_and_offset(text: str) -> None:
    with pytest.raises(ValueError, match="EPOCH@OFFSET"):
        BranchName.parse(text)
