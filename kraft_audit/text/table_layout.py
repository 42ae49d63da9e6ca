"""Where the columns of a table stand in a terminal's lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

GAP: Final = "  "
INDENT: Final = " " * 4
"""Before each further line of a row."""
FOLDED_CHARACTERS_MIN: Final = 30
"""Text is folded only where at least so much room is left; else it begins its own line."""
_WORD: Final = re.compile("[^ ,]*,|[^ ,]+")


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a column's cells go, and whether what is longer than `width` is folded."""

    place: int
    width: int
    is_number: bool
    is_folded: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of each line of a row: one line where there is room, else as many as it needs.

    Nothing is left out and no number is split: a reader must not take a piece of an offset for the whole. A word that
    is longer than a line stands alone; it is cut only beside other columns, where none of the first rows is so long.
    """

    bands: tuple[tuple[Slot, ...], ...]

    def lines(self, cells: Sequence[str]) -> Iterator[str]:
        """The lines of a row."""
        for number, band in enumerate(self.bands):
            pieces = [
                _folded(cells[slot.place], slot.width, may_cut=len(band) > 1) if slot.is_folded else [cells[slot.place]]
                for slot in band
            ]
            if number and not any(cells[slot.place] for slot in band):
                continue
            for line in zip_longest(*pieces, fillvalue=""):
                parts = [
                    text.rjust(slot.width) if slot.is_number else text.ljust(slot.width)
                    for text, slot in zip(line, band, strict=True)
                ]
                yield ((INDENT if number else "") + GAP.join(parts)).rstrip()


def layout(widths: Sequence[int], words: Sequence[int], numbers: Sequence[bool], room: int | None) -> Layout:
    """Columns of these widths, and with words so long, in lines of `room` characters; None is a line of any length."""
    columns = list(zip(widths, words, numbers, strict=True))
    if room is None:
        return Layout((tuple(Slot(place, width, number, False) for place, (width, _, number) in enumerate(columns)),))
    bands: list[list[Slot]] = [[]]
    used = 0
    for place, (width, word, is_number) in enumerate(columns):
        left, width = room - used, width if is_number else max(width, word)  # no word is cut
        may_fold = not is_number and width > FOLDED_CHARACTERS_MIN <= left and word <= left
        if width > left and not may_fold and bands[-1]:
            bands.append([])
            used = len(INDENT)
            left = room - used
        given = width if is_number else max(min(width, left), 1)
        bands[-1].append(Slot(place, given, is_number, not is_number))
        used += given + len(GAP)
    return Layout(tuple(map(tuple, bands)))


def longest_word(text: str) -> int:
    """The length of the longest piece of a cell that is not split."""
    return max(map(len, _WORD.findall(text)), default=0)


def _folded(text: str, width: int, *, may_cut: bool) -> list[str]:
    """Text in pieces of at most `width` characters, split at spaces and commas; a longer word is whole, or cut."""
    pieces = []
    start = 0
    while len(text) - start > width:
        end = start + width
        place = 1 + max(text.rfind(" ", start, end + 1), text.rfind(",", start, end))
        if not place and not may_cut:
            word = _WORD.match(text, start)
            place = len(text) if word is None else word.end()
        elif not place:
            place = end
            while place > start + 1 and text[place - 1].isdigit() and text[place].isdigit():
                place -= 1
            place = place if place > start + 1 else end
        pieces.append(text[start:place].rstrip(" "))
        start = place
        while text.startswith(" ", start):
            start += 1
    return [*pieces, text[start:]] if start < len(text) or not pieces else pieces
