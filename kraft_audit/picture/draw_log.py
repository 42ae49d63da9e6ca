"""Draws the log: its end over time, when nothing of it was committed, and the branches that parted from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from kraft_audit.picture.canvas import HEADING, Canvas, text_width, wrapped
from kraft_audit.picture.draw_nodes import LANE_PIXELS, draw_band, draw_cap, draw_marks
from kraft_audit.picture.draw_time import draw_stalls
from kraft_audit.picture.happened import Band, BandKind, DrawnBranch, MarkKind

LOG_PIXELS: Final = 56.0
LABEL_PIXELS: Final = 15.0
Point = tuple[float, float, int]
"""Where an end of the log stands, and which."""
Height = Callable[[int], float]
"""Where an offset stands in the drawing of the log's end."""


def draw_log(canvas: Canvas) -> None:
    """The end of the log with what is proven of it, and below it the branches."""
    height_of = _draw_log_end(canvas)
    branches = canvas.picture.branches
    if branches:
        canvas.y += HEADING
        canvas.text(0, canvas.y - 7, "Branch" if len(branches) == 1 else "Branches", "b soft")
    if branches and not canvas.picture.log_end.is_canonical:
        canvas.y += 16 if canvas.is_narrow else 0
        text = "no log is canonical: these contradict each other"
        canvas.text(0 if canvas.is_narrow else canvas.left + 8, canvas.y - 7, text, "alarm", on_paper=True)
    for branch in branches:
        _draw_branch(canvas, branch, height_of)
    if canvas.picture.branches_left_out:
        canvas.y += 18
        text = f"{canvas.picture.branches_left_out:,} more that parted, not drawn"
        canvas.text(canvas.left, canvas.y - 5, text, "soft")


def _draw_log_end(canvas: Canvas) -> Height | None:
    """The end of the log: solid as far as it is proven committed, dashed after that. None: no log to draw."""
    log = canvas.picture.log_end
    if not len(log.times_ms):
        if log.standing:
            canvas.y += HEADING
            canvas.text(0, canvas.y - 7, "Log end", "b soft")
            _label_log_end(canvas, canvas.y - 7)
        return None
    canvas.y += LOG_PIXELS + 14 + (14 if canvas.is_narrow else 0)
    base, first, last = canvas.y, int(log.offsets[0]), int(log.offsets[-1])
    scale = (LOG_PIXELS - 8) / max(1, last - first)

    def height_of(offset: int) -> float:
        return base - 2 - (min(max(offset, first), last) - first) * scale

    begun = max(0, int(np.searchsorted(log.times_ms, canvas.picture.from_ms, side="right")) - 1)
    points = [
        (canvas.axis.x(time), height_of(offset), offset)
        for time, offset in zip(log.times_ms.tolist()[begun:], log.offsets.tolist()[begun:], strict=True)
    ]
    draw_stalls(canvas, base - LOG_PIXELS, base)
    committed = last if log.committed is None else log.committed
    solid = [point for point in points if point[2] <= committed]
    dashed = [*solid[-1:], *(point for point in points if point[2] > committed)]
    if len(solid) > 1:
        title = f"the log's end, committed up to offset {solid[-1][2] - 1}"
        canvas.shape("path", title, d=_stairs(solid), class_="log-end")
    if len(dashed) > 1:
        canvas.used.add("not-proven")
        title = f"the log's end up to offset {last - 1}, not proven committed from offset {committed} on"
        canvas.shape("path", title, d=_stairs(dashed), class_="not-proven")
    canvas.shape("line", x1=canvas.left, x2=canvas.right, y1=base, y2=base, class_="base")
    y = base - LOG_PIXELS - 6 if canvas.is_narrow else base - 2
    canvas.text(0, y, "Log end", "b soft")
    _label_log_end(canvas, y if canvas.is_narrow else base - LOG_PIXELS + 8)
    _label_stalls(canvas, base, points)
    return height_of


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


def _label_stalls(canvas: Canvas, base: float, points: Sequence[Point]) -> None:
    """How long nothing was committed, above the log's end or below it."""
    for stall in canvas.picture.stalls:
        x0, x1 = canvas.axis.x(max(stall.from_ms, canvas.picture.from_ms)), canvas.end_x(stall.to_ms)
        half = text_width(stall.text) / 2
        middle = (x0 + x1) / 2
        lowest = max((y for x, y, _ in points if x <= x1), default=base)
        lowest = max((y for x, y, _ in points if x0 <= x <= x1), default=lowest)
        y = base - 5 if lowest < base - 18 else base - LOG_PIXELS + 12
        if half * 2 + 8 < x1 - x0 and not canvas.is_across_fold(middle - half, middle + half):
            canvas.text(middle, y, stall.text, "alarm", anchor="middle")


def _draw_branch(canvas: Canvas, branch: DrawnBranch, height_of: Height | None) -> None:
    """A branch as a lane that parts from the log's end, up to where it was cut off or where its disks end."""
    x0, x1 = canvas.axis.x(branch.from_ms), canvas.axis.x(branch.to_ms)
    wide = text_width(branch.label) + 18
    is_beside = not canvas.is_narrow and (x1 + wide < canvas.right or x0 - wide > canvas.left)
    lines = [] if is_beside else wrapped(branch.label, canvas.width if canvas.is_narrow else canvas.right - canvas.left)
    canvas.y += LANE_PIXELS + (len(lines) + canvas.is_narrow) * LABEL_PIXELS
    y = canvas.y - 13
    css = "alarm b" if branch.alarms else "soft"
    first = y - 12 - len(lines) * LABEL_PIXELS if canvas.is_narrow else y + 4
    canvas.text(0, first, f"at {branch.from_offset}", "b", on_paper=True)
    canvas.text(canvas.width, first, branch.standing, css, anchor="end", on_paper=True)
    for number, line in enumerate(reversed(lines)):
        canvas.text(canvas.left - 4, y - 12 - number * LABEL_PIXELS, line, css.split()[0], on_paper=True)
    if branch.parted_ms is not None and branch.parted_ms >= canvas.picture.from_ms:
        x = canvas.axis.x(branch.parted_ms)
        begin = y - 9 if height_of is None else height_of(branch.from_offset)
        title = f"parts from the log at offset {branch.from_offset}"
        canvas.shape("path", title, d=f"M{x:.1f} {begin:.1f}V{y:.1f}H{max(x, x0):.1f}", class_="parted")
    band = Band(BandKind.DIVERGED, branch.from_ms, max(branch.to_ms, branch.from_ms + 1))
    draw_band(canvas, band, y, f"branch: {branch.label}")
    if not any(mark.kind is MarkKind.CUT for mark in branch.marks):
        draw_cap(canvas, branch.to_ms, y, "branch: it ends")
    draw_marks(canvas, branch.marks, y, "branch")
    if is_beside:
        after = canvas.text(x1 + 12, y + 4, branch.label, css.split()[0], right=canvas.right - 6, on_paper=True)
        after or canvas.text(x0 - 12, y + 4, branch.label, css.split()[0], anchor="end", on_paper=True)


def _stairs(points: Sequence[Point]) -> str:
    first, *rest = points
    return f"M{first[0]:.1f} {first[1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y, _ in rest)
