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
from kraft_audit.rules.carried_rows import CarriedRows
from kraft_audit.tables.kept_parts import unpack as parts_of
from tests.builders.hourly_disks import HourlyDisks
from tests.builders.judged_hours import JudgedHours
from tests.builders.open_transactions import DisksInATransaction

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


@pytest.mark.ci
@pytest.mark.parametrize("end_record", ["EndTransactionRecord", "AbortTransactionRecord"])
@pytest.mark.parametrize(("kind", "seed"), [("random", 28), ("random-kip856", 24), ("random-kip642", 22)])
def test_a_transaction_that_lasts_for_hours(
    reading: Any, kind: str, seed: int, end_record: str, tmp_path: Path
) -> None:
    """Batches that wait are carried as runs, and count one by one once the transaction has ended."""
    disks = DisksInATransaction(kind, seed, tmp_path / "disks", keeps_later_snapshots=False, end_record=end_record)
    found, is_waiting = JudgedHours(reading, disks), False
    for share in (0.25, 0.4, 0.5, 0.6, 0.7, 0.9, 1.0):
        disks.pass_hour(len(disks.captures) - 1, share=share, stands_still=0.0)
        found.pass_hour()
        assert found.differences() == [], (share, found.whys)
        assert found.state is not None
        carried = CarriedRows.from_bytes(parts_of(found.state)["rules"])
        is_waiting |= carried.merged_to > carried.episodes.to_offset
    assert is_waiting
    assert found.whys.count(None) >= 5
    assert found.compared >= 5


@pytest.mark.ci
def test_a_snapshot_beyond_all_logs_is_what_each_hour_replays(reading: Any, tmp_path: Path) -> None:
    disks = DisksInATransaction("random-kip856", 40, tmp_path / "disks", keeps_later_snapshots=False)
    found = JudgedHours(reading, disks)
    for share in (0.25, 0.4):
        disks.pass_hour(len(disks.captures) - 1, share=share, stands_still=0.0)
        found.pass_hour()
        assert found.differences() == [], share
    assert found.whys == ["nothing was kept", "nothing was replayed"]
    assert found.compared == 2


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
