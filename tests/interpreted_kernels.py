"""`pytest -p tests.interpreted_kernels`: the kernels as plain Python, so that coverage sees their branches.

Accessors go through ctypes; int64 arithmetic does not wrap but where values are stored. Hundreds of times slower than
compiled: for small inputs.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

os.environ["NUMBA_DISABLE_JIT"] = "1"

import google_crc32c

from kraft_codec.kernels import memory, native

ALL = (1 << 64) - 1
Function = Callable[..., Any]


def _plain_accessor(access: memory.Access) -> Function:
    """What an accessor of `memory` does, in Python."""
    size_bytes = access.bits // 8

    def run(address: int, *numbers: int) -> int:
        rest = list(numbers)
        if access.is_column:
            address = int.from_bytes(ctypes.string_at(address + 8 * rest.pop(0), 8), "little")
        if access.is_indexed or access.is_column:
            address += size_bytes * rest.pop(0)
        address += access.displacement_bytes
        if access.kind == "load":
            order: Literal["big", "little"] = "big" if access.is_big_endian else "little"
            return int.from_bytes(ctypes.string_at(address, size_bytes), order, signed=access.is_signed)
        if access.kind == "store":
            value = int(rest.pop()) & ((1 << access.bits) - 1)
            ctypes.memmove(address, value.to_bytes(size_bytes, "little"), size_bytes)
        return address

    return run


def _copy(to: int, source: int, size_bytes: int) -> int:
    ctypes.memmove(to, source, size_bytes)
    return to


def _crc(size: int) -> Function:
    def extend(crc: int, value: int) -> int:
        data = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        return int(google_crc32c.extend(crc & 0xFFFFFFFF ^ 0xFFFFFFFF, data)) ^ 0xFFFFFFFF

    return extend


def _plain(function: Function) -> Function:
    """As numba gives it: the Python function under `py_func`."""
    copy = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.py_func = copy  # type: ignore[attr-defined]
    return copy


def _library(name: str, kernels: str, *, packages: Sequence[str] = (), seconds: int = 0) -> Mapping[str, Function]:
    module, _, function = kernels.partition(":")
    found: Mapping[str, Function] = getattr(importlib.import_module(module), function)()
    return found


for name, value in list(vars(memory).items()):
    if isinstance(access := getattr(value, "access", None), memory.Access):
        setattr(memory, name, _plain_accessor(access))
memory.copy_bytes = _copy
memory.crc32_eight_bytes = _crc(8)
memory.crc32_one_byte = _crc(1)
memory.inlined = memory.shared = _plain
native.library = _library
