"""A platform's wheel answers as the checkout does, with neither numba nor LLVM, from what it declares to need alone."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from kraft_codec.kernels.prebuilt import MANIFEST, PROCESSOR, has_crc32_instruction
from scripts.build_dist import build_wheel
from scripts.wheel_hook import PLATFORM_TAG

FOLDER_VARIABLE = "KRAFT_AUDIT_TEST_KERNELS"
"""As tests/prebuilt_kernels.py reads it, which is a plugin and not imported: it refuses the compiler to its process."""
COMPILER = {"numba", "llvmlite"}
EVERY_SAMPLE = """
import gc, json, os, sys
from pathlib import Path
from kraft_audit.commands import cli
gc.disable()
for sample in sorted(Path(sys.argv[1]).glob("*.tgz")):
    for command in json.loads(sys.argv[2]):
        code = cli.run_command([*command, str(sample)])
        sys.stdout.write(f"{command[0]} {sample.name}: exit {code}\\n")
sys.stdout.flush()
sys.stderr.write("\\n" + json.dumps(sorted(sys.modules)))
"""
COMMANDS = (
    ["check", "--findings", "-o", "json"],
    ["dump", "--table", "records", "-o", "json"],
    ["partitions", "-o", "json"],
    ["state", "-o", "json"],
)

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(
        sys.platform != "linux" or not has_crc32_instruction() or shutil.which("cc") is None,
        reason="a platform's wheel is built on Linux on x86-64, with a linker",
    ),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    assert build_wheel(folder, platform=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that sees the wheel and what it declares to need, each linked to what is installed here."""
    place = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(place)]
    subprocess.run([*command, "--disable-pip-version-check", str(wheel)], check=True)
    for name in closure(required(metadata(wheel)), set()):
        for top in tops(name):
            if not (place / top.name).exists():
                (place / top.name).symlink_to(top)
    return place


def metadata(wheel: Path) -> list[str]:
    """What the wheel declares to need, without extras."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])


def required(lines: list[str]) -> set[str]:
    """The packages of lines such as `pyarrow<27,>=19`, but those of an extra or of another system."""
    elsewhere = re.compile("extra ==|Windows|python_version")
    return {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower() for line in lines if not elsewhere.search(line)}


def closure(names: set[str], seen: set[str]) -> Iterator[str]:
    for name in sorted(names - seen):
        seen.add(name)
        try:
            needs = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        yield name
        yield from closure(required(needs), seen)


def tops(name: str) -> set[Path]:
    """The files and folders of a package right below site-packages."""
    found = distribution(name)
    files = [file for file in found.files or [] if ".." not in file.parts and file.parts[0] != "__pycache__"]
    return {Path(str(found.locate_file(file.parts[0]))) for file in files}


def run(python_path: Path, samples: Path, home: Path) -> tuple[str, set[str]]:
    """What the commands print for every sample, and which modules were imported."""
    home.mkdir()
    # -S -P: neither this environment's packages nor the working directory, only what PYTHONPATH names.
    command = [sys.executable, "-S", "-P", "-c", EVERY_SAMPLE, str(samples), json.dumps(COMMANDS)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(python_path), "HOME": str(home)}
    ended = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    said, _, modules = ended.stderr.rpartition("\n")
    assert "compil" not in said
    return ended.stdout, set(json.loads(modules))


def comparable(text: str, began_ms: int) -> str:
    """The text without fingerprints of secrets, for which each program has a key, and without times of this test."""
    text = re.sub(r"\*[A-Za-z0-9_-]{21}", "*", text)
    return re.sub(r"\b\d{13}\b", lambda found: "now" if int(found[0]) >= began_ms else found[0], text)


def test_it_needs_no_compiler_and_the_pure_wheel_does(wheel: Path, tmp_path: Path) -> None:
    assert wheel.name.endswith(f"{PLATFORM_TAG}.whl")
    assert not COMPILER & required(metadata(wheel))
    assert build_wheel(tmp_path)
    (pure,) = tmp_path.glob("*-py3-none-any.whl")
    assert required(metadata(pure)) == required(metadata(wheel)) | COMPILER
    with zipfile.ZipFile(pure) as archive:
        assert not [name for name in archive.namelist() if name.endswith((".so", MANIFEST))]


def test_every_sample_is_answered_as_by_the_checkout(installed: Path, project_root: Path, tmp_path: Path) -> None:
    """The checkout's kernels are compiled by numba for this processor, the wheel's were for any x86-64-v2."""
    began_ms = time.time_ns() // 1_000_000
    said, modules = run(installed, project_root / "samples", tmp_path / "wheel")
    assert said.count(": exit ") == len(COMMANDS) * len(list((project_root / "samples").glob("*.tgz")))
    assert not COMPILER & {name.partition(".")[0] for name in modules}
    assert {"numpy", "pyarrow"} <= modules
    assert list((tmp_path / "wheel").iterdir()) == [], "no cache is made"
    command = [sys.executable, "-P", "-c", EVERY_SAMPLE, str(project_root / "samples"), json.dumps(COMMANDS)]
    checkout = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=True)
    assert comparable(said, began_ms) == comparable(checkout.stdout, began_ms)


def test_the_kernels_pass_their_own_tests(installed: Path, project_root: Path) -> None:
    built = installed / "kraft_codec" / "kernels" / "built"
    assert json.loads((built / MANIFEST).read_text())["processor"] == PROCESSOR
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "tests.prebuilt_kernels", "-m", "unit"]
    rooms = ["kraft_codec/columns", "kraft_codec/kernels", "kraft_audit/replay/test_partition_replay.py"]
    ignored = ["--ignore=tests/kraft_codec/kernels/test_kernel_cache.py"]
    environment = {**os.environ, FOLDER_VARIABLE: str(built)}
    ended = subprocess.run(
        [*command, *ignored, *(f"tests/{room}" for room in rooms)],
        cwd=project_root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-1000:]
    assert " passed" in ended.stdout
