"""A log that was set aside is compared with the canonical one all the same: if the copy is the disk, it counts."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from kraft_audit import open as open_captures
from kraft_audit.rules.rule_model import Finding, Status
from kraft_codec.records.batch import crc32c
from kraft_engine.scenarios.scenario import load
from tests.builders.lies import EPOCH_AT
from tests.builders.live_log import whole_batches

pytestmark = pytest.mark.slow
LOG = "__cluster_metadata-0/00000000000000000000.log"
CRC_AT = 17
COVERED_FROM = 21


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy")
    load()["healthy"].play(1, folder)
    return next(folder.glob("*/"))


def undecided(capture: Path) -> dict[str, Finding]:
    with open_captures(str(capture)) as (cluster,):
        found = cluster.check(only=["KQ001", "KQ022"])
    return {each.rule: each for each in found if each.status is Status.UNDECIDED}


def with_epoch(capture: Path, node: str, number: int, epoch: int) -> tuple[int, int]:
    """Writes another epoch into a batch, under no CRC; the offsets [from, to) of the batch."""
    path = capture / node / LOG
    batches = list(whole_batches(path.read_bytes()))
    data = bytearray(b"".join(batch.data for batch in batches))
    at = sum(len(batch.data) for batch in batches[: number % len(batches)])
    struct.pack_into(">i", data, at + EPOCH_AT, epoch)
    path.write_bytes(data)
    return batches[number].base_offset, batches[number].end_offset


def test_a_batch_of_another_epoch_is_a_suffix_if_the_copy_is_the_disk(healthy: Path, tmp_path: Path) -> None:
    capture = shutil.copytree(healthy, tmp_path / "capture")
    first, end = with_epoch(capture, "node-1", -1, 3)
    found = undecided(capture)
    assert found.keys() == {"KQ001"}
    finding = found["KQ001"]
    assert (finding.subject, finding.from_offset, finding.epoch) == ("node 1", first, 3)
    where = f"offset {first}" if end == first + 1 else f"offsets {first}–{end - 1}"
    assert (
        f"if this copy is the disk, it holds {where} (epoch 3), which are not in the canonical log" in finding.summary
    )


def test_other_bytes_are_an_altered_batch_if_the_copy_is_the_disk(healthy: Path, tmp_path: Path) -> None:
    """The last batch has another epoch, so the log is set aside; the one before it has other bytes and a valid CRC."""
    capture = shutil.copytree(healthy, tmp_path / "capture")
    with_epoch(capture, "node-1", -1, 3)
    path = capture / "node-1" / LOG
    batches = list(whole_batches(path.read_bytes()))
    altered = bytearray(batches[-2].data)
    altered[-1] ^= 1
    struct.pack_into(">I", altered, CRC_AT, crc32c(bytes(altered[COVERED_FROM:])))
    path.write_bytes(b"".join([*(batch.data for batch in batches[:-2]), bytes(altered), batches[-1].data]))
    found = undecided(capture)
    assert found.keys() == {"KQ001", "KQ022"}
    assert found["KQ022"].from_offset == batches[-2].base_offset
    assert "if this copy is the disk, it holds other bytes at" in found["KQ022"].summary


def test_a_log_that_is_evidence_has_no_such_case(healthy: Path) -> None:
    assert undecided(healthy) == {}
