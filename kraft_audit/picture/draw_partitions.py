"""Draws how many partitions were exposed, and the log's end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kraft_audit.picture.canvas import HEADING, Canvas, text_width
from kraft_audit.picture.happened import Series, SeriesKind
from kraft_audit.picture.legend import loss_shape

SERIES_PIXELS, LOG_PIXELS = 34.0, 56.0
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
            canvas.y += 16 if canvas.is_narrow else 0
            canvas.text(0 if canvas.is_narrow else canvas.left + 8, canvas.y - 7, sentence)
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
    path = "".join(run.path for run in runs)
    canvas.shape("path", d=path, class_=series.kind, fill=canvas.pattern(series.kind))
    for run in sorted(runs, key=lambda run: -run.peak):
        canvas.text(run.peak_x, base - run.peak * scale - 3, f"{run.peak:,}", anchor="middle")


def _runs(canvas: Canvas, series: Series, base: float, scale: float) -> list[_Run]:
    """Each time during which the count was not 0, as one outline."""
    runs: list[_Run] = []
    path, peak, peak_x = "", 0, 0.0
    times, counts = series.times_ms.tolist(), series.counts.tolist()
    for place, ((at, until), count) in enumerate(zip(pairwise([*times, canvas.picture.to_ms]), counts, strict=True)):
        is_last = place == len(counts) - 1
        x0 = canvas.axis.x(at)
        x1 = max(x0 + 1.0, canvas.right if is_last else canvas.axis.x(until))
        if count and (is_last or until > canvas.picture.from_ms):
            path = path or f"M{x0:.1f} {base:.1f}"
            path += f"V{base - count * scale:.1f}H{x1:.1f}"
            if count > peak:
                peak, peak_x = count, (x0 + x1) / 2
        if path and (not count or is_last):
            runs.append(_Run(f"{path}V{base:.1f}Z", peak, peak_x))
            path, peak = "", 0
    return runs


def _draw_losses(canvas: Canvas) -> None:
    losses = canvas.picture.losses
    if not losses:
        return
    canvas.used.add("loss")
    canvas.y += 26 + (10 if canvas.is_narrow else 0)
    middle = canvas.y - 8
    y = middle - 14 if canvas.is_narrow else middle + 4
    total = sum(count for _, count in losses)
    canvas.text(0, y, "Partitions that may have lost records" if canvas.is_narrow else "Losses")
    canvas.text(canvas.width, y, f"{total:,} in all", "alarm b", anchor="end")
    canvas.shape("line", x1=canvas.left, x2=canvas.right, y1=middle + 8, y2=middle + 8, class_="base")
    for at_ms, count in losses:
        if at_ms >= canvas.picture.from_ms:
            x = canvas.axis.x(at_ms)
            canvas.shapes.append(loss_shape(x, middle))
            canvas.text(x + 8, middle + 4, f"{count:,}", "alarm b")


def draw_log_end(canvas: Canvas) -> None:
    """The end of the canonical log: solid as far as it is proven committed, dashed after that."""
    log = canvas.picture.log_end
    if not len(log.times_ms):
        return
    canvas.y += LOG_PIXELS + 14 + (14 if canvas.is_narrow else 0)
    base, first, last = canvas.y, int(log.offsets[0]), int(log.offsets[-1])
    scale = (LOG_PIXELS - 8) / max(1, last - first)
    points = [
        (canvas.axis.x(time), base - 2 - (offset - first) * scale, offset)
        for time, offset in zip(log.times_ms.tolist(), log.offsets.tolist(), strict=True)
        if time >= canvas.picture.from_ms
    ]
    committed = last if log.committed is None else log.committed
    solid = [point for point in points if point[2] <= committed]
    dashed = [*solid[-1:], *(point for point in points if point[2] > committed)]
    if len(solid) > 1:
        canvas.shape("path", d=_stairs(solid), class_="log-end")
    if len(dashed) > 1:
        canvas.used.add("not-proven")
        canvas.shape("path", d=_stairs(dashed), class_="not-proven")
    canvas.shape("line", x1=canvas.left, x2=canvas.right, y1=base, y2=base, class_="base")
    y = base - LOG_PIXELS - 6 if canvas.is_narrow else base - 2
    canvas.text(0, y, "Log end", "b soft")
    _label_log_end(canvas, y if canvas.is_narrow else base - LOG_PIXELS + 8)


def _label_log_end(canvas: Canvas, y: float) -> None:
    x = canvas.width
    room = canvas.width - canvas.axis.x(canvas.picture.to_ms)
    for text in canvas.picture.log_end.standing:
        css = "alarm" if text.startswith("log end") else "b"
        if not canvas.is_narrow and text_width(text, is_bold=css == "b") > room:
            # Beside the log's end, not over it.
            text, _, offset = text.rpartition(" ")
            canvas.text(x, y + 15, offset, css, anchor="end")
        canvas.text(x, y, text, css, anchor="end")
        x, y = (x - text_width(text) - 16, y) if canvas.is_narrow else (x, y + 15)


def _stairs(points: Sequence[tuple[float, float, int]]) -> str:
    first, *rest = points
    return f"M{first[0]:.1f} {first[1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y, _ in rest)
