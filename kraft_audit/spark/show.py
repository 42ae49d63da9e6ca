"""What lies in a lake's tables, read without the JVM: closed plans only, as the views show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kraft_audit.settings import absolute
from kraft_audit.spark.gold_tables import GOLD
from kraft_audit.spark.lake import DeltaLake, require_lake
from kraft_audit.spark.ledger import Ledger
from kraft_audit.spark.tables import LAKE_TABLES

SHOWN: Final = {**LAKE_TABLES, **GOLD}


@dataclass(frozen=True, slots=True)
class TableContents:
    """One table: `rows` of closed plans, data `files` and their bytes, the newest closed `plan` that wrote to it."""

    table: str
    rows: int
    files: int
    size_bytes: int
    plan: int | None
    columns: tuple[str, ...]
    sample: tuple[dict[str, Any], ...]


def lake_contents(lake_path: str, sample_rows: int = 3) -> list[TableContents]:
    """Every table of the lake with a few of its rows. Raises InputError where there is no lake."""
    from pathlib import Path

    lake = DeltaLake(absolute(lake_path, Path.cwd()))
    require_lake(lake)
    closed = Ledger(lake).status().closed
    return [_contents(lake, table, closed, sample_rows) for table in SHOWN if lake.exists(table)]


def _contents(lake: DeltaLake, table: str, closed: int, sample_rows: int) -> TableContents:
    counted = lake.query(f"SELECT count(*) AS n, max(plan) AS plan FROM {table} WHERE plan <= {closed}", table)  # noqa: S608
    columns = SHOWN[table].column_names
    sample = lake.query(
        f"SELECT * FROM {table} WHERE plan <= {closed} ORDER BY {_order(table)} LIMIT {sample_rows}",  # noqa: S608
        table,
    )
    sizes = lake.file_sizes(table)
    return TableContents(
        table,
        counted.column("n")[0].as_py(),
        len(sizes),
        sum(sizes),
        counted.column("plan")[0].as_py(),
        columns,
        tuple({name: _shown(value) for name, value in row.items()} for row in sample.to_pylist()),
    )


def _shown(value: Any) -> Any:
    """A row is for people: of bytes they want to know how many."""
    return f"{len(value)} bytes" if isinstance(value, bytes) else value


def _order(table: str) -> str:
    """By key, so that two looks show the same rows; a column named like a word of SQL stands in quotes."""
    return ", ".join(f'"{column}"' for column in SHOWN[table].key)
