"""One driver at a time: a lease of numbered files in a folder that every driver reaches, each put there if absent.

The highest number holds. Its holder touches the file while it runs, and marks it when it ends. Whoever finds it neither
marked nor touched for EXPIRES_S seconds puts the next number there; of two that do, one is refused by the file system.
Time is only ever compared with the same process's own clock. A holder that was stopped for longer finds the higher
number before its next commit, and commits nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kraft_codec.errors import InputError

LEASE_FOLDER: Final = "_lease"
ID_FILE: Final = "id"
TOUCHED_EVERY_S: Final = 5.0
EXPIRES_S: Final = 60.0
RELEASED: Final = ".released"
_DIGITS: Final = 12


class Lease:
    """The lease in one folder. Not taken before `hold`; `expires_s` without a touch let others take it."""

    def __init__(self, folder: Path, *, touched_every_s: float = TOUCHED_EVERY_S, expires_s: float = EXPIRES_S) -> None:
        self._folder = folder / LEASE_FOLDER
        self._touched_every_s = touched_every_s
        self._expires_s = expires_s
        self._held: Path | None = None
        self._end = threading.Event()
        self._touched_at = 0.0

    def id(self) -> str:
        """The id of the folder, which two folders never share: made by the first who asks."""
        file = self._folder / ID_FILE
        with self._reaching():
            self._folder.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                made = self._folder / f".{uuid.uuid4().hex}"
                made.write_text(uuid.uuid4().hex)
                with contextlib.suppress(FileExistsError):
                    os.link(made, file)
                made.unlink()
            return file.read_text().strip()

    def hold(self) -> None:
        """Take the lease, or make sure that it is still held; waits for a holder that may have been killed.

        Raises InputError where another driver holds it.
        """
        with self._reaching():
            if self._held is None:
                self._take()
            elif self._newest() != self._held or time.monotonic() - self._touched_at > self._expires_s:
                raise InputError(str(self._held), "this driver stood still and lost its lease: run again")

    def release(self) -> None:
        """Let the next driver in at once."""
        if self._held is not None:
            self._end.set()
            _mark_released(self._held)
            self._held = None

    def _take(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        before = self._newest()
        if before is not None:
            self._wait_for(before)
        mine = self._folder / f"{1 + (int(before.name) if before is not None else 0):0{_DIGITS}d}"
        holder = {"host": socket.gethostname(), "process": os.getpid()}
        try:
            with mine.open("x") as file:
                file.write(json.dumps(holder))
        except FileExistsError:
            raise self._refused(mine) from None
        if (newest := self._newest()) != mine:
            raise self._refused(newest or mine)
        self._held, self._touched_at, self._end = mine, time.monotonic(), threading.Event()
        weakref.finalize(self, _let_go, mine, self._end)
        threading.Thread(target=_keep, args=(weakref.ref(self), self._end, self._touched_every_s), daemon=True).start()
        for old in self._folder.glob("0*"):
            if old.name.partition(".")[0] < mine.name:
                old.unlink(missing_ok=True)

    def _wait_for(self, holder: Path) -> None:
        """Return when the holder has ended or expired; raises InputError as soon as it shows that it runs."""
        seen, since = self._touch_of(holder), time.monotonic()
        while not holder.with_name(holder.name + RELEASED).exists():
            if self._touch_of(holder) != seen:
                raise self._refused(holder)
            if time.monotonic() - since > self._expires_s:
                return
            time.sleep(self._touched_every_s / 10)

    def _touch_of(self, holder: Path) -> int:
        try:
            return holder.stat().st_mtime_ns
        except FileNotFoundError:
            raise self._refused(holder) from None  # another one has taken over

    def _newest(self) -> Path | None:
        names = [each.name for each in self._folder.iterdir() if each.name.isdigit()]
        return self._folder / max(names) if names else None

    def _refused(self, holder: Path) -> InputError:
        try:
            said = json.loads(holder.read_text())
            who = f"process {said['process']} on {said['host']}"
        except (OSError, ValueError, KeyError, TypeError):
            who = "another driver"
        why = f"{who} commits to the lake now: run when it has ended; {self._expires_s:g} s after it was killed it"
        return InputError(str(holder), f"{why} counts as ended")

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise InputError(str(self._folder), f"no lease: {problem.strerror or problem}") from None

    def touch(self) -> None:
        """Show that this process runs."""
        began = time.monotonic()
        # Another may have begun to take over from one that stood still for so long: `hold` says so.
        if self._held is not None and began - self._touched_at <= self._expires_s:
            os.utime(self._held, (time.time(), time.time()))
            self._touched_at = began


def _keep(held: weakref.ref[Lease], end: threading.Event, every_s: float) -> None:
    while not end.wait(every_s):
        lease = held()
        if lease is None:
            return
        with contextlib.suppress(OSError):
            lease.touch()
        del lease


def _let_go(file: Path, end: threading.Event) -> None:
    """At the end of the process, or of the lease."""
    if not end.is_set():
        end.set()
        _mark_released(file)


def _mark_released(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.with_name(file.name + RELEASED).touch()
