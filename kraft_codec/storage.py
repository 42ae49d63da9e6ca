"""Where bytes come from: a local directory, an incident archive, an object store. One function opens any of them."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from kraft_codec.errors import InputError
from kraft_codec.file_names import METADATA_LOG_DIR, is_hostile, printable
from kraft_codec.local_storage import LocalStorage
from kraft_codec.random_access import (
    Buffer,
    DamageList,
    DirEntry,
    EntryKind,
    FileChange,
    Limits,
    Listing,
    RandomAccess,
    Storage,
    damage_of,
    join,
)

__all__ = [
    "Buffer",
    "DamageList",
    "DirEntry",
    "EntryKind",
    "FileChange",
    "Limits",
    "Listing",
    "LocalStorage",
    "RandomAccess",
    "Storage",
    "damage_of",
    "join",
    "open_storage",
]

_URI: Final = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def open_storage(path_or_uri: str | os.PathLike[str], *, limits: Limits | None = None) -> Storage:
    """Opens a directory or an archive, local or in an object store (`s3://`, `gs://`, `abfs://`; `file://` is local).

    A directory named `__cluster_metadata-0` is opened through its node dir, whose meta.properties says whose log it is.
    Raises InputError, one line that names the path, where nothing can be read at all.
    """
    location = os.fspath(path_or_uri)
    limits = limits or Limits()
    if match := _URI.match(location):
        raise InputError(printable(location), f"{match[1]}:// addresses are not read")
    return _open_local(location, limits)


def _open_local(location: str, limits: Limits) -> Storage:
    name = printable(location)
    if not location:
        raise InputError("''", "an empty path")
    if is_hostile(location):
        raise InputError(
            name, "a name with characters that no Kafka directory has (control characters, bytes not UTF-8)"
        )
    try:
        mode = Path(location).stat().st_mode
        if stat.S_ISDIR(mode):
            return _open_directory(location, limits)
    except OSError as error:
        raise InputError(name, (error.strerror or type(error).__name__).lower()) from None
    if not stat.S_ISREG(mode):
        raise InputError(name, "neither a directory nor an archive")
    raise InputError(name, "not a directory")


def _open_directory(location: str, limits: Limits) -> Storage:
    resolved = os.path.realpath(location)
    parent, base_name = os.path.split(resolved)
    if base_name == METADATA_LOG_DIR and os.access(parent, os.R_OK | os.X_OK):
        return LocalStorage(parent, start=base_name, location=location, limits=limits)
    return LocalStorage(resolved, location=location, limits=limits)
