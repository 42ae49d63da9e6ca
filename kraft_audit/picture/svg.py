"""Elements of an SVG as escaped text, and how wide a text is."""

from __future__ import annotations

from typing import Final

from markupsafe import escape

from kraft_audit.text.output import neutral

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


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return written(str(value))


def touch(box: Box, second: Box) -> bool:
    """Whether two boxes have a pixel in common."""
    return box[0] < second[2] and second[0] < box[2] and box[1] < second[3] and second[1] < box[3]
