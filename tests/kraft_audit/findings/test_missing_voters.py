"""A voter that is missing, or whose log is, makes no answer bolder than the whole capture does."""

from __future__ import annotations

from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.rules.columns.quorum_standing import Standing
from tests.builders.captures import copy_nodes

pytestmark = pytest.mark.slow


def standing_of(source: Path, folder: Path, nodes: tuple[int, ...], without_log: int = 0) -> tuple[Standing, str]:
    with kraft_audit.open(str(copy_nodes(source, folder, nodes, without_log))) as (cluster,):
        found = cluster.standing()
        return found.standing, found.reason


def test_records_that_one_voter_holds_wait_whoever_was_not_read(captured_logs: Path, tmp_path: Path) -> None:
    """Node 3 lacks them too, and may not have: without its disk nobody knows."""
    source = captured_logs / "divergence" / "10-uncommitted-suffix-live"
    whole, _ = standing_of(source, tmp_path / "whole", (1, 2, 3))
    standing, reason = standing_of(source, tmp_path / "part", (1, 2))
    assert (whole, standing) == (Standing.UNDECIDED, Standing.UNDECIDED)
    assert "or voter 3, not read here, holds them" in reason


@pytest.mark.parametrize("without_log", [1, 2])
def test_a_snapshot_stands_for_no_log_that_went_further(captured_logs: Path, tmp_path: Path, without_log: int) -> None:
    """leader-epoch-checkpoint lists epochs that began after the newest snapshot."""
    source = captured_logs / "mini-3.9.2" / "03-final"
    standing, _ = standing_of(source, tmp_path, (1, 2), without_log)
    assert standing is Standing.UNDECIDED


def test_what_only_an_observer_holds_waits_for_nobody_here(captured_logs: Path, tmp_path: Path) -> None:
    """Without node 2, broker 11 alone holds what no majority had: that is no answer about voters, and no failure."""
    source = captured_logs / "divergence" / "10-uncommitted-suffix-live"
    standing, reason = standing_of(source, tmp_path, (1, 3, 11))
    assert standing in (Standing.HEALTHY, Standing.UNDECIDED)
    assert "only voter" not in reason
