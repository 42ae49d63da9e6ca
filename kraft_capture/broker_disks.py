"""The small files of a broker's disks, as one file: its partitions, their leader epochs and high watermarks.

Read of every log dir of the node, never a byte of a segment. `kraft-audit` judges by them which records an election
lost. docs/capture-format.md has the format.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Callable

from kraft_capture import __version__
from kraft_capture.clocks import boot_id, wall_ms
from kraft_capture.errors import CaptureError
from kraft_capture.log_dirs import (
    INLINE_BYTES_MAX,
    METADATA_DIR,
    Replica,
    errno_name,
    identify,
    open_below,
    probe_lock,
)

FORMAT = "kraft-capture-disks/1"
PARTITIONS_MAX = 50_000
"""How many partitions are copied by default: about 200 bytes each, before compression."""
_CHECKPOINT_BYTES_MAX = 32 << 20
# The checkpoints come before the partitions: if leader epochs are older than the watermarks, both are of one state.
_DISK_FILES = (
    "meta.properties",
    ".kafka_cleanshutdown",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)
_EPOCHS, _TOPIC_ID = "leader-epoch-checkpoint", "partition.metadata"
_PARTITION_DIR = re.compile(r"[A-Za-z0-9._-]{1,249}-[0-9]{1,10}")


@dataclass
class DiskReading:
    """The file, and how many partitions were copied, vanished meanwhile, or were left out by the limit.

    `problems` has a line for each disk with something that could not be read.
    """

    name: str
    at_ms: int
    content: bytes
    partition_count: int
    vanished_count: int
    left_out_count: int
    problems: list[str]

    def left_out_text(self, limit: int) -> str | None:
        """Says what the limit left out; None where it left out nothing."""
        if not self.left_out_count:
            return None
        return f"{self.left_out_count} partitions beyond the first {limit} are not copied: see --partitions"


ReadDisks = Callable[[Replica], "DiskReading | None"]


@dataclass
class _Disk:
    row: dict[str, Any]
    partitions: list[dict[str, Any]] = field(default_factory=list)
    vanished_count: int = 0
    left_out_count: int = 0
    unreadable: list[str] = field(default_factory=list)


def read_disks(replica: Replica, log_dirs: list[str], limit: int) -> DiskReading | None:
    """The small files of all disks of the replica's node among `log_dirs`; None for a controller, or a limit of 0.

    A partition that goes away meanwhile is counted. Of more than `limit` partitions the first by name are read.
    """
    if not limit:
        return None
    at_ms = wall_ms()
    disks: list[_Disk] = []
    problems: list[str] = []
    left = limit
    for log_dir in log_dirs:
        if not os.path.lexists(os.path.join(log_dir, "meta.properties")):
            continue  # no log dir that Kafka formatted
        try:
            own = identify(log_dir)
            if (own.cluster_id, own.node_id) != (replica.cluster_id, replica.node_id):
                continue
            disk = _read_disk(own, left)
        except CaptureError as error:
            problems.append(str(error))
            continue
        except OSError as error:
            problems.append(f"{log_dir}: {error.strerror}")
            continue
        left -= len(disk.partitions)
        disks.append(disk)
        if disk.unreadable:
            problems.append(f"{log_dir}: {len(disk.unreadable)} small files unreadable, {disk.unreadable[0]} first")
    if not any(disk.partitions or "replication-offset-checkpoint" in disk.row["files"] for disk in disks):
        return None
    return _packed(replica, at_ms, disks, problems)


def _packed(replica: Replica, at_ms: int, disks: list[_Disk], problems: list[str]) -> DiskReading:
    counts = {
        "partition_count": sum(len(disk.partitions) for disk in disks),
        "vanished_count": sum(disk.vanished_count for disk in disks),
        "left_out_count": sum(disk.left_out_count for disk in disks),
    }
    head = {
        "format": FORMAT,
        "version": __version__,
        "host": socket.gethostname(),
        "boot_id": boot_id(),
        "cluster_id": replica.cluster_id,
        "node_id": replica.node_id,
        "at_ms": at_ms,
        **counts,
    }
    rows = [head]
    for disk in disks:
        rows += [disk.row, *disk.partitions]
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    content = gzip.compress(text.encode("ascii"), mtime=0)
    return DiskReading(f"broker-disks-{at_ms:013d}.jsonl.gz", at_ms, content, problems=problems, **counts)


def _read_disk(own: Replica, limit: int) -> _Disk:
    """One log dir; raises OSError where it cannot be listed."""
    disk = _Disk({"log_dir": own.log_dir, "directory_id": own.directory_id, "files": {}})
    folder = os.open(own.log_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in _DISK_FILES:
            copied = _small_file(folder, name, _CHECKPOINT_BYTES_MAX, name, disk)
            if copied is not None:
                disk.row["files"][name] = {"mtime_ms": copied[0], "text": copied[1]}
        names = sorted(_partition_dirs(folder))
        disk.left_out_count = max(len(names) - limit, 0)
        for name in names[: max(limit, 0)]:
            _read_partition(folder, name, disk)
    finally:
        os.close(folder)
    # A process that started meanwhile holds the lock by now.
    disk.row.update(lock=probe_lock(own.log_dir), read_to_ms=wall_ms(), unreadable=disk.unreadable[:100])
    return disk


def _partition_dirs(folder: int) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            is_named_so = entry.name != METADATA_DIR and _PARTITION_DIR.fullmatch(entry.name) is not None
            if is_named_so and entry.is_dir(follow_symlinks=False):
                yield entry.name


def _read_partition(folder: int, name: str, disk: _Disk) -> None:
    try:
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        disk.vanished_count += 1
        return
    except OSError as error:
        disk.unreadable.append(f"{name} ({errno_name(error)})")
        return
    row: dict[str, Any] = {"name": name}
    try:
        for file in (_TOPIC_ID, _EPOCHS):
            copied = _small_file(inner, file, INLINE_BYTES_MAX, f"{name}/{file}", disk)
            if copied is not None:
                row[file] = copied[1]
                if file == _EPOCHS:
                    row["epochs_mtime_ms"] = copied[0]
    finally:
        os.close(inner)
    if len(row) == 1 and not _is_there(folder, name):
        disk.vanished_count += 1
    else:
        disk.partitions.append(row)


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _small_file(folder: int, name: str, limit_bytes: int, shown: str, disk: _Disk) -> tuple[int, str] | None:
    """(time of change in milliseconds, text); None where there is none, or it cannot be read, which is noted."""
    try:
        descriptor = open_below(folder, name)
        try:
            status = os.fstat(descriptor)
            content = _content(descriptor, limit_bytes) if status.st_size <= limit_bytes else None
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None
    except OSError as error:
        disk.unreadable.append(f"{shown} ({errno_name(error)})")
        return None
    if content is None:
        disk.unreadable.append(f"{shown} (EFBIG)")
        return None
    return status.st_mtime_ns // 1_000_000, content.decode("utf-8", "replace")


def _content(descriptor: int, limit_bytes: int) -> bytes | None:
    """Everything up to the end; None where it grew past the limit."""
    parts, size = [], 0
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
        size += len(part)
        if size > limit_bytes:
            return None
    return b"".join(parts)
