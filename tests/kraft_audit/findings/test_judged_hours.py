"""An hour that is judged from what was kept says what `check` says of all captures of all hours.

The disks are those of simulated clusters: they lag, stand still, are replaced, hold snapshots and open transactions,
and their logs part. An hour's logs end after any batch, also within an operation or a transaction.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from kraft_audit.rules.carried.carried_rows import CarriedRows
from kraft_audit.tables.kept_parts import unpack as parts_of
from tests.builders.hourly_seeds import SMALL, chain, judge_chain, runs_in_short_logs
from tests.builders.judged_hours import JudgedHours
from tests.builders.open_transactions import DisksInATransaction

LONG_RUNS: Final = (("random", 0), ("random-wide", 3), ("random-wide", 5), ("random-kip856", 1), ("random-kip642", 5))
FIRST_SEED: Final = int(os.environ.get("KRAFT_AUDIT_FIRST_SEED", "0"))
SEEDS: Final = int(os.environ.get("KRAFT_AUDIT_SEEDS", "64"))


@pytest.fixture(autouse=True)
def _runs_in_short_logs() -> Iterator[None]:
    with runs_in_short_logs():
        yield


@pytest.mark.ci
@pytest.mark.parametrize(
    ("kind", "seed"), [*LONG_RUNS[:2], *(pytest.param(*run, marks=pytest.mark.long) for run in LONG_RUNS[2:])]
)
def test_the_chain_says_what_all_captures_say(kind: str, seed: int, tmp_path: Path) -> None:
    hours = [(capture, share, True) for capture in range(4) for share in (0.7, 1.0)]
    found = judge_chain(tmp_path, kind, seed, hours)
    assert found.compared >= 4
    assert None in found.whys


@pytest.mark.ci
@pytest.mark.parametrize(("kind", "seed"), [("random", 110), ("random-wide", 116)])
def test_disks_that_were_never_started_and_then_have_empty_logs(kind: str, seed: int, tmp_path: Path) -> None:
    hours = [(hour // 4, (hour % 4 + 1) / 4, True) for hour in range(9)]
    found = judge_chain(tmp_path, kind, seed, hours, events=SMALL)
    assert found.compared


@pytest.mark.ci
@pytest.mark.parametrize(("kind", "seed", "rounds"), [("static-growth", 1, 3), ("static-scale-in", 1, 2)])
def test_static_voters_that_change_from_hour_to_hour(kind: str, seed: int, rounds: int, tmp_path: Path) -> None:
    """No record holds their sets: those of earlier hours are known by LeaderChanges and earlier captures alone."""
    found = judge_chain(
        tmp_path, kind, seed, [(capture, share, True) for capture in range(rounds) for share in (0.5, 1.0)]
    )
    assert found.compared == 2 * rounds
    assert None in found.whys


@pytest.mark.ci
@pytest.mark.parametrize("part", range(8))
def test_many_chains_say_what_all_captures_say(part: int, tmp_path: Path) -> None:
    compared = went_on = 0
    for seed in range(FIRST_SEED + part, FIRST_SEED + SEEDS, 8):
        hours_that_went_on, hours_compared = chain(tmp_path / str(seed), seed)
        compared += hours_compared
        went_on += hours_that_went_on
    assert compared * 2 >= SEEDS // 8
    assert went_on * 2 >= SEEDS // 8


@pytest.mark.ci
@pytest.mark.parametrize("end_record", ["EndTransactionRecord", "AbortTransactionRecord"])
@pytest.mark.parametrize(("kind", "seed"), [("random", 34), ("random-kip856", 24), ("random-kip642", 22)])
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


def test_the_same_hour_keeps_the_same_bytes(tmp_path: Path) -> None:
    """A run that is killed before its plan is closed is made again, from the state before it."""
    states = []
    for _ in range(2):
        folder = tmp_path / "cluster"
        found = judge_chain(folder, "random", 0, ((0, 0.7, False), (1, 1.0, False)), events=SMALL)
        assert found.whys[-1] is None
        states.append(found.state)
        shutil.rmtree(folder)
    assert states[0] == states[1]
