"""What must not change what an hour says: segments that Kafka deleted, and the order of disks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.builders.hourly_seeds import judge_pair, kind_of, pair, play

FIRST_SEED: Final = int(os.environ.get("KRAFT_AUDIT_FIRST_SEED", "0"))
SEEDS: Final = int(os.environ.get("KRAFT_AUDIT_SEEDS", "8"))
PARTS: Final = 4
WHAT_ONCE_DIFFERED: Final = {
    2_957: "a log and a file that was cut to a later log start differed only where nothing was deleted",
    5_443: "epochs that disks persist were unknown where a replaced disk left no canonical log",
    9_542: "a snapshot's voters were a new set where no log was canonical, though they were the ones before",
    70_419: "less was proven committed where only another disk, whose log ends before a gap, held the LeaderChange",
    70_427: "who led an epoch was unknown after such a gap in a log with voter sets, too",
    70_538: "a voter that came back behind a gap was compared with a cluster that has no gap",
    202_447: "a draft's voter set counted as another one where a snapshot showed it",
    400_021: "how far a voter lags was another time over runs of batches",
    400_053: "a suffix stayed open that was cut off before its segment was deleted",
    400_179: "evidence listed disks with changes first",
    400_307: "less was proven committed without the LeaderChange that Kafka deleted",
    400_647: "copies that may have been torn once made all later ones count as torn",
    400_664: "a disk that began again at a snapshot kept what it held below, which no disk does",
    400_673: "of several votes the one named was that of the first epoch that was read",
    400_945: "an epoch was in two pieces once no disk held its middle",
    402_512: "an epoch lost its end once no disk held it",
    600_527: "a suffix on a disk became another finding once the node had another disk",
    710_568: "an epoch had no leader once the disk that held its LeaderChange was replaced",
    720_372: "a suffix that ends after a log's new beginning was cut off when that began",
    720_373: "an epoch on a branch that was cut off is one without a record on the log",
    741_493: "a suffix was part of the log once no disk held what an earlier reading saw in its place",
    741_709: "a change of the target was a removal where a snapshot of a draft says nothing of voters",
    743_462: "a log that grew was truncated while a snapshot beyond all logs left no canonical one",
    743_513: "an epoch counted as led on the log although the log had parted before it, within an epoch",
    744_873: "epochs without a leader stayed known of a log that was cut off whole",
}


OF_LOST_BATCHES: Final = (400_664, 402_512, 710_568, 720_372, 744_873)
"""The seeds of which no disk holds batches any more that an earlier capture showed; CI plays them, drills the rest."""


@pytest.mark.ci
@pytest.mark.parametrize("part", range(PARTS))
def test_neither_deleted_segments_nor_the_order_of_disks_change_a_finding(part: int, tmp_path: Path) -> None:
    seeds = range(FIRST_SEED + part, FIRST_SEED + SEEDS, PARTS)
    assert all(pair(tmp_path / str(seed), seed) for seed in seeds)


@pytest.mark.ci
@pytest.mark.parametrize("seed", [200_627, 200_688])
def test_a_phantom_voter_is_known_by_its_own_directory_since_its_set_was_made(seed: int, tmp_path: Path) -> None:
    """Not by that of a later set of the same voter, nor since the snapshot that is left of the log."""
    assert judge_pair(tmp_path, kind_of(seed), seed, deletes=True)


@pytest.mark.ci
@pytest.mark.parametrize(
    "seed",
    [
        *OF_LOST_BATCHES,
        *(pytest.param(seed, marks=pytest.mark.long) for seed in WHAT_ONCE_DIFFERED if seed not in OF_LOST_BATCHES),
    ],
)
def test_what_once_differed_is_equal(seed: int, tmp_path: Path) -> None:
    assert play(seed, tmp_path / "seed").failures == (), WHAT_ONCE_DIFFERED[seed]


@pytest.mark.slow
def test_one_cluster_with_deleted_segments(tmp_path: Path) -> None:
    assert judge_pair(tmp_path, "random", 0, deletes=True)
