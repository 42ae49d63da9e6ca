"""Captures as kraft-capture keeps them in a store."""

from __future__ import annotations

from pathlib import Path

from kraft_capture.cli import main

ONCE = ("--once", "--durable", "--full-priority")


def capture(folder: Path, store: Path, state: Path, code: int = 0) -> None:
    """Copies a folder's logs into a store, once."""
    assert main(["--log-dirs", str(folder), "--to", str(store), "--state", str(state), *ONCE]) == code
