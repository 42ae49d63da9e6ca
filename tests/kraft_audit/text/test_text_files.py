"""What is written is there whole or not at all; a limit on the size of files, which the kernel holds, is the disk."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraft_audit.findings.pack.evidence_pack import ClusterEvidence, write_pack
from kraft_audit.findings.pack.pack_verification import verify_pack
from kraft_audit.report.report_source import ClusterInput
from kraft_audit.report.site import write_site
from kraft_audit.text.text_files import whole_file
from kraft_codec.errors import InputError
from tests.builders.histories import HistoryBuilder
from tests.builders.report_sources import GivenSource


@contextmanager
def full_disk(room_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.rglob("*") if file.is_file()}


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 250)  # as long as a name may be
    with whole_file(target) as first, whole_file(target) as second:
        first.write_text("one")
        second.write_text("other")
    assert target.read_text() == "one"
    assert names(tmp_path) == {target.name}


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("before")
    with pytest.raises(OSError, match="File too large"), full_disk(3), whole_file(tmp_path / "a") as unfinished:
        unfinished.write_text("half")
    assert (tmp_path / "a").read_text() == "before"
    assert names(tmp_path) == {"a"}


def test_a_pack_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    evidence = [ClusterEvidence(HistoryBuilder().three_nodes().history(), ())]
    pack = tmp_path / "pack.zip"
    with pytest.raises(OSError, match="File too large"), full_disk(500):
        write_pack(pack, evidence, tool_version="1", made_at_ms=5)
    assert names(tmp_path) == set()
    write_pack(pack, evidence, tool_version="1", made_at_ms=5)
    assert verify_pack(pack).is_whole


@pytest.mark.parametrize("room_bytes", [200, 3000])
def test_a_report_on_a_full_disk_keeps_the_one_before(tmp_path: Path, room_bytes: int) -> None:
    """Neither a page nor findings.csv is cut, and no temporary file stays."""
    write_site(GivenSource([]), tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in ("index.html", "findings.csv", "metrics.prom")}
    there = names(tmp_path)
    many = ClusterInput(HistoryBuilder().history(), [], "x")
    with pytest.raises(InputError, match="cannot be written: File too large"), full_disk(room_bytes):
        write_site(GivenSource([many]), tmp_path)
    assert names(tmp_path) == there
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    write_site(GivenSource([many]), tmp_path)
    assert len(names(tmp_path) - there) == 1
