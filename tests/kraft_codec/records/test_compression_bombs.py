"""Payloads that become up to ten gigabytes, or say so: each stops at its cap, and costs no more than that."""

from __future__ import annotations

import itertools
import struct
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from kraft_codec import columns
from kraft_codec.errors import CodecError, Reason
from kraft_codec.kernels.codes import REASONS
from kraft_codec.records.batch import crc32c, read_header, read_records
from kraft_codec.records.compression import Codec, compress, decompress, output_limit_bytes

ONE_MIB = 1 << 20
XERIAL_HEADER_BYTES = 16
MEBIBYTES = (1, 8, 65, 1024, 10 * 1024)
STREAMS = (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
EXPANDING = [
    (codec, count, limit_bytes)
    for codec, count, limit_bytes in itertools.product((*STREAMS, Codec.SNAPPY), MEBIBYTES, (None, 100_000))
    if codec is not Codec.SNAPPY or count <= 1024  # packed 21:1 it would take half a gigabyte itself
]


def zeros(codec: Codec, mebibytes: int) -> bytes:
    """A payload of so many MiB of zeros: one MiB of them over and over, as every reader of streams goes on."""
    packed_mebibyte = compress(codec, bytes(ONE_MIB))
    if codec is Codec.SNAPPY:
        return packed_mebibyte[:XERIAL_HEADER_BYTES] + packed_mebibyte[XERIAL_HEADER_BYTES:] * mebibytes
    return packed_mebibyte * mebibytes


def zstd_that_says(size_bytes: int, window: int) -> bytes:
    """A frame whose header claims a size, with one byte in it; no window means that all of it is held at once."""
    head = b"\x28\xb5\x2f\xfd" + (bytes([0xE0]) if window == 0 else bytes([0xC0, window]))
    return head + struct.pack("<Q", size_bytes) + b"\x0b\x00\x00x"


def gzip_that_says(size_bytes: int) -> bytes:
    return compress(Codec.GZIP, b"records")[:-4] + struct.pack("<I", size_bytes)


def xerial_that_says(length: int) -> bytes:
    return compress(Codec.SNAPPY, b"")[:XERIAL_HEADER_BYTES] + struct.pack(">i", length) + b"\x07\x18records"


CLAIMING = [
    (Codec.SNAPPY, b"\xff\xff\xff\xff\x07" + bytes(50), Reason.DECOMP_LIMIT),
    (Codec.SNAPPY, b"\x80\x80\x80\x80\x04" + bytes(50), Reason.DECOMP_LIMIT),
    (Codec.SNAPPY, b"\xa1\x29" + bytes(50), Reason.DECOMP_LIMIT),  # 5,281 bytes, of 52
    (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(50), Reason.BAD_COMPRESSION),
    (Codec.SNAPPY, b"\x80" * 10 + bytes(50), Reason.BAD_COMPRESSION),
    *(
        (Codec.SNAPPY, xerial_that_says(length), Reason.BAD_COMPRESSION)
        for length in (10, 1 << 20, (1 << 31) - 1, -1, -(1 << 31))
    ),
    *(
        (Codec.ZSTD, zstd_that_says(size, window), Reason.BAD_COMPRESSION)
        for window in (0, 0x58, 0xA0, 0xFF)
        for size in (1 << 27, 10 << 30, (1 << 64) - 3)
    ),
    *((Codec.GZIP, gzip_that_says(size), Reason.BAD_COMPRESSION) for size in (0, (1 << 32) - 1)),
]
assert len(EXPANDING) + len(CLAIMING) >= 50


def ending(codec: Codec, payload: bytes, limit_bytes: int | None = None) -> tuple[int | Reason, int]:
    """(how many bytes it became or why not, how many bytes of memory that took)."""
    pool = pa.default_memory_pool()
    held_bytes = pool.bytes_allocated()
    tracemalloc.start()
    try:
        found: int | Reason = len(decompress(codec, payload, limit_bytes))
    except CodecError as error:
        found = error.reason
    finally:
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return found, peak_bytes + pool.bytes_allocated() - held_bytes


@pytest.mark.slow
@pytest.mark.parametrize(("codec", "mebibytes", "limit_bytes"), EXPANDING)
def test_what_becomes_more_than_its_cap_stops_there(codec: Codec, mebibytes: int, limit_bytes: int | None) -> None:
    payload = zeros(codec, mebibytes)
    cap = output_limit_bytes(len(payload)) if limit_bytes is None else limit_bytes
    found, cost_bytes = ending(codec, payload, limit_bytes)
    assert found == (mebibytes * ONE_MIB if mebibytes * ONE_MIB <= cap else Reason.DECOMP_LIMIT)
    assert cost_bytes < 2 * cap + 4 * ONE_MIB


@pytest.mark.parametrize(
    ("codec", "payload", "reason"), CLAIMING, ids=[f"{case[0].name}-{number}" for number, case in enumerate(CLAIMING)]
)
def test_what_only_claims_to_be_large_is_refused_unread(codec: Codec, payload: bytes, reason: Reason) -> None:
    found, cost_bytes = ending(codec, payload)
    assert found == reason
    assert cost_bytes < ONE_MIB


def batch_of(attributes: int, payload: bytes) -> bytes:
    checked = struct.pack(">hiqqqhii", attributes, 0, 5, 5, -1, -1, -1, 1) + payload
    return struct.pack(">qiibI", 0, len(checked) + 9, 1, 2, crc32c(checked)) + checked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attributes", "reason", "position"),
    [
        *((codec, Reason.DECOMP_LIMIT, 61) for codec in STREAMS),
        *((number, Reason.BAD_COMPRESSION, 21) for number in (5, 6, 7)),
    ],
)
def test_a_batch_of_ten_gigabytes_or_of_no_codec_is_refused_by_both_decoders(
    attributes: int, reason: Reason, position: int
) -> None:
    batch = batch_of(attributes, zeros(Codec(attributes), 10 * 1024) if attributes in STREAMS else b"payload")
    with pytest.raises(CodecError) as refused:
        list(read_records(batch, read_header(batch, 0)))
    assert (refused.value.reason, refused.value.position) == (reason, position)
    found = columns.index_records(batch, columns.index_batches(batch), rows=np.array([0]))
    ((status,), (at,)) = (found.batch_status, found.batch_status_position)
    assert (REASONS[status], at) == (reason, position)
    assert len(found) == 0
