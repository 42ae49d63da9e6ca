"""What a table's contract is made of (grain, key, columns with types and meaning), and Arrow batches that match it.

A batch matches in order, types and nullability: Spark refuses one that differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table; `nullable` is part of the contract, and so are its `values` where it lists them."""

    name: str
    type: pa.DataType
    nullable: bool
    comment: str
    values: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Table:
    """A table as a contract: a row is one `grain`, `key` is unique, `retention` says what may be deleted.

    The last three say how a table is part of a cluster's state. `subject`: the columns that name whose state a row is;
    empty where a row is no subject's state. `part`: what that part of the state is called ("brokers"). `change`: what
    counts call one row ("broker change").
    """

    name: str
    layer: str
    grain: str
    key: tuple[str, ...]
    retention: str
    comment: str
    columns: tuple[Column, ...]
    subject: tuple[str, ...] = ()
    part: str = ""
    change: str = ""

    schema: pa.Schema = field(init=False, repr=False, compare=False)
    """The Arrow schema, comments left out: they are no part of what Spark compares."""

    def __post_init__(self) -> None:
        # Small batches ask for it as often as for their columns.
        schema = pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in self.columns])
        object.__setattr__(self, "schema", schema)

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def subject_noun(self) -> str:
        """What a row of a `*_changes` table is the state of: "broker"."""
        return self.name.removesuffix("_changes")


_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)


def with_column(rows: _Rows, name: str, values: pa.Array | pa.ChunkedArray) -> _Rows:
    """The rows with other values in one of their columns, whose type and place stay."""
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place), values)


def list_of(type_: pa.DataType) -> pa.DataType:
    """A list without null elements."""
    return pa.list_(pa.field("element", type_, nullable=False))


MAX_BATCH_ROWS: Final = 65_000
"""Rows of a batch that crosses into Spark."""
TEXT: Final = pa.string()
BOOL: Final = pa.bool_()
INT16: Final = pa.int16()
INT32: Final = pa.int32()
INT64: Final = pa.int64()
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
EPOCH_CHECKPOINT: Final = list_of(
    pa.struct([pa.field("epoch", INT32, nullable=False), pa.field("start_offset", INT64, nullable=False)])
)
NODE_IDS: Final = list_of(INT32)
TEXTS: Final = list_of(TEXT)
CHANGED_BATCHES: Final = list_of(
    pa.struct(
        [
            pa.field("base_offset", INT64, nullable=False),
            pa.field("original_crc", INT64, nullable=False),
            pa.field("is_redacted", BOOL, nullable=False),
        ]
    )
)
UNKNOWN_RECORDS: Final = list_of(
    pa.struct(
        [
            pa.field("offset", INT64, nullable=False),
            pa.field("is_control", BOOL, nullable=False),
            pa.field("type_number", INT32, nullable=True),
            pa.field("record_version", INT32, nullable=True),
            pa.field("value_bytes", INT32, nullable=False),
            pa.field("value_hash", TEXT, nullable=False),
        ]
    )
)


def struct_of(**fields: pa.DataType) -> pa.DataType:
    """A struct without null fields."""
    return pa.struct([pa.field(name, type_, nullable=False) for name, type_ in fields.items()])


def required(name: str, type_: pa.DataType, comment: str) -> Column:
    """A column that is never null."""
    return Column(name, type_, False, comment)


def nullable(name: str, type_: pa.DataType, comment: str) -> Column:
    """A column that may be null; its comment says what that means."""
    return Column(name, type_, True, comment)


def choice(name: str, values: Sequence[str], comment: str = "", *, is_nullable: bool = False) -> Column:
    """A column that holds one of a few texts; its comment lists them."""
    return Column(name, TEXT, is_nullable, "; ".join(filter(None, (", ".join(values), comment))), frozenset(values))


def tables_by_name(*tables: Table) -> dict[str, Table]:
    """The contracts by the names of their tables, in this order."""
    return {table.name: table for table in tables}


def build_batch(table: Table, columns: Mapping[str, Any], row_count: int) -> pa.RecordBatch:
    """Makes a batch of exactly the table's columns in its order.

    A column's value is an Arrow array, a numpy array, a sequence of `row_count` values, or one value for all rows.
    Raises ValueError where a column is missing, unknown, of another length, or null where it must not be.
    """
    unknown = columns.keys() - set(table.column_names)
    if unknown:
        raise ValueError(f"table {table.name} has no columns {sorted(unknown)}")
    arrays = []
    for column in table.columns:
        if column.name not in columns:
            raise ValueError(f"table {table.name} needs column {column.name}")
        array = _to_array(columns[column.name], column.type, row_count)
        if len(array) != row_count:
            raise ValueError(f"column {table.name}.{column.name} has {len(array)} rows, expected {row_count}")
        if not column.nullable and array.null_count:
            raise ValueError(f"column {table.name}.{column.name} must not be null")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def build_rows(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Makes a batch from a few rows, for the small tables."""
    return build_batch(table, {name: [row[name] for row in rows] for name in table.column_names}, len(rows))


def silver_batch(table: Table, cluster_id: str, plan: int, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Makes a batch from rows that lack `cluster_id` and `plan`."""
    return build_rows(table, [{**row, "cluster_id": cluster_id, "plan": plan} for row in rows])


def slices(batch: pa.RecordBatch, max_rows: int = MAX_BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Cuts a batch into batches of at most `max_rows` rows, without copying."""
    for start in range(0, batch.num_rows, max_rows):
        yield batch.slice(start, max_rows)


def _to_array(value: Any, type_: pa.DataType, row_count: int) -> pa.Array:
    if isinstance(value, pa.Array):
        return value if value.type == type_ else value.cast(type_)
    if isinstance(value, np.ndarray | list | tuple):
        return pa.array(value, type_)
    if value is None:
        return pa.nulls(row_count, type_)
    return pa.repeat(pa.scalar(value, type_), row_count)
