"""kraft-capture's copy of a broker's small files, read back; and what is no such file."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from kraft_codec.errors import CodecError, Reason
from kraft_codec.files.broker_disks import (
    BrokerDisks,
    CapturedDisk,
    CapturedPartition,
    parse_broker_disks,
    partition_of,
)
from kraft_codec.files.state_files import EpochEntry

TOPIC_ID = "Bl2Ec9zTQUqPzJgMZzRy0g"
HEAD = {
    "format": "kraft-capture-disks/1",
    "cluster_id": "SPA6Lw-19VaaSAxl6jMkhw",
    "node_id": 11,
    "at_ms": 1_764_155_000_123,
    "partition_count": 1,
    "vanished_count": 3,
    "left_out_count": 4,
}
DISK: dict[str, Any] = {
    "log_dir": "/data/1",
    "directory_id": "IztfOUj9Tn6xWIrmebIevg",
    "lock": "none-seen",
    "files": {
        "replication-offset-checkpoint": {"mtime_ms": 90, "text": "0\n2\norders 0 16\norders 0 17\n"},
        "recovery-point-offset-checkpoint": {"mtime_ms": 80, "text": "0\n1\norders 0 20\n"},
        "log-start-offset-checkpoint": {"mtime_ms": 80, "text": "0\n1\norders 0 5\n"},
        ".kafka_cleanshutdown": {"mtime_ms": 95, "text": '{"version":0,"brokerEpoch":7}'},
    },
}
PARTITION = {
    "name": "orders-0",
    "partition.metadata": f"version: 0\ntopic_id: {TOPIC_ID}",
    "leader-epoch-checkpoint": "0\n2\n0 0\n3 17\n",
    "epochs_mtime_ms": 70,
}


def written(*rows: object) -> bytes:
    return gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), mtime=0)


def test_every_value() -> None:
    orders = ("orders", 0)
    partition = CapturedPartition(*orders, TOPIC_ID, (EpochEntry(0, 0), EpochEntry(3, 17)), 70)
    disk = CapturedDisk(
        *("/data/1", "IztfOUj9Tn6xWIrmebIevg", "none-seen", True),
        *({orders: 17}, 90, {orders: 20}, {orders: 5}, (partition,)),
    )
    assert parse_broker_disks(written(HEAD, DISK, PARTITION)) == BrokerDisks(
        "SPA6Lw-19VaaSAxl6jMkhw", 11, 1_764_155_000_123, 3, 4, 0, (disk,)
    )


def test_only_wanted_partitions_are_parsed() -> None:
    content = written(
        {**HEAD, "partition_count": 2}, DISK, PARTITION, {**PARTITION, "name": "t-1", "epochs_mtime_ms": 0}
    )
    (disk,) = parse_broker_disks(content, {("t", 1), ("t", 2)}).disks
    assert [(each.topic, each.partition) for each in disk.partitions] == [("t", 1)]
    assert disk.high_watermarks == {("orders", 0): 17}


def test_a_damaged_file_of_kafkas_is_counted_and_hides_no_other() -> None:
    files = {**DISK["files"], "replication-offset-checkpoint": {"mtime_ms": 90, "text": "0\n9\n"}}
    partition = {**PARTITION, "partition.metadata": "version: 1", "leader-epoch-checkpoint": "x"}
    disks = parse_broker_disks(written(HEAD, {**DISK, "files": files}, partition))
    (disk,) = disks.disks
    assert (disks.damage_count, disk.high_watermarks, disk.recovery_points) == (3, {}, {("orders", 0): 20})
    assert disk.partitions == (CapturedPartition("orders", 0, None, (), 70),)
    (disk,) = parse_broker_disks(written(HEAD, {**DISK, "files": {}}, {"name": "orders-0"})).disks
    assert (disk.is_clean, disk.high_watermarks_mtime_ms) == (False, None)
    assert disk.partitions == (CapturedPartition("orders", 0, None, (), None),)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no gzip",
        written(),
        written(HEAD, DISK, PARTITION)[:-4],
        written(HEAD, DISK, PARTITION) + b"x",
        written(HEAD, DISK),
        written(HEAD, PARTITION, DISK),
        written(HEAD, DISK, PARTITION, PARTITION),
        written({**HEAD, "format": "kraft-capture-disks/2"}, DISK, PARTITION),
        written({**HEAD, "at_ms": "now"}, DISK, PARTITION),
        written({**HEAD, "node_id": True}, DISK, PARTITION),
        written(HEAD, [DISK], PARTITION),
        written(HEAD, {**DISK, "files": []}, PARTITION),
        written(HEAD, {**DISK, "files": {"a": "text"}}, PARTITION),
        written(HEAD, {**DISK, "directory_id": 7}, PARTITION),
        written(HEAD, {"log_dir": "/data/1"}, PARTITION),
        written(HEAD, DISK, {**PARTITION, "name": "../orders-0"}),
        written(HEAD, DISK, {**PARTITION, "epochs_mtime_ms": None}),
        gzip.compress(b"{}\n[1", mtime=0),
        gzip.compress(b"[" * 100_000, mtime=0),
    ],
)
def test_what_kraft_capture_does_not_write_is_refused(content: bytes) -> None:
    with pytest.raises(CodecError) as caught:
        parse_broker_disks(content)
    assert caught.value.reason is Reason.BAD_FILE


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("orders-0", ("orders", 0)),
        ("a-b.c_d-12", ("a-b.c_d", 12)),
        ("orders-2147483648", None),
        ("orders", None),
        ("-1", None),
        ("orders-0.0123456789abcdef0123456789abcdef-stray", None),
        ("orders-0\n", None),
    ],
)
def test_the_name_of_a_partitions_folder(name: str, place: tuple[str, int] | None) -> None:
    assert partition_of(name) == place
