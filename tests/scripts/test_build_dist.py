"""What a cluster is given is the same bytes, whoever builds it, where and when, without a network."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = ("kraft_codec", "kraft_engine", "kraft_audit", "kraft_capture", "pyspark_kraft", "scripts")
FILES = ("pyproject.toml", "requirements.lock", "README.md", "LICENSE", "CHANGELOG.md", ".gitignore")
NO_INDEX = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "https_proxy": "http://127.0.0.1:9"}


def built(project_root: Path, folder: Path, umask: int, touched_s: int) -> dict[str, str]:
    """Name and hash of what `make dist --pure` makes of a copy whose files have this age and these modes."""
    for name in SOURCES:
        shutil.copytree(project_root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copyfile(project_root / name, folder / name)
    for path in [folder, *folder.rglob("*")]:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
        os.utime(path, (touched_s, touched_s))
    command = [sys.executable, str(folder / "scripts" / "build_dist.py"), str(folder / "dist"), "--pure"]
    if shutil.which("unshare") and subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode == 0:
        command = ["unshare", "-rn", *command]
    environment = {**os.environ, **NO_INDEX, "SOURCE_DATE_EPOCH": "1700000000", "PYTHONPATH": ""}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, umask=umask, check=False
    )
    assert done.returncode == 0, done.stderr
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "dist").iterdir()}


@pytest.mark.slow
def test_two_builds_in_two_folders_are_the_same_bytes(project_root: Path, tmp_path: Path) -> None:
    first = built(project_root, tmp_path / "one", umask=0o022, touched_s=1_600_000_000)
    second = built(project_root, tmp_path / "elsewhere" / "of another name", umask=0o077, touched_s=1_780_000_001)
    assert first == second
    assert sorted(name.rpartition(".")[2] for name in first) == ["json", "whl", "zip"]
