"""The command opens its input for reading only, and asks no network: the system's own record of its calls says so."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[bytes]]
pytestmark = pytest.mark.ci
COMMANDS = (["check", "--fail-on", "never"], ["state"], ["dump"], ["quorum"], ["timeline"], ["partitions"])


@pytest.mark.parametrize("options", COMMANDS, ids=lambda options: options[0])
def test_no_command_writes_below_its_path(options: list[str], samples: Path, command: Run, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not here")
    source = tmp_path / "input" / "divergence"
    shutil.copytree(samples / "divergence", source)
    trace = tmp_path / "trace"
    wrapper = ["strace", "-f", "-qq", "-e", "trace=%file,%desc,%network", "-o", str(trace)]
    done = command(options[0], source, *options[1:], wrapper=wrapper)
    if b"ptrace" in done.stderr.lower():
        pytest.skip("tracing is not allowed here")
    assert done.returncode == 0, done.stderr.decode()
    lines = trace.read_text(errors="replace").splitlines()
    inside = [line for line in lines if str(source) in line or "__cluster_metadata-0" in line]
    assert any("openat(" in line for line in inside), "the trace shows no read"
    for line in inside:
        assert not re.search(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)", line), line
        assert not re.search(
            r"\b(unlink|rename|mkdir|rmdir|chmod|chown|utime|truncate|link|symlink|mknod)\w*\(", line
        ), line
    connected = [line for line in lines if re.search(r"\b(connect|sendto|bind)\(", line) and "AF_INET" in line]
    assert not connected, connected[:3]


def test_a_machine_without_a_network_is_enough(samples: Path, command: Run) -> None:
    probe = subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("network namespaces are not allowed here")
    done = command("check", samples / "divergence", "--fail-on", "never", wrapper=["unshare", "-rn"])
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout
