"""Great Expectations over tables in DuckDB: a suite of each table, made from its promises."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import duckdb
import duckdb_engine
import great_expectations as gx
import sqlalchemy as sa
from great_expectations.data_context.types.base import ProgressBarsConfig
from sqlalchemy.types import NullType

from kraft_audit.lake.delta import error_line
from kraft_audit.lake.quality.gate_page import ROWS_SHOWN, BrokenRows, PromiseVerdict, verdict
from kraft_audit.lake.quality.promises import Promise
from kraft_codec.errors import InputError


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


class Suites:
    """Judges tables of one DuckDB. `place_of` says where one lies, for the InputError if it cannot be judged."""

    def __init__(self, database: duckdb.DuckDBPyConnection, place_of: Callable[[str], str]) -> None:
        self._place_of = place_of
        os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
        logging.getLogger("great_expectations").setLevel(logging.ERROR)
        self._context = gx.get_context(mode="ephemeral")
        self._context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
        sa.dialects.registry.register("lake", __name__, "LakeDialect")
        self._database = LakeDialect.database = database
        self._source = self._context.data_sources.add_sql("lake", connection_string="lake://", create_temp_table=False)

    def judge(self, name: str, rows: str, promises: Sequence[Promise]) -> Iterator[PromiseVerdict]:
        """Judge these rows (a query) of the table; one verdict for each clause of its promises."""
        judged = f"judged_{name}"
        self._database.execute(f"CREATE VIEW {judged} AS {rows}")
        asset = self._source.add_table_asset(name, table_name=judged)
        batch = asset.add_batch_definition_whole_table("closed plans")
        expectations = [_expectation(place, promise) for place, promise in enumerate(promises)]
        suite = self._context.suites.add(gx.ExpectationSuite(name=name, expectations=expectations))
        definition = self._context.validation_definitions.add(
            gx.ValidationDefinition(name=name, data=batch, suite=suite)
        )
        broken: set[int] = set()
        for outcome in definition.run(result_format="BOOLEAN_ONLY").results:
            if (why := _exception(outcome.exception_info)) is not None:
                raise InputError(self._place_of(name), f"cannot be judged: {error_line(Exception(why))}")
            if not outcome.success:
                broken.add(outcome.expectation_config.meta["place"])
        by_clause: dict[str, list[int]] = {}
        for place, promise in enumerate(promises):
            by_clause.setdefault(promise.clause, []).append(place)
        for places in by_clause.values():
            found = [self._broken_rows(promises[place], judged) for place in places if place in broken]
            columns = [promises[place].arguments.get("column") for place in places if place in broken]
            of_columns = ": " + ", ".join(map(str, columns)) if any(columns) else ""
            yield verdict(name, promises[places[0]], found, of_columns)

    def _broken_rows(self, promise: Promise, judged: str) -> BrokenRows:
        """How many rows break a promise, by cluster, and some of these rows."""
        broken = promise.broken_rows.format(batch=judged)
        count = f"SELECT cluster_id, count(*) FROM ({broken}) GROUP BY cluster_id"  # noqa: S608  # our own text
        counts = {cluster or "": float(count) for cluster, count in self._database.execute(count).fetchall()}
        found = self._database.execute(f"SELECT * FROM ({broken}) LIMIT {ROWS_SHOWN}")  # noqa: S608  # our own text
        names = [name for name, *_ in found.description]
        return counts, [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _expectation(place: int, promise: Promise) -> Any:
    """Great Expectations' own form of a promise, which stands in this place."""
    described = {"description": f"{promise.clause}: {promise.text}", "severity": "critical"}
    return getattr(gx.expectations, promise.expectation)(**promise.arguments, **described, meta={"place": place})


def _exception(info: Mapping[str, Any]) -> str | None:
    """Why an expectation could not be judged; None if it was. Great Expectations lists one or several reasons."""
    reasons = [info] if "raised_exception" in info else list(info.values())
    return next((str(reason["exception_message"]) for reason in reasons if reason["raised_exception"]), None)
