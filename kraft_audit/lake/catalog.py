"""A lake's tables and views as the statements of a catalog: Spark's, Athena's, Trino's, DuckDB's.

The tables go into the schema SCHEMA_tables: they hold the rows of every plan, of those that are still running too. The
views go into SCHEMA: they show closed plans alone, and are what people query. A view is written once, in Spark's SQL;
sqlglot says it in the others' words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from kraft_audit.lake.catalog_dialects import DIALECTS, Catalog
from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.lake.views import (
    TableReference,
    gold_view_sql,
    labelled_names,
    labelled_sql,
    query_of,
    view_names,
)
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.bronze import PLANS
from kraft_audit.tables.gold import CLUSTERS, GOLD, GOLD_VIEWS, NOTIFICATIONS
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from sqlglot import Expr

TABLES_SCHEMA: Final = "{}_tables"
CATALOG_TABLES: Final = tuple(dict.fromkeys((PLANS.name, *LAKE_TABLES, *GOLD, CLUSTERS.name, NOTIFICATIONS.name)))
"""Every table that a lake may have."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement without its semicolon; `name` is that of the schema, table or view that it makes."""

    kind: Literal["schema", "table", "view"]
    name: str
    sql: str


def statements(lake: str, catalog: Catalog, schema: str, present: Collection[str]) -> Iterator[Statement]:
    """What registers a lake: schemas, then the tables of it that are `present`, then every view over these.

    `lake` is its address; `schema` is the schema of the views, with the catalog's name before it where it has one
    (main.kraft). Raises InputError where the catalog cannot reach the lake, or the schema's name is no name.
    """
    _require_address(lake, catalog)
    parts = _name_parts(schema)
    tables = TABLES_SCHEMA.format(schema)
    for each in (schema, tables):
        yield Statement("schema", each, f"CREATE SCHEMA IF NOT EXISTS {each}")
    known = [name for name in CATALOG_TABLES if name in present]
    for name in known:
        yield Statement("table", name, _table_sql(f"{lake.rstrip('/')}/{name}", name, catalog, parts, tables))
    for name, query in views(lambda table: f"{tables}.{table}", known).items():
        text = in_dialect(query, DIALECTS[catalog]).strip()
        yield Statement("view", name, f"CREATE OR REPLACE VIEW {schema}.{name} AS\n{text}")


def views(reference: TableReference, present: Collection[str]) -> dict[str, str]:
    """Every view over tables that are there, by name, in Spark's SQL. `reference` says how a table is named."""
    sql_by_name = {name: query_of(name, reference) for name in view_names()}
    if CLUSTERS.name in present:
        sql_by_name |= {name: labelled_sql(name, reference) for name in labelled_names() if name in present}
        if set(GOLD) <= set(present):
            sql_by_name |= {name: gold_view_sql(name, reference) for name in GOLD_VIEWS}
    return sql_by_name


def in_dialect(query: str, dialect: str) -> str:
    """A query of Spark's SQL in another engine's."""
    if dialect == "spark":
        return query
    import sqlglot

    tree = sqlglot.parse_one(query, read="spark").transform(_in_other_words, dialect)
    return tree.sql(dialect=dialect, pretty=True, comments=False, identify=True)


def _in_other_words(node: Expr, dialect: str) -> Expr:
    """What sqlglot leaves as it is: Trino adds no number to a date, and DuckDB has no cardinality of a list."""
    from sqlglot import exp

    if dialect == "duckdb":
        is_size = isinstance(node, exp.Anonymous) and node.name.lower() == "cardinality"
        return exp.ArraySize(this=node.expressions[0]) if is_size else node
    if isinstance(node, exp.Add) and isinstance(node.this, exp.Cast) and node.this.to.this is exp.DataType.Type.DATE:
        return exp.DateAdd(this=node.this, expression=node.expression, unit=exp.var("DAY"))
    return node


def _require_address(lake: str, catalog: Catalog) -> None:
    if catalog in ("unity", "glue", "athena") and not is_uri(lake):
        raise InputError(
            lake, f"{catalog} reaches no path of this machine: expected an address such as s3://bucket/lake"
        )
    if "'" in lake or "`" in lake:
        raise InputError(lake, "a quote in the lake's address cannot be part of a statement")


def _name_parts(schema: str) -> list[str]:
    parts = schema.split(".")
    if len(parts) > 2 or not all(part.isidentifier() and part.isascii() for part in parts):
        raise InputError(schema, "expected a schema of letters, digits and _, with at most a catalog before it")
    return parts


def _table_sql(address: str, name: str, catalog: Catalog, schema_parts: list[str], tables: str) -> str:
    if catalog == "duckdb":
        return f"CREATE OR REPLACE VIEW {tables}.{name} AS SELECT * FROM delta_scan('{address}')"  # noqa: S608
    if catalog == "trino":
        store = f"{schema_parts[0]}." if len(schema_parts) > 1 else ""
        short = tables.rpartition(".")[2]
        return (
            f"CALL {store}system.register_table(schema_name => '{short}', table_name => '{name}', "
            f"table_location => '{address}')"
        )
    if catalog == "athena":
        return (
            f"CREATE EXTERNAL TABLE IF NOT EXISTS {tables}.{name} LOCATION '{address}/' "
            "TBLPROPERTIES ('table_type' = 'DELTA')"
        )
    return f"CREATE TABLE IF NOT EXISTS {tables}.{name} USING DELTA LOCATION '{address}'"
