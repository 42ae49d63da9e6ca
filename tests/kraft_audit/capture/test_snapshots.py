"""Snapshots: which copy is decoded, what is said of broken ones, and the records of one."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraft_audit.capture.decoded_records import RecordWindow
from kraft_audit.capture.path_plans import plan_cluster
from kraft_audit.capture.replica import ReadingSettings, open_replicas
from kraft_audit.capture.scanner import ChangedError
from kraft_audit.capture.snapshots import Snapshot, SnapshotChecker, find_snapshots
from kraft_codec.file_names import snapshot_name
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from kraft_codec.text.java_text import uuid_text
from tests.builders.readings import snapshot_windows, survey_of
from tests.builders.snapshot_files import snapshot_of

KEY = b"k" * 32
SOURCE = snapshot_name(13, 1).removesuffix(".checkpoint")


def windows_of(plan: Any, source: str = SOURCE) -> list[RecordWindow]:
    return list(snapshot_windows(plan, source, open_storage=open_storage, redactor=Redactor(KEY)))


def topics_of(windows: list[RecordWindow]) -> list[str]:
    return [name for window in windows for name in window.records["TopicRecord"].column("name").to_pylist()]


@pytest.mark.parametrize("complete_on", [1, 2])
def test_one_complete_copy_of_a_snapshot_is_decoded(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, complete_on: int
) -> None:
    name = snapshot_name(13, 1)
    for number in (1, 2):
        snapshot = snapshot_of(type(usual_log), 1, 3, footer=number == complete_on)
        node(tmp_path, number, usual_log.content, files={name: snapshot})
    tables = reading.of(tmp_path)
    source = name.removesuffix(".checkpoint")
    rows = [row for row in tables["records"] if row["source"] == source]
    assert [row["record_type"] for row in rows] == ["SNAPSHOT_HEADER", *["TOPIC_RECORD"] * 3, "SNAPSHOT_FOOTER"]
    (damage,) = tables["decode_errors"]
    assert (damage["reason"], damage["node_id"]) == ("SNAPSHOT_INCOMPLETE", 3 - complete_on)
    assert damage["detail"] == "no snapshot footer"
    ends = {row["node_id"]: (row["snapshot_end_offset"], row["snapshot_count"]) for row in tables["captures"]}
    assert ends == {complete_on: (13, 1), 3 - complete_on: (None, 0)}
    held = [(row["node_id"], row["base_offset"]) for row in tables["batches"] if row["source"] == source]
    assert len(held) == 9


def test_an_unfinished_and_a_missing_snapshot(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    part = "00000000000000000005-0000000001-123456.checkpoint.part"
    tail = b"".join(usual_log.batches[5:])
    tables = reading.of(node(tmp_path, 1, {5: tail}, files={part: b"half"}))
    assert sorted(row["reason"] for row in tables["decode_errors"]) == ["SNAPSHOT_MISSING", "SNAPSHOT_UNFINISHED"]
    assert tables["captures"][0]["log_start_offset"] == 5


def test_a_snapshot_of_another_epoch_than_its_name(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    snapshot = snapshot_of(type(usual_log), 4, 1)
    tables = reading.of(node(tmp_path, 1, usual_log.content, files={snapshot_name(13, 1): snapshot}))
    assert [(row["reason"], "name says 1" in row["detail"]) for row in tables["decode_errors"]] == [("BAD_FILE", True)]


def test_bootstrap_files_of_different_content_are_all_kept(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    for number in (1, 2, 3):
        folder = node(tmp_path, number, usual_log.content)
        content = snapshot_of(type(usual_log), 0, 1 if number < 3 else 2)
        (folder / "bootstrap.checkpoint").write_bytes(content)
    tables = reading.of(tmp_path)
    sources = sorted({row["source"] for row in tables["records"]} - {"log"})
    assert len(sources) == 2
    assert all(source.startswith("bootstrap-") for source in sources)
    # They come before the log, so that short secrets are numbered in the order of time.
    assert tables["records"][0]["source"] in sources


def test_the_records_of_one_snapshot(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    snapshot = snapshot_of(type(usual_log), 1, 4)
    node(tmp_path, 1, usual_log.content, files={snapshot_name(13, 1): snapshot})
    plan = reading.plan(tmp_path)
    (found,) = survey_of(plan).snapshots
    assert (found.end_offset, found.epoch, [control.name for control in found.controls]) == (
        13,
        1,
        ["SNAPSHOT_HEADER", "SNAPSHOT_FOOTER"],
    )
    assert topics_of(windows_of(plan, found.source)) == [f"kept-{number}" for number in range(4)]
    with pytest.raises(ValueError, match="no snapshot 00000000000000000014-0000000001 in this plan"):
        windows_of(plan, "00000000000000000014-0000000001")


def test_the_snapshot_of_another_cluster_is_not_read(tmp_path: Path, node: Any, usual_log: Any) -> None:
    """Of one name, but what it holds was not this cluster's: the replica in front is refused, the other one read."""
    name = snapshot_name(13, 1)
    foreign, own = (snapshot_of(type(usual_log), 1, topics) for topics in (9, 2))
    node(tmp_path, 1, usual_log.content, cluster_id=uuid_text(b"another-cluster!"), files={name: foreign})
    for number in (2, 3):
        node(tmp_path, number, usual_log.content, files={name: own})
    plan = plan_cluster([str(tmp_path)], open_storage=open_storage, captured_at_ms=5, name="payments")
    assert topics_of(windows_of(plan)) == ["kept-0", "kept-1"]


def test_a_snapshot_that_goes_after_the_survey_is_an_error(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    name = snapshot_name(13, 1)
    folder = node(tmp_path, 1, usual_log.content, files={name: snapshot_of(type(usual_log), 1, 3)})
    plan = reading.plan(tmp_path)
    assert [snapshot.replicas for snapshot in survey_of(plan).snapshots] == [(0,)]
    (folder / "__cluster_metadata-0" / name).unlink()
    with pytest.raises(ChangedError, match=f"snapshot {SOURCE}"):
        windows_of(plan)


@pytest.mark.parametrize(("header", "footer"), [(True, False), (False, True), (False, False)])
def test_of_an_incomplete_snapshot_the_records_are_read(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, header: bool, footer: bool
) -> None:
    snapshot = snapshot_of(type(usual_log), 1, 3, header=header, footer=footer)
    node(tmp_path, 1, usual_log.content, files={snapshot_name(13, 1): snapshot})
    plan = reading.plan(tmp_path)
    (found,) = survey_of(plan).snapshots
    assert found.replicas == ()
    assert [control.name for control in found.controls] == ["SNAPSHOT_HEADER"] * header + ["SNAPSHOT_FOOTER"] * footer
    assert found.timestamp_ms == (7 if header else None)
    assert topics_of(windows_of(plan)) == ["kept-0", "kept-1", "kept-2"]


@pytest.mark.parametrize("chunk_bytes", [100, 150, 400, 1 << 20])
def test_a_snapshot_is_judged_alike_however_much_is_read_at_a_time(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, chunk_bytes: int
) -> None:
    """Whole; of two epochs from its first batches on; without a footer."""
    snapshot_log = type(usual_log)(epoch=4)
    snapshot_log.control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": 7})
    for number in range(5):
        snapshot_log.topic(f"kept-{number}", epoch=4 if number < 1 else 5)
    snapshot_log.control("SNAPSHOT_FOOTER", {"version": 0})
    snapshots = {
        snapshot_name(11, 1): snapshot_of(type(usual_log), 1, 5),
        snapshot_name(12, 1): snapshot_log.content,
        snapshot_name(13, 1): snapshot_of(type(usual_log), 1, 5, footer=False),
    }
    plan = reading.plan(node(tmp_path, 1, usual_log.content, files=snapshots))
    with ExitStack() as stack:
        replicas, usual = open_replicas(plan, ReadingSettings(open_storage, Redactor(KEY)), stack)
        found = find_snapshots(replicas)
        for snapshot in found:
            SnapshotChecker(replace(usual, chunk_bytes=chunk_bytes), (), None).check(snapshot)
        assert (found[0].copies[0].is_complete, found[2].copies[0].is_complete) == (True, False)
        damages = [(damage.reason, damage.detail) for damage in replicas[0].damage.drain()]
    assert damages == [
        ("BAD_FILE", "its batches have epoch 4, 5, the name says 1"),
        ("SNAPSHOT_INCOMPLETE", "no snapshot footer"),
    ]


def test_of_a_version_a_disk_that_was_captured_often_counts_once() -> None:
    """Disk a was captured three times; two other disks hold another version, and a third one no complete copy."""
    held = [("a", b"1", True), ("a", b"1", True), ("b", b"2", True), ("a", b"1", True), ("c", b"2", True)]
    copies: list[Any] = [
        SimpleNamespace(
            replica=SimpleNamespace(number=number, plan=SimpleNamespace(identity=disk)),
            digest=digest,
            is_complete=is_complete,
        )
        for number, (disk, digest, is_complete) in enumerate([*held, ("d", b"1", False)])
    ]
    snapshot = Snapshot("source", 10, copies, versions=[copies[0], copies[2]])
    snapshot.order_versions()
    assert snapshot.decoded is copies[2]
    assert snapshot.version_holders() == [(b"2", (2, 4)), (b"1", (0, 1, 3))]
