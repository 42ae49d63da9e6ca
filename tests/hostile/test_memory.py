"""A hostile input costs bounded memory: a `check`, and a `dump` of what could not be read, have 1 GiB and no more."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.hostile.harms import HARMS

BYTES_MAX: Final = 1 << 30
KIB: Final = 1024
REASON_OF_HARM: Final = {
    "flipped": "BAD_CRC", "cut": "TORN_TAIL", "zeros": "ZERO_TAIL", "wrong_bodies": "BAD_RECORD",
    "overlong": "BAD_RECORD", "claims": "BAD_RECORD", "unknown": "UNKNOWN_RECORD_VERSION", "shuffled": "OVERLAP",
    "snapshots": "SNAPSHOT_INCOMPLETE", "many_files": "ZERO_TAIL", "bombs": "DECOMP_LIMIT", "archive_bomb": "LIMIT",
}  # fmt: skip
"""What is named of a harm: that it was met, not passed over. What a moving file shows is up to the moment."""

# The limit counts addresses, touched or not. Not getrusage for the peak: a process that was forked off a large one is
# counted as large as that from its first moment.
LIMITED: Final = f"""
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, ({BYTES_MAX}, {BYTES_MAX}))
from kraft_audit.commands.cli import run_command
codes = [run_command(["check", sys.argv[1], "--fail-on", "never", "-o", "json"])]
codes += [run_command(["dump", sys.argv[1], "--table", "decode_errors", "-o", "jsonl"])]
print(*codes, Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""
pytestmark = pytest.mark.ci


@pytest.mark.parametrize("name", HARMS)
def test_a_check_stays_below_a_gibibyte(name: str, small_corpus: Path, tmp_path: Path, project_root: Path) -> None:
    source = next(path.parents[1] for path in sorted((small_corpus / "dynamic-quorum").rglob("*0.log")))
    node = tmp_path / "logs" / "node-1"
    shutil.copytree(source, node)
    for path in node.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "logs")]
    environment = {**os.environ, "PYTHONPATH": str(project_root)}
    with HARMS[name](node) or contextlib.nullcontext():
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    *ended, peak = done.stdout.splitlines()[-1].split()
    assert set(ended) <= {"0", "3"}, done.stderr
    assert "out of memory" not in done.stderr
    assert REASON_OF_HARM.get(name, "") in done.stdout + done.stderr
    assert int(peak) * KIB < BYTES_MAX
