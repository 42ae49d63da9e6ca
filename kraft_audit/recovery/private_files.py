"""Files that only their owner may read, written once and hashed as they are written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_BUFFER_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that was written: its name below the target folder, size and SHA-256."""

    name: str
    size_bytes: int
    sha256: str


class PrivateFile:
    """A new file of mode 0600; it is on the disk when it is closed. Raises OSError."""

    def __init__(self, out: Path, name: str) -> None:
        self.name = name
        self.size_bytes = 0
        self._digest = hashlib.sha256()
        make_folder((out / name).parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(out / name, flags, FILE_MODE), "wb", _BUFFER_BYTES)

    def write(self, content: bytes) -> int:
        """Appends; returns the position at which the content begins."""
        position = self.size_bytes
        self._file.write(content)
        self._digest.update(content)
        self.size_bytes += len(content)
        return position

    def close(self) -> WrittenFile:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return WrittenFile(self.name, self.size_bytes, self._digest.hexdigest())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def write_private(out: Path, name: str, parts: Iterable[bytes]) -> WrittenFile:
    """Writes a whole file of mode 0600. Raises OSError."""
    with PrivateFile(out, name) as file:
        for part in parts:
            file.write(part)
        return file.close()


def make_folder(folder: Path) -> None:
    """A folder of mode 0700, and those above it that are missing. Raises OSError."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
