"""Shows a stepper in a terminal (curses)."""

from __future__ import annotations

import curses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft_engine.traces.stepper import Stepper

KEY_NAMES = {
    curses.KEY_LEFT: "left", curses.KEY_RIGHT: "right", curses.KEY_UP: "up", curses.KEY_DOWN: "down",
    curses.KEY_HOME: "home", curses.KEY_END: "end", curses.KEY_ENTER: "enter", 10: "enter", 13: "enter", 27: "escape",
}  # fmt: skip


def run(stepper: Stepper) -> None:
    """Until a key ends it."""
    curses.wrapper(_loop, stepper)


def _loop(screen: curses.window, stepper: Stepper) -> None:
    curses.curs_set(0)
    while True:
        height, width = screen.getmaxyx()
        screen.erase()
        for row, line in enumerate(stepper.lines(width - 1, height)):
            is_loud = line.startswith((">", "BROKEN"))
            screen.addnstr(row, 0, line, width - 1, curses.A_REVERSE if is_loud else curses.A_NORMAL)
        screen.refresh()
        code = screen.getch()
        name = KEY_NAMES.get(code) or (chr(code) if 32 <= code < 127 else "")
        if name and not stepper.key(name):
            return
