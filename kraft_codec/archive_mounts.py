"""Archives that lie among other files, each taken as if it were a directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO

from kraft_codec.archive import ARCHIVE_SUFFIXES, ArchiveStorage
from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.random_access import Limits


class ArchiveMounts:
    """The archives of a storage, each read when a path first runs through it and kept until `close`.

    `is_dir` tells a directory that is called like an archive; `open_file` gives the bytes. Both may raise CodecError.
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
            if not name.lower().endswith(ARCHIVE_SUFFIXES):
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
