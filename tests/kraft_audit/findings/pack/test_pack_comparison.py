"""Two packs of one cluster: history rewritten between them is named, on all disks alike and under a forged CRC."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft_audit.commands.cli import run_command
from tests.builders.forged_batches import SEGMENT, altered, forged, pack_disks, renewed

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def disks(small_corpus: Path, tmp_path: Path) -> Path:
    """Four disks of a cluster, later."""
    return Path(shutil.copytree(small_corpus / "divergence" / "12-after-truncation", tmp_path / "disks"))


@pytest.fixture
def earlier(small_corpus: Path, tmp_path: Path) -> Path:
    """A pack of the same disks before: its last block ends within one of a pack that is made later."""
    out = tmp_path / "earlier.zip"
    assert pack_disks(small_corpus / "divergence" / "10-uncommitted-suffix-live", out) == 0
    return out


def altered_alike(disks: Path, change: Callable[[bytes], bytes]) -> int:
    """Changes one committed batch on every disk; its offset."""
    (offset,) = {altered(segment, change) for segment in sorted(disks.glob(f"*/{SEGMENT}"))}
    return offset


def test_a_log_that_grew_is_as_it_was(disks: Path, earlier: Path, tmp_path: Path, capsys: Printed) -> None:
    capsys.readouterr()
    assert pack_disks(disks, tmp_path / "later.zip", "--before", str(earlier)) == 0
    assert run_command(["evidence", "--verify", str(tmp_path / "later.zip"), "--before", str(earlier)]) == 0
    printed = capsys.readouterr()
    assert printed.out.count(f"1 block of committed batches as in {earlier}, to offset ") == 2
    assert printed.err == ""


@pytest.mark.parametrize(("change", "says"), [(forged, "other bytes than before, under the same CRCs"),
                                              (renewed, "other committed batches than before")])  # fmt: skip
def test_a_batch_altered_on_all_disks_alike_is_named(
    disks: Path, earlier: Path, tmp_path: Path, capsys: Printed, change: Callable[[bytes], bytes], says: str
) -> None:
    later = tmp_path / "later.zip"
    offset = altered_alike(disks, change)
    capsys.readouterr()
    assert pack_disks(disks, later, "--before", str(earlier)) == 1
    printed = capsys.readouterr().err
    for node in (1, 2, 3):
        assert f"node {node} has {says}" in printed
    assert 0 < offset < int(printed.partition("–")[2].partition(":")[0])
    with zipfile.ZipFile(later) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith("/differences.jsonl")]
        assert opened.read(name) == b"", "the disks agree with each other"
    assert run_command(["evidence", "--verify", str(later)]) == 0, "and the pack with itself"
    assert run_command(["evidence", "--verify", str(later), "--before", str(earlier)]) == 1
    assert says in capsys.readouterr().err


def test_one_forged_disk_is_named_alone(disks: Path, earlier: Path, tmp_path: Path, capsys: Printed) -> None:
    altered(disks / "node-3" / SEGMENT, forged)
    capsys.readouterr()
    assert pack_disks(disks, tmp_path / "later.zip", "--before", str(earlier)) == 1
    printed = capsys.readouterr().err
    assert "node 3 has other bytes than before" in printed
    assert "node 1 has" not in printed


def test_a_disk_that_was_replaced_may_hold_what_any_disk_held(disks: Path, earlier: Path, tmp_path: Path) -> None:
    properties = disks / "node-3" / "meta.properties"
    properties.write_text(properties.read_text().replace("DIVnode3DIVnode3DIVnMw", "DIVnode3DIVnode3DIVnNg"))
    assert pack_disks(disks, tmp_path / "same.zip", "--before", str(earlier)) == 0
    altered(disks / "node-3" / SEGMENT, forged)
    assert pack_disks(disks, tmp_path / "other.zip", "--before", str(earlier)) == 1


def test_a_pack_that_cannot_be_compared_is_not_said_to_be_as_before(
    disks: Path, earlier: Path, samples: Path, tmp_path: Path, capsys: Printed
) -> None:
    later = tmp_path / "later.zip"
    assert pack_disks(disks, later) == 0
    assert run_command(["evidence", "--verify", str(later), "--before", str(earlier)]) == 4
    assert "were not compared" in capsys.readouterr().err
    assert pack_disks(samples / "elr-29-stopped.tgz", tmp_path / "others.zip", "--before", str(earlier)) == 4
    broken = tmp_path / "broken.zip"
    with zipfile.ZipFile(earlier) as source, zipfile.ZipFile(broken, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name) + b" " * name.endswith("chain.jsonl"))
    assert run_command(["evidence", "--verify", str(later), "--before", str(broken)]) == 3
    assert run_command(["evidence", "--verify", str(later), "--before", str(tmp_path / "gone.zip")]) == 3


def test_packs_of_three_times_share_their_blocks(disks: Path, earlier: Path, tmp_path: Path) -> None:
    """The second has the blocks of the first, and the third those of the second, so that it has those of the first."""
    second, third = tmp_path / "second.zip", tmp_path / "third.zip"
    assert pack_disks(disks, second, "--before", str(earlier)) == 0
    assert pack_disks(disks, third, "--before", str(second)) == 0
    assert run_command(["evidence", "--verify", str(third), "--before", str(earlier)]) == 0
    with zipfile.ZipFile(third) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith("/chain.jsonl")]
        rows = [json.loads(line) for line in opened.read(name).splitlines()]
    ends = {row["to_offset"]: row["identity_chain"] is not None for row in rows}
    assert sorted(ends.values()) == [False, True], "the block of the first pack is in no chain"
