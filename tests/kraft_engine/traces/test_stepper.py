"""The stepper without a terminal, and once in one."""

from __future__ import annotations

import os
import pty
import select
import sys
import time
from pathlib import Path

import pytest

from kraft_engine.traces.stepper import Stepper
from kraft_engine.traces.trace import Trace, parse_event
from tests.builders.documented import titled


def stepper() -> Stepper:
    events = ("start 1", "start 2", "timeout 1", "deliver VoteRequest 1 -> 2", "deliver VoteResponse 2 -> 1")
    quorum = (("voters", 3), ("pre_vote", False))
    return Stepper(Trace("model", 0, (), tuple(map(parse_event, events)), quorum=quorum))


def role(steps: Stepper, node: int) -> str:
    return next(view.role for view in steps.frame.nodes if view.id == node)


def test_back_and_forth() -> None:
    steps = stepper()
    assert role(steps, 1) == "down"
    steps.key("end")
    assert (steps.position, role(steps, 1)) == (5, "leader")
    seen = steps.lines(100, 40)
    steps.key("left")
    assert role(steps, 1) == "candidate"
    steps.key(" ")
    assert steps.lines(100, 40) == seen
    assert not steps.forward()
    steps.key("home")
    assert (steps.position, role(steps, 1)) == (0, "down")
    assert steps.key("q") is False


def test_another_choice_replaces_the_rest() -> None:
    steps = stepper()
    steps.go(3)
    choices = [event.text() for event in steps.choices()]
    assert "deliver VoteRequest 1 -> 2" in choices
    assert "timeout 2" in choices
    steps.chosen = choices.index("timeout 2")
    steps.key("enter")
    assert [event.text() for event in steps.trace.events[3:]] == ["timeout 2"]
    assert role(steps, 2) == "candidate"


def test_faults_are_toggled() -> None:
    steps = stepper()
    steps.go(3)
    steps.key("1")
    assert steps.selected_node() == 1
    steps.key("x")
    assert not any(event.kind == "deliver" for event in steps.choices())
    assert any("CUT OFF" in line for line in steps.lines(120, 40))
    steps.toggle_cut(1)
    steps.toggle_process(2)
    assert role(steps, 2) == "down"
    steps.toggle_process(2)
    assert role(steps, 2) == "unattached"
    assert [event.kind for event in steps.trace.events[3:]] == ["crash", "start"]


def test_the_screen_fits() -> None:
    steps = stepper()
    steps.key("end")
    for width, height in ((40, 12), (100, 24), (200, 60)):
        lines = steps.lines(width, height)
        assert len(lines) <= height
        assert max(map(len, lines)) <= width


@pytest.mark.slow
def test_it_runs_in_a_terminal(project_root: Path, tmp_path: Path) -> None:
    file = tmp_path / "first-leader.yaml"
    file.write_text(titled(project_root / "docs" / "simulate.md")["first-leader.yaml"])
    command = ["simulate", str(file), "--step"]
    code = f"from kraft_audit.commands.cli import run_command; raise SystemExit(run_command({command!r}))"
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", LINES="30", COLUMNS="100", PYTHONPATH=str(project_root))
        os.chdir(project_root)
        os.execv(sys.executable, [sys.executable, "-c", code])  # noqa: S606 - a terminal of its own
    shown = b""
    keys = [b" ", b" ", b" ", b"q"]
    until = time.monotonic() + 60
    while time.monotonic() < until:
        ready, _, _ = select.select([terminal], [], [], 1.0)
        if ready:
            try:
                shown += os.read(terminal, 65536)
            except OSError:
                break
        elif keys and b"seed 1" in shown:
            os.write(terminal, keys.pop(0))
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"prospective" in shown or b"candidate" in shown
