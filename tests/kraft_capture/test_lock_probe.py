"""Whether somebody holds the log dir's lock: Python's locks, and Java's as Kafka takes them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kraft_capture.log_dirs import probe_lock

HOLD = (
    "import fcntl,sys;f=open(sys.argv[1],'r+');fcntl.lockf(f,fcntl.LOCK_EX);print('held',flush=True);sys.stdin.read()"
)
HOLD_IN_JAVA = """
import java.nio.channels.FileChannel;
import java.nio.file.*;
public class Hold {
    public static void main(String[] names) throws Exception {
        FileChannel channel = FileChannel.open(Path.of(names[0]), StandardOpenOption.CREATE, StandardOpenOption.READ,
            StandardOpenOption.WRITE);
        if (channel.tryLock() == null) throw new IllegalStateException("not to be had");
        System.out.println("held");
        System.in.read();
    }
}
"""


def holding(*command: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_a_lock_is_seen_as_long_as_it_is_held(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    assert probe_lock(str(tmp_path)) == "unknown"
    lock.touch()
    assert probe_lock(str(tmp_path)) == "none-seen"
    with holding(sys.executable, "-c", HOLD, str(lock)):
        assert probe_lock(str(tmp_path)) == "held"
    assert probe_lock(str(tmp_path)) == "none-seen"


def test_asking_takes_no_lock_from_anybody(tmp_path: Path) -> None:
    """Closing a descriptor gives up every lock of this process on that file: it must hold none there."""
    lock = tmp_path / ".lock"
    lock.touch()
    with holding(sys.executable, "-c", HOLD, str(lock)):
        for _ in range(3):
            assert probe_lock(str(tmp_path)) == "held"
        with lock.open("r+") as second, pytest.raises(OSError, match="temporarily unavailable"):
            fcntl.lockf(second, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_is_no_file_is_unknown(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / ".lock").symlink_to("pipe")
    assert probe_lock(str(tmp_path)) == "unknown"


@pytest.mark.ci
def test_java_s_lock_is_seen(tmp_path: Path) -> None:
    """Kafka's FileLock is FileChannel.tryLock."""
    if shutil.which("java") is None:
        pytest.skip("Java is not here")
    (tmp_path / "Hold.java").write_text(HOLD_IN_JAVA)
    with holding("java", str(tmp_path / "Hold.java"), str(tmp_path / ".lock")):
        assert probe_lock(str(tmp_path)) == "held"
    assert probe_lock(str(tmp_path)) == "none-seen"
