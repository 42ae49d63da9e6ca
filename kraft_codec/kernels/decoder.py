"""The kernels of the columnar decoder by name: what `native.library` compiles. It imports numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft_codec.kernels.checksum import crc32c_by_instruction, crc32c_by_tables
from kraft_codec.kernels.framing import index_batches_with
from kraft_codec.kernels.records import group_rows, index_records, mark_fields
from kraft_codec.kernels.text import write_json
from kraft_codec.kernels.typed import fill_columns

Kernel = Callable[..., int]


def with_crc32_instruction() -> dict[str, Kernel]:
    """For processors with SSE 4.2: goes with `tables.lane_tables`."""
    return _kernels(crc32c_by_instruction)


def with_crc32_tables() -> dict[str, Kernel]:
    """For all others: goes with `tables.byte_tables`."""
    return _kernels(crc32c_by_tables)


def _kernels(crc32c: Any) -> dict[str, Kernel]:
    return {
        "index_batches": index_batches_with(crc32c),
        "crc32c": crc32c.py_func,
        "index_records": index_records,
        "group_rows": group_rows,
        "mark_fields": mark_fields,
        "fill_columns": fill_columns,
        "write_json": write_json,
    }
