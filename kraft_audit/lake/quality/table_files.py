"""The files of a lake's tables as views in DuckDB."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.tables.contract import Table


class TableFiles:
    """Makes the files of tables readable in `database`; `folder` is for what DuckDB needs beside them."""

    def __init__(self, lake: DeltaLake, database: duckdb.DuckDBPyConnection, folder: Path) -> None:
        self._lake, self._database, self._folder = lake, database, folder

    def view(self, table: Table, name: str, column: str = "", least: int = 0) -> None:
        """A view of the table's rows; with `column` of those files that may have rows with at least `least` in it.

        Local files are read by DuckDB itself, which is faster; others as an Arrow data set. Columns that the table got
        no value for yet are null.
        """
        opened, is_far = self._lake.latest(table.name), is_uri(self._lake.uri)
        if is_far:
            rows = self._database.from_arrow(opened.to_pyarrow_dataset())
        else:
            files = pa.table(opened.get_add_actions(flatten=True))
            paths = files["path"].filter(_may_have(files, f"max.{column}", least)).to_pylist()
            found = [f"{self._lake.table_uri(table.name)}/{unquote(path)}" for path in paths] or [
                self._empty_file(table)
            ]
            rows = self._database.read_parquet(found, union_by_name=True)
        kinds = zip(rows.columns, rows.types, strict=True)
        there = {column: _unfiltered(column, kind) if is_far else f'"{column}"' for column, kind in kinds}
        columns = (there.get(each, f'NULL AS "{each}"') for each in table.column_names)
        rows.project(", ".join(columns)).create_view(name)

    def _empty_file(self, table: Table) -> str:
        """A file without rows: to take an Arrow table instead, DuckDB imports pandas."""
        file = self._folder / f"{table.name}.parquet"
        pq.write_table(table.schema.empty_table(), file)
        return str(file)


def _unfiltered(column: str, kind: object) -> str:
    """A column of an Arrow data set. DuckDB gives it filters of texts in a type that Arrow cannot compare with text, so
    a text is no bare column."""
    return f'"{column}" || \'\' AS "{column}"' if str(kind) == "VARCHAR" else f'"{column}"'


def _may_have(files: pa.Table, statistic: str, least: int) -> pa.ChunkedArray:
    """Which files may have a row of at least this value, by their statistics; all if they have none."""
    if statistic not in files.column_names:
        return pa.chunked_array([pa.repeat(pa.scalar(True), files.num_rows)])
    return pc.fill_null(pc.greater_equal(files[statistic], least), True)
