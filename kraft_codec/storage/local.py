"""Log dirs on a local file system: read only, never through links, robust against a live Kafka beside it.

Every directory on the way is opened by its name in its parent, without following links, so that nothing can lead out
of the root between a check and its use. Bytes come by `read`, never by a mapping: a mapped file that shrinks kills the
process.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from typing import Final

from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.file_names import is_hostile, parse_file_name
from kraft_codec.storage.archives import ARCHIVE_SUFFIXES, ArchiveMounts
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

_NO_FOLLOW: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_ACCESS_TIME: Final = getattr(os, "O_NOATIME", 0)
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
_SEEK_DATA: Final = getattr(os, "SEEK_DATA", None)
_READ_BYTES: Final = 1 << 30


class LocalFile(RandomAccess):
    """An open local file."""

    def __init__(self, path: str, descriptor: int, planned_size_bytes: int | None) -> None:
        self._descriptor = descriptor
        try:
            self._at_open = os.fstat(descriptor)
        except OSError as error:  # a mount that went away since
            raise _codec_error(error, 0) from None
        size_bytes = self._at_open.st_size
        if planned_size_bytes is not None:
            if size_bytes < planned_size_bytes:
                detail = f"{size_bytes} bytes, {planned_size_bytes} were planned"
                raise CodecError(Reason.CHANGED_DURING_READ, size_bytes, detail)
            size_bytes = planned_size_bytes
        super().__init__(path, size_bytes, self._at_open.st_mtime_ns // 1_000_000)

    def read_into(self, position: int, buffer: Buffer) -> None:
        self.require(position, len(buffer))
        view = buffer.data
        while view:
            try:
                count = os.preadv(self._descriptor, [view[:_READ_BYTES]], position)
            except OSError as error:
                raise _codec_error(error, position) from None
            if count == 0:
                detail = f"the file ends here, it had {self.size_bytes} bytes when it was opened"
                raise CodecError(Reason.CHANGED_DURING_READ, position, detail)
            position += count
            view = view[count:]

    def next_data(self, position: int) -> int:
        if _SEEK_DATA is None or position >= self.size_bytes:
            return min(position, self.size_bytes)
        try:
            return min(os.lseek(self._descriptor, position, _SEEK_DATA), self.size_bytes)
        except OSError as error:
            return self.size_bytes if error.errno == errno.ENXIO else position

    def change(self) -> FileChange:
        try:
            now = os.fstat(self._descriptor)
        except OSError:
            return FileChange.VANISHED
        if now.st_nlink == 0:
            return FileChange.VANISHED
        if now.st_size != self._at_open.st_size:
            return FileChange.GREW if now.st_size > self._at_open.st_size else FileChange.SHRANK
        if now.st_mtime_ns != self._at_open.st_mtime_ns:
            return FileChange.REWRITTEN
        return FileChange.NONE

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LocalStorage(Storage):
    """A directory of a local file system, and the archives in it, each as if it were a directory.

    The root may be a link, as it was given by the user; nothing below it may. `only` names the one file in the root
    that is read.
    """

    def __init__(
        self,
        root: str,
        *,
        start: str = "",
        only: str | None = None,
        location: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(root if location is None else location, start=start, limits=limits or Limits())
        self._only = only
        self._archives = ArchiveMounts(self.limits, self._is_dir, lambda names: os.fdopen(self._open_file(names), "rb"))
        try:
            self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise InputError(self.location, reason_text(error)) from None

    def list_dir(self, path: str) -> Listing:
        names = path_names(path)
        archive, inner = self._archives.find(names)
        if archive is not None:
            return archive.list_dir(inner)
        descriptor = self._open_dir(names)
        damages = DamageList(self.limits.damage_count)
        entries: list[DirEntry] = []
        ignored_count = 0
        try:
            with os.scandir(descriptor) as dir_entries:
                for count, entry in enumerate(dir_entries):
                    if self._only not in (None, entry.name):
                        continue
                    if count >= self.limits.entry_count:
                        damages.add(path, Reason.LIMIT, f"more than {count} names in one directory: the rest is unread")
                        break
                    listed = _listed(entry, join(path, entry.name), damages)
                    if listed is None:
                        ignored_count += 1
                    else:
                        entries.append(listed)
        except OSError as error:
            raise _codec_error(error, 0) from None
        finally:
            os.close(descriptor)
        entries.sort(key=lambda entry: entry.name)
        damages.entries.sort(key=lambda damage: damage.path)
        return Listing(tuple(entries), tuple(damages.entries), damages.beyond_count, ignored_count)

    def open(self, path: str, planned_size_bytes: int | None = None) -> RandomAccess:
        names = path_names(path)
        archive, inner = self._archives.find(names)
        if archive is not None:
            return archive.open(inner, planned_size_bytes)
        descriptor = self._open_file(names)
        try:
            return LocalFile(path, descriptor, planned_size_bytes)
        except BaseException:
            os.close(descriptor)
            raise

    def medium(self, path: str) -> str:
        return "directory" if self._archives.find(path_names(path))[0] is None else "archive"

    def close(self) -> None:
        self._archives.close()
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def _is_dir(self, names: Sequence[str]) -> bool:
        directory = self._open_dir(names[:-1])
        try:
            return stat.S_ISDIR(os.stat(names[-1], dir_fd=directory, follow_symlinks=False).st_mode)
        except OSError as error:
            raise _codec_error(error, 0) from None
        finally:
            os.close(directory)

    def _open_file(self, names: Sequence[str]) -> int:
        """A descriptor of a regular file, and of nothing else."""
        if not names:
            raise CodecError(Reason.UNREADABLE, 0, "a directory, not a file")
        directory = self._open_dir(names[:-1])
        try:
            # Looked at before it is opened: opening a device or a FIFO can have effects of its own.
            _require_regular(os.stat(names[-1], dir_fd=directory, follow_symlinks=False).st_mode)
            descriptor = _open_quietly(names[-1], directory, os.O_NONBLOCK)
        except OSError as error:
            raise _codec_error(error, 0) from None
        finally:
            os.close(directory)
        try:
            _require_regular(os.fstat(descriptor).st_mode)
        except OSError as error:
            os.close(descriptor)
            raise _codec_error(error, 0) from None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _open_dir(self, names: Sequence[str]) -> int:
        """A new descriptor of the directory, reached name by name from the root."""
        try:
            descriptor = os.dup(self._root) if names else _open_quietly(".", self._root, os.O_DIRECTORY)
        except OSError as error:
            raise _codec_error(error, 0) from None
        for name in names:
            try:
                inner = _open_quietly(name, descriptor, os.O_DIRECTORY)
            except OSError as error:
                if error.errno == errno.ENOTDIR:
                    error = _why_no_directory(name, descriptor, error)
                raise _codec_error(error, 0) from None
            finally:
                os.close(descriptor)
            descriptor = inner
        return descriptor


def _open_quietly(name: str, directory: int, flags: int) -> int:
    """Opens without a trace where allowed: only the owner of a file may leave its access time as it is."""
    try:
        return os.open(name, _NO_FOLLOW | flags | _NO_ACCESS_TIME, dir_fd=directory)
    except PermissionError:
        return os.open(name, _NO_FOLLOW | flags, dir_fd=directory)


def _why_no_directory(name: str, directory: int, error: OSError) -> OSError:
    """Linux says "not a directory" of a link too, where links are not followed: ELOOP says that it is a link."""
    try:
        is_link = stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError as newer:
        return newer
    return OSError(errno.ELOOP, os.strerror(errno.ELOOP)) if is_link else error


def _listed(entry: os.DirEntry[str], path: str, damages: DamageList) -> DirEntry | None:
    """The entry as it is listed; None where it is no part of a node dir, or refused (then damage says so)."""
    name = entry.name
    if is_hostile(name):
        damages.add(path, Reason.HOSTILE_NAME, "a name with characters that no Kafka directory has: it is left unread")
        return None
    try:
        if entry.is_symlink():
            damages.add(path, Reason.UNREADABLE, "a link, and links are not followed: give its target as a path")
            return None
        if entry.is_dir(follow_symlinks=False):
            return DirEntry(name, EntryKind.DIRECTORY)
        if not entry.is_file(follow_symlinks=False):
            damages.add(path, Reason.UNREADABLE, "neither a file nor a directory: it is left unread")
            return None
        if parse_file_name(name) is not None:
            status = entry.stat(follow_symlinks=False)
            return DirEntry(name, EntryKind.FILE, status.st_size, status.st_mtime_ns // 1_000_000)
    except OSError as error:
        failure = _codec_error(error, 0)
        damages.add(path, failure.reason, failure.detail)
        return None
    return DirEntry(name, EntryKind.ARCHIVE) if name.lower().endswith(ARCHIVE_SUFFIXES) else None


def _require_regular(mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise CodecError(Reason.HOSTILE_NAME, 0, "a link, and links are not followed: give its target as a path")
    if not stat.S_ISREG(mode):
        raise CodecError(Reason.UNREADABLE, 0, "not a regular file")


def _codec_error(error: OSError, position: int) -> CodecError:
    if error.errno in _GONE:
        return CodecError(Reason.CHANGED_DURING_READ, position, "it is no longer there")
    if error.errno == errno.ELOOP:
        return CodecError(Reason.HOSTILE_NAME, position, "a link on the way, and links are not followed")
    return CodecError(Reason.UNREADABLE, position, reason_text(error))


def reason_text(error: OSError) -> str:
    """Why the system refused, in words that say what to do."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return "permission denied: run as the user that Kafka runs as, or copy it with that user's rights"
    return (error.strerror or type(error).__name__).lower()
