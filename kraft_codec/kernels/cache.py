"""A private folder for compiled kernels: object code is executed, so no other user may be able to put a file there.

The folder is KRAFT_AUDIT_CACHE, or `kraft-audit` in the user's cache folder. It is used only where it is ours, mode
0700, no link, and where no other user can put another in its place: a folder above it that everybody may write to must
be sticky, as /tmp is, and what stands in it on the way must be ours. Files are written whole and renamed into place
under a lock of each library, so processes that start together wait for the one that compiles it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FOLDER_VARIABLE: Final = "KRAFT_AUDIT_CACHE"
PRIVATE_MODE: Final = 0o700
_DIGEST_BYTES: Final = 32


class UnsafeFolderError(Exception):
    """The cache folder cannot be trusted, or not be used: the text says why."""


def folder_path() -> Path:
    """Where the cache should be, by the environment."""
    if declared := os.environ.get(FOLDER_VARIABLE):
        return Path(declared).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or ""
    root = Path(base) if base.startswith("/") else Path("~/.cache").expanduser()
    return root.absolute() / "kraft-audit"


def private_folder() -> Path:
    """The cache folder, made where it is absent. Raises UnsafeFolderError."""
    folder = folder_path()
    try:
        folder.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
        _check(folder)
        for path in {folder, folder.resolve()}:  # links on the way, and where they lead
            _check_above(path)
    except (OSError, RuntimeError) as error:
        raise UnsafeFolderError(f"{folder}: {error}") from None
    return folder


def _check_above(folder: Path) -> None:
    """Raises UnsafeFolderError where another user could replace a folder on the way to this one.

    In a sticky folder only the owner of an entry, of the folder and root may rename or delete the entry.
    """
    trusted = (0, os.geteuid())
    for below, above in itertools.pairwise((folder, *folder.parents)):
        status = above.stat()
        if status.st_uid not in trusted:
            raise UnsafeFolderError(f"{folder}: {above} belongs to another user")
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            raise UnsafeFolderError(f"{folder}: everybody may write to {above}")
        if status.st_mode & stat.S_IWOTH and below.lstat().st_uid not in trusted:
            raise UnsafeFolderError(f"{folder}: everybody may write to {above}, and {below} belongs to another user")


def _check(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeFolderError(f"{folder}: not a folder")
    if status.st_uid != os.geteuid():
        raise UnsafeFolderError(f"{folder}: belongs to another user")
    if stat.S_IMODE(status.st_mode) & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise UnsafeFolderError(f"{folder}: mode {mode:04o} lets others in, expected {PRIVATE_MODE:04o}")


@contextlib.contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Holds the lock of one library: others that want to compile it wait."""
    descriptor = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read(folder: Path, name: str) -> bytes | None:
    """A file's content, or None where it is absent, not ours, writable by others or damaged."""
    try:
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            return None
        content = file.read()
    digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return payload if hashlib.sha256(payload).digest() == digest else None


def write(folder: Path, name: str, payload: bytes) -> None:
    """Puts a file in place at once: readers see the old one, none, or the new one whole."""
    descriptor, unfinished = tempfile.mkstemp(dir=folder, prefix=f"{name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(payload).digest() + payload)
            file.flush()
            os.fsync(descriptor)
        Path(unfinished).replace(folder / name)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
