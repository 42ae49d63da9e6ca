"""The definition of a scenario: a name, a story, the findings that it must raise and those that it must not."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraft_engine.runs.scenario_stage import Stage

Story = Callable[[Stage], None]
SCENARIOS: dict[str, Scenario] = {}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One incident. `raises`: the findings that it must raise; `near_miss_of`: those that it nearly does and must not.

    Nothing else may be raised, but for what `may_raise` names (chance decides: a killed process may leave a torn tail)
    and KB003: unless it says otherwise, a scenario's listeners are plaintext. `gone` are the nodes that the operator
    says are lost with their disks.
    """

    name: str
    summary: str
    story: Story
    raises: tuple[str, ...]
    near_miss_of: tuple[str, ...]
    may_raise: tuple[str, ...]
    gone: tuple[int, ...]
    settings: dict[str, Any]

    def stage(self, seed: int, out: Path) -> Stage:
        """The empty stage that the story plays on."""
        return Stage(seed, out, **self.settings)

    def play(self, seed: int, out: Path) -> Stage:
        """Plays the story and writes captures and truth below `out`."""
        stage = self.stage(seed, out)
        self.story(stage)
        stage.recorder.finish(self.name, raises=self.raises, story=self.summary)
        return stage


def scenario(
    name: str,
    summary: str,
    *,
    raises: tuple[str, ...] = (),
    near_miss_of: tuple[str, ...] = (),
    may_raise: tuple[str, ...] = (),
    gone: tuple[int, ...] = (),
    **settings: Any,
) -> Callable[[Story], Story]:
    """Registers a story under its name."""

    def register(story: Story) -> Story:
        if name in SCENARIOS:
            raise ValueError(f"scenario {name!r} is defined twice")
        SCENARIOS[name] = Scenario(name, summary, story, raises, near_miss_of, may_raise, gone, settings)
        return story

    return register


def load() -> dict[str, Scenario]:
    """Imports every scenario file once."""
    package = importlib.import_module("kraft_engine.scenarios")
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        if module.name != "model":
            importlib.import_module(f"kraft_engine.scenarios.{module.name}")
    return SCENARIOS


def names() -> list[str]:
    return sorted(load())
