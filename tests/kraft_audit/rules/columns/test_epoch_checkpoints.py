"""Whether a log and its leader-epoch-checkpoint are of one moment, whatever Kafka has deleted of the log."""

from __future__ import annotations

import pytest

from kraft_audit.rules.columns.epoch_checkpoints import epoch_mismatches, torn_reason
from tests.builders.histories import HistoryBuilder

Entries = tuple[tuple[int, int], ...]


def differences(build: HistoryBuilder, start: int, entries: Entries, *, snapshot: int | None = None) -> list[int]:
    """Where a log differs from the file: epoch 1 at 0, epoch 2 from 20 to 30, of which `start` on is left."""
    if start < 20:
        build.log(1, start=start, to=20)
    build.log(1, start=max(start, 20), to=30, epoch=2).watermark(30, 30, end=30, epoch=2)
    listed = [{"epoch": epoch, "start_offset": offset} for epoch, offset in entries]
    build.capture(1, 30, epoch=2, log_start_offset=start, leader_epoch_checkpoint=listed, snapshot_end_offset=snapshot)
    found = epoch_mismatches(build.history())
    assert bool(found) is (torn_reason(build.history()) is not None)
    return [each.from_offset for each in found]


@pytest.mark.parametrize("entries", [((1, 0), (2, 20)), ((1, 0), (2, 20), (3, 30))])
def test_a_file_may_know_of_an_epoch_after_the_log(build: HistoryBuilder, entries: Entries) -> None:
    assert differences(build, 0, entries) == []


def test_a_file_is_cut_to_the_snapshot_that_cleaned_the_log(build: HistoryBuilder) -> None:
    """Within the oldest segment that is left."""
    assert differences(build, 10, ((2, 25),), snapshot=25) == []


@pytest.mark.parametrize(("start", "differs_from"), [(0, 0), (20, 20), (24, 24)])
def test_a_file_that_was_cut_after_the_logs_end_is_of_another_moment(
    build: HistoryBuilder, start: int, differs_from: int
) -> None:
    """Found by a pair of clusters (seed 2957): only the log from which nothing was deleted was said to differ."""
    assert differences(build, start, ((2, 40), (4, 50))) == [differs_from]
