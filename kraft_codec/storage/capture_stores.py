"""Where captures of kraft-capture lie: a local folder, read without following links, or a prefix of a bucket."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pyarrow import fs

from kraft_codec.errors import CodecError, Reason
from kraft_codec.file_names import is_hostile, parse_file_name, printable
from kraft_codec.storage.random_access import join, path_names
from kraft_codec.storage.remembered_objects import STORE_ERRORS

GENERATION: Final = re.compile(r"[0-9a-f]{32}")
_LIKE_REPLICA: Final = re.compile(r"[0-9]{1,10}-[A-Za-z0-9_-]{22}")
"""A node id and a directory id, as Kafka writes them: what lies below is listed as a whole."""
_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class StoredName:
    """A name in a folder of a store; times are the store's own, in milliseconds since 1970."""

    name: str
    is_folder: bool
    size_bytes: int = 0
    mtime_ms: int = 0


class CaptureStore(Protocol):
    """Where captures lie: a folder or a prefix of a bucket. `names` and `read` raise CodecError."""

    medium: str

    def names(self, folder: str) -> Sequence[StoredName]:
        """What lies in a folder, by name; nothing where there is no such folder."""
        ...

    def read(self, path: str, limit_bytes: int) -> bytes:
        """The whole of a file; one that is larger than the limit is refused."""
        ...

    def carry(self) -> None:
        """Keeps what was asked for the process that reads what was planned."""
        ...

    def list_trees(self, folders: Sequence[str]) -> None:
        """Folders that are listed next with all that lies below them: all at once where that is faster."""
        ...

    def read_ahead(self, paths: Sequence[str]) -> None:
        """Files that are read next, all at once where that is faster."""
        ...

    def close(self) -> None:
        """Lets go of what is held open."""
        ...


def is_capture_store(store: CaptureStore) -> bool:
    """Whether a folder of a store holds replicas as kraft-capture names them, by three listings at most."""
    folder = ""
    for _ in range(4):
        folders = [each.name for each in store.names(folder) if each.is_folder and not is_hostile(each.name)]
        if any(GENERATION.fullmatch(name) for name in folders):
            return True
        store.list_trees([join(folder, name) for name in folders if _LIKE_REPLICA.fullmatch(name)])
        if not folders or parse_file_name(folders[0]) is not None:
            return False
        folder = join(folder, folders[0])
    return False


def replica_folders(store: CaptureStore) -> list[str]:
    """The folders of generations below a store, a cluster's folder, or of one replica itself."""
    folders: list[str] = []
    pending = [("", 0)]
    while pending:
        folder, depth = pending.pop()
        names = [each.name for each in store.names(folder) if each.is_folder and not is_hostile(each.name)]
        if any(GENERATION.fullmatch(name) for name in names):
            folders.append(folder)
        elif depth < 3:
            store.list_trees([join(folder, name) for name in names if _LIKE_REPLICA.fullmatch(name)])
            pending += [(join(folder, name), depth + 1) for name in names]
    return sorted(folders)


class FolderCaptures:
    """A local folder. The root may be a link, as it was given by the user; nothing below it may."""

    medium = "directory"

    def __init__(self, root: str) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def names(self, folder: str) -> Sequence[StoredName]:
        """See CaptureStore; names that begin with a dot are unfinished, and left out."""
        try:
            descriptor = self._open(path_names(folder), _DIRECTORY_FLAGS)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CodecError(Reason.UNREADABLE, 0, f"{printable(folder)}: {error.strerror}") from None
        try:
            with os.scandir(descriptor) as entries:
                return sorted((_stored(entry) for entry in entries if entry.name[0] != "."), key=lambda each: each.name)
        except OSError as error:
            raise CodecError(Reason.UNREADABLE, 0, f"{printable(folder)}: {error.strerror}") from None
        finally:
            os.close(descriptor)

    def read(self, path: str, limit_bytes: int) -> bytes:
        """See CaptureStore."""
        try:
            descriptor = self._open(path_names(path), _FILE_FLAGS)
        except OSError as error:
            raise CodecError(Reason.UNREADABLE, 0, f"{printable(path)}: {error.strerror}") from None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > limit_bytes:
                raise CodecError(Reason.LIMIT, 0, f"{printable(path)}: {status.st_size} bytes, or no file")
            try:
                return file.read(status.st_size)
            except OSError as error:
                raise CodecError(Reason.UNREADABLE, 0, f"{printable(path)}: {error.strerror}") from None

    def carry(self) -> None:
        """A folder is asked again."""

    def list_trees(self, folders: Sequence[str]) -> None:
        """A folder is listed when it is wanted."""

    def read_ahead(self, paths: Sequence[str]) -> None:
        """A file is read when it is wanted."""

    def close(self) -> None:
        """Closes the root."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def _open(self, names: Sequence[str], flags: int) -> int:
        """A descriptor of a path below the root, each folder opened in the one above it."""
        parent = os.dup(self._root)
        try:
            for number, name in enumerate(names):
                inner = os.open(name, flags if number == len(names) - 1 else _DIRECTORY_FLAGS, dir_fd=parent)
                os.close(parent)
                parent = inner
        except OSError:
            os.close(parent)
            raise
        return parent


def _stored(entry: os.DirEntry[str]) -> StoredName:
    status = entry.stat(follow_symlinks=False)
    return StoredName(entry.name, stat.S_ISDIR(status.st_mode), status.st_size, status.st_mtime_ns // 1_000_000)


class BucketCaptures:
    """A prefix of a bucket, through a pyarrow file system."""

    medium = "object_store"

    def __init__(self, store: Any, root: str) -> None:
        self._store = store
        self._base = root.rstrip("/")

    def names(self, folder: str) -> Sequence[StoredName]:
        """See CaptureStore: one listing with a delimiter."""
        place = "/".join([self._base, *path_names(folder)])
        try:
            infos = self._store.get_file_info(fs.FileSelector(place, recursive=False, allow_not_found=True))
        except STORE_ERRORS as error:
            raise CodecError(Reason.UNREADABLE, 0, printable(str(error).partition("\n")[0])) from None
        rows = [
            StoredName(
                str(each.base_name),
                each.type == fs.FileType.Directory,
                each.size or 0,
                int(each.mtime_ns) // 1_000_000 if each.mtime_ns is not None else 0,
            )
            for each in infos
        ]
        return sorted(rows, key=lambda each: each.name)

    def read(self, path: str, limit_bytes: int) -> bytes:
        """See CaptureStore."""
        place = "/".join([self._base, *path_names(path)])
        try:
            with self._store.open_input_file(place) as file:
                if file.size() > limit_bytes:
                    raise CodecError(Reason.LIMIT, 0, f"{printable(path)}: {file.size()} bytes")
                return bytes(file.read())
        except STORE_ERRORS as error:
            raise CodecError(Reason.UNREADABLE, 0, printable(str(error).partition("\n")[0])) from None

    def carry(self) -> None:
        """See CaptureStore."""
        self._store.carry()

    def list_trees(self, folders: Sequence[str]) -> None:
        """See CaptureStore."""
        self._store.list_trees(["/".join([self._base, *path_names(folder)]) for folder in folders])

    def read_ahead(self, paths: Sequence[str]) -> None:
        """See CaptureStore."""
        self._store.read_ahead(["/".join([self._base, *path_names(path)]) for path in paths])

    def close(self) -> None:
        """Lets go of threads and of what is remembered."""
        self._store.close()
