"""Batches of given values, and which error is found in them, and where."""

from __future__ import annotations

import pytest

from kraft_codec.errors import CodecError, Reason
from kraft_codec.records.batch import read_header, write_batch
from kraft_codec.records.record import DecodedRecord, decode_records, write_metadata_value

TOPIC = write_metadata_value("TopicRecord", 0, {"name": "orders", "topicId": bytes(range(16))})
NO_OP = write_metadata_value("NoOpRecord", 0, {})
START = 7  # batches stand after some bytes, so that positions prove to be absolute


def batch_of(*values: bytes | None, is_control: bool = False, key: bytes | None = None) -> bytes:
    return write_batch(
        base_offset=100,
        leader_epoch=2,
        timestamp_ms=1_700_000_000_000,
        records=[(key, value) for value in values],
        is_control=is_control,
    )


def decoded(batch: bytes) -> list[DecodedRecord]:
    return decode_records(bytes(START) + batch, read_header(bytes(START) + batch, START))


def error_of(batch: bytes) -> tuple[Reason, int]:
    """The reason, and the position counted from the batch's first byte."""
    with pytest.raises(CodecError) as caught:
        decoded(batch)
    return caught.value.reason, caught.value.position - START
