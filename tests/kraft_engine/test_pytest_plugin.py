"""The pytest plugin: the documented examples pass, options reach the cluster, a failure says how to play it again."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.builders.documented import blocks


def run_pytest(folder: Path, root: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A pytest of its own, whose only plugin is ours."""
    (folder / "test_it.py").write_text(code)
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "pytest", "-p", "kraft_engine.pytest_plugin", "-q", "test_it.py", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_documented_examples_pass(number: int, project_root: Path, tmp_path: Path) -> None:
    code = blocks(project_root / "docs" / "testing.md", "python")[number]
    ended = run_pytest(tmp_path, project_root, code, "--kraft-seeds", "2")
    assert ended.returncode == 0, ended.stdout
    assert "2 passed" in ended.stdout


def test_every_documented_method_and_option_exists(project_root: Path) -> None:
    from kraft_engine.kraft_cluster import KraftCluster
    from kraft_engine.scenario_files import VERBS

    page = (project_root / "docs" / "testing.md").read_text()
    table = page.split("## What a cluster can do")[1].split("## Options")[0]
    for verb in VERBS:
        assert f"`{verb}" in table or f", {verb}" in table
        assert callable(getattr(KraftCluster, verb))
    source = (project_root / "kraft_engine" / "pytest_plugin.py").read_text()
    for option in ("seed", "seeds", "release", "metadata-version", "elr", "static", "voters", "brokers", "out"):
        assert f'"--kraft-{option}"' in source
        assert f"--kraft-{option}" in page


@pytest.mark.slow
def test_options_reach_the_cluster_and_a_failure_can_be_played_again(project_root: Path, tmp_path: Path) -> None:
    code = (
        "def test_it(kraft_cluster):\n"
        "    assert kraft_cluster.voters == (1, 2, 3, 4, 5)\n"
        "    assert kraft_cluster.stage.bootstrap.release.name == '4.0.2'\n"
        "    kraft_cluster.capture('end')\n"
        "    assert kraft_cluster.seed != 8\n"
    )
    ended = run_pytest(
        tmp_path, project_root, code, "--kraft-seed", "7", "--kraft-seeds", "2", "--kraft-voters", "5",
        "--kraft-release", "4.0.2", "--kraft-brokers", "1", "--kraft-out", "out",
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "1 failed, 1 passed" in ended.stdout
    assert "--kraft-seed 8" in ended.stdout
    assert (tmp_path / "out" / "test_it-seed-8" / "end" / "node-1").is_dir()
    assert (tmp_path / "out" / "test_it-seed-8" / "timeline.txt").exists()


def test_a_wrong_option_is_reported(project_root: Path, tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, project_root, "def test_it(kraft_cluster): pass\n", "--kraft-release", "four")
    assert ended.returncode != 0
    assert "--release four" in ended.stdout + ended.stderr


def test_the_plugin_is_an_entry_point_and_imports_little(project_root: Path) -> None:
    settings = tomllib.loads((project_root / "pyproject.toml").read_text())
    assert settings["project"]["entry-points"]["pytest11"] == {"kraft_engine": "kraft_engine.pytest_plugin"}
    code = (
        "import sys; import kraft_engine.pytest_plugin; "
        "print([name for name in sys.modules if name.startswith(('kraft_engine.', 'kraft_codec'))])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(project_root)},
    )  # fmt: skip
    assert ended.stdout.strip() == "['kraft_engine.pytest_plugin']"
