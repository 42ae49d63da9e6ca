"""The ledger: which plans there are, how far each got, and what the next plan must know.

The table `plans` holds events. Each is recorded once per plan, by the run that comes first: *opened* fixes what is to
be read, *staged* fixes which data files are to be committed and which clusters failed, *closed* ends the plan. As both
are fixed, every run that finds an open plan, this run or the next one after a kill, does the same with it. *abandoned*
stands in the place of *staged*: nothing of the plan is committed.

Several plans may be open, each for clusters of its own, and they close in any order. A plan is opened by one
transaction with the next number: a run that looked before another plan was opened is refused, and looks again. Closings
are numbered too, in the order in which gold tables fold the plans.

The table `files` holds how far each file was read. When every plan up to a multiple of CHECKPOINT_PLANS has ended,
*checkpoint* repeats what is still of use of both tables, so that planning reads back only the plans since then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kraft_audit.capture.found_log import BatchStamp, SnapshotStamp
from kraft_audit.capture.plan import cluster_id_of, plan_to_json
from kraft_audit.lake.closed_plans import ABANDONED, CLOSED, ClosedPlans, not_abandoned
from kraft_audit.lake.delta import sql_text
from kraft_audit.lake.lake import COMMIT_ATTEMPTS, COMMITTED_BY, Lake, require_columns, require_committer
from kraft_audit.lake.ledger_state import (
    InspectedCluster,
    LedgerFile,
    LedgerState,
    Manifest,
    PlannedCluster,
    change_from_json,
    ledger_file,
    manifest_of,
    opened_change,
    state_from_json,
    state_to_json,
    with_opened,
)
from kraft_audit.lake.plan_events import CHECKPOINT, OPENED, STAGED, PlanEvents
from kraft_audit.lake.views import newest_rows
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.bronze import BATCH_KEY, BATCHES, FILES, PLANS
from kraft_audit.tables.contract import Table, with_column
from kraft_audit.text.readable import HOUR_MS
from kraft_codec.errors import InputError

READ: Final = "read"
UNCHANGED: Final = "unchanged"
FAILED: Final = "failed"
CHECKPOINT_PLANS: Final = 100
READ_ROWS: Final = f"event = '{STAGED}' AND outcome = '{READ}'"
"""Which rows say that a plan read a cluster."""
# A cluster that still cannot be read is worth a plan of its own where no plan has recorded it for so long.
UNREAD_AGAIN_MS: Final = 12 * HOUR_MS
RETRY_AFTER_MS_MAX: Final = 8 * HOUR_MS
"""A cluster that failed at all attempts is tried again after one hour, then two, then four, then eight each time."""
UNREAD_HOLDS_MS: Final = 26 * HOUR_MS
"""A cluster counts as not read while a plan of the last so many hours says so: of a cluster that left the fleet, no
later plan says anything."""


class Ledger(PlanEvents):
    """The ledger of one lake, with a checkpoint every `checkpoint_plans` plans."""

    def __init__(self, lake: Lake, checkpoint_plans: int = CHECKPOINT_PLANS) -> None:
        super().__init__(lake)
        self._checkpoint_plans = checkpoint_plans

    def create(self) -> None:
        """Create what tables are missing. Raises InputError where the lake has another kind of committer, or is of an
        earlier build."""
        if self.lake.exists(PLANS.name):
            require_committer(self.lake)
            require_columns(self.lake, PLANS)
        for table in LAKE_TABLES.values():
            initial_versions = {COMMITTED_BY.format(self.lake.committer): 1} if table is PLANS else {}
            described = f"{table.grain}. {table.comment}"
            self.lake.create(table.name, delta_schema(table.name), described, initial_versions=initial_versions)

    def open_plan(
        self,
        clusters: Sequence[PlannedCluster],
        redaction_key_id: str,
        inspected: Sequence[InspectedCluster] = (),
        number: int | None = None,
    ) -> bool:
        """Fix what one plan reads. False where another run opened a plan of that number first.

        The number is the one after the newest plan when the run looked at which clusters open plans read: where this
        plan is opened, none was in between.

        `inspected` are clusters that it records without reading them. `number` is needed where it reads none at all.
        """
        rows: list[dict[str, Any]] = [
            {
                "cluster_number": place,
                "cluster_name": cluster.plan.name,
                "cluster_id": cluster.plan.key,
                "cluster_plan": plan_to_json(cluster.plan),
                "redaction_key_id": redaction_key_id,
                "state": state_to_json(opened_change(cluster)),
            }
            for place, cluster in enumerate(clusters)
        ]
        rows += [
            {
                "cluster_number": place,
                "cluster_name": cluster.cluster_name,
                "cluster_id": cluster.cluster_id,
                "redaction_key_id": redaction_key_id,
                "outcome": UNCHANGED if cluster.failure is None else FAILED,
                "failure": cluster.failure,
            }
            for place, cluster in enumerate(inspected, len(clusters))
        ]
        number = clusters[0].plan.number if number is None else number
        return self.record(OPENED, number, rows, self.application(f"plans/{OPENED}"), number)

    def planned(self, number: int) -> list[tuple[int, str]]:
        """(cluster number, plan as JSON) of each cluster that an opened plan reads."""
        rows = self.plan_rows(number, OPENED, "cluster_number, cluster_plan")
        return [(row["cluster_number"], row["cluster_plan"]) for row in rows if row["cluster_plan"] is not None]

    def reads_any(self, number: int) -> bool:
        """Whether an opened plan reads any cluster. The cluster plans, which may be large, are not loaded for that."""
        rows = self.plan_rows(number, OPENED, "cluster_plan IS NOT NULL AS is_read")
        return any(row["is_read"] for row in rows)

    def redaction_key_id(self) -> str | None:
        """The id of the key that made the fingerprints of this lake; None where nothing was planned yet."""
        number = self.newest_plan()
        if number == 0:
            return None
        return str(self.plan_rows(number, OPENED, "cluster_number, redaction_key_id")[0]["redaction_key_id"])

    def record_staged(self, number: int, manifest: Manifest) -> bool:
        """Fix what is to be committed.

        False where another run's staging came first, whose manifest counts, or where the plan was abandoned.
        """
        if self.is_staged(number):
            return False
        fixed = self.plan_rows(number, OPENED, "cluster_number, cluster_name, cluster_id, outcome, failure, state")
        opened = {row["cluster_number"]: change_from_json(row["state"]) for row in fixed if row["state"] is not None}
        rows: list[dict[str, Any]] = [
            {
                "cluster_number": outcome.cluster_number,
                "cluster_name": outcome.cluster_name,
                "cluster_id": outcome.cluster_id,
                "outcome": READ if outcome.failure is None else FAILED,
                "failure": outcome.failure,
                # A failed cluster changes nothing: its state before the plan holds.
                "state": None
                if outcome.failure
                else state_to_json(with_opened(outcome, opened[outcome.cluster_number])),
                "summary": json.dumps(outcome.summary),
            }
            for outcome in manifest.outcomes
        ]
        rows += [{**row, "state": None} for row in fixed if row["outcome"] is not None]
        rows += [{"table_name": file.table, "data_file": file.to_json()} for file in manifest.files]
        return self.record(STAGED, number, rows, self.plan_application(f"plans/{STAGED}", number), number)

    def manifest(self, number: int) -> Manifest:
        columns = "cluster_number, cluster_name, cluster_id, failure, state, data_file, summary"
        rows = self.plan_rows(number, STAGED, columns)
        return manifest_of(row for row in rows if row["summary"] is not None or row["data_file"] is not None)

    def unread(self) -> dict[str, InspectedCluster]:
        """The clusters, by name, that could not be read, or only in part, when a plan last recorded them."""
        done = self.status().done
        newest = f"SELECT max(at_ms) AS at_ms FROM plans WHERE event = {sql_text(CLOSED)} AND {done.where()}"  # noqa: S608
        newest_ms = self.lake.query(newest, PLANS.name).column("at_ms")[0].as_py() if done.newest else None
        if newest_ms is None:
            return {}
        since_ms = newest_ms - UNREAD_HOLDS_MS
        rows = self.lake.query(
            f"""SELECT plan, at_ms, cluster_name, cluster_id, outcome, failure,
                CASE WHEN outcome = '{FAILED}' THEN summary END AS summary
            FROM plans WHERE {done.where()} AND event = '{STAGED}' AND outcome IS NOT NULL AND at_ms >= {since_ms}
            ORDER BY plan, cluster_number""",  # noqa: S608
            PLANS.name,
        ).to_pylist()
        latest: dict[str, tuple[int, InspectedCluster | None]] = {}
        exhausted: dict[str, list[tuple[int, str]]] = {}
        for row in rows:
            name = row["cluster_name"]
            failed = None
            summary = json.loads(row["summary"] or "null")
            if row["outcome"] == READ or summary == {}:
                exhausted.pop(name, None)
            elif summary is not None and "attempts" in summary:
                exhausted.setdefault(name, []).append((row["at_ms"], row["failure"]))
            if row["outcome"] == FAILED:
                failed = _failed(row, exhausted.get(name, []))
            # A plan that read a part of a cluster records both.
            plan, before = latest.get(name, (0, None))
            latest[name] = (row["plan"], failed or (before if plan == row["plan"] else None))
        return {name: cluster for name, (_, cluster) in sorted(latest.items()) if cluster is not None}

    def close_plan(self, number: int, summary: Mapping[str, Any], *, is_abandoned: bool = False) -> bool:
        """End the plan. False where another run has ended it.

        Raises InputError where the lake does not know the plan any more: it was removed while the run went on.
        """
        application = self.application(f"plans/{CLOSED}")
        row = {"summary": json.dumps(summary), "outcome": ABANDONED if is_abandoned else None}
        for _ in range(COMMIT_ATTEMPTS):
            status = self.status()
            if number > status.opened:
                raise InputError(self.lake.uri, f"plan {number} is gone: the lake was removed while the run went on")
            if number not in status.open:
                return False
            low = min((each for each in status.open if each != number), default=status.opened + 1) - 1
            mark = self._mark(low)
            if mark > (base := self._mark(status.done.low)):
                self._checkpoint(mark, base)
            # A plan that another run closes from here on takes this place, and this one then looks again.
            place = status.closed + 1
            if self.record(CLOSED, number, [{**row, "place": place}], application, place):
                return True
        raise InputError(self.lake.table_uri(PLANS.name), f"{COMMIT_ATTEMPTS} attempts to close met other plans")

    def states(self, up_to: ClosedPlans | None = None) -> dict[str, LedgerState]:
        """The state of each cluster by its id, after the plans `up_to` (all closed ones)."""
        status = self.status()
        done = status.done if up_to is None else up_to
        if not done.newest:
            return {}
        return self._states(self._mark(min(status.done.low, done.low)), done)

    def _states(self, base: int, done: ClosedPlans) -> dict[str, LedgerState]:
        rows = self.lake.query(
            f"SELECT plan, event, cluster_id, state FROM plans WHERE plan >= {base} AND {done.where()} "  # noqa: S608
            f"AND state IS NOT NULL AND event IN ({sql_text(CHECKPOINT)}, {sql_text(STAGED)}) ORDER BY plan",
            PLANS.name,
        ).to_pylist()
        states = {
            row["cluster_id"]: state_from_json(row["state"])
            for row in rows
            if row["event"] == CHECKPOINT and row["plan"] == base
        }
        for row in rows:
            if row["event"] == STAGED and row["plan"] > base:
                before = states.get(row["cluster_id"], LedgerState())
                states[row["cluster_id"]] = before.after(change_from_json(row["state"]))
        return states

    def kept_states(self, newest: int) -> dict[str, list[str]]:
        """By history the names of the newest states that plans kept of it, the newest last."""
        rows = self.lake.query(
            f"SELECT cluster_id, state FROM plans WHERE state IS NOT NULL "  # noqa: S608  # our own words
            f"AND event IN ({sql_text(CHECKPOINT)}, {sql_text(STAGED)}) ORDER BY plan",
            PLANS.name,
        ).to_pylist()
        names: dict[str, list[str]] = {}
        for row in rows:
            if name := json.loads(row["state"]).get("kept_state"):
                before = names.setdefault(row["cluster_id"], [])
                before[:] = [*(each for each in before if each != name), name][-newest:]
        return names

    def first_plan(self, history: str) -> int:
        """The first plan that the ledger still has of a history."""
        sql = f"""SELECT min(plan) AS plan FROM plans
            WHERE event = '{OPENED}' AND cluster_id = {sql_text(history)} AND {not_abandoned()}"""  # noqa: S608
        return int(self.lake.query(sql, PLANS.name)["plan"][0].as_py() or 0)

    def origins(self, number: int) -> list[tuple[str, str]]:
        """(history, history that it was a part of or that was merged into it), where plan `number` is what shows it."""
        origins = []
        for row in self.plan_rows(number, OPENED, "cluster_number, cluster_id, state"):
            change = change_from_json(row["state"] or "{}")
            if change.split_from and self.first_plan(row["cluster_id"]) == number:
                origins.append((row["cluster_id"], change.split_from))
            origins += [(row["cluster_id"], id_) for id_ in change.merged]
        return origins

    def histories_holding(
        self, cluster_id: str, batches: Sequence[BatchStamp], snapshots: Sequence[SnapshotStamp]
    ) -> set[str]:
        """The histories of a cluster id that hold one of these batches, or the last one before one of the snapshots."""
        names = (*BATCH_KEY, "max_timestamp_ms")
        last = ("last_offset", "leader_epoch", "max_timestamp_ms")
        wanted = [dict(zip(names, stamp, strict=True)) for stamp in batches]
        wanted += [dict(zip(last, (end - 1, epoch, time), strict=True)) for end, epoch, time in snapshots]
        same = " OR ".join(" AND ".join(f"{name} = {value}" for name, value in each.items()) for each in wanted)
        sql = f"""SELECT DISTINCT cluster_id FROM batches WHERE valid AND source = 'log' AND ({same})
            AND {self.status().done.where()} AND starts_with(cluster_id, {sql_text(cluster_id)})"""  # noqa: S608
        ids = self.lake.query(sql, BATCHES.name)["cluster_id"].to_pylist()
        return {id_ for id_ in ids if cluster_id_of(id_) == cluster_id}

    def files(self) -> dict[tuple[str, str, str], LedgerFile]:
        """Every file that was still there when a closed plan last read its replica."""
        done = self.status().done
        if not done.newest:
            return {}
        rows = self._newest_files(self._mark(done.low), done).to_pylist()
        return {(row["root"], row["path"], row["file_name"]): ledger_file(row) for row in rows}

    def _newest_files(self, from_plan: int, done: ClosedPlans, more: str = "true") -> pa.Table:
        rows = f"SELECT * FROM files WHERE plan >= {from_plan} AND {done.where()}"  # noqa: S608  # our own numbers
        newest = newest_rows(rows, ("root", "path", "file_name"), "plan DESC, captured_at_ms DESC")
        sql = f"SELECT * FROM ({newest}) AS newest WHERE present AND {more}"  # noqa: S608
        return self.lake.query(sql, FILES.name).select(list(FILES.column_names))

    def _mark(self, low: int) -> int:
        """The newest checkpoint at or before a plan up to which every plan has ended, 0 before the first.

        No older row has to be read.
        """
        return low - low % self._checkpoint_plans

    def _checkpoint(self, mark: int, base: int) -> None:
        """Repeat what the plans from `base` to `mark` left: the same rows, whichever run writes them.

        Each of them has ended, or is about to: as closing comes last, its own rows are committed.
        """
        states = self._states(base, ClosedPlans(mark))
        rows = [
            {"cluster_id": cluster_id, "state": state_to_json(state)} for cluster_id, state in sorted(states.items())
        ]
        self.record(CHECKPOINT, mark, rows, self.application(f"plans/{CHECKPOINT}"), mark)
        older = self._newest_files(base, ClosedPlans(mark), f"plan < {mark}").cast(FILES.schema)
        older = with_column(older, "plan", pa.array([mark] * older.num_rows, pa.int64()))
        self.lake.append_rows(FILES.name, older, self.application("files/checkpoint"), mark)


def _failed(row: Mapping[str, Any], exhausted: Sequence[tuple[int, str]]) -> InspectedCluster:
    """A cluster that could not be read; `exhausted` has when and why plans failed at all attempts since it was."""
    name, id_, why, at_ms = row["cluster_name"], row["cluster_id"], row["failure"], row["at_ms"]
    if not exhausted:
        return InspectedCluster(name, id_, why, at_ms)
    failed_ms, first_why = exhausted[-1]
    retry_at_ms = failed_ms + min(HOUR_MS << (len(exhausted) - 1), RETRY_AFTER_MS_MAX)
    return InspectedCluster(name, id_, first_why if why.startswith(first_why) else why, at_ms, retry_at_ms)


def delta_schema(table: str) -> pa.Schema:
    """The table's schema as Delta stores it: with comments, and no NOT NULL inside lists, as a committer refuses it."""
    return contract_schema(LAKE_TABLES[table])


def contract_schema(table: Table) -> pa.Schema:
    """The schema of any contract as Delta stores it."""
    columns = table.columns
    return pa.schema([pa.field(c.name, _nullable_inside(c.type), c.nullable, {"comment": c.comment}) for c in columns])


def _nullable_inside(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", _nullable_inside(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(child.name, _nullable_inside(child.type)) for child in type_])
    return type_
