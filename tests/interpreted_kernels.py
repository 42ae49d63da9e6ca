"""`pytest -p tests.interpreted_kernels`: the kernels as plain Python, so that coverage sees their branches.

Loads and stores go through ctypes; int64 arithmetic does not wrap but where values are stored. Some hundred times
slower than compiled: for small inputs.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ["NUMBA_DISABLE_JIT"] = "1"

import google_crc32c

from kraft_codec.kernels import memory, native

ALL = (1 << 64) - 1
SIGN = 1 << 63
Function = Callable[..., Any]


def _load(size: int, order: str, *, signed: bool) -> Function:
    def load(address: int) -> int:
        value = int.from_bytes(ctypes.string_at(address, size), order, signed=signed)  # type: ignore[arg-type]
        return value

    return load


def _store(size: int) -> Function:
    def store(address: int, value: int) -> int:
        ctypes.memmove(address, (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little"), size)
        return address

    return store


def _copy(to: int, source: int, size_bytes: int) -> int:
    ctypes.memmove(to, source, size_bytes)
    return to


def _prefetch(address: int) -> int:
    return address


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


for bits in (8, 16, 32, 64):
    for prefix, is_signed in (("int", True), ("uint", False)):
        setattr(memory, f"load_{prefix}{bits}", _load(bits // 8, "little", signed=is_signed))
        setattr(memory, f"load_{prefix}{bits}_big", _load(bits // 8, "big", signed=is_signed))
    setattr(memory, f"store_int{bits}", _store(bits // 8))
memory.copy_bytes = _copy
memory.prefetch = _prefetch
memory.crc32_eight_bytes = _crc(8)
memory.crc32_one_byte = _crc(1)
memory.inlined = memory.shared = _plain
native.library = _library
