"""Loads and stores through addresses: unaligned, big-endian where Kafka's bytes are.

Array indexing in numba costs bounds wraparound and descriptors; an unaligned load and a byte swap are two instructions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

_INT64 = ir.IntType(64)


# No wrapper is made that Python could call: it would double the time that compiling takes.
_OPTIONS = {"error_model": "numpy", "boundscheck": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def inlined(function: Function) -> Function:
    """A helper that is always inlined into the kernel that calls it."""
    return _of_integers(function, forceinline=True)


def shared(function: Function) -> Function:
    """A helper that LLVM may keep as a function of its own: for the rare and the large."""
    return _of_integers(function)


def _of_integers(function: Function, **options: bool) -> Function:
    """Compiled once, for int64: left to itself, numba compiles anew for every constant that it is called with."""
    arguments = (types.int64,) * len(inspect.signature(function).parameters)
    return cast(Function, njit(arguments, **_OPTIONS, **options)(function))


def _declare(name: str, argument_count: int, generate: Callable[..., Any]) -> Callable[..., Any]:
    arguments = ", ".join(f"a{number}" for number in range(argument_count))
    signature = types.int64(*[types.int64] * argument_count)
    scope: dict[str, Any] = {"signature": signature, "generate": generate}
    # An intrinsic's typing function must name as many arguments as the intrinsic takes.
    exec(f"def {name}(typing_context, {arguments}):\n    return signature, generate\n", scope)  # noqa: S102
    return cast(Callable[..., Any], intrinsic(scope[name]))


def _load(bits: int, *, big_endian: bool, signed: bool) -> Callable[[int], int]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.IntType(bits)
        value = builder.load(builder.inttoptr(arguments[0], kind.as_pointer()))
        value.align = 1
        if big_endian:
            value = builder.bswap(value)
        if bits == 64:
            return value
        return builder.sext(value, _INT64) if signed else builder.zext(value, _INT64)

    return _declare("load", 1, generate)


def _store(bits: int) -> Callable[[int, int], int]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.IntType(bits)
        value = arguments[1] if bits == 64 else builder.trunc(arguments[1], kind)
        stored = builder.store(value, builder.inttoptr(arguments[0], kind.as_pointer()))
        stored.align = 1
        return arguments[0]

    return _declare("store", 2, generate)


load_uint8 = _load(8, big_endian=False, signed=False)
load_int8 = _load(8, big_endian=False, signed=True)
load_int16 = _load(16, big_endian=False, signed=True)
load_uint16 = _load(16, big_endian=False, signed=False)
load_int32 = _load(32, big_endian=False, signed=True)
load_uint32 = _load(32, big_endian=False, signed=False)
load_int64 = _load(64, big_endian=False, signed=True)
load_int16_big = _load(16, big_endian=True, signed=True)
load_uint16_big = _load(16, big_endian=True, signed=False)
load_int32_big = _load(32, big_endian=True, signed=True)
load_uint32_big = _load(32, big_endian=True, signed=False)
load_int64_big = _load(64, big_endian=True, signed=True)
store_int8 = _store(8)
store_int16 = _store(16)
store_int32 = _store(32)
store_int64 = _store(64)


def _generate_copy(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    kind = ir.IntType(8).as_pointer()
    to, source, size_bytes = arguments
    cgutils.raw_memcpy(builder, builder.inttoptr(to, kind), builder.inttoptr(source, kind), size_bytes, 1, align=1)
    return to


copy_bytes = _declare("copy_bytes", 3, _generate_copy)
"""copy_bytes(to_address, from_address, size_bytes): the ranges must not overlap."""


def _generate_prefetch(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
    instruction = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
    is_write, locality, is_data = ir.Constant(flag, 0), ir.Constant(flag, 3), ir.Constant(flag, 1)
    builder.call(instruction, [builder.inttoptr(arguments[0], pointer), is_write, locality, is_data])
    return arguments[0]


prefetch = _declare("prefetch", 1, _generate_prefetch)
"""prefetch(address): asks for the cache line, without waiting for it. No address is wrong."""


def _generate_crc32(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    kind = ir.FunctionType(_INT64, [_INT64, _INT64])
    return builder.call(builder.module.declare_intrinsic("llvm.x86.sse42.crc32.64.64", fnty=kind), arguments)


def _generate_crc32_byte(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    word, byte = ir.IntType(32), ir.IntType(8)
    kind = ir.FunctionType(word, [word, byte])
    instruction = builder.module.declare_intrinsic("llvm.x86.sse42.crc32.32.8", fnty=kind)
    value = builder.call(instruction, [builder.trunc(arguments[0], word), builder.trunc(arguments[1], byte)])
    return builder.zext(value, _INT64)


crc32_eight_bytes = _declare("crc32_eight_bytes", 2, _generate_crc32)
crc32_one_byte = _declare("crc32_one_byte", 2, _generate_crc32_byte)
