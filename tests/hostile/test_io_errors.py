"""A file system that fails at the n-th call: a run ends with one line, the next mends it; a reading reports it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.io_errors import OF_A_LAKE, OF_AN_INPUT, preloaded

POINTS = int(os.environ.get("KRAFT_AUDIT_IO_ERRORS", "4"))
"""Of each kind of fault and each test; 0 is every call there is, which takes hours."""
SEED = int(os.environ.get("KRAFT_AUDIT_IO_ERRORS_SEED", "1"))
AGE_S = 3600
pytestmark = pytest.mark.ci


@pytest.fixture
def disturbed(small_corpus: Path, tmp_path: Path, project_root: Path) -> Callable[..., dict[str, Any]]:
    def run(what: str, sample: str, points: int = POINTS) -> dict[str, Any]:
        if shutil.which("cc") is None:
            pytest.skip("no C compiler is here to build the library that makes calls fail")
        logs = tmp_path / "logs" / sample
        shutil.copytree(small_corpus / sample, logs)
        for file in logs.rglob("*"):
            if file.is_file():
                then = file.stat().st_mtime - AGE_S
                os.utime(file, (then, then))
        try:
            return preloaded(what, logs, tmp_path, points, SEED, project_root)
        except subprocess.CalledProcessError as problem:
            pytest.skip(f"the library that makes calls fail cannot be built here: {problem.stderr.decode()[:200]}")

    return run


def test_a_run_survives_an_error_of_any_call_on_its_lake(disturbed: Callable[..., dict[str, Any]]) -> None:
    done = disturbed("lake", "torn-write")
    assert done["wrong"] == []
    assert done["faults"].keys() == {fault.name for fault in OF_A_LAKE}
    assert done["ended"]["InputError"] + done["ended"].get("StageError", 0) > POINTS, "most faults are met"


def test_findings_survive_an_error_of_any_call_on_their_lake(disturbed: Callable[..., dict[str, Any]]) -> None:
    done = disturbed("findings", "torn-write")
    assert done["wrong"] == []
    assert done["faults"].keys() == {fault.name for fault in OF_A_LAKE}
    assert done["ended"]["InputError"] > POINTS


@pytest.mark.long
@pytest.mark.timeout(900)
def test_risk_survives_an_error_of_any_call_on_its_lake(disturbed: Callable[..., dict[str, Any]]) -> None:
    """Fewer points: each takes twenty seconds of Spark."""
    done = disturbed("risk", "torn-write", -(-POINTS // 6))
    assert done["wrong"] == []
    assert done["faults"].keys() == {fault.name for fault in OF_A_LAKE}
    assert done["ended"]["InputError"]


def test_a_reading_reports_an_error_of_any_call_on_its_input(disturbed: Callable[..., dict[str, Any]]) -> None:
    done = disturbed("input", "divergence")
    assert done["wrong"] == []
    assert done["faults"].keys() == {fault.name for fault in OF_AN_INPUT}
    assert done["ended"]["reported in decode_errors"]
