"""Runs the command as a program does, in this process or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraft_audit.commands.cli import run_command
from kraft_audit.replay.kernels import kernel
from kraft_codec.kernels.library import kernels

COMMAND = Path(sys.executable).with_name("kraft-audit")
"""The installed command."""


def installed(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The installed command as a program of its own."""
    command = [str(COMMAND), *map(str, arguments)]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=280
    )


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def error_lines(self) -> list[str]:
        return self.err.splitlines()


Command = Callable[..., Ended]


@pytest.fixture(scope="session")
def compiled_kernels() -> None:
    """What the first command on a machine compiles, and says so on stderr, is compiled before."""
    kernels()
    kernel("replay_events")


@pytest.fixture
def kraft_audit(
    compiled_kernels: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, project_root: Path
) -> Command:
    """The command in this process, in the project's folder."""
    monkeypatch.chdir(project_root)
    monkeypatch.delenv("KRAFT_AUDIT_REDACTION_KEY_FILE", raising=False)

    def run(*arguments: str | Path) -> Ended:
        capsys.readouterr()
        code = run_command([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return run


@pytest.fixture
def program(compiled_kernels: None, project_root: Path) -> Command:
    """The command as a program of its own, with `environment` added."""

    def run(*arguments: str | Path, **environment: str) -> Ended:
        ended = subprocess.run(
            [sys.executable, "-c", "from kraft_audit.commands.cli import main; main()", *map(str, arguments)],
            cwd=project_root,
            capture_output=True,
            timeout=120,
            env={**os.environ, **environment},
            check=False,
        )
        return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    return run
