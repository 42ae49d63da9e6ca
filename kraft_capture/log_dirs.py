"""The log dirs of a node: which hold a metadata log, which are in use, what lies in them, how to read without a trace.

Nothing here writes, locks, renames, or follows a link below a log dir.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraft_capture.errors import InputUnreadableError, LogChangedError, UsageError

METADATA_DIR = "__cluster_metadata-0"
LOCK_HELD = "held"
LOCK_NOT_SEEN = "none-seen"
LOCK_UNKNOWN = "unknown"
_FLOCK = struct.Struct("@hhqqi4x" if struct.calcsize("P") == 8 else "@hhqqi")  # type, whence, start, length, pid
RESCUE_NAME = "rescue.json"
"""What `kraft-audit rescue` leaves in a node dir: audits of a copy without it take what it declares for losses."""
NODE_FILES = (
    "meta.properties",
    "bootstrap.checkpoint",
    ".lock",
    ".kafka_cleanshutdown",
    RESCUE_NAME,
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
"""What is listed of the log dir itself; what else lies there belongs to other partitions. A broker's offset checkpoints
go into the archive of an incident alone: they change all the time, and name every partition."""
SEGMENT_NAME = re.compile(r"[0-9]{20}\.log")
SNAPSHOT_NAME = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint")
INLINE_BYTES_MAX = 64 << 10
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SETTING = re.compile(r"\s*([A-Za-z0-9_.]+)\s*[=:]\s*(.*?)\s*")


@dataclass(frozen=True)
class Replica:
    """Whose log it is, by meta.properties; `directory_id` is None where a release before 3.7 formatted it."""

    cluster_id: str
    node_id: int
    directory_id: str | None
    log_dir: str

    @property
    def key(self) -> str:
        """`CLUSTER/NODE-DIRECTORY`, the prefix of all that is written about it."""
        return f"{self.cluster_id}/{self.node_id}-{self.directory_id or 'none'}"


@dataclass
class Entry:
    """A name in a log dir, as it was listed; `state` becomes sent, vanished or unreadable when it is read."""

    path: str
    kind: str
    size: int
    inode: int
    device: int
    mode: int
    mtime_ms: int
    state: str = "listed"
    errno: str | None = None
    target: str | None = None
    content: bytes | None = None

    @property
    def name(self) -> str:
        """Its last part."""
        return self.path.rpartition("/")[2]


def find_log_dirs(log_dirs: list[str]) -> tuple[list[str], list[str]]:
    """(those that hold a metadata log, one line for each that cannot be searched). Each is searched."""
    replica_dirs: list[str] = []
    problems: list[str] = []
    for log_dir in log_dirs:
        try:
            kind = os.lstat(os.path.join(log_dir, METADATA_DIR))
        except FileNotFoundError:
            if not os.path.isdir(log_dir):  # noqa: PTH112
                problems.append(f"{log_dir}: no such directory")
            continue
        except OSError as error:
            problems.append(f"{log_dir}: {error.strerror}")
            continue
        if stat.S_ISLNK(kind.st_mode):
            target = os.readlink(os.path.join(log_dir, METADATA_DIR))
            problems.append(f"{log_dir}/{METADATA_DIR}: a link to {target}, which is not followed")
        elif stat.S_ISDIR(kind.st_mode):
            replica_dirs.append(log_dir)
        else:
            problems.append(f"{log_dir}/{METADATA_DIR}: no directory")
    if not replica_dirs and not problems:
        problems.append(f"no {METADATA_DIR} in {', '.join(log_dirs)}")
    return replica_dirs, problems


def log_dirs_in(server_properties: str) -> list[str]:
    """The log dirs that a server.properties names; raises UsageError where it cannot be read."""
    try:
        return configured_log_dirs(Path(server_properties).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise UsageError(f"{server_properties}: {error.strerror}") from None


def configured_log_dirs(text: str) -> list[str]:
    """`metadata.log.dir` and `log.dirs` (or `log.dir`) of a configuration, as `KafkaConfig` reads them."""
    settings = parse_properties(text)
    log_dirs = settings.get("log.dirs") or settings.get("log.dir") or "/tmp/kafka-logs"  # noqa: S108  # Kafka's default
    named = [settings.get("metadata.log.dir", ""), *log_dirs.split(",")]
    return list(dict.fromkeys(name.strip() for name in named if name.strip()))


def parse_properties(text: str) -> dict[str, str]:
    """`key=value` lines of Java properties; escapes of `:`, `=` and `\\` are undone, the last of equal keys counts."""
    properties: dict[str, str] = {}
    begun = ""
    for line in text.splitlines():
        if not begun and line.lstrip().startswith(("#", "!")):
            continue
        whole = begun + (line.lstrip() if begun else line)
        # An odd number of backslashes at its end: the line goes on.
        begun = whole[:-1] if (len(whole) - len(whole.rstrip("\\"))) % 2 else ""
        match = None if begun else _SETTING.fullmatch(whole)
        if match is not None:
            properties[match[1]] = re.sub(r"\\(.)", r"\1", match[2])
    return properties


def identify(log_dir: str) -> Replica:
    """Whose log dir it is; raises InputUnreadableError where meta.properties does not say."""
    path = os.path.join(log_dir, "meta.properties")
    try:
        with opened(log_dir, "meta.properties") as descriptor:
            text = os.read(descriptor, INLINE_BYTES_MAX).decode("utf-8", "replace")
    except OSError as error:
        raise InputUnreadableError(f"{path}: {error.strerror}") from None
    properties = parse_properties(text)
    cluster_id = properties.get("cluster.id", "")
    node_id = properties.get("node.id", properties.get("broker.id", ""))
    directory_id = properties.get("directory.id") or None
    if not _PLAIN_ID.fullmatch(cluster_id):
        raise InputUnreadableError(f"{path}: no cluster.id that can name a folder")
    if not re.fullmatch(r"[0-9]{1,10}", node_id):
        raise InputUnreadableError(f"{path}: no node.id")
    if directory_id is not None and not _PLAIN_ID.fullmatch(directory_id):
        raise InputUnreadableError(f"{path}: a directory.id that cannot name a folder")
    return Replica(cluster_id, int(node_id), directory_id, log_dir)


@contextmanager
def opened(folder: str, path: str) -> Iterator[int]:
    """A descriptor of a file below a log dir, for reading; no link is followed below `folder`. Raises OSError."""
    descriptor = open_read_only(folder, path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_read_only(folder: str, path: str) -> int:
    """A descriptor of a regular file; access times stay as they are where the system allows that. Raises OSError."""
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        *folders, name = path.split("/")
        for inner in folders:
            below = os.open(inner, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            os.close(parent)
            parent = below
        return open_below(parent, name)
    finally:
        os.close(parent)


def open_below(folder: int, name: str) -> int:
    """A descriptor of a regular file in an open folder; see `open_read_only`. Raises OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags | getattr(os, "O_NOATIME", 0), dir_fd=folder)
    except PermissionError:
        descriptor = os.open(name, flags, dir_fd=folder)  # only a file's owner may leave its access time alone
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", name)
    return descriptor


def list_entries(log_dir: str) -> list[Entry]:
    """Everything in the metadata log dir, and the node's own files, by path; raises InputUnreadableError."""
    try:
        names = [f"{METADATA_DIR}/{name}" for name in os.listdir(os.path.join(log_dir, METADATA_DIR))]  # noqa: PTH208
    except FileNotFoundError:
        raise LogChangedError(f"{log_dir}/{METADATA_DIR} went away") from None
    except OSError as error:
        raise InputUnreadableError(f"{log_dir}/{METADATA_DIR}: {error.strerror}") from None
    present = [name for name in NODE_FILES if os.path.lexists(os.path.join(log_dir, name))]
    return [_entry(log_dir, path) for path in sorted(names + present)]


def _entry(log_dir: str, path: str) -> Entry:
    place = os.path.join(log_dir, path)
    try:
        status = os.lstat(place)
    except FileNotFoundError:
        return Entry(path, "file", 0, 0, 0, 0, 0, state="vanished")
    except OSError as error:
        return Entry(path, "file", 0, 0, 0, 0, 0, state="unreadable", errno=errno_name(error))
    kind, target = "other", None
    if stat.S_ISREG(status.st_mode):
        kind = "file"
    elif stat.S_ISDIR(status.st_mode):
        kind = "directory"
    elif stat.S_ISLNK(status.st_mode):
        kind = "link"
        try:
            target = os.readlink(place)
        except OSError:
            target = ""
    mode, mtime_ms = stat.S_IMODE(status.st_mode), status.st_mtime_ns // 1_000_000
    return Entry(path, kind, status.st_size, status.st_ino, status.st_dev, mode, mtime_ms, target=target)


def errno_name(error: OSError) -> str:
    """`EACCES`."""
    return errno.errorcode.get(error.errno or 0, "EIO")


def entry_json(entry: Entry) -> dict[str, Any]:
    """The part of a manifest's entry that comes from the listing."""
    row: dict[str, Any] = {
        "path": entry.path,
        "type": entry.kind,
        "bytes": entry.size,
        "inode": entry.inode,
        "device": entry.device,
        "mode": f"{entry.mode:04o}",
        "mtime_ms": entry.mtime_ms,
        "state": entry.state,
    }
    if entry.errno is not None:
        row["errno"] = entry.errno
    if entry.target is not None:
        row["target"] = entry.target
    return row


def probe_lock(log_dir: str) -> str:
    """Whether some process holds the `.lock` of a log dir, without locking it.

    `held`, `none-seen` (which proves nothing), or `unknown`: no `.lock`, not readable, not Linux. Kafka's `FileLock` is
    Java's `FileChannel.tryLock`, a POSIX lock of the whole file. F_GETLK sees it through a descriptor opened for
    reading, from another user, PID namespace or read-only mount; not through overlayfs, nor after `.lock` was replaced.
    """
    if sys.platform != "linux":
        return LOCK_UNKNOWN
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(os.path.join(log_dir, ".lock"), flags)
    except OSError:
        return LOCK_UNKNOWN
    try:
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, wanted)
        kind: int = _FLOCK.unpack(answer)[0]
        return LOCK_NOT_SEEN if kind == fcntl.F_UNLCK else LOCK_HELD
    except OSError:
        return LOCK_UNKNOWN
    finally:
        os.close(descriptor)
