"""Draws a picture as SVG at a given width: nothing is scaled, so that texts are readable at every width."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from kraft_audit.picture.canvas import HEADING, Canvas, element, written
from kraft_audit.picture.draw_log import draw_log
from kraft_audit.picture.draw_nodes import draw_lane, draw_left_out, place_lanes
from kraft_audit.picture.draw_partitions import SERIES_TITLES, draw_partitions
from kraft_audit.picture.draw_time import (
    draw_brackets,
    draw_fold_lengths,
    draw_folds,
    draw_grid,
    draw_stalls,
    draw_ticks,
)
from kraft_audit.picture.happened import Lane, Picture
from kraft_audit.picture.legend import legend, patterns
from kraft_audit.text.readable import plural, when

WIDTHS: Final = (1080, 700, 358)
"""Pixels of a wide page, of print, of a telephone."""
SVG_NAMESPACE: Final = "http://www.w3.org/2000/svg"


@cache
def style() -> str:
    """The style sheet of pictures: of a page that holds them, or within an SVG that stands alone."""
    return files("kraft_audit.picture").joinpath("assets", "picture.css").read_text(encoding="utf-8")


def draw(picture: Picture, width: int = WIDTHS[0], *, stands_alone: bool = False) -> str:
    """The picture as one SVG element of this width in pixels; all of its text is escaped.

    Within a page the numbers of incidents are links to `#incident-NUMBER`. An SVG that stands alone has its own style.
    """
    canvas = Canvas(picture, width, stands_alone=stands_alone)
    draw_brackets(canvas)
    top = canvas.y
    lanes = place_lanes(canvas, "Controllers", picture.controllers)
    controllers_end = canvas.y
    lanes += place_lanes(canvas, "Brokers", picture.brokers)
    draw_left_out(canvas)
    draw_fold_lengths(canvas, top)
    above, canvas.shapes = canvas.shapes, []
    draw_partitions(canvas)
    draw_log(canvas)
    bottom = canvas.y
    below, canvas.shapes = canvas.shapes, []
    draw_grid(canvas, top, bottom)
    if picture.controllers:
        draw_stalls(canvas, top + HEADING - 2, controllers_end)
    for place in lanes:
        draw_lane(canvas, place)
    canvas.shapes += [*above, *below]
    draw_folds(canvas, top, bottom)
    draw_ticks(canvas)
    return _root(canvas)


def _root(canvas: Canvas) -> str:
    picture, prefix = canvas.picture, canvas.prefix
    keys = legend(canvas.used, canvas.width, canvas.y + 8, prefix)
    height = round(canvas.y + 8 + keys.height)
    span = f"{when(picture.from_ms)} to {when(picture.to_ms, picture.from_ms)} UTC"
    drawn = "".join((*canvas.shapes, canvas.texts, keys.markup))
    parts = (
        element("title", written(f"{picture.title}, {span}"), id=f"{prefix}-title"),
        element("desc", written(description(picture)), id=f"{prefix}-text"),
        element("style", style()) if canvas.stands_alone else "",
        patterns(prefix),
        # What is drawn is in the description; of a picture whose numbers can be followed, the links are read too.
        element("g", drawn, aria_hidden="true") if canvas.links else drawn,
        *canvas.links,
    )
    return element(
        "svg",
        "".join(parts),
        xmlns=SVG_NAMESPACE if canvas.stands_alone else None,
        class_=f"picture w{canvas.width:.0f}",
        viewBox=f"0 0 {canvas.width:.0f} {height}",
        width=canvas.width,
        height=height,
        role="group" if canvas.links else "img",
        aria_labelledby=f"{prefix}-title {prefix}-text",
    )


def description(picture: Picture) -> str:
    """The picture in sentences, for a reader who does not see it."""
    parts = [f"{plural(len(picture.controllers), 'controller')}, {plural(len(picture.brokers), 'broker')}."]
    for bracket in sorted(picture.brackets, key=lambda bracket: bracket.number):
        end = "open" if bracket.to_ms is None else f"to {when(bracket.to_ms, bracket.from_ms)}"
        parts.append(f"Incident {bracket.number}: {bracket.label}, from {when(bracket.from_ms)}, {end}.")
    parts += [_in_words(lane) for lane in picture.controllers]
    parts += [_in_words(lane) for lane in picture.brokers if lane.alarms or not lane.is_quiet]
    parts += [
        f"{SERIES_TITLES[series.kind]}: at most {plural(series.peak, 'partition')}, {series.last:,} at the end."
        for series in picture.drawn_series
    ]
    for word, count in (
        ("lost", sum(loss.proven for loss in picture.losses)),
        ("may have lost", sum(loss.possible for loss in picture.losses)),
    ):
        parts += [f"Losses: {plural(count, 'partition')} {word} acknowledged records."] if count else []
    parts += [f"{stall.text.capitalize()}, from {when(stall.from_ms)}." for stall in picture.stalls]
    parts += [f"Branch: {branch.label}; {branch.standing}." for branch in picture.branches]
    parts += [f"{picture.sentence}."] if picture.sentence else []
    parts += [f"{', '.join(standing).capitalize()}."] if (standing := picture.log_end.standing) else []
    return " ".join(parts)


def _in_words(lane: Lane) -> str:
    return f"{lane.role} {lane.name}: {lane.standing}.".strip().capitalize()
