"""Scenarios outside the package: a YAML file of steps, or a Python file that registers stories with `@scenario`.

The verbs of a YAML file are the methods of `KraftCluster`, so that a test and a file say the same thing.
"""

from __future__ import annotations

import inspect
import runpy
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from kraft_engine.kraft_cluster import BROKERS, CONTROLLERS, KraftCluster
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.scenarios.scenario import SCENARIOS, Scenario, Story, load

SUFFIXES = (".yaml", ".yml", ".py")
VERBS = (
    "add_controller", "add_voter", "allow_data_loss", "capture", "cut", "cut_one_way", "heal", "kill", "pause",
    "produce", "reassign", "remove_voter", "replace_disk", "resume", "run_ms", "settle", "start", "stop", "topic",
    "until_fenced", "until_isr", "wipe_disk",
)  # fmt: skip
SETTINGS = ("release", "metadata_version", "elr", "static_min_isr", "cluster_id")
LISTS = ("raises", "may_raise", "near_miss_of", "gone")
SCENARIO_KEYS = ("name", "summary", "controllers", "brokers", "static", "steps", *LISTS, *SETTINGS)


class ScenarioFileError(ValueError):
    """A scenario file that cannot be played: the message has the path, the key or step, and what was expected."""


def is_scenario_file(scenario: str) -> bool:
    """Whether this names a file (`incident.yaml`, `incidents.py`, `incidents.py::name`) and no scenario."""
    return scenario.partition("::")[0].endswith(SUFFIXES)


def read(place: str, *, controllers: int | None = None, static: bool | None = None) -> Scenario:
    """The scenario of a file. `controllers` and `static` replace what a YAML file says of the quorum.

    A Python file is run. Where it registers several scenarios, `FILE.py::NAME` says which. Raises ScenarioFileError;
    OSError where the file cannot be read.
    """
    path, _, name = place.partition("::")
    if path.endswith(".py"):
        if controllers is not None or static is not None:
            raise ScenarioFileError(f"{path}: a story in Python builds its quorum itself")
        return _from_python(Path(path), name)
    return _from_yaml(Path(path), controllers=controllers, static=static)


def _from_python(path: Path, name: str) -> Scenario:
    load()
    if not path.is_file():
        raise FileNotFoundError(path)
    before = dict(SCENARIOS)
    try:
        runpy.run_path(str(path))
        added = {key: story for key, story in SCENARIOS.items() if key not in before}
    except ValueError as error:
        raise ScenarioFileError(f"{path}: {error}") from error
    finally:
        SCENARIOS.clear()
        SCENARIOS.update(before)
    if not added:
        raise ScenarioFileError(f"{path}: no scenario: decorate a story with kraft_engine.scenarios.scenario.scenario")
    if name and name not in added:
        raise ScenarioFileError(f"{path}: no scenario {name!r}; it has {', '.join(added)}")
    if not name and len(added) > 1:
        raise ScenarioFileError(f"{path}: {len(added)} scenarios: ask for one, as in {path}::{next(iter(added))}")
    return added[name or next(iter(added))]


def _from_yaml(path: Path, *, controllers: int | None, static: bool | None) -> Scenario:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ScenarioFileError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ScenarioFileError(f"{path}: expected keys such as `steps`, got {type(document).__name__}")
    for key in document:
        _known(f"{path}", str(key), SCENARIO_KEYS)
    if controllers is not None:
        document["controllers"] = list(range(1, controllers + 1))
    if static is not None:
        document["static"] = static
    steps = [_step(f"{path}: steps[{number}]", step) for number, step in enumerate(_list(path, document, "steps"))]
    ids = {key: tuple(_list(path, document, key, default)) for key, default in
           (("controllers", CONTROLLERS), ("brokers", BROKERS))}  # fmt: skip
    lists = {key: tuple(_list(path, document, key)) for key in LISTS}
    settings = {key: document[key] for key in SETTINGS if document.get(key) is not None}
    story = _story(str(path), ids["controllers"], ids["brokers"], bool(document.get("static", False)), steps)
    name, summary = str(document.get("name", path.stem)), str(document.get("summary", ""))
    return Scenario(name=name, summary=summary, story=story, settings=settings, **lists)


def _list(path: Path, document: dict[str, Any], key: str, default: tuple[Any, ...] = ()) -> list[Any]:
    value = document.get(key, list(default))
    if not isinstance(value, list):
        raise ScenarioFileError(f"{path}: {key}: expected a list, got {type(value).__name__}")
    return value


def _known(place: str, word: str, words: tuple[str, ...]) -> None:
    if word not in words:
        near = get_close_matches(word, words, n=1)
        hint = f", perhaps {near[0]}" if near else ""
        raise ScenarioFileError(f"{place}: unknown {word!r}{hint}; known are {', '.join(sorted(words))}")


Step = tuple[str, str, list[Any], dict[str, Any]]
"""Place in the file, verb, positional arguments, named arguments."""


def _step(place: str, step: Any) -> Step:
    """`heal`, `kill: 12`, `cut: [12, 13]` or `produce: {topic: orders, count: 3}`."""
    if isinstance(step, str):
        step = {step: None}
    if not isinstance(step, dict) or len(step) != 1:
        raise ScenarioFileError(f"{place}: expected one verb with its arguments, got {step!r}")
    verb, value = next(iter(step.items()))
    _known(place, str(verb), VERBS)
    named = dict(value) if isinstance(value, dict) else {}
    positional = value if isinstance(value, list) else [] if isinstance(value, dict) or value is None else [value]
    if verb != "capture":
        # `kill: {nodes: [12, 13], power_cut: false}`
        positional = named.pop("nodes", positional)
    try:
        inspect.signature(getattr(KraftCluster, verb)).bind(None, *positional, **named)
    except TypeError as error:
        raise ScenarioFileError(f"{place}: {verb}: {error}") from error
    return place, str(verb), positional, named


def _story(path: str, controllers: tuple[int, ...], brokers: tuple[int, ...], static: bool, steps: list[Step]) -> Story:
    def play(stage: Stage) -> None:
        stage.controllers(*controllers, static=static)
        if brokers:
            stage.brokers(*brokers)
        cluster = KraftCluster(stage)
        for place, verb, positional, named in steps:
            try:
                getattr(cluster, verb)(*positional, **named)
            except (ValueError, TimeoutError, TypeError) as error:
                raise ScenarioFileError(f"{place}: {verb}: {error}") from error
        if not stage.recorder.captures:
            cluster.capture("end")

    play.__doc__ = f"The steps of {path}."
    return play


def with_settings(scenario: Scenario, settings: dict[str, Any]) -> Scenario:
    """The scenario with some settings of its cluster replaced."""
    return replace(scenario, settings={**scenario.settings, **settings})
