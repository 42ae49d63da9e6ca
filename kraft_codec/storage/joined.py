"""Several paths as one tree: each hangs where it lies below the folder that all of them have in common."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.file_names import parse_file_name, printable
from kraft_codec.storage.opener import file_path, open_storage
from kraft_codec.storage.random_access import DirEntry, EntryKind, Limits, Listing, RandomAccess, Storage, join

_ADDRESS: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.IGNORECASE | re.DOTALL)


class JoinedStorage(Storage):
    """The storages of several paths that lie apart. `starts` are the paths in the tree, as given.

    Raises InputError, as `open_storage` does, and where two paths are single files of one folder.
    """

    def __init__(self, paths: Sequence[str], location: str, limits: Limits | None = None) -> None:
        super().__init__(location, is_immutable=False, limits=limits or Limits())
        self._mounts: dict[str, Storage] = {}
        self._given: dict[str, str] = {}
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

    def close(self) -> None:
        """Closes all of them."""
        for storage in self._mounts.values():
            storage.close()

    def path_as_given(self, path: str) -> str:
        """A path in the tree as somebody names it: the path that was given, and the way from there."""
        mount = self._mount_of(path)
        return path if mount is None else join(self._given[mount].rstrip("/"), path[len(mount) :].lstrip("/"))

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
