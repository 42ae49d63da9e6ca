"""Files that are there whole or not at all, whoever reads or writes them at the same time."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A path of its own to write to, which takes the place of `target` at the end. Of a failure nothing stays."""
    unfinished = target.with_name(f".{secrets.token_hex(8)}.unfinished")
    try:
        yield unfinished
        unfinished.replace(target)
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
