"""Named parts of Arrow columns as bytes and back: the form in which states are kept between plans.

The same parts give the same bytes, in any process: neither the order of a dict nor what a slice was cut from shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

MAGIC: Final = b"KAKP1\n"
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
    try:
        table = pq.ParquetFile(pa.BufferReader(content), arrow_extensions_enabled=False).read(use_threads=False)
        if table.schema.names != schema.names:
            raise KeptPartsError(f"columns {table.schema.names}, expected {schema.names}")
        table = table.cast(schema)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise KeptPartsError(f"its columns cannot be read: {error}") from None
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema)


def rows_batch(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """A batch from a few rows."""
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
