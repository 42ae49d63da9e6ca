"""Telling a lake's folder from log dirs, without whatever reads lakes."""

from __future__ import annotations

from pathlib import Path


def is_lake_folder(folder: str | Path) -> bool:
    """Whether a local folder has the ledger of a lake, the Delta table `plans`."""
    return Path(folder, "plans", "_delta_log").is_dir()
