"""All that kernels know of memory: numbers at an address, values of arrays and columns, fields of a batch's header.

Each accessor becomes a few instructions where it is called: loads and stores are unaligned, and big-endian where
Kafka's bytes are. Array indexing in numba would cost bounds wraparound and descriptors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kraft_codec.kernels.codes import COLUMN_BYTES, OP_BYTES, TAG_ENTRY_BYTES

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
    """Compiled once, for int64: left to itself, numba compiles again for every constant that it is called with."""
    arguments = (types.int64,) * len(inspect.signature(function).parameters)
    return cast(Function, njit(arguments, **_OPTIONS, **options)(function))


class Access(NamedTuple):
    """What an accessor reads or writes, for who runs the kernels as plain Python.

    Its arguments: an address (of a table of column addresses where `is_column`), then the number of the column where
    `is_column`, the number of the value where `is_indexed` or `is_column`, the value to write where it is a store.
    """

    kind: Literal["load", "store", "prefetch"]
    bits: int
    is_signed: bool = True
    is_big_endian: bool = False
    displacement_bytes: int = 0
    is_indexed: bool = False
    is_column: bool = False

    @property
    def argument_count(self) -> int:
        """How many int64 it takes."""
        return 1 + self.is_column + (self.is_indexed or self.is_column) + (self.kind == "store")


def _declare(argument_count: int, generate: Callable[..., Any]) -> Callable[..., int]:
    arguments = ", ".join(f"a{number}" for number in range(argument_count))
    signature = types.int64(*[types.int64] * argument_count)
    scope: dict[str, Any] = {"signature": signature, "generate": generate}
    # An intrinsic's typing function must name as many arguments as the intrinsic takes.
    exec(f"def access(typing_context, {arguments}):\n    return signature, generate\n", scope)  # noqa: S102
    return cast(Callable[..., int], intrinsic(scope["access"]))


def _accessor(access: Access) -> Callable[..., int]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, *numbers = arguments
        if access.is_column:
            column = builder.add(address, builder.mul(numbers.pop(0), _INT64(8)))
            address = builder.load(builder.inttoptr(column, _INT64.as_pointer()))
        if access.is_indexed or access.is_column:
            address = builder.add(address, builder.mul(numbers.pop(0), _INT64(access.bits // 8)))
        if access.displacement_bytes:
            address = builder.add(address, _INT64(access.displacement_bytes))
        if access.kind == "prefetch":
            return _emit_prefetch(builder, address)
        if access.kind == "store":
            return _emit_store(builder, access, address, numbers.pop())
        return _emit_load(builder, access, address)

    declared = _declare(access.argument_count, generate)
    declared.access = access  # type: ignore[attr-defined]
    return declared


def _emit_load(builder: Any, access: Access, address: Any) -> Any:
    kind = ir.IntType(access.bits)
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = 1
    if access.is_big_endian and access.bits > 8:
        value = builder.bswap(value)
    if access.bits == 64:
        return value
    return builder.sext(value, _INT64) if access.is_signed else builder.zext(value, _INT64)


def _emit_store(builder: Any, access: Access, address: Any, value: Any) -> Any:
    kind = ir.IntType(access.bits)
    stored = builder.store(
        value if access.bits == 64 else builder.trunc(value, kind), builder.inttoptr(address, kind.as_pointer())
    )
    stored.align = 1
    return address


def _emit_prefetch(builder: Any, address: Any) -> Any:
    pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
    instruction = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
    is_write, locality, is_data = ir.Constant(flag, 0), ir.Constant(flag, 3), ir.Constant(flag, 1)
    builder.call(instruction, [builder.inttoptr(address, pointer), is_write, locality, is_data])
    return address


def _load(bits: int, *, signed: bool = True) -> Callable[[int], int]:
    return _accessor(Access("load", bits, signed))


def _load_big(bits: int, *, signed: bool = True, at: int = 0) -> Callable[[int], int]:
    return _accessor(Access("load", bits, signed, is_big_endian=True, displacement_bytes=at))


def _store(bits: int) -> Callable[[int, int], int]:
    return _accessor(Access("store", bits))


def _load_value(bits: int, *, signed: bool = True, big_endian: bool = False) -> Callable[[int, int], int]:
    return _accessor(Access("load", bits, signed, big_endian, is_indexed=True))


def _store_value(bits: int) -> Callable[[int, int, int], int]:
    return _accessor(Access("store", bits, is_indexed=True))


def _load_cell(bits: int, *, signed: bool = True) -> Callable[[int, int, int], int]:
    return _accessor(Access("load", bits, signed, is_column=True))


def _store_cell(bits: int) -> Callable[[int, int, int, int], int]:
    return _accessor(Access("store", bits, is_column=True))


def _prefetch_cell(bits: int) -> Callable[[int, int, int], int]:
    return _accessor(Access("prefetch", bits, is_column=True))


# A number at an address.
load_uint8 = _load(8, signed=False)
load_int8 = _load(8)
load_int32 = _load(32)
load_uint32 = _load(32, signed=False)
load_int64 = _load(64)
load_int16_big = _load_big(16)
load_uint16_big = _load_big(16, signed=False)
load_int32_big = _load_big(32)
load_uint32_big = _load_big(32, signed=False)
load_int64_big = _load_big(64)
store_int8 = _store(8)
store_int16 = _store(16)
store_int32 = _store(32)
store_int64 = _store(64)

# (array, index): a value of an array.
uint8_at = _load_value(8, signed=False)
int16_at = _load_value(16)
uint16_at = _load_value(16, signed=False)
int32_at = _load_value(32)
uint32_at = _load_value(32, signed=False)
int64_at = _load_value(64)
int32_big_at = _load_value(32, big_endian=True)
set_int8_at = _store_value(8)
set_int16_at = _store_value(16)
set_int32_at = _store_value(32)
set_int64_at = _store_value(64)

# (columns, number, row): a value of a column whose address stands in a table.
column_uint8 = _load_cell(8, signed=False)
column_int8 = _load_cell(8)
column_int32 = _load_cell(32)
column_int64 = _load_cell(64)
put_int8 = _store_cell(8)
put_int16 = _store_cell(16)
put_int32 = _store_cell(32)
put_int64 = _store_cell(64)
prefetch_int32 = _prefetch_cell(32)
prefetch_int64 = _prefetch_cell(64)

# (batch): a field of the header of the batch at an address (DefaultRecordBatch).
batch_base_offset = _load_big(64, at=0)
batch_length = _load_big(32, at=8)
batch_leader_epoch = _load_big(32, at=12)
batch_magic = _load_big(8, at=16)
batch_crc = _load_big(32, signed=False, at=17)
batch_attributes = _load_big(16, at=21)
batch_last_offset_delta = _load_big(32, at=23)
batch_base_timestamp_ms = _load_big(64, at=27)
batch_max_timestamp_ms = _load_big(64, at=35)
batch_producer_id = _load_big(64, at=43)
batch_producer_epoch = _load_big(16, at=51)
batch_base_sequence = _load_big(32, at=53)
batch_record_count = _load_big(32, at=57)


@inlined
def instruction_at(program: int, row: int) -> int:
    """The address of a program's row: its op and the op's arguments are int32 there."""
    return program + OP_BYTES * row


@inlined
def tag_entry(table: int, tag: int) -> int:
    """The address of a known tag's cells, int32, in the table of an op that passes tagged fields."""
    return table + TAG_ENTRY_BYTES * tag


@inlined
def field_column(table: int, number: int) -> int:
    """The address of the cells, int64, that say where a column of fields is filled."""
    return table + COLUMN_BYTES * number


def _generate_copy(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    kind = ir.IntType(8).as_pointer()
    to, source, size_bytes = arguments
    cgutils.raw_memcpy(builder, builder.inttoptr(to, kind), builder.inttoptr(source, kind), size_bytes, 1, align=1)
    return to


copy_bytes = _declare(3, _generate_copy)
"""copy_bytes(to_address, from_address, size_bytes): the ranges must not overlap."""


prefetch = _accessor(Access("prefetch", 8))
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


crc32_eight_bytes = _declare(2, _generate_crc32)
crc32_one_byte = _declare(2, _generate_crc32_byte)
