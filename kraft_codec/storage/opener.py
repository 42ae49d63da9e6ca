"""Where bytes come from: a local directory, an incident archive, an object store. One function opens any of them."""

from __future__ import annotations

import os
import re
import stat
import urllib.parse
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kraft_codec.errors import CodecError, InputError
from kraft_codec.file_names import METADATA_LOG_DIR, FileKind, is_hostile, parse_file_name, printable
from kraft_codec.storage.archives import ArchiveStorage
from kraft_codec.storage.capture_stores import FolderCaptures
from kraft_codec.storage.captured import CapturedStorage, is_capture_store
from kraft_codec.storage.local import LocalStorage, reason_text
from kraft_codec.storage.object_store import SCHEMES, open_object_storage
from kraft_codec.storage.random_access import (
    Limits,
    Storage,
)

_ALONE: Final = frozenset({FileKind.SEGMENT, FileKind.SNAPSHOT, FileKind.BOOTSTRAP_SNAPSHOT})
_URI: Final = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


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
    match = _URI.match(location)
    if match is None:
        return _open_local(location, location, limits)
    scheme = match[1].lower()
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in sorted(SCHEMES | {"file"}))
        raise InputError(
            printable(location.partition("@")[0]), f"an address of a kind that is not read; known: {known}"
        )
    return open_object_storage(location, limits)


class StoragePool:
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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


_FILE: Final = re.compile(r"file://([^/]*)(.*)", re.IGNORECASE | re.DOTALL)
_THIS_HOST: Final = ("", "localhost")


def file_path(location: str) -> str | None:
    """The local path of a `file://` URI, its percent-encoding undone; None for other hosts, and for all that is none.

    As RFC 8089 and Python's Path.from_uri read it: there is no query and no fragment.
    """
    found = _FILE.fullmatch(location)
    if found is None or found[1].lower() not in _THIS_HOST:
        return None
    path = urllib.parse.unquote(found[2])
    return None if "\x00" in path else path


def other_host(location: str) -> str | None:
    """The host of a `file://` URI that names a host other than this; None for any other text."""
    found = _FILE.fullmatch(location)
    return None if found is None or found[1].lower() in _THIS_HOST else found[1]
