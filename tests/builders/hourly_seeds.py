"""What must hold of the hours of any simulated cluster, by its seed: of a chain of hours, and of a pair of clusters.

Each hour of a chain says what `check` says of all captures. The second cluster of a pair has the same hours as the
first one, but Kafka deletes its segments, or its disks come in another order: it says the same of what is still there.
"""

from __future__ import annotations

import random
import shutil
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.pipeline.analysis import CaptureMemory
from tests.builders.hourly_disks import HourlyDisks
from tests.builders.judged_hours import OF_WHAT_IS_ON_DISK, JudgedHours, Rows, Shown, key, offsets_alone, said

KINDS: Final = ("random", "random-wide", "random-kip856", "random-storm", "random-kip642")
SMALL: Final = 2_500
OF_WHAT_A_SET_REPLACED: Final = frozenset({"KV015"})
HOURS_OF_PAIRS: Final = ((0, 0.6), (0, 1.0), (1, 1.0), (2, 0.5), (3, 1.0))
Change = Callable[[ClusterPlan], ClusterPlan]


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What a seed gave: judgements and findings that were compared, and differences.

    `seconds` are those of the processor.
    """

    seed: int
    chains_compared: int = 0
    findings_compared: int = 0
    failures: tuple[str, ...] = ()
    seconds: float = 0.0


def kind_of(seed: int) -> str:
    """The kind of run that a seed stands for."""
    return KINDS[seed % len(KINDS)]


def play(seed: int, folder: Path) -> SeedResult:
    """Plays the chain and the pair of a seed below a folder, which is gone afterwards; an exception is a failure."""
    started = time.process_time()
    compared, failures = [0, 0], []
    for number, part in enumerate((chain, pair)):
        try:
            compared[number] = part(folder, seed)
        except AssertionError as difference:
            failures.append(f"{part.__name__}: {difference}")
        except Exception:
            failures.append(f"{part.__name__}: {traceback.format_exc(limit=-5)}")
    shutil.rmtree(folder, ignore_errors=True)
    return SeedResult(seed, *compared, tuple(failures), round(time.process_time() - started, 3))


def chain(folder: Path, seed: int) -> int:
    """A chain of three hours; the last one is compared, if it can be. Returns how many were."""
    share = (0.3, 0.5, 0.7, 0.9)[seed // 8 % 4]
    hours = ((1, share, False), (1 + seed % 2, 1.0, False), (3, 1.0, True))
    return judge_chain(folder, kind_of(seed), seed, hours, events=SMALL).compared


def judge_chain(
    folder: Path, kind: str, seed: int, hours: Sequence[tuple[int, float, bool]], *, events: int | None = None
) -> JudgedHours:
    """Judges the hours (capture, share of its batches, whether it is compared); fails where one differs."""
    disks = HourlyDisks(
        kind, seed, folder / "chain" / "disks", keeps_later_snapshots=False, events=events, run=folder / "run"
    )
    judged = JudgedHours(None, disks)
    for number, (capture, share, is_compared) in enumerate(hours):
        disks.pass_hour(min(capture, len(disks.captures) - 1), share=share)
        judged.pass_hour()
        differences = judged.differences() if is_compared else []
        assert differences == [], (kind, seed, number, differences)
    return judged


def pair(folder: Path, seed: int) -> int:
    """Of two seeds in three both deleted segments and another order of disks, as a fault of either would show; of the
    rest one of them alone. Gives what `judge_pair` does."""
    change = None if seed % 6 == 5 else in_any_order(random.Random(seed))  # noqa: S311  # not a secret
    return judge_pair(folder, kind_of(seed), seed, deletes=seed % 6 != 4, change=change)


class HoursOfPair(JudgedHours):
    """Hours whose plans may be changed before they are judged."""

    def __init__(self, disks: HourlyDisks, change: Change | None) -> None:
        super().__init__(None, disks)
        self.change = change

    def _rows(self, plan: ClusterPlan, memory: CaptureMemory) -> Rows:
        return super()._rows(plan if self.change is None else self.change(plan), memory)

    def _keep_round(self, plan: ClusterPlan) -> None:
        """Nothing is compared with all captures here."""

    def said_from(self, offset: int, *, has_gap: bool) -> dict[Shown, Shown]:
        """What the last hour says of what began at an offset or later, but for rules about what is on disk.

        What a voter set replaced is not known behind a gap: another set may have stood in it.
        """
        left_out = OF_WHAT_IS_ON_DISK | (OF_WHAT_A_SET_REPLACED if has_gap else frozenset())
        rows = self.rows.get("staged_findings", [])
        shown = (row for row in rows if row["status"] != "clear" and row["rule"] not in left_out)
        return {key(row): said(row) for row in shown if row["from_offset"] is None or row["from_offset"] >= offset}


def judge_pair(folder: Path, kind: str, seed: int, *, deletes: bool = False, change: Change | None = None) -> int:
    """Two clusters with the same hours, the second one with what must not matter; fails where they differ.

    Where no disk holds the beginning of the log any more, a replay begins at a snapshot. It does not show since when
    lasts what began before, so only what began after the snapshot is compared. Returns how many findings were.
    """
    both = []
    for name, own_change in (("first", None), ("second", change)):
        # Where segments are deleted there is something new: the first cluster has a round of captures then, too.
        disks = HourlyDisks(
            kind,
            seed,
            folder / name / "disks",
            run=folder / "run",
            keeps_later_snapshots=False,
            is_always_copied=True,
            events=SMALL,
        )
        both.append(HoursOfPair(disks, own_change))
    compared = 0
    for capture, share in HOURS_OF_PAIRS:
        for hours in both:
            number = min(capture, len(hours.disks.captures) - 1)
            # What was deleted before the first hour, neither of them ever saw.
            hours.disks.pass_hour(number, share=share, deletes=deletes and hours is both[1] and bool(hours.rows))
            hours.pass_hour()
        started_at = max(hours.started_at for hours in both)
        has_gap = any(hours.has_gap for hours in both)
        first, second = (hours.said_from(started_at + 1 if started_at else 0, has_gap=has_gap) for hours in both)
        for each in first.keys() & second.keys():
            if each[0] == "KQ001" and None in (first[each][1][2], second[each][1][2]):
                first[each], second[each] = offsets_alone(first[each]), offsets_alone(second[each])
        assert second == first, (kind, seed, capture, share, _differing(first, second))
        compared += len(first)
    return compared


def _differing(first: dict[Shown, Shown], second: dict[Shown, Shown]) -> list[str]:
    return [
        f"{episode}: the first {first.get(episode)}, the second {second.get(episode)}"
        for episode in sorted(first.keys() | second.keys(), key=str)
        if first.get(episode) != second.get(episode)
    ]


def in_any_order(chance: random.Random) -> Change:
    """What puts the disks of a plan in another order."""

    def shuffled(plan: ClusterPlan) -> ClusterPlan:
        return replace(
            plan,
            replicas=tuple(chance.sample(plan.replicas, len(plan.replicas))),
            context=tuple(chance.sample(plan.context, len(plan.context))),
        )

    return shuffled
