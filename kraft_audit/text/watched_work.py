"""What the work in this process is at, for whoever watches it: a line on a terminal, or the process that started it.

Whoever works says so by `reading` and `doing`, once a chunk of bytes or a window of records; without a watcher
that costs a call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Watcher(Protocol):
    """Whoever wants to know what the work is at."""

    def expect(self, clusters: int, size_bytes: int) -> None:
        """How many clusters there are to read, and how much of them."""

    def ended(self, clusters: int) -> None:
        """So many more clusters are done."""

    def reading(self, file: str, from_position: int, to_position: int, root: str) -> None:
        """Bytes of a file have been read; counted once, however often they are read."""

    def read_elsewhere(self, size_bytes: int) -> None:
        """Another process has read so many more bytes."""

    def doing(self, what: str) -> None:
        """Work that reads no file has begun or goes on."""

    def erase(self) -> None:
        """Something is about to be printed."""


_watcher: Watcher | None = None


def watcher() -> Watcher | None:
    """Whoever watches this process; None where there is no watcher."""
    return _watcher


@contextmanager
def watched_by(new: Watcher | None) -> Iterator[None]:
    """Makes this the only watcher of the work in this process, as long as it lasts."""
    global _watcher  # as the terminal, there is one for the process
    before, _watcher = _watcher, new
    try:
        yield
    finally:
        _watcher = before


@contextmanager
def watched_in_turn(new: Watcher, turn: Callable[[], None], first_s: float, every_s: float) -> Iterator[None]:
    """As `watched_by`, while a thread takes its turn again and again: after `first_s`, then `every_s`."""
    is_over = threading.Event()

    def take_turns() -> None:
        delay_s = first_s
        while not is_over.wait(delay_s):
            turn()
            delay_s = every_s

    thread = threading.Thread(target=take_turns, name="watched work", daemon=True)
    with watched_by(new):
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()


def expect(clusters: int, size_bytes: int) -> None:
    """Notes how many clusters there are to read, and how much of them; nothing of it has been read."""
    if _watcher is not None:
        _watcher.expect(clusters, size_bytes)


def ended(clusters: int) -> None:
    """Notes that so many more clusters are done."""
    if _watcher is not None:
        _watcher.ended(clusters)


def reading(file: str, from_position: int, to_position: int, root: str = "") -> None:
    """Notes that bytes of a file have been read."""
    if _watcher is not None:
        _watcher.reading(file, from_position, to_position, root)


def read_elsewhere(size_bytes: int, what: str) -> None:
    """Notes that another process has read so many more bytes, and what it is at."""
    if _watcher is not None:
        _watcher.read_elsewhere(size_bytes)
        _watcher.doing(what)


def doing(what: str) -> None:
    """Notes what the work is at that reads no file."""
    if _watcher is not None:
        _watcher.doing(what)


def erase() -> None:
    """Takes away what shows on a terminal, if anything does: before anything else is printed."""
    if _watcher is not None:
        _watcher.erase()


class BytesRead:
    """How much of some files has been read: what is read again does not count again."""

    def __init__(self) -> None:
        self.count = 0
        self._read_to: dict[tuple[str, str], int] = {}

    def add(self, file: str, from_position: int, to_position: int, root: str) -> None:
        """The bytes of one more chunk."""
        known = self._read_to.get((root, file), from_position)
        if to_position > known:
            self.count += to_position - known
            self._read_to[root, file] = to_position
