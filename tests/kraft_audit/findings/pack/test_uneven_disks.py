"""An earlier pack whose disks ended at different offsets: everything that it proves is compared, or said not to be."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kraft_audit.commands.cli import run_command
from kraft_engine.kraft_cluster import KraftCluster
from tests.builders.forged_batches import SEGMENT, batches_of, forged, pack_disks, renewed

Printed = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three controllers: `uneven` while node 3 is cut off, `even` when it has caught up."""
    cluster = KraftCluster.started(tmp_path_factory.mktemp("captures"), seed=7, brokers=(11,))
    lagging = next(node for node in (3, 2) if node != cluster.leader)
    cluster.topic("before", replicas=[[11]])
    cluster.settle()
    cluster.cut(lagging)
    cluster.topic("meanwhile", replicas=[[11]])
    cluster.topic("later", replicas=[[11]])
    cluster.run_ms(2_000)
    uneven = cluster.capture("uneven")
    cluster.heal()
    cluster.settle()
    cluster.topic("last", replicas=[[11]])
    cluster.settle()
    cluster.capture("even")
    for folder in (uneven, uneven.with_name("even")):
        shutil.rmtree(folder / "node-11")
        (folder / f"node-{lagging}").rename(folder / "lagging")
    return uneven.parent


@pytest.fixture
def earlier(captures: Path, tmp_path: Path) -> Path:
    out = tmp_path / "earlier.zip"
    assert pack_disks(captures / "uneven", out) == 0
    return out


@pytest.fixture
def later(captures: Path, tmp_path: Path) -> Path:
    """Disks that a test may change."""
    return Path(shutil.copytree(captures / "even", tmp_path / "later"))


def _ends(captures: Path) -> tuple[int, int]:
    """Where the shortest and the longest disk of the earlier pack end."""
    ends = {batches_of(segment)[-1][0].last_offset + 1 for segment in _segments(captures / "uneven")}
    assert len(ends) > 1
    return min(ends), max(ends)


def _segments(disks: Path) -> list[Path]:
    return sorted(disks.glob(f"*/{SEGMENT}"))


def test_everything_up_to_the_longest_disk_is_compared(
    captures: Path, earlier: Path, later: Path, tmp_path: Path, capsys: Printed
) -> None:
    committed = _committed_end(captures / "uneven")
    assert _ends(captures)[0] < committed
    out = tmp_path / "later.zip"
    capsys.readouterr()
    assert pack_disks(later, out, "--before", str(earlier)) == 0
    assert run_command(["evidence", "--verify", str(out), "--before", str(earlier)]) == 0
    printed = capsys.readouterr()
    assert printed.out.count(f"of committed batches as in {earlier}, to offset {committed - 1}") == 2
    assert printed.err == ""


@pytest.mark.parametrize("change", [forged, renewed])
def test_a_batch_that_only_the_longer_disks_had_is_compared(
    captures: Path, earlier: Path, later: Path, tmp_path: Path, capsys: Printed, change: object
) -> None:
    shortest = _ends(captures)[0]
    for segment in _segments(later):
        _alter_at(segment, shortest, change)
    assert pack_disks(later, tmp_path / "later.zip", "--before", str(earlier)) == 1
    assert "than before" in capsys.readouterr().err


def test_records_that_every_disk_has_lost_are_named(
    captures: Path, earlier: Path, later: Path, tmp_path: Path, capsys: Printed
) -> None:
    """All disks end where the shortest one ended: they agree with each other, and lack what the others had."""
    shortest = _ends(captures)[0]
    for segment in _segments(later):
        _cut_at(segment, shortest)
    out = tmp_path / "later.zip"
    capsys.readouterr()
    assert pack_disks(later, out, "--before", str(earlier)) == 1
    printed = capsys.readouterr().err
    committed = _committed_end(captures / "uneven")
    assert printed.count(f"offsets {shortest}–{committed - 1}: node ") == 2
    assert "lacks committed batches that it held before" in printed
    assert run_command(["evidence", "--verify", str(out), "--before", str(earlier)]) == 1


def test_one_disk_that_lost_its_end_is_named_alone(
    captures: Path, earlier: Path, later: Path, tmp_path: Path, capsys: Printed
) -> None:
    shortest = _ends(captures)[0]
    segment = next(each for each in _segments(later) if "lagging" not in str(each))
    _cut_at(segment, shortest)
    assert pack_disks(later, tmp_path / "later.zip", "--before", str(earlier)) == 1
    printed = capsys.readouterr().err
    assert printed.count("lacks committed batches that it held before") == 1
    assert f"node {segment.parents[1].name.removeprefix('node-')} lacks" in printed


def test_an_end_that_is_damaged_is_not_said_to_be_missing(
    captures: Path, earlier: Path, later: Path, tmp_path: Path, capsys: Printed
) -> None:
    segment = next(each for each in _segments(later) if "lagging" not in str(each))
    size = segment.stat().st_size
    _cut_at(segment, _ends(captures)[0])
    with segment.open("ab") as opened:
        opened.write(b"\x55" * (size - segment.stat().st_size))
    assert pack_disks(later, tmp_path / "later.zip", "--before", str(earlier)) == 1
    assert "has damaged bytes in place of committed batches that it held before" in capsys.readouterr().err


def test_what_no_captured_disk_can_hold_is_undecided(
    earlier: Path, captures: Path, later: Path, tmp_path: Path, capsys: Printed
) -> None:
    """The lagging disk alone, as it was: it lost nothing, and says nothing of what the others held."""
    alone = tmp_path / "alone"
    shutil.copytree(captures / "uneven" / "lagging", alone / "lagging")
    out = tmp_path / "later.zip"
    capsys.readouterr()
    assert pack_disks(alone, out, "--before", str(earlier)) == 4
    printed = capsys.readouterr()
    committed, shortest = _committed_end(captures / "uneven"), _ends(captures)[0]
    assert f"offsets {shortest}–{committed - 1} were not compared" in printed.err
    assert f"to offset {shortest - 1}" in printed.out
    assert run_command(["evidence", "--verify", str(out), "--before", str(earlier)]) == 4


def test_a_pack_that_was_made_by_itself_compares_what_it_can(
    earlier: Path, later: Path, tmp_path: Path, capsys: Printed
) -> None:
    out = tmp_path / "later.zip"
    assert pack_disks(later, out) == 0
    assert run_command(["evidence", "--verify", str(out), "--before", str(earlier)]) == 4
    assert "were not compared" in capsys.readouterr().err


def test_a_cluster_that_is_missing_is_undecided(
    captures: Path, later: Path, samples: Path, tmp_path: Path, capsys: Printed
) -> None:
    both = tmp_path / "both.zip"
    folder = tmp_path / "two"
    shutil.copytree(captures / "uneven", folder / "uneven")
    shutil.copy(samples / "mini-4.4.0.tgz", folder)
    assert pack_disks(folder, both) == 0
    assert pack_disks(later, tmp_path / "later.zip", "--before", str(both)) == 4
    assert "this pack does not have this cluster" in capsys.readouterr().err


def _committed_end(disks: Path) -> int:
    import kraft_audit

    (cluster,) = kraft_audit.open(str(disks))
    return int(cluster.committed_low)


def _cut_at(segment: Path, offset: int) -> None:
    """Removes all batches from an offset on, as if they had never been written."""
    position = next(header.position for header, _ in batches_of(segment) if header.base_offset >= offset)
    os.truncate(segment, position)


def _alter_at(segment: Path, offset: int, change: object) -> None:
    header, content = next(each for each in batches_of(segment) if each[0].base_offset >= offset)
    whole = segment.read_bytes()
    assert callable(change)
    segment.write_bytes(whole[: header.position] + change(content) + whole[header.position + len(content) :])
