"""Node dirs of several logs under one cluster id, and what a lake says of them."""

from __future__ import annotations

import os
from pathlib import Path

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.settings import FleetSettings
from kraft_codec.files.state_files import QuorumState
from tests.builders.logs import DIRECTORIES, Log, write_node


def write(path: Path, log: Log, node_id: int = 1, directory: int = 0, first: int = 0) -> None:
    """A node dir of one voter whose log begins with the batch of this number."""
    content = {first: b"".join(log.batches[first:])} if first else log.content
    write_node(path, node_id, content, directory_id=DIRECTORIES[directory], state=QuorumState(1, node_id, 1, -1))
    for file in path.rglob("*"):
        # As old as a copy: no file may count as changed while it was planned.
        os.utime(file, (1_700_001_000, 1_700_001_000))


def rows(fleet: FleetSettings, table: str) -> list[dict[str, object]]:
    return DeltaLake(fleet.lake).query(f"SELECT * FROM {table}", table).to_pylist()  # noqa: S608


def histories(fleet: FleetSettings) -> dict[object, dict[str, object]]:
    """The newest row of each history."""
    return {row["history_id"]: row for row in sorted(rows(fleet, "histories"), key=lambda row: row["plan"])}  # type: ignore[arg-type, return-value]
