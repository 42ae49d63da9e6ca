"""Who held which batch, and which of several at one offset counts where no canonical log is known."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from kraft_audit.rules.columns.batch_copies import STILL_HELD
from kraft_audit.rules.columns.log_batches import log_batches, replayed_log
from tests.builders.histories import T0, HistoryBuilder

HELD = ((1, 5), (2, 5), (3, 7))
"""Nodes, and the CRC of the batch that each holds at offset 10."""


@pytest.mark.parametrize("order", list(permutations(HELD)))
def test_without_a_canonical_log_the_batch_that_most_disks_hold_counts(order: tuple[tuple[int, int], ...]) -> None:
    builder = HistoryBuilder().leader_epoch(1, 1, 0)
    for node, crc in order:
        builder.batch(node, 0, 9, crc=1).batch(node, 10, 19, crc=crc).batch(node, 20, 29, crc=2).capture(node, 30)
    history = builder.history()
    assert not log_batches(history).is_canonical.any()
    assert replayed_log(history).crc.tolist() == [1, 5, 2]


def test_a_batch_that_came_back_was_held_until_it_was_cut_off_and_again() -> None:
    builder = HistoryBuilder().leader_epoch(1, 1, 0)
    for when, status in ((0, "present"), (1, "truncated"), (2, "present")):
        builder.batch(1, 0, 9, captured_at_ms=when, status=status)
    batches = log_batches(builder.history())
    held = batches.as_held(np.ones(len(batches.row), bool))
    moments = zip((held.since >> 20).tolist(), (np.minimum(held.until, 9 << 20) >> 20).tolist(), strict=True)
    assert sorted(moments) == [(0, 1), (2, 9)]


@pytest.mark.parametrize("start", [10, 11, 20, 30])
def test_a_branch_is_not_in_a_log_that_begins_after_its_first_record(start: int) -> None:
    """Kafka deleted what a snapshot covers, and no row says that the branch was cut off before."""
    builder = HistoryBuilder().leader_epoch(1, 1, 0).watermark(40, 40, end=40, when=1)
    for node in (1, 2):
        builder.log(node, to=40, captured_at_ms=1).capture(node, 40, when=1, log_start_offset=start)
    builder.batch(1, 10, 29, epoch=9, crc=7, captured_at_ms=0)
    batches = log_batches(builder.history())
    held = batches.as_held(~batches.is_canonical)
    assert (held.base_offset.tolist(), held.replica.tolist()) == ([10], [0])
    assert held.until.tolist() == [STILL_HELD if start == 10 else (T0 + 1) << 20]
