"""An hour that is judged from what was kept says what `check` says of all captures of all hours.

The disks are those of simulated clusters: they lag, stand still, are replaced, hold snapshots and open transactions,
and their logs part. An hour's logs end after any batch, also within an operation or a transaction.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kraft_audit.findings import analysis
from kraft_audit.rules import merged_batches
from tests.builders.hourly_disks import HourlyDisks
from tests.builders.judged_hours import JudgedHours

KINDS: Final = ("random", "random-wide", "random-kip856", "random-storm", "random-kip642")
LONG_RUNS: Final = (("random", 0), ("random-wide", 3), ("random-wide", 5), ("random-kip856", 1), ("random-kip642", 5))
FIRST_SEED: Final = int(os.environ.get("KRAFT_AUDIT_FIRST_SEED", "0"))
SEEDS: Final = int(os.environ.get("KRAFT_AUDIT_SEEDS", "200"))
SMALL: Final = 2_500


@pytest.fixture(autouse=True)
def _runs_in_short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log of a few hundred batches nearly all would stay single."""
    monkeypatch.setattr(merged_batches, "IDLE_BATCHES", 2)


def judged(
    reading: Any,
    folder: Path,
    kind: str,
    seed: int,
    hours: Sequence[tuple[int, float, bool]],
    *,
    events: int | None = None,
    deletes: bool = False,
) -> JudgedHours:
    """Judges the hours (capture, share of its batches, whether it is compared); fails where one differs."""
    disks = HourlyDisks(kind, seed, folder / "disks", keeps_later_snapshots=False, events=events)
    found = JudgedHours(reading, disks)
    for number, (capture, share, is_compared) in enumerate(hours):
        disks.pass_hour(min(capture, len(disks.captures) - 1), share=share, deletes=deletes)
        found.pass_hour()
        assert not is_compared or found.differences() == [], (kind, seed, number, found.whys[-1:])
    return found


@pytest.mark.ci
@pytest.mark.parametrize(
    ("kind", "seed"), [*LONG_RUNS[:2], *(pytest.param(*run, marks=pytest.mark.long) for run in LONG_RUNS[2:])]
)
def test_the_chain_says_what_all_captures_say(reading: Any, kind: str, seed: int, tmp_path: Path) -> None:
    hours = [(capture, share, True) for capture in range(4) for share in (0.7, 1.0)]
    found = judged(reading, tmp_path, kind, seed, hours)
    assert found.compared >= 4
    assert None in found.whys


@pytest.mark.ci
@pytest.mark.parametrize(("kind", "seed"), [("random", 110), ("random-wide", 116)])
def test_disks_that_were_never_started_and_then_have_empty_logs(
    reading: Any, kind: str, seed: int, tmp_path: Path
) -> None:
    hours = [(hour // 4, (hour % 4 + 1) / 4, True) for hour in range(9)]
    found = judged(reading, tmp_path, kind, seed, hours, events=SMALL)
    assert found.compared


@pytest.mark.ci
def test_a_history_on_disk_is_kept_by_parts(reading: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "PARTITION_BYTES_MAX", 0)
    hours = [(capture, share, True) for capture in range(4) for share in (0.7, 1.0)]
    found = judged(reading, tmp_path, "random-wide", 4, hours)
    assert found.compared >= 4
    assert None in found.whys


@pytest.mark.ci
@pytest.mark.parametrize("part", range(8))
def test_many_chains_say_what_all_captures_say(reading: Any, part: int, tmp_path: Path) -> None:
    compared = went_on = 0
    for seed in range(FIRST_SEED + part, FIRST_SEED + SEEDS, 8):
        share = (0.3, 0.5, 0.7, 0.9)[seed // 8 % 4]
        hours = ((1, share, False), (1 + seed % 2, 1.0, False), (3, 1.0, True))
        found = judged(reading, tmp_path / str(seed), KINDS[seed % len(KINDS)], seed, hours, events=SMALL)
        compared += found.compared
        went_on += found.whys.count(None)
    assert compared * 2 >= SEEDS // 8
    assert went_on * 2 >= SEEDS // 8


def test_the_same_hour_keeps_the_same_bytes(reading: Any, tmp_path: Path) -> None:
    """A run that is killed before its plan is closed is made again, from the state before it."""
    states = []
    for _ in range(2):
        folder = tmp_path / "cluster"
        found = judged(reading, folder, "random", 0, ((0, 0.7, False), (1, 1.0, False)), events=SMALL)
        assert found.whys[-1] is None
        states.append(found.state)
        shutil.rmtree(folder)
    assert states[0] == states[1]
