"""Lines that somebody else wrote into a table's log."""

from __future__ import annotations

import json
from pathlib import Path


def name_file(table: Path, path: str, size_bytes: int) -> None:
    """Adds a data file to a table by a line of ours in its log."""
    add = {"path": path, "partitionValues": {}, "size": size_bytes, "modificationTime": 0, "dataChange": True}
    version = len(list((table / "_delta_log").glob("*.json")))
    (table / "_delta_log" / f"{version:020d}.json").write_text(json.dumps({"add": add}) + "\n")
