"""The decoder's kernels by name, compiled for this processor, and the tables that their CRC goes by.

Importing this module imports no numba: the functions that list the kernels do, and are called only to compile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kraft_codec.kernels import native
from kraft_codec.kernels.codes import CRC_LANE_BYTES
from kraft_codec.kernels.prebuilt import has_crc32_instruction

CRC_POLYNOMIAL: Final = 0x82F63B78
"""Castagnoli, reversed."""
NAME: Final = "decoder"
_MODULE: Final = "kraft_codec.kernels.library"


@functools.cache
def kernels() -> Mapping[str, native.Kernel]:
    """The decoder's kernels, loaded or compiled at the first call."""
    return native.library(NAME, kernel_list())


def compile_ahead() -> None:
    """Begins to compile the decoder while the caller compiles other kernels: a first start does both at once."""
    native.compile_ahead(NAME, kernel_list())


def kernel_list() -> str:
    """The function that lists the kernels of this processor, as `native.library` takes it."""
    return f"{_MODULE}:{'with_crc32_instruction' if has_crc32_instruction() else 'with_crc32_tables'}"


def with_crc32_instruction() -> dict[str, native.Kernel]:
    """The kernels for processors with SSE 4.2, which take `lane_tables`. Imports numba."""
    from kraft_codec.kernels.batches import crc32c_by_instruction

    return _with_crc(crc32c_by_instruction)


def with_crc32_tables() -> dict[str, native.Kernel]:
    """The kernels for all other processors, which take `byte_tables`. Imports numba."""
    from kraft_codec.kernels.batches import crc32c_by_tables

    return _with_crc(crc32c_by_tables)


def _with_crc(crc32c: Any) -> dict[str, Callable[..., int]]:
    from kraft_codec.kernels.batches import index_batches_with
    from kraft_codec.kernels.records import group_rows, index_records, mark_fields
    from kraft_codec.kernels.text import write_json
    from kraft_codec.kernels.typed import fill_columns

    return {
        "index_batches": index_batches_with(crc32c),
        "crc32c": crc32c.py_func,
        "index_records": index_records,
        "group_rows": group_rows,
        "mark_fields": mark_fields,
        "fill_columns": fill_columns,
        "write_json": write_json,
    }


def crc_tables() -> npt.NDArray[np.uint32]:
    """The tables that the kernels of this processor take."""
    return lane_tables() if has_crc32_instruction() else byte_tables()


@functools.cache
def byte_tables() -> npt.NDArray[np.uint32]:
    """Eight tables of 256: table k gives the CRC of a byte that k zero bytes follow."""
    tables = np.zeros((8, 256), np.uint32)
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = np.where(crc & 1, (crc >> 1) ^ np.uint32(CRC_POLYNOMIAL), crc >> 1).astype(np.uint32)
    tables[0] = crc
    for number in range(1, 8):
        tables[number] = (tables[number - 1] >> 8) ^ crc[tables[number - 1] & 0xFF]
    return tables


@functools.cache
def lane_tables() -> npt.NDArray[np.uint32]:
    """Four tables of 256: table k gives what a CRC's byte k becomes after CRC_LANE_BYTES zero bytes."""
    crc = byte_tables()[0]
    tables = np.arange(256, dtype=np.uint32)[None, :] << (8 * np.arange(4, dtype=np.uint32))[:, None]
    for _ in range(CRC_LANE_BYTES):
        tables = (tables >> 8) ^ crc[tables & 0xFF]
    return np.ascontiguousarray(tables, np.uint32)
