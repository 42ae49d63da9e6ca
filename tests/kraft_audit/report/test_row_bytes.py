"""What a page is made of is the same where its rows are, however Arrow holds them."""

from __future__ import annotations

import struct

import pyarrow as pa

from kraft_audit.report.earlier_pages import row_bytes


def _rows(under_null: int) -> pa.Table:
    """Rows 1, null, 3; the buffer holds a number where the null is."""
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(struct.pack("<3q", 1, under_null, 3))]
    values = pa.Array.from_buffers(pa.int64(), 3, buffers)
    return pa.table({"offset": [0, 1, 2], "value": values, "isr": [[1, 2], [], None]})


def test_what_lies_under_a_null_does_not_count() -> None:
    assert row_bytes(_rows(7)) == row_bytes(_rows(99))


def test_neither_chunks_nor_the_order_of_rows_count() -> None:
    rows = _rows(7)
    assert row_bytes(pa.concat_tables([rows.slice(0, 1), rows.slice(1)])) == row_bytes(rows)
    assert row_bytes(rows.take([2, 0, 1])) == row_bytes(rows)


def test_a_value_counts() -> None:
    rows = _rows(7)
    changed = rows.set_column(1, "value", pa.array([1, 0, 3], pa.int64()))
    assert row_bytes(changed) != row_bytes(rows)
