"""A voter's snapshot that proves records which no log reaches: the others' copies are older, or they lost records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_audit.rules.columns.quorum_standing import QuorumStanding, Standing, quorum_standing
from tests.builders.histories import T0, HistoryBuilder

LOG_ENDED_MS = T0 + 40_000


def standing_of(
    build: HistoryBuilder, *, having: tuple[int, ...], epoch: int = 1, time_ms: int | None = LOG_ENDED_MS + 5_001
) -> QuorumStanding:
    """Logs of three voters that end at 40 in epoch 1; those in `having` have a snapshot that ends at 60, no log."""
    build.three_nodes()
    for row in build.rows["captures"]:
        if row["node_id"] in having:
            row.update(log_end_offset=None, last_epoch=None, last_timestamp_ms=None, leader_epoch=epoch)
            row.update(snapshot_end_offset=60, snapshot_epoch=epoch, snapshot_count=1)
    history = build.history()
    return quorum_standing(replace(history, snapshot_times_ms={} if time_ms is None else {60: time_ms}))


def test_a_minoritys_snapshot_leaves_the_quorum_undecided(build: HistoryBuilder) -> None:
    found = standing_of(build, having=(3,))
    assert found.standing is Standing.UNDECIDED
    assert "a snapshot of node 3 proves offset 59 committed (epoch 1), and voters 1 and 2 end at 40" in found.reason
    assert "Copy voters 1 and 2 again" in found.reason


@pytest.mark.parametrize(
    ("time_ms", "standing"),
    [
        (LOG_ENDED_MS + 5_000, Standing.HEALTHY),
        (LOG_ENDED_MS + 5_001, Standing.UNDECIDED),
        (None, Standing.UNDECIDED),
    ],
)
def test_copies_of_nodes_that_run_differ_by_seconds(
    build: HistoryBuilder, time_ms: int | None, standing: Standing
) -> None:
    assert standing_of(build, having=(3,), time_ms=time_ms).standing is standing


def test_a_snapshot_of_a_later_epoch_is_of_another_time(build: HistoryBuilder) -> None:
    found = standing_of(build, having=(3,), epoch=2, time_ms=LOG_ENDED_MS)
    assert (found.standing, found.leader_id) == (Standing.UNDECIDED, None)
    assert build.raised("KQ026") == []


def test_a_majority_that_has_it_holds_what_is_committed(build: HistoryBuilder) -> None:
    assert "a snapshot of node" not in standing_of(build, having=(2, 3)).reason
