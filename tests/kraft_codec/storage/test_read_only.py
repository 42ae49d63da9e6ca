"""The promise never to write below the root that is read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft_codec.file_names import segment_name
from kraft_codec.files.discovery import discover
from kraft_codec.files.logdir import segments
from kraft_codec.storage.local import LocalStorage
from kraft_codec.storage.opener import open_storage
from tests.builders.node_dirs import SEGMENT_PATH as SEGMENT
from tests.builders.node_dirs import MakeNodeDir, as_somebody_else, heads


def test_nothing_below_the_root_changes(
    node_dir: Path, make_node_dir: MakeNodeDir, unchanged: Callable[[Path], str]
) -> None:
    make_node_dir(node_dir.parent / "capture" / "node-2", node_id=2)
    before = unchanged(node_dir.parent)
    with open_storage(node_dir.parent) as opened:
        for replica in discover(opened).replicas:
            heads(opened, replica)
            segments(opened, replica)
            for file in replica.files:
                opened.read_small(file.path)
    assert unchanged(node_dir.parent) == before


def test_the_access_time_stays_where_the_owner_reads(node_dir: Path) -> None:
    os.utime(node_dir / SEGMENT, (1, 2))
    with open_storage(node_dir) as opened:
        opened.read_small(SEGMENT)
    assert (node_dir / SEGMENT).stat().st_atime == 1


def test_another_user_may_read_without_the_right_to_hide_it(node_dir: Path) -> None:
    node_dir.parent.chmod(0o755)
    with LocalStorage(str(node_dir)) as opened, as_somebody_else():
        assert len(opened.read_small(SEGMENT)) > 0


READER = """
import sys
from kraft_codec.files.discovery import discover
from kraft_codec.files.logdir import read_checkpoints, read_meta, read_quorum_state, segments
from kraft_codec.storage.opener import open_storage
with open_storage(sys.argv[1]) as storage:
    for replica in discover(storage).replicas:
        for read in (read_meta, read_checkpoints, read_quorum_state, segments):
            read(storage, replica)
        for file in replica.files:
            storage.read_small(file.path)
"""


@pytest.mark.ci
def test_the_system_sees_no_call_that_writes(node_dir: Path, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("no strace here")
    trace = tmp_path / "trace"
    done = subprocess.run(
        ["strace", "-f", "-e", "trace=%file,%desc", "-o", str(trace), sys.executable, "-c", READER, str(node_dir)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if "PTRACE" in done.stderr or "ptrace" in done.stderr:
        pytest.skip("tracing is not allowed here")
    assert done.returncode == 0, done.stderr
    text = trace.read_text()
    inside = [line for line in text.splitlines() if "__cluster_metadata-0" in line or segment_name(0) in line]
    assert inside, "the trace does not show the reads"
    opened = [line for line in inside if "openat(" in line]
    assert opened
    for line in opened:
        assert "O_NOFOLLOW" in line
        assert not re.search(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)", line), line
    for line in inside:
        assert not re.search(r"\b(unlink|rename|mkdir|chmod|chown|utime|truncate|link|mknod)\w*\(", line), line
    assert not re.search(r"mmap\([^)]*\.log", text)
