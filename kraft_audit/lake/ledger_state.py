"""What the ledger records, as values: a cluster's state between plans, the outcomes of a plan's clusters, files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from kraft_audit.capture.plan import BatchKey, ClusterPlan, FileScan, SilverPosition, silver_position
from kraft_audit.lake.data_files import DataFile


@dataclass(frozen=True, slots=True, order=True)
class Archive:
    """An archive as it was read; while its size and time are the same, it is not opened again."""

    root: str
    size_bytes: int
    mtime_ms: int


@dataclass(frozen=True, slots=True)
class StateChange:
    """What one plan changes in a cluster's state; None is no change. Small, however long the cluster's history is."""

    decoded_to: int = 0
    new_sources: tuple[str, ...] = ()
    redaction_state: str | None = None
    archives: tuple[Archive, ...] | None = None
    damages: tuple[str, ...] | None = None
    silver: SilverPosition | None = None
    aliases: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    first_plan: int = 0
    split_from: str = ""
    kept_state: str = ""


@dataclass(frozen=True, slots=True)
class LedgerState:
    """What the next plan must know of a cluster: of one history of a cluster id.

    The first three, `silver` and the last five are as in ClusterPlan; `archives` have been read; `damages` are hashes
    of the damage found by listing that is already recorded.
    """

    decoded_to: int = 0
    known_sources: tuple[str, ...] = ()
    redaction_state: str = ""
    archives: tuple[Archive, ...] = ()
    damages: tuple[str, ...] = ()
    silver: SilverPosition | None = None
    aliases: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    first_plan: int = 0
    split_from: str = ""
    kept_state: str = ""

    def after(self, change: StateChange) -> LedgerState:
        return LedgerState(
            max(self.decoded_to, change.decoded_to),
            tuple(sorted({*self.known_sources, *change.new_sources})),
            self.redaction_state if change.redaction_state is None else change.redaction_state,
            self.archives if change.archives is None else change.archives,
            self.damages if change.damages is None else change.damages,
            self.silver if change.silver is None else change.silver,
            change.aliases or self.aliases,
            tuple(sorted({*self.merged, *change.merged})),
            self.first_plan or change.first_plan,
            self.split_from or change.split_from,
            change.kept_state or self.kept_state,
        )


@dataclass(frozen=True, slots=True)
class PlannedCluster:
    """A cluster with changes: its plan, and the archives and damage that its state holds once it has been read."""

    plan: ClusterPlan
    archives: tuple[Archive, ...] | None = None
    damages: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class InspectedCluster:
    """A cluster that a plan inspected without reading it: unchanged, or a path of it could not be read.

    `failure` is None where every path can be read (again) and nothing there changed. `at_ms` is when that was recorded.
    Where all attempts to read it failed, `retry_at_ms` is until when it is left alone; else 0.
    """

    cluster_name: str
    cluster_id: str | None
    failure: str | None
    at_ms: int = 0
    retry_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ClusterOutcome:
    """How staging one cluster ended: `failure` is None if it was read; `summary` counts its rows."""

    cluster_number: int
    cluster_name: str
    cluster_id: str
    failure: str | None
    change: StateChange
    summary: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What staging a plan left: the files to commit, and the outcome of each cluster."""

    outcomes: tuple[ClusterOutcome, ...]
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """A file as the newest closed plan left it. The key is (root, path, file_name)."""

    root: str
    path: str
    file_name: str
    cluster_id: str
    node_id: int | None
    directory_id: str | None
    capture: str
    captured_at_ms: int
    kind: str
    base_offset: int | None
    epoch: int | None
    scan: FileScan


def manifest_of(rows: Iterable[Any]) -> Manifest:
    """The manifest from its rows, in any order; outcomes and files are sorted, as tasks end in any order."""
    outcomes: list[ClusterOutcome] = []
    files: list[DataFile] = []
    for row in rows:
        if row["data_file"] is not None:
            files.append(DataFile(**json.loads(row["data_file"])))
            continue
        outcomes.append(
            ClusterOutcome(
                row["cluster_number"],
                row["cluster_name"],
                row["cluster_id"],
                row["failure"],
                change_from_json(row["state"]) if row["state"] else StateChange(),
                json.loads(row["summary"]),
            )
        )
    return Manifest(
        tuple(sorted(outcomes, key=lambda outcome: outcome.cluster_number)),
        tuple(sorted(files, key=lambda file: (file.table, file.path))),
    )


def state_to_json(state: StateChange | LedgerState) -> str:
    """A state, or a change of a state, as text; fields that are empty or do not change are left out."""
    held = {name: value for name, value in asdict(state).items() if value not in (None, (), "")}
    if not state.first_plan:
        del held["first_plan"]
    return json.dumps(held, separators=(",", ":"))


def change_from_json(text: str) -> StateChange:
    return StateChange(**_fields(text))


def state_from_json(text: str) -> LedgerState:
    return LedgerState(**_fields(text))


def _fields(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(text)
    for name in ("known_sources", "new_sources", "damages", "aliases", "merged"):
        if name in fields:
            fields[name] = tuple(fields[name])
    if "archives" in fields:
        fields["archives"] = tuple(Archive(**archive) for archive in fields["archives"])
    if "silver" in fields:
        fields["silver"] = silver_position(fields["silver"])
    return fields


def with_opened(outcome: ClusterOutcome, opened: StateChange) -> StateChange:
    """What staging changes, together with what the plan fixed when it was opened."""
    fixed = ("archives", "damages", "aliases", "merged", "first_plan", "split_from")
    return replace(outcome.change, **{name: getattr(opened, name) for name in fixed})


def opened_change(cluster: PlannedCluster) -> StateChange:
    """What the plan fixes when it is opened."""
    plan = cluster.plan
    own = StateChange(archives=cluster.archives, damages=cluster.damages)
    return replace(
        own, aliases=plan.aliases, merged=plan.merged, first_plan=plan.first_plan, split_from=plan.split_from
    )


def ledger_file(row: Mapping[str, Any]) -> LedgerFile:
    """A row of the table `files`."""
    last = None
    if row["last_position"] is not None:
        last = BatchKey(
            row["last_position"], row["last_base_offset"], row["last_offset"], row["last_leader_epoch"], row["last_crc"]
        )
    counts = ("batch_count", "record_count", "damage_count", "bytes_quarantined", "bytes_unread")
    scan = FileScan(row["size_bytes"], row["mtime_ms"], row["scanned_to"], last, **{name: row[name] for name in counts})
    same = ("root", "path", "file_name", "cluster_id", "node_id", "directory_id", "capture", "captured_at_ms", "kind")
    return LedgerFile(
        **{name: row[name] for name in same}, base_offset=row["base_offset"], epoch=row["epoch"], scan=scan
    )
