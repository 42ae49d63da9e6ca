"""The ledger: which plans there are, how far each got, and what the next one must know.

The table `plans` holds events, each recorded once a plan whoever comes first: *opened* fixes what is to be read,
*staged* fixes which data files are to be committed and which clusters failed, *closed* ends it. With both fixed, every
run that meets an open plan, this one or the next after a kill, does the same with it. The table `files` holds how far
each file was read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from kraft_audit.replay.plan import BatchKey, ClusterPlan, FileScan, to_json
from kraft_audit.spark.data_files import DataFile
from kraft_audit.spark.lake import Lake, sql_text
from kraft_codec.tables import FILES, PLANS, TABLES, build_rows

OPENED: Final = "opened"
STAGED: Final = "staged"
CLOSED: Final = "closed"
READ: Final = "read"
FAILED: Final = "failed"


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """Where the ledger stands: numbers of the newest plan of each event, 0 for none."""

    opened: int
    staged: int
    closed: int

    @property
    def open_number(self) -> int | None:
        return self.opened if self.opened > self.closed else None


@dataclass(frozen=True, slots=True, order=True)
class Archive:
    """An archive as it was read; one of the same size and time is not opened again."""

    root: str
    size_bytes: int
    mtime_ms: int


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What the next plan must know of a cluster.

    The first three as in ClusterPlan; `archives` have been read, `damages` of listing have been told (as hashes).
    """

    decoded_to: int = 0
    known_sources: tuple[str, ...] = ()
    redaction_state: str = ""
    archives: tuple[Archive, ...] = ()
    damages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedCluster:
    """A cluster with news: its plan, and what its state will say of archives and damage once it has been read."""

    plan: ClusterPlan
    archives: tuple[Archive, ...] = ()
    damages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterOutcome:
    """How staging one cluster ended: `failure` is None where it was read; `summary` counts its rows."""

    cluster_number: int
    cluster_name: str
    cluster_id: str
    failure: str | None
    state: ClusterState
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


class Ledger:
    """The ledger of one lake."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self._lake_id: str | None = None

    def create(self) -> None:
        for table in TABLES.values():
            self.lake.create(table.name, delta_schema(table.name), f"{table.grain}. {table.comment}")

    def application(self, what: str) -> str:
        """The application id of a transaction: lake and table. The lake is known by the id that its `plans` got."""
        if self._lake_id is None:
            self._lake_id = self.lake.table_id(PLANS.name)
        return f"kraft-audit/{self._lake_id}/{what}"

    def status(self) -> PlanStatus:
        if not self.lake.exists(PLANS.name):
            return PlanStatus(0, 0, 0)
        newest = self.lake.query("SELECT event, max(plan) AS plan FROM plans GROUP BY event", PLANS.name)
        numbers = dict(zip(newest.column("event").to_pylist(), newest.column("plan").to_pylist(), strict=True))
        return PlanStatus(*(numbers.get(event, 0) for event in (OPENED, STAGED, CLOSED)))

    def open_plan(self, clusters: Sequence[PlannedCluster], redaction_key_id: str) -> bool:
        """Fix what one plan reads. False where another run opened a plan of that number first."""
        rows = [
            {
                "cluster_number": number,
                "cluster_name": cluster.plan.name,
                "cluster_id": cluster.plan.cluster_id,
                "cluster_plan": to_json(cluster.plan),
                "redaction_key_id": redaction_key_id,
                "state": json.dumps(asdict(ClusterState(archives=cluster.archives, damages=cluster.damages))),
            }
            for number, cluster in enumerate(clusters)
        ]
        return self._record(OPENED, clusters[0].plan.number, rows)

    def planned(self, number: int) -> list[tuple[int, str]]:
        """(cluster number, plan as JSON) of an opened plan."""
        rows = self._plan_rows(number, OPENED, "cluster_number, cluster_plan")
        return [(row["cluster_number"], row["cluster_plan"]) for row in rows]

    def redaction_key_id(self) -> str | None:
        """Which key made the fingerprints of this lake; None where nothing was planned yet."""
        number = self.status().opened
        if number == 0:
            return None
        return str(self._plan_rows(number, OPENED, "cluster_number, redaction_key_id")[0]["redaction_key_id"])

    def record_staged(self, number: int, manifest: Manifest) -> bool:
        """Fix what is to be committed. False where another run's staging came first: its manifest holds."""
        opened = {
            row["cluster_number"]: state_from_json(row["state"])
            for row in self._plan_rows(number, OPENED, "cluster_number, state")
        }
        rows: list[dict[str, Any]] = [
            {
                "cluster_number": outcome.cluster_number,
                "cluster_name": outcome.cluster_name,
                "cluster_id": outcome.cluster_id,
                "outcome": READ if outcome.failure is None else FAILED,
                "failure": outcome.failure,
                "state": _state_json(outcome, opened[outcome.cluster_number]),
                "summary": json.dumps(outcome.summary),
            }
            for outcome in manifest.outcomes
        ]
        rows += [{"table_name": file.table, "data_file": json.dumps(asdict(file))} for file in manifest.files]
        return self._record(STAGED, number, rows)

    def manifest(self, number: int) -> Manifest:
        columns = "cluster_number, cluster_name, cluster_id, failure, state, data_file, summary"
        rows = self._plan_rows(number, STAGED, columns)
        return manifest_of(rows)

    def close_plan(self, number: int, summary: Mapping[str, Any]) -> bool:
        return self._record(CLOSED, number, [{"summary": json.dumps(summary)}])

    def states(self) -> dict[str, ClusterState]:
        """The newest closed state of each cluster, by cluster id."""
        status = self.status()
        if status.closed == 0:
            return {}
        newest = f"""
            SELECT cluster_id, state FROM (
                SELECT cluster_id, state, row_number() OVER (PARTITION BY cluster_id ORDER BY plan DESC) AS place
                FROM plans WHERE event = {sql_text(STAGED)} AND state IS NOT NULL AND plan <= {status.closed}
            ) WHERE place = 1
        """  # noqa: S608  # numbers and constants of our own
        rows = self.lake.query(newest, PLANS.name).to_pylist()
        return {row["cluster_id"]: state_from_json(row["state"]) for row in rows}

    def files(self) -> dict[tuple[str, str, str], LedgerFile]:
        """Every file that the newest closed plan which read it still found there."""
        closed = self.status().closed
        if closed == 0:
            return {}
        newest = f"""
            SELECT * FROM (
                SELECT *, row_number() OVER (
                    PARTITION BY root, path, file_name ORDER BY plan DESC, captured_at_ms DESC
                ) AS place
                FROM files WHERE plan <= {closed}
            ) WHERE place = 1 AND present
        """  # noqa: S608  # a number of our own
        rows = self.lake.query(newest, FILES.name).to_pylist()
        return {(row["root"], row["path"], row["file_name"]): _ledger_file(row) for row in rows}

    def _plan_rows(self, number: int, event: str, columns: str) -> list[dict[str, Any]]:
        sql = f"SELECT {columns} FROM plans WHERE plan = {number} AND event = {sql_text(event)} ORDER BY cluster_number"  # noqa: S608
        rows: list[dict[str, Any]] = self.lake.query(sql, PLANS.name).to_pylist()
        return rows

    def _record(self, event: str, number: int, rows: Iterable[Mapping[str, Any]]) -> bool:
        now_ms = time.time_ns() // 1_000_000
        common = {"plan": number, "event": event, "at_ms": now_ms, "at": datetime.fromtimestamp(now_ms / 1000, UTC)}
        empty = dict.fromkeys(PLANS.column_names)
        batch = build_rows(PLANS, [{**empty, **row, **common} for row in rows])
        application = self.application(f"plans/{event}")
        return self.lake.append_rows(PLANS.name, pa.Table.from_batches([batch]), application, number)


def delta_schema(table: str) -> pa.Schema:
    """The table's schema as Delta keeps it: with comments, and no NOT NULL inside lists, which delta-spark refuses."""
    columns = TABLES[table].columns
    return pa.schema([pa.field(c.name, _nullable_inside(c.type), c.nullable, {"comment": c.comment}) for c in columns])


def _nullable_inside(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", _nullable_inside(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(child.name, _nullable_inside(child.type)) for child in type_])
    return type_


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
                state_from_json(row["state"]) if row["state"] else ClusterState(),
                json.loads(row["summary"]),
            )
        )
    return Manifest(
        tuple(sorted(outcomes, key=lambda outcome: outcome.cluster_number)),
        tuple(sorted(files, key=lambda file: (file.table, file.path))),
    )


def state_from_json(text: str) -> ClusterState:
    fields = json.loads(text)
    return ClusterState(
        fields["decoded_to"],
        tuple(fields["known_sources"]),
        fields["redaction_state"],
        tuple(Archive(**archive) for archive in fields["archives"]),
        tuple(fields["damages"]),
    )


def _state_json(outcome: ClusterOutcome, opened: ClusterState) -> str | None:
    """A failed cluster has no new state: the one before it goes on."""
    if outcome.failure is not None:
        return None
    return json.dumps(asdict(replace(outcome.state, archives=opened.archives, damages=opened.damages)))


def _ledger_file(row: Mapping[str, Any]) -> LedgerFile:
    last = None
    if row["last_position"] is not None:
        last = BatchKey(
            row["last_position"], row["last_base_offset"], row["last_offset"], row["last_leader_epoch"], row["last_crc"]
        )
    scan = FileScan(
        row["size_bytes"],
        row["mtime_ms"],
        row["scanned_to"],
        last,
        row["batch_count"],
        row["record_count"],
        row["damage_count"],
        row["bytes_quarantined"],
        row["bytes_unread"],
    )
    same = ("root", "path", "file_name", "cluster_id", "node_id", "directory_id", "capture", "captured_at_ms", "kind")
    return LedgerFile(
        **{name: row[name] for name in same}, base_offset=row["base_offset"], epoch=row["epoch"], scan=scan
    )
