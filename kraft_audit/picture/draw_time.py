"""Draws what spans the whole height: incidents above the lanes, times without a commit, ticks and folds of the axis."""

from __future__ import annotations

from typing import Final

from kraft_audit.picture.canvas import HEADING, Box, Canvas, element, in_time, text_width, title_element
from kraft_audit.picture.happened import Bracket
from kraft_audit.text.readable import duration, plural

BRACKET_ROWS: Final = 4
BRACKET_PIXELS: Final = 30.0
DISC: Final = 8.5


def draw_brackets(canvas: Canvas) -> None:
    """The incidents with their numbers; how many found no room is said."""
    rows, left_out = 0, canvas.picture.earlier
    for bracket in canvas.picture.brackets:
        row = _draw_bracket(canvas, bracket)
        rows, left_out = (max(rows, row + 1), left_out) if row is not None else (rows, left_out + 1)
    canvas.y += BRACKET_PIXELS * rows + (4 if rows else 0)
    if left_out:
        canvas.y += 16
        canvas.text(canvas.left, canvas.y - 4, f"{plural(left_out, 'more incident')} not numbered here", "soft")


def _draw_bracket(canvas: Canvas, bracket: Bracket) -> int | None:
    """The row that it got: a disc with the number, the label where there is room, and the span. None: no room."""
    x0 = canvas.axis.x(bracket.from_ms)
    x1 = max(x0 + 4, canvas.end_x(bracket.to_ms))
    middle = min(max(x0, DISC + 0.5), canvas.width - DISC - 0.5)
    row = next((row for row in range(BRACKET_ROWS) if _has_room(canvas, row, middle, x0, x1, bracket.label)), None)
    if row is None:
        row = next((row for row in range(BRACKET_ROWS) if _has_room(canvas, row, middle, x0, x1, "")), None)
    if row is None:
        return None
    y = 12 + row * BRACKET_PIXELS
    css = "b alarm" if bracket.is_open else "b"
    is_placed = canvas.text(middle + 13, y + 4, bracket.label, css, gap=2)
    is_placed or canvas.text(middle - 13, y + 4, bracket.label, css, anchor="end", gap=2)
    for box in _boxes(y, middle, x0, x1):
        canvas.take(box)
    kind = " open" if bracket.is_open else ""
    disc = element("circle", cx=middle, cy=y, r=DISC, class_=f"disc{kind}")
    disc += element("text", str(bracket.number), x=middle, y=y + 4.2, class_="on b", text_anchor="middle")
    about = f"Incident {bracket.number}: {bracket.label}"
    if canvas.stands_alone:
        canvas.over(element("g", title_element(about) + disc))
    else:
        canvas.links.append(element("a", disc, href=f"#incident-{bracket.number}", aria_label=about))
    title = in_time(about, bracket.from_ms, bracket.to_ms)
    canvas.shape("path", title, d=f"M{x0:.1f} {y + 17:.1f}v-4H{x1:.1f}v4", class_=f"bracket{kind}")
    return row


def _boxes(y: float, middle: float, x0: float, x1: float) -> tuple[Box, Box]:
    return (middle - 10, y - 9, middle + 10, y + 9), (x0 - 3, y + 10, x1 + 3, y + 18)


def _has_room(canvas: Canvas, row: int, middle: float, x0: float, x1: float, label: str) -> bool:
    y = 12 + row * BRACKET_PIXELS
    wide = text_width(label, is_bold=True) + 16 if label else 0.0
    sides = [(middle, y - 9, middle + wide, y + 9)] * (middle + wide < canvas.width)
    sides += [(middle - wide, y - 9, middle, y + 9)] * (middle - wide > 0)
    return all(map(canvas.is_free, _boxes(y, middle, x0, x1))) and any(map(canvas.is_free, sides))


def draw_stalls(canvas: Canvas, top: float, bottom: float) -> None:
    """A tint over the times when nothing was committed."""
    for stall in canvas.picture.stalls:
        if stall.to_ms is None or stall.to_ms > canvas.picture.from_ms:
            x0, x1 = canvas.axis.x(stall.from_ms), canvas.end_x(stall.to_ms)
            canvas.used.add("stall")
            wide = max(2.0, x1 - x0)
            canvas.shape("rect", stall.text, x=x0, y=top, width=wide, height=bottom - top, class_="stall")
            for x in (x0, x1):
                canvas.shape("line", x1=x, x2=x, y1=top, y2=bottom, class_="stall-edge")


def draw_grid(canvas: Canvas, top: float, bottom: float) -> None:
    """A line at each tick of the axis, below everything."""
    for tick in canvas.axis.ticks():
        canvas.shape("line", x1=tick.x, x2=tick.x, y1=top + 4, y2=bottom, class_="grid")


def draw_ticks(canvas: Canvas) -> None:
    """The times below the axis, and below them the days."""
    ticks = canvas.axis.ticks()
    canvas.y += 16
    for tick in ticks:
        _centred(canvas, tick.x, tick.label)
    canvas.y += 15
    for place, tick in enumerate(tick for tick in ticks if tick.day):
        _centred(canvas, tick.x, f"{tick.day} UTC" if place == 0 else tick.day)


def _centred(canvas: Canvas, x: float, text: str) -> None:
    half = text_width(text) / 2
    canvas.text(min(max(x, half), canvas.width - half), canvas.y, text, "soft", anchor="middle")


def draw_folds(canvas: Canvas, top: float, bottom: float) -> None:
    """Quiet stretches, with how long each is."""
    y = top + HEADING - 4
    for fold in canvas.axis.folds:
        canvas.used.add("fold")
        title = f"{duration(fold.length_ms)} in which nothing happened, not to scale"
        canvas.shape("rect", title, x=fold.x0, y=y, width=fold.x1 - fold.x0, height=bottom - y + 2, class_="paper")
        for x in (fold.x0, fold.x1):
            canvas.shape("line", x1=x, x2=x, y1=y, y2=bottom, class_="fold")


def draw_fold_lengths(canvas: Canvas, top: float) -> None:
    """How long each fold is, in its largest unit."""
    for fold in canvas.axis.folds:
        length = " ".join(duration(fold.length_ms).split(" ")[:2])
        canvas.text((fold.x0 + fold.x1) / 2, top + HEADING - 7, length, "soft", anchor="middle")
