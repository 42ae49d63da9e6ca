"""The order in which people sort names that others chose: 2 before 10, whatever stands around the digits."""

from __future__ import annotations

import re
from typing import Final

_DIGITS: Final = re.compile("([0-9]+)")


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """A key to sort by. Only 0 to 9 are digits, and however many there are: none of them becomes a number."""
    key = []
    for place, piece in enumerate(_DIGITS.split(name)):
        digits = piece.lstrip("0")
        key.append((len(digits), digits) if place % 2 else (-1, piece))
    return key, name
