"""Captures in the order in which they were taken: by epochs, then by what a majority reached, then by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_audit.capture.path_plans import plan_path
from kraft_codec.files.state_files import QuorumState
from kraft_codec.storage.opener import open_storage
from tests.builders.logs import Log, write_node

Disks = dict[int, tuple[int, int]]
"""By node: the epoch of its quorum-state, the size of its log."""


def order_of(root: Path, captures: dict[str, Disks], *, leader_id: int = -1) -> list[str]:
    for name, disks in captures.items():
        for node_id, (epoch, size_bytes) in disks.items():
            node = root / name / f"node-{node_id}"
            log = node / "__cluster_metadata-0"
            log.mkdir(parents=True)
            meta = f"version=1\ncluster.id=JgxuGe9URy-E-ceaL04lEw\nnode.id={node_id}\ndirectory.id={'A' * 21}Q\n"
            (node / "meta.properties").write_text(meta)
            state = (
                f'{{"leaderId":{leader_id},"leaderEpoch":{epoch},"votedId":-1,'
                f'"votedDirectoryId":"{"A" * 22}","data_version":1}}'
            )
            (log / "quorum-state").write_text(state)
            (log / "00000000000000000000.log").write_bytes(bytes(size_bytes))
    (plan,) = plan_path(str(root), open_storage=open_storage, captured_at_ms=0)
    numbers = {replica.capture: replica.capture_number for replica in plan.replicas}
    return sorted(numbers, key=lambda name: numbers[name])


@pytest.mark.parametrize(
    ("captures", "order"),
    [
        ({"a": {1: (4, 100)}, "b": {1: (3, 500)}}, ["b", "a"]),  # epochs never go back
        ({"a": {1: (3, 100), 2: (3, 90)}, "b": {1: (3, 100), 2: (2, 90)}}, ["b", "a"]),
        ({"a": dict.fromkeys((1, 2, 3), (3, 200)), "b": dict.fromkeys((1, 2, 3), (3, 100))}, ["b", "a"]),
        # A crash took what the leader had not synced: a majority stands where it stood, and the names tell.
        ({"a": {1: (3, 160), 2: (3, 100), 3: (3, 100)}, "b": dict.fromkeys((1, 2, 3), (3, 100))}, ["a", "b"]),
        # An observer lost much, two others never wrote: those that have a log have grown.
        (
            {
                "b": {1: (3, 300), 2: (3, 310), 3: (3, 320), 101: (3, 330), 102: (3, 0), 103: (3, 0)},
                "a": {1: (3, 500), 2: (3, 500), 3: (3, 500), 101: (3, 200), 102: (3, 0), 103: (3, 0)},
            },
            ["b", "a"],
        ),
        ({"10": {1: (3, 100)}, "9": {1: (3, 100)}}, ["9", "10"]),
    ],
)  # fmt: skip
def test_captures_are_put_in_time(tmp_path: Path, captures: dict[str, Disks], order: list[str]) -> None:
    assert order_of(tmp_path, captures) == order


def test_a_leaders_growing_log_outweighs_observers_that_lost_their_tails(tmp_path: Path) -> None:
    early = {1: (3, 300), 101: (3, 290), 102: (3, 280)}
    late = {1: (3, 500), 101: (3, 100), 102: (3, 90)}
    assert order_of(tmp_path, {"b": early, "a": late}, leader_id=1) == ["b", "a"]


def order_of_nodes(root: Path) -> list[str]:
    (plan,) = plan_path(str(root), open_storage=open_storage, captured_at_ms=0)
    numbers = {replica.capture: replica.capture_number for replica in plan.replicas}
    return sorted(numbers, key=lambda name: numbers[name])


def log_from(timestamp_ms: int, batches: int) -> bytes:
    log = Log(timestamp_ms=timestamp_ms)
    for _ in range(batches):
        log.noop()
    return b"".join(log.batches)


def test_a_log_that_has_begun_again_is_of_the_later_capture(tmp_path: Path) -> None:
    """One disk was wiped and went back in epoch, another went on: the wiped one's first record is a newer one."""
    for name, first, second, begun_ms, batches in (("b", 3, 1, 1_000, 9), ("a", 1, 3, 90_000, 2)):
        write_node(tmp_path / name, 1, log_from(begun_ms, batches), state=QuorumState(1, -1, first, -1, "A" * 22))
        write_node(tmp_path / name, 2, log_from(1_000, 9), state=QuorumState(1, -1, second, -1, "A" * 22))
    assert order_of_nodes(tmp_path) == ["b", "a"]


def test_a_lost_quorum_state_does_not_outweigh_logs_that_have_grown(tmp_path: Path) -> None:
    for name, batches in (("b", 3), ("a", 7)):
        for node_id in (1, 2, 3):
            write_node(tmp_path / name, node_id, log_from(1_000, batches), state=QuorumState(1, -1, 1, -1, "A" * 22))
    (tmp_path / "a" / "node-3" / "__cluster_metadata-0" / "quorum-state").unlink()
    assert order_of_nodes(tmp_path) == ["b", "a"]
