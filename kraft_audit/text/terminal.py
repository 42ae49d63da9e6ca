"""How wide the lines are that people read, and whether they asked for every column of a table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final

COLUMNS_UNKNOWN: Final = 80
_shows_all_columns = False


def line_columns(stream: IO[str]) -> int | None:
    """How many characters a line has: COLUMNS where it is set, else as the terminal says; None in a pipe, where a line
    is as long as it needs to be.
    """
    if (declared := os.environ.get("COLUMNS", "")).isdecimal() and int(declared):
        return int(declared)
    if not stream.isatty():
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or COLUMNS_UNKNOWN
    except (OSError, ValueError):
        return COLUMNS_UNKNOWN


def shows_all_columns() -> bool:
    """Whether tables keep the columns that do not fit in one line."""
    return _shows_all_columns


@contextmanager
def all_columns(are_asked: bool) -> Iterator[None]:
    """Keeps every column of every table, where that is asked: a command prints them as `--wide` says."""
    global _shows_all_columns  # as the terminal, there is one for the process
    before, _shows_all_columns = _shows_all_columns, are_asked
    try:
        yield
    finally:
        _shows_all_columns = before
