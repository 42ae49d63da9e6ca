"""A record's framing and a batch's header, each part of them cut, overlong or senseless, under a CRC made right."""

from __future__ import annotations

import struct

import pytest

from kraft_codec import columns
from kraft_codec.records.batch import write_batch
from kraft_codec.records.record import write_control_key, write_metadata_value
from kraft_codec.records.varint import write_varint, write_varlong
from tests.builders.damaged_batches import with_right_crcs

OVERLONG = b"\xff" * 11
PARTS = ("timestamp delta", "offset delta", "key length", "value length", "header count", "header key", "header value")


def varint(value: int, write=write_varint) -> bytes:
    out = bytearray()
    write(out, value)
    return bytes(out)


def record_of(parts: list[bytes]) -> bytes:
    """A record whose length is that of its parts, after the byte of attributes."""
    body = b"\0" + b"".join(parts)
    return varint(len(body)) + body


def framed(record: bytes, *, attributes: int = 0, count: int = 1) -> bytes:
    """One batch around the bytes of a record."""
    whole = bytearray(write_batch(base_offset=5, leader_epoch=1, timestamp_ms=9, records=[]) + record)
    struct.pack_into(">i", whole, 8, len(whole) - 12)
    struct.pack_into(">h", whole, 21, attributes)
    struct.pack_into(">i", whole, 57, count)
    return with_right_crcs(whole)


def parts_of(key: bytes, value: bytes) -> list[bytes]:
    """By `PARTS`, with one header."""
    return [
        *(varint(-(2**62), write_varlong), varint(0), varint(len(key)) + key, varint(len(value)) + value),
        *(varint(1), varint(1) + b"h", varint(2) + b"vv"),
    ]


@pytest.mark.parametrize("part", range(len(PARTS)), ids=PARTS)
@pytest.mark.parametrize("attributes", [0, 0x20], ids=["data", "control"])
def test_a_part_that_is_cut_overlong_or_too_large(agree, part: int, attributes: int) -> None:
    value = write_metadata_value("NoOpRecord", 0, {})
    whole = parts_of(write_control_key(99), value)
    sound = agree(framed(record_of(whole), attributes=attributes))
    assert (sound.records, sound.quarantined) == (1, ())
    for instead in (OVERLONG, b"", varint(-1), varint(-2), varint(2**30)):
        for cut in (True, False):
            changed = whole[:part] + [instead] + ([] if cut else whole[part + 1 :])
            agree(framed(record_of(changed), attributes=attributes))
    broken = agree(framed(record_of([*whole[:part], OVERLONG]), attributes=attributes))
    assert broken.quarantined in (("BAD_VARINT",), ("BAD_RECORD",))
    for cut in range(sum(map(len, whole)) + 1):
        agree(framed(record_of([b"".join(whole)[:cut]]), attributes=attributes))
        agree(framed(record_of(whole)[: -cut or None], attributes=attributes))


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\0\0", b"\xff\xff\0\2", b"\x80\0\0\2"])
def test_a_control_key_that_says_no_type(agree, key: bytes) -> None:
    seen = agree(framed(record_of(parts_of(key, b"\0" * 8)), attributes=0x20))
    assert seen.quarantined == ("BAD_RECORD",)


@pytest.mark.parametrize(("attributes", "key"), [(0, b""), (0x20, write_control_key(2))], ids=["data", "control"])
def test_a_record_without_a_value(agree, attributes: int, key: bytes) -> None:
    parts = parts_of(key, b"")
    parts[3] = varint(-1)
    assert agree(framed(record_of(parts), attributes=attributes)).quarantined == ("BAD_RECORD",)


@pytest.mark.parametrize("frame", [b"\x01" + OVERLONG, b"\x01\x14" + OVERLONG, b"\x01\x14", b"\x01", OVERLONG])
def test_a_frame_that_cannot_be_read(agree, frame: bytes) -> None:
    seen = agree(framed(record_of(parts_of(b"", frame))))
    assert seen.quarantined in (("BAD_VARINT",), ("BAD_RECORD",))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_compression_that_is_none(agree, codec: int) -> None:
    seen = agree(framed(record_of(parts_of(b"", b"\x01\x14\0\0")), attributes=codec))
    assert seen.quarantined == ("BAD_COMPRESSION",)


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_a_magic_of_another_format(agree, magic: int) -> None:
    """Its CRC is right where one of magic 2 would stand: the format itself is refused."""
    log = bytearray(framed(record_of(parts_of(b"", b"\x01\x14\0\0"))))
    log[16] = magic
    batches = columns.index_batches(with_right_crcs(log))
    assert str(batches.reason(0)) == "BAD_MAGIC"
    agree(with_right_crcs(log))
