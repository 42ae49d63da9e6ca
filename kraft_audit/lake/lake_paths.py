"""Paths and URIs of a lake: what is an address, what is a lake, and where the data files of a table may lie.

The Delta protocol lets an `add` name any file: an absolute path, another store, `..`, percent-encoded or not. Whoever
can write one line into a `_delta_log` could therefore make us read any file as part of the table. So only files below
the table's own folder are opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from kraft_codec.errors import InputError
from kraft_codec.storage.opener import file_path

_URI: Final = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_SEPARATORS: Final = re.compile(r"[/\\]")
_AMBIGUOUS: Final = re.compile(r"%[0-9A-Fa-f]{2}|\\")


def ambiguous_part(folder: str) -> str | None:
    """The part of a local path that Delta's reader would decode, so that it would read another folder; else None."""
    match = _AMBIGUOUS.search(folder)
    return None if match is None else match[0]


def foreign_file(table_uri: str, file: str) -> InputError:
    """The error of a table whose log names a file outside of its folder."""
    return InputError(table_uri, f"its log names a file outside of its folder: {file!r}")


def first_outside(paths: Iterable[str]) -> str | None:
    """The first path of `add` actions, as the log has them, that leaves the table's folder; None if none does."""
    return next((path for path in paths if _leaves(path)), None)


def first_not_below(root_uri: str, file_uris: Iterable[str]) -> str | None:
    """The first of these files that does not lie below a folder, all as whole addresses; None if all do."""
    store, root = _place(root_uri)
    for uri in file_uris:
        file_store, path = _place(uri)
        if file_store != store or path[: len(root)] != root or ".." in path:
            return uri
    return None


def _leaves(path: str) -> bool:
    plain = _decoded(path)
    return bool(_SCHEME.match(plain)) or plain[:1] in ("/", "\\") or ".." in _SEPARATORS.split(plain)


def _decoded(path: str) -> str:
    """The path without percent-encoding, however often it was encoded: readers decode a different number of times."""
    while (plain := unquote(path)) != path:
        path = plain
    return path


def _place(uri: str) -> tuple[tuple[str, str], list[str]]:
    parts = urlsplit(uri)
    names = [name for name in _SEPARATORS.split(_decoded(parts.path)) if name]
    return (parts.scheme or "file", parts.netloc), names


def is_uri(path: str) -> bool:
    """True for s3://…, abfs://…, file://…; False for a path of this machine."""
    return _URI.match(path) is not None


def absolute(path: str, folder: Path | str) -> str:
    """A URI as it is (file:// as a path); a path made absolute against `folder`, `~` and `..` resolved.

    Against a folder that is a URI itself, a path that is not absolute becomes a URI.
    """
    local = file_path(path)
    if local is None and is_uri(path):
        return path
    if isinstance(folder, str):
        plain = os.path.normpath(Path(path if local is None else local).expanduser())
        if os.path.isabs(plain):  # noqa: PTH117  # text, not a path of this machine yet
            return plain
        return f"{folder.rstrip('/')}/{plain}"
    if local is not None:
        return os.path.normpath(folder / local)
    return os.path.normpath(folder / Path(path).expanduser())


def is_lake_folder(folder: str | Path) -> bool:
    """Whether a local folder is a lake: it has the ledger's Delta table `plans`."""
    return Path(folder, "plans", "_delta_log").is_dir()
