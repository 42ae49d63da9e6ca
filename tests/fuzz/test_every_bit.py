"""Every bit of a reference log flipped, every length it can be cut at: what is detected, and what cannot be.

A batch's CRC covers its bytes from 21 on. Of what stands before, base offset and leader epoch can change without any
checksum noticing (kafka-dump-log prints `isvalid: true`). The audit compares them with the batches around, with the
LeaderChange records and with the other replicas.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kraft_audit.replay.analyze import analyze
from kraft_audit.replay.planning import plan_path
from kraft_codec import columns
from kraft_codec.kernels.codes import REASONS
from kraft_codec.redaction import Redactor
from kraft_codec.storage import open_storage

OPEN_TO_THE_CRC = {*range(8), *range(12, 16)}
"""Bytes of a batch's header that no checksum of Kafka's covers: base offset, leader epoch."""
LOG = "__cluster_metadata-0/00000000000000000000.log"


@pytest.fixture(scope="module")
def reference_log(samples: Path) -> bytes:
    """At least 64 KiB of every record type and version, control records too: the crafted log and a real one."""
    crafted = (samples / "crafted" / "all-records-all-versions" / LOG).read_bytes()
    snapshots = sorted(samples.glob("*/**/*.checkpoint"), key=lambda path: path.stat().st_size)
    log = crafted + snapshots[-1].read_bytes()
    while len(log) < 64 << 10:
        log += snapshots[len(log) % len(snapshots)].read_bytes() + crafted
    return log


def flips(log: bytes) -> Iterator[tuple[int, np.ndarray]]:
    """(position, the log with one bit flipped), for every bit; the log is the same memory each time."""
    changed = np.frombuffer(bytearray(log), np.uint8)
    for position in range(len(log)):
        for bit in range(8):
            changed[position] ^= 1 << bit
            yield position, changed
            changed[position] ^= 1 << bit


@pytest.mark.ci
def test_every_bit_flip_is_detected_but_for_the_listed_fields(reference_log: bytes) -> None:
    whole = columns.index_batches(reference_log)
    assert whole.stop is None
    assert not whole.status.any()
    starts, ends = whole.position, whole.position + whole.size_bytes
    undetected: Counter[int] = Counter()
    flipped = 0
    for position, changed in flips(reference_log):
        flipped += 1
        row = int(np.searchsorted(starts, position, side="right")) - 1
        found = columns.index_batches(changed, int(starts[row]), int(ends[row]))
        if found.stop is None and len(found) == 1 and found.status[0] == 0:
            undetected[position - int(starts[row])] += 1
    assert flipped == 8 * len(reference_log) >= 524_288
    assert set(undetected) == OPEN_TO_THE_CRC
    assert set(undetected.values()) == {8 * len(whole)}, "each bit of each of those bytes, and no other"


@pytest.mark.slow
def test_every_length_gives_the_batches_before_the_cut(reference_log: bytes) -> None:
    whole = columns.index_batches(reference_log)
    ends = (whole.position + whole.size_bytes).tolist()
    for length in range(len(reference_log) + 1):
        row = int(np.searchsorted(ends, length, side="right"))
        start = int(whole.position[max(row - 1, 0)])
        found = columns.index_batches(reference_log[start:length])
        sound = 0 if row == 0 else 1
        assert len(found) == sound, length
        tail = length - (ends[row - 1] if row else 0)
        if tail == 0:
            assert found.stop is None, length
            continue
        assert found.stop is not None, length
        assert found.stop.position + start == length - tail, length
        assert found.stop.length_bytes == tail
        content = reference_log[length - tail : length]
        assert str(found.stop.reason) == ("ZERO_TAIL" if not any(content) else "TORN_TAIL"), length


@pytest.mark.slow
def test_with_two_replicas_no_flip_goes_unnoticed(samples: Path, tmp_path: Path) -> None:
    """The bytes that no CRC covers, flipped on one of two disks: the tables say so each time."""
    source = next(path for path in sorted((samples / "dynamic-quorum").rglob(LOG)))
    node, other = tmp_path / "node-1", tmp_path / "node-2"
    shutil.copytree(source.parents[1], node, symlinks=False)
    shutil.copytree(source.parents[1], other, symlinks=False)
    properties = other / "meta.properties"
    if properties.exists():
        properties.chmod(0o644)
        properties.write_text(properties.read_text().replace("node.id=", "node.id=9").replace("directory.id=", "#"))
    log = other / LOG
    sound = log.read_bytes()
    log.chmod(0o644)
    before = told(tmp_path)
    batches = columns.index_batches(sound)
    rows = sorted({0, 1, len(batches) // 2, len(batches) - 1})
    for row in rows:
        for at in sorted(OPEN_TO_THE_CRC):
            for bit in (0, 3, 7):
                changed = bytearray(sound)
                changed[int(batches.position[row]) + at] ^= 1 << bit
                log.write_bytes(bytes(changed))
                assert told(tmp_path) != before, (row, at, bit)


def told(path: Path) -> tuple[object, ...]:
    """What the tables hold of damage and of who holds which batch."""
    with open_storage(str(path)) as storage:
        plans = plan_path(str(path), open_storage=lambda _: _Kept(storage), captured_at_ms=0)
        rows: Counter[tuple[object, ...]] = Counter()
        for plan in plans:
            wanted = frozenset({"batches", "decode_errors"})
            for name, batch in analyze(
                plan, wanted, open_storage=lambda _: _Kept(storage), redactor=Redactor(bytes(32))
            ):
                for row in batch.to_pylist():
                    if name == "decode_errors":
                        rows["error", row["file_name"], row["position"], row["reason"]] += 1
                    else:
                        rows["batch", row["base_offset"], row["leader_epoch"], row["crc"], row["status"]] += 1
    return tuple(sorted(map(repr, rows.items())))


class _Kept:
    """A storage that stays open for as long as the test reads it."""

    def __init__(self, storage: object) -> None:
        self.storage = storage

    def __enter__(self) -> object:
        return self.storage

    def __exit__(self, *_: object) -> None:
        return None


def test_every_reason_has_a_name() -> None:
    assert len({str(reason) for reason in REASONS if reason}) == len([reason for reason in REASONS if reason])
