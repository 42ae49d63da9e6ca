"""The quality gate: whether a lake's tables keep their promises, with a page of the results beside the run.

DuckDB reads the tables a part at a time, and spills what does not fit into memory. Great Expectations judges whole
tables by suites made from their promises. A critical promise that is broken stops the run before findings are
published; a warning is shown and the run goes on. The gate remembers its last inspection in the lake
(`_quality/held.json`). An hourly one looks at the rows of newer plans alone, and judges a table by its suite only where
they leave a doubt. If that file is missing, unreadable or of another lake, everything is judged.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

from kraft_audit.lake.closed_plans import CLOSED, ClosedPlans
from kraft_audit.lake.data_files import table_folder, write_octets
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.lake import require_lake
from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.lake.ledger import FAILED, READ_ROWS, Ledger
from kraft_audit.lake.plan_events import STAGED
from kraft_audit.lake.quality.gate_page import PAGE_FILE, PromiseVerdict, gate_page, kept, verdict
from kraft_audit.lake.quality.last_inspection import QUALITY_FOLDER, last_inspection, row_counts, save_inspection
from kraft_audit.lake.quality.new_rows import NewRows
from kraft_audit.lake.quality.promises import Promise, gold_promises, table_promises
from kraft_audit.lake.quality.table_files import TableFiles
from kraft_audit.lake.views import CHANGE_TABLES, holding, query_of
from kraft_audit.tables import FINDINGS_STAGED, INCIDENTS_STAGED, LAKE_TABLES
from kraft_audit.tables.bronze import CAPTURES, PLANS
from kraft_audit.tables.contract import Table
from kraft_audit.tables.gold import CLUSTER_COMPLIANCE, GOLD, SITUATIONS
from kraft_audit.tables.silver import REPLAYS
from kraft_audit.text.readable import HOUR_MS
from kraft_audit.text.watched_work import doing
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from kraft_audit.lake.quality.suites import Suites

FLEET: Final = "fleet"
"""What the promises of clusters stand under, where those of a table have its name."""
FRESH_HOURS: Final = 26.0
ASKED_ALWAYS: Final = (
    *(table.name for table in (PLANS, CAPTURES, REPLAYS, FINDINGS_STAGED, INCIDENTS_STAGED)),
    *GOLD,
)
"""Tables that promises of other tables ask."""
DATABASE_MEMORY_BYTES: Final = 512 << 20
OFFSETS: Final = ("offset", "base_offset", "from_offset")


@dataclass(frozen=True, slots=True)
class GateResult:
    """What the gate found as of plan `plan`; `docs` is the folder of its page, empty if none was asked for."""

    plan: int
    verdicts: tuple[PromiseVerdict, ...]
    docs: str

    @property
    def closing(self) -> list[PromiseVerdict]:
        """The critical promises that are broken."""
        return [verdict for verdict in self.verdicts if verdict.severity == "critical" and not verdict.passed]

    @property
    def is_open(self) -> bool:
        """Whether findings may be published."""
        return not self.closing


def judge_lake(
    lake: DeltaLake,
    *,
    fresh_hours: float = FRESH_HOURS,
    only_new: bool = False,
    docs: str | None = None,
    now_ms: int | None = None,
) -> GateResult:
    """Judge every table of the lake, as of its newest closed plan. Raises InputError if there is no lake.

    `only_new`: judge the plans since the last inspection of this kind in which every critical promise held; everything
    if that was more than a day ago. The result is saved in the lake for the next inspection.
    `docs` is a folder for the page of results; None puts it into the lake's own `_quality/plan-…`, empty writes none.
    """
    require_lake(lake)
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    with lake.reading_once():
        return _judged(lake, fresh_hours, now, docs, only_new=only_new)


def _judged(lake: DeltaLake, fresh_hours: float, now: int, docs: str | None, *, only_new: bool) -> GateResult:
    closed = Ledger(lake).status().done
    if not closed.newest:
        raise InputError(lake.uri, "no plan is closed yet: `kraft-audit run` first")
    inspection = last_inspection(lake) if only_new else None
    # Plans above the low mark are judged again next time: others close between them until then.
    first = 1 if inspection is None else inspection.first_new_plan(lake, closed.low, now)
    counts = {} if inspection is None else row_counts(lake, closed.low)
    with tempfile.TemporaryDirectory(prefix="kraft-audit-quality-") as folder:
        gate = _Gate(lake, closed, first, Path(folder))
        verdicts = [*gate.judge_tables(), *gate.judge_fleet(now, fresh_hours)]
    where = f"{lake.uri}/{QUALITY_FOLDER}/plan-{closed.newest:08d}" if docs is None else docs
    result = GateResult(closed.newest, tuple(verdicts), where)
    if where:
        _publish(gate_page(result.verdicts, result.is_open, lake.uri, closed.newest, now), where)
    if inspection is not None:
        save_inspection(lake, inspection.after(first, closed.low, now, counts, is_open=result.is_open))
    return result


class _Gate:
    """The tables of one lake in DuckDB, and the promises of the closed plans from `first` on over them."""

    def __init__(self, lake: DeltaLake, closed: ClosedPlans, first: int, folder: Path) -> None:
        self._lake, self._closed, self._first = lake, closed, first
        self._database = duckdb.connect()
        self._database.execute(f"SET memory_limit = '{DATABASE_MEMORY_BYTES >> 20}MiB'")
        self._database.execute(f"SET temp_directory = '{folder / 'spilled'}'")
        self._files = TableFiles(lake, self._database, folder)
        self._tables = [table for table in (*LAKE_TABLES.values(), *GOLD.values()) if lake.exists(table.name)]
        self._opened: set[str] = set()
        self._open([table for table in self._tables if first <= 1 or table.name in ASKED_ALWAYS])
        self._new_rows = NewRows(self._files, self._database, closed, first)

    @functools.cached_property
    def _suites(self) -> Suites:
        from kraft_audit.lake.quality.suites import Suites

        self._open(self._tables)
        return Suites(self._database, self._lake.table_uri)

    def _open(self, tables: Iterable[Table]) -> None:
        """Make tables readable in DuckDB: their files, and under their own names the rows of closed plans that hold."""
        new = [table for table in tables if table.name not in self._opened]
        for table in new:
            self._files.view(table, f"{table.name}_files")
        for table in new:
            self._database.execute(f"CREATE VIEW {table.name} AS {self._holding(table)}")
            self._opened.add(table.name)

    def judge_tables(self) -> Iterator[PromiseVerdict]:
        for table in self._tables:
            doing(f"checking {table.name}")
            promises = [*self._promises(table)]
            if self._first > 1 and self._new_rows.keep(table, promises):
                yield from kept(table.name, promises)
            else:
                yield from self._suites.judge(table.name, self._judged_rows(table), promises)

    def _promises(self, table: Table) -> Iterator[Promise]:
        if table.name not in GOLD:
            return table_promises(table, self._first, self._closed.newest)
        is_merged = Ledger(self._lake).where_merged(table.name, self._closed)
        return gold_promises(table, self._first, self._closed.newest, is_merged)

    def judge_fleet(self, now_ms: int, fresh_hours: float) -> Iterator[PromiseVerdict]:
        """Judge what is expected of each cluster: that it was read, completely and not long ago."""
        columns = {**self._fleet_columns(now_ms), "unread_clusters": self._unread()}
        for name, value_of in columns.items():
            limit = fresh_hours if name.startswith("hours_") else 0
            promise = Promise(name, f"at most {limit:g} {name.replace('_', ' ')}", severity="warning")
            over = {cluster: float(value) for cluster, value in value_of.items() if value > limit}
            rows = [{"cluster_id": cluster, name: value} for cluster, value in over.items()]
            yield verdict(FLEET, promise, [(over, rows)] if over else [])

    def _holding(self, table: Table) -> str:
        """The rows of closed plans, of silver tables those that hold: what the lake's views show."""

        def files(name: str) -> str:
            return f"{name}_files"

        if table.name in GOLD:
            return f"SELECT * FROM {files(table.name)}"  # noqa: S608  # our own name
        return (holding if table.name in CHANGE_TABLES else query_of)(table.name, files, self._closed)

    def _judged_rows(self, table: Table) -> str:
        """The rows of the plans from the first on, and older rows that may have their keys; no null in the key.

        If the key has an offset, those are the rows from the first new offset on, of clusters with new rows.
        """
        absent = {pa.string(): "''"}
        keys = [column for column in table.columns if column.nullable and column.name in table.key]
        filled = ", ".join(f'coalesce("{key.name}", {absent.get(key.type, "-1")}) AS "{key.name}"' for key in keys)
        columns = f"every.* REPLACE ({filled})" if filled else "every.*"
        offset = next((name for name in OFFSETS if name in table.key), None)
        if self._first <= 1 or table.name in GOLD or offset is None:
            return f"SELECT {columns} FROM {table.name} AS every"  # noqa: S608  # our own name
        # Offsets of a snapshot's records count from its own start.
        same = ", ".join(name for name in ("cluster_id", "source") if name in table.key)
        return f"""SELECT {columns} FROM {table.name} AS every JOIN (
                SELECT {same}, min("{offset}") AS first_offset FROM {table.name}
                WHERE plan >= {self._first} GROUP BY {same}
            ) AS added USING ({same}) WHERE coalesce(every."{offset}" >= added.first_offset, true)"""  # noqa: S608

    def _fleet_columns(self, now_ms: int) -> dict[str, dict[str, float]]:
        """For each promise of the fleet its value by cluster, as the tables say it."""
        hours = f"round(({now_ms} - min(ended.at_ms)) / {HOUR_MS}, 2)"
        waiting = f"""SELECT staged.cluster_id, {hours} AS value
            FROM plans AS staged
            JOIN (
                SELECT plan, max(at_ms) AS at_ms FROM plans WHERE event = '{CLOSED}' GROUP BY plan
            ) AS ended USING (plan)
            {{taken}} WHERE {READ_ROWS} AND {{is_waiting}} GROUP BY staged.cluster_id"""  # noqa: S608
        queries = {
            "hours_since_capture": f"""
                SELECT cluster_id, round(({now_ms} - max(captured_at_ms)) / {HOUR_MS}, 2) AS value
                FROM captures GROUP BY cluster_id""",  # noqa: S608
            # A later copy may have the missing records, a later release know the unknown ones.
            "incomplete_replays": f"""SELECT cluster_id, count(*) AS value
                FROM ({holding(REPLAYS.name, lambda name: f"{name}_files", self._closed)})
                WHERE NOT is_complete AND from_offset < to_offset GROUP BY cluster_id""",  # noqa: S608
        }
        for table in self._tables:
            if table in (CLUSTER_COMPLIANCE, SITUATIONS):
                # Its rows say to which plan each cluster was computed. A cluster without a capture has no row.
                taken = f"""SEMI JOIN captures USING (cluster_id)
                    LEFT JOIN (SELECT cluster_id, max(plan) AS plan FROM {table.name} GROUP BY cluster_id) AS done
                    ON staged.cluster_id = done.cluster_id"""  # noqa: S608
                queries[f"hours_behind_{table.name}"] = waiting.format(
                    taken=taken, is_waiting="staged.plan > coalesce(done.plan, 0)"
                )
            elif table.name in GOLD:
                queries[f"hours_behind_{table.name}"] = waiting.format(
                    taken="",
                    is_waiting=f"NOT {Ledger(self._lake).where_merged(table.name, self._closed, 'staged.plan')}",
                )
        return {
            name: {cluster or "": value for cluster, value in self._database.execute(query).fetchall()}
            for name, query in queries.items()
        }

    def _unread(self) -> dict[str, float]:
        """The clusters that the last plan that tried could not read, or only in part."""
        tried = f"""SELECT cluster_id, max_by(outcome, plan) = '{FAILED}' FROM plans
            WHERE event = '{STAGED}' AND outcome IS NOT NULL AND summary IS NOT NULL GROUP BY cluster_id"""  # noqa: S608
        failed = {cluster: float(is_failed) for cluster, is_failed in self._database.execute(tried).fetchall()}
        unread = Ledger(self._lake).unread().values()
        return failed | {cluster.cluster_name: 1.0 for cluster in unread if not failed.get(cluster.cluster_id)}


def _publish(page: str, where: str) -> None:
    """Write the page into a folder here or in the lake's object store."""
    if is_uri(where):
        parent, _, name = where.rstrip("/").rpartition("/")
        write_octets(table_folder(parent, name), PAGE_FILE, page.encode())
        return
    Path(where).mkdir(parents=True, exist_ok=True)
    Path(where, PAGE_FILE).write_text(page, "utf-8")
