"""`broker-disks-….jsonl.gz`, which kraft-capture writes: the small files of all log dirs of one broker, no records.

docs/capture-format.md is the contract. What one of Kafka's files in it says wrongly is as if that file were not there,
and counted; the file itself raises CodecError where it is not what kraft-capture writes.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kraft_codec.errors import CodecError, Reason
from kraft_codec.file_names import printable
from kraft_codec.files.state_files import (
    EpochEntry,
    OffsetEntry,
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
    parse_partition_metadata,
)

DISKS_FORMAT: Final = "kraft-capture-disks/1"
MAX_BROKER_DISKS_BYTES: Final = 256 << 20
"""What it may unpack to: a million partitions with names of usual length."""
_PARTITION_NAME: Final = re.compile(r"([A-Za-z0-9._-]{1,249})-([0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class CapturedPartition:
    """One `TOPIC-N` folder: `epochs` is its leader-epoch-checkpoint, written at `epochs_mtime_ms` of its host's clock.

    `topic_id` is None where partition.metadata is missing or damaged, `epochs` are then empty in the same way.
    """

    topic: str
    partition: int
    topic_id: str | None
    epochs: tuple[EpochEntry, ...]
    epochs_mtime_ms: int | None


@dataclass(frozen=True, slots=True)
class CapturedDisk:
    """One log dir. Its offset checkpoints are by (topic, partition); times of its host's clock, None without the file.

    `lock` says whether a process held `.lock`: `held`, `none-seen` (which proves nothing) or `unknown`.
    """

    log_dir: str
    directory_id: str | None
    lock: str
    is_clean: bool
    high_watermarks: Mapping[tuple[str, int], int]
    high_watermarks_mtime_ms: int | None
    recovery_points: Mapping[tuple[str, int], int]
    log_starts: Mapping[tuple[str, int], int]
    partitions: tuple[CapturedPartition, ...]


@dataclass(frozen=True, slots=True)
class BrokerDisks:
    """All disks of one broker as they were read from `at_ms` on, by its host's clock.

    `vanished_count` partitions went away meanwhile, `left_out_count` were beyond the copier's limit; `damage_count`
    small files say nothing that Kafka writes.
    """

    cluster_id: str
    node_id: int
    at_ms: int
    vanished_count: int
    left_out_count: int
    damage_count: int
    disks: tuple[CapturedDisk, ...]


class _Damages:
    count = 0


def parse_broker_disks(data: bytes, wanted: Collection[tuple[str, int]] | None = None) -> BrokerDisks:
    """Reads the file; raises CodecError where it is cut short, too large, or no such file.

    With `wanted`, other (topic, partition)s are counted and not parsed.
    """
    position = partition_count = 0
    damages = _Damages()
    disks: list[CapturedDisk] = []
    partitions: list[CapturedPartition] = []
    head: dict[str, Any] | None = None
    disk: dict[str, Any] | None = None
    try:
        for at, row in _rows(data):
            position = at
            if head is None:
                head = _head(row)
            elif "log_dir" in row:
                if disk is not None:
                    disks.append(_disk(disk, partitions, damages))
                disk, partitions = row, []
            elif disk is None:
                raise ValueError("a partition before its log dir")
            else:
                partition_count += 1
                place = _place(row)
                if wanted is None or place in wanted:
                    partitions.append(_partition(place, row, damages))
        if head is None:
            raise ValueError("it is empty")
        if disk is not None:
            disks.append(_disk(disk, partitions, damages))
        if partition_count != head["partition_count"]:
            raise ValueError("it is cut short")
        counts = (head["vanished_count"], head["left_out_count"], damages.count)
        return BrokerDisks(head["cluster_id"], head["node_id"], head["at_ms"], *counts, tuple(disks))
    except (ValueError, KeyError, TypeError, RecursionError, zlib.error) as error:
        detail = f"not what kraft-capture writes: {printable(str(error))[:100]}"
        raise CodecError(Reason.BAD_FILE, position, detail) from None


def _rows(data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """(position in the unpacked text, JSON object) of each line."""
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    text = unpacking.decompress(data, MAX_BROKER_DISKS_BYTES)
    if not unpacking.eof or unpacking.unused_data:
        raise ValueError("cut short, or too large")
    position = 0
    for line in text.splitlines(keepends=True):
        row = json.loads(line)
        if not isinstance(row, dict):
            raise TypeError("a line is no JSON object")
        yield position, row
        position += len(line)


def _head(row: dict[str, Any]) -> dict[str, Any]:
    if row["format"] != DISKS_FORMAT:
        raise ValueError("another format")
    _typed(row, "cluster_id", str)
    for key in ("node_id", "at_ms", "partition_count", "vanished_count", "left_out_count"):
        _typed(row, key, int)
    return row


def _typed(row: Mapping[str, Any], key: str, kind: type) -> Any:
    value = row[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(key)
    return value


def _disk(row: dict[str, Any], partitions: list[CapturedPartition], damages: _Damages) -> CapturedDisk:
    files = _typed(row, "files", dict)
    for file in files.values():
        _typed(file, "text", str)
        _typed(file, "mtime_ms", int)
    directory_id = row["directory_id"]
    if directory_id is not None and not isinstance(directory_id, str):
        raise TypeError("directory_id")
    marks = files.get("replication-offset-checkpoint")
    return CapturedDisk(
        _typed(row, "log_dir", str),
        directory_id,
        _typed(row, "lock", str),
        ".kafka_cleanshutdown" in files,
        _offsets(marks, damages),
        None if marks is None else marks["mtime_ms"],
        _offsets(files.get("recovery-point-offset-checkpoint"), damages),
        _offsets(files.get("log-start-offset-checkpoint"), damages),
        tuple(partitions),
    )


def _offsets(file: Mapping[str, Any] | None, damages: _Damages) -> dict[tuple[str, int], int]:
    if file is None:
        return {}
    try:
        return offsets_by_partition(parse_offset_checkpoint(file["text"].encode()))
    except CodecError:
        damages.count += 1
        return {}


def offsets_by_partition(entries: tuple[OffsetEntry, ...]) -> dict[tuple[str, int], int]:
    """An offset checkpoint as Kafka's map: the last of equal partitions counts."""
    return {(entry.topic, entry.partition): entry.offset for entry in entries}


def partition_of(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a folder `TOPIC-N`; None of any other name, also one that is being moved or deleted."""
    match = _PARTITION_NAME.fullmatch(name)
    return None if match is None or int(match[2]) >= 1 << 31 else (match[1], int(match[2]))


def _place(row: dict[str, Any]) -> tuple[str, int]:
    place = partition_of(_typed(row, "name", str))
    if place is None:
        raise ValueError(f"no partition: {row['name']}")
    return place


def _partition(place: tuple[str, int], row: dict[str, Any], damages: _Damages) -> CapturedPartition:
    topic_id = None
    if "partition.metadata" in row:
        try:
            topic_id = parse_partition_metadata(_typed(row, "partition.metadata", str).encode()).topic_id
        except CodecError:
            damages.count += 1
    epochs: tuple[EpochEntry, ...] = ()
    mtime_ms = None
    if "leader-epoch-checkpoint" in row:
        mtime_ms = _typed(row, "epochs_mtime_ms", int)
        try:
            epochs = parse_leader_epoch_checkpoint(_typed(row, "leader-epoch-checkpoint", str).encode())
        except CodecError:
            damages.count += 1
    return CapturedPartition(*place, topic_id, epochs, mtime_ms)
