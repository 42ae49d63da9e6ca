"""Scenario files: what is documented plays, what cannot be played is reported with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft_engine import Options, simulate, tree_hash
from kraft_engine.scenario_files import ScenarioFileError, read
from kraft_engine.scenarios.scenario import SCENARIOS, load
from tests.builders.documented import blocks


def truth(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("suffix", ["yaml", "py"])
def test_the_documented_file_plays(suffix: str, project_root: Path, tmp_path: Path) -> None:
    language = {"yaml": "yaml", "py": "python"}[suffix]
    file = tmp_path / f"incident.{suffix}"
    file.write_text(blocks(project_root / "docs" / "simulate.md", language)[0])
    first = simulate(str(file), 3, tmp_path / "a")
    assert first.captures
    assert truth(tmp_path / "a")[0]["scenario"] == first.scenario
    simulate(str(file), 3, tmp_path / "b")
    assert tree_hash(tmp_path / "a") == tree_hash(tmp_path / "b")
    assert first.scenario not in load()


def test_options_replace_what_the_file_says(tmp_path: Path) -> None:
    file = tmp_path / "quiet.yaml"
    file.write_text("controllers: [1]\nbrokers: []\nsteps: [settle]\n")
    options = Options(release="3.9.2", static=True, voters=5)
    simulation = simulate(str(file), 1, tmp_path / "run", options)
    assert simulation.captures == ("end",)
    (capture,) = [line for line in truth(tmp_path / "run") if line["kind"] == "capture"]
    assert len(capture["captured"]) == 5
    features = [line["fields"] for line in truth(tmp_path / "run") if line.get("type") == "FeatureLevelRecord"]
    assert {"name": "metadata.version", "featureLevel": 21} in features
    assert not any(line["kind"] == "kraft_version" for line in truth(tmp_path / "run"))


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("steps: [{kil: 12}]", ["steps[0]", "'kil'", "kill"]),
        ("stepps: []", ["'stepps'", "steps"]),
        ("steps: {kill: 12}", ["steps", "list", "dict"]),
        ("steps: [settle, {produce: {topc: orders}}]", ["steps[1]", "produce", "'topic'"]),
        ("steps: [{kill: 99}]", ["steps[0]", "kill", "99", "11, 12, 13"]),
        ("steps: [{produce: orders}]", ["steps[0]", "orders"]),
        ("- a\n- b", ["list"]),
        ("a: [", ["not YAML"]),
    ],
)
def test_a_file_that_cannot_be_played_is_reported_with_its_place(text: str, facts: list[str], tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(ScenarioFileError) as raised:
        simulate(str(file), 1, tmp_path / "run")
    assert str(raised.value).startswith(str(file))
    for fact in facts:
        assert fact in str(raised.value)


def test_a_python_file_with_several_stories_wants_a_name(tmp_path: Path) -> None:
    file = tmp_path / "stories.py"
    story = "from kraft_engine.scenarios.scenario import scenario\n"
    for name in ("first", "second"):
        story += f"@scenario('{name}', 'A quorum starts.')\ndef {name}(stage):\n    stage.controllers(1)\n\n"
    file.write_text(story)
    with pytest.raises(ScenarioFileError, match=r"stories\.py::first"):
        read(str(file))
    assert read(f"{file}::second").name == "second"
    with pytest.raises(ScenarioFileError, match="third"):
        read(f"{file}::third")
    file.write_text("x = 1\n")
    with pytest.raises(ScenarioFileError, match="no scenario"):
        read(str(file))
    assert "first" not in SCENARIOS


@pytest.mark.parametrize(
    ("options", "scenario", "facts"),
    [
        (Options(static=True), "healthy", ["--static", "healthy"]),
        (Options(voters=3), "random-storm", ["--voters", "random-storm", "--events"]),
        (Options(release="four"), "random", ["four", "4.3.1"]),
        (Options(release="3.9.2", metadata_version=30), "random", ["3.9.2", "3.9-IV0", "4.3-IV0"]),
        (Options(without=("fsync",)), "random", ["fsync"]),
    ],
)
def test_an_option_that_does_not_apply_is_reported(
    options: Options, scenario: str, facts: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=facts[0]) as raised:
        simulate(scenario, 1, tmp_path / "run", options)
    for fact in facts:
        assert fact in str(raised.value)


def test_random_runs_take_what_they_are_given(tmp_path: Path) -> None:
    options = Options(metadata_version=25, elr=False, static=True, voters=5, events=400)
    assert simulate("random", 4, tmp_path / "run", options).event_count < 2_000
    (first, *_) = [line for line in truth(tmp_path / "run") if line["kind"] == "capture"]
    voters = [node["node_id"] for node in first["nodes"] if node["node_id"] >= 3000]
    assert voters == [3000, 3001, 3002, 3003, 3004]


def test_a_rule_that_is_off_shows_in_the_result(tmp_path: Path) -> None:
    result = simulate("random-storm", 1, tmp_path / "run", Options(without=("votes_from_a_majority",)))
    assert result.violation
    assert result.captures[-1] == "violation"


def test_an_upgrade_stays_within_the_release(tmp_path: Path) -> None:
    """Kafka 4.0 ends at 4.0-IV3: administrators of a random run do not go beyond it."""
    options = Options(release="4.0.2", metadata_version=25, static=True, voters=3, events=2_500)
    simulate("random", 28, tmp_path / "run", options)
    features = [line["fields"] for line in truth(tmp_path / "run") if line.get("type") == "FeatureLevelRecord"]
    assert {field["featureLevel"] for field in features if field["name"] == "metadata.version"} == {25}
