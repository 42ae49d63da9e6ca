"""A broker's segment with a hole of 8 GB: `check` ends with little memory, and the voters are judged as without it."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.live_log import whole_batches

pytestmark = [pytest.mark.ci, pytest.mark.timeout(600)]
HOLE_BYTES = 8 << 30
MEMORY_BYTES = 6 << 30
"""Of addresses: Python with Arrow reserves more than a gigabyte."""


@pytest.mark.parametrize("kind", ["a hole between batches", "damage before a hole"])
def test_memory_does_not_grow_with_a_hole(small_corpus: Path, tmp_path: Path, kind: str) -> None:
    source = next((small_corpus / "divergence").glob("*/node-11")).parent
    capture = shutil.copytree(source, tmp_path / "capture")
    path = capture / "node-11" / "__cluster_metadata-0" / "00000000000000000000.log"
    batches = [batch.data for batch in whole_batches(path.read_bytes())]
    before, after = b"".join(batches[: len(batches) // 2]), b"".join(batches[len(batches) // 2 :])
    with path.open("wb") as file:
        file.write(before + (b"" if kind == "a hole between batches" else b"\xff" * 100))
        file.seek(HOLE_BYTES)
        file.write(after)
    ended = subprocess.run(
        [sys.executable, "-m", "kraft_audit", "check", str(capture)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)),
    )
    assert ended.returncode in (0, 1), ended.stderr[-500:]
    assert "3 of 3 voters captured" in ended.stdout
    assert "Traceback" not in ended.stderr
