"""How a row of a table for people becomes lines: in one where there is room, else in as many as it needs.

Nothing is left out and no number is parted: whoever reads an offset must not take a piece of it for the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

GAP: Final = "  "
INDENT: Final = " " * 4
"""What follows of a row that needs several lines."""
FOLDED_CHARACTERS_MIN: Final = 30
"""Text goes into less room than it has only where so much is left; else it begins a line of its own."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a column's cells go, and whether what is longer than `width` is folded."""

    place: int
    width: int
    is_number: bool
    is_folded: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of each line of a row."""

    bands: tuple[tuple[Slot, ...], ...]

    def lines(self, cells: Sequence[str]) -> Iterator[str]:
        """The lines of one row."""
        for number, band in enumerate(self.bands):
            pieces = [
                _folded(cells[slot.place], slot.width) if slot.is_folded else [cells[slot.place]] for slot in band
            ]
            if number and not any(cells[slot.place] for slot in band):
                continue
            for line in zip_longest(*pieces, fillvalue=""):
                parts = [
                    text.rjust(slot.width) if slot.is_number else text.ljust(slot.width)
                    for text, slot in zip(line, band, strict=True)
                ]
                yield ((INDENT if number else "") + GAP.join(parts)).rstrip()


def layout(widths: Sequence[int], numbers: Sequence[bool], room: int | None) -> Layout:
    """Columns of these widths in lines of `room` characters; in one line, whatever it takes, where that is None."""
    columns = list(zip(widths, numbers, strict=True))
    if room is None:
        return Layout((tuple(Slot(place, width, number, False) for place, (width, number) in enumerate(columns)),))
    bands: list[list[Slot]] = [[]]
    used = 0
    for place, (width, is_number) in enumerate(columns):
        left = room - used
        may_fold = not is_number and width > FOLDED_CHARACTERS_MIN <= left
        if width > left and not may_fold and bands[-1]:
            bands.append([])
            used = len(INDENT)
            left = room - used
        given = width if is_number else max(min(width, left), 1)
        bands[-1].append(Slot(place, given, is_number, not is_number))
        used += given + len(GAP)
    return Layout(tuple(map(tuple, bands)))


def _folded(text: str, width: int) -> list[str]:
    """Text in pieces of at most `width` characters, parted at spaces and commas, never between digits if it can be."""
    pieces = []
    start = 0
    while len(text) - start > width:
        end = start + width
        place = 1 + max(text.rfind(" ", start, end + 1), text.rfind(",", start, end))
        if not place:
            place = end
            while place > start + 1 and text[place - 1].isdigit() and text[place].isdigit():
                place -= 1
            place = place if place > start + 1 else end
        pieces.append(text[start:place].rstrip(" "))
        start = place
        while text.startswith(" ", start):
            start += 1
    return [*pieces, text[start:]] if start < len(text) or not pieces else pieces
