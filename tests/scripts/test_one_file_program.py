"""The one file answers on a machine that has only a Python: nothing installed, an empty home, no network."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft_codec.kernels.prebuilt import has_crc32_instruction
from scripts.build_dist import build_wheel
from scripts.one_file_main import is_private
from scripts.one_file_program import (
    FILTERS,
    MAIN,
    MAX_BYTES,
    NAME,
    VARIANT_BYTES,
    VARIANT_FILTERS,
    VERSIONS,
    files_of,
    grouped,
    needed,
    pinned,
    program_bytes,
    write_program,
)

THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
SAMPLE = "elr-06-kill-13-last-replica.tgz"
on_linux = pytest.mark.skipif(
    sys.platform != "linux" or not has_crc32_instruction() or shutil.which("cc") is None,
    reason="a platform's wheel is built on Linux on x86-64, with a linker",
)


def pythons() -> Iterator[str]:
    """The Pythons on this machine that the file is for: this one, and others beside or on PATH."""
    yield sys.executable
    for version in VERSIONS:
        beside = sorted(Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python3"))
        found = [str(path) for path in beside] or [path for path in [shutil.which(f"python{version}")] if path]
        if version != THIS_PYTHON:
            yield from found[-1:]


def run(program: Path, *arguments: str, python: str = sys.executable, **environment: str) -> tuple[int, str, str]:
    """Exit code, output and errors in an environment that has nothing but these variables."""
    command = [python, "-I", str(program), *arguments]
    variables = {"PATH": "/usr/bin:/bin", **environment}
    ended = subprocess.run(
        command, env=variables, cwd=program.parent, capture_output=True, text=True, timeout=120, check=False
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.fixture
def small_program(tmp_path: Path) -> Path:
    """A program of one module, unpacked and run as the whole one is."""
    module = b"import sys, kraft_audit\ndef main():\n    print(kraft_audit.__file__, sys.argv[1:])\n    return 7\n"
    files = {
        "kraft_audit/__init__.py": b"",
        "kraft_audit/commands/__init__.py": b"",
        "kraft_audit/commands/cli.py": module,
    }
    program = tmp_path / "place" / NAME
    program.parent.mkdir()
    program.write_bytes(program_bytes(dict.fromkeys(VERSIONS, files), "1.2.3"))
    return program


def test_it_unpacks_once_and_hands_on_arguments_and_exit_code(small_program: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    code, output, errors = run(small_program, "check", "x", HOME=str(home))
    (folder,) = (home / ".cache" / "kraft-audit").iterdir()
    assert (code, output) == (7, f"{folder}/kraft_audit/__init__.py ['check', 'x']\n")
    assert re.fullmatch(rf"kraft-audit: unpacked into {folder} in [0-9.]+ s, once\n", errors)
    assert folder.name.startswith(f"kraft-audit-1.2.3-py{THIS_PYTHON}-")
    assert is_private(str(folder))
    assert run(small_program, HOME=str(home)) == (7, f"{folder}/kraft_audit/__init__.py []\n", "")


@pytest.mark.parametrize("home", ["", "/proc", "/nonexistent", "relative"])
def test_a_home_that_cannot_be_written_is_no_obstacle(small_program: Path, tmp_path: Path, home: str) -> None:
    code, output, _ = run(small_program, HOME=home, TMPDIR=str(tmp_path))
    assert code == 7
    assert output.startswith(f"{tmp_path}/kraft-audit-{os.getuid()}/kraft-audit-1.2.3-")
    again = run(small_program, HOME=home, TMPDIR=str(tmp_path))
    assert again == (7, output, "")


def test_a_folder_that_others_may_write_to_is_not_run_from(small_program: Path, tmp_path: Path) -> None:
    base = tmp_path / f"kraft-audit-{os.getuid()}"
    base.mkdir()
    base.chmod(0o777)
    code, output, _ = run(small_program, HOME="", TMPDIR=str(tmp_path))
    assert code == 7
    assert not output.startswith(str(base))
    assert list(base.iterdir()) == []
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    shutil.rmtree(base)
    base.symlink_to(elsewhere)
    assert run(small_program, HOME="", TMPDIR=str(tmp_path))[0] == 7
    assert list(elsewhere.iterdir()) == []


def test_a_file_that_is_cut_short_says_so(small_program: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(small_program) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(contents["manifest.json"])
    manifest["groups"][0]["files"][-1][1] += 1
    with zipfile.ZipFile(small_program, "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, json.dumps(manifest) if name == "manifest.json" else data)
    code, output, errors = run(small_program, HOME="", TMPDIR=str(tmp_path))
    assert (code, output) == (3, "")
    assert "this file is cut short: copy it again" in errors
    assert [path for path in tmp_path.rglob("*") if "unpacking" in path.name] == []


def test_any_python_3_7_can_say_what_is_needed() -> None:
    ast.parse(MAIN.read_text(encoding="utf-8"), feature_version=(3, 7))


def test_every_content_is_stored_once() -> None:
    large = bytes(VARIANT_BYTES)
    one, other = {"a": b"1", "b": b"2", "lib": large}, {"a": b"1", "b": b"3", "lib": large + b"4"}
    groups = {group.name: group.described()["files"] for group in grouped({"3.11": one, "3.12": other})}
    assert groups == {
        "py3.11-3.12.xz": [("a", 1, ("3.11", "3.12"))],
        "py3.11.xz": [("b", 1, ("3.11",))],
        "py3.12.xz": [("b", 1, ("3.12",))],
        "variants.xz": [("lib", len(large), ("3.11",)), ("lib", len(large) + 1, ("3.12",))],
    }
    assert program_bytes({"3.11": one}, "1") == program_bytes({"3.11": one}, "1")


def test_every_package_is_pinned_once_for_each_python() -> None:
    assert {"numpy", "pyarrow", "typer", "jinja2", "pyyaml", "google-crc32c", "rich"} <= needed()
    for version in VERSIONS:
        lines = list(pinned(needed(), version))
        assert [line.partition("==")[0] for line in lines] == sorted(needed())
        assert all(" --hash=sha256:" in line for line in lines)


def test_what_no_command_uses_is_left_out(tmp_path: Path) -> None:
    wheel = tmp_path / "some.whl"
    names = ["pyarrow/lib.so", "pyarrow/include/a.h", "numpy/tests/test_a.py", "x.dist-info/RECORD", "x/LICENSE.txt"]
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    assert set(files_of([wheel])) == {"pyarrow/lib.so", "x/LICENSE.txt"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For this Python alone and packed in a hurry: packing all four well takes minutes."""
    folder = tmp_path_factory.mktemp("dist")
    assert build_wheel(folder, platform=True)
    with pytest.MonkeyPatch.context() as patch:
        for packing in (FILTERS, VARIANT_FILTERS):
            patch.setitem(packing[0], "preset", 0)
        patch.setattr("scripts.one_file_program.MAX_BYTES", sys.maxsize)
        assert write_program(folder, [THIS_PYTHON]) == 0
    return folder / NAME


@pytest.fixture(scope="module")
def whole_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    assert build_wheel(folder, platform=True)
    assert write_program(folder, VERSIONS) == 0
    return folder / NAME


def assert_it_answers(program: Path, python: str, home: Path, project_root: Path) -> None:
    """As the checkout does, in an empty home and without a network; it unpacks itself once."""
    sample = str(project_root / "samples" / SAMPLE)
    command = [sys.executable, "-m", "kraft_audit", "check", sample]
    bare = {"PATH": "/usr/bin:/bin"}
    expected = subprocess.run(command, cwd=project_root, env=bare, capture_output=True, text=True, check=False)
    assert expected.returncode == 1
    home.mkdir()
    code, output, errors = run(program, "check", sample, python=python, HOME=str(home))
    assert (code, masked(output)) == (1, masked(expected.stdout)), (python, errors)
    assert "unpacked into" in errors
    code, output, errors = run(program, "check", sample, python=python, HOME=str(home))
    assert (code, masked(output), errors) == (1, masked(expected.stdout), "")


@pytest.mark.ci
@on_linux
@pytest.mark.timeout(600)
def test_the_one_file_answers_as_the_checkout_does(program: Path, project_root: Path, tmp_path: Path) -> None:
    assert_it_answers(program, sys.executable, tmp_path / "home", project_root)


@pytest.mark.long
@on_linux
@pytest.mark.timeout(1500)
def test_every_python_here_runs_the_whole_file(whole_program: Path, project_root: Path, tmp_path: Path) -> None:
    assert whole_program.stat().st_size <= MAX_BYTES
    for number, python in enumerate(pythons()):
        assert_it_answers(whole_program, python, tmp_path / f"home-{number}", project_root)


def masked(text: str) -> str:
    """Without how old a copy is."""
    return re.sub(r"UTC: [0-9.a-z ]+ old", "UTC: AGE old", text)


@pytest.mark.ci
@on_linux
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "line",
    [
        ("may-i", "start", "1", "SAMPLE"),
        ("rescue", "--plan", "SAMPLE", "--gone", "2,3"),
        ("recover-plan", "SAMPLE"),
        ("timeline", "SAMPLE", "--svg", "picture.svg"),
        ("quorum", "SAMPLE", "--nodes"),
        ("state", "SAMPLE"),
        ("report", "SAMPLE", "--out", "site"),
        ("report", "SAMPLE", "--output", "parquet", "--out", "tables"),
        ("evidence", "SAMPLE", "--out", "pack"),
        ("rescue", "--help"),
        ("salvage", "--help"),
        ("doctor",),
    ],
    ids=lambda line: "-".join(line[:1]),
)
def test_the_commands_of_an_incident_run(
    program: Path, project_root: Path, tmp_path: Path, line: tuple[str, ...]
) -> None:
    sample = str(project_root / "samples" / SAMPLE)
    arguments = [sample if word == "SAMPLE" else word for word in line]
    work = tmp_path / "work"
    work.mkdir()
    here = work / NAME
    here.hardlink_to(program)
    code, output, errors = run(here, *arguments, HOME=str(program.parent))
    assert code in (0, 1), errors
    assert output or "--out" in line or "--svg" in line
    assert "bug" not in errors
