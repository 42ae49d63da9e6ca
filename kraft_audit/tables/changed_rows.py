"""Kept parts as what differs from earlier ones: most rows of an hour's state are those of the hour before.

Rows have no key here: a row is kept where it stands in both in the same order. What is put together again is compared
with what was to be written, so a row that is taken for another one cannot be.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.tables.kept_parts import (
    CHANGED,
    KeptPartsError,
    columns_to_bytes,
    is_packed,
    joined_rows,
    pack,
    read_columns,
    unpack,
)

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
    found: dict[str, bytes] = {}
    for name, change in unpack(changes).items():
        kind, content = change[:1], change[1:]
        if kind not in (b"", _WHOLE, _ROWS) or (kind != _WHOLE and name not in known):
            raise KeptPartsError(f"part {name!r} cannot be made of what was kept before")
        found[name] = known[name] if not kind else content if kind == _WHOLE else _changed(known[name], content)
    return _nested(found)


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
    return pack(parts | {name: _nested(found) for name, found in below.items()})


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
    found = np.empty_like(hashes)
    found[order] = _mixed(_mixed(numbers.astype(np.uint64), np.full(len(numbers), _NULL)), ordered)
    return found


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
