"""A hostile input costs bounded memory: the peak of a whole `check` stays far below what it claims to hold."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

BYTES_MAX = 1 << 30
KIB = 1024
pytestmark = pytest.mark.ci
LOG = "__cluster_metadata-0/00000000000000000000.log"


def sparse(node: Path) -> None:
    """A terabyte of nothing behind the log."""
    os.truncate(node / LOG, 1 << 40)


def claims(node: Path) -> None:
    """A batch that claims 2^31 - 1 records, with the CRC made right by nobody."""
    log = bytearray((node / LOG).read_bytes())
    log[57:61] = struct.pack(">i", (1 << 31) - 1)
    (node / LOG).write_bytes(log)


def bomb(node: Path) -> None:
    """An archive of zeros, a thousand times what it takes."""
    name = f"node-9/{LOG}"
    whole = io.BytesIO()
    with gzip.GzipFile(fileobj=whole, mode="wb") as packed, tarfile.open(fileobj=packed, mode="w|") as archive:
        info = tarfile.TarInfo(name)
        info.size = 400 << 20
        archive.addfile(info, _Zeros(info.size))
    (node.parent / "bomb.tgz").write_bytes(whole.getvalue())


class _Zeros(io.RawIOBase):
    def __init__(self, size: int) -> None:
        self._left = size

    def read(self, size: int = -1) -> bytes:
        count = min(self._left, size if size >= 0 else self._left)
        self._left -= count
        return bytes(count)


@pytest.mark.parametrize("harm", [sparse, claims, bomb])
def test_a_check_stays_below_a_gibibyte(
    harm: Callable[[Path], None], samples: Path, tmp_path: Path, project_root: Path
) -> None:
    source = next(path.parents[1] for path in sorted((samples / "dynamic-quorum").rglob("*0.log")))
    node = tmp_path / "logs" / "node-1"
    shutil.copytree(source, node)
    for path in node.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    harm(node)
    # Not getrusage: a process that was forked off a large one is counted as large as that from its first moment.
    code = (
        "from pathlib import Path; from kraft_audit.cli import main\n"
        "try:\n main()\nfinally:\n print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
    )
    command = [sys.executable, "-c", code, "check", str(tmp_path / "logs"), "--fail-on", "never", "-o", "json"]
    environment = {**os.environ, "PYTHONPATH": str(project_root)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode in (0, 3), done.stderr
    assert int(done.stdout.split()[-1]) * KIB < BYTES_MAX
