"""Every bit of a reference log flipped, every length it can be cut at: what is detected, and what cannot be.

The audit compares what no checksum covers with the batches around, with the LeaderChange records and with the other
replicas.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kraft_audit.capture.path_plans import plan_path
from kraft_codec import columns
from kraft_codec.kernels.codes import REASONS
from kraft_codec.records.batch import Batch, read_batches
from kraft_codec.records.record import decode_records
from kraft_codec.records.redaction import Redactor
from kraft_codec.schemas import CONTROL_TYPES, METADATA_RECORDS, Dialect
from kraft_codec.storage.opener import open_storage
from tests.builders.readings import table_rows
from tests.fuzz.every_bit import OPEN_TO_THE_CRC, cut_at_every_length, flip_every_bit

LOG = "__cluster_metadata-0/00000000000000000000.log"
TWO_REPLICAS = "divergence/12-after-truncation"
"""Voters that agree, on two epochs, each begun by a LeaderChange."""


@pytest.fixture(scope="module")
def reference_log(small_corpus: Path) -> bytes:
    """At least 64 KiB of every record type and version, control records too: crafted, of real logs, of snapshots."""
    crafted = (small_corpus / "crafted" / "all-records-all-versions" / LOG).read_bytes()
    snapshots = sorted(small_corpus.glob("*/**/*.checkpoint"), key=lambda path: path.stat().st_size)
    real = [small_corpus / name / "node-2" / LOG for name in (TWO_REPLICAS, "mini-4.4.0/03b-controller-unregistered")]
    log = crafted + b"".join(path.read_bytes() for path in (*real, snapshots[-1]))
    while len(log) < 64 << 10:
        log += snapshots[len(log) % len(snapshots)].read_bytes() + crafted
    return log


def test_the_reference_log_holds_all_that_a_log_can(reference_log: bytes) -> None:
    found: dict[bool, set[tuple[int | None, int | None]]] = {False: set(), True: set()}
    for batch in read_batches(reference_log):
        assert isinstance(batch, Batch)
        records = decode_records(reference_log, batch.header)
        found[batch.header.is_control] |= {(record.type_number, record.version) for record in records}
    assert found[True] == {(number, control.version) for number, control in CONTROL_TYPES[Dialect.KIP853].items()}
    assert found[False] == {
        (message.number, version)
        for message in METADATA_RECORDS
        for version in range(message.versions.first, message.versions.last + 1)
    }
    assert len(reference_log) >= 64 << 10


@pytest.mark.ci
def test_every_bit_flip_is_detected_but_for_the_listed_fields(reference_log: bytes) -> None:
    assert flip_every_bit(reference_log) == 8 * len(reference_log) >= 524_288


@pytest.mark.slow
def test_every_length_gives_the_batches_before_the_cut(reference_log: bytes) -> None:
    assert cut_at_every_length(reference_log) == len(reference_log) + 1 > 64 << 10


@pytest.mark.parametrize(
    "batches", [pytest.param("edges", marks=pytest.mark.slow), pytest.param("all", marks=pytest.mark.long)]
)
def test_with_two_replicas_no_flip_goes_unnoticed(small_corpus: Path, tmp_path: Path, batches: str) -> None:
    """Each bit that no CRC covers, and some of the others, flipped on one of two disks: damage or divergence shows.

    The flipped disk has lost its leader-epoch-checkpoint, which would give most of the epochs away by itself.
    """
    for name in ("node-1", "node-2"):
        shutil.copytree(small_corpus / TWO_REPLICAS / name, tmp_path / name)
    log = tmp_path / "node-2" / LOG
    (log.parent / "leader-epoch-checkpoint").unlink()
    log.chmod(0o644)
    sound = log.read_bytes()
    assert not damages(tmp_path)
    assert not divergences(tmp_path)
    whole = columns.index_batches(sound)
    meets = np.flatnonzero(np.diff(whole.leader_epoch)).tolist()
    rows = [0, *meets, *(row + 1 for row in meets), len(whole) - 1] if batches == "edges" else range(len(whole))
    by_finding: Counter[int] = Counter()
    for row in rows:
        start, size = int(whole.position[row]), int(whole.size_bytes[row])
        covered = [bit for bit in range(row % 97, 8 * size, 97) if bit // 8 not in OPEN_TO_THE_CRC]
        for bit in [*(8 * at + bit for at in sorted(OPEN_TO_THE_CRC) for bit in range(8)), *covered]:
            changed = bytearray(sound)
            changed[start + bit // 8] ^= 1 << bit % 8
            log.write_bytes(changed)
            reported = damages(tmp_path)
            if reported:
                # A step of epochs is reported at the flipped batch or at the one after it.
                assert {(node, name) for node, name, _ in reported} == {(2, LOG)}, (row, bit, reported)
                assert reported[0][2] in (start, start + size), (row, bit, reported)
            else:
                by_finding[row] += 1
                assert int(whole.base_offset[row]) in divergences(tmp_path), (row, bit)
    # Nothing but an epoch that could be true: of a batch where epochs begin or end. The last one's may be any higher.
    assert set(by_finding) == {0, *meets, *(row + 1 for row in meets), len(whole) - 1}
    assert all(by_finding[row] == 1 for row in by_finding if row != len(whole) - 1)


def damages(path: Path) -> list[tuple[int, str, int]]:
    """(node, file, position) of each row of `decode_errors`, and of nothing else that the tables hold."""
    return [(row["node_id"], row["file_name"], row["position"]) for row in rows_of(path, "decode_errors")]


def divergences(path: Path) -> set[int]:
    """The offsets from which a replica is said to hold what the canonical log does not, or other bytes."""
    return {
        row["from_offset"]
        for row in rows_of(path, "findings")
        if row["rule"] in ("KQ001", "KQ022") and row["status"] == "raised"
    }


def rows_of(path: Path, table: str) -> list[dict[str, Any]]:
    (plan,) = plan_path(str(path), open_storage=open_storage, captured_at_ms=0)
    reported = table_rows(plan, frozenset({table}), open_storage=open_storage, redactor=Redactor(bytes(32)))
    return [row for _, batch in reported for row in batch.to_pylist()]


def test_every_reason_has_a_name() -> None:
    assert len({str(reason) for reason in REASONS if reason}) == len([reason for reason in REASONS if reason])
