"""What our own code never does with input, and what the project is made of: read from the sources themselves."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.sbom import pins, sbom

PACKAGES = ("kraft_codec", "kraft_audit", "kraft_engine", "pyspark_kraft", "jobs")
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "joblib", "dill", "cloudpickle"}
FORBIDDEN_CALLS = {"eval", "exec", "extractall", "read_pickle", "system", "popen"}
ALLOWED = {("kraft_codec/kernels/memory.py", "exec")}
"""numba's typing functions must name their arguments: they are made of numbers, not of input."""
RUNTIME_DEPENDENCIES_MAX = 12


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_from_input_is_run_or_unpickled(package: str, project_root: Path) -> None:
    for path in sorted((project_root / package).rglob("*.py")):
        name = str(path.relative_to(project_root))
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        used = {module.partition(".")[0] for module in imported} & FORBIDDEN_MODULES
        assert used <= ({"pickle"} if name == OWN_STATES else set()), name
        for call in calls(tree):
            called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            is_method = isinstance(call.func, ast.Attribute)
            assert called not in FORBIDDEN_CALLS or (name, called) in ALLOWED, (name, call.lineno)
            shell = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "shell"]
            assert "True" not in shell, (name, call.lineno)
            if called == "load" and is_method and ast.unparse(call.func) == "yaml.load":
                loader = next(ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "Loader")
                assert loader == "_unique_key_loader()", "a SafeLoader"


def test_few_dependencies_and_every_one_pinned_by_hash(project_root: Path) -> None:
    project = tomllib.loads((project_root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(project["dependencies"]) <= RUNTIME_DEPENDENCIES_MAX
    lock = (project_root / "requirements.lock").read_text(encoding="utf-8")
    assert "--index-url" not in lock
    assert "://" not in lock, "no address of an index"
    pinned = list(pins(lock))
    assert len(pinned) == sum("==" in line.partition("#")[0] and not line.startswith(" ") for line in lock.splitlines())
    assert all(pin.sha256 for pin in pinned)
    names = {pin.name for pin in pinned}
    for dependency in project["dependencies"]:
        assert dependency.partition(">")[0].partition("=")[0].partition("<")[0].lower() in names


def test_the_bill_of_materials_names_every_pin(project_root: Path) -> None:
    lock = (project_root / "requirements.lock").read_text(encoding="utf-8")
    text = sbom(lock, version="1.2.3")
    assert text == sbom(lock, version="1.2.3"), "the same lock, the same bytes"
    document = json.loads(text)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert {(part["name"], part["version"]) for part in document["components"]} == {
        (pin.name, pin.version) for pin in pins(lock)
    }
    assert all(part["hashes"] for part in document["components"])


def test_arrow_is_no_release_that_runs_what_it_reads(project_root: Path) -> None:
    """Before 14.0.1 reading IPC or Parquet could run code (CVE-2023-47248)."""
    lock = (project_root / "requirements.lock").read_text(encoding="utf-8")
    (arrow,) = {pin.version for pin in pins(lock) if pin.name == "pyarrow"}
    assert int(arrow.partition(".")[0]) > 14


OWN_STATES = "kraft_engine/models/small_quorum.py"
"""States of models that this process made and reads: nothing of them is input."""


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_no_arrow_ipc_is_read(package: str, project_root: Path) -> None:
    """The bytes of Arrow IPC are addresses in memory: whoever wrote them would decide what is read."""
    for path in sorted((project_root / package).rglob("*.py")):
        name, text = str(path.relative_to(project_root)), path.read_text(encoding="utf-8")
        assert not re.search(r"import.*\b(ipc|feather)\b|RecordBatch(File|Stream)Reader|\bfeather\.", text), name
        attributes = [ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)]
        assert not any(".ipc." in attribute for attribute in attributes), name
