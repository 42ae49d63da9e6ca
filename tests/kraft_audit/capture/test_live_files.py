"""A Kafka that goes on while its files are read: nothing is fatal, and nothing of two moments passes unseen."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.capture.scanner import ChangedError
from kraft_audit.commands import results
from kraft_codec.storage.local import LocalFile
from kraft_codec.storage.opener import open_storage
from kraft_codec.storage.random_access import FileChange, Storage
from tests.builders.observed_storage import observed


class Disturbed:
    """Opens storages in which something happens to a file, once, when some of it has been read for a plan's sake."""

    def __init__(self, name: str, happens: Callable[[Path], None], path: Path) -> None:
        self.name = name
        self.happens = happens
        self.path = path
        self.is_disturbed = False

    def __call__(self, root: str) -> Storage:
        return observed(open_storage(root), after_read=self._disturb)

    def _disturb(self, _: str, path: str, length_bytes: int) -> None:
        if path.endswith(self.name) and length_bytes > 61 and not self.is_disturbed:
            self.is_disturbed = True
            self.happens(self.path)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(bytes(100))


def shrink(path: Path) -> None:
    os.truncate(path, 50)


def rewrite(path: Path) -> None:
    stat = path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 5_000_000))


@pytest.mark.parametrize(
    ("happens", "reported"), [(grow, None), (shrink, "shrank"), (rewrite, "rewritten"), (Path.unlink, "vanished")]
)
def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, happens: Callable[[Path], None], reported: str | None
) -> None:
    for number in (1, 2):
        node(tmp_path, number, usual_log.content)
    name = "node-2/__cluster_metadata-0/00000000000000000000.log"
    plan = reading.plan(tmp_path)
    disturbed = Disturbed(name, happens, tmp_path / name)
    tables = reading.tables(plan, open_storage=disturbed)
    assert disturbed.is_disturbed
    seen = [(row["reason"], row["node_id"]) for row in tables["decode_errors"]]
    assert seen == ([] if reported is None else [("CHANGED_DURING_READ", 2)])
    assert reported is None or reported in tables["decode_errors"][0]["detail"]
    assert len([row for row in tables["batches"] if row["node_id"] == 1]) == len(usual_log.batches)


@pytest.mark.parametrize(
    ("happens", "is_refused"), [(grow, False), (shrink, True), (rewrite, True), (Path.unlink, False)]
)
def test_the_pipeline_takes_the_planned_bytes_or_none(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, happens: Callable[[Path], None], is_refused: bool
) -> None:
    node(tmp_path, 1, usual_log.content)
    name = "00000000000000000000.log"
    plan = reading.plan(tmp_path)
    disturbed = Disturbed(name, happens, tmp_path / "node-1" / "__cluster_metadata-0" / name)
    if is_refused:
        with pytest.raises(ChangedError, match="while it was read"):
            reading.tables(plan, open_storage=disturbed, stop_on_change=True)
    else:
        tables = reading.tables(plan, open_storage=disturbed, stop_on_change=True)
        assert len(tables["batches"]) == len(usual_log.batches)


def test_a_file_that_is_gone_before_it_is_read(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    parts = {0: b"".join(usual_log.batches[:5]), 5: b"".join(usual_log.batches[5:])}
    folder = node(tmp_path, 1, parts)
    node(tmp_path, 2, usual_log.content)
    plan = reading.plan(tmp_path)
    (folder / "__cluster_metadata-0" / "00000000000000000005.log").unlink()
    tables = reading.tables(plan)
    (damage,) = tables["decode_errors"]
    assert (damage["reason"], damage["node_id"], damage["length_bytes"]) == ("CHANGED_DURING_READ", 1, len(parts[5]))
    unread = {row["node_id"]: row["bytes_unread"] for row in tables["captures"]}
    assert unread == {1: len(parts[5]), 2: 0}


def test_a_folder_that_is_another_nodes_by_the_time_it_is_read(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    folder = node(tmp_path, 1, usual_log.content)
    plan = reading.plan(tmp_path)
    (folder / "meta.properties").write_bytes((node(tmp_path, 2, usual_log.content) / "meta.properties").read_bytes())
    changed = [row for row in reading.tables(plan)["decode_errors"] if row["reason"] == "CHANGED_DURING_READ"]
    assert len(changed) == 1
    assert "says node 2" in changed[0]["detail"]
    assert "planned as node 1" in changed[0]["detail"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    folder = node(tmp_path, 1, usual_log.content)
    (folder / "__cluster_metadata-0" / "00000000000000000000.log").chmod(0)
    tables = reading.of(tmp_path)
    assert [row["reason"] for row in tables["decode_errors"]] == ["UNREADABLE"]


def test_more_replicas_than_files_may_be_open(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    content = b"".join(usual_log.batches[:3])
    for number in range(80):
        node(tmp_path, number, content)
    plan = reading.plan(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 40, limits[1]))
    try:
        tables = reading.tables(plan)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert tables["decode_errors"] == []
    assert len(tables["batches"]) == 3 * 80
    assert len(tables["records"]) == 2


def test_reading_changes_nothing(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    folder = node(tmp_path, 1, usual_log.content)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))}
    reading.of(tmp_path)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))} == before


@pytest.mark.parametrize(("changes", "is_named"), [(1, False), (99, True)])
def test_check_reads_again_until_no_file_changes_meanwhile(
    tmp_path: Path,
    node: Any,
    usual_log: Any,
    kraft_audit: Any,
    monkeypatch: pytest.MonkeyPatch,
    changes: int,
    is_named: bool,
) -> None:
    """What never comes to rest is named by node and file."""
    path = node(tmp_path, 1, usual_log.content) / "__cluster_metadata-0" / "00000000000000000000.log"
    left, change = [changes], LocalFile.change

    def changed(file: LocalFile) -> FileChange:
        if file.path.endswith(".log") and left[0]:
            left[0] -= 1
            rewrite(path)
        return change(file)

    monkeypatch.setattr(LocalFile, "change", changed)
    monkeypatch.setattr(results, "READ_AGAIN_AFTER_S", 0)
    out = kraft_audit("check", tmp_path).out
    assert ("CHANGED_DURING_READ" in out) == is_named
    assert ("node 1" in out and path.name in out) or not is_named
