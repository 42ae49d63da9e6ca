"""What `may-i` prints next: questions about nodes that can be started, and a controller to ask that runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

SET_ASIDE = "may-i-yes-loses-topics-on-real-kafka"
PORTS = {1: 31301, 2: 31302, 3: 31303}


@pytest.fixture
def may_i(kraft_audit: Any, cases: Path, tmp_path: Path) -> Any:
    """The lines that an answer prints about a capture of a case."""

    def ask(case: str, capture: str | None, *words: str) -> list[str]:
        path = cases / case / ("in.tgz" if capture else "cap")
        action, node_id, *options = words
        chosen = ["--capture", capture] if capture else []
        lines: list[str] = kraft_audit("may-i", action, node_id, path, *chosen, *options).out.splitlines()
        return [line.removeprefix("NEXT").strip() for line in lines]

    return ask


def questions(lines: list[str]) -> list[list[str]]:
    """The words of each printed question without program, path and capture: `start 2 --stopped 1,3`."""
    found = []
    for line in lines:
        if "kraft-audit may-i " in line:
            _, action, node_id, _, *options = shlex.split(line[line.index("kraft-audit may-i ") :])[1:]
            at = options.index("--capture") if "--capture" in options else len(options)
            found.append([action, node_id, *options[:at], *options[at + 2 :]])
    return found


def test_of_a_disk_that_contradicts_itself_another_voter_that_is_stopped_is_asked_about(may_i: Any) -> None:
    asked = questions(may_i(SET_ASIDE, None, "start", "1", "--stopped", "1,2,3"))
    assert asked == [["start", "1", "--stopped", "1,2,3"], ["start", "2", "--stopped", "1,3"]]


def test_nothing_is_asked_about_where_all_others_run(may_i: Any) -> None:
    lines = may_i(SET_ASIDE, None, "start", "1")
    assert questions(lines) == [["start", "1"]]
    assert "If the copy says the same, keep node 1 stopped and its disk as it is." in lines


def test_a_voter_whose_disk_contradicts_itself_is_the_last_to_be_started(may_i: Any) -> None:
    assert questions(may_i(SET_ASIDE, None, "start", "2", "--stopped", "1,3")) == [["start", "3", "--stopped", "1"]]
    assert questions(may_i(SET_ASIDE, None, "start", "2", "--stopped", "1,2,3")) == [["start", "3", "--stopped", "1"]]


@pytest.mark.parametrize(
    ("words", "asked"), [(("start", "3", "--stopped", "1"), 2), (("start", "2", "--stopped", "1"), 3)]
)
def test_a_controller_that_runs_is_asked_who_leads(may_i: Any, words: tuple[str, ...], asked: int) -> None:
    (line,) = [line for line in may_i(SET_ASIDE, None, *words) if "kafka-metadata-quorum" in line]
    assert line.startswith("Then see who leads; until a node does, this fails: kafka-metadata-quorum ")
    assert f"127.0.0.1:{PORTS[asked]} " in line


def test_a_node_that_names_no_voters_is_restarted_before_any_other(may_i: Any) -> None:
    case = ("voters-dropped-from-config", "1-rolled-1")
    voters = ["--voters", "1,2,3"]
    assert questions(may_i(*case, "restart", "2")) == [["restart", "1", *voters], ["restart", "2", *voters]]
    assert questions(may_i(*case, "restart", "1")) == [["restart", "1", *voters]]
    assert questions(may_i(*case, "restart", "2", "--stopped", "1"))[0][:2] == ["restart", "2"]
