"""What spark-submit runs: each script is a command, and the names that scripts had before still forward to one."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from kraft_audit.commands import cli

CASES = {
    "run.py": (["fleet.yaml", "--only", "stage"], [["run", "fleet.yaml", "--only", "stage"]]),
    "report.py": (["LAKE", "--out", "DIR"], [["report", "LAKE", "--out", "DIR"]]),
    "maintain.py": (["LAKE", "--dry-run"], [["maintain", "LAKE", "--dry-run"]]),
    "quality.py": (["LAKE", "--new"], [["quality", "LAKE", "--new"]]),
    "analyze.py": (["fleet.yaml", "--cluster", "a"], [["run", "fleet.yaml", "--cluster", "a"]]),
    "publish.py": (["LAKE", "--out", "DIR"], [["report", "LAKE", "--out", "DIR"]]),
    "reaudit.py": (
        ["--fleet", "fleet.yaml", "--only", "stage"],
        [["run", "--from", "archive", "fleet.yaml", "--only", "stage"]],
    ),
    "risk.py": (
        ["fleet.yaml", "--lake", "L"],
        [["run", "fleet.yaml", "--lake", "L", "--only", step] for step in ("findings", "risk")],
    ),
}
OLD = {"analyze.py": "run.py", "reaudit.py": "run.py", "risk.py": "run.py", "publish.py": "report.py"}


def run_script(script: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, code: int = 0) -> list[list[str]]:
    """The command lines that a script runs, each of which ends with `code`."""
    lines: list[list[str]] = []

    def run_command(line: list[str]) -> int:
        lines.append(line)
        return code

    monkeypatch.setattr(cli, "run_command", run_command)
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == code
    return lines


def test_every_script_has_a_case(project_root: Path) -> None:
    assert {script.name for script in (project_root / "jobs").glob("*.py")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_script_runs_its_command(
    name: str, project_root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, expected = CASES[name]
    assert run_script(project_root / "jobs" / name, arguments, monkeypatch) == expected
    hint = capsys.readouterr().err
    assert (f"jobs/{name} is now jobs/{OLD[name]}" in hint) if name in OLD else hint == ""


def test_a_step_that_fails_is_the_last(project_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = run_script(project_root / "jobs" / "risk.py", ["fleet.yaml"], monkeypatch, code=3)
    assert lines == [["run", "fleet.yaml", "--only", "findings"]]


def test_a_job_takes_the_options_of_its_command(project_root: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    script = project_root / "jobs" / "run.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--no-such-option"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 2
    assert "see `kraft-audit run --help`" in capsys.readouterr().err
