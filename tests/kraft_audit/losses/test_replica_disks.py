"""Ends of replicas' logs out of brokers' data directories, and what a leader would make the others forget."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.losses.log_ends import log_end
from kraft_audit.losses.replica_disks import CLOCK_MARGIN_MS, ReplicaLog, data_dirs, replica_logs
from kraft_audit.recovery.leaderless_partitions import common_end
from kraft_capture.cli import main as capture
from kraft_codec.errors import CodecError, Reason
from kraft_codec.files.indexes import OffsetIndex, format_offset_index
from kraft_codec.files.properties import format_meta_properties, meta_properties, parse_meta_properties
from kraft_codec.files.state_files import (
    EpochEntry,
    OffsetEntry,
    PartitionMetadata,
    format_leader_epoch_checkpoint,
    format_offset_checkpoint,
    format_partition_metadata,
    parse_offset_checkpoint,
)
from kraft_codec.records.batch import write_batch
from kraft_codec.storage.opener import open_storage
from kraft_codec.storage.random_access import Limits, Storage
from tests.builders.live_log import CLUSTER_ID, LiveLog
from tests.builders.observed_storage import observed
from tests.builders.readings import plan_of

SECOND_ID = "w7Kq0PZCSF2dMh5zV1c9Tw"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAABQ"


def segment(folder: Path, base_offset: int, counts: list[tuple[int, int]]) -> Path:
    """A segment of batches of (records, epoch)."""
    folder.mkdir(parents=True, exist_ok=True)
    file, offset = folder / f"{base_offset:020d}.log", base_offset
    data = b""
    for count, epoch in counts:
        records = [(None, b"value")] * count
        data += write_batch(base_offset=offset, leader_epoch=epoch, timestamp_ms=1_000, records=records)
        offset += count
    file.write_bytes(data)
    return file


def _end(folder: Path) -> tuple[int, int | None]:
    with open_storage(folder.parent) as storage:
        end = log_end(storage, folder.name)
    assert end is not None
    return end.end_offset, end.leader_epoch


def test_the_end_is_that_of_the_last_valid_batch(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    segment(folder, 0, [(5, 1)])
    file = segment(folder, 5, [(3, 1), (4, 2)])
    assert _end(folder) == (12, 2)
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:30])  # torn: recovery cuts it off
    assert _end(folder) == (12, 2)
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert _end(folder) == (8, 1)
    file.write_bytes(b"")
    assert _end(folder) == (5, 1)
    file.write_bytes(bytes(4096))
    assert _end(folder) == (5, 1)


def test_an_empty_log_ends_where_it_begins(tmp_path: Path) -> None:
    segment(tmp_path / "t-0", 42, [])
    assert _end(tmp_path / "t-0") == (42, None)


@pytest.mark.parametrize(
    ("position", "end"),
    [("of the second batch", (8, 1)), ("inside it", (0, None)), ("behind the file", (0, None)), (None, (0, None))],
)
def test_the_log_is_read_from_where_its_index_points(
    tmp_path: Path, position: str | None, end: tuple[int, int | None]
) -> None:
    """The first of two batches is damaged: only an index that leads past it lets the log end after it."""
    file = segment(tmp_path / "t-0", 0, [(5, 1)])
    second = file.stat().st_size
    segment(tmp_path / "t-0", 0, [(5, 1), (3, 1)])
    content = bytearray(file.read_bytes())
    content[second - 1] ^= 1
    file.write_bytes(content)
    at = {"of the second batch": second, "inside it": second + 7, "behind the file": 1 << 20}.get(position or "")
    index = OffsetIndex(np.array([7] if at else [], np.int32), np.array([at] if at else [], np.int32), 64)
    file.with_suffix(".index").write_bytes(format_offset_index(index))
    assert _end(tmp_path / "t-0") == end


def test_an_index_that_points_beyond_what_is_valid_hides_nothing(tmp_path: Path) -> None:
    file = segment(tmp_path / "t-0", 0, [(5, 1)])
    second = file.stat().st_size
    segment(tmp_path / "t-0", 0, [(5, 1), (3, 1)])
    file.write_bytes(file.read_bytes()[:-1])
    index = OffsetIndex(np.array([7], np.int32), np.array([second], np.int32), 64)
    file.with_suffix(".index").write_bytes(format_offset_index(index))
    assert _end(tmp_path / "t-0") == (5, 1)


@pytest.fixture
def elr(small_corpus: Path, tmp_path: Path) -> Path:
    """A real capture of a cluster with brokers 11, 12 and 13."""
    shutil.copytree(small_corpus / "elr" / "29-stopped", tmp_path / "capture")
    return tmp_path / "capture"


def test_kafkas_own_checkpoints_report_what_was_visible(elr: Path) -> None:
    """The samples hold no partition folders: high watermarks are all that their node dirs say."""
    entries = parse_offset_checkpoint((elr / "node-11" / "replication-offset-checkpoint").read_bytes())
    wanted = {(entry.topic, entry.partition): entry.offset for entry in entries}
    assert wanted
    with open_storage(elr) as storage:
        found = replica_logs(storage, plan_of(elr), wanted)
    for key, offset in wanted.items():
        (mine,) = [log for log in found[key] if log.broker_id == 11]
        assert (mine.high_watermark, mine.log_end_offset) == (offset, None)


@pytest.mark.parametrize(
    ("epochs", "times_s", "visible"),
    [
        (((0, 0),), (0, 0, 0), 8),  # the first leader epoch: no other log was there
        (((1, 0), (3, 4)), (0, 0, 0), 4),
        (((1, 0), (3, 4)), (0, 600, 0), 4),  # its log and epochs have one time: a copy wrote them
        (((1, 0), (3, 4)), (0, 600, 500), 8),
        (((1, 0), (3, 4)), (0, 30, 20), 4),
    ],
)
def test_a_running_brokers_watermark_may_be_older_than_its_log(
    elr: Path, epochs: tuple[tuple[int, int], ...], times_s: tuple[int, int, int], visible: int
) -> None:
    """`times_s`: of leader-epoch-checkpoint, of the watermarks, and of the log."""
    data_dir = elr / "node-12-second"
    data_dir.mkdir()
    (data_dir / "meta.properties").write_bytes((elr / "node-12" / "meta.properties").read_bytes())
    segment(data_dir / "t-0", 0, [(9, epochs[-1][0])])
    files = (data_dir / "t-0" / "leader-epoch-checkpoint", data_dir / "replication-offset-checkpoint")
    files[0].write_bytes(format_leader_epoch_checkpoint([EpochEntry(*entry) for entry in epochs]))
    (data_dir / "t-0" / "partition.metadata").write_bytes(format_partition_metadata(PartitionMetadata(0, TOPIC_ID)))
    files[1].write_bytes(format_offset_checkpoint((OffsetEntry("t", 0, 8),)))
    for file, at_s in zip((*files, *(data_dir / "t-0").glob("*.log")), times_s, strict=True):
        os.utime(file, (1_700_000_000 + at_s,) * 2)
    with open_storage(elr) as storage:
        (log,) = replica_logs(storage, plan_of(elr), {("t", 0)})["t", 0]
    assert log.visible_end == visible


def test_data_directories_beside_the_metadata_log_and_alone(elr: Path) -> None:
    """Broker 12 keeps the partition in a second directory, which holds no metadata log."""
    for node, extra, end in ((11, "", 7), (12, "-second", 9)):
        data_dir = elr / f"node-{node}{extra}"
        data_dir.mkdir(exist_ok=True)
        (data_dir / "meta.properties").write_bytes((elr / f"node-{node}" / "meta.properties").read_bytes())
        segment(data_dir / "t-0", 0, [(4, 1), (end - 4, 3)])
        epochs = (EpochEntry(1, 0), EpochEntry(3, 4))
        (data_dir / "t-0" / "leader-epoch-checkpoint").write_bytes(format_leader_epoch_checkpoint(epochs))
        (data_dir / "t-0" / "partition.metadata").write_bytes(format_partition_metadata(PartitionMetadata(0, TOPIC_ID)))
        (data_dir / "replication-offset-checkpoint").write_bytes(
            format_offset_checkpoint((OffsetEntry("t", 0, end - 1),))
        )
    (elr / "node-12-second" / "t-1.0123456789abcdef0123456789abcdef-delete").mkdir()
    with open_storage(elr) as storage:
        found = replica_logs(storage, plan_of(elr), {("t", 0), ("t", 1)})
    known = {"epochs": ((1, 0), (3, 4)), "topic_id": TOPIC_ID, "log_start_offset": 0}
    assert [replace(log, is_clean=False, directory_id=None) for log in found["t", 0]] == [
        ReplicaLog(11, 7, 3, 6, **known, path="node-11/t-0"),
        ReplicaLog(12, 9, 3, 8, **known, is_watermark_older=True, path="node-12-second/t-0"),
    ]
    assert [log.visible_end for log in found["t", 0]] == [6, 4], "node 11 was stopped in order"
    ids = {log.broker_id: log.directory_id for log in found["t", 0]}
    assert ids == {node: _directory_id(elr / f"node-{node}") for node in (11, 12)}
    assert ("t", 1) not in found


def _directory_id(node_dir: Path) -> str | None:
    return parse_meta_properties((node_dir / "meta.properties").read_bytes()).directory_id


def _failing(storage: Storage, *paths: str) -> None:
    """Lets a storage fail at the folders and files of these paths."""

    def fail(call: str, path: str, _: int) -> None:
        if path in paths and call != "read":
            raise CodecError(Reason.UNREADABLE, 0, "input/output error")

    observed(storage, fail)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("nothing", [ReplicaLog(11, 5, 1, 4), ReplicaLog(12, 5, 1, 4)]),
        ("node-11", [ReplicaLog(12, 5, 1, 4)]),
        ("node-11/meta.properties", [ReplicaLog(12, 5, 1, 4)]),
        ("node-11/t-0", [ReplicaLog(11, None, None, 4), ReplicaLog(12, 5, 1, 4)]),
        (f"node-11/t-0/{0:020d}.log", [ReplicaLog(11, None, None, 4), ReplicaLog(12, 5, 1, 4)]),
        ("node-11/replication-offset-checkpoint", [ReplicaLog(11, 5, 1, None), ReplicaLog(12, 5, 1, 4)]),
    ],
)
def test_what_cannot_be_read_is_as_if_it_had_not_been_captured(
    elr: Path, path: str, expected: list[ReplicaLog]
) -> None:
    """Partition folders without partition.metadata and leader-epoch-checkpoint, as of a replica that was being made."""
    for node in (11, 12):
        segment(elr / f"node-{node}" / "t-0", 0, [(5, 1)])
        marks = format_offset_checkpoint((OffsetEntry("t", 0, 4),))
        (elr / f"node-{node}" / "replication-offset-checkpoint").write_bytes(marks)
    plan = plan_of(elr)
    with open_storage(elr) as storage:
        _failing(storage, path)
        found = replica_logs(storage, plan, {("t", 0)})
    assert [ReplicaLog(log.broker_id, *_ends(log)) for log in found["t", 0]] == expected


def _ends(log: ReplicaLog) -> tuple[int | None, int | None, int | None]:
    return log.log_end_offset, log.leader_epoch, log.high_watermark


def test_an_empty_log_is_of_the_epoch_that_its_checkpoint_ends_with(elr: Path) -> None:
    """Retention deleted every record: the checkpoint still says who wrote last."""
    folder = elr / "node-11" / "t-0"
    segment(folder, 9, [])
    (folder / "partition.metadata").write_bytes(format_partition_metadata(PartitionMetadata(0, TOPIC_ID)))
    epochs = format_leader_epoch_checkpoint((EpochEntry(1, 0), EpochEntry(4, 6)))
    (folder / "leader-epoch-checkpoint").write_bytes(epochs)
    with open_storage(elr) as storage:
        (log,) = replica_logs(storage, plan_of(elr), {("t", 0)})["t", 0]
    assert (log.log_end_offset, log.leader_epoch) == (9, 4)


@pytest.mark.parametrize(
    ("limits", "paths"),
    [
        (Limits(), {"node-11", "disks/of/node-12"}),
        (Limits(depth_count=1), {"node-11"}),
        (Limits(depth_count=0), set()),
        (Limits(directory_count=1), set()),
    ],
)
def test_folders_are_looked_for_within_the_limits_of_the_storage(elr: Path, limits: Limits, paths: set[str]) -> None:
    plan = plan_of(elr)
    for folder in elr.iterdir():
        if folder.name not in ("node-11", "node-12"):
            shutil.rmtree(folder)
    (elr / "disks" / "of").mkdir(parents=True)
    (elr / "node-12").rename(elr / "disks" / "of" / "node-12")
    with open_storage(elr, limits=limits) as storage:
        assert {data_dir.path for data_dir in data_dirs(storage, plan)} == paths


Epochs = list[int]
"""The epoch of the record at each offset: a log as it really is."""


@given(st.data())
def test_what_follows_a_leader_keeps_their_common_prefix(data: st.DataObject) -> None:
    """Against the logs themselves: two that agree on a prefix, then go on in epochs of their own."""
    prefix = sorted(data.draw(st.lists(st.integers(1, 4), max_size=8)))
    first = max(prefix, default=0)
    odd = sorted(data.draw(st.lists(st.sampled_from([11, 13, 15]), max_size=6)))
    even = sorted(data.draw(st.lists(st.sampled_from([12, 14, 16]), max_size=6)))
    assert first < 11
    assert common_end(_log(1, prefix + odd), _log(2, prefix + even)) == len(prefix)
    longer = [*prefix, *odd]
    assert common_end(_log(1, longer), _log(2, longer[: len(prefix)])) == len(prefix)
    assert common_end(_log(1, longer[: len(prefix)]), _log(2, longer)) == len(prefix)


def _log(broker: int, epochs: Epochs) -> ReplicaLog:
    starts = tuple((epoch, place) for place, epoch in enumerate(epochs) if place == 0 or epochs[place - 1] != epoch)
    return ReplicaLog(broker, len(epochs), max(epochs, default=-1), epochs=starts)


@pytest.fixture
def broker(tmp_path: Path) -> list[Path]:
    """The log dirs of a broker with two disks, as kraft-capture finds them: the metadata log on the first."""
    log = LiveLog(tmp_path / "first", node_id=11)
    log.append(5)
    second = tmp_path / "second"
    folder = second / "t-0"
    segment(folder, 0, [(17, 1), (4, 3)])
    meta = meta_properties(cluster_id=CLUSTER_ID, node_id=11, directory_id=SECOND_ID)
    (second / "meta.properties").write_bytes(format_meta_properties(meta))
    (folder / "partition.metadata").write_bytes(format_partition_metadata(PartitionMetadata(0, TOPIC_ID)))
    _checkpoint(second, ReplicaLog(11, 21, 3, 16, ((1, 0), (3, 17)), log_start_offset=2))
    return [log.folder, second]


def _checkpoint(data_dir: Path, log: ReplicaLog) -> None:
    """The broker's checkpoints of t-0; the leader epochs are an hour older than the watermark."""
    entries = tuple(EpochEntry(*each) for each in log.epochs)
    (data_dir / "t-0" / "leader-epoch-checkpoint").write_bytes(format_leader_epoch_checkpoint(entries))
    for name, offset in (
        ("replication-offset-checkpoint", log.high_watermark),
        ("recovery-point-offset-checkpoint", log.log_end_offset),
        ("log-start-offset-checkpoint", log.log_start_offset),
    ):
        (data_dir / name).write_bytes(format_offset_checkpoint((OffsetEntry("t", 0, offset or 0),)))
    os.utime(data_dir / "t-0" / "leader-epoch-checkpoint", (1_000, 1_000))
    os.utime(data_dir / "replication-offset-checkpoint", (4_600, 4_600))


def _copied(broker: list[Path], target: Path) -> Path:
    assert capture([*("--tar", str(target), "--log-dirs"), ",".join(map(str, broker))]) == 0
    return target


def test_what_kraft_capture_brings_of_every_disk(broker: list[Path], tmp_path: Path) -> None:
    before_ms = time.time_ns() // 1_000_000
    archive = _copied(broker, tmp_path / "incident.tgz")
    with open_storage(archive) as storage:
        (log,) = replica_logs(storage, plan_of(archive))["t", 0]
    assert log.read_not_before_ms is not None
    assert before_ms - CLOCK_MARGIN_MS <= log.read_not_before_ms < before_ms
    assert replace(log, read_not_before_ms=None) == ReplicaLog(
        11,
        None,
        3,
        16,
        ((1, 0), (3, 17)),
        TOPIC_ID,
        directory_id=SECOND_ID,
        log_start_offset=2,
        path=f"{broker[1]}/t-0",
    )
    assert log.visible_end == 16


def test_a_clean_stop_says_where_the_log_ends(broker: list[Path], tmp_path: Path) -> None:
    (broker[1] / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":7}')
    archive = _copied(broker, tmp_path / "incident.tgz")
    with open_storage(archive) as storage:
        (log,) = replica_logs(storage, plan_of(archive))["t", 0]
    assert (log.is_clean, log.log_end_offset, log.visible_end) == (True, 21, 16)


def test_an_epoch_newer_than_the_watermark_is_not_below_it(broker: list[Path], tmp_path: Path) -> None:
    """The log may have been truncated after the watermark was written."""
    _checkpoint(broker[1], ReplicaLog(11, 21, 3, 20, ((1, 0), (3, 17))))
    os.utime(broker[1] / "t-0" / "leader-epoch-checkpoint", (4_600, 4_600))
    archive = _copied(broker, tmp_path / "incident.tgz")
    with open_storage(archive) as storage:
        (log,) = replica_logs(storage, plan_of(archive))["t", 0]
    assert (log.is_watermark_older, log.high_watermark, log.visible_end) == (True, 20, 17)


def test_a_disk_that_was_read_several_times(broker: list[Path], tmp_path: Path) -> None:
    """A store keeps earlier copies; the newest alone is what recover-plan looks at."""
    store = tmp_path / "store"
    arguments = ["--to", str(store), "--state", str(tmp_path / "state"), "--once", "--durable"]
    for mark in (16, 20):
        _checkpoint(broker[1], ReplicaLog(11, 21, 3, mark, ((1, 0), (3, 17))))
        assert capture([*arguments, "--log-dirs", ",".join(map(str, broker))]) == 0
    with open_storage(store) as storage:
        plan = plan_of(store)
        newest, every = replica_logs(storage, plan), replica_logs(storage, plan, every_capture=True)
    assert [log.high_watermark for log in newest["t", 0]] == [20]
    assert [log.high_watermark for log in every["t", 0]] == [16, 20]
    assert every["t", 0][0].order < every["t", 0][1].order


def test_every_capture_with_its_number_and_time(elr: Path, tmp_path: Path) -> None:
    root = tmp_path / "captures"
    for name, end in (("1-before", 7), ("2-after", 9)):
        shutil.copytree(elr, root / name)
        segment(root / name / "node-11" / "t-0", 0, [(end, 1)])
    with open_storage(root) as storage:
        plan = plan_of(root)
        found = replica_logs(storage, plan, every_capture=True, read_not_before_ms={0: 5_000})
        newest = replica_logs(storage, plan)
    logs = [(log.path, log.log_end_offset, log.capture_number, log.read_not_before_ms) for log in found["t", 0]]
    assert logs == [("1-before/node-11/t-0", 7, 0, 5_000), ("2-after/node-11/t-0", 9, 1, None)]
    assert [log.path for log in newest["t", 0]] == ["2-after/node-11/t-0"]


def test_small_files_without_a_segment_leave_the_end_open(elr: Path) -> None:
    folder = elr / "node-11" / "t-0"
    folder.mkdir()
    (folder / "partition.metadata").write_bytes(format_partition_metadata(PartitionMetadata(0, TOPIC_ID)))
    (folder / "leader-epoch-checkpoint").write_bytes(format_leader_epoch_checkpoint((EpochEntry(4, 6),)))
    (elr / "node-11" / ".kafka_cleanshutdown").unlink(missing_ok=True)
    with open_storage(elr) as storage:
        (log,) = replica_logs(storage, plan_of(elr), {("t", 0)})["t", 0]
    assert (log.log_end_offset, log.leader_epoch, log.epochs) == (None, 4, ((4, 6),))


@pytest.mark.parametrize("content", [b"", b"no gzip", gzip.compress(b"{}\n", mtime=0)])
def test_a_damaged_copy_of_the_disks_is_as_if_there_were_none(elr: Path, content: bytes) -> None:
    (elr / "node-11" / "broker-disks-1764155000123.jsonl.gz").write_bytes(content)
    with open_storage(elr) as storage:
        assert ("t", 0) not in replica_logs(storage, plan_of(elr))


def test_data_directories_in_an_archive_without_their_records(broker: list[Path], tmp_path: Path) -> None:
    """Segments of partitions are never unpacked: a stop that was clean says where the log ends all the same."""
    (broker[1] / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":7}')
    with tarfile.open(tmp_path / "dirs.tgz", "w:gz") as archive:
        for folder in broker:
            archive.add(folder, folder.name)
    with open_storage(tmp_path / "dirs.tgz") as storage:
        (log,) = replica_logs(storage, plan_of(tmp_path / "dirs.tgz"))["t", 0]
        names = {entry.name for entry in storage.list_dir("second/t-0").entries}
    assert (log.path, log.epochs, log.topic_id) == ("second/t-0", ((1, 0), (3, 17)), TOPIC_ID)
    assert (log.log_end_offset, log.high_watermark, log.directory_id) == (21, 16, SECOND_ID)
    assert names == {"leader-epoch-checkpoint", "partition.metadata"}
