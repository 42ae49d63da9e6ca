"""An hour that is judged with what earlier ones kept says what `check` says of all captures of all hours.

The disks are those of simulated clusters: they lag, stand still, are replaced, hold snapshots and open transactions,
and their logs part. An hour's logs end after any batch, also within an operation or a transaction.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest

from tests.builders.hourly_seeds import SMALL, chain, judge_chain
from tests.builders.judged_hours import JudgedHours
from tests.builders.open_transactions import DisksInATransaction

FIRST_SEED: Final = int(os.environ.get("KRAFT_AUDIT_FIRST_SEED", "0"))
SEEDS: Final = int(os.environ.get("KRAFT_AUDIT_SEEDS", "12"))
PARTS: Final = 4
LONG_RUNS: Final = (("random", 0), ("random-wide", 3), ("random-wide", 5), ("random-kip856", 1), ("random-kip642", 5))
WITHOUT_LOGS: Final = (("random", 110), ("random-wide", 116))
IN_A_TRANSACTION: Final = (
    ("random", 34, "EndTransactionRecord"),
    ("random", 34, "AbortTransactionRecord"),
    ("random-kip856", 24, "EndTransactionRecord"),
    ("random-kip642", 22, "AbortTransactionRecord"),
)


def first_in_ci(runs: tuple[tuple[Any, ...], ...], count: int) -> list[Any]:
    """Runs of which CI plays the first ones."""
    return [*runs[:count], *(pytest.param(*run, marks=pytest.mark.long) for run in runs[count:])]


@pytest.mark.ci
@pytest.mark.parametrize(("kind", "seed"), first_in_ci(LONG_RUNS, 1))
def test_the_chain_says_what_all_captures_say(kind: str, seed: int, tmp_path: Path) -> None:
    hours = [(capture, share, True) for capture in range(4) for share in (0.7, 1.0)]
    assert judge_chain(tmp_path, kind, seed, hours).compared >= 4


@pytest.mark.ci
@pytest.mark.parametrize(("kind", "seed"), first_in_ci(WITHOUT_LOGS, 1))
def test_disks_that_were_never_started_and_then_have_empty_logs(kind: str, seed: int, tmp_path: Path) -> None:
    hours = [(hour // 4, (hour % 4 + 1) / 4, True) for hour in range(9)]
    assert judge_chain(tmp_path, kind, seed, hours, events=SMALL).compared


@pytest.mark.ci
@pytest.mark.parametrize(("kind", "seed", "rounds"), [("static-growth", 1, 3), ("static-scale-in", 1, 2)])
def test_static_voters_that_change_from_hour_to_hour(kind: str, seed: int, rounds: int, tmp_path: Path) -> None:
    """No record holds their sets: those of earlier hours are known by LeaderChanges and earlier captures alone."""
    hours = [(capture, share, True) for capture in range(rounds) for share in (0.5, 1.0)]
    assert judge_chain(tmp_path, kind, seed, hours).compared == 2 * rounds


@pytest.mark.ci
@pytest.mark.parametrize("part", range(PARTS))
def test_many_chains_say_what_all_captures_say(part: int, tmp_path: Path) -> None:
    seeds = range(FIRST_SEED + part, FIRST_SEED + SEEDS, PARTS)
    assert sum(chain(tmp_path / str(seed), seed) for seed in seeds) * 2 >= len(seeds)


@pytest.mark.ci
@pytest.mark.parametrize(("kind", "seed", "end_record"), first_in_ci(IN_A_TRANSACTION, 2))
def test_a_transaction_that_lasts_for_hours(kind: str, seed: int, end_record: str, tmp_path: Path) -> None:
    disks = DisksInATransaction(kind, seed, tmp_path / "disks", keeps_later_snapshots=False, end_record=end_record)
    found, decided_to = JudgedHours(None, disks), []
    for share in (0.25, 0.5, 0.7, 1.0):
        disks.pass_hour(len(disks.captures) - 1, share=share, stands_still=0.0)
        found.pass_hour()
        assert found.differences() == [], share
        (replayed,) = found.rows["replays"]
        decided_to.append(replayed["to_offset"])
    begin, end = disks.marks
    assert decided_to[1:3] == [begin, begin], "the hours in the transaction"
    assert decided_to[3] > end
    assert found.compared == 4


@pytest.mark.ci
def test_a_snapshot_beyond_all_logs_is_what_each_hour_replays(tmp_path: Path) -> None:
    disks = DisksInATransaction("random-kip856", 40, tmp_path / "disks", keeps_later_snapshots=False)
    found = JudgedHours(None, disks)
    for share in (0.25, 0.4):
        disks.pass_hour(len(disks.captures) - 1, share=share, stands_still=0.0)
        found.pass_hour()
        assert found.differences() == [], share
    assert found.compared == 2
