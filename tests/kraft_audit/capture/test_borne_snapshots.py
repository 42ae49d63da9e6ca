"""A snapshot above the log of its own disk, with and without another disk that bears it out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kraft_audit import open as open_captures
from kraft_engine.scenarios.scenario import load
from tests.builders.commands import Command
from tests.builders.live_log import whole_batches

pytestmark = pytest.mark.slow
LOG = "__cluster_metadata-0"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """`healthy`: logs to offset 27 in epoch 1. `snapshots-and-cleaning`: a snapshot of 144, in epoch 1 too."""
    folder = tmp_path_factory.mktemp("played")
    for name in ("healthy", "snapshots-and-cleaning"):
        load()[name].play(1, folder / name)
    return {name: next((folder / name).glob("*/")) for name in ("healthy", "snapshots-and-cleaning")}


def capture_with(played: dict[str, Path], folder: Path, names: dict[int, str]) -> Path:
    """The healthy cluster; `names` are what the other cluster's snapshot is called on some nodes."""
    capture = shutil.copytree(played["healthy"], folder / "capture")
    (snapshot,) = (played["snapshots-and-cleaning"] / "node-2" / LOG).glob("*144-*.checkpoint")
    for node, name in names.items():
        shutil.copy(snapshot, capture / f"node-{node}" / LOG / name)
    return capture


@pytest.mark.parametrize("offset", [144, 1_000_000])
def test_a_snapshot_that_nothing_bears_out_moves_nothing(
    played: dict[str, Path], tmp_path: Path, kraft_audit: Command, offset: int
) -> None:
    capture = capture_with(played, tmp_path, {1: f"{offset:020}-0000000001.checkpoint"})
    ended = kraft_audit("check", capture)
    assert ended.code == 1
    assert "2 of 3 voters readable, node 1 contradicts itself" in ended.out
    said = " ".join(ended.out.split())
    assert f"its log ends at 27, its snapshot at {offset}, and no other disk bears that out" in said
    assert "committed through offset 26" in said
    with open_captures(str(capture)) as (cluster,):
        assert cluster.state().offset == 26
    for question in (("start", "1"), ("wipe", "1"), ("wipe", "2"), ("restart", "3")):
        assert kraft_audit("may-i", *question, capture).code != 0, question


def test_a_second_disk_bears_it_out(played: dict[str, Path], tmp_path: Path) -> None:
    name = f"{144:020}-0000000001.checkpoint"
    capture = capture_with(played, tmp_path, {1: name, 2: name})
    with open_captures(str(capture)) as (cluster,):
        assert cluster.committed_low == 144
        assert {row["doubt"] for row in cluster.table("captures").to_pylist()} == {None}


def test_a_log_bears_it_out_that_holds_its_last_record(played: dict[str, Path], tmp_path: Path) -> None:
    """The log of node 1 was copied early, its snapshot late, and those of the others after that."""
    capture = shutil.copytree(played["snapshots-and-cleaning"], tmp_path / "capture")
    for node in ("node-2", "node-3", "node-11", "node-12", "node-13"):
        (snapshot,) = (capture / node / LOG).glob("*144-*.checkpoint")
        snapshot.unlink()
    (segment,) = (capture / "node-1" / LOG).glob("*135.log")
    segment.write_bytes(next(whole_batches(segment.read_bytes())).data)
    with open_captures(str(capture)) as (cluster,):
        rows = {row["node_id"]: row for row in cluster.table("captures").to_pylist()}
    assert (rows[1]["log_end_offset"] < 144, rows[1]["snapshot_end_offset"]) == (True, 144)
    assert rows[1]["doubt"] is None
