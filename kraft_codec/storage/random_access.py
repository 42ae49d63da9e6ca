"""What every storage gives: directories to list and files to read at a position, with their length fixed at open.

Paths inside a storage are relative to its root, with `/` between names; bytes that are not UTF-8 are carried as
`os.fsdecode` does. Nothing here ever writes below the root that it reads.
"""

from __future__ import annotations

import abc
import enum
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from kraft_codec.errors import CodecError, Damage, Reason
from kraft_codec.file_names import is_hostile, printable

Buffer = npt.NDArray[np.uint8]
MAX_SMALL_FILE_BYTES: Final = 64 << 20
HASHED_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a path is read, so that a hostile one costs bounded time, memory and disk.

    `expansion_ratio` bounds what an archive may expand to per compressed byte, beyond `expansion_free_bytes`; index
    files, which are mostly preallocated zeros, are skipped and count only against `index_skip_bytes`.
    """

    depth_count: int = 16
    directory_count: int = 100_000
    entry_count: int = 200_000
    archive_count: int = 1_000
    member_count: int = 100_000
    expansion_ratio: int = 100
    expansion_free_bytes: int = 256 << 20
    index_skip_bytes: int = 16 << 30
    spool_bytes: int = 64 << 30
    damage_count: int = 1_000


class EntryKind(enum.StrEnum):
    """What a name in a directory stands for; names that are no part of a node dir are left out, and counted."""

    DIRECTORY = "directory"
    FILE = "file"
    ARCHIVE = "archive"


@dataclass(frozen=True, slots=True)
class DirEntry:
    """One name in a directory. Of a directory or an archive neither size nor time is known."""

    name: str
    kind: EntryKind
    size_bytes: int = 0
    mtime_ms: int = 0


@dataclass(frozen=True, slots=True)
class Listing:
    """A directory: entries by name, what could not be taken into account, and how many names belong to no node dir.

    `unlisted_damage_count` is how many damages there are beyond the listed ones.
    """

    entries: tuple[DirEntry, ...]
    damages: tuple[Damage, ...] = ()
    unlisted_damage_count: int = 0
    ignored_count: int = 0


class FileChange(enum.StrEnum):
    """How a file differs now from when it was opened. One that was cut and grew again past its length says GREW."""

    NONE = "none"
    GREW = "grew"
    SHRANK = "shrank"
    REWRITTEN = "rewritten"
    VANISHED = "vanished"


class Closeable(abc.ABC):
    """What closes itself at the end of a `with`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of what is held open; further calls do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RandomAccess(Closeable):
    """An open file: `size_bytes` is what may be read, the length at open or the planned one if that is smaller."""

    def __init__(self, path: str, size_bytes: int, mtime_ms: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self.mtime_ms = mtime_ms

    @abc.abstractmethod
    def read_into(self, position: int, buffer: Buffer) -> None:
        """Fills the whole buffer from `position` on; raises CodecError(CHANGED_DURING_READ) where bytes are missing."""

    @abc.abstractmethod
    def change(self) -> FileChange:
        """Whether the file is still as it was when opened. Ask after the last read."""

    def next_data(self, position: int) -> int:
        """Where the next byte that may differ from zero lies, from `position` on; `size_bytes` if there is none.

        Only a sparse local file knows better than `position` itself: a tail of 1 TB of nothing costs no reading.
        """
        return position

    def read_at(self, position: int, length: int) -> Buffer:
        """A new, writable buffer of `length` bytes from `position` on; no memory is asked for beyond the file's end."""
        self.require(position, length)
        buffer = np.empty(length, np.uint8)
        self.read_into(position, buffer)
        return buffer

    def sha256(self, length: int) -> str:
        """The SHA-256 of the first `length` bytes as hexadecimal digits; a piece at a time is in memory."""
        digest = hashlib.sha256()
        for position in range(0, length, HASHED_AT_ONCE):
            digest.update(self.read_at(position, min(HASHED_AT_ONCE, length - position)).tobytes())
        return digest.hexdigest()

    def require(self, position: int, length: int) -> None:
        """Refuses a range outside the file: a plan that no longer fits it."""
        if position < 0 or length < 0:
            raise ValueError(f"range {position}+{length}: expected no negative number")
        if position + length > self.size_bytes:
            raise CodecError(
                Reason.CHANGED_DURING_READ,
                min(position, self.size_bytes),
                f"bytes {position} to {position + length} wanted, the file has {self.size_bytes}",
            )


class Storage(Closeable):
    """A tree of files to read.

    `location` is the path or address as it was given, safe to print; `start` is where discovery begins; `is_immutable`
    says that the bytes cannot change under a reader. `starts` are several where several paths were given.
    """

    def __init__(self, location: str, *, start: str = "", is_immutable: bool = False, limits: Limits) -> None:
        self.location = printable(location)
        self.start = start
        self.starts: tuple[str, ...] = (start,)
        self.is_immutable = is_immutable
        self.limits = limits

    @abc.abstractmethod
    def list_dir(self, path: str) -> Listing:
        """The directory at `path` ("" is the root); raises CodecError where it cannot be listed."""

    @abc.abstractmethod
    def open(self, path: str, planned_size_bytes: int | None = None) -> RandomAccess:
        """Opens a regular file below the root.

        Raises CodecError: CHANGED_DURING_READ where it vanished or is shorter than planned, UNREADABLE where it may not
        be read, HOSTILE_NAME where the path leaves the root or runs through a link.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of everything held open, and removes private copies."""

    @abc.abstractmethod
    def medium(self, path: str) -> str:
        """What the path lies in: `directory`, `archive` (as one moment a node dir) or `object_store`."""

    def held_end_offset(self, path: str) -> int | None:
        """Offsets of the log in a folder below this one had surely reached its disk, as a copier noted; None: unknown.

        Read is not durable: bytes of the page cache vanish with the machine.
        """
        return None

    def noted_ms(self, path: str) -> int | None:
        """When a copier had read what lies in a folder, as it noted by its host's clock; None: unknown."""
        return None

    def path_number(self, path: str) -> int | None:
        """The place of the given path that holds a folder, where several paths were named one by one; else None."""
        return None

    def list_ahead(self, paths: Sequence[str]) -> None:  # most bytes are near
        """Folders that are listed next, log dirs in them too: a store that is far away is asked for all at once."""

    def read_ahead(self, paths: Sequence[str]) -> None:  # most bytes are near
        """Small files that are read next: a store that is far away is asked for all of them at once."""

    def carry(self) -> None:  # most bytes are near
        """Keeps what was asked of a store that is far away for the process that reads what was planned."""

    def read_small(self, path: str, limit_bytes: int = MAX_SMALL_FILE_BYTES) -> bytes:
        """The whole of a small file; raises CodecError(LIMIT) where it is larger than any file of its kind."""
        with self.open(path) as file:
            if file.size_bytes > limit_bytes:
                raise CodecError(Reason.LIMIT, 0, f"{file.size_bytes} bytes, expected at most {limit_bytes}")
            return file.read_at(0, file.size_bytes).tobytes()


@dataclass(slots=True)
class DamageList:
    """Collects damage up to a count, then only counts: a hostile tree cannot fill the memory with complaints."""

    limit_count: int
    entries: list[Damage] = field(default_factory=list)
    beyond_count: int = 0

    def add(self, path: str, reason: Reason, detail: str, *, position: int = 0, length_bytes: int = 0) -> None:
        """Notes damage of the file or directory at `path`."""
        if len(self.entries) < self.limit_count:
            self.entries.append(Damage(printable(path), position, length_bytes, reason, detail))
        else:
            self.beyond_count += 1

    def all(self, path: str) -> tuple[Damage, ...]:
        """Everything found; where some was only counted, one more line says how much."""
        if not self.beyond_count:
            return tuple(self.entries)
        summary = f"{self.beyond_count} more refusals are not listed"
        return (*self.entries, Damage(printable(path), 0, 0, Reason.LIMIT, summary))


def damage_of(path: str, error: CodecError, length_bytes: int = 0) -> Damage:
    """The damage that an error stands for, now that the file is known."""
    return Damage(printable(path), error.position, length_bytes, error.reason, error.detail)


def join(directory: str, name: str) -> str:
    """The path of a name in a directory of a storage; the root is the empty path."""
    return f"{directory}/{name}" if directory else name


_LEAVING: Final = frozenset({"", ".", ".."})
"""Names that make a path leave its folder."""


def path_names(path: str) -> list[str]:
    """The names of a path inside a storage; raises CodecError(HOSTILE_NAME) where one leaves it or forges a line."""
    if not path:
        return []
    names = path.split("/")
    if is_hostile(path) or not _LEAVING.isdisjoint(names):
        refused = next(name for name in names if name in _LEAVING or is_hostile(name))
        raise CodecError(Reason.HOSTILE_NAME, 0, f"the name {printable(refused)!r} is refused")
    return names
