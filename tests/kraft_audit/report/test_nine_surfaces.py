"""One lake, one answer: every surface says of a cluster what `check` says of its disks."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from tests.builders.surfaces import Answers, lake_of, of_lake, of_path

LAKES_IN_CI = 3
CAPTURES_IN_CI = 26
SEVERAL_CLUSTERS = ("crafted", "split")
"""Scenarios in which one path holds logs of several histories, or of none."""


def scenarios_of(captured_logs: Path) -> list[list[Path]]:
    """The captures of each scenario whose paths hold one cluster, in their order."""
    folders = [folder for folder in sorted(captured_logs.iterdir()) if folder.name not in SEVERAL_CLUSTERS]
    return [sorted(each for each in folder.iterdir() if each.is_dir()) for folder in folders]


def lakes_of(scenarios: Sequence[Sequence[Path]], count: int) -> list[list[Path]]:
    """The captures in so many lakes, round by round through the scenarios: in no lake twice the same cluster."""
    rounds = [path for row in zip_longest(*scenarios) for path in row if path is not None]
    lakes: list[list[Path]] = [[] for _ in range(count)]
    for path in rounds:
        free = [lake for lake in lakes if path.parent not in {each.parent for each in lake}]
        min(free, key=len).append(path)
    return lakes


def spread(captures: Sequence[Path]) -> list[Path]:
    """One in the middle, and the last."""
    return [captures[place] for place in sorted({len(captures) // 2, len(captures) - 1})]


def said_of(paths: dict[str, Path], folder: Path) -> Iterator[tuple[str, dict[str, Answers]]]:
    """What every surface says of each cluster."""
    said: defaultdict[str, dict[str, Answers]] = defaultdict(dict)
    for name, surface, answers in of_lake(lake_of(paths, folder), folder):
        said[name][surface] = answers
    for name, path in paths.items():
        with kraft_audit.open(str(path)) as clusters:
            if len(clusters) == 1 and name in said:
                yield name, said[name] | of_path(path)


def compare(name: str, said: dict[str, Answers]) -> list[str]:
    """Every question to which two surfaces give two answers, and what must not stand together."""
    given: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for surface, answers in said.items():
        for question, answer in answers.items():
            given[question][surface] = answer
    differ = [
        f"{name}: {question}: {by_surface}"
        for question, by_surface in given.items()
        if len({repr(answer) for answer in by_surface.values()}) > 1
    ]
    return [*differ, *(f"{name}: {text}" for text in _contradictions(said))]


def _contradictions(said: dict[str, Answers]) -> Iterator[str]:
    situation, pages = said["situations"], said["pages"]
    urgent = situation["open"]["critical"] + situation["open"]["high"]
    if situation["exit_code"] == 0 and urgent:
        yield "exit code 0 with an open critical or high row"
    if situation["says OK"] and (urgent or situation["exit_code"]):
        yield "OK beside what is open"
    if (situation["exit_code"] == 1) != situation["needs action"]:
        yield "what needs action and what fails are two things"
    if said["messages"]["is alarmed"] and not situation["needs action"]:
        yield "a message about what needs no action"
    if situation["exit_code"] == 0 and pages["not met"]:
        yield "exit code 0 beside a control that is not met"
    if urgent and not (said["messages"]["is alarmed"] and pages["not met"]):
        yield "nobody is told"
    what = re.sub(r"\s+", " ", situation["what"])
    if situation["needs action"] and what not in pages["page"] + pages["fleet page"]:
        yield f"no page says {what!r}"
    if situation["needs action"] and situation["command"] not in pages["page"] + pages["fleet page"]:
        yield f"no page shows {situation['command']!r}"


def _ask(lakes: Sequence[Sequence[Path]], tmp_path: Path) -> int:
    differ, asked = [], 0
    for number, paths in enumerate(lakes):
        folder = tmp_path / str(number)
        folder.mkdir()
        named = {f"{path.parent.name}-{path.name}": path for path in paths}
        for name, said in said_of(named, folder):
            differ += compare(name, said)
            asked += 1
    assert not differ, "\n".join(differ)
    return asked


@pytest.mark.ci
def test_every_surface_gives_one_answer(captured_logs: Path, tmp_path: Path) -> None:
    chosen = [spread(captures) for captures in scenarios_of(captured_logs)]
    assert _ask(lakes_of(chosen, LAKES_IN_CI), tmp_path) >= CAPTURES_IN_CI


@pytest.mark.long
def test_every_surface_gives_one_answer_about_every_capture(captured_logs: Path, tmp_path: Path) -> None:
    scenarios = scenarios_of(captured_logs)
    assert _ask(lakes_of(scenarios, max(map(len, scenarios))), tmp_path) == sum(map(len, scenarios))
