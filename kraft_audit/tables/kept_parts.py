"""Named parts of Arrow columns as bytes and back: the form in which states are kept between plans.

The same parts give the same bytes, in any process: neither the order of a dict nor what a slice was cut from shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

MAGIC: Final = b"KAKP1\n"
CHANGED: Final = b"KAKR1\n"
"""Begins columns that are earlier ones (`base`) without some rows (`gone`), and with others (`rows`, `placed`)."""
_LENGTH_BYTES: Final = 8
_COMPRESSION: Final = "zstd"


class KeptPartsError(ValueError):
    """Kept bytes that are not what was written: cut off, altered, or of another release."""


def pack(parts: Mapping[str, bytes]) -> bytes:
    """Some bytes by name as one piece, in the order of their names."""
    names = sorted(parts)
    head = json.dumps({name: len(parts[name]) for name in names}, separators=(",", ":")).encode()
    return b"".join([MAGIC, len(head).to_bytes(_LENGTH_BYTES, "big"), head, *(parts[name] for name in names)])


def unpack(content: bytes) -> dict[str, bytes]:
    """What `pack` was given. Raises KeptPartsError."""
    start = len(MAGIC) + _LENGTH_BYTES
    if len(content) < start or not content.startswith(MAGIC):
        raise KeptPartsError("it does not begin as kept parts do")
    end = start + int.from_bytes(content[len(MAGIC) : start], "big")
    try:
        sizes = json.loads(content[start:end])
    except ValueError:
        raise KeptPartsError("its list of parts cannot be read") from None
    if not isinstance(sizes, dict) or not all(type(size) is int and size >= 0 for size in sizes.values()):
        raise KeptPartsError("its list of parts is not one")
    if end + sum(sizes.values()) != len(content):
        raise KeptPartsError(f"{len(content)} bytes, its list of parts says {end + sum(sizes.values())}")
    parts = {}
    for name, size in sizes.items():
        parts[name], end = content[end : end + size], end + size
    return parts


def is_packed(content: bytes) -> bool:
    """Whether some bytes begin as those of `pack` do."""
    return content.startswith(MAGIC)


def columns_to_bytes(batch: pa.RecordBatch | pa.Table) -> bytes:
    """A batch as Parquet: what is read back is checked, which the addresses in Arrow's own format are not. A batch
    without rows is no bytes: a file of its own would take as long as one of ten thousand rows."""
    if not batch.num_rows:
        return b""
    table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=max(1, table.num_rows),
        compression=_COMPRESSION,
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )
    return bytes(sink.getvalue())


def columns_from_bytes(content: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The batch of a schema that `columns_to_bytes` was given. Raises KeptPartsError."""
    if not content:
        return pa.RecordBatch.from_pylist([], schema)
    table = read_columns(content)
    if table.schema.names != schema.names:
        raise KeptPartsError(f"columns {table.schema.names}, expected {schema.names}")
    try:
        table = table.cast(schema)
        table.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise KeptPartsError(f"its columns cannot be read: {error}") from None
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema)


def read_columns(content: bytes) -> pa.Table:
    """The columns of bytes that are not empty, with the types that Parquet gives them. Raises KeptPartsError."""
    if content.startswith(CHANGED):
        parts = unpack(content.removeprefix(CHANGED))
        try:
            base, rows = read_columns(parts["base"]), parts["rows"]
            gone, placed = (_row_numbers(parts[name]) for name in ("gone", "placed"))
            return joined_rows(base, gone, placed, read_columns(rows) if rows else base.slice(0, 0))
        except (LookupError, ValueError, pa.ArrowException) as error:
            raise KeptPartsError(f"its changed rows cannot be read: {error}") from None
    try:
        return pq.ParquetFile(pa.BufferReader(content), arrow_extensions_enabled=False).read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise KeptPartsError(f"its columns cannot be read: {error}") from None


def _row_numbers(content: bytes) -> npt.NDArray[np.int64]:
    if not content:
        return np.zeros(0, np.int64)
    numbers: npt.NDArray[np.int64] = read_columns(content)["row"].to_numpy()
    return numbers


def joined_rows(base: pa.Table, gone: npt.NDArray[np.int64], placed: npt.NDArray[np.int64], rows: pa.Table) -> pa.Table:
    """The rows of `base` but those that are gone, with others at the places that they are to have.

    Raises ValueError or IndexError where there are no such rows or places.
    """
    is_kept = np.ones(base.num_rows, bool)
    is_kept[gone] = False
    row_at = np.full(int(is_kept.sum()) + len(placed), -1, np.int64)
    row_at[placed] = base.num_rows + np.arange(rows.num_rows)
    row_at[row_at < 0] = np.flatnonzero(is_kept)
    return pa.concat_tables([base, rows]).combine_chunks().take(pa.array(row_at))


def rows_batch(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """A batch from a few rows."""
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
