"""Variable-length integers, against the encodings that Java's ByteUtils gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_codec.errors import CodecError, Reason
from kraft_codec.records import varint

# ByteUtilsTest of Apache Kafka: zig-zag pairs.
ZIG_ZAG_INTS = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (-8192, "ff7f"),
    (8192, "808001"),
    (-8193, "818001"),
    (1048575, "feff7f"),
    (-1048577, "81808001"),
    (2147483647, "feffffff0f"),
    (-2147483648, "ffffffff0f"),
]
ZIG_ZAG_LONGS = [
    *ZIG_ZAG_INTS,
    (17179869183, "feffffff7f"),
    (-17179869185, "818080808001"),
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]
UNSIGNED = [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2147483647, "ffffffff07"), (-1, "ffffffff0f")]


@pytest.mark.parametrize(
    ("read", "write", "value", "encoded"),
    [
        *((varint.read_varint, varint.write_varint, *case) for case in ZIG_ZAG_INTS),
        *((varint.read_varlong, varint.write_varlong, *case) for case in ZIG_ZAG_LONGS),
    ],
)
def test_zig_zag_numbers_are_as_kafka_writes_them(read: Any, write: Any, value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert read(data, 0, len(data)) == (value, len(data))
    out = bytearray()
    write(out, value)
    assert bytes(out) == data


@pytest.mark.parametrize(("value", "encoded"), UNSIGNED)
def test_unsigned_varints_come_back_as_java_ints(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert varint.read_unsigned_varint(data, 0, len(data)) == (value, len(data))


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_what_is_written_is_read_back(int_value: int, long_value: int) -> None:
    out = bytearray()
    varint.write_varint(out, int_value)
    varint.write_varlong(out, long_value)
    data = bytes(out)
    read_int, position = varint.read_varint(data, 0, len(data))
    assert (read_int, *varint.read_varlong(data, position, len(data))) == (int_value, long_value, len(data))


@pytest.mark.parametrize(
    ("encoded", "value"),
    [("8000", 0), ("8080808000", 0), ("ffffffff7f", -1), ("8080808010", 0), ("ff80808000", 127)],
)
def test_longer_than_needed_is_read_and_bits_beyond_the_32nd_are_dropped_as_in_java(encoded: str, value: int) -> None:
    data = bytes.fromhex(encoded)
    assert varint.read_unsigned_varint(data, 0, len(data)) == (value, len(data))


def test_a_sixth_byte_of_an_int_and_an_eleventh_of_a_long_are_refused() -> None:
    for read, size in ((varint.read_varint, 5), (varint.read_unsigned_varint, 5), (varint.read_varlong, 10)):
        data = b"\x00" + b"\x80" * size + b"\x00"
        with pytest.raises(CodecError) as caught:
            read(data, 1, len(data))
        assert (caught.value.reason, caught.value.position) == (Reason.BAD_VARINT, 1)


READERS = (varint.read_unsigned_varint, varint.read_varint, varint.read_varlong)


def outcome(read: Callable[[bytes, int, int], tuple[int, int]], data: bytes, end: int) -> tuple[object, int]:
    try:
        return read(data, 0, end)
    except CodecError as error:
        return error.reason, error.position


def test_every_two_byte_prefix_is_bounded() -> None:
    for first, second in itertools.product(range(256), repeat=2):
        for read in READERS:
            value, position = outcome(read, bytes((first, second)), 2)
            if min(first, second) >= 0x80:
                assert (value, position) == (Reason.BAD_RECORD, 0)
            else:
                assert position == (1 if first < 0x80 else 2)


@given(st.binary(max_size=12), st.integers(0, 12))
def test_nothing_at_or_beyond_the_end_is_read(data: bytes, end: int) -> None:
    end = min(end, len(data))
    for read in READERS:
        assert outcome(read, data, end) == outcome(read, data[:end], end)
