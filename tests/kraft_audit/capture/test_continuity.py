"""Batches that the kernel calls continuous are judged by their ends alone: the verdict is that of looking at each."""

from __future__ import annotations

import dataclasses
import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.capture.continuity import LogState, Neighbour, check_continuity
from kraft_codec.columns import BatchIndex, index_batches
from kraft_codec.records.batch import write_batch
from tests.builders.damaged_batches import with_right_crcs

OFFSET_MAX = 2**63 - 1
EPOCHS = st.integers(-1, 3)
SOUND = st.tuples(st.sampled_from([0, 1, 9]), st.sampled_from([0, 0, 1]))  # last offset delta, growth of the epoch
FLAWS = st.sampled_from(["crc", "magic", "epoch falls"]) | st.tuples(
    st.sampled_from(["base offset moves", "last offset delta is"]),
    st.sampled_from([-3, -1, 1, 5, 2**31 - 1, -(2**31), OFFSET_MAX, -OFFSET_MAX]),
)
STARTS = st.sampled_from([0, 7, OFFSET_MAX, OFFSET_MAX - 1, OFFSET_MAX - 4])


@st.composite
def logs(draw: st.DrawFn) -> tuple[int, int, list[bytes]]:
    """The offset and epoch that a log starts with, and its batches: up to two of them do not fit, or none."""
    steps = draw(st.lists(SOUND, max_size=8))
    flaws = draw(st.dictionaries(st.integers(0, max(len(steps) - 1, 0)), FLAWS, max_size=2))
    start = next_offset = draw(STARTS)
    first_epoch = epoch = draw(EPOCHS)
    batches = []
    for number, (delta, growth) in enumerate(steps):
        flaw = flaws.get(number)
        name, value = flaw if isinstance(flaw, tuple) else (flaw, 0)
        base = _as_int64(next_offset + (value if name == "base offset moves" else 0))
        delta = max(min(value, 2**31 - 1), -(2**31)) if name == "last offset delta is" else delta
        epoch += -1 if name == "epoch falls" else growth
        batches.append(batch_of(base, delta, epoch, str(name)))
        next_offset = base + delta + 1
    return start, first_epoch, batches


def batch_of(base_offset: int, last_offset_delta: int, epoch: int, flaw: str) -> bytes:
    batch = bytearray(write_batch(base_offset=0, leader_epoch=epoch, timestamp_ms=9, records=[]))
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 23, last_offset_delta)
    batch[16] = 1 if flaw == "magic" else batch[16]
    batch = bytearray(with_right_crcs(batch))
    batch[-1] ^= flaw == "crc"
    return bytes(batch)


def _as_int64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def is_continuous(batches: BatchIndex) -> bool:
    """By Python's integers, which have no end."""
    ends = (batches.base_offset, batches.last_offset_delta, batches.leader_epoch, batches.status)
    rows = list(zip(*(column.tolist() for column in ends), strict=True))
    alone = all(
        status == 0 and base >= 0 and delta >= 0 and base + delta <= OFFSET_MAX for base, delta, _, status in rows
    )
    pairs = itertools.pairwise(rows)
    return alone and all(
        before[0] + before[1] + 1 == following[0] and before[2] <= following[2] for before, following in pairs
    )


@given(logs())
def test_continuous_is_what_each_batch_and_each_pair_say(log: tuple[int, int, list[bytes]]) -> None:
    batches = index_batches(b"".join(log[2]))
    assert len(batches) == len(log[2])
    assert batches.is_continuous == is_continuous(batches)


@pytest.mark.parametrize("growths", [(0,), (0, 0), (0, 1), (0, 0, 1), (0, 1, 1), (0, 1, 0)])
def test_the_ends_of_continuous_batches_say_what_each_would(growths: tuple[int, ...]) -> None:
    """Wherever the log stands before them, and whatever follows."""
    epochs = [5 + sum(growths[: number + 1]) for number in range(len(growths))]
    batches = index_batches(b"".join(batch_of(7 + number, 0, epoch, "") for number, epoch in enumerate(epochs)))
    assert batches.is_continuous
    afterwards = [None, *(Neighbour(7 + len(epochs), epoch) for epoch in range(4, epochs[-1] + 2))]
    for next_offset, epoch, is_explained, after in itertools.product(
        (None, 6, 7, 8), (-1, 4, 5, 6, 7), (True, False), afterwards
    ):
        states = [LogState(next_offset, epoch, is_explained) for _ in range(2)]
        rows, problems = check_continuity(batches, states[0], after)
        slow_rows, slow_problems = check_continuity(dataclasses.replace(batches, is_continuous=False), states[1], after)
        assert (rows.tolist(), problems, states[0]) == (slow_rows.tolist(), slow_problems, states[1])


def test_no_batches_leave_a_log_where_it_stands() -> None:
    state = LogState(7, 3, True)
    rows, problems = check_continuity(index_batches(b""), state, Neighbour(7, 3))
    assert (rows.tolist(), problems, state) == ([], [], LogState(7, 3, True))
