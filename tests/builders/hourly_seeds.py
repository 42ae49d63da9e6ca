"""What must hold of the hours of any simulated cluster, by its seed: of a chain of hours, and of a pair of clusters.

A chain goes on from what each hour kept, and says what `check` says of all captures. The second cluster of a pair has
the same hours as the first one, but Kafka deletes its segments, or its disks come in another order: it says the same.
"""

from __future__ import annotations

import random
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.rules.carried import merged_batches
from tests.builders.hourly_disks import HourlyDisks
from tests.builders.judged_hours import JudgedHours, Shown, key, said

KINDS: Final = ("random", "random-wide", "random-kip856", "random-storm", "random-kip642")
SMALL: Final = 2_500
OF_WHAT_IS_ON_DISK: Final = frozenset({"KQ007", "KQ013", "KQ019"})
"""Rules about what a disk holds, not about what happened."""
HOURS_OF_PAIRS: Final = ((0, 0.6), (0, 1.0), (1, 1.0), (2, 0.5), (3, 1.0))
Change = Callable[[ClusterPlan], ClusterPlan]


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What a seed gave: hours that went on from a kept state, judgements and findings that were compared, differences.

    `seconds` are those of the processor.
    """

    seed: int
    chain_went_on: int = 0
    chains_compared: int = 0
    pair_went_on: int = 0
    findings_compared: int = 0
    failures: tuple[str, ...] = ()
    seconds: float = 0.0


@contextmanager
def runs_in_short_logs() -> Iterator[None]:
    """Of a log of a few hundred batches nearly all would stay single."""
    before = merged_batches.IDLE_BATCHES
    merged_batches.IDLE_BATCHES = 2  # type: ignore[misc]
    try:
        yield
    finally:
        merged_batches.IDLE_BATCHES = before  # type: ignore[misc]


def kind_of(seed: int) -> str:
    """The kind of run that a seed stands for."""
    return KINDS[seed % len(KINDS)]


def play(seed: int, folder: Path) -> SeedResult:
    """Plays the chain and the pair of a seed below a folder, which is gone afterwards; an exception is a failure."""
    started = time.process_time()
    went_on, compared, failures = [0, 0], [0, 0], []
    with runs_in_short_logs():
        for number, part in enumerate((chain, pair)):
            try:
                went_on[number], compared[number] = part(folder, seed)
            except AssertionError as difference:
                failures.append(f"{part.__name__}: {difference}")
            except Exception:
                failures.append(f"{part.__name__}: {traceback.format_exc(limit=-5)}")
    shutil.rmtree(folder, ignore_errors=True)
    seconds = round(time.process_time() - started, 3)
    return SeedResult(seed, went_on[0], compared[0], went_on[1], compared[1], tuple(failures), seconds)


def chain(folder: Path, seed: int) -> tuple[int, int]:
    """A chain of three hours; the last one is compared. How many went on from a state, and how many were compared."""
    share = (0.3, 0.5, 0.7, 0.9)[seed // 8 % 4]
    hours = ((1, share, False), (1 + seed % 2, 1.0, False), (3, 1.0, True))
    judged = judge_chain(folder, kind_of(seed), seed, hours, events=SMALL)
    return judged.whys.count(None), judged.compared


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
        assert differences == [], (kind, seed, number, judged.whys[-1:], differences)
    return judged


def pair(folder: Path, seed: int) -> tuple[int, int]:
    """Of two seeds in three both deleted segments and another order of disks, as a fault of either would show; of the
    rest one of them alone. Gives what `judge_pair` does."""
    change = None if seed % 6 == 5 else in_any_order(random.Random(seed))  # noqa: S311  # not a secret
    return judge_pair(folder, kind_of(seed), seed, deletes=seed % 6 != 4, change=change)


class HoursOfPair(JudgedHours):
    """Hours whose plans may be changed before they are judged."""

    def __init__(self, disks: HourlyDisks, change: Change | None) -> None:
        super().__init__(None, disks)
        self.change = change

    def _rows(self, plan: ClusterPlan, continuation: Any) -> Any:
        return super()._rows(plan if self.change is None else self.change(plan), continuation)

    def _keep_round(self, plan: ClusterPlan) -> None:
        """Nothing is compared with all captures here."""

    def said(self) -> dict[Shown, Shown]:
        """What is open, and what ended this hour, but for rules about what is on disk."""
        rows = self.rows["staged_findings"]
        shown = (row for row in rows if row["status"] != "clear" and row["rule"] not in OF_WHAT_IS_ON_DISK)
        return {key(row): said(row) for row in shown}


def judge_pair(
    folder: Path, kind: str, seed: int, *, deletes: bool = False, change: Change | None = None
) -> tuple[int, int]:
    """Two clusters with the same hours, the second one with what must not matter.

    Gives how many hours went on from a state in both, and how many findings were compared; fails where they differ.
    """
    both = []
    for name, own_change in (("first", None), ("second", change)):
        # Where segments are deleted there is something new: the first cluster has a round of captures then, too.
        options: dict[str, Any] = {"keeps_later_snapshots": False, "is_always_copied": True, "events": SMALL}
        disks = HourlyDisks(kind, seed, folder / name / "disks", run=folder / "run", **options)
        both.append(HoursOfPair(disks, own_change))
    compared, shown = 0, [dict[Shown, Shown](), dict[Shown, Shown]()]
    for capture, share in HOURS_OF_PAIRS:
        for hours, known in zip(both, shown, strict=True):
            number = min(capture, len(hours.disks.captures) - 1)
            # What was deleted before the first hour, neither of them ever saw.
            hours.disks.pass_hour(number, share=share, deletes=deletes and hours is both[1] and bool(hours.whys))
            hours.pass_hour()
            said_now = hours.said() if hours.rows else {}
            still_over = {each: what for each, what in known.items() if what[0] and each not in said_now}
            known.clear()
            known.update(said_now | still_over)
        if any(hours.is_cut_off for hours in both):
            break  # only the archive of a lake could say the same from here on
        if any(both[1].whys[1:]):
            # Read again, evidence names what disks hold by now: of a voter set the snapshot, where its record is gone.
            shown = [{each: (*what[:4], []) for each, what in known.items()} for known in shown]
        assert shown[1] == shown[0], (kind, seed, capture, share, both[1].whys, _differing(*shown))
        compared += len(shown[0])
    return min(hours.whys.count(None) for hours in both), compared


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
