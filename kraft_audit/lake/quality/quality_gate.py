"""The quality gate: Great Expectations over a lake's tables, with a page of the results beside the run.

DuckDB reads the tables as Arrow data sets, a part at a time, and spills what does not fit into memory. Each table has a
suite made from its contract (`expectations`). A critical expectation that fails stops the run before findings are
published; a warning is shown and the run goes on. The gate remembers its last inspection in the lake
(`_quality/held.json`), so that an hourly one need not read everything. Where that file is missing, unreadable or of
another lake, everything is judged.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import duckdb
import duckdb_engine
import pyarrow as pa
from sqlalchemy.types import NullType

from kraft_audit.lake.closed_plans import CLOSED, ClosedPlans
from kraft_audit.lake.data_files import table_folder, write_octets
from kraft_audit.lake.delta import DeltaLake, error_line
from kraft_audit.lake.lake import require_lake
from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.lake.ledger import FAILED, READ_ROWS, Ledger
from kraft_audit.lake.plan_events import STAGED
from kraft_audit.lake.quality.gate_page import PAGE_FILE, PromiseVerdict, gate_page
from kraft_audit.lake.quality.last_inspection import QUALITY_FOLDER, last_inspection, row_counts, save_inspection
from kraft_audit.lake.views import CHANGE_TABLES, holding, query_of
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.contract import Table
from kraft_audit.tables.gold import CLUSTER_COMPLIANCE, GOLD, SITUATIONS
from kraft_audit.tables.silver import REPLAYS
from kraft_audit.text.readable import HOUR_MS
from kraft_audit.text.watched_work import doing
from kraft_codec.errors import InputError

FLEET_SUITE: Final = "fleet"
FRESH_HOURS: Final = 26.0
CLUSTERS_SHOWN: Final = 20
ROWS_COUNTED: Final = 1000
"""So many of the rows that break an expectation are counted by cluster."""
ROWS_SHOWN: Final = 10
DATABASE_MEMORY_BYTES: Final = 512 << 20
OFFSETS: Final = ("offset", "base_offset", "from_offset")
BROKEN_ROWS: Final = {
    "result_format": "SUMMARY",
    "unexpected_index_column_names": ["cluster_id"],
    "partial_unexpected_count": ROWS_COUNTED,
}


@dataclass(frozen=True, slots=True)
class GateResult:
    """What the gate found as of plan `plan`; `docs` is the folder of its page, empty if none was asked for."""

    plan: int
    verdicts: tuple[PromiseVerdict, ...]
    docs: str

    @property
    def is_open(self) -> bool:
        """Whether findings may be published."""
        return not any(verdict.severity == "critical" and not verdict.passed for verdict in self.verdicts)


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
    closed = Ledger(lake).status().done
    if not closed.newest:
        raise InputError(lake.uri, "no plan is closed yet: `kraft-audit run` first")
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    inspection = last_inspection(lake) if only_new else None
    # Plans above the low mark are judged again next time: others close between them until then.
    first = 1 if inspection is None else inspection.first_new_plan(lake, closed.low, now)
    counts = {} if inspection is None else row_counts(lake, closed.low)
    with tempfile.TemporaryDirectory(prefix="kraft-audit-quality-") as folder:
        gate = _Gate(lake, closed, first, Path(folder, "spilled"))
        verdicts = [*gate.judge_tables(), *gate.judge_fleet(now, fresh_hours)]
    where = f"{lake.uri}/{QUALITY_FOLDER}/plan-{closed.newest:08d}" if docs is None else docs
    result = GateResult(closed.newest, tuple(verdicts), where)
    if where:
        _publish(gate_page(result.verdicts, result.is_open, lake.uri, closed.newest, now), where)
    if inspection is not None:
        save_inspection(lake, inspection.after(first, closed.low, now, counts, is_open=result.is_open))
    return result


class LakeDialect(duckdb_engine.Dialect):
    """DuckDB as Great Expectations needs it: one connection, as only that knows the tables, and no transactions.

    The end of a transaction would discard the rows that are not fetched yet.
    """

    supports_statement_cache = False
    database: ClassVar[duckdb.DuckDBPyConnection]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.identifier_preparer.reserved_words.add("at")  # a name of a column that DuckDB takes only in quotes

    def connect(self, *arguments: Any, **options: Any) -> duckdb_engine.ConnectionWrapper:
        return duckdb_engine.ConnectionWrapper(self.database)

    def get_columns(self, connection: Any, table_name: str, schema: str | None = None, **options: Any) -> list[Any]:
        """Their names: PostgreSQL's catalogue, which the base class asks, takes DuckDB a third of a second a table."""
        described = self.database.execute(f'DESCRIBE "{table_name}"').fetchall()
        return [{"name": name, "type": NullType(), "nullable": True, "default": None} for name, *_ in described]

    def do_begin(self, connection: Any) -> None: ...

    def do_commit(self, connection: Any) -> None: ...

    def do_rollback(self, connection: Any) -> None: ...


class _Gate:
    """The tables of one lake in DuckDB, and the expectations of the closed plans from `first` on over them."""

    def __init__(self, lake: DeltaLake, closed: ClosedPlans, first: int, spill: Path) -> None:
        os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
        logging.getLogger("great_expectations").setLevel(logging.ERROR)
        import great_expectations as gx
        import sqlalchemy as sa
        from great_expectations.data_context.types.base import ProgressBarsConfig

        self._lake, self._closed, self._first = lake, closed, first
        self._context = gx.get_context(mode="ephemeral")
        self._context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
        sa.dialects.registry.register("lake", __name__, "LakeDialect")
        self._database = LakeDialect.database = duckdb.connect()
        self._database.execute(f"SET memory_limit = '{DATABASE_MEMORY_BYTES >> 20}MiB'")
        self._database.execute(f"SET temp_directory = '{spill}'")
        self._source = self._context.data_sources.add_sql("lake", connection_string="lake://", create_temp_table=False)
        self._tables = [table for table in (*LAKE_TABLES.values(), *GOLD.values()) if lake.exists(table.name)]
        for table in self._tables:
            self._open(table)
        for table in self._tables:
            self._database.execute(f"CREATE VIEW {table.name} AS {self._holding(table)}")

    def _open(self, table: Table) -> None:
        """Make a table's files readable: local ones by DuckDB itself, which is faster, others as an Arrow data set.

        Columns that the table got no value for yet are null.
        """
        opened = self._lake.open(table.name)
        files = [] if is_uri(self._lake.uri) else opened.file_uris()
        if files:
            rows = self._database.read_parquet(files, union_by_name=True)
        else:
            rows = self._database.from_arrow(opened.to_pyarrow_dataset())
        missing = "".join(f', NULL AS "{name}"' for name in table.column_names if name not in rows.columns)
        rows.project(f"*{missing}").create_view(f"{table.name}_files")

    def judge_tables(self) -> Iterator[PromiseVerdict]:
        from kraft_audit.lake.quality.expectations import gold_expectations, table_expectations

        for table in self._tables:
            doing(f"checking {table.name}")
            if table.name in GOLD:
                expectations = gold_expectations(
                    table, self._first, self._closed.newest, Ledger(self._lake).where_merged(table.name, self._closed)
                )
            else:
                expectations = table_expectations(table, self._first, self._closed.newest)
            yield from self._judge(table.name, self._judged_rows(table), expectations)

    def judge_fleet(self, now_ms: int, fresh_hours: float) -> Iterator[PromiseVerdict]:
        """Judge what is expected of each cluster: that it was read, completely and not long ago."""
        from kraft_audit.lake.quality.expectations import fleet_expectations

        columns = {**self._fleet_columns(now_ms), "unread_clusters": self._unread()}
        rows = pa.table({"cluster_id": sorted({cluster for values in columns.values() for cluster in values})})
        for name, values in columns.items():
            by_cluster = [float(values.get(cluster, 0)) for cluster in rows["cluster_id"].to_pylist()]
            rows = rows.append_column(name, pa.array(by_cluster, pa.float64()))
        self._database.register("fleet_rows", rows)
        expectations = fleet_expectations(tuple(columns), fresh_hours)
        yield from self._judge(FLEET_SUITE, "SELECT * FROM fleet_rows", expectations)

    def _judge(self, name: str, rows: str, expectations: Iterable[Any]) -> Iterator[PromiseVerdict]:
        import great_expectations as gx

        judged = f"judged_{name}"
        self._database.execute(f"CREATE VIEW {judged} AS {rows}")
        asset = self._source.add_table_asset(name, table_name=judged)
        batch = asset.add_batch_definition_whole_table("closed plans")
        suite = self._context.suites.add(gx.ExpectationSuite(name=name, expectations=list(expectations)))
        definition = self._context.validation_definitions.add(
            gx.ValidationDefinition(name=name, data=batch, suite=suite)
        )
        result = definition.run(result_format="BOOLEAN_ONLY")
        details: dict[str, Any] = {}
        if not result.success:
            # What breaks an expectation takes a query each to find: only where something does.
            outcomes = definition.run(result_format=BROKEN_ROWS).results
            details = {outcome.expectation_config.id: outcome for outcome in outcomes}
        by_clause: dict[str, list[Any]] = {}
        for outcome in result.results:
            if (why := _exception(outcome.exception_info)) is not None:
                raise InputError(self._lake.table_uri(name), f"cannot be judged: {error_line(Exception(why))}")
            shown = details.get(outcome.expectation_config.id, outcome)
            by_clause.setdefault(outcome.expectation_config.meta["clause"], []).append((outcome.success, shown))
        for clause, outcomes in by_clause.items():
            yield self._verdict(name, clause, outcomes)

    def _verdict(self, table: str, clause: str, outcomes: list[tuple[bool, Any]]) -> PromiseVerdict:
        broken = [outcome for has_passed, outcome in outcomes if not has_passed]
        config = (broken or [outcomes[0][1]])[0].expectation_config
        worst: dict[str, float] = {}
        rows: list[Mapping[str, Any]] = []
        for outcome in broken:
            by_cluster, some_rows = self._broken_rows(table, outcome)
            rows += some_rows
            for cluster, count in by_cluster.items():
                worst[cluster] = max(worst.get(cluster, 0.0), count)
        clusters = sorted(worst, key=lambda cluster: (-worst[cluster], cluster))
        columns = (
            [] if table == FLEET_SUITE else [outcome.expectation_config.kwargs.get("column") for outcome in broken]
        )
        of_columns = f": {', '.join(columns)}" if any(columns) else ""
        return PromiseVerdict(
            table,
            clause,
            config.severity.value,
            config.meta["promise"] + of_columns,
            not broken,
            max(worst.values(), default=0.0),
            len(clusters),
            tuple(clusters[:CLUSTERS_SHOWN]),
            tuple(rows[:ROWS_SHOWN]),
        )

    def _broken_rows(self, table: str, outcome: Any) -> tuple[dict[str, float], list[dict[str, Any]]]:
        """How many rows break an expectation by cluster, or the value that is too large; and some of the rows."""
        query = outcome.expectation_config.kwargs.get("unexpected_rows_query")
        if query is not None:
            broken = query.format(batch=f"judged_{table}")
            count_query = f"SELECT cluster_id, count(*) FROM ({broken}) GROUP BY cluster_id"  # noqa: S608  # our own text
            counts = {cluster or "": float(count) for cluster, count in self._database.execute(count_query).fetchall()}
            found = self._database.execute(f"SELECT * FROM ({broken}) LIMIT {ROWS_SHOWN}")  # noqa: S608  # our own text
            names = [name for name, *_ in found.description]
            return counts, [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        column = outcome.expectation_config.kwargs.get("column")
        rows = outcome.result.get("partial_unexpected_index_list") or outcome.result["partial_unexpected_list"]
        if outcome.expectation_config.kwargs.get("max_value") is not None:
            return {row["cluster_id"]: row[column] for row in rows}, rows
        return dict(Counter(row["cluster_id"] or "" for row in rows)), rows

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


def _exception(info: Mapping[str, Any]) -> str | None:
    """Why an expectation could not be judged; None if it was. Great Expectations lists one or several reasons."""
    reasons = [info] if "raised_exception" in info else list(info.values())
    return next((str(reason["exception_message"]) for reason in reasons if reason["raised_exception"]), None)


def _publish(page: str, where: str) -> None:
    """Write the page into a folder here or in the lake's object store."""
    if is_uri(where):
        parent, _, name = where.rstrip("/").rpartition("/")
        write_octets(table_folder(parent, name), PAGE_FILE, page.encode())
        return
    Path(where).mkdir(parents=True, exist_ok=True)
    Path(where, PAGE_FILE).write_text(page, "utf-8")
