"""Where the data files of a table may lie: below its own folder, and nowhere else.

The Delta protocol lets an `add` name any file: an absolute path, another store, `..`, percent-encoded or not. Whoever
can write one line into a `_delta_log` could so have any file read as ours, which is why none but our own are opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

from kraft_codec.errors import InputError

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_SEPARATORS: Final = re.compile(r"[/\\]")
_MISREAD: Final = re.compile(r"%[0-9A-Fa-f]{2}|\\")


def misread(folder: str) -> str | None:
    """What in the path of a local folder Delta's reader takes for something else, so that it would read another one."""
    found = _MISREAD.search(folder)
    return None if found is None else found[0]


def foreign_file(table_uri: str, file: str) -> InputError:
    """What is said of a table whose log names a file that is not its own."""
    return InputError(table_uri, f"its log names a file outside of its folder: {file!r}")


def first_outside(paths: Iterable[str]) -> str | None:
    """The first path of `add` actions (as the log has them) that leaves the table's folder; None where none does."""
    return next((path for path in paths if _leaves(path)), None)


def first_not_below(root_uri: str, file_uris: Iterable[str]) -> str | None:
    """The first of these files that does not lie below a folder, both as whole addresses; None where all do."""
    store, root = _place(root_uri)
    for uri in file_uris:
        its_store, path = _place(uri)
        if its_store != store or path[: len(root)] != root or ".." in path:
            return uri
    return None


def _leaves(path: str) -> bool:
    plain = _decoded(path)
    return bool(_SCHEME.match(plain)) or plain[:1] in ("/", "\\") or ".." in _SEPARATORS.split(plain)


def _decoded(path: str) -> str:
    """Without percent-encoding, however often it was encoded: readers do not agree on how often they decode."""
    while (plain := unquote(path)) != path:
        path = plain
    return path


def _place(uri: str) -> tuple[tuple[str, str], list[str]]:
    parts = urlsplit(uri)
    names = [name for name in _SEPARATORS.split(_decoded(parts.path)) if name]
    return (parts.scheme or "file", parts.netloc), names
