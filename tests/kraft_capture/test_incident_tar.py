"""One archive of an incident is what `kraft-audit check` reads, from this host and from others."""

from __future__ import annotations

import json
import shlex
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft_audit.commands.cli import run_command
from kraft_capture import incident_tar
from kraft_capture.cli import main
from tests.builders.live_log import LiveLog

SSH = """#!/bin/sh
# Runs here what ssh would run there: the last argument, in a folder that knows nothing of this project.
shift
host=$1
test "$host" != away || exit 255
cd / && PYTHONPATH= exec sh -c "$2"
"""


@pytest.fixture
def nodes(small_corpus: Path, tmp_path: Path) -> list[Path]:
    """The node dirs of a capture of three voters that parted."""
    source = sorted((small_corpus / "divergence").iterdir())[0]
    shutil.copytree(source, tmp_path / "nodes")
    return sorted(path.parent for path in (tmp_path / "nodes").rglob("meta.properties"))


@pytest.fixture
def ssh(tmp_path: Path) -> str:
    program = tmp_path / "ssh"
    program.write_text(SSH)
    program.chmod(0o755)
    return shlex.quote(str(program))


@pytest.mark.slow
def test_the_archive_reads_as_the_log_dirs_do(
    nodes: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "incident.tgz"
    assert main(["--tar", str(target), *(part for node in nodes for part in ("--log-dirs", str(node)))]) == 0
    findings = []
    for path in (target, tmp_path / "nodes"):
        run_command(["check", str(path), "--output", "json", "--fail-on", "never"])
        found = json.loads(capsys.readouterr().out)
        findings.append([{name: row[name] for name in ("rule", "status", "subject", "from_offset")} for row in found])
    assert findings[0] == findings[1]
    assert len(findings[0]) > 0
    assert target.stat().st_mode & 0o777 == 0o600


def test_the_state_is_read_after_the_log(nodes: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "incident.tar"
    assert main(["--tar", str(target), "--log-dirs", str(nodes[1])]) == 0
    with tarfile.open(target) as archive:
        names = [Path(name).name for name in archive.getnames()]
        note = json.loads(archive.extractfile(archive.getnames()[-1]).read())  # type: ignore[union-attr]
    assert names[-3:] == ["quorum-state", "meta.properties", "kraft-capture.json"]
    assert note["is_stable"] is True
    assert {path.name for path in nodes[1].iterdir() if path.is_file()} <= set(names)
    assert {entry["state"] for entry in note["entries"]} == {"sent"}


@pytest.mark.slow
def test_hosts_are_reached_by_ssh(nodes: list[Path], ssh: str, tmp_path: Path) -> None:
    target = tmp_path / "incident.tgz"
    arguments = ["--tar", str(target), "--log-dirs", str(nodes[0]), "--ssh", ssh, "kafka-1", "admin@kafka-2"]
    assert main(arguments) == 0
    with tarfile.open(target) as archive:
        names = archive.getnames()
        content = archive.extractfile(next(name for name in names if name.endswith(".log"))).read()  # type: ignore[union-attr]
    assert {name.partition("/")[0] for name in names} == {"kafka-1", "kafka-2"}
    assert content == next(nodes[0].rglob("*.log")).read_bytes()


def test_a_host_that_is_away_is_named_and_the_others_stay(
    nodes: list[Path], ssh: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "incident.tgz"
    assert main(["--tar", str(target), "--log-dirs", str(nodes[0]), "--ssh", ssh, "away", "kafka-2"]) == 3
    assert "away: ended with 255" in capsys.readouterr().err
    with tarfile.open(target) as archive:
        assert {name.partition("/")[0] for name in archive.getnames()} == {"kafka-2"}


def test_a_log_that_changes_meanwhile_is_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = LiveLog(tmp_path / "node")
    log.append(4)
    real: Callable[..., None] = incident_tar._add_file

    def truncated_first(*arguments: object) -> None:
        if len(log.batches) == 4:
            log.truncate(1)
        real(*arguments)

    monkeypatch.setattr(incident_tar, "_add_file", truncated_first)
    assert main(["--tar", str(tmp_path / "incident.tar"), "--log-dirs", str(log.folder)]) == 3
    assert "unstable" in capsys.readouterr().err
    with tarfile.open(tmp_path / "incident.tar") as archive:
        assert len(archive.getnames()) == 5, "the archive is whole all the same"


def test_what_exists_is_not_replaced_and_log_dirs_are_not_written(
    nodes: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there.tgz").touch()
    for target in (tmp_path / "there.tgz", nodes[0] / "inside.tgz"):
        assert main(["--tar", str(target), "--log-dirs", str(nodes[0])]) == 2
    assert "exists" in capsys.readouterr().err
    assert not (nodes[0] / "inside.tgz").exists()
