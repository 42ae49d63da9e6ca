"""The batches of a run of `log_runs`, and the offsets of batches, beside plain Python over single batches."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kraft_audit.rules.columns.log_runs import BatchSpans

Batch = tuple[int, int, int]
"""(first offset, last offset, epoch)."""


def some_batches(chance: random.Random) -> list[Batch]:
    """Batches of two logs that may part, and may be missing in between."""
    batches = []
    for epoch in (1, 2):
        offset = chance.randrange(5)
        while offset < 40:
            last = offset + chance.randrange(3)
            if chance.random() < 0.8:
                batches.append((offset, last, epoch + (offset > 20)))
            offset = last + 1
    chance.shuffle(batches)
    return batches


def spans_of(batches: list[Batch]) -> BatchSpans:
    base, last, epoch = np.array(batches, np.int64).reshape(-1, 3).T
    return BatchSpans.of_columns({"base_offset": base, "last_offset": last, "leader_epoch": epoch})


@pytest.mark.parametrize("seed", range(50))
def test_rows_of_a_run_are_the_batches_within_it(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  # not a secret
    batches = some_batches(chance)
    spans = spans_of(batches)
    for _ in range(10):
        start, end, epoch = chance.randrange(40), chance.randrange(45), chance.randrange(1, 4)
        run = {"from_offset": start, "to_offset": end, "leader_epoch": epoch}
        expected = [row for row, (base, last, of) in enumerate(batches) if start <= base and last < end and of == epoch]
        assert spans.rows_of(run).tolist() == expected


@pytest.mark.parametrize("seed", range(50))
def test_offsets_of_batches_are_joined(seed: int) -> None:
    batches = [each for each in some_batches(random.Random(seed)) if each[2] == 2]  # noqa: S311  # not a secret
    spans = spans_of(batches)
    found = spans.offsets_of(np.arange(len(batches)))
    held = {offset for base, last, _ in batches for offset in range(base, last + 1)}
    assert {offset for start, end in found for offset in range(start, end)} == held
    if len(held) == sum(last + 1 - base for base, last, _ in batches):
        assert all(end < start for (_, end), (start, _) in pairwise(found))


def test_without_batches_there_are_no_offsets() -> None:
    spans = spans_of([])
    assert spans.first_offset == 0
    assert spans.offsets_of(spans.rows_of({"from_offset": 0, "to_offset": 9, "leader_epoch": 1})) == []


def test_what_is_no_batch_of_a_log_has_no_offsets() -> None:
    rows: list[dict[str, Any]] = [
        {"source": "log", "valid": True, "status": "present", "base_offset": 5},
        {"source": "00000000000000000004-0000000001", "valid": True, "status": "present", "base_offset": 1},
        {"source": "log", "valid": False, "status": "present", "base_offset": 2},
        {"source": "log", "valid": True, "status": "truncated", "base_offset": 3},
    ]
    table = pa.Table.from_pylist([{**row, "last_offset": row["base_offset"], "leader_epoch": 1} for row in rows])
    spans = BatchSpans.of(table)
    assert spans.first_offset == 5
    assert spans.rows_of({"from_offset": 0, "to_offset": 9, "leader_epoch": 1}).tolist() == [0]
