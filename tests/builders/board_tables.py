"""A few rows of each table that the boards ask, made by its contract."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from kraft_audit.tables.contract import Table, build_rows
from kraft_audit.tables.gold import CLUSTERS, GOLD
from kraft_audit.tables.losses import LOSSES
from kraft_audit.tables.silver import SILVER

DAY = datetime.date(2026, 11, 21)
TABLES = {
    **GOLD,
    CLUSTERS.name: CLUSTERS,
    LOSSES.name: LOSSES,
    **{name: SILVER[name] for name in ("watermarks", "voter_sets", "leader_epochs")},
}


def a_value(type_: pa.DataType, number: int) -> Any:
    """Any value of a type, another for each number."""
    if pa.types.is_string(type_):
        return f"text {number}"
    if pa.types.is_boolean(type_):
        return number % 2 == 0
    if pa.types.is_date(type_):
        return DAY + datetime.timedelta(days=number)
    if pa.types.is_list(type_):
        return [a_value(type_.value_type, number)] * number
    if pa.types.is_struct(type_):
        return {field.name: a_value(field.type, number) for field in type_}
    return float(number) if pa.types.is_floating(type_) else number


def rows_of(table: Table) -> list[dict[str, Any]]:
    """Three rows by the contract, with words where the queries look for them."""
    rows = [{column.name: a_value(column.type, number) for column in table.columns} for number in (1, 2, 3)]
    words: dict[str, tuple[str | None, ...]] = {
        "cluster_id": ("a", "a", "b"),
        "severity": ("critical", "high", "low"),
        "status": ("raised", "raised", "raised") if table.name == "findings" else ("not_met", "met", "undecided"),
        "state": ("open", "waived", "open"),
        "severity_now": ("critical", "high" if table.name == "losses" else None, "low"),
        "grade": ("possible", "unflushed", "proven"),
        "ended_by": ("burnt", "truncated", "open"),
        "cluster_name": ("orders", "orders-eu", ""),
    }
    for name, texts in words.items():
        if name in table.column_names:
            for row, text in zip(rows, texts, strict=True):
                row[name] = text
    # Of b nothing was ever said: it is shown by its id.
    return rows[:2] if table.name == "clusters" else rows


def write_tables(folder: Path) -> None:
    """Each as a Delta table below the folder."""
    for name, table in TABLES.items():
        write_deltalake(str(folder / name), pa.table(build_rows(table, rows_of(table))))
