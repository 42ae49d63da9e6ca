"""Copies of one snapshot that say different things: what most disks hold is the snapshot, and the outlier is named."""

from __future__ import annotations

from pathlib import Path

import kraft_audit
from kraft_audit.rules.rule_model import Finding, Severity, Status
from kraft_codec.file_names import snapshot_name
from kraft_codec.files.state_files import QuorumState
from kraft_engine.runs.simulate import simulate
from tests.builders.logs import NOW_MS, Log, write_node

END = 4


def snapshot(*names: str, written_ms: int = NOW_MS) -> dict[str, bytes]:
    """A snapshot at offset 4 with these topics, as a node writes it at some time."""
    content = Log(timestamp_ms=written_ms)
    content.control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": 7})
    for name in names:
        content.topic(name)
    content.control("SNAPSHOT_FOOTER", {"version": 0})
    return {snapshot_name(END, 1): content.content}


def write_quorum(folder: Path, *snapshots: dict[str, bytes], is_cleaned: bool = True) -> None:
    """Nodes 1, 2 and so on with one log, cleaned up to the snapshot or whole, each with its own snapshot."""
    log = Log()
    ids = [{"voterId": voter} for voter in range(1, len(snapshots) + 1)]
    log.control("LEADER_CHANGE", {"version": 0, "leaderId": 1, "voters": ids, "grantingVoters": ids}, epoch=1)
    for number in range(1, 8):
        log.topic(f"topic-{number}")
    segments = {END: b"".join(log.batches[END:])} if is_cleaned else {0: b"".join(log.batches)}
    for node_id, files in enumerate(snapshots, start=1):
        write_node(folder, node_id, segments, files=files, state=QuorumState(1, 1, 1, -1))


def judged(folder: Path) -> tuple[list[Finding], set[str]]:
    """KQ011's findings, and the names of the topics that the state has."""
    with kraft_audit.open(str(folder)) as clusters:
        (cluster,) = clusters
        raised = [each for each in cluster.check(only=("KQ011",)) if each.status is Status.RAISED]
        return raised, {row["topic"] for row in cluster.state().rows("topic_changes")}


RIGHT = ("topic-1", "topic-2", "topic-3")
ALL = {f"topic-{number}" for number in range(1, 8)}


def test_copies_that_differ_in_times_alone_say_the_same(tmp_path: Path) -> None:
    write_quorum(tmp_path, *(snapshot(*RIGHT, written_ms=NOW_MS + 1_000 * number) for number in range(3)))
    assert judged(tmp_path) == ([], ALL)


def test_what_most_disks_hold_is_the_snapshot_where_no_log_reaches_it(tmp_path: Path) -> None:
    """The first disk's copy is altered: the state is that of the others, and its node is named."""
    write_quorum(tmp_path, snapshot("topic-1", "altered", "topic-3"), snapshot(*RIGHT), snapshot(*RIGHT))
    (finding,), topics = judged(tmp_path)
    assert finding.subject == "node 1 snapshot 4-1"
    assert "nodes 2 and 3" in finding.summary
    assert topics == ALL


def test_the_replay_says_which_of_two_copies_is_wrong(tmp_path: Path) -> None:
    write_quorum(tmp_path, snapshot(*RIGHT), snapshot("topic-1", "altered", "topic-3"), is_cleaned=False)
    (finding,), topics = judged(tmp_path)
    assert finding.subject == "node 2 snapshot 4-1"
    assert "the replay of the log and the snapshot of node 1 agree" in finding.summary
    assert topics == ALL


def test_one_against_one_without_a_log_names_both_and_accuses_none(tmp_path: Path) -> None:
    write_quorum(tmp_path, snapshot(*RIGHT), snapshot("topic-1", "altered", "topic-3"))
    (finding,), _ = judged(tmp_path)
    assert "node 1 hold" in finding.summary
    assert finding.subject == "node 2 snapshot 4-1"
    assert "outlier" not in finding.summary


def test_snapshots_that_agree_against_the_log_put_the_log_in_doubt(tmp_path: Path) -> None:
    write_quorum(tmp_path, *[snapshot("topic-1", "altered", "topic-3")] * 3, is_cleaned=False)
    (finding,), _ = judged(tmp_path)
    assert finding.subject == "snapshot 4-1"
    assert "the replay of the log is the outlier" in finding.summary


def test_configs_of_a_deleted_topic_are_kafkas_bug_and_no_damage(tmp_path: Path) -> None:
    found = {}
    for name in ("config-left-in-snapshot", "altered-snapshot", "equal-snapshots"):
        simulate(name, 1, tmp_path / name)
        with kraft_audit.open(str(tmp_path / name)) as clusters:
            (cluster,) = clusters
            found[name] = [each for each in cluster.check(only=("KQ011",)) if each.status is Status.RAISED]
    (left,), (altered,) = found["config-left-in-snapshot"], found["altered-snapshot"]
    assert found["equal-snapshots"] == []
    assert left.subject.startswith("node 2 snapshot")
    assert "ConfigurationsDelta" in left.summary
    assert "--topic passing" in left.what_to_do
    assert left.severity is Severity.MEDIUM
    assert altered.subject.startswith("node 2 snapshot")
    assert "ConfigurationsDelta" not in altered.summary
    assert altered.severity is Severity.HIGH
