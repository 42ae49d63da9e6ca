"""A log that begins after 0 without a snapshot that reaches it: on one disk or all, and who can replace the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_codec.files.state_files import QuorumState
from tests.builders.captured_histories import raised_below
from tests.builders.logs import Log, write_node

CUT_AT = 4


def log_of(voters: int) -> Log:
    log = Log()
    ids = [{"voterId": voter} for voter in range(1, voters + 1)]
    log.control("LEADER_CHANGE", {"version": 0, "leaderId": 1, "voters": ids, "grantingVoters": ids}, epoch=1)
    for number in range(8):
        log.topic(f"topic-{number}")
    return log


def write(folder: Path, voters: int, cut: set[int], captured: set[int], files: dict[str, bytes] | None = None) -> None:
    """`captured` voters' disks, those of `cut` without their first batches."""
    log = log_of(voters)
    state = QuorumState(0, 1, 1, -1, current_voters=tuple(range(1, voters + 1)))
    for voter in captured:
        segments = {CUT_AT: b"".join(log.batches[CUT_AT:])} if voter in cut else {0: log.content}
        write_node(folder, voter, segments, state=state, files=files if voter in cut else None)


@pytest.mark.parametrize(
    ("voters", "cut", "captured", "said"),
    [
        (3, {2}, {1, 2, 3}, ("Nodes 1 and 3 hold", "replace it")),
        (3, {2, 3}, {1, 2, 3}, ("only node 1", "copy that disk")),
        (3, {1, 2, 3}, {1, 2, 3}, ("No other voter holds", "do not wipe")),
        (3, {2}, {2}, ("Copy voters 1 and 3", "check again")),
        (1, {1}, {1}, ("No other voter holds", "do not wipe")),
    ],
)
def test_advice_follows_from_the_other_voters_that_hold_the_records(
    tmp_path: Path, voters: int, cut: set[int], captured: set[int], said: tuple[str, ...]
) -> None:
    write(tmp_path, voters, cut, captured)
    findings = raised_below(tmp_path, "KQ007")
    assert {finding.subject.split()[1] for finding in findings} == {str(node_id) for node_id in cut}
    for finding in findings:
        for text in said:
            assert text in finding.what_to_do


def test_a_missing_segment_is_named_by_its_index_files(tmp_path: Path) -> None:
    names = {f"{2:020d}.index": bytes(8), f"{2:020d}.timeindex": bytes(12), f"{CUT_AT:020d}.index": bytes(8)}
    write(tmp_path, 1, {1}, {1}, names)
    (finding,) = raised_below(tmp_path, "KQ007")
    assert f"{2:020d}.log" in finding.summary
    assert f"{2:020d}.log" in finding.what_to_do
    assert f"{CUT_AT:020d}.log" not in finding.summary


def test_indexes_beside_a_whole_log_are_no_damage(tmp_path: Path) -> None:
    """Kafka deletes an index without a segment when it starts, and loses nothing."""
    write(tmp_path, 3, set(), {1, 2, 3})
    (tmp_path / "node-2/__cluster_metadata-0" / f"{2:020d}.index").write_bytes(bytes(8))
    assert raised_below(tmp_path, "KQ007") == []
