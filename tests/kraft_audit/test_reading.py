"""A cluster is read once: how many bytes that takes, and that every view is what was read then."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kraft_audit.capture.file_beginnings import PAGE_BYTES
from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.plan import ClusterPlan, plan_from_json, plan_to_json
from kraft_audit.capture.record_store import RecordStore
from kraft_audit.capture.scanner import ChangedError
from kraft_audit.pipeline.analysis import TABLES, analyze
from kraft_audit.pipeline.history_collector import JUDGED_TABLES
from kraft_audit.reading import BRONZE_TABLES, ClusterReading, ReadingSettings
from kraft_codec.file_names import snapshot_name
from kraft_codec.records.record import write_metadata_value
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage import opener
from kraft_codec.storage.random_access import Storage
from tests.builders.commands import Command
from tests.builders.logs import NOW_MS, Log, write_node
from tests.builders.observed_storage import observed
from tests.builders.readings import branch_windows, snapshot_windows, survey_of

KEY = b"k" * 32
TIMES_MAX = 1.05
BATCH_BYTES = 20_000
open_storage = opener.open_storage


class CountedStorages:
    """Opens storages and counts the bytes that are read of their files."""

    def __init__(self, opens: Callable[..., Storage] = open_storage) -> None:
        self.opens = opens
        self.read_bytes = 0

    def __call__(self, root: str | os.PathLike[str], **more: object) -> Storage:
        return observed(self.opens(root, **more), self._count)

    def _count(self, call: str, _: str, length_bytes: int) -> None:
        self.read_bytes += length_bytes if call == "read" else 0


def config(log: Log, value_bytes: int, number: int) -> bytes:
    """A batch with one large record."""
    fields = {
        "resourceType": 2,
        "resourceName": f"topic-{number % 7}",
        "name": "follower.replication.throttled.replicas",
        "value": f"{number}:".ljust(value_bytes, "0"),
    }
    return log.append(write_metadata_value("ConfigRecord", 0, fields))


def grown(log: Log, size_bytes: int, first: int = 0) -> Log:
    written, number = 0, first
    while written < size_bytes:
        written += len(config(log, min(BATCH_BYTES, size_bytes), number))
        number += 1
    return log


def snapshot(value_bytes: int, count: int, end_offset: int) -> dict[str, bytes]:
    log = Log()
    log.control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": NOW_MS})
    for number in range(count):
        config(log, value_bytes, number)
    log.control("SNAPSHOT_FOOTER", {"version": 0})
    return {snapshot_name(end_offset, 1): log.content}


def parted_logs(folder: Path, replica_count: int, size_bytes: int, *, capture: str = "") -> int:
    """Replicas whose logs part in their last 5 %, two of them with a snapshot; how many bytes all files have."""
    shared = Log()
    shared.lead(1, epoch=1)
    grown(shared, int(size_bytes * 0.95))
    tail_bytes = size_bytes - len(shared.content)
    for node_id in range(1, replica_count + 1):
        own = shared.copy()
        own.lead(node_id % 2 + 1, epoch=2 + node_id % 2)
        grown(own, tail_bytes, first=1000 * (node_id % 2 + 1))
        files = snapshot(2_000, 7, 10) if node_id < 3 else {}
        write_node(folder / capture, node_id, own.content, files=files)
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize(("replica_count", "size_bytes"), [(1, 300_000), (2, 3_000_000), (3, 9_000_000), (5, 600_000)])
@pytest.mark.parametrize("arguments", [("check",), ("timeline",), ("report", "-o")])
def test_a_command_reads_each_byte_once(
    arguments: tuple[str, ...],
    replica_count: int,
    size_bytes: int,
    kraft_audit: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = parted_logs(tmp_path / "logs", replica_count, size_bytes)
    counted = CountedStorages()
    monkeypatch.setattr(opener, "open_storage", counted)
    command, *options = arguments
    targets = [str(tmp_path / "site")] if options else []
    ended = kraft_audit(command, tmp_path / "logs", *(["--out"] if targets else []), *targets)
    assert ended.code in (0, 1), ended.err
    # Planning reads where the first segment and the newest snapshot begin.
    assert written <= counted.read_bytes <= TIMES_MAX * written + 2 * PAGE_BYTES * replica_count


@pytest.mark.parametrize(("replica_count", "size_bytes"), [(1, 300_000), (3, 9_000_000)])
def test_a_full_run_reads_each_byte_once(tmp_path: Path, replica_count: int, size_bytes: int) -> None:
    written = parted_logs(tmp_path, replica_count, size_bytes)
    counted = CountedStorages()
    (plan,) = plan_path(str(tmp_path), open_storage=counted, captured_at_ms=NOW_MS)
    settings = ReadingSettings(counted, Redactor(KEY), stop_on_change=True)
    rows = {name: batch.num_rows for name, batch in analyze(plan_from_json(plan_to_json(plan)), settings, TABLES)}
    assert rows.keys() >= {"records", "archive", "config_changes", "findings"}
    assert counted.read_bytes <= TIMES_MAX * written


@pytest.mark.slow
def test_captures_that_prove_another_order_are_not_read_again(
    small_corpus: Path, tmp_path: Path, kraft_audit: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second capture by name holds what the first held before: renumbered, from the bytes that were read."""
    late = small_corpus / "elr" / "29-stopped"
    shutil.copytree(late, tmp_path / "a", ignore=shutil.ignore_patterns("oracle"))
    shutil.copytree(late, tmp_path / "b", ignore=shutil.ignore_patterns("oracle"))
    for log in (tmp_path / "b").rglob("__cluster_metadata-0/00000000000000000000.log"):
        log.chmod(0o644)
        for file in log.parent.glob("*.checkpoint"):
            file.unlink()
        content = log.read_bytes()
        log.write_bytes(content[: len(content) // 2] + bytes(len(content)))
    counted = CountedStorages()
    monkeypatch.setattr(opener, "open_storage", counted)
    assert kraft_audit("check", tmp_path).code in (0, 1)
    once = counted.read_bytes
    (tmp_path / "b").rename(tmp_path / "0")
    counted.read_bytes = 0
    assert kraft_audit("check", tmp_path).code in (0, 1)
    assert once == counted.read_bytes


def test_an_archive_is_unpacked_and_read_once(
    tmp_path: Path, kraft_audit: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = parted_logs(tmp_path / "logs", 3, 600_000)
    with tarfile.open(tmp_path / "logs.tgz", "w:gz") as archive:
        archive.add(tmp_path / "logs", "logs")
    counted = CountedStorages()
    monkeypatch.setattr(opener, "open_storage", counted)
    assert kraft_audit("check", tmp_path / "logs.tgz").code in (0, 1)
    assert counted.read_bytes <= TIMES_MAX * written


def test_a_batch_that_a_chunk_cuts_is_read_once(tmp_path: Path) -> None:
    """Batches of a third of a chunk: what is left of a chunk begins the next one."""
    log = grown(Log(), 2_000_000)
    write_node(tmp_path, 1, log.content)
    counted = CountedStorages()
    (plan,) = plan_path(str(tmp_path), open_storage=open_storage, captured_at_ms=NOW_MS)
    with ClusterReading(plan, ReadingSettings(counted, Redactor(KEY), chunk_bytes_max=256 << 10)) as reading:
        assert [end.end_offset for end in reading.survey.ends] == [log.next_offset]
    assert counted.read_bytes <= TIMES_MAX * len(log.content)


def planned(folder: Path) -> ClusterPlan:
    (plan,) = plan_path(str(folder), open_storage=open_storage, captured_at_ms=NOW_MS)
    return plan


def settings_of() -> ReadingSettings:
    return ReadingSettings(open_storage, Redactor(KEY), clock_ms=lambda: NOW_MS)


def view_of(reading: ClusterReading) -> list[object]:
    """Every record of every branch and snapshot, as text."""
    survey = reading.survey
    seen: list[object] = []
    for number in range(len(survey.branches)):
        for window in reading.windows(survey.path(number)):
            seen += [(name, batch.to_pylist()) for name, batch in window.records.items()]
            seen.append(window.undecoded.tolist())
    for found in survey.snapshots:
        for window in reading.snapshot(found.source):
            seen += [(name, batch.to_pylist()) for name, batch in window.records.items()]
    return seen


def flat(seen: list[object]) -> str:
    return str(seen)


@pytest.mark.parametrize("tables", [frozenset[str](), JUDGED_TABLES, BRONZE_TABLES])
@pytest.mark.parametrize("sizes", [(0, 1 << 30), (100_000, 1 << 30), (0, 0), (100_000, 100)])
def test_what_does_not_fit_in_memory_is_the_same(
    tmp_path: Path, tables: frozenset[str], sizes: tuple[int, int]
) -> None:
    """In a file, and read again from the storage where there is no room in that either."""
    parted_logs(tmp_path, 3, 400_000)
    plan = planned(tmp_path)
    expected, found = [], []
    for store in (RecordStore(), RecordStore(*sizes)):
        with ClusterReading(plan, settings_of()) as reading:
            reading.store = store
            rows = [(name, batch.to_pylist()) for name, batch in reading.bronze(tables)]
            (found if expected else expected).append((flat(view_of(reading)), rows))
    assert found == expected
    assert (store.bytes_read_again > 0) == (sizes[1] < 1_000)


def test_compressed_batches_and_gaps_come_back_from_the_file(tmp_path: Path, small_corpus: Path) -> None:
    for folder in (small_corpus / "crafted" / "compressed-batches", small_corpus / "crafted" / "damaged"):
        for plan in plan_path(str(folder), open_storage=open_storage, captured_at_ms=NOW_MS):
            views = []
            for store in (RecordStore(), RecordStore(0), RecordStore(0, 0)):
                with ClusterReading(plan, settings_of()) as reading:
                    reading.store = store
                    for _ in reading.bronze(JUDGED_TABLES):
                        pass
                    views.append(flat(view_of(reading)))
            assert views[1:] == views[:1] * 2, plan.cluster_id


def test_a_file_that_changes_after_it_was_read_does_not_matter(tmp_path: Path) -> None:
    parted_logs(tmp_path, 2, 300_000)
    plan = planned(tmp_path)
    with ClusterReading(plan, settings_of()) as reading:
        expected = flat(view_of(reading))
    with ClusterReading(plan, settings_of()) as reading:
        assert reading.survey.holds_anything
        for file in tmp_path.rglob("*"):
            if file.is_file():
                file.unlink()
        assert flat(view_of(reading)) == expected


def test_batches_that_must_be_read_again_and_have_changed_are_refused(tmp_path: Path) -> None:
    node = write_node(tmp_path, 1, grown(Log(), 100_000).content)
    log = node / "__cluster_metadata-0" / "00000000000000000000.log"
    with ClusterReading(planned(tmp_path), settings_of()) as reading:
        reading.store = RecordStore(0, 0)
        assert reading.survey.holds_anything
        content = bytearray(log.read_bytes())
        content[5_000] ^= 1
        log.write_bytes(content)
        with pytest.raises(ChangedError, match="changed after it was read"):
            list(reading.windows([0]))


def test_a_temporary_folder_that_is_full_costs_a_second_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    parted_logs(tmp_path, 1, 300_000)
    with ClusterReading(planned(tmp_path), settings_of()) as reading:
        expected = flat(view_of(reading))
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with ClusterReading(planned(tmp_path), settings_of()) as reading:
        reading.store = RecordStore(0)
        assert flat(view_of(reading)) == expected
        assert reading.store.bytes_read_again > 250_000


def test_windows_end_where_they_are_cut(tmp_path: Path, usual_log: Log) -> None:
    write_node(tmp_path, 1, usual_log.content)
    with ClusterReading(planned(tmp_path), settings_of()) as reading:
        (window,) = reading.windows([0], 3, 7)
        assert (window.from_offset, window.to_offset) == (3, 7)
        assert sorted(offset for batch in window.records.values() for offset in batch["offset"].to_pylist()) == [
            3,
            4,
            5,
            6,
        ]
        assert list(reading.windows([0], usual_log.next_offset)) == []
        assert list(reading.windows([1])) == []


def test_rows_are_asked_for_once_and_taken_to_their_end(tmp_path: Path, usual_log: Log) -> None:
    write_node(tmp_path, 1, usual_log.content)
    with ClusterReading(planned(tmp_path), settings_of()) as reading:
        next(reading.bronze())
        with pytest.raises(ValueError, match="to their end first"):
            reading.survey  # noqa: B018
        with pytest.raises(ValueError, match="read once"):
            next(reading.bronze())


def test_only_a_whole_plan_is_surveyed(tmp_path: Path, usual_log: Log) -> None:
    write_node(tmp_path, 1, usual_log.content)
    plan = replace(planned(tmp_path), decoded_to=3)
    with ClusterReading(plan, settings_of()) as reading, pytest.raises(ValueError, match="only a whole plan"):
        reading.survey  # noqa: B018


def test_helpers_read_what_a_reading_reads(tmp_path: Path) -> None:
    """The builders that other tests use are views of a reading, too."""
    parted_logs(tmp_path, 2, 300_000)
    plan = planned(tmp_path)
    settings = {"open_storage": open_storage, "redactor": Redactor(KEY)}
    survey = survey_of(plan)
    with ClusterReading(plan, settings_of()) as reading:
        path = survey.path(len(survey.branches) - 1)
        assert list(map(str, branch_windows(plan, path, **settings))) == list(map(str, reading.windows(path)))
        source = survey.snapshots[0].source
        assert list(map(str, snapshot_windows(plan, source, **settings))) == list(map(str, reading.snapshot(source)))
