"""The chain of committed batches: another computation gives it too, and an altered disk is named, forged CRC or not."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kraft_audit
from kraft_audit.commands.cli import run_command
from kraft_audit.findings.pack.batch_chain import (
    CHAIN_BLOCK_OFFSETS,
    CommittedBatches,
    chain_of_cluster,
    chain_rows,
    committed_batches,
    difference_text,
)
from kraft_audit.lake.settings import FleetSettings
from kraft_codec.records.batch import BatchHeader
from tests.builders.forged_batches import SEGMENT, altered, batches_of, broken, forged, renewed

Row = dict[str, Any]


def _chains(folder: Path) -> tuple[list[Row], list[Row]]:
    (cluster,) = kraft_audit.open(str(folder))
    return chain_of_cluster(cluster.history, cluster.judged_reading.plan, cluster.open_storage)


def _block(batches: list[tuple[BatchHeader, bytes]], *, identity: bool) -> str:
    block = hashlib.sha256()
    for header, content in batches:
        key = struct.pack(">qqiI", header.base_offset, header.last_offset, header.leader_epoch, header.crc)
        block.update(key if identity else hashlib.sha256(content).digest())
    return block.hexdigest()


def _linked(blocks: list[str]) -> str:
    value = bytes(32)
    for block in blocks:
        value = hashlib.sha256(value + bytes.fromhex(block)).digest()
    return value.hex()


@pytest.fixture
def disks(small_corpus: Path, tmp_path: Path) -> Path:
    """Four disks of one cluster, read together."""
    return Path(shutil.copytree(small_corpus / "divergence" / "12-after-truncation", tmp_path / "disks"))


def test_the_chains_are_those_that_another_computation_gives(disks: Path) -> None:
    rows, different = _chains(disks)
    assert different == []
    of_cluster, *of_disks = rows
    assert len(of_disks) == 4
    (cluster,) = kraft_audit.open(str(disks))
    low = cluster.committed_low
    for row in of_disks:
        own = [pair for pair in batches_of(disks / row["path"] / SEGMENT) if pair[0].last_offset < low]
        assert row["batch_count"] == len(own) > 20
        assert row["identity_block"] == _block(own, identity=True)
        assert row["bytes_block"] == _block(own, identity=False)
        assert row["identity_chain"] == _linked([row["identity_block"]])
        assert row["bytes_chain"] == _linked([row["bytes_block"]])
        assert row["to_offset"] == own[-1][0].last_offset + 1
    assert of_cluster["identity_chain"] in {row["identity_chain"] for row in of_disks}
    assert of_cluster["bytes_chain"] is None


@pytest.mark.parametrize("change", [renewed, forged, broken])
def test_an_altered_batch_names_its_disk(disks: Path, change: Callable[[bytes], bytes]) -> None:
    before, _ = _chains(disks)
    offset = altered(disks / "node-3" / SEGMENT, change)
    rows, different = _chains(disks)
    assert [(row["node_id"], row["base_offset"]) for row in different] == [(3, offset)]
    assert not different[0]["is_tied"]
    assert (different[0]["crc"] == different[0]["found_crc"]) == (change is not renewed)
    assert f"node 3: the committed batch at offset {offset}" in difference_text(different[0])
    changed = {row["node_id"] for row in rows if row not in before}
    assert changed == {3}


def test_two_disks_that_contradict_each_other_are_both_named(disks: Path) -> None:
    for node in ("node-2", "node-11"):
        shutil.rmtree(disks / node)
    offset = altered(disks / "node-3" / SEGMENT, forged)
    _, different = _chains(disks)
    assert {(row["node_id"], row["base_offset"], row["is_tied"]) for row in different} == {
        (1, offset, True),
        (3, offset, True),
    }
    assert all(difference_text(row).endswith("the disks do not agree") for row in different)


def _synthetic(starts: range, width: int) -> CommittedBatches:
    base = np.array(starts, np.int64)
    return CommittedBatches(base, base + width - 1, np.full(len(base), 3), base % 97)


def test_logs_that_begin_elsewhere_share_their_blocks() -> None:
    whole, later = (_synthetic(range(start, 5_005, 7), 7) for start in (0, 1_400))
    of_whole, of_later = list(chain_rows(whole)), list(chain_rows(later))
    assert sum(row["batch_count"] for row in of_whole) == len(whole)
    assert all(
        row["from_offset"] // CHAIN_BLOCK_OFFSETS == (row["to_offset"] - 7) // CHAIN_BLOCK_OFFSETS for row in of_whole
    )
    assert all(first["to_offset"] == second["from_offset"] for first, second in pairwise(of_whole))
    for number, row in enumerate(of_whole):
        assert row["identity_chain"] == _linked([each["identity_block"] for each in of_whole[: number + 1]])
    blocks = {(row["from_offset"], row["to_offset"]): row["identity_block"] for row in of_whole}
    shared = [row for row in of_later if (row["from_offset"], row["to_offset"]) in blocks]
    assert shared == of_later[1:], "the first one begins within a block"
    for row in shared:
        assert blocks[row["from_offset"], row["to_offset"]] == row["identity_block"]
    assert {row["chain_from_offset"] for row in of_later} == {1_400}


def test_a_chain_begins_again_after_a_gap() -> None:
    log = _synthetic(range(0, 3_003, 7), 7)
    columns = (log.base_offset, log.last_offset, log.leader_epoch, log.crc)
    is_left = np.arange(len(log)) != 200
    rows = list(chain_rows(CommittedBatches(*(column[is_left] for column in columns))))
    assert {row["chain_from_offset"] for row in rows} == {0, 1_407}
    prefix = list(chain_rows(CommittedBatches(*(column[:200] for column in columns))))
    assert rows[: len(prefix)] == prefix


def test_nothing_is_chained_that_is_not_proven(disks: Path) -> None:
    for node in ("node-1", "node-2", "node-11"):
        shutil.rmtree(disks / node)
    (cluster,) = kraft_audit.open(str(disks))
    low = cluster.committed_low
    assert all(last < low for last in committed_batches(cluster.history).last_offset.tolist())


@pytest.mark.slow
def test_a_lake_shows_that_history_was_rewritten(
    disks: Path, make_fleet: Callable[..., FleetSettings], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every disk is altered alike, so that they agree: only the lake, or a pack of before, knows better."""
    fleet = make_fleet({"a": [disks]})
    assert run_command(["run", str(tmp_path / "fleet.yaml"), "--engine", "local"]) == 0
    before, after = tmp_path / "before.zip", tmp_path / "after.zip"
    assert run_command(["evidence", str(disks), "--out", str(before)]) == 0
    assert run_command(["evidence", "--verify", str(before), "--lake", fleet.lake]) == 0
    capsys.readouterr()
    for node in ("node-1", "node-2", "node-3", "node-11"):
        altered(disks / node / SEGMENT, renewed)
    assert run_command(["evidence", str(disks), "--out", str(after)]) == 0
    with zipfile.ZipFile(after) as zipped:
        (different,) = [zipped.read(name) for name in zipped.namelist() if name.endswith("/differences.jsonl")]
        (chain,) = [zipped.read(name) for name in zipped.namelist() if name.endswith("/chain.jsonl")]
    assert different == b""
    assert len({json.loads(line)["identity_chain"] for line in chain.splitlines()}) == 1
    capsys.readouterr()
    assert run_command(["evidence", "--verify", str(after)]) == 0
    assert run_command(["evidence", "--verify", str(after), "--lake", fleet.lake]) == 1
    said = capsys.readouterr().err
    for whose in ("the pack", "node 1", "node 2", "node 3", "node 11"):
        assert f"{whose} has other committed batches than the lake read" in said
