"""A batch whose base offset or epoch no checksum covers: its neighbours tell of it, and all of them are read."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

BASE_OFFSET, EPOCH = 0, 12


def with_field(log: Any, number: int, position: int, value: int) -> bytes:
    """The log with one header field of one batch changed; its CRC stays right."""
    changed = [bytearray(batch) for batch in log.batches]
    struct.pack_into(">q" if position == BASE_OFFSET else ">i", changed[number], position, value)
    return b"".join(changed)


def reported(reading: Any, node: Any, folder: Path, content: bytes) -> tuple[list[str], set[int]]:
    """The reasons, and the offsets of the batches that were trusted."""
    node(folder, 1, content)
    tables = reading.of(folder)
    return [row["reason"] for row in tables["decode_errors"]], {
        row["base_offset"] for row in tables["batches"] if row["valid"]
    }


@pytest.mark.parametrize("number", [2, 5, 9])
@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (BASE_OFFSET, 10_000, "GAP"),
        (BASE_OFFSET, 0, "OVERLAP"),
        (BASE_OFFSET, 2**63 - 1, "GAP"),
        (BASE_OFFSET, -5, "BAD_RECORD"),
        (EPOCH, 0, "EPOCH_WENT_BACK"),
        (EPOCH, 9, "EPOCH_WENT_BACK"),
        (EPOCH, 2**31 - 1, "EPOCH_WENT_BACK"),
    ],
)
def test_one_batch_among_right_ones(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, number: int, position: int, value: int, reason: str
) -> None:
    """Only that batch is refused; whatever it claims, the records of the others stand at their offsets."""
    content = with_field(usual_log, number, position, value)
    reasons, offsets = reported(reading, node, tmp_path, content)
    assert reasons == [reason]
    assert offsets == set(range(len(usual_log.batches))) - {number}


@pytest.mark.parametrize(("position", "value"), [(BASE_OFFSET, 10_000), (BASE_OFFSET, 3), (EPOCH, 0)])
def test_the_last_batch_has_no_neighbour_after_it(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, position: int, value: int
) -> None:
    """What the header claims may be true, except that an epoch never goes back: that is reported."""
    reasons, _ = reported(reading, node, tmp_path, with_field(usual_log, len(usual_log.batches) - 1, position, value))
    assert len(reasons) == 1


def test_two_wrong_ones_side_by_side(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    changed = [bytearray(batch) for batch in usual_log.batches]
    for number in (4, 5):
        struct.pack_into(">i", changed[number], EPOCH, 9)
    reasons, offsets = reported(reading, node, tmp_path, b"".join(changed))
    assert "EPOCH_WENT_BACK" in reasons
    assert offsets >= set(range(len(changed))) - {4, 5}
