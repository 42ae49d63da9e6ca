"""Time to the right: a scale that folds long quiet stretches, so that seconds can be read beside hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kraft_audit.text.readable import DAY_MS, HOUR_MS, MINUTE_MS, moment_of

FOLDS_MAX: Final = 5
FOLD_PIXELS: Final = 34.0
SECOND_MS: Final = 1_000
STEPS_MS: Final = (
    *(seconds * SECOND_MS for seconds in (1, 2, 5, 10, 15, 30)),
    *(minutes * MINUTE_MS for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR_MS for hours in (1, 2, 3, 6, 12)),
    *(days * DAY_MS for days in (1, 2, 7, 14, 28, 91, 182, 364)),
)
TICK_PIXELS: Final = 76.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time that is drawn, and where."""

    from_ms: int
    to_ms: int
    x0: float
    x1: float


@dataclass(frozen=True, slots=True)
class Fold:
    """A quiet stretch that is not drawn to scale."""

    x0: float
    x1: float
    length_ms: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment on the axis with its label; `day` where the day differs from that of the tick before."""

    x: float
    label: str
    day: str


class TimeAxis:
    """Where each moment of a picture stands between two pixels."""

    def __init__(self, moments_ms: Sequence[int], from_ms: int, to_ms: int, x0: float, x1: float) -> None:
        """The moments at which something happened; `from_ms` < `to_ms`."""
        drawn = _stretches(sorted({from_ms, to_ms, *(m for m in moments_ms if from_ms < m < to_ms)}))
        total = sum(to - begin for begin, to in drawn)
        scale = (x1 - x0 - FOLD_PIXELS * (len(drawn) - 1)) / max(1, total)
        self.stretches: list[Stretch] = []
        x = x0
        for begin, to in drawn:
            self.stretches.append(Stretch(begin, to, x, x + (to - begin) * scale))
            x = self.stretches[-1].x1 + FOLD_PIXELS
        self.folds = [
            Fold(before.x1, after.x0, after.from_ms - before.to_ms) for before, after in pairwise(self.stretches)
        ]

    def x(self, time_ms: int) -> float:
        """The pixel of a moment; those outside stand at the edges, those in a fold within it."""
        before: Stretch | None = None
        for stretch in self.stretches:
            if time_ms < stretch.from_ms:
                if before is None:
                    return stretch.x0
                share = (time_ms - before.to_ms) / (stretch.from_ms - before.to_ms)
                return before.x1 + share * (stretch.x0 - before.x1)
            if time_ms <= stretch.to_ms:
                length = max(1, stretch.to_ms - stretch.from_ms)
                return stretch.x0 + (time_ms - stretch.from_ms) / length * (stretch.x1 - stretch.x0)
            before = stretch
        return self.stretches[-1].x1

    def ticks(self) -> list[Tick]:
        """Round moments of each stretch; a stretch too short for one shows where it begins."""
        ticks: list[Tick] = []
        day = ""
        for stretch in self.stretches:
            step = _step(stretch)
            first = -(-stretch.from_ms // step) * step
            times = list(range(first, stretch.to_ms + 1, step)) or [stretch.from_ms]
            for time_ms in times:
                if ticks and self.x(time_ms) - ticks[-1].x < TICK_PIXELS * 0.8:
                    continue
                label, own_day = _label(time_ms, step if times[0] != stretch.from_ms or len(times) > 1 else SECOND_MS)
                ticks.append(Tick(self.x(time_ms), label, own_day if own_day != day else ""))
                day = own_day
        return ticks


def _stretches(moments_ms: list[int]) -> list[tuple[int, int]]:
    """What is drawn to scale: all but the few gaps that are longer than all the rest together."""
    gaps = sorted(pairwise(moments_ms), key=lambda gap: gap[0] - gap[1])
    total = moments_ms[-1] - moments_ms[0]
    folded: list[tuple[int, int]] = []
    for begin, end in gaps[:FOLDS_MAX]:
        rest = total - (end - begin)
        if rest <= 0 or end - begin < rest or end - begin < MINUTE_MS:
            break
        folded.append((begin, end))
        total = rest
    room = max(SECOND_MS, total // 25)
    stretches, begin = [], moments_ms[0]
    for gap_from, gap_to in sorted(folded):
        stretches.append((begin, gap_from + room))
        begin = gap_to - room
    return [*stretches, (begin, moments_ms[-1])]


def _step(stretch: Stretch) -> int:
    per_pixel = (stretch.to_ms - stretch.from_ms) / max(1.0, stretch.x1 - stretch.x0)
    return next((step for step in STEPS_MS if step >= per_pixel * TICK_PIXELS), STEPS_MS[-1])


def _label(time_ms: int, step_ms: int) -> tuple[str, str]:
    """A moment's label and its day."""
    moment = moment_of(time_ms)
    if moment is None:
        return str(time_ms), ""
    day = f"{moment.day} {moment:%b %Y}"
    if step_ms >= DAY_MS:
        return f"{moment.day} {moment:%b}", f"{moment:%Y}"
    return (f"{moment:%H:%M:%S}" if step_ms < MINUTE_MS else f"{moment:%H:%M}"), day
