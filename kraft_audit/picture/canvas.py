"""What the parts of a drawing share: elements of an SVG, where things are, which texts and marks stand where."""

from __future__ import annotations

from typing import Final

from markupsafe import escape

from kraft_audit.picture.happened import Picture
from kraft_audit.picture.time_axis import TimeAxis
from kraft_audit.text.output import neutral
from kraft_audit.text.readable import when

NARROW: Final = frozenset("ijl|.,:;'!()[] ftrI1")
WIDE: Final = frozenset("mwMWQO@%")
NARROW_PIXELS, COMMON_PIXELS, WIDE_PIXELS = 5.2, 7.5, 11.2
"""Of 12 pixel text, as the widest of the common system fonts (DejaVu Sans) draws it."""
BOLD: Final = 1.1
Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def text_width(text: str, *, is_bold: bool = False) -> float:
    """How wide a text of 12 pixels is at most, in pixels."""
    width = sum(
        NARROW_PIXELS if letter in NARROW else WIDE_PIXELS if letter in WIDE else COMMON_PIXELS for letter in text
    )
    return width * (BOLD if is_bold else 1.0)


def wrapped(text: str, width: float) -> list[str]:
    """Lines no wider than this, broken after commas; a part that is wider is a line of its own."""
    lines: list[str] = []
    for part in text.split(", "):
        joined = f"{lines[-1]}, {part}" if lines else part
        if lines and text_width(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(part)
    return lines


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """One element; `content` is markup. An attribute that is None is left out.

    Underscores in names of attributes stand for hyphens, one at the end for none:

    >>> element("line", x1=1.0, class_="edge", stroke_width=2)
    '<line x1="1" class="edge" stroke-width="2"/>'
    """
    pairs = (
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    start = f"<{name}{''.join(pairs)}"
    return f"{start}>{content}</{name}>" if content else f"{start}/>"


def written(text: str) -> str:
    """Any text as markup in which nothing acts."""
    return str(escape(neutral(text)))


def title_element(text: str) -> str:
    """What is said of a shape; nothing without a text."""
    return element("title", written(text)) if text else ""


def in_time(text: str, from_ms: int, to_ms: int | None = None) -> str:
    """What lasted from one time to another, or stands at one: the title of a shape."""
    return f"{text}, {when(from_ms)}" + ("" if to_ms is None else f" to {when(to_ms, from_ms)}") + " UTC"


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return written(str(value))


def touch(box: Box, second: Box) -> bool:
    """Whether two boxes have a pixel in common."""
    return box[0] < second[2] and second[0] < box[2] and box[1] < second[3] and second[1] < box[3]


NARROW_BELOW: Final = 600
HEADING: Final = 24.0
LINE_PIXELS: Final = 13.0
TAIL_PIXELS: Final = 36.0
"""Room after the log's end for what lasts."""


class Canvas:
    """A drawing that grows downwards: `y` is how far it has grown. Texts are drawn last, over all shapes."""

    def __init__(self, picture: Picture, width: int, *, stands_alone: bool) -> None:
        self.picture = picture
        self.width = float(width)
        self.stands_alone = stands_alone
        self.is_narrow = width < NARROW_BELOW
        self.left = 4.0 if self.is_narrow else 104.0
        self.right = self.width - (4.0 if self.is_narrow else 132.0)
        self.axis = TimeAxis(picture.moments_ms, picture.from_ms, picture.to_ms, self.left, self.right - TAIL_PIXELS)
        self.prefix = f"picture{width}"
        self.used: set[str] = set()
        self.y = 0.0
        self.shapes: list[str] = []
        self.links: list[str] = []
        self._texts: list[str] = []
        self._taken: list[Box] = []

    @property
    def texts(self) -> str:
        return "".join(self._texts)

    def shape(self, name: str, title: str = "", /, **attributes: object) -> None:
        """Adds one element; `title` is what a reader is told who points at it."""
        self.shapes.append(element(name, title_element(title), **attributes))

    def mark(self, markup: str, title: str) -> None:
        """Adds elements that are one mark."""
        self.shapes.append(element("g", title_element(title) + markup))

    def pattern(self, kind: str) -> str:
        """The fill that is named by this kind."""
        return f"url(#{self.prefix}-{kind})"

    def end_x(self, to_ms: int | None) -> float:
        """Where what ends then stops being drawn; None: it lasts."""
        return self.right if to_ms is None else self.axis.x(to_ms)

    def is_free(self, box: Box) -> bool:
        """Whether no text stands there yet."""
        return not any(touch(box, taken) for taken in self._taken)

    def take(self, box: Box) -> None:
        """Keeps a place free of texts."""
        self._taken.append(box)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        css: str = "",
        *,
        anchor: str = "start",
        gap: float = 3.0,
        right: float | None = None,
        on_paper: bool = False,
    ) -> bool:
        """Places a text with its baseline at `y`, unless it would touch another or leave the drawing.

        Bold where `css` has the class b; `right` is how far it may reach; `on_paper` hides what is drawn below it.
        """
        wide = text_width(text, is_bold="b" in css.split())
        left = x - (wide if anchor == "end" else wide / 2 if anchor == "middle" else 0.0)
        box = (left - gap, y - LINE_PIXELS + 2, left + wide + gap, y + 3)
        if left < -0.5 or left + wide > (self.width if right is None else right) + 0.5 or not self.is_free(box):
            return False
        self.take(box)
        if on_paper:
            paper = element("rect", x=left - 2, y=y - 10.5, width=wide + 4, height=13.0, class_="paper")
            self._texts.append(paper)
        anchored = None if anchor == "start" else anchor
        self._texts.append(element("text", written(text), x=x, y=y, class_=css or None, text_anchor=anchored))
        return True

    def over(self, markup: str) -> None:
        """Adds an element that is drawn with the texts, over all shapes."""
        self._texts.append(markup)

    def is_across_fold(self, left: float, right: float) -> bool:
        """Whether a span of the axis touches a fold."""
        return any(fold.x0 < right and left < fold.x1 for fold in self.axis.folds)
