"""Which tests run a line of decoder, replay or rules: measured once for each state of the sources, then looked up.

Two measurements: kernels compiled, as they run for users, and kernels as plain Python (`tests/interpreted_kernels.py`),
which alone sees their lines and needs no compiler. Both keep the quick tests only. They lie in `.cache/mutants/`, named
by a hash of packages and tests.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".cache" / "mutants"
SOURCES = ("kraft_codec", "kraft_engine", "kraft_audit", "tests", "conf", "samples")
COMPILED, PLAIN = "compiled", "plain"
PLAIN_KERNELS = ("-p", "tests.interpreted_kernels")
OPTIONS = ("-q", "-p", "no:cacheprovider", "--hypothesis-seed=0")
TESTS = {
    COMPILED: (
        *("tests/kraft_codec", "tests/fuzz", "tests/witness"),
        *(
            f"tests/kraft_audit/{room}"
            for room in ("capture", "quorum", "replay", "archive", "rules", "recovery", "findings")
        ),
    ),
    PLAIN: (
        *("tests/kraft_codec/columns", "tests/kraft_codec/kernels", "tests/fuzz/test_decoder.py"),
        *(
            f"tests/kraft_audit/replay/test_{name}.py"
            for name in ("small_histories", "partition_replay", "causes", "effective_min_isr")
        ),
        "--ignore=tests/kraft_codec/kernels/test_kernel_cache.py",
        "--ignore=tests/kraft_codec/columns/test_columns_guard.py",
    ),
}
SECONDS_MAX = 1800


FAILED_SHARE = 0.02


class TestsFailError(Exception):
    """Many tests fail where nothing is changed: every change would look noticed. Holds what pytest said."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement: a file's lines with the tests that run them, the seconds of each test."""

    data: coverage.CoverageData
    seconds: dict[str, float]

    def tests_of(self, file: str, line: int) -> list[str]:
        """The tests that run the line, the quickest first; a line that only an import runs has none."""
        tests = {test for test in self.data.contexts_by_lineno(str(ROOT / file)).get(line, ()) if test in self.seconds}
        return sorted(tests, key=lambda test: (self.seconds.get(test, 0.0), test))


def measure() -> dict[str, Measured]:
    """Both measurements, from what was kept where nothing has changed since. Raises TestsFailError."""
    folder = KEPT / _state()
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            for older in KEPT.iterdir():
                if older.is_dir():
                    shutil.rmtree(older)
            folder.mkdir()
            for kind in (COMPILED, PLAIN):
                _run(kind, folder)
            (folder / "whole").touch()
    return {kind: _kept(kind, folder) for kind in (COMPILED, PLAIN)}


def _state() -> str:
    known = hashlib.sha256()
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*")):
            if path.suffix in (".py", ".yaml", ".json") and path.is_file():
                known.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return known.hexdigest()[:16]


def _run(kind: str, folder: Path) -> None:
    print(f"which test runs which line, kernels {kind}: some minutes", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "coverage", "run", f"--data-file={folder / kind}", "-m", "pytest", *OPTIONS]
    command += [*(PLAIN_KERNELS if kind == PLAIN else ()), "-p", "tests.which_tests", "-m", "unit", *TESTS[kind]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KRAFT_AUDIT_TEST_SECONDS": str(folder / f"{kind}.json")}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    seconds = _seconds(folder, kind)
    # A few may fail for other reasons, such as a busy machine: those run for no mutant.
    if ended.returncode not in (0, 1) or list(seconds.values()).count(None) > FAILED_SHARE * len(seconds):
        shutil.rmtree(folder)
        raise TestsFailError(f"kernels {kind}: {(ended.stdout + ended.stderr)[-3000:]}")


def _kept(kind: str, folder: Path) -> Measured:
    data = coverage.CoverageData(str(folder / kind))
    data.read()
    return Measured(data, {test: took for test, took in _seconds(folder, kind).items() if took is not None})


def _seconds(folder: Path, kind: str) -> dict[str, float | None]:
    file = folder / f"{kind}.json"
    seconds: dict[str, float | None] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return seconds
