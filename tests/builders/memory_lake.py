"""What a lake keeps between plans, in memory, for tests of reading what is new."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from kraft_audit.capture.plan import BatchKey, ClusterPlan, FilePlan, FileScan, ReplicaPlan
from kraft_audit.tables.bronze import BATCHES
from kraft_codec.records.redaction import Redactor

KEY = b"k" * 32


class Lake:
    """The ledger of files, the rows, the redaction state."""

    def __init__(self, reading: Any) -> None:
        self.reading = reading
        self.number = 0
        self.files: dict[tuple[str, str], dict[str, Any]] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ("batches", "records", "decode_errors")}
        self.asked: list[tuple[int, int]] = []
        self.short_values: dict[str, list[str]] = {}
        self.captures: list[dict[str, Any]] = []

    def run(self, path: Path, **options: Any) -> dict[str, list[dict[str, Any]]]:
        """One plan over everything below a path, as it is now."""
        self.number += 1
        plan = self.plan(self.reading.plan(path))
        redactor = Redactor(KEY, self.short_values)
        tables = self.reading.tables(plan, known=self, redactor=redactor, **options)
        for name in self.rows:
            self.rows[name] += tables[name]
        for row in tables["files"]:
            self.files[row["path"], row["file_name"]] = row
        self.short_values = redactor.short_values()
        self.captures = tables["captures"]
        return tables

    def plan(self, plan: ClusterPlan) -> ClusterPlan:
        log = [row for row in self.rows["batches"] if row["source"] == "log" and row["valid"]]
        sources = {row["source"] for row in self.rows["batches"]} - {"log"}
        return replace(
            plan,
            number=self.number,
            replicas=tuple(self.replica(replica) for replica in plan.replicas),
            decoded_to=max((row["last_offset"] + 1 for row in log), default=0),
            known_sources=tuple(sorted(sources)),
        )

    def replica(self, replica: ReplicaPlan) -> ReplicaPlan:
        names = {file.name for file in replica.files}
        gone = [
            FilePlan(name, row["kind"], row["base_offset"], row["epoch"], row["size_bytes"], row["mtime_ms"], scan(row))
            for (path, name), row in sorted(self.files.items())
            if path == replica.path and name not in names and row["present"]
        ]
        files = tuple(self.file(replica, file) for file in replica.files)
        return replace(replica, files=files, gone_files=tuple(gone))

    def file(self, replica: ReplicaPlan, file: FilePlan) -> FilePlan:
        row = self.files.get((replica.path, file.name))
        is_known = row is not None and row["present"]
        # Of a disk that was there before this one nothing is known.
        is_known = is_known and (row["node_id"], row["directory_id"]) == (replica.node_id, replica.directory_id)
        return replace(file, earlier=scan(row)) if is_known else file

    def batches(self, cluster_id: str, from_offset: int, to_offset: int) -> pa.Table:
        self.asked.append((from_offset, to_offset))
        newest: dict[Any, dict[str, Any]] = {}
        for row in self.rows["batches"]:
            if row["source"] == "log" and row["valid"] and from_offset <= row["base_offset"] < to_offset:
                key = tuple(row[name] for name in ("node_id", "directory_id", *KEY_COLUMNS))
                newest[key] = row
        return pa.Table.from_pylist(list(newest.values()), schema=BATCHES.schema)


KEY_COLUMNS = ("base_offset", "last_offset", "leader_epoch", "crc")


def scan(row: dict[str, Any]) -> FileScan:
    last = None
    if row["last_position"] is not None:
        names = ("last_position", "last_base_offset", "last_offset", "last_leader_epoch", "last_crc")
        last = BatchKey(*(row[name] for name in names))
    names = ("batch_count", "record_count", "damage_count", "bytes_quarantined", "bytes_unread")
    return FileScan(row["size_bytes"], row["mtime_ms"], row["scanned_to"], last, *(row[name] for name in names))


def held(rows: list[dict[str, Any]], node_id: int) -> set[tuple[int, ...]]:
    current: set[tuple[int, ...]] = set()
    for row in rows:
        if row["node_id"] == node_id and row["source"] == "log":
            batch = tuple(row[name] for name in KEY_COLUMNS)
            if row["status"] == "present":
                assert batch not in current
                current.add(batch)
            else:
                current.remove(batch)
    return current
