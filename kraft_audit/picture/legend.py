"""Marks, patterns and the legend of a picture: every state differs by its pattern or outline, not by colour alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kraft_audit.picture.canvas import element, text_width, written
from kraft_audit.picture.happened import BandKind, MarkKind, SeriesKind

ROW_PIXELS: Final = 20.0
SWATCH: Final = 20.0
WORDS: Final[dict[str, str]] = {
    BandKind.LEADER: "leader",
    BandKind.IN_SERVICE: "follower, or broker in service",
    BandKind.OBSERVER: "observer, not a voter",
    BandKind.DIVERGED: "records of a branch: they parted from the log",
    BandKind.FENCED: "fenced",
    BandKind.SHUTTING_DOWN: "shutting down",
    BandKind.DOWN: "down, stopped in order",
    BandKind.STARTING: "registered, not yet in service",
    "cap": "log ends; nothing after it",
    "silent": "nothing known",
    "stall": "nothing committed",
    MarkKind.ELECTED: "elected",
    MarkKind.ADDED: "voter added",
    MarkKind.REMOVED: "voter removed",
    MarkKind.RESTARTED: "restarted, no controlled shutdown",
    MarkKind.LOG_DIR_FAILED: "log dir failed",
    MarkKind.CUT: "cut off: a later capture lacks it",
    MarkKind.EMPTY: "disk holds no record",
    "loss": "partitions that lost acknowledged records",
    "possible-loss": "partitions that may have lost acknowledged records",
    "not-proven": "appended, not proven committed",
    "fold": "quiet time, not to scale",
}
PATTERNED: Final = (BandKind.FENCED, BandKind.SHUTTING_DOWN, BandKind.DIVERGED)


@dataclass(frozen=True, slots=True)
class Legend:
    """The legend and its height in pixels."""

    markup: str
    height: float


def legend(used: Collection[str], width: float, y: float, prefix: str) -> Legend:
    """The marks that are used, in rows within the width."""
    parts = []
    x, row = 0.0, 0
    for kind, words in WORDS.items():
        if kind not in used:
            continue
        wide = SWATCH + 8 + text_width(words) + 18
        if x and x + wide - 18 > width:
            x, row = 0.0, row + 1
        middle = y + row * ROW_PIXELS + ROW_PIXELS / 2
        parts.append(_swatch(kind, x, middle, prefix))
        parts.append(element("text", written(words), x=x + SWATCH + 8, y=middle + 4, class_="soft"))
        x += wide
    return Legend("".join(parts), ROW_PIXELS * (row + 1) + 4)


def _swatch(kind: str, x: float, y: float, prefix: str) -> str:
    middle = x + SWATCH / 2
    if kind in set(MarkKind):
        return mark_shape(MarkKind(kind), middle, y)
    match kind:
        case "loss" | "possible-loss":
            return loss_shape(middle, y, kind)
        case "cap":
            cap = element("line", x1=x + 2, x2=x + 2, y1=y - 7, y2=y + 7, class_="cap")
            return cap + element("line", x1=x + 6, x2=x + SWATCH, y1=y, y2=y, class_="silent")
        case "silent":
            return element("line", x1=x, x2=x + SWATCH, y1=y, y2=y, class_="silent")
        case "not-proven":
            return element("path", d=f"M{x:.1f} {y:.1f}h{SWATCH:.0f}", class_=kind)
        case "fold":
            return "".join(
                element("line", x1=at, x2=at, y1=y - 7, y2=y + 7, class_="fold") for at in (x + 5, x + SWATCH - 5)
            )
        case _:
            height = (
                6.0 if kind == BandKind.IN_SERVICE else 8.0 if kind in (BandKind.OBSERVER, BandKind.STARTING) else 14.0
            )
            fill = f"url(#{prefix}-{kind})" if kind in PATTERNED else None
            return element("rect", x=x, y=y - height / 2, width=SWATCH, height=height, class_=kind, fill=fill)


def loss_shape(x: float, y: float, kind: str) -> str:
    """The mark of partitions that lost acknowledged records or may have (`kind`), with its middle at (x, y)."""
    return element("path", d=f"M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5Z", class_=kind)


def mark_shape(kind: MarkKind, x: float, y: float) -> str:
    """The mark of an event of a node, with its middle at (x, y)."""
    match kind:
        case MarkKind.ELECTED:
            return element("path", d=f"M{x:.1f} {y - 6:.1f}l6 11h-12Z", class_="mark")
        case MarkKind.ADDED | MarkKind.REMOVED:
            bars = f"M{x - 3.2:.1f} {y:.1f}h6.4" + (f"M{x:.1f} {y - 3.2:.1f}v6.4" if kind is MarkKind.ADDED else "")
            return element("circle", cx=x, cy=y, r=6.0, class_="mark-open") + element(
                "path", d=bars, class_="mark-line"
            )
        case MarkKind.LOG_DIR_FAILED:
            box = element("rect", x=x - 5, y=y - 5, width=10, height=10, class_="mark-open")
            return box + element("path", d=f"M{x - 5:.1f} {y + 5:.1f}l10 -10", class_="cross")
        case MarkKind.RESTARTED:
            path = f"M{x - 4:.1f} {y - 4:.1f}l8 8M{x + 4:.1f} {y - 4:.1f}l-8 8"
            return element("path", d=path, class_="cross-edge") + element("path", d=path, class_="cross")
        case MarkKind.CUT:
            path = f"M{x - 4:.1f} {y + 8:.1f}l4 -16M{x + 1:.1f} {y + 8:.1f}l4 -16"
            return element("path", d=path, class_="cross-edge") + element("path", d=path, class_="cut")
        case MarkKind.EMPTY:
            slash = element("path", d=f"M{x - 6:.1f} {y + 6:.1f}l12 -12", class_="cross")
            return element("circle", cx=x, cy=y, r=6.0, class_="mark-open") + slash


def patterns(prefix: str) -> str:
    """The fills of states: fenced diagonal, shutting down vertical, blocked dotted, diverged crossed."""
    diagonal = _lines("stripe-alarm", (1.0,), 6)
    crossed = diagonal + element("line", x1=0, x2=6, y1=1, y2=1, class_="stripe-alarm")
    fills = (
        (BandKind.FENCED, 6, "rotate(45)", "wash-alarm", diagonal),
        (SeriesKind.AT_ONE_REPLICA, 6, "rotate(45)", "wash-alarm", diagonal),
        (BandKind.DIVERGED, 6, "rotate(45)", "wash-alarm", crossed),
        (BandKind.SHUTTING_DOWN, 5, None, "wash-warn", _lines("stripe-warn", (1.0,), 5)),
        (SeriesKind.BLOCKED, 5, None, "wash-warn", element("circle", cx=1.5, cy=1.5, r=1.1, class_="dot-warn")),
        (SeriesKind.OFFLINE, 4, None, "solid-alarm", ""),
    )
    return element(
        "defs",
        "".join(
            element(
                "pattern",
                element("rect", width=size, height=size, class_=wash) + shapes,
                id=f"{prefix}-{kind}",
                width=size,
                height=size,
                patternUnits="userSpaceOnUse",
                patternTransform=turned,
            )
            for kind, size, turned, wash, shapes in fills
        ),
    )


def _lines(css: str, places: tuple[float, ...], size: int) -> str:
    return "".join(element("line", x1=x, x2=x, y1=0, y2=size, class_=css) for x in places)
