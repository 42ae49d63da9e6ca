"""Where bytes come from: a local directory, an incident archive, an object store, or several of them as one tree."""

from __future__ import annotations

import os
import re
import stat
import urllib.parse
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.file_names import METADATA_LOG_DIR, FileKind, is_hostile, parse_file_name, printable
from kraft_codec.storage.archives import ArchiveStorage
from kraft_codec.storage.capture_stores import FolderCaptures, is_capture_store
from kraft_codec.storage.captured import CapturedStorage
from kraft_codec.storage.local import LocalStorage, reason_text
from kraft_codec.storage.object_store import SCHEMES, open_object_storage
from kraft_codec.storage.random_access import (
    Closeable,
    DirEntry,
    EntryKind,
    Limits,
    Listing,
    RandomAccess,
    Storage,
    join,
)

_ALONE: Final = frozenset({FileKind.SEGMENT, FileKind.SNAPSHOT, FileKind.BOOTSTRAP_SNAPSHOT})
_ADDRESS: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.IGNORECASE | re.DOTALL)


def open_storage(path_or_uri: str | os.PathLike[str], *, limits: Limits | None = None) -> Storage:
    """Opens a directory or an archive, local or in an object store (`s3://`, `gs://`, `abfs://`; `file://` is local).

    What kraft-capture wrote is opened as the node dirs of its newest manifests. A directory `__cluster_metadata-0`
    is opened through its node dir, whose meta.properties says whose log it is; a single segment or snapshot is opened
    alone. Raises InputError, one line that names the path, where nothing can be read at all.
    """
    location = os.fspath(path_or_uri)
    limits = limits or Limits()
    if (path := file_path(location)) is not None:
        return _open_local(path, location, limits)
    if (host := other_host(location)) is not None:
        raise InputError(printable(location), f"a file on another host, {printable(host)}")
    match = _ADDRESS.fullmatch(location)
    if match is None:
        return _open_local(location, location, limits)
    scheme = match[1].lower()
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in sorted(SCHEMES | {"file"}))
        raise InputError(
            printable(location.partition("@")[0]), f"an address of a kind that is not read; known: {known}"
        )
    return open_object_storage(location, limits)


def open_together(paths: Sequence[str], location: str) -> Storage:
    """Opens one path as `open_storage` does, several as one tree that is named by `location`. Raises InputError."""
    return open_storage(paths[0]) if len(paths) == 1 else JoinedStorage(paths, location)


class StoragePool(Closeable):
    """Opens each path once, for callers that plan first and read later: an archive is copied once, not twice.

    `open` can stand wherever `open_storage` does; leaving its `with` keeps the storage open until `close`.
    """

    def __init__(self, *, limits: Limits | None = None) -> None:
        self._limits = limits
        self._storages: dict[str, Storage] = {}

    def open(self, path_or_uri: str | os.PathLike[str]) -> AbstractContextManager[Storage]:
        """The storage of a path; raises InputError as `open_storage` does."""
        location = os.fspath(path_or_uri)
        if location not in self._storages:
            self._storages[location] = open_storage(location, limits=self._limits)
        return nullcontext(self._storages[location])

    def close(self) -> None:
        """Closes all of them."""
        for storage in self._storages.values():
            storage.close()
        self._storages.clear()


def _open_local(path: str, location: str, limits: Limits) -> Storage:
    name = printable(location) or "''"
    if not path:
        raise InputError(name, "an empty path")
    if is_hostile(path):
        raise InputError(
            name, "a name with characters that no Kafka directory has (control characters, bytes not UTF-8)"
        )
    try:
        mode = Path(path).stat().st_mode  # before it is opened, as opening a FIFO waits for its writer
        if stat.S_ISDIR(mode):
            return _open_directory(path, location, limits)
        if not stat.S_ISREG(mode):
            raise InputError(name, "neither a file nor a directory")
        parent, base_name = os.path.split(os.path.realpath(path))
        file_name = parse_file_name(base_name)
        if file_name is not None and file_name.kind in _ALONE:
            return LocalStorage(parent, only=base_name, location=location, limits=limits)
        with Path(path).open("rb") as file:
            return ArchiveStorage(file, location, limits=limits)
    except OSError as error:
        raise InputError(name, reason_text(error)) from None


def _open_directory(path: str, location: str, limits: Limits) -> Storage:
    resolved = os.path.realpath(path)
    parent, base_name = os.path.split(resolved)
    if base_name == METADATA_LOG_DIR and os.access(parent, os.R_OK | os.X_OK):
        return LocalStorage(parent, start=base_name, location=location, limits=limits)
    captures = FolderCaptures(resolved)
    try:
        if is_capture_store(captures):
            return CapturedStorage(captures, location, limits)
    except CodecError:
        pass  # the storage says what cannot be listed
    except BaseException:
        captures.close()
        raise
    captures.close()
    return LocalStorage(resolved, location=location, limits=limits)


_FILE_URI: Final = re.compile(r"file://([^/]*)(.*)", re.IGNORECASE | re.DOTALL)
_THIS_HOST: Final = ("", "localhost")


def file_path(location: str) -> str | None:
    """The local path of a `file://` URI, its percent-encoding undone; None for other hosts, and for all that is none.

    As RFC 8089 and Python's Path.from_uri read it: there is no query and no fragment.
    """
    match = _FILE_URI.fullmatch(location)
    if match is None or match[1].lower() not in _THIS_HOST:
        return None
    path = urllib.parse.unquote(match[2])
    return None if "\x00" in path else path


def other_host(location: str) -> str | None:
    """The host of a `file://` URI that names a host other than this; None for any other text."""
    match = _FILE_URI.fullmatch(location)
    return None if match is None or match[1].lower() in _THIS_HOST else match[1]


class JoinedStorage(Storage):
    """Several paths as one tree: each hangs where it lies below the folder that all of them have in common.

    `starts` are the paths in the tree, as given.

    Raises InputError, as `open_storage` does, and where two paths are single files of one folder.
    """

    def __init__(self, paths: Sequence[str], location: str, limits: Limits | None = None) -> None:
        super().__init__(location, is_immutable=False, limits=limits or Limits())
        self._mounts: dict[str, Storage] = {}
        self._opened: dict[str, str] = {}
        self._given: dict[str, str] = {}
        self._named = location[1:-1].split(",") if location[:1] == "{" else []
        names = [_names(path) for path in paths]
        shared = next((place for place, each in enumerate(zip(*names, strict=False)) if len(set(each)) > 1), None)
        common = names[0][: min(map(len, names)) if shared is None else shared]
        starts: list[str] = []
        try:
            for path, own in zip(paths, names, strict=True):
                storage = open_storage(path, limits=self.limits)
                place = "/".join(own[len(common) :])
                # A log dir is opened through its node dir, a single file through its folder.
                above = place[: -len(storage.start)].rstrip("/") if storage.start else place
                if not storage.start and not _is_container(path):
                    above = place.rpartition("/")[0]
                if above in self._mounts:
                    storage.close()
                    raise InputError(printable(path), "several files of one folder: give the folder")
                self._mounts[above] = storage
                self._opened[above] = path
                self._given[above] = path if above == place else os.path.dirname(path)  # noqa: PTH120  # may be a URI
                starts.append(place if storage.start else above)
        except BaseException:
            self.close()
            raise
        self.starts = tuple(starts)

    def list_dir(self, path: str) -> Listing:
        """See Storage; folders above the given paths hold what leads to them, and nothing else."""
        mount = self._mount_of(path)
        if mount is not None:
            return self._mounts[mount].list_dir(path[len(mount) :].lstrip("/"))
        prefix = f"{path}/" if path else ""
        below = {each[len(prefix) :].partition("/")[0] for each in self._mounts if each.startswith(prefix)}
        if not below:
            raise CodecError(Reason.CHANGED_DURING_READ, 0, "no given path lies there")
        return Listing(tuple(DirEntry(name, EntryKind.DIRECTORY) for name in sorted(below)))

    def open(self, path: str, planned_size_bytes: int | None = None) -> RandomAccess:
        """See Storage."""
        mount = self._mount_of(path)
        if mount is None:
            raise CodecError(Reason.CHANGED_DURING_READ, 0, "no given path holds this file")
        return self._mounts[mount].open(path[len(mount) :].lstrip("/"), planned_size_bytes)

    def medium(self, path: str) -> str:
        """See Storage."""
        mount = self._mount_of(path)
        return "directory" if mount is None else self._mounts[mount].medium(path[len(mount) :].lstrip("/"))

    def held_end_offset(self, path: str) -> int | None:
        """See Storage."""
        mount = self._mount_of(path)
        return None if mount is None else self._mounts[mount].held_end_offset(path[len(mount) :].lstrip("/"))

    def noted_ms(self, path: str) -> int | None:
        """See Storage."""
        mount = self._mount_of(path)
        return None if mount is None else self._mounts[mount].noted_ms(path[len(mount) :].lstrip("/"))

    def path_number(self, path: str) -> int | None:
        """See Storage; what a pattern matched comes in the order of its names, which says nothing."""
        mount = self._mount_of(path)
        opened = None if mount is None else self._opened[mount]
        return self._named.index(opened) if opened in self._named else None

    def close(self) -> None:
        """Closes all of them."""
        for storage in self._mounts.values():
            storage.close()

    def path_as_given(self, path: str) -> str:
        """A path in the tree as somebody names it: the path that was given, and the way from there."""
        mount = self._mount_of(path)
        return path if mount is None else join(self._given[mount].rstrip("/"), path[len(mount) :].lstrip("/"))

    def opened_path(self, path: str) -> tuple[str, str] | None:
        """Which of the given paths holds a path in the tree, and its place there; None above all of them."""
        mount = self._mount_of(path)
        return None if mount is None else (self._opened[mount], path[len(mount) :].lstrip("/"))

    def _mount_of(self, path: str) -> str | None:
        holding = [each for each in self._mounts if not each or path == each or path.startswith(f"{each}/")]
        return max(holding, key=len, default=None)


def _names(path: str) -> list[str]:
    """The names of a path from its root on; of an address its scheme first."""
    local = file_path(path)
    address = None if local is not None else _ADDRESS.fullmatch(path)
    if address is not None:
        rest = address[2].partition("?")[0]
        return [f"{address[1].lower()}:", *(name for name in rest.split("/") if name)]
    whole = os.path.abspath(path if local is None else local)  # noqa: PTH100  # as given: links stay
    return ["file:", *(name for name in whole.split("/") if name)]


def _is_container(path: str) -> bool:
    """Whether a path is read as a tree of its own: all but a single segment or snapshot."""
    return parse_file_name(path.rstrip("/").rpartition("/")[2]) is None
