"""Zeros after a log, of every length up to 64 KiB: ZERO_TAIL where the last batch ends, and not a row of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft_audit.capture.continuity import LogState
from kraft_audit.capture.plan import FilePlan
from kraft_audit.capture.scanner import DamageLog, FileTally, Scanner, ScanSettings
from kraft_codec.errors import Reason
from kraft_codec.file_names import FileKind, segment_name
from kraft_codec.storage.opener import open_storage
from kraft_codec.storage.random_access import Storage

ZERO_BYTES = 64 << 10
CHUNK_BYTES = 4 << 20


@pytest.mark.parametrize("step", [997, pytest.param(1, marks=pytest.mark.ci)])
def test_zeros_of_every_length_after_a_log(tmp_path: Path, usual_log: Any, step: int) -> None:
    """One file, read as far as each plan says it went."""
    content, batch_count = usual_log.content, len(usual_log.batches)
    (tmp_path / segment_name(0)).write_bytes(content + bytes(ZERO_BYTES))
    lengths = range(1, ZERO_BYTES + 1, step)
    with open_storage(tmp_path) as storage:
        for zeros in lengths:
            reported, tally = scanned(storage, len(content) + zeros)
            assert reported == [(Reason.ZERO_TAIL, len(content), zeros)]
            assert (tally.batch_count, tally.bytes_decoded, tally.bytes_unread) == (batch_count, len(content), zeros)


def scanned(storage: Storage, size_bytes: int) -> tuple[list[tuple[Reason, int, int]], FileTally]:
    """(reason, position, length) of each damage reported for a log of that size, and the file's tally."""
    damage, tally = DamageLog(), FileTally(FilePlan(segment_name(0), FileKind.SEGMENT, 0, None, size_bytes, 0))
    scanner = Scanner(storage, damage, ScanSettings(CHUNK_BYTES, lambda _: ""), LogState(0))
    assert sum(len(chunk) for chunk in scanner.scan(segment_name(0), tally)) == tally.batch_count
    return [(row.reason, row.position, row.length_bytes) for row in damage.drain()], tally
