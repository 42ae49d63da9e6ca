"""The line that says on a terminal what a long command is doing, and how far it is.

It is on stderr, after two seconds, and gone before anything else is printed. Work only notes what it is at
(`watched_work`): a thread of the line's own draws it, at most ten times a second.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Final

from kraft_audit.text.output import neutral
from kraft_audit.text.readable import plural
from kraft_audit.text.terminal import COLUMNS_UNKNOWN, line_columns
from kraft_audit.text.watched_work import BytesRead, watched_in_turn

SHOWN_AFTER_S: Final = 2.0
SHOWN_AGAIN_AFTER_S: Final = 1.0
"""After something was printed: what is printed line by line has no status between the lines."""
UPDATE_S: Final = 0.1
MEGABYTE: Final = 1_000_000
ERASED: Final = "\r\x1b[K"
CUT: Final = "…"


class StatusLine:
    """What the work is at, drawn on a terminal by `update`; `clock` gives seconds."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic, what: str = "") -> None:
        self._stream = stream
        self._clock = clock
        self._drawn_next_s = clock() + SHOWN_AFTER_S
        self._is_drawn = False
        self._lock = threading.RLock()
        self._what = what
        self._read = BytesRead()
        self._size_bytes = 0
        self._cluster_count = self._ended_count = 0

    def expect(self, clusters: int, size_bytes: int) -> None:
        self._cluster_count, self._size_bytes = clusters, size_bytes
        self._ended_count, self._read = 0, BytesRead()

    def ended(self, clusters: int) -> None:
        with self._lock:
            self._ended_count += clusters

    def reading(self, file: str, from_position: int, to_position: int, root: str = "") -> None:
        with self._lock:
            self._read.add(file, from_position, to_position, root)
        self._what = f"reading {file}"

    def read_elsewhere(self, size_bytes: int) -> None:
        with self._lock:
            self._read.count += size_bytes

    def doing(self, what: str) -> None:
        self._what = what

    def update(self) -> None:
        """Draws the line where it is time to."""
        with self._lock:
            now = self._clock()
            if now < self._drawn_next_s or not self._what:
                return
            self._drawn_next_s = now + UPDATE_S
            self._is_drawn = True
            self._stream.write(ERASED + _fitting(self._parts(), (line_columns(self._stream) or COLUMNS_UNKNOWN) - 1))
            self._stream.flush()

    def erase(self) -> None:
        """Takes the line away; it comes back only while nothing is printed."""
        with self._lock:
            self._drawn_next_s = max(self._drawn_next_s, self._clock() + SHOWN_AGAIN_AFTER_S)
            if self._is_drawn:
                self._is_drawn = False
                self._stream.write(ERASED)
                self._stream.flush()

    def _parts(self) -> list[str]:
        parts = []
        if self._size_bytes:
            read = min(self._read.count, self._size_bytes)
            parts.append(f"{read / MEGABYTE:.1f} of {self._size_bytes / MEGABYTE:.1f} MB")
        if self._cluster_count > 1:
            ended = min(self._ended_count, self._cluster_count)
            parts.append(f"{ended} of {plural(self._cluster_count, 'cluster')} done")
        return [*parts, neutral(self._what)]


def _fitting(parts: list[str], room: int) -> str:
    """The parts in one line; of a path that is too long the end is shown, which names the file."""
    *figures, what = parts
    head = "".join(f"{figure}   " for figure in figures)
    over = len(head) + len(what) - room
    if over > 0:
        verb, _, path = what.partition(" ")
        cut = over + len(CUT)
        what = f"{verb} {CUT}{path[cut:]}" if "/" in path and cut < len(path) else f"{what[:-cut]}{CUT}"
    return (head + what)[: max(room, 0)]


@contextmanager
def status_line(stream: IO[str], what: str = "") -> Iterator[None]:
    """Shows on a terminal what the work in this process is at, and takes it away at the end; elsewhere nothing.

    It is at `what` until it says what it is at.
    """
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    line = StatusLine(stream, what=what)
    try:
        with watched_in_turn(line, line.update, SHOWN_AFTER_S, UPDATE_S):
            yield
    finally:
        line.erase()
