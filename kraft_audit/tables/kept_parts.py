"""Named parts of Arrow columns as bytes and back: the form in which states are kept between plans.

The same parts give the same bytes, in any process: neither the order of a dict nor what a slice was cut from shows.
They may stand as what differs from earlier ones: most rows of an hour's state are those of the hour before. Rows have
no key here: a row is kept where it stands in both in the same order. What is put together again is compared with what
was to be written, so a row that is taken for another one cannot be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
    import pyarrow.parquet as pq  # where a state is kept: `check` starts without it

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
    import pyarrow.parquet as pq  # where a state is kept: `check` starts without it

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


Hashes = npt.NDArray[np.uint64]

LEAF_BYTES_MIN: Final = 16 << 10
"""A smaller part is written whole: its rows are compared for nothing."""
SHARE_MAX: Final = 0.5
"""Changes that are a larger part of what they change are no gain: the state is written whole, as the next base."""
_SEPARATOR: Final = "/"
_SAME: Final = b""
_WHOLE, _ROWS = b"w", b"r"
_NULL: Final = np.uint64(0x5BD1E9955BD1E995)


def changes_of(base: bytes, now: bytes) -> bytes | None:
    """What makes packed parts `now` of `base`; None where that is more than half of `base`."""
    known = dict(_leaves(unpack(base)))
    changes = {
        name: _SAME if known.get(name) == leaf else _leaf_changes(known.get(name, b""), leaf)
        for name, leaf in _leaves(unpack(now))
    }
    packed = pack(changes)
    return packed if len(packed) <= SHARE_MAX * len(base) else None


def with_changes(base: bytes, changes: bytes) -> bytes:
    """The packed parts that `changes_of` compared with `base`; columns with changed rows are joined when they are read.

    Raises KeptPartsError.
    """
    known = dict(_leaves(unpack(base)))
    leaves: dict[str, bytes] = {}
    for name, change in unpack(changes).items():
        kind, content = change[:1], change[1:]
        if kind not in (b"", _WHOLE, _ROWS) or (kind != _WHOLE and name not in known):
            raise KeptPartsError(f"part {name!r} cannot be made of what was kept before")
        leaves[name] = known[name] if not kind else content if kind == _WHOLE else _changed(known[name], content)
    return _nested(leaves)


def _changed(base: bytes, rows: bytes) -> bytes:
    return CHANGED + pack({**unpack(rows), "base": base})


def _leaves(parts: dict[str, bytes], above: str = "") -> Iterator[tuple[str, bytes]]:
    """The parts that hold no parts, by their names from above."""
    for name, content in parts.items():
        if is_packed(content) and (below := unpack(content)):
            yield from _leaves(below, f"{above}{name}{_SEPARATOR}")
        else:
            yield above + name, content


def _nested(leaves: dict[str, bytes]) -> bytes:
    """Packed parts of some leaves."""
    parts: dict[str, bytes] = {}
    below: dict[str, dict[str, bytes]] = {}
    for name, content in leaves.items():
        first, separator, rest = name.partition(_SEPARATOR)
        if separator:
            below.setdefault(first, {})[rest] = content
        else:
            parts[first] = content
    return pack(parts | {name: _nested(own_leaves) for name, own_leaves in below.items()})


def _leaf_changes(base: bytes, now: bytes) -> bytes:
    if now.startswith(CHANGED):
        own = unpack(now.removeprefix(CHANGED))
        if own.pop("base") == base:
            return _ROWS + pack(own)
    elif min(len(base), len(now)) >= LEAF_BYTES_MIN and (rows := _row_changes(base, now)) is not None:
        return _ROWS + rows
    return _WHOLE + now


def _row_changes(base: bytes, now: bytes) -> bytes | None:
    """The rows of `now` that `base` lacks, and where they stand; None where the two are no columns of one kind."""
    try:
        before, after = read_columns(base), read_columns(now)
    except KeptPartsError:
        return None  # it is a part of another kind
    if before.schema != after.schema:
        return None
    hashes = _row_hashes(pa.concat_tables([before, after]).combine_chunks())
    row_of = _rows_in_order(hashes[: before.num_rows], hashes[before.num_rows :])
    placed = np.flatnonzero(row_of < 0)
    rows = after.take(pa.array(placed))
    is_gone = np.ones(before.num_rows, bool)
    is_gone[row_of[row_of >= 0]] = False
    gone = np.flatnonzero(is_gone)
    parts = {"gone": _numbers(gone), "placed": _numbers(placed), "rows": columns_to_bytes(rows)}
    is_same = joined_rows(before, gone, placed, rows).equals(after)
    changes = pack(parts)
    return changes if is_same and len(changes) < len(now) else None


def _numbers(numbers: npt.NDArray[np.int64]) -> bytes:
    return columns_to_bytes(pa.record_batch({"row": pa.array(numbers, pa.int64())}))


def _rows_in_order(before: Hashes, after: Hashes) -> npt.NDArray[np.int64]:
    """Of each row after, the equal row before that stands behind those of the rows above it; -1 where none does."""
    known, wanted = pa.array(before), pa.array(after)
    if pc.count_distinct(known).as_py() < len(known):
        known, wanted = pa.array(_numbered(before)), pa.array(_numbered(after))
    row_of = pc.fill_null(pc.index_in(wanted, value_set=known), -1).to_numpy().astype(np.int64)
    reached = np.maximum.accumulate(row_of)
    reached = np.concatenate([np.full(1, -1, np.int64), reached])[: len(row_of)]
    return np.where(row_of > reached, row_of, -1)


def _numbered(hashes: Hashes) -> Hashes:
    """Hashes of rows, of equal ones each another one: the second of them stands for the second."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    numbers = np.arange(len(ordered))
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    numbers -= np.repeat(begins, np.diff(np.append(begins, len(ordered))))
    distinct_hashes = np.empty_like(hashes)
    distinct_hashes[order] = _mixed(_mixed(numbers.astype(np.uint64), np.full(len(numbers), _NULL)), ordered)
    return distinct_hashes


def _row_hashes(table: pa.Table) -> Hashes:
    hashes = np.zeros(table.num_rows, np.uint64)
    for column in table.itercolumns():
        hashes = _mixed(hashes, _value_hashes(column.combine_chunks()))
    return hashes


def _value_hashes(values: pa.Array) -> Hashes:
    """A number for each value; equal values of one array have equal ones."""
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_struct(values.type):
        hashes = np.zeros(len(values), np.uint64)
        for child in values.flatten():
            hashes = _mixed(hashes, _value_hashes(child))
    elif pa.types.is_list(values.type):
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        each = _mixed(places.astype(np.uint64), _value_hashes(values.flatten()))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(each, dtype=np.uint64)])
        hashes = _mixed(lengths.astype(np.uint64), sums[ends] - sums[ends - lengths])
    elif pa.types.is_integer(values.type):
        hashes = pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(np.uint64)
    else:
        codes = values.dictionary_encode().indices
        hashes = pc.fill_null(codes, 0).to_numpy(zero_copy_only=False).astype(np.uint64)
    if values.null_count:
        hashes = np.where(values.is_null().to_numpy(zero_copy_only=False), _NULL, hashes)
    return hashes


def _mixed(hashes: Hashes, more: Hashes) -> Hashes:
    """One number of each two, its bits spread."""
    with np.errstate(over="ignore"):
        both = (hashes ^ more) * np.uint64(0x9E3779B97F4A7C15)
    return both ^ (both >> np.uint64(29))
