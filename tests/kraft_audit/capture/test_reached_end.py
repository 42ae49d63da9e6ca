"""Logs that end below what the files beside them say: read from node dirs, at the exact offsets."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_audit.capture.disk_trust import DiskTrust, disk_trust
from kraft_audit.rules.columns.quorum_standing import Standing
from kraft_codec.file_names import producer_state_name, segment_name
from kraft_codec.files.indexes import format_producer_state
from kraft_codec.files.state_files import EpochEntry, QuorumState, format_leader_epoch_checkpoint
from tests.builders.logs import led, with_topics, write_node

VOTERS = [1, 2, 3]
STATE = QuorumState(0, 1, 1, 1, current_voters=(1, 2, 3))
LOG = with_topics(led(1, VOTERS), 8)
END = LOG.next_offset


def node(folder: Path, node_id: int, *reached: int, content: bytes = LOG.content, **files: bytes) -> Path:
    """A voter with a `.snapshot` for each of these offsets."""
    more = {producer_state_name(offset): format_producer_state() for offset in reached}
    return write_node(folder, node_id, content, state=STATE, files={**more, **files})


def trusts(folder: Path) -> dict[int, DiskTrust]:
    with kraft_audit.open(str(folder)) as clusters:
        (cluster,) = clusters
        return {row["node_id"]: disk_trust(row) for row in cluster.history.rows("captures")}


@pytest.mark.parametrize(
    ("reached", "trust"),
    [
        ((END,), DiskTrust.READ),
        ((END - 1,), DiskTrust.READ),
        ((END - 1, END + 1), DiskTrust.SUSPECT),
        ((END + 1, END), DiskTrust.SUSPECT),
    ],
)
def test_the_highest_name_decides(tmp_path: Path, reached: tuple[int, ...], trust: DiskTrust) -> None:
    node(tmp_path, 1, *reached)
    assert trusts(tmp_path) == {1: trust}


def test_a_deleted_producer_state_says_nothing(tmp_path: Path) -> None:
    """Kafka renames it when it cuts the log, and removes it a minute later."""
    log_dir = node(tmp_path, 1, END) / "__cluster_metadata-0"
    (log_dir / f"{producer_state_name(END + 50)}.deleted").write_bytes(format_producer_state())
    assert trusts(tmp_path) == {1: DiskTrust.READ}


@pytest.mark.parametrize("tail", [b"\0" * 100, LOG.batches[-1][:-1]], ids=["zeros", "a torn batch"])
def test_a_tail_that_cannot_be_read_is_said_as_that(tmp_path: Path, tail: bytes) -> None:
    content = b"".join(LOG.batches[:-1]) + tail
    node(tmp_path, 1, END, content=content)
    assert trusts(tmp_path) == {1: DiskTrust.READ}
    with kraft_audit.open(str(tmp_path)) as clusters:
        raised = {finding.rule for finding in next(iter(clusters)).check() if finding.status == "raised"}
    assert "KQ013" not in raised
    assert raised & {"KQ008", "KQ009"}


def test_a_snapshot_above_the_log_does_not_explain_an_epoch_that_is_gone(tmp_path: Path) -> None:
    entries = format_leader_epoch_checkpoint((EpochEntry(1, 0), EpochEntry(2, END + 1)))
    snapshot = {f"{END + 9:020d}-0000000002.checkpoint": LOG.content}
    node(tmp_path, 1, **{"leader-epoch-checkpoint": entries, **snapshot})
    assert trusts(tmp_path) == {1: DiskTrust.SUSPECT}


def test_one_older_log_leaves_the_quorum_undecided_and_names_the_file(tmp_path: Path, kraft_audit: Any) -> None:
    for voter in VOTERS:
        node(tmp_path, voter, END + (voter == 3))
    answer = kraft_audit("check", tmp_path)
    assert answer.code == 1
    assert "2 of 3 voters readable, node 3 contradicts itself" in answer.out
    assert f"{producer_state_name(END + 1)} was written when the log ended at offset {END + 1}" in answer.out
    assert "UNDECIDED" in answer.out


def test_where_all_logs_are_older_committed_is_a_lower_bound(tmp_path: Path) -> None:
    for voter in VOTERS:
        node(tmp_path, voter, END + 7)
    with kraft_audit.open(str(tmp_path)) as clusters:
        standing = next(iter(clusters)).standing()
    assert standing.standing is Standing.UNDECIDED
    assert f"nodes 1, 2 and 3 was written when the log ended at offset {END + 7}" in standing.reason
    assert standing.committed_text == f"committed at least through offset {END - 1}"


def test_a_segment_that_was_not_copied_is_missed(tmp_path: Path) -> None:
    """Kafka names a `.snapshot` after each segment that it begins."""
    first = b"".join(LOG.batches[:4])
    start = 4 + LOG.next_offset - len(LOG.batches)
    write_node(
        tmp_path,
        1,
        {0: first, start: b"".join(LOG.batches[4:])},
        state=STATE,
        files={producer_state_name(start): format_producer_state()},
    )
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "node-1", whole / "node-1")
    assert trusts(whole) == {1: DiskTrust.READ}
    log_dir = whole / "node-1" / "__cluster_metadata-0"
    (log_dir / segment_name(start)).unlink()
    (log_dir / segment_name(0)).write_bytes(b"".join(LOG.batches[:3]))
    assert trusts(whole) == {1: DiskTrust.SUSPECT}
