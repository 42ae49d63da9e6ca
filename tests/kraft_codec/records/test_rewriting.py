"""Batches written again: what stays, what goes, and that the readable reference reads the same from them."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_codec.columns import index_batches, index_records
from kraft_codec.columns.rewriting import NO_OP_VALUE, records_to_rewrite, rewritten, unknown_value, with_new_crc
from kraft_codec.errors import Reason
from kraft_codec.records.batch import Batch, RawRecord, read_batches, read_records, write_batch
from kraft_codec.records.compression import Codec
from kraft_codec.records.record import UnknownRecordError, read_metadata_value, write_control_key, write_metadata_value
from kraft_codec.records.varint import write_varint, write_varlong

TOPIC = write_metadata_value("TopicRecord", 0, {"name": "orders", "topicId": b"t" * 16})
UNKNOWN = b"\x01\x7e\x00" + b"canary-of-an-unknown-type"


def only_batch(content: bytes) -> tuple[Any, list[RawRecord]]:
    (found,) = read_batches(content)
    assert isinstance(found, Batch)
    assert found.damage is None
    return found.header, list(read_records(content, found.header))


def with_records(*records: bytes, is_control: bool = False) -> bytes:
    """A batch of records as given, byte for byte."""
    batch = bytearray(
        write_batch(base_offset=7, leader_epoch=3, timestamp_ms=5, records=[(None, b"")], is_control=is_control)
    )[:61]
    struct.pack_into(">i", batch, 23, len(records) - 1)
    struct.pack_into(">i", batch, 57, len(records))
    batch += b"".join(records)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    return with_new_crc(batch)


def record(
    offset_delta: int, key: bytes | None, value: bytes | None, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> bytes:
    inner = bytearray(1)
    write_varlong(inner, 11 + offset_delta)
    write_varint(inner, offset_delta)
    for part in (key, value):
        write_varint(inner, -1 if part is None else len(part))
        inner += part or b""
    write_varint(inner, len(headers))
    for name, content in headers:
        write_varint(inner, len(name))
        inner += name
        write_varint(inner, len(content))
        inner += content
    out = bytearray()
    write_varint(out, len(inner))
    return bytes(out + inner)


ODD = {
    "unknown": record(0, None, UNKNOWN),
    "key": record(0, b"canary", TOPIC),
    "header": record(0, None, TOPIC, ((b"name", b"canary"),)),
}


@pytest.mark.parametrize("what", ODD)
def test_what_cannot_stay_is_found_and_goes(what: str) -> None:
    content = with_records(ODD[what], record(1, None, TOPIC))
    index = index_records(bytearray(content), index_batches(content))
    assert records_to_rewrite(index).tolist() == [True, False]
    unknown = {7: NO_OP_VALUE} if what == "unknown" else {}
    again = rewritten(content, Codec.NONE, unknown)
    assert b"canary" not in again
    header, records = only_batch(again)
    assert (header.base_offset, header.last_offset, header.leader_epoch, header.record_count) == (7, 8, 3, 2)
    assert [(record.offset, record.timestamp_ms) for record in records] == [(7, 16), (8, 17)]
    assert [record.value for record in records] == [NO_OP_VALUE if unknown else TOPIC, TOPIC]
    assert [(record.key, record.headers) for record in records] == [(None, ())] * 2


def test_an_unknown_control_record_keeps_its_type_and_length() -> None:
    key = write_control_key(99) + b"canary"
    content = with_records(record(0, key, b"canary-value"), is_control=True)
    index = index_records(bytearray(content), index_batches(content))
    assert records_to_rewrite(index).all()
    _, (only,) = only_batch(rewritten(content, Codec.NONE, {7: NO_OP_VALUE}))
    assert (only.key, only.value) == (write_control_key(99), bytes(12))


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compressed_batch_is_compressed_as_it_was(codec: Codec) -> None:
    image = with_records(record(0, None, UNKNOWN), *(record(number, None, TOPIC) for number in range(1, 40)))
    header, records = only_batch(rewritten(image, codec, {7: NO_OP_VALUE}))
    assert header.codec is codec
    assert [record.value for record in records] == [NO_OP_VALUE] + [TOPIC] * 39


@given(st.lists(st.tuples(st.integers(-5, 1 << 40), st.binary(max_size=40)), min_size=1, max_size=8), st.data())
def test_all_but_the_unknown_stays(values: list[tuple[int, bytes]], data: st.DataObject) -> None:
    times = [time_ms for time_ms, _ in values]
    batch = write_batch(
        base_offset=100,
        leader_epoch=2,
        timestamp_ms=0,
        records=[(None, value) for _, value in values],
        timestamps_ms=times,
    )
    unknown = dict.fromkeys(data.draw(st.sets(st.integers(100, 99 + len(values)))), NO_OP_VALUE)
    before, after = only_batch(batch), only_batch(rewritten(batch, Codec.NONE, unknown))
    for name in ("base_offset", "last_offset", "leader_epoch", "base_timestamp_ms", "max_timestamp_ms", "attributes"):
        assert getattr(before[0], name) == getattr(after[0], name)
    for original, rewritten_record in zip(before[1], after[1], strict=True):
        assert (original.offset, original.timestamp_ms) == (rewritten_record.offset, rewritten_record.timestamp_ms)
        assert rewritten_record.value == (NO_OP_VALUE if original.offset in unknown else original.value)
    if not unknown:
        assert rewritten(batch, Codec.NONE, {}) == batch


@pytest.mark.parametrize(
    ("api_key", "version", "reason"),
    [
        (126, 0, Reason.UNKNOWN_RECORD_TYPE),
        (300, 70_000, Reason.UNKNOWN_RECORD_TYPE),
        (2, 9, Reason.UNKNOWN_RECORD_VERSION),
        (2, 0, Reason.UNKNOWN_FRAME_VERSION),
        (None, None, Reason.UNKNOWN_FRAME_VERSION),
    ],
)
def test_what_stands_for_an_unknown_record_reads_as_unknown(
    api_key: int | None, version: int | None, reason: Reason
) -> None:
    with pytest.raises(UnknownRecordError) as refused:
        read_metadata_value(unknown_value(api_key, version))
    assert refused.value.reason is reason
    if reason is not Reason.UNKNOWN_FRAME_VERSION:
        assert (refused.value.api_key, refused.value.version) == (api_key, version)
