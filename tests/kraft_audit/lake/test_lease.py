"""The lease lets one driver in at a time: one that ended at once, one that was killed after a while."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kraft_audit.lake.lease import Lease
from kraft_codec.errors import InputError

TOUCHED_EVERY_S = 0.02
EXPIRES_S = 0.4


def lease(folder: Path) -> Lease:
    return Lease(folder, touched_every_s=TOUCHED_EVERY_S, expires_s=EXPIRES_S)


def numbers(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "_lease").glob("0*"))


def test_a_second_driver_is_refused_until_the_first_one_ended(tmp_path: Path) -> None:
    first, second = lease(tmp_path), lease(tmp_path)
    first.hold()
    first.hold()
    with pytest.raises(InputError, match=f"process {os.getpid()} on .* commits to the lake now"):
        second.hold()
    first.release()
    began = time.monotonic()
    second.hold()
    assert time.monotonic() - began < EXPIRES_S, "no wait for one that ended"
    assert numbers(tmp_path) == ["000000000002"]
    with pytest.raises(InputError, match="commits to the lake now"):
        first.hold()


def test_a_driver_that_was_killed_counts_as_ended_after_a_while(tmp_path: Path) -> None:
    program = f"""
import os
from pathlib import Path
from kraft_audit.lake.lease import Lease
lease = Lease(Path({str(tmp_path)!r}))
lease.hold()
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    began = time.monotonic()
    after = lease(tmp_path)
    after.hold()
    assert EXPIRES_S <= time.monotonic() - began < 10 * EXPIRES_S
    assert numbers(tmp_path) == ["000000000002"]


def test_a_driver_that_stood_still_finds_its_lease_lost(tmp_path: Path) -> None:
    stopped = Lease(tmp_path, touched_every_s=1e9, expires_s=EXPIRES_S)
    stopped.hold()
    after = lease(tmp_path)
    after.hold()
    with pytest.raises(InputError, match="stood still and lost its lease"):
        stopped.hold()
    stopped.touch()
    with pytest.raises(InputError, match="stood still and lost its lease"):
        stopped.hold()
    after.hold()


def test_of_many_that_find_it_free_one_gets_it(tmp_path: Path) -> None:
    before = lease(tmp_path)
    before.hold()
    before.release()
    held: list[Lease] = []
    refused: list[InputError] = []
    start = threading.Barrier(8)

    def take() -> None:
        each = lease(tmp_path)
        start.wait()
        try:
            each.hold()
            held.append(each)
        except InputError as problem:
            refused.append(problem)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(held), len(refused)) == (1, 7)


def test_a_folder_keeps_its_id_and_no_two_share_one(tmp_path: Path) -> None:
    ids = {lease(tmp_path / name).id() for name in ("a", "a", "b")}
    assert len(ids) == 2
    assert [file.name for file in (tmp_path / "a" / "_lease").iterdir()] == ["id"]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "_lease").write_text("no folder")
    with pytest.raises(InputError, match="no lease: "):
        lease(tmp_path).hold()
