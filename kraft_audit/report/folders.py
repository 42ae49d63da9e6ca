"""Folders that a report needs and that are gone again where it fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from kraft_codec.errors import ChoiceError, InputError


@contextlib.contextmanager
def created_folders(folder: Path) -> Iterator[None]:
    """The folder with all above it; those that were not there go again where what follows fails.

    Raises ChoiceError, InputError.
    """
    if folder.exists() and not folder.is_dir():
        raise ChoiceError(str(folder), "expected a new or empty folder, or an earlier report")
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        _remove(missing)
        raise InputError(str(folder), f"cannot be written: {problem.strerror}") from None
    try:
        yield
    except BaseException:
        _remove(missing)
        raise


def _remove(folders: list[Path]) -> None:
    """The innermost first; one that somebody else put something into stays."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()
