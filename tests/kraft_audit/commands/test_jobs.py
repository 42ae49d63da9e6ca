"""What spark-submit runs: each script is a command with the same name and options."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import pytest

from kraft_audit.commands import cli

JOBS = ("maintain", "quality", "report", "run")
COMMANDS_OF = {job: ("lake", job) if job in ("maintain", "quality") else (job,) for job in JOBS}


def test_these_are_all_of_them(project_root: Path) -> None:
    assert sorted(script.stem for script in (project_root / "jobs").glob("*.py")) == list(JOBS)


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_script_runs_its_command(name: str, code: int, project_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[list[str]] = []

    def run_command(line: list[str]) -> int:
        lines.append(line)
        return code

    script = project_root / "jobs" / f"{name}.py"
    monkeypatch.setattr(cli, "run_command", run_command)
    monkeypatch.setattr(sys, "argv", [str(script), "LAKE", "--new"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert (lines, ended.value.code) == ([[*COMMANDS_OF[name], "LAKE", "--new"]], code)


@pytest.mark.parametrize("name", JOBS)
def test_a_script_begins_with_what_it_reads_runs_and_writes(name: str, project_root: Path) -> None:
    """And names only classes and files that are there."""
    text = ast.get_docstring(ast.parse((project_root / "jobs" / f"{name}.py").read_text())) or ""
    starts = [line.partition(":")[0] for line in text.splitlines()]
    assert [word for word in starts if word in ("Reads", "Runs", "Writes")] == ["Reads", "Runs", "Writes"]
    assert len(starts) <= 14
    for word in text.replace("`", " ").replace(")", " ").replace(";", " ").split():
        if word.startswith(("kraft_audit/", "conf/", "jobs/")):
            assert (project_root / word).is_file(), word


def test_a_job_takes_the_options_of_its_command(project_root: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    script = project_root / "jobs" / "run.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--no-such-option"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 2
    assert "see `kraft-audit run --help`" in capsys.readouterr().err
