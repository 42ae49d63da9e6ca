"""Patterns in paths and in object-store addresses: `*`, `[…]` and `**`, and the paths that they match.

`?` is a wildcard in a local path alone: in an address it begins the query.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from pathlib import Path
from typing import Any, Final, NamedTuple

from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.file_names import METADATA_LOG_DIR, is_hostile, is_partition_dir, printable
from kraft_codec.storage.archives import ARCHIVE_SUFFIXES
from kraft_codec.storage.capture_stores import GENERATION
from kraft_codec.storage.local import reason_text
from kraft_codec.storage.object_store import ADDRESS, SCHEMES, connect, is_folder, names_in
from kraft_codec.storage.opener import file_path
from kraft_codec.storage.random_access import Limits, join

_WILDCARD: Final = re.compile(r"[*\[]")


class _Match(NamedTuple):
    """A path below the part of an address that has no pattern."""

    path: str
    is_folder: bool


def matching_paths(pattern: str, limits: Limits | None = None) -> list[str]:
    """The paths that a pattern matches, in order; without a match, or without a pattern, that itself.

    `{a,b}` are the paths and patterns a and b, as `several_paths` writes them.

    A match that is neither a folder nor named like an archive is left out, as a pattern also matches what lies beside
    them; so is one that lies in another match, as with `**`. Raises InputError where a folder on the way may not be
    listed.
    """
    if pattern[:1] == "{" and pattern[-1:] == "}" and not Path(pattern).exists():
        return paths_of_all(pattern[1:-1].split(","), limits)
    if (local := file_path(pattern)) is not None:
        return _local_matches(local)
    address = ADDRESS.fullmatch(pattern)
    if address is None:
        return _local_matches(pattern)
    return _object_matches(pattern, address, limits or Limits()) if is_address(pattern) else [pattern]


def paths_of_all(patterns: Iterable[str], limits: Limits | None = None) -> list[str]:
    """The paths that any of the patterns matches, each once, without those that lie below another of them."""
    return outermost(path for each in patterns for path in matching_paths(each, limits))


def several_paths(paths: Sequence[str]) -> str:
    """Several paths as one text that `matching_paths` reads; one path as it is. Raises ValueError."""
    if len(paths) == 1:
        return paths[0]
    for path in paths:
        if any(mark in path for mark in ",{}"):
            raise ValueError(f"{path!r}: a path with a comma or a brace cannot stand beside others: give their folder")
    return "{" + ",".join(paths) + "}"


def is_address(path: str) -> bool:
    """Whether a path is an address in an object store."""
    address = ADDRESS.fullmatch(path)
    return address is not None and address[1].lower() in SCHEMES


def outermost(paths: Iterable[str]) -> list[str]:
    """The paths in the order in which they come, each once, without those that lie below another."""
    given = list(dict.fromkeys(paths))
    outer: list[str] = []
    for path in sorted(given, key=lambda path: path.rstrip("/").split("/")):
        if not outer or not f"{path.rstrip('/')}/".startswith(f"{outer[-1].rstrip('/')}/" if outer[-1] else ""):
            outer.append(path)
    return sorted(outer, key=given.index)


def _local_matches(path: str) -> list[str]:
    if not glob.has_magic(path):
        return [path]
    try:
        if Path(path).exists():
            return [path]
        matches = glob.glob(path, recursive=True)  # noqa: PTH207  # an absolute pattern
        chosen = [match for match in matches if Path(match).is_dir() or match.lower().endswith(ARCHIVE_SUFFIXES)]
    except (OSError, ValueError) as problem:
        text = reason_text(problem) if isinstance(problem, OSError) else str(problem)
        raise InputError(printable(path), text) from None
    return outermost(sorted(chosen)) or [path]


def _object_matches(pattern: str, address: re.Match[str], limits: Limits) -> list[str]:
    scheme, authority, rest = address.groups()
    path, mark, query = rest.partition("?")
    if not _WILDCARD.search(path):
        return [pattern]
    names = [name for name in path.split("/") if name]
    literal = next(place for place, name in enumerate(names) if _WILDCARD.search(name))
    base = "/".join([f"{scheme}://{authority}", *names[:literal]])
    store, root, shown = connect(f"{base}{mark}{query}")
    try:
        matches = _walk(store, root.rstrip("/"), names[literal:], limits)
        if matches and not matches[0].path and not is_folder(store, root):
            matches = []  # `**` matches its own folder, which is not there
    except CodecError as error:
        raise InputError(shown, error.detail) from None
    chosen = [
        match.path
        for match in matches
        if match.is_folder or (not path.endswith("/") and match.path.lower().endswith(ARCHIVE_SUFFIXES))
    ]
    paths = [join(base, path) if path else base for path in outermost(sorted(chosen))]
    return [f"{each}{mark}{query}" for each in paths] or [pattern]


def _walk(store: Any, root: str, patterns: Sequence[str], limits: Limits) -> list[_Match]:
    """What matches below `root`, level by level; each folder on the way is listed once for each pattern."""
    matches = [_Match("", is_folder=True)]
    for place, pattern in enumerate(patterns):
        folders = [match.path for match in matches if match.is_folder]
        if pattern == "**":
            if place + 1 == len(patterns):
                return [match for match in matches if match.is_folder]  # what lies in them belongs to them
            matches = [_Match(path, is_folder=True) for path in _all_folders(store, root, folders, limits)]
            continue
        is_wanted = re.compile(translate(pattern)).match
        matches = [
            _Match(join(folder, name), is_folder)
            for folder in folders
            for name, is_folder in names_in(store, join(root, folder) if folder else root)
            if is_wanted(name) and (name[0] != "." or pattern[0] == ".") and not is_hostile(name)
        ]
        _refuse_many(len(matches), limits)
    return matches


def _all_folders(store: Any, root: str, folders: Sequence[str], limits: Limits) -> list[str]:
    """The folders and all folders below them, but for those inside of log dirs and of what kraft-capture wrote."""
    all_folders: list[str] = []
    pending = list(reversed(folders))
    while pending:
        folder = pending.pop()
        all_folders.append(folder)
        _refuse_many(len(all_folders), limits)
        inner = [name for name, is_folder in names_in(store, join(root, folder) if folder else root) if is_folder]
        if folder.count("/") < limits.depth_count and not any(GENERATION.fullmatch(name) for name in inner):
            pending += [
                join(folder, name)
                for name in sorted(inner, reverse=True)
                if name != METADATA_LOG_DIR and not is_partition_dir(name) and not is_hostile(name) and name[0] != "."
            ]
    return all_folders


def _refuse_many(count: int, limits: Limits) -> None:
    if count > limits.directory_count:
        raise CodecError(Reason.LIMIT, 0, f"the pattern matches more than {limits.directory_count} names")
