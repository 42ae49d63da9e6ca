"""Incident archives (.tar, .tar.gz, .tgz, .zip), read once as a stream into a private copy of what belongs to log dirs.

An archive in an archive is read in turn, as if it were a directory. Nothing is ever extracted to a path that an archive
names. Members are taken only by names that a node dir has, their bytes go into one temporary file without a name, which
the system removes with the process, and whatever is refused becomes damage that stops nothing else. `ArchiveMounts`
lets archives among other files look like directories.
"""

from __future__ import annotations

import os
import re
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Final

from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.file_names import (
    META_PROPERTIES_NAME,
    METADATA_LOG_DIR,
    NODE_KINDS,
    QUORUM_STATE_NAME,
    FileKind,
    FileName,
    is_hostile,
    is_index_name,
    is_partition_dir,
    parse_file_name,
)
from kraft_codec.storage.archive_members import GZIP_MAGIC, Budget, GzipSource, Member, MemberKind, PlainSource
from kraft_codec.storage.random_access import (
    Buffer,
    DamageList,
    DirEntry,
    EntryKind,
    FileChange,
    Limits,
    Listing,
    RandomAccess,
    Storage,
    join,
    path_names,
)
from kraft_codec.storage.tar_members import BLOCK_BYTES, tar_members
from kraft_codec.storage.zip_members import ZIP_MAGICS, zip_members

ARCHIVE_SUFFIXES: Final = (".tar", ".tar.gz", ".tgz", ".zip")
ARCHIVE_KINDS: Final = ".tar, .tar.gz, .tgz or .zip"
"""The same as help, pages and errors say it."""


def is_archive_name(name: str) -> bool:
    """Whether a file of this name is taken for an archive."""
    return name.lower().endswith(ARCHIVE_SUFFIXES)


_DRIVE: Final = re.compile(r"[A-Za-z]:")
_HOLE_BYTES: Final = 4096
_MAX_COPY_BYTES: Final = 4 << 40  # sparse parts included; what is stored is bounded by Limits
_MAX_PATH_CHARACTERS: Final = 4096
_MAX_PATH_NAMES: Final = 64
_MAX_NESTING: Final = 2
"""Archives in archives in archives: what a person packed, who packed what others had packed."""
_NOT_KEPT_KINDS: Final = frozenset({FileKind.DELETED, FileKind.TEMPORARY})
_OF_PARTITIONS: Final = frozenset({FileKind.LEADER_EPOCH_CHECKPOINT, FileKind.PARTITION_METADATA})
_USEFUL_IN_PART: Final = frozenset({FileKind.SEGMENT, FileKind.SNAPSHOT})


@dataclass(frozen=True, slots=True)
class _Copy:
    """Where a member lies in the private copy; None where only its name was taken."""

    position: int | None
    size_bytes: int
    mtime_ms: int


@dataclass(frozen=True, slots=True)
class _Level:
    """An archive being read: the one that was given, or one in it, whose members stand below `folder`."""

    members: Iterator[Member]
    budget: Budget
    folder: str = ""
    depth: int = 0


class _SpooledFile(RandomAccess):
    """A member in the private copy."""

    def __init__(self, path: str, descriptor: int, copy_position: int, size_bytes: int, mtime_ms: int) -> None:
        super().__init__(path, size_bytes, mtime_ms)
        self._descriptor = os.dup(descriptor)
        self._copy_position = copy_position

    def read_into(self, position: int, buffer: Buffer) -> None:
        self.require(position, len(buffer))
        view = buffer.data
        while view:
            count = os.preadv(self._descriptor, [view], self._copy_position + position)
            if count == 0:
                raise CodecError(Reason.CHANGED_DURING_READ, position, "the private copy of the archive is cut")
            position += count
            view = view[count:]

    def change(self) -> FileChange:
        return FileChange.NONE

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class ArchiveStorage(Storage):
    """The node dirs in an archive.

    Index files, and files that Kafka has marked deleted, are listed; their content is kept only where `keep_indexes`
    asks for it. `prefix` is where an archive among other files hangs in their tree.
    """

    def __init__(
        self,
        file: BinaryIO,
        location: str,
        *,
        limits: Limits | None = None,
        prefix: str = "",
        keep_indexes: bool = False,
    ) -> None:
        super().__init__(location, is_immutable=True, limits=limits or Limits())
        self._name = prefix or self.location.rpartition("/")[2]
        self._prefix = prefix
        self._keep_indexes = keep_indexes
        self._damages = DamageList(self.limits.damage_count)
        self._ignored_count = 0
        self._dirs: dict[str, dict[str, DirEntry]] = {"": {}}
        self._copies: dict[str, _Copy] = {}
        self._seen: set[str] = set()
        self._log_dirs: set[str] = set()
        self._with_quorum_state: set[str] = set()
        self._end = 0
        self._spooled_bytes = 0
        self._member_count = 0
        self._spool: BinaryIO | None = tempfile.TemporaryFile(prefix="kraft-audit-")  # noqa: SIM115
        try:
            self._read_all(file)
        except BaseException:
            self.close()
            raise

    def list_dir(self, path: str) -> Listing:
        names = self._dirs.get("/".join(path_names(path)))
        if names is None:
            raise CodecError(Reason.CHANGED_DURING_READ, 0, "the archive has no such directory")
        entries = tuple(sorted(names.values(), key=lambda entry: entry.name))
        if path:
            return Listing(entries)
        damages = self._damages
        return Listing(entries, tuple(damages.entries), damages.beyond_count, self._ignored_count)

    def open(self, path: str, planned_size_bytes: int | None = None) -> RandomAccess:
        copy = self._copies.get("/".join(path_names(path)))
        if copy is None:
            raise CodecError(Reason.CHANGED_DURING_READ, 0, "the archive has no such file")
        if copy.position is None or self._spool is None:
            raise CodecError(Reason.UNREADABLE, 0, "the content of this file is not kept from the archive")
        if planned_size_bytes is not None and copy.size_bytes < planned_size_bytes:
            detail = f"{copy.size_bytes} bytes, {planned_size_bytes} were planned"
            raise CodecError(Reason.CHANGED_DURING_READ, copy.size_bytes, detail)
        size_bytes = copy.size_bytes if planned_size_bytes is None else planned_size_bytes
        return _SpooledFile(path, self._spool.fileno(), copy.position, size_bytes, copy.mtime_ms)

    def medium(self, path: str) -> str:
        return "archive"

    def close(self) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def _read_all(self, file: BinaryIO) -> None:
        try:
            self._read_archive(file)
            self._log_dirs = {path for path in self._with_quorum_state if not self._is_in_node_dir(path)}
            if self._log_dirs:
                # Members of log dirs that are named like partitions may have stood before what shows that they are.
                self._forget()
                self._read_archive(file)
        except OSError as error:
            text = (error.strerror or type(error).__name__).lower()
            detail = f"no private copy in {tempfile.gettempdir()} (TMPDIR names another place): {text}"
            raise InputError(self.location, detail) from None

    def _read_archive(self, file: BinaryIO) -> None:
        file.seek(0)
        budget = Budget(self.limits)
        self._read_members(_Level(_members(file, self.location, budget), budget))

    def _is_in_node_dir(self, path: str) -> bool:
        beside = self._dirs.get(path.rpartition("/")[0], {})
        return METADATA_LOG_DIR in beside or META_PROPERTIES_NAME in beside

    def _forget(self) -> None:
        self._damages = DamageList(self.limits.damage_count)
        self._dirs, self._copies, self._seen = {"": {}}, {}, set()
        self._end = self._spooled_bytes = self._member_count = self._ignored_count = 0

    def _read_members(self, level: _Level) -> None:
        count = 0
        try:
            for member in level.members:
                count += 1
                self._member_count += 1
                if self._member_count > self.limits.member_count:
                    detail = f"more than {self.limits.member_count} members: the rest is unread"
                    raise CodecError(Reason.LIMIT, 0, detail)
                self._take(member, level)
        except CodecError as error:
            if not count:
                raise InputError(self.location, f"not an archive that can be read: {error.detail}") from None
            self._add_damage(level.folder, error)

    def _take(self, member: Member, level: _Level) -> None:
        try:
            path = join(level.folder, _member_path(member.name)).rstrip("/")
            if path == level.folder:
                return
            if member.kind is MemberKind.DIRECTORY:
                self._add_dir(path)
            elif member.kind is MemberKind.FILE and is_archive_name(path) and level.depth < _MAX_NESTING:
                self._take_archive(path, member, level)
            elif member.kind is MemberKind.FILE:
                self._take_file(path, member)
            else:
                detail = "a link" if member.kind is MemberKind.LINK else "a device or another special file"
                raise CodecError(Reason.UNREADABLE, 0, f"{detail}: it is left unread")
        except CodecError as error:
            self._add_damage(join(level.folder, member.name), error)

    def _take_archive(self, path: str, member: Member, level: _Level) -> None:
        """Reads an archive in the archive, from a copy of its own that is gone afterwards."""
        key = unicodedata.normalize("NFC", path).casefold()
        if key in self._seen or path in self._dirs:
            raise CodecError(Reason.HOSTILE_NAME, 0, "a second member of this name, or one that differs by case only")
        if member.refusal is not None:
            raise member.refusal
        self._seen.add(key)
        failure = None
        with tempfile.TemporaryFile(prefix="kraft-audit-") as copy:
            try:
                for at, data in member.content.chunks():
                    self._count_spooled(len(data), at)
                    copy.seek(at)
                    copy.write(data)
            except CodecError as error:
                failure = error  # what is there of it is read
            copy.seek(0)
            budget = Budget(self.limits, outer=level.budget)
            self._add_dir(path)
            try:
                self._read_members(_Level(_members(copy, path, budget), budget, path, level.depth + 1))
            except InputError as error:
                raise failure or CodecError(Reason.BAD_FILE, 0, error.detail) from None
        if failure is not None:
            raise failure

    def _count_spooled(self, size_bytes: int, position: int) -> None:
        self._spooled_bytes += size_bytes
        if self._spooled_bytes > self.limits.spool_bytes:
            raise CodecError(Reason.LIMIT, position, f"more than {self.limits.spool_bytes} bytes in one archive")

    def _take_file(self, path: str, member: Member) -> None:
        parent, _, name = path.rpartition("/")
        file_name = _belonging(parent.rpartition("/")[2], name, is_log_dir=parent in self._log_dirs)
        member.content.is_index = is_index_name(name)
        if file_name is None:
            if name == QUORUM_STATE_NAME:
                self._with_quorum_state.add(parent)
            self._ignored_count += 1
            return
        key = unicodedata.normalize("NFC", path).casefold()
        if key in self._seen or path in self._dirs:
            raise CodecError(Reason.HOSTILE_NAME, 0, "a second member of this name, or one that differs by case only")
        if member.refusal is not None:
            raise member.refusal
        self._add_dir(parent)
        self._seen.add(key)
        is_left_out = file_name.kind in _NOT_KEPT_KINDS or member.content.is_index
        if is_left_out and not self._keep_indexes:
            self._add_file(parent, name, _Copy(None, member.size_bytes, member.mtime_ms))
            return
        position = -(-self._end // _HOLE_BYTES) * _HOLE_BYTES
        try:
            size_bytes = self._copy(member, position)
        except CodecError as error:
            copied_bytes = max(self._end - position, 0)
            if file_name.kind in _USEFUL_IN_PART and copied_bytes:
                self._add_file(parent, name, _Copy(position, copied_bytes, member.mtime_ms))
                detail = f"{error.detail}: {copied_bytes} of {member.size_bytes} bytes are there"
                raise CodecError(error.reason, copied_bytes, detail) from None
            raise
        self._add_file(parent, name, _Copy(position, size_bytes, member.mtime_ms))

    def _copy(self, member: Member, position: int) -> int:
        """Copies the member's bytes, not its sparse parts; `_end` is after the last byte even where this fails."""
        if self._spool is None or position + member.size_bytes > _MAX_COPY_BYTES:
            raise CodecError(Reason.LIMIT, 0, f"a file of {member.size_bytes} bytes, holes included")
        descriptor = self._spool.fileno()
        size_bytes = 0
        for at, data in member.content.chunks():
            self._count_spooled(len(data), at)
            view = memoryview(data)
            while view:
                written = os.pwrite(descriptor, view, position + at)
                at += written
                view = view[written:]
            size_bytes = at
            self._end = position + size_bytes
        size_bytes = max(size_bytes, member.size_bytes)
        self._end = position + size_bytes
        if os.fstat(descriptor).st_size < self._end:
            os.ftruncate(descriptor, self._end)
        return size_bytes

    def _add_file(self, parent: str, name: str, copy: _Copy) -> None:
        self._dirs[parent][name] = DirEntry(name, EntryKind.FILE, copy.size_bytes, copy.mtime_ms)
        self._copies[join(parent, name)] = copy

    def _add_dir(self, path: str) -> None:
        if path in self._dirs:
            return
        if path in self._copies:
            raise CodecError(Reason.HOSTILE_NAME, 0, "a file and a directory of the same name")
        parent, _, name = path.rpartition("/")
        self._add_dir(parent)
        self._dirs[parent][name] = DirEntry(name, EntryKind.DIRECTORY)
        self._dirs[path] = {}

    def _add_damage(self, name: str, error: CodecError) -> None:
        path = join(self._prefix, name) if name else self._name
        self._damages.add(path, error.reason, error.detail, position=error.position)


_UNREAD_KINDS: Final = {
    "xz": (re.compile(rb"\xfd7zXZ\0"), "`xz -d`"),
    # A name in a tar may begin with BZh too: its first block, or the end of an empty one, follows.
    "bzip2": (re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), "`bzip2 -d`"),
    "zstd": (re.compile(rb"\x28\xb5\x2f\xfd"), "`zstd -d`"),
    "lz4": (re.compile(rb"\x04\x22\x4d\x18"), "`lz4 -d`"),
    "7z": (re.compile(rb"7z\xbc\xaf\x27\x1c"), "`7z x`"),
}
"""Compressions that a tar may come in and that are not read, recognised by their first bytes."""


def _members(file: BinaryIO, location: str, budget: Budget) -> Iterator[Member]:
    """The members of an archive, whose kind its first bytes decide and not its name."""
    start = file.read(BLOCK_BYTES)
    file.seek(0)
    if not start:
        raise InputError(location, "an empty file")
    if start.startswith(ZIP_MAGICS):
        return zip_members(file, budget)
    if start.startswith(GZIP_MAGIC):
        return tar_members(GzipSource(file), budget)
    for kind, (magic, program) in _UNREAD_KINDS.items():
        if magic.match(start):
            raise InputError(location, f"a {kind} file, which is not read: unpack it first, as by {program}")
    if len(start) < BLOCK_BYTES:
        raise InputError(location, f"not a {ARCHIVE_KINDS} archive")
    return tar_members(PlainSource(file), budget)


def _member_path(name: str) -> str:
    """The path in the tree; raises CodecError(HOSTILE_NAME) for one that leaves it or forges a line."""
    if is_hostile(name) or "\\" in name or len(name) > _MAX_PATH_CHARACTERS:
        raise CodecError(Reason.HOSTILE_NAME, 0, "a name with characters that no Kafka directory has, or too many")
    if name.startswith("/") or _DRIVE.match(name):
        raise CodecError(Reason.HOSTILE_NAME, 0, "an absolute path: pack it relative to a directory")
    names = [part for part in name.split("/") if part not in ("", ".")]
    if len(names) > _MAX_PATH_NAMES:
        raise CodecError(Reason.LIMIT, 0, f"more than {_MAX_PATH_NAMES} directories deep")
    if ".." in names:
        raise CodecError(Reason.HOSTILE_NAME, 0, "a path that leaves the archive")
    return "/".join(names)


def _belonging(directory: str, name: str, *, is_log_dir: bool) -> FileName | None:
    """The file's name where it is part of a node dir; of a broker's own partitions only their epochs and ids.

    `is_log_dir`: the directory has a quorum-state, as partitions of topics have not.
    """
    file_name = parse_file_name(name)
    if file_name is None or file_name.kind in NODE_KINDS or directory == METADATA_LOG_DIR or is_log_dir:
        return file_name
    return file_name if file_name.kind in _OF_PARTITIONS or not is_partition_dir(directory) else None


class ArchiveMounts:
    """The archives of a storage, each read when a path first runs through it and held until `close`.

    `is_dir` recognises a directory that is named like an archive; `open_file` gives the bytes. Both may raise
    CodecError.
    """

    def __init__(
        self,
        limits: Limits,
        is_dir: Callable[[Sequence[str]], bool],
        open_file: Callable[[Sequence[str]], AbstractContextManager[BinaryIO]],
    ) -> None:
        self._limits = limits
        self._is_dir = is_dir
        self._open_file = open_file
        self._archives: dict[str, ArchiveStorage] = {}

    def find(self, names: Sequence[str]) -> tuple[ArchiveStorage | None, str]:
        """The archive that a path runs through and the path inside it; None where it runs through none."""
        for count, name in enumerate(names, start=1):
            if not is_archive_name(name):
                continue
            path = "/".join(names[:count])
            if path not in self._archives:
                if self._is_dir(names[:count]):
                    continue
                self._archives[path] = self._read(path, names[:count])
            return self._archives[path], "/".join(names[count:])
        return None, ""

    def close(self) -> None:
        """Lets go of all of them."""
        for archive in self._archives.values():
            archive.close()
        self._archives.clear()

    def _read(self, path: str, names: Sequence[str]) -> ArchiveStorage:
        try:
            with self._open_file(names) as file:
                return ArchiveStorage(file, path, limits=self._limits, prefix=path)
        except InputError as error:
            raise CodecError(Reason.BAD_FILE, 0, error.detail) from None
