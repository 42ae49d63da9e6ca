"""Where the columns of a table stand in a terminal's lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

from kraft_audit.text.wrapping import ends_with_command, wrapped

GAP: Final = "  "
INDENT: Final = " " * 4
"""Before each further line of a row."""
FOLDED_CHARACTERS_MIN: Final = 30
"""Text is folded only where at least so much room is left; else it begins its own line."""
SQUEEZED_CHARACTERS_MIN: Final = 20
"""A text may get as little as this where nothing is left to drop."""
WHOLE_CHARACTERS_MAX: Final = 24
"""A column that is not wider is never folded: a time, the ids of brokers, a directory id."""
_WORD: Final = re.compile("[^ ,]*,|[^ ,]+")


@dataclass(frozen=True, slots=True)
class ColumnNeed:
    """What a column needs: `width` for its cells as they are, `least` for its longest word.

    A wide column holds sentences, which may stand below their row.
    """

    place: int
    width: int
    least: int
    is_number: bool
    is_wide: bool


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

    No number and no word is split: a reader must not take a piece of an offset for the whole. A row with a longer word
    than its columns have room for has a layout of its own; a word that is longer than a line stands alone.
    """

    columns: tuple[ColumnNeed, ...]
    bands: tuple[tuple[Slot, ...], ...]
    room: int | None

    def lines(self, cells: Sequence[str]) -> Iterator[str]:
        """The lines of a row."""
        bands = [
            [folded(cells[slot.place], slot.width) if slot.is_folded else [cells[slot.place]] for slot in band]
            for band in self.bands
        ]
        if self.room is not None and any(map(_overflows, self.bands, bands)):
            needed = (_needed(column, cells[column.place]) for column in self.columns)
            yield from layout(tuple(needed), self.room).lines(cells)
            return
        for number, (band, pieces) in enumerate(zip(self.bands, bands, strict=True)):
            if number and not any(cells[slot.place] for slot in band):
                continue
            for line in zip_longest(*pieces, fillvalue=""):
                parts = [
                    text.rjust(slot.width) if slot.is_number else text.ljust(slot.width)
                    for text, slot in zip(line, band, strict=True)
                ]
                yield ((INDENT if number else "") + GAP.join(parts)).rstrip()


def _overflows(band: Sequence[Slot], pieces: Sequence[Sequence[str]]) -> bool:
    """Whether a piece reaches into the next column, or beyond the line where it could stand alone."""
    return len(band) > 1 and any(
        len(piece) > slot.width for slot, folds in zip(band, pieces, strict=True) for piece in folds
    )


def _needed(column: ColumnNeed, cell: str) -> ColumnNeed:
    return replace(column, width=max(column.width, len(cell)), least=max(column.least, longest_word(cell)))


def layout(columns: Sequence[ColumnNeed], room: int | None, dropped: Sequence[int] = ()) -> Layout:
    """Columns in lines of `room` characters; None is a line of any length.

    The columns at the places `dropped` are left out, in this order, until all but wide ones fit in one line. Where
    those that stay still do not fit, their texts are folded as far as their words allow.
    """
    kept = tuple(columns)
    if room is None:
        slots = (Slot(column.place, column.width, column.is_number, False) for column in kept)
        return Layout(kept, (tuple(slots),), None)
    squeezed = _squeezed(kept, room, FOLDED_CHARACTERS_MIN)
    for place in dropped:
        if _excess(squeezed, room) <= 0:
            break
        kept = tuple(column for column in kept if column.place != place)
        squeezed = _squeezed(kept, room, FOLDED_CHARACTERS_MIN)
    if _excess(squeezed, room) > 0:
        squeezed = _squeezed(kept, room, SQUEEZED_CHARACTERS_MIN)
    return Layout(kept, _bands(squeezed, room), room)


def _excess(columns: Sequence[ColumnNeed], room: int) -> int:
    """How much longer than a line the columns are, up to the last one that must not stand below its row."""
    end = max((number for number, column in enumerate(columns, start=1) if not column.is_wide), default=0)
    return sum(max(column.width, column.least) + len(GAP) for column in columns[:end]) - len(GAP) - room


def _squeezed(columns: Sequence[ColumnNeed], room: int, narrowest: int) -> tuple[ColumnNeed, ...]:
    """The columns with less width for texts, where they do not fit: the widest one first."""
    squeezed = list(columns)
    for column in sorted(columns, key=lambda column: -column.width):
        width = max(column.least, narrowest, column.width - max(_excess(squeezed, room), 0))
        if not column.is_number and WHOLE_CHARACTERS_MAX < column.width > width:
            squeezed[squeezed.index(column)] = replace(column, width=width)
    return tuple(squeezed)


def _bands(columns: Sequence[ColumnNeed], room: int) -> tuple[tuple[Slot, ...], ...]:
    bands: list[list[Slot]] = [[]]
    used = 0
    for column in columns:
        is_number, least = column.is_number, column.least
        left, width = room - used, column.width if is_number else max(column.width, least)  # no word is cut
        may_fold = not is_number and width > FOLDED_CHARACTERS_MIN <= left and least <= left
        if width > left and not may_fold and bands[-1]:
            bands.append([])
            used = len(INDENT)
            left = room - used
        given = width if is_number else max(min(width, left), 1)
        bands[-1].append(Slot(column.place, given, is_number, not is_number))
        used += given + len(GAP)
    return tuple(map(tuple, bands))


def longest_word(text: str) -> int:
    """The length of the longest piece of a cell that is not split."""
    if ends_with_command(text):
        return max(map(len, folded(text, 1)))
    return max(map(len, _WORD.findall(text)), default=0)


def folded(text: str, width: int) -> list[str]:
    """Text in pieces of at most `width` characters, split at spaces and commas; a longer word is whole.

    A command goes on after a backslash, so that it can be pasted.
    """
    if len(text) <= width:
        return [text]
    if ends_with_command(text):
        return wrapped(text, width, 0)
    pieces = [""]
    for word in re.findall(r" *(?:[^ ,]*,|[^ ,]+)| +$", text):
        if pieces[-1] and len(pieces[-1]) + len(word.rstrip(" ")) > width:
            pieces.append(word.strip(" "))
        else:
            pieces[-1] += word
    return pieces
