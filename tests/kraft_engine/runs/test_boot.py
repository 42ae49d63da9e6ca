"""What `--boot` writes and prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_engine import Options, simulate
from kraft_engine.runs.boot import prepare


@pytest.mark.parametrize("static", [False, True])
def test_every_voter_gets_its_settings(static: bool, tmp_path: Path) -> None:
    options = Options(metadata_version=25, static=static, voters=3, events=2_500)
    simulate("random", 3, tmp_path / "run", options)
    plan = prepare(tmp_path / "run", tmp_path / "boot")
    assert plan.is_static == static
    assert plan.node_ids == (3000, 3001, 3002)
    hosts = (plan.folder / "hosts").read_text().splitlines()
    assert len({line.split()[0] for line in hosts}) == len(hosts)
    for node_id in plan.node_ids:
        settings = dict(line.split("=", 1) for line in plan.properties(node_id).read_text().splitlines())
        assert settings["node.id"] == str(node_id)
        assert ("controller.quorum.voters" in settings) == static
        assert Path(settings["log.dirs"], "__cluster_metadata-0").is_dir()
        assert any(f"node-{node_id}.properties" in command for command in plan.commands())


def test_a_capture_without_a_majority_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text("brokers: []\nsteps: [settle, {capture: {name: one, nodes: [1]}}]\n")
    simulate(str(file), 1, tmp_path / "run")
    with pytest.raises(ValueError, match="1 of 3 voters"):
        prepare(tmp_path / "run", tmp_path / "boot")
