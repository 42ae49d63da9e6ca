"""A query of gold: one SELECT beside its inputs, in SQL that every engine understands but for a few names.

The texts lie in `kraft_audit/lake/sql`. A function that engines name differently stands in braces, as `{explode}`, and
an engine fills in its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from kraft_audit.lake.delta import sql_text
from kraft_audit.lake.delta_merges import DATAFUSION_WORDS
from kraft_audit.lake.merges import EngineWords
from kraft_audit.lake.views import TableReference, sql_file

Select = Callable[[TableReference], str]
"""The query of an input, over tables as a function names them."""
IN_LAKE: Final = "lake_{}"
"""How a table is named inside a query whose input has the table's own name."""


@dataclass(frozen=True, slots=True)
class LakeInput:
    """An input that a query reads of the lake: `tables` as `select` names them, and which columns are used."""

    tables: tuple[str, ...]
    select: Select
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GoldQuery:
    """`name`: that of the text. `values` are inputs of few rows, `lake` those of the lake; `words` fill the text."""

    name: str
    values: Mapping[str, pa.Table]
    lake: Mapping[str, LakeInput]
    words: Mapping[str, str] = field(default_factory=dict)
    where: str = "true"
    """Which rows of the lake's inputs are wanted."""

    def text(self, words: EngineWords) -> str:
        """The query for an engine that knows each input by its name."""
        return sql_file(self.name, **self.words, **words)

    def datafusion_text(self) -> str:
        """The query for DataFusion, over the lake's tables as IN_LAKE names them."""
        return f"WITH {', '.join(self._inputs())} SELECT * FROM ({self.text(DATAFUSION_WORDS)}) AS result"  # noqa: S608

    @property
    def tables(self) -> list[str]:
        """The lake's tables that it reads."""
        return sorted({table for each in self.lake.values() for table in each.tables})

    def _inputs(self) -> Iterator[str]:
        for name, rows in self.values.items():
            yield f"{name} AS ({values_sql(rows)})"
        for name, each in self.lake.items():
            columns = ", ".join(f'"{column}"' for column in each.columns)
            rows_sql = f"SELECT {columns} FROM ({each.select(IN_LAKE.format)}) AS every WHERE {self.where}"  # noqa: S608
            yield f"{name} AS ({rows_sql})"


def values_sql(rows: pa.Table) -> str:
    """A query that gives these rows, of texts, numbers and dates, in DataFusion."""
    types = [_SQL_TYPES[field.type] for field in rows.schema]
    names = rows.column_names
    if not rows.num_rows:
        columns = ", ".join(f"CAST(NULL AS {type_}) AS {name}" for name, type_ in zip(names, types, strict=True))
        return f"SELECT {columns} WHERE false"
    columns = ", ".join(
        f"CAST(column{place} AS {type_}) AS {name}"
        for place, (name, type_) in enumerate(zip(names, types, strict=True), 1)
    )
    literals = ", ".join(f"({', '.join(map(_literal, row.values()))})" for row in rows.to_pylist())
    return f"SELECT {columns} FROM (VALUES {literals})"  # noqa: S608  # quoted


_SQL_TYPES: Final = {pa.string(): "VARCHAR", pa.int64(): "BIGINT", pa.int32(): "INT", pa.date32(): "DATE"}


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else sql_text(str(value))
