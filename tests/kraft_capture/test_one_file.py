"""The copier as one copied file: Python 3.9's grammar, the standard library alone, it does what the package does."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kraft_capture.one_file import program_bytes
from tests.builders.live_log import LiveLog, StoreWitness

PACKAGE = Path(__file__).resolve().parents[2] / "kraft_capture"
NEWER_NAMES = {"StrEnum", "UTC", "Self", "ExceptionGroup", "TaskGroup", "pairwise", "batched", "chdir", "file_digest"}
"""Of the standard library, from 3.10 on."""


def test_every_module_is_python_3_9() -> None:
    files = sorted(PACKAGE.glob("*.py"))
    assert len(files) > 15
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 9))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not names & NEWER_NAMES, file.name
        keywords = {word.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords}
        assert not keywords & {"slots", "kw_only", "strict"}, file.name


def test_it_imports_the_standard_library_and_itself() -> None:
    for file in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in modules:
                root = module.partition(".")[0]
                assert root == "kraft_capture" or root in sys.stdlib_module_names, (file.name, module)


def test_the_same_sources_give_the_same_bytes() -> None:
    first = program_bytes()
    assert first == program_bytes()
    names = set(zipfile.ZipFile(io.BytesIO(first)).namelist())
    assert names == {"__main__.py", *(f"kraft_capture/{file.name}" for file in PACKAGE.glob("*.py"))}


@pytest.mark.slow
def test_one_copied_file_does_what_the_package_does(tmp_path: Path) -> None:
    """Alone, in an empty folder, without the packages of this environment."""
    log = LiveLog(tmp_path / "node")
    log.append(7)
    program = tmp_path / "copied" / "kraft-capture"
    program.parent.mkdir()
    program.write_bytes(program_bytes())
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    manifests = {}
    for name, command in {
        "file": [sys.executable, "-I", "-S", str(program)],
        "package": [sys.executable, "-m", "kraft_capture"],
    }.items():
        arguments = [
            "--log-dirs",
            str(log.folder),
            "--to",
            str(tmp_path / name),
            "--state",
            str(tmp_path / f"{name}-state"),
        ]
        done = subprocess.run(
            [*command, *arguments, "--once", "--durable"],
            cwd=program.parent if name == "file" else PACKAGE.parent,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        witness = StoreWitness(next((tmp_path / name).glob("*/*")))
        witness.check()
        generation, manifest = witness.newest()
        assert witness.log(generation, manifest) == log.batches
        manifests[name] = manifest
    assert differing(manifests["file"], manifests["package"]) <= {"generation", "copier", "at_ms", "passes"}
    assert json.dumps(manifests["file"]["entries"]) == json.dumps(manifests["package"]["entries"])


def differing(left: dict[str, object], right: dict[str, object]) -> set[str]:
    assert left.keys() == right.keys()
    return {name for name in left if left[name] != right[name]}
