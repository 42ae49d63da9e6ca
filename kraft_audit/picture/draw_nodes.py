"""Draws the lanes of nodes: normal is thin, trouble fills the lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kraft_audit.picture.canvas import HEADING, Canvas, in_time, text_width
from kraft_audit.picture.happened import TROUBLE, Band, BandKind, Lane, Mark
from kraft_audit.picture.legend import PATTERNED, WORDS, mark_shape
from kraft_audit.text.readable import plural

THICK, PARTED, OUTLINED, THIN = 16.0, 10.0, 8.0, 6.0
LANE_PIXELS, NARROW_LANE_PIXELS = 26.0, 36.0
BAND_HEIGHTS: Final = {
    **dict.fromkeys((*TROUBLE, BandKind.LEADER), THICK),
    **dict.fromkeys((BandKind.OBSERVER, BandKind.STARTING), OUTLINED),
    BandKind.DIVERGED: PARTED,
}
"""Of bands, in pixels: of a branch so many that it is seen who led meanwhile."""


@dataclass(frozen=True, slots=True)
class LanePlace:
    """A lane, and the middle of its bands."""

    lane: Lane
    middle: float


def place_lanes(canvas: Canvas, title: str, lanes: Sequence[Lane]) -> list[LanePlace]:
    """Makes room for a heading and the lanes below it; none of either where there is no lane."""
    places: list[LanePlace] = []
    if lanes:
        canvas.y += HEADING
        canvas.text(0, canvas.y - 7, title.removesuffix("s") if len(lanes) == 1 else title, "b soft")
    for lane in lanes:
        height = NARROW_LANE_PIXELS if canvas.is_narrow else LANE_PIXELS
        places.append(LanePlace(lane, canvas.y + height - 13))
        canvas.y += height
    return places


def draw_left_out(canvas: Canvas) -> None:
    """How many brokers have no lane."""
    if canvas.picture.lanes_left_out:
        canvas.y += 18
        text = f"{plural(canvas.picture.lanes_left_out, 'more broker')}, each with less trouble, not drawn"
        canvas.text(canvas.left, canvas.y - 5, text, "soft")


def draw_lane(canvas: Canvas, place: LanePlace) -> None:
    """One node: its name, how it stood at the end, its bands and marks."""
    lane, y = place.lane, place.middle
    css = "alarm b" if lane.alarms else "soft"
    if canvas.is_narrow:
        canvas.text(0, y - 12, f"{lane.name} {lane.role}".strip(), "b")
        canvas.text(canvas.width, y - 12, lane.standing, css, anchor="end")
    else:
        canvas.text(0, y + 4, lane.name, "b")
        canvas.text(max(24.0, text_width(lane.name, is_bold=True) + 6), y + 4, lane.role, "soft")
        canvas.text(canvas.width, y + 4, lane.standing, css, anchor="end")
    who = f"{lane.role} {lane.name}".strip()
    _draw_silence(canvas, lane, y)
    for band in lane.bands:
        draw_band(canvas, band, y, who)
    for band in lane.bands:
        if band.kind is BandKind.LEADER:
            parted = (other.from_ms for other in lane.bands if other.kind is BandKind.DIVERGED)
            until = min((at_ms for at_ms in parted if band.from_ms <= at_ms < band.to_ms), default=band.to_ms)
            _label_leader(canvas, band, until, y)
    if lane.ends_ms is not None:
        draw_cap(canvas, lane.ends_ms, y, f"{who}: {lane.end_label or 'the log ends'}")
    draw_marks(canvas, lane.marks, y, who)


def draw_cap(canvas: Canvas, at_ms: int, y: float, title: str) -> None:
    """Where what is known of a log ends."""
    x = canvas.axis.x(at_ms)
    canvas.used.add("cap")
    canvas.shape("line", in_time(title, at_ms), x1=x, x2=x, y1=y - 8, y2=y + 8, class_="cap")


def draw_marks(canvas: Canvas, marks: Sequence[Mark], y: float, who: str) -> None:
    """What happened at one moment; what came before the picture begins is not drawn."""
    for mark in sorted(marks, key=lambda mark: mark.at_ms):
        if canvas.picture.from_ms <= mark.at_ms:
            canvas.used.add(mark.kind)
            title = in_time(f"{who}: {mark.text or WORDS[mark.kind]}", mark.at_ms)
            canvas.mark(mark_shape(mark.kind, canvas.axis.x(mark.at_ms), y), title)


def _draw_silence(canvas: Canvas, lane: Lane, y: float) -> None:
    """Dots where nothing is known of a node: after its log's end, or all along where it has none."""
    title = f"{lane.role} {lane.name}: nothing known"
    if lane.ends_ms is None:
        if all(band.kind in (BandKind.LEADER, BandKind.DIVERGED) for band in lane.bands):
            canvas.used.add("silent")
            canvas.shape("line", title, x1=canvas.left, x2=canvas.right, y1=y, y2=y, class_="silent")
        return
    begin = canvas.axis.x(lane.ends_ms) + 4
    is_last = all(band.to_ms <= lane.ends_ms for band in lane.bands)
    if lane.end_label and is_last and not canvas.is_narrow:
        css = "alarm b" if lane.alarms else "soft"
        marks = (canvas.axis.x(mark.at_ms) - 8 for mark in lane.marks if mark.at_ms > lane.ends_ms)
        if canvas.text(begin + 3, y + 4, lane.end_label, css, right=min((canvas.right - 6, *marks))):
            begin += 8 + text_width(lane.end_label, is_bold=lane.alarms)
    if begin < canvas.right:
        canvas.shape("line", title, x1=begin, x2=canvas.right, y1=y, y2=y, class_="silent")


def draw_band(canvas: Canvas, band: Band, y: float, who: str) -> None:
    """A state that lasted, if the picture has any of it."""
    if band.to_ms <= canvas.picture.from_ms or band.to_ms <= band.from_ms:
        return
    canvas.used.add(BandKind.IN_SERVICE if band.kind is BandKind.FOLLOWER else band.kind)
    words = band.label or (str(band.kind) if band.kind is BandKind.FOLLOWER else WORDS[band.kind].rpartition(" or ")[2])
    title = in_time(f"{who}: {words}", band.from_ms, band.to_ms)
    x0, x1 = canvas.axis.x(band.from_ms), canvas.axis.x(band.to_ms)
    height = BAND_HEIGHTS.get(band.kind, THIN)
    fill = canvas.pattern(band.kind) if band.kind in PATTERNED else None
    width = max(1.5, x1 - x0)
    canvas.shape("rect", title, x=x0, y=y - height / 2, width=width, height=height, class_=band.kind, fill=fill)
    if band.label and band.kind is not BandKind.LEADER:
        half = text_width(band.label) / 2
        middle = (x0 + x1) / 2
        if half * 2 + 12 < x1 - x0 and not canvas.is_across_fold(middle - half, middle + half):
            canvas.text(middle, y + 4, band.label, "alarm", anchor="middle", on_paper=True)


def _label_leader(canvas: Canvas, band: Band, until_ms: int, y: float) -> None:
    """The longest label that fits where the band begins, or after one of its folds; else over what is drawn on it."""
    x0, x1, label = canvas.axis.x(band.from_ms), canvas.axis.x(until_ms), band.label
    begins = [x0 + 12, *(fold.x1 + 8 for fold in canvas.axis.folds if x0 < fold.x1 < x1)]
    for text in (label, label.removeprefix("leader, ")):
        wide = text_width(text, is_bold=True)
        for x in begins:
            fits = x + wide + 6 < x1 and not canvas.is_across_fold(x, x + wide)
            if fits and canvas.text(x, y + 4, text, "on b"):
                return
    if until_ms < band.to_ms and text_width(label) + 24 < canvas.axis.x(band.to_ms) - x0:
        canvas.text((x0 + canvas.axis.x(band.to_ms)) / 2, y + 4, label, "b", anchor="middle", on_paper=True)
