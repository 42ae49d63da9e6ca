"""What a table's contract is made of: columns that may or may not be null, their types, and what a row stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table; `nullable` is part of the contract."""

    name: str
    type: pa.DataType
    nullable: bool
    comment: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table as a contract: one row is one `grain`, `key` is unique, `retention` says what may be deleted."""

    name: str
    layer: str
    grain: str
    key: tuple[str, ...]
    retention: str
    comment: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, comments left out: they are no part of what Spark compares."""
        return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in self.columns])

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def list_of(type_: pa.DataType) -> pa.DataType:
    """A list without null elements."""
    return pa.list_(pa.field("element", type_, nullable=False))


TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
EPOCH_CHECKPOINT: Final = list_of(
    pa.struct([pa.field("epoch", pa.int32(), nullable=False), pa.field("start_offset", pa.int64(), nullable=False)])
)
NODE_IDS: Final = list_of(pa.int32())
CHANGED_BATCHES: Final = list_of(
    pa.struct(
        [
            pa.field("base_offset", pa.int64(), nullable=False),
            pa.field("original_crc", pa.int64(), nullable=False),
            pa.field("is_redacted", pa.bool_(), nullable=False),
        ]
    )
)
UNKNOWN_RECORDS: Final = list_of(
    pa.struct(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("is_control", pa.bool_(), nullable=False),
            pa.field("type_number", pa.int32(), nullable=True),
            pa.field("record_version", pa.int32(), nullable=True),
            pa.field("value_bytes", pa.int32(), nullable=False),
            pa.field("value_hash", pa.string(), nullable=False),
        ]
    )
)


def is_(name: str, type_: pa.DataType, comment: str) -> Column:
    """A column that is never null."""
    return Column(name, type_, False, comment)


def may(name: str, type_: pa.DataType, comment: str) -> Column:
    """A column that may be null; its comment says what that means."""
    return Column(name, type_, True, comment)
