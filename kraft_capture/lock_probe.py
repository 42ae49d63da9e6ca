"""Proof of life: whether some process holds the `.lock` of a log dir. Asks, never locks.

Kafka's `FileLock` is Java's `FileChannel.tryLock`, a POSIX lock of the whole file. F_GETLK sees it through a descriptor
opened for reading, from another user, PID namespace or read-only mount; not through overlayfs, nor after `.lock` was
replaced.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys

_FLOCK = struct.Struct("@hhqqi4x" if struct.calcsize("P") == 8 else "@hhqqi")  # type, whence, start, length, pid

HELD = "held"
NONE_SEEN = "none-seen"
UNKNOWN = "unknown"


def probe_lock(log_dir: str) -> str:
    """`held`, `none-seen` (which proves nothing), or `unknown`: no `.lock`, not readable, not Linux."""
    if sys.platform != "linux":
        return UNKNOWN
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(os.path.join(log_dir, ".lock"), flags)
    except OSError:
        return UNKNOWN
    try:
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, wanted)
        kind: int = _FLOCK.unpack(answer)[0]
        return NONE_SEEN if kind == fcntl.F_UNLCK else HELD
    except OSError:
        return UNKNOWN
    finally:
        os.close(descriptor)
