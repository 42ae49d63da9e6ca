"""Draws how many partitions were exposed, and which lost records."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kraft_audit.picture.canvas import HEADING, Canvas, in_time, text_width, wrapped
from kraft_audit.picture.happened import Series, SeriesKind
from kraft_audit.picture.legend import WORDS, loss_shape
from kraft_audit.text.readable import plural

SERIES_PIXELS = 34.0
SERIES_TITLES: Final = {
    SeriesKind.AT_ONE_REPLICA: "At one replica",
    SeriesKind.OFFLINE: "Offline",
    SeriesKind.BLOCKED: "Writes blocked",
}


@dataclass(frozen=True, slots=True)
class _Run:
    """A time during which a count was not 0: its outline, its peak and where that is."""

    path: str
    peak: int
    peak_x: float
    from_ms: int
    to_ms: int


def draw_partitions(canvas: Canvas) -> None:
    """A band for each count that was ever above 0, to one scale; the others are one sentence."""
    picture = canvas.picture
    drawn, sentence = picture.drawn_series, picture.sentence
    if picture.series:
        canvas.y += HEADING
        is_counted = picture.partitions is not None and bool(drawn or not sentence)
        count = f" ({picture.partitions:,})" if is_counted else ""
        canvas.text(0, canvas.y - 7, f"Partitions{count}", "b soft")
        if sentence and not drawn:
            for text in wrapped(sentence, canvas.width) if canvas.is_narrow else [sentence]:
                canvas.y += 16 if canvas.is_narrow else 0
                canvas.text(0 if canvas.is_narrow else canvas.left + 8, canvas.y - 7, text)
    peak = max((series.peak for series in drawn), default=1)
    for series in drawn:
        _draw_series(canvas, series, peak)
    _draw_losses(canvas)


def _draw_series(canvas: Canvas, series: Series, peak: int) -> None:
    canvas.used.add(series.kind)
    canvas.y += SERIES_PIXELS + 16 + (8 if canvas.is_narrow else 0)
    base, scale = canvas.y - 4, SERIES_PIXELS / peak
    y = base - SERIES_PIXELS - 4 if canvas.is_narrow else base - 2
    canvas.text(0, y, SERIES_TITLES[series.kind])
    canvas.text(canvas.width, y, f"{series.last:,} now", "alarm b" if series.last else "soft", anchor="end")
    canvas.shape("line", x1=canvas.left, x2=canvas.right, y1=base, y2=base, class_="base")
    runs = _runs(canvas, series, base, scale)
    for run in sorted(runs, key=lambda run: -run.peak):
        title = in_time(
            f"{SERIES_TITLES[series.kind]}: at most {plural(run.peak, 'partition')}", run.from_ms, run.to_ms
        )
        canvas.shape("path", title, d=run.path, class_=series.kind, fill=canvas.pattern(series.kind))
        canvas.text(run.peak_x, base - run.peak * scale - 3, f"{run.peak:,}", anchor="middle")


def _runs(canvas: Canvas, series: Series, base: float, scale: float) -> list[_Run]:
    """Each time during which the count was not 0, as one outline."""
    runs: list[_Run] = []
    path, peak, peak_x, begin = "", 0, 0.0, 0
    times, counts = series.times_ms.tolist(), series.counts.tolist()
    for place, ((at, until), count) in enumerate(zip(pairwise([*times, canvas.picture.to_ms]), counts, strict=True)):
        is_last = place == len(counts) - 1
        x0 = canvas.axis.x(at)
        x1 = max(x0 + 1.0, canvas.right if is_last else canvas.axis.x(until))
        if count and (is_last or until > canvas.picture.from_ms):
            path, begin = (path, begin) if path else (f"M{x0:.1f} {base:.1f}", at)
            path += f"V{base - count * scale:.1f}H{x1:.1f}"
            if count > peak:
                peak, peak_x = count, (x0 + x1) / 2
        if path and (not count or is_last):
            runs.append(_Run(f"{path}V{base:.1f}Z", peak, peak_x, begin, until if count else at))
            path, peak = "", 0
    return runs


def _draw_losses(canvas: Canvas) -> None:
    losses = canvas.picture.losses
    if not losses:
        return
    canvas.y += 26 + (10 if canvas.is_narrow else 0)
    middle = canvas.y - 8
    y = middle - 14 if canvas.is_narrow else middle + 4
    canvas.text(0, y, "Partitions with losses" if canvas.is_narrow else "Losses")
    canvas.text(canvas.width, y, f"{canvas.picture.partitions_lost:,} in all", "alarm b", anchor="end")
    canvas.shape("line", x1=canvas.left, x2=canvas.right, y1=middle + 8, y2=middle + 8, class_="base")
    for loss in losses:
        x = canvas.axis.x(loss.at_ms)
        for kind, count in (("loss", loss.proven), ("possible-loss", loss.possible)):
            if count and loss.at_ms >= canvas.picture.from_ms:
                canvas.used.add(kind)
                title = in_time(f"{count:,} {WORDS[kind]}", loss.at_ms)
                canvas.mark(loss_shape(x, middle, kind), title)
                canvas.text(x + 8, middle + 4, f"{count:,}", "alarm b")
                x += 24 + text_width(f"{count:,}", is_bold=True)
