"""The facts of a text: what stays the same however the text is worded."""

from __future__ import annotations

import re

FACT = re.compile(r"\[[\d ]*\]|\{[\d ]+\}|--[a-z][\w-]*|[\w./-]*\d[\w.:/-]*|\b[A-Z]+(?:_[A-Z]+)+\b")
"""Lists of ids, options, words with a digit (numbers, times, names such as t-0), and reasons such as BAD_CRC."""


def facts(text: str) -> set[str]:
    """Ids, numbers, names, times and options in a text.

    >>> sorted(facts("BAD_CRC in 692 bytes: bring broker 13 back, ISR [13 12] of orders-3 (--rule KP001)."))
    ['--rule', '13', '692', 'BAD_CRC', 'KP001', '[13 12]', 'orders-3']
    """
    return {found.rstrip(".,:;/") for found in FACT.findall(text)}


def stands_before(text: str, first: str, second: str) -> bool:
    """Whether `first` is named before `second` is, and both are."""
    return 0 <= text.find(first) < text.find(second)
