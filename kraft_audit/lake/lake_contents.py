"""What a lake's tables hold, read without a JVM: rows of closed plans only, as the views show them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.lake import require_lake
from kraft_audit.lake.lake_paths import absolute
from kraft_audit.lake.ledger import Ledger
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.gold import FLEET_TABLES, GOLD
from kraft_audit.text.watched_work import doing

SHOWN_TABLES: Final = {**LAKE_TABLES, **GOLD, **FLEET_TABLES}


@dataclass(frozen=True, slots=True)
class TableContents:
    """One table: the count of `rows` of closed plans, its data files and their bytes, the newest plan that wrote it."""

    table: str
    rows: int
    files: int
    size_bytes: int
    plan: int | None
    columns: tuple[str, ...]
    sample: tuple[dict[str, Any], ...]


def lake_contents(lake_path: str, sample_rows: int = 3) -> list[TableContents]:
    """Every table of the lake with a few of its rows. Raises InputError if there is no lake."""
    lake = DeltaLake(absolute(lake_path, Path.cwd()))
    require_lake(lake)
    closed = Ledger(lake).status().done
    return [_contents(lake, table, closed, sample_rows) for table in SHOWN_TABLES if lake.exists(table)]


def _contents(lake: DeltaLake, table: str, closed: ClosedPlans, sample_rows: int) -> TableContents:
    doing(f"counting rows of {table}")
    visible = closed.where()
    counted = lake.query(f"SELECT count(*) AS n, max(plan) AS plan FROM {table} WHERE {visible}", table)  # noqa: S608
    columns = SHOWN_TABLES[table].column_names
    sample = lake.query(
        f"SELECT * FROM {table} WHERE {visible} ORDER BY {_order(table)} LIMIT {sample_rows}",  # noqa: S608
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
    """A value as people read it: bytes as their count."""
    return f"{len(value)} bytes" if isinstance(value, bytes) else value


def _order(table: str) -> str:
    """The key, so that the same rows are shown each time; quoted, as a column may be named like a word of SQL."""
    return ", ".join(f'"{column}"' for column in SHOWN_TABLES[table].key)
