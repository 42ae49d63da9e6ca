"""What the ledger holds, as values: the state of a cluster between plans, how a plan's clusters ended, their files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from kraft_audit.replay.plan import BatchKey, ClusterPlan, FileScan, SilverPosition, silver_position
from kraft_audit.spark.data_files import DataFile


@dataclass(frozen=True, slots=True, order=True)
class Archive:
    """An archive as it was read; one of the same size and time is not opened again."""

    root: str
    size_bytes: int
    mtime_ms: int


@dataclass(frozen=True, slots=True)
class StateChange:
    """What one plan changes in a cluster's state; None is no change. It stays small however long the history is."""

    decoded_to: int = 0
    new_sources: tuple[str, ...] = ()
    redaction_state: str | None = None
    archives: tuple[Archive, ...] | None = None
    damages: tuple[str, ...] | None = None
    silver: SilverPosition | None = None


@dataclass(frozen=True, slots=True)
class LedgerState:
    """What the next plan must know of a cluster.

    The first three and `silver` as in ClusterPlan; `archives` have been read, `damages` of listing have been told
    (as hashes).
    """

    decoded_to: int = 0
    known_sources: tuple[str, ...] = ()
    redaction_state: str = ""
    archives: tuple[Archive, ...] = ()
    damages: tuple[str, ...] = ()
    silver: SilverPosition | None = None

    def after(self, change: StateChange) -> LedgerState:
        return LedgerState(
            max(self.decoded_to, change.decoded_to),
            tuple(sorted({*self.known_sources, *change.new_sources})),
            self.redaction_state if change.redaction_state is None else change.redaction_state,
            self.archives if change.archives is None else change.archives,
            self.damages if change.damages is None else change.damages,
            self.silver if change.silver is None else change.silver,
        )


@dataclass(frozen=True, slots=True)
class PlannedCluster:
    """A cluster with news: its plan, and what its state will say of archives and damage once it has been read."""

    plan: ClusterPlan
    archives: tuple[Archive, ...] | None = None
    damages: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class LookedAt:
    """A cluster that a plan reads nothing of, and why that is to be known: a path of it could not be read.

    `failure` is None where it could be again, and nothing there was new. `at_ms` is when that was recorded.
    """

    cluster_name: str
    cluster_id: str | None
    failure: str | None
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ClusterOutcome:
    """How staging one cluster ended: `failure` is None where it was read; `summary` counts its rows."""

    cluster_number: int
    cluster_name: str
    cluster_id: str
    failure: str | None
    change: StateChange
    summary: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What staging a plan left: what is to be committed, and how each cluster ended."""

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
    """Rows by name, in any order, into what the ledger records: sorted, as tasks end in any order."""
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


def to_json(state: StateChange | LedgerState) -> str:
    """A state or a change of one as text, without what it leaves as it was."""
    held = {name: value for name, value in asdict(state).items() if value not in (None, (), "")}
    return json.dumps(held, separators=(",", ":"))


def change_from_json(text: str) -> StateChange:
    return StateChange(**_fields(text))


def state_from_json(text: str) -> LedgerState:
    return LedgerState(**_fields(text))


def _fields(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(text)
    for name in ("known_sources", "new_sources", "damages"):
        if name in fields:
            fields[name] = tuple(fields[name])
    if "archives" in fields:
        fields["archives"] = tuple(Archive(**archive) for archive in fields["archives"])
    if "silver" in fields:
        fields["silver"] = silver_position(fields["silver"])
    return fields


def with_opened(outcome: ClusterOutcome, opened: StateChange) -> StateChange:
    """What staging found, with what the plan said of archives and damage when it was opened."""
    return replace(outcome.change, archives=opened.archives, damages=opened.damages)


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
