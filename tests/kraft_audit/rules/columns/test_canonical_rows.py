"""Batches of several disks get one number exactly where they are the same batch."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.rules.columns.canonical_rows import _batch_numbers
from kraft_audit.tables.bronze import BATCH_KEY

BATCH = st.tuples(st.integers(1, 3), st.integers(0, 1), st.integers(0, 1))
"""How many records, and what else makes a batch another one: epoch and CRC."""


@st.composite
def disks(draw: st.DrawFn) -> list[list[tuple[int, ...]]]:
    """Logs that are stretches of one log, or part from it, or repeat themselves."""
    log, offset = [], 0
    for count, epoch, crc in draw(st.lists(BATCH, min_size=1, max_size=8)):
        log.append((offset, offset + count - 1, epoch, crc))
        offset += count
    found = []
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(log) - 1))
        own = log[start : draw(st.integers(start + 1, len(log)))]
        if draw(st.integers(0, 3)) == 0:
            place = draw(st.integers(0, len(own) - 1))
            own[place] = (*own[place][:3], own[place][3] + 5)
        found.append(own * draw(st.sampled_from([1, 1, 1, 2])))
    return found


@given(disks())
def test_equal_numbers_are_equal_batches(logs: list[list[tuple[int, ...]]]) -> None:
    rows = [(number, batch) for number, log in enumerate(logs) for batch in log]
    values = np.array([batch for _, batch in rows], np.int64)
    columns = {name: np.ascontiguousarray(values[:, place]) for place, name in enumerate(BATCH_KEY)}
    numbers = _batch_numbers(columns)
    assert numbers.min() >= 0
    assert numbers.max() <= len(rows)
    by_number: dict[int, set[tuple[int, ...]]] = {}
    for number, (_, batch) in zip(numbers.tolist(), rows, strict=True):
        by_number.setdefault(number, set()).add(batch)
    assert all(len(batches) == 1 for batches in by_number.values())
    assert len(by_number) == len({batch for _, batch in rows})
