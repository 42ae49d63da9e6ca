"""The line that says how far long work is: when it is drawn, what it says, and that nothing of it stays."""

from __future__ import annotations

import contextlib
import io
import os
import re
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from kraft_audit.text import watched_work
from kraft_audit.text.output import Output
from kraft_audit.text.status_line import ERASED, SHOWN_AFTER_S, StatusLine, status_line
from kraft_audit.text.watched_work import watched_by, watcher

FILE = "node-1/__cluster_metadata-0/00000000000000000000.log"
MB = 1_000_000
WAITED_AT_MOST_S = 60.0
"""A machine may be slow: what counts is that it is drawn."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def drawn(self) -> list[str]:
        """What stood in the line, one after the other; "" where it was taken away."""
        return self.getvalue().split(ERASED)[1:]


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_short_work_shows_nothing(terminal: Terminal, clock: Clock) -> None:
    line = StatusLine(terminal, clock)
    for _ in range(20):
        line.reading(FILE, 0, MB)
        line.update()
        clock.now_s += 0.0999
    line.erase()
    assert terminal.getvalue() == ""


def test_long_work_shows_bytes_of_bytes_what_is_read_and_clusters_done(terminal: Terminal, clock: Clock) -> None:
    line = StatusLine(terminal, clock)
    line.expect(3, 170 * MB)
    line.reading("a.log", 0, 4 * MB)
    clock.now_s += 2
    line.update()
    line.ended(1)
    line.reading("b.log", 4 * MB, 16 * MB + 50_000)
    clock.now_s += 0.1
    line.update()
    line.doing("checking rule KP001 last-replica-standing")
    clock.now_s += 0.1
    line.update()
    line.erase()
    assert terminal.drawn == [
        "4.0 of 170.0 MB   0 of 3 clusters done   reading a.log",
        "16.1 of 170.0 MB   1 of 3 clusters done   reading b.log",
        "16.1 of 170.0 MB   1 of 3 clusters done   checking rule KP001 last-replica-sta…",
        "",
    ]


def test_it_is_drawn_ten_times_a_second_at_most(terminal: Terminal, clock: Clock) -> None:
    line = StatusLine(terminal, clock)
    clock.now_s += 2
    for number in range(1000):  # two seconds, a chunk every two milliseconds
        line.reading(FILE, number, number + 1)
        line.update()
        clock.now_s += 0.002
    assert 19 <= len(terminal.drawn) <= 20


def test_bytes_that_are_read_again_count_once(terminal: Terminal, clock: Clock) -> None:
    line = StatusLine(terminal, clock)
    line.expect(1, 10 * MB)
    for root, file, begin, end in (
        ("disk", FILE, 0, 4),
        ("disk", FILE, 0, 4),
        ("disk", FILE, 3, 5),
        ("other", FILE, 0, 1),
        ("disk", "resumed.log", 100, 102),
    ):
        line.reading(file, begin * MB, end * MB, root)
    line.read_elsewhere(MB)
    clock.now_s += 2
    line.update()
    assert terminal.drawn[-1].startswith("9.0 of 10.0 MB   ")
    line.read_elsewhere(5 * MB)
    clock.now_s += 1
    line.update()
    assert terminal.drawn[-1].startswith("10.0 of 10.0 MB   ")


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_it_fits_the_terminal_and_shows_the_end_of_a_path(
    terminal: Terminal, clock: Clock, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    line = StatusLine(terminal, clock)
    line.expect(1, 170 * MB)
    line.reading(f"captures/2026-11-21T01/{FILE}\x1b[31m", 0, MB)
    clock.now_s += 2
    line.update()
    (shown,) = terminal.drawn
    assert len(shown) < columns
    assert "\x1b" not in shown
    assert columns < 80 or shown.endswith("00000000.log\\x1b[31m")


def test_it_is_gone_before_anything_is_printed_and_stays_away_for_a_second(terminal: Terminal, clock: Clock) -> None:
    line = StatusLine(terminal, clock)
    with watched_by(line):
        watched_work.doing("replaying offset 5 of 9")
        clock.now_s += 2
        line.update()
        out = Output(stream=terminal)
        out.text("QUORUM      Works.")
        out.text("NEXT        Nothing.")
        clock.now_s += 0.9
        line.update()
        assert terminal.drawn == ["replaying offset 5 of 9", "QUORUM      Works.\nNEXT        Nothing.\n"]
        clock.now_s += 0.1
        line.update()
    assert terminal.drawn[2:] == ["replaying offset 5 of 9"]


def test_what_goes_to_a_file_does_not_take_it_away(terminal: Terminal, clock: Clock) -> None:
    line = StatusLine(terminal, clock)
    with watched_by(line):
        watched_work.doing("dumping incident.tgz")
        clock.now_s += 2
        line.update()
        Output(stream=io.StringIO()).text("offset  type")
    assert terminal.drawn == ["dumping incident.tgz"]


def test_the_thread_of_a_command_draws_it_and_ends_with_it(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft_audit.text.status_line.SHOWN_AFTER_S", 0.0)
    is_drawn = threading.Event()
    write = terminal.write
    monkeypatch.setattr(terminal, "write", lambda text: (write(text), is_drawn.set())[0])
    with status_line(terminal):
        watched_work.doing("opening incident.tgz")
        assert is_drawn.wait(60)
    assert watcher() is None
    assert not [thread for thread in threading.enumerate() if thread.name == "watched work"]
    assert terminal.drawn[0] == "opening incident.tgz"
    assert terminal.drawn[-1] == ""


@pytest.mark.parametrize("is_dumb", [False, True])
def test_nothing_is_shown_in_a_pipe_or_on_a_dumb_terminal(is_dumb: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb" if is_dumb else "xterm")
    with status_line(Terminal() if is_dumb else io.StringIO()):
        assert watcher() is None


@pytest.mark.parametrize("options", [[], ["--quiet"]])
def test_a_command_watches_its_work_unless_it_is_quiet(
    kraft_audit, terminal: Terminal, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def noted(stream: object, what: str) -> nullcontext[None]:
        seen.append((stream, what))
        return nullcontext()

    monkeypatch.setattr("kraft_audit.commands.cli.status_line", noted)
    for command in ("check", "recover-plan", "quorum"):
        assert kraft_audit(command, "samples/torn-write.tgz", *options).code in (0, 1)
    assert kraft_audit("run", "no-such-fleet.yaml", *options).code == 3
    assert kraft_audit("rules", *options).code == 0
    names = ["check", "recover-plan", "quorum", "run", "rules"]
    assert [what for _, what in seen] == ([] if options else [f"running {name}" for name in names])


@pytest.fixture
def slow_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Holds up the first chunk of a log that a command reads until what is given has happened."""

    def hold_up(until: Callable[[], object]) -> None:
        is_first = iter([True])

        def slow(*chunk: Any) -> None:
            watched_work.reading(*chunk)
            if next(is_first, False):
                until()

        monkeypatch.setattr("kraft_audit.capture.scanner.reading", slow)

    return hold_up


@pytest.mark.slow  # it waits for the two seconds
def test_a_slow_check_shows_on_a_terminal_what_it_reads(
    kraft_audit, monkeypatch: pytest.MonkeyPatch, slow_reading
) -> None:
    leader, follower = os.openpty()
    drawn = bytearray()
    is_drawn = threading.Event()

    def read_terminal() -> None:
        with contextlib.suppress(OSError):  # Linux says EIO when the last writer closed the terminal
            while part := os.read(leader, 1000):
                drawn.extend(part)
                if b"reading" in drawn:
                    is_drawn.set()

    slow_reading(lambda: is_drawn.wait(WAITED_AT_MOST_S))
    monkeypatch.setenv("TERM", "xterm")
    reader = threading.Thread(target=read_terminal)
    reader.start()
    with os.fdopen(follower, "w") as terminal, status_line(terminal, "running check"):
        assert kraft_audit("check", "samples/divergence.tgz").code == 0
    reader.join()
    os.close(leader)
    text = drawn.decode()
    assert re.search(r" of 0\.1 MB   reading \S+/00000000000000000000", text)
    assert text.endswith(ERASED)
    assert SHOWN_AFTER_S == 2


def test_a_slow_check_shows_nothing_in_a_pipe(kraft_audit, monkeypatch: pytest.MonkeyPatch, slow_reading) -> None:
    monkeypatch.setattr("kraft_audit.text.status_line.SHOWN_AFTER_S", 0.0)
    watchers: list[object] = []
    slow_reading(lambda: watchers.append(watcher()))
    ended = kraft_audit("check", "samples/divergence.tgz")
    assert (ended.code, ended.err, watchers) == (0, "", [None])


def test_what_a_check_reads_is_every_byte_of_every_log(kraft_audit) -> None:
    class Notes:
        """Counts the bytes; the total is what planning said."""

        def __init__(self) -> None:
            self.read = watched_work.BytesRead()
            self.expected: list[tuple[int, int]] = []
            self.ended_count = 0
            self.verbs: list[str] = []

        def expect(self, clusters: int, size_bytes: int) -> None:
            self.expected.append((clusters, size_bytes))

        def ended(self, clusters: int) -> None:
            self.ended_count += clusters

        def reading(self, file: str, from_position: int, to_position: int, root: str) -> None:
            self.read.add(file, from_position, to_position, root)

        def read_elsewhere(self, size_bytes: int) -> None:
            raise AssertionError

        def doing(self, what: str) -> None:
            self.verbs.append(what.split()[0])

        def erase(self) -> None:
            pass

    notes = Notes()
    with watched_by(notes):
        assert kraft_audit("check", "samples/divergence.tgz").code == 0
    assert notes.expected == [(1, notes.read.count)]
    assert notes.ended_count == 1
    assert list(dict.fromkeys(notes.verbs)) == ["opening", "replaying", "checking"]
