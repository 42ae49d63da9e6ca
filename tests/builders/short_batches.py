"""Batches of given values, and which error is found in them, and where."""

from __future__ import annotations

import struct

import pytest

from kraft_codec.errors import CodecError, Reason
from kraft_codec.records.batch import crc32c, read_header, write_batch
from kraft_codec.records.record import DecodedRecord, decode_records, write_metadata_value

TOPIC = write_metadata_value("TopicRecord", 0, {"name": "orders", "topicId": bytes(range(16))})
NO_OP = write_metadata_value("NoOpRecord", 0, {})
RECORD = bytes.fromhex("14000000") + b"\x01" + bytes([2 * len(NO_OP)]) + NO_OP + b"\x00"
"""One record, "0e 00 00 00 01 02 NO_OP 00": length, attributes, timestamp, offset, key, value, headers."""
START = 7  # batches stand after some bytes, so that positions prove to be absolute


def batch_of(*values: bytes | None, is_control: bool = False, key: bytes | None = None) -> bytes:
    return write_batch(
        base_offset=100,
        leader_epoch=2,
        timestamp_ms=1_700_000_000_000,
        records=[(key, value) for value in values],
        is_control=is_control,
    )


def with_body(body: bytes, record_count: int, attributes: int = 0) -> bytes:
    """A batch with a right CRC around any bytes."""
    checked = struct.pack(">hiqqqhii", attributes, record_count - 1, 5, 5, -1, -1, -1, record_count) + body
    return struct.pack(">qiibI", 0, len(checked) + 9, 1, 2, crc32c(checked)) + checked


def decoded(batch: bytes) -> list[DecodedRecord]:
    return decode_records(bytes(START) + batch, read_header(bytes(START) + batch, START))


def error_of(batch: bytes) -> tuple[Reason, int]:
    """The reason, and the position counted from the batch's first byte."""
    with pytest.raises(CodecError) as caught:
        decoded(batch)
    return caught.value.reason, caught.value.position - START
