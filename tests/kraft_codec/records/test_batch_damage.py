"""Damaged batches and records: the reason, the position, and how far the damage reaches."""

from __future__ import annotations

import struct

import pytest

from kraft_codec.errors import CodecError, Reason
from kraft_codec.records.batch import (
    BATCH_LENGTH_MAX,
    HEADER_BYTES,
    Batch,
    Stop,
    crc32c,
    read_batches,
    read_header,
    read_records,
    write_batch,
)
from kraft_codec.records.compression import Codec
from tests.builders.short_batches import NO_OP, RECORD, START, TOPIC, batch_of, decoded, error_of, with_body


def last(buffer: bytes) -> Batch | Stop:
    return list(read_batches(buffer))[-1]


GOOD = batch_of(TOPIC, NO_OP)


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"\x00", Reason.ZERO_TAIL),
        (bytes(7), Reason.ZERO_TAIL),
        (bytes(61), Reason.ZERO_TAIL),
        (bytes(4096), Reason.ZERO_TAIL),
        (bytes(60) + b"\x01", Reason.BAD_LENGTH),
        (GOOD[:1], Reason.ZERO_TAIL),  # the first byte of an offset is zero, and no more can be said of it
        (GOOD[:10], Reason.TORN_TAIL),
        (GOOD[:17], Reason.TORN_TAIL),
        (GOOD[:18], Reason.TORN_TAIL),
        (GOOD[:61], Reason.TORN_TAIL),
        (GOOD[:-1], Reason.TORN_TAIL),
        (GOOD[:8] + struct.pack(">i", -1) + GOOD[12:], Reason.BAD_LENGTH),
        (GOOD[:8] + struct.pack(">i", -(2**31)) + GOOD[12:], Reason.BAD_LENGTH),
        (GOOD[:8] + struct.pack(">i", 13) + GOOD[12:], Reason.BAD_LENGTH),
        (GOOD[:8] + struct.pack(">i", 48) + GOOD[12:], Reason.BAD_LENGTH),
        (GOOD[:8] + struct.pack(">i", 2**31 - 1) + GOOD[12:], Reason.BAD_LENGTH),
        (GOOD[:8] + struct.pack(">i", BATCH_LENGTH_MAX + 1) + GOOD[12:], Reason.BAD_LENGTH),
        (GOOD[:8] + struct.pack(">i", BATCH_LENGTH_MAX) + GOOD[12:], Reason.TORN_TAIL),
    ],
)
def test_a_tail_that_is_no_batch_stops_the_walk_there(tail: bytes, reason: Reason) -> None:
    found = list(read_batches(GOOD + tail))
    assert isinstance(found[0], Batch)
    stop = found[1]
    assert isinstance(stop, Stop)
    assert (stop.reason, stop.position, stop.length_bytes) == (reason, len(GOOD), len(tail))
    assert len(found) == 2


def test_the_end_of_whole_batches_is_no_damage() -> None:
    assert [type(found) for found in read_batches(GOOD + GOOD)] == [Batch, Batch]
    assert list(read_batches(b"")) == []


@pytest.mark.parametrize("position", [*range(17, 21), *range(21, len(GOOD))])
def test_a_flipped_bit_under_the_crc_is_found_and_the_walk_goes_on(position: int) -> None:
    damaged = bytearray(GOOD)
    damaged[position] ^= 0x10
    found = [batch.damage for batch in read_batches(bytes(damaged) + GOOD) if isinstance(batch, Batch)]
    assert found == [Reason.BAD_CRC, None]


@pytest.mark.parametrize("magic", [0, 1, 3, 18, 255])
def test_another_magic_is_said_before_the_crc_is_looked_at(magic: int) -> None:
    damaged = GOOD[:16] + bytes([magic]) + GOOD[17:30] + b"\xff" + GOOD[31:]
    batch = last(damaged)
    assert isinstance(batch, Batch)
    assert batch.damage is Reason.BAD_MAGIC


def test_the_header_is_read_as_it_stands() -> None:
    header = read_header(bytes(START) + GOOD, START)
    assert (header.position, header.base_offset, header.size_bytes) == (START, 100, len(GOOD))
    assert (header.leader_epoch, header.magic, header.attributes, header.last_offset) == (2, 2, 0, 101)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (-1, -1, -1, 2)
    assert header.crc == crc32c(GOOD[21:])


def test_crc_32c_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720


def record(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes([2 * len(body)]) + body


PLAIN = b"\x00\x00\x00"  # attributes, timestamp delta, offset delta
NO_KEY = b"\x01"
VALUE = bytes([2 * len(NO_OP)]) + NO_OP


def test_the_pieces_below_make_a_record() -> None:
    (found,) = decoded(with_body(record(PLAIN, NO_KEY, VALUE, b"\x00"), 1))
    assert found.raw.value == NO_OP
    assert found.raw.position == START + HEADER_BYTES
    assert found.raw.value_position == START + HEADER_BYTES + 6


@pytest.mark.parametrize(
    ("body", "record_count", "reason", "position"),
    [
        (b"", 1, Reason.BAD_RECORD, 57),
        (record(PLAIN, NO_KEY, VALUE, b"\x00"), 2, Reason.BAD_RECORD, 57),
        (record(PLAIN, NO_KEY, VALUE, b"\x00"), -1, Reason.BAD_RECORD, 57),
        (record(PLAIN, NO_KEY, VALUE, b"\x00"), 2**31 - 1, Reason.BAD_RECORD, 57),
        (record(PLAIN, NO_KEY, VALUE, b"\x00"), 0, Reason.BAD_RECORD, 61),
        (record(PLAIN, NO_KEY, VALUE, b"\x00") + b"\x00", 1, Reason.BAD_RECORD, 61 + 11),
        (b"\x80\x80\x80\x80\x80\x00\x00", 1, Reason.BAD_VARINT, 61),
        (b"\x80\x80\x80\x80\x80\x80\x80", 1, Reason.BAD_VARINT, 61),
        (b"\x01" + bytes(8), 1, Reason.BAD_RECORD, 61),  # length -1
        (b"\x00" + bytes(8), 1, Reason.BAD_RECORD, 62),  # length 0: no attributes
        (b"\x7e" + bytes(8), 1, Reason.BAD_RECORD, 61),  # length 63
        (b"\xfe\xff\xff\xff\x0f" + bytes(8), 1, Reason.BAD_RECORD, 61),  # length 2^31 - 1
        (record(b"\x00", b"\x80" * 10, b"\x00"), 1, Reason.BAD_VARINT, 63),
        (record(b"\x00\x00", b"\x80" * 5, b"\x00"), 1, Reason.BAD_VARINT, 64),
        (record(b"\x00\x00\x00\x80") + bytes(4), 1, Reason.BAD_RECORD, 65),  # the key's length ends with the record
        (record(PLAIN, b"\x08", bytes(3)), 1, Reason.BAD_RECORD, 65),  # a key of 4 bytes, 3 are left
        (record(PLAIN, NO_KEY, b"\x08", bytes(3)), 1, Reason.BAD_RECORD, 66),
        (record(PLAIN, NO_KEY, b"\xfe\xff\xff\xff\x0f"), 1, Reason.BAD_RECORD, 66),
        (record(PLAIN, NO_KEY, VALUE), 1, Reason.BAD_RECORD, 61 + 6 + len(NO_OP)),  # no header count
        (record(PLAIN, NO_KEY, VALUE, b"\x01"), 1, Reason.BAD_RECORD, 61 + 6 + len(NO_OP)),  # -1 headers
        (record(PLAIN, NO_KEY, VALUE, b"\x04\x00"), 1, Reason.BAD_RECORD, 61 + 6 + len(NO_OP)),  # 2 headers in 1 byte
        (record(PLAIN, NO_KEY, VALUE, b"\x02\x01\x01"), 1, Reason.BAD_RECORD, 62 + 6 + len(NO_OP)),  # no header key
        (record(PLAIN, NO_KEY, VALUE, b"\x02\x02a\x04b"), 1, Reason.BAD_RECORD, 64 + 6 + len(NO_OP)),
        (record(PLAIN, NO_KEY, VALUE, b"\x00", b"\xaa\xbb"), 1, Reason.BAD_RECORD, 62 + 6 + len(NO_OP)),
        (record(PLAIN, NO_KEY, NO_KEY, b"\x00", bytes(1)), 1, Reason.BAD_RECORD, 68),
        (record(PLAIN, NO_KEY, NO_KEY, b"\x00") + bytes(1), 1, Reason.BAD_RECORD, 61),  # no value, said before the rest
    ],
)
def test_broken_framing_is_said_with_its_byte(body: bytes, record_count: int, reason: Reason, position: int) -> None:
    assert error_of(with_body(body, record_count)) == (reason, position)


def test_headers_and_negative_lengths_are_read_as_kafka_reads_them() -> None:
    headers = b"\x04" + b"\x02k" + b"\x04vv" + b"\x00" + b"\x03"  # k: vv, and an empty key without a value (-2)
    (found,) = decoded(with_body(record(b"\x7f\x00\x00", b"\x05", VALUE, headers), 1))  # any attributes, key length -3
    assert found.raw.headers == ((b"k", b"vv"), (b"", None))
    assert found.raw.key is None


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_said_at_the_attributes(number: int) -> None:
    assert error_of(with_body(RECORD, -5, attributes=number)) == (Reason.BAD_COMPRESSION, 21)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_errors_and_records_of_compressed_batches_stand_at_the_compressed_bytes(codec: Codec) -> None:
    good = write_batch(base_offset=0, leader_epoch=1, timestamp_ms=1, records=[(None, TOPIC)], codec=codec)
    (found,) = decoded(good)
    assert {found.raw.position, found.raw.value_position, found.raw.key_position} == {START + HEADER_BYTES}
    cut = write_batch(base_offset=0, leader_epoch=1, timestamp_ms=1, records=[(None, TOPIC[:-1])], codec=codec)
    assert error_of(cut) == (Reason.BAD_RECORD, HEADER_BYTES)
    assert error_of(with_body(b"\xff\xff\xff\xff", 1, attributes=codec))[1] == HEADER_BYTES


def test_records_are_handed_out_before_a_later_one_is_found_broken() -> None:
    body = record(PLAIN, NO_KEY, VALUE, b"\x00") + b"\x01" + bytes(8)
    records = read_records(with_body(body, 2), read_header(with_body(body, 2), 0))
    assert next(records).value == NO_OP
    with pytest.raises(CodecError):
        next(records)
