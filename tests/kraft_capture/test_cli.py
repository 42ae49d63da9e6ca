"""The command: exit codes, where it refuses to write, what its metrics say, and that its input is only read."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kraft_capture.cli import main
from tests.builders.http_store import HttpServer
from tests.builders.live_log import LiveLog, StoreWitness, refuse_to_open

ONCE = ("--once", "--durable")


def arguments(log: LiveLog, *more: str, to: str | None = None) -> list[str]:
    folder = log.folder.parent
    return ["--log-dirs", str(log.folder), "--to", to or str(folder / "store"), "--state", str(folder / "state"), *more]


def test_all_is_in_the_store(log: LiveLog) -> None:
    assert main(arguments(log, *ONCE)) == 0
    witness = StoreWitness(next((log.folder.parent / "store").glob("*/*")))
    witness.check()
    assert witness.log(*witness.newest()) == log.batches


def test_a_store_that_is_away(log: LiveLog, server: HttpServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers = [(403, {}, b"<Error><Code>AccessDenied</Code></Error>")]
    assert main(arguments(log, *ONCE, to=f"{server.url}/copies?sig=secret")) == 1
    error = capsys.readouterr().err
    assert "403 AccessDenied" in error
    assert "secret" not in error


def test_a_snapshot_that_cannot_be_read(
    log: LiveLog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log.snapshot()
    refuse_to_open(monkeypatch, ".checkpoint")
    assert main(arguments(log, *ONCE)) == 3
    assert "unreadable (EACCES)" in capsys.readouterr().err
    _, manifest = StoreWitness(next((log.folder.parent / "store").glob("*/*"))).newest()
    assert {entry["state"] for entry in manifest["entries"] if entry["path"].endswith(".checkpoint")} == {"unreadable"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--to", "x"], "--log-dirs"),
        (["--log-dirs", "LOG"], "--to"),
        (["--log-dirs", "LOG", "--to", "gs://bucket"], "--pipe-to"),
        (["--log-dirs", "LOG", "--to", "gs://bucket", "--pipe-to", "cat"], "{uri}"),
        (["--log-dirs", "LOG", "--to", "LOG/copies"], "only read"),
        (["--log-dirs", "LOG", "--to", "x", "--state", "LOG"], "only read"),
        (["--config", "/no/such/file", "--to", "x"], "/no/such/file"),
        (["--log-dirs", "LOG", "--to", "x", "host"], "HOST"),
    ],
)
def test_options_that_cannot_work(
    log: LiveLog, options: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(log.folder.parent)
    monkeypatch.setenv("STATE_DIRECTORY", str(log.folder.parent / "state"))
    assert main([option.replace("LOG", str(log.folder)) for option in options]) == 2
    assert said in capsys.readouterr().err


def test_there_is_no_metadata_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    options = ["--to", str(tmp_path / "store"), "--state", str(tmp_path / "state"), *ONCE]
    assert main(["--log-dirs", f"{tmp_path}/empty,{tmp_path}/missing", *options]) == 3
    assert "missing: no such directory" in capsys.readouterr().err


def test_every_log_dir_is_searched_and_two_logs_are_two_replicas(tmp_path: Path) -> None:
    for number in (1, 2):
        LiveLog(tmp_path / f"disk-{number}", node_id=number).append(number)
    (tmp_path / "disk-3").mkdir()
    properties = tmp_path / "server.properties"
    dirs = ",".join(str(tmp_path / f"disk-{number}") for number in (2, 3))
    properties.write_text(f"metadata.log.dir={tmp_path}/disk-1\nlog.dirs = {dirs}\n")
    options = ["--config", str(properties), "--to", str(tmp_path / "store"), "--state", str(tmp_path / "state")]
    assert main([*options, *ONCE]) == 0
    replicas = sorted((tmp_path / "store").glob("*/*"))
    assert [replica.name[0] for replica in replicas] == ["1", "2"]


def test_metrics_are_replaced_and_labelled(log: LiveLog) -> None:
    assert main(arguments(log, *ONCE, "--metrics", str(log.folder.parent / "capture"))) == 0
    text = (log.folder.parent / "capture.prom").read_text()
    labels = 'cluster="SPA6Lw-19VaaSAxl6jMkhw",node="1",directory="IztfOUj9Tn6xWIrmebIevg"'
    figures = dict(re.findall(r"^kraft_capture_(\w+)\{([^}]*)\} \S+$", text, re.MULTILINE))
    assert set(figures.values()) >= {labels}
    assert f"kraft_capture_end_offset{{{labels}}} 5\n" in text
    assert f"kraft_capture_unsent_bytes{{{labels}}} 0\n" in text
    assert not list(log.folder.parent.glob(".capture*"))
    for name in set(re.findall(r"^kraft_capture_\w+", text, re.MULTILINE)):
        assert text.count(f"# TYPE {name} ") == text.count(f"# HELP {name} ") == 1


def test_two_processes_do_not_share_a_state(log: LiveLog, capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "kraft_capture", *arguments(log, "--every", "0.1")], stderr=subprocess.PIPE
    ) as running:
        deadline = time.monotonic() + 20
        while not list(log.folder.parent.glob("store/*/*/*/*.json.gz")) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert main(arguments(log, *ONCE)) == 2
        assert "another kraft-capture uses it" in capsys.readouterr().err
        log.append()
        running.send_signal(signal.SIGTERM)
        running.wait(20)
    assert running.returncode == 0
    witness = StoreWitness(next((log.folder.parent / "store").glob("*/*")))
    witness.check()
    generation, newest = witness.newest()
    assert newest["reason"] == "stop"
    assert len(witness.log(generation, newest)) >= 5


@pytest.mark.ci
def test_the_input_is_only_read(log: LiveLog, tmp_path: Path) -> None:
    """By the system's own record of its calls."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not here")
    log.snapshot()
    (log.folder / ".lock").touch()
    trace = tmp_path / "trace"
    command = [sys.executable, "-m", "kraft_capture", *arguments(log, *ONCE)]
    wrapper = ["strace", "-f", "-y", "-qq", "-e", "trace=%file,%desc", "-o", str(trace)]
    done = subprocess.run([*wrapper, *command], capture_output=True, timeout=100)
    if b"ptrace" in done.stderr.lower():
        pytest.skip("tracing is not allowed here")
    assert done.returncode == 0, done.stderr.decode()
    inside = [line for line in trace.read_text(errors="replace").splitlines() if str(log.folder) in line]
    assert any("openat(" in line and ".log" in line for line in inside)
    assert any("F_GETLK" in line for line in inside)
    for line in inside:
        assert not re.search(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)|F_SETLK|F_OFD_SETLK|flock\(", line), line
        calls = r"\b(unlink|rename|mkdir|rmdir|chmod|chown|utime|truncate|link|symlink|mknod|p?write)\w*\("
        assert not re.search(calls, re.sub(r"readlink\w*\(", "", line)), line
