"""Every command that takes input opens it for reading only, and asks no network.

Three witnesses: Python's own audit events, which are there on every machine; the system's record of its calls, which
sees libraries too; and a mount on which nothing can be written. Where the system does not allow one of the last two,
its test skips with the reason, which stands at the end of what `make test` and `make ci` print.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from tests.builders.path_commands import LINES, path_commands, taking_a_path

Run = Callable[..., subprocess.CompletedProcess[bytes]]
READ_ONLY_MOUNT = (
    'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" || exit 77; '
    'if touch "$0/probe" 2>/dev/null; then exit 78; fi; exec "$@"'
)
OFFLINE = 'ip link set lo up; exec "$@"'
"""Spark's parts talk to each other on loopback; without a network there is nothing else."""


def lake_commands(lake: Path, made: Path) -> list[list[str]]:
    """Every command that only reads a lake."""
    made.mkdir(exist_ok=True)
    report = [
        ["report", str(lake), "--output", form, "--out", str(made / form)] for form in ("html", "csv", "openmetrics")
    ]
    return [["lake", "tables", str(lake)], ["lake", "export", str(lake), "--out", str(made / "exported")], *report]


@pytest.fixture
def together(project_root: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Commands in one process under Python's audit events; `wrapper` goes before it."""

    def run(root: Path, commands: Sequence[Sequence[str]], wrapper: Sequence[str] = ()) -> subprocess.CompletedProcess:
        (tmp_path / "commands.json").write_text(json.dumps(commands))
        program = [sys.executable, "-m", "tests.hostile.every_command", str(root), str(tmp_path / "commands.json")]
        environment = {**os.environ, "PYTHONPATH": str(project_root)}
        return subprocess.run([*wrapper, *program], cwd=tmp_path, env=environment, capture_output=True, timeout=550)

    return run


@pytest.fixture
def source(small_corpus: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "input" / "divergence"
    shutil.copytree(small_corpus / "divergence", folder)
    return folder


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[Path], list[str]]]:
    """Makes a folder one in which nothing can be written; what must go before a command that is to see it so."""
    closed: list[Path] = []

    def make(root: Path) -> list[str]:
        wrapper = ["unshare", "-rm", "sh", "-c", READ_ONLY_MOUNT, str(root)]
        if shutil.which("unshare") and subprocess.run([*wrapper, "true"], capture_output=True).returncode == 0:
            return wrapper
        if os.geteuid() == 0:
            pytest.skip("a mount in a namespace of its own is not allowed here, and root writes whatever the mode")
        for path in [root, *root.rglob("*")]:
            path.chmod(path.stat().st_mode & ~0o222)
            closed.append(path)
        return []

    yield make
    for path in closed:
        path.chmod(path.stat().st_mode | 0o200)


def offline(script: str = 'exec "$@"') -> list[str]:
    """What takes the network from a command. Skips where that is not allowed."""
    wrapper = ["unshare", "-rn", "sh", "-c", script, "sh"]
    if not shutil.which("unshare") or subprocess.run([*wrapper, "true"], capture_output=True).returncode:
        pytest.skip("network namespaces are not allowed here")
    return wrapper


def test_every_command_that_takes_a_path_is_held() -> None:
    assert {line.split()[0] for line in LINES} == taking_a_path()


@pytest.mark.slow
def test_no_command_asks_to_write_below_its_path(source: Path, together: Run, tmp_path: Path) -> None:
    commands = path_commands(source, tmp_path / "made")
    done = together(source, commands)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert done.stdout
    (opened,) = re.findall(rb"opened (\d+) times\n$", done.stderr)
    assert int(opened) > len(commands), "the witness sees what is opened"


@pytest.mark.ci
def test_no_command_writes_below_its_path(source: Path, together: Run, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not here; Python's audit events and the read-only mount are the witnesses")
    trace = tmp_path / "trace"
    wrapper = ["strace", "-f", "-qq", "-e", "trace=%file,%desc,%network", "-o", str(trace)]
    done = together(source, path_commands(source, tmp_path / "made"), wrapper)
    if b"ptrace" in done.stderr.lower():
        pytest.skip("tracing is not allowed here; Python's audit events and the read-only mount are the witnesses")
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    lines = trace.read_text(errors="replace").splitlines()
    inside = [line for line in lines if str(source) in line or "__cluster_metadata-0" in line]
    inside = [line for line in inside if str(tmp_path / "made") not in line]
    assert any("openat(" in line for line in inside), "the trace shows no read"
    for line in inside:
        assert not re.search(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)", line), line
        assert not re.search(
            r"\b(unlink|rename|mkdir|rmdir|chmod|chown|utime|truncate|link|symlink|mknod)\w*\(", line
        ), line
    connected = [line for line in lines if re.search(r"\b(connect|sendto|bind)\(", line) and "AF_INET" in line]
    assert not connected, connected[:3]


@pytest.mark.slow
def test_every_command_reads_a_read_only_folder(
    source: Path, together: Run, mounted: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    done = together(source, path_commands(source, tmp_path / "made"), mounted(source))
    assert done.returncode == 0, done.stderr.decode()[-2000:]


@pytest.mark.slow
def test_a_machine_without_a_network_is_enough(source: Path, together: Run, tmp_path: Path) -> None:
    alone = [["rules", "KP001"], ["rules"], ["simulate", "list"], ["doctor", "--completion", "bash"]]
    simulated = ["simulate", "last-replica-standing", "--out", str(tmp_path / "simulated")]
    done = together(source, [*alone, simulated, *path_commands(source, tmp_path / "made")], offline())
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert done.stdout


@pytest.mark.ci
@pytest.mark.spark
def test_a_run_reads_a_read_only_folder_and_its_lake_is_only_read(
    source: Path, command: Run, together: Run, mounted: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    lake, fleet = tmp_path / "lake", tmp_path / "fleet.yaml"
    settings = {"lake": str(lake), "redaction_key_file": str(tmp_path / "key")}
    fleet.write_text(yaml.safe_dump({**settings, "clusters": [{"name": "divergence", "paths": [str(source)]}]}))
    made = command("run", fleet, wrapper=[*mounted(source), *offline(OFFLINE)])
    assert made.returncode == 0, made.stderr.decode()[-2000:]
    for name, wrapper in (("read-only", mounted(lake)), ("offline", offline())):
        done = together(lake, lake_commands(lake, tmp_path / name), wrapper)
        assert done.returncode == 0, (name, done.stderr.decode()[-2000:])
