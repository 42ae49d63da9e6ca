"""Compressed payloads: what Kafka's clients wrote is read, round trips, and bombs that stop at their cap."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_codec.errors import CodecError, Reason
from kraft_codec.records.batch import Batch, read_batches, read_records
from kraft_codec.records.compression import OUTPUT_BYTES_MAX, Codec, compress, decompress, output_limit_bytes

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
ONE_MIB = 1024 * 1024


def reason_of(codec: Codec, payload: bytes, limit_bytes: int | None = None) -> Reason:
    with pytest.raises(CodecError) as caught:
        decompress(codec, payload, limit_bytes, position=33)
    assert caught.value.position == 33
    return caught.value.reason


def test_the_batches_that_kafkas_clients_compressed_hold_the_same_records(small_corpus: Path) -> None:
    log = small_corpus / "crafted" / "compressed-batches" / "__cluster_metadata-0" / "00000000000000000000.log"
    data = log.read_bytes()
    batches = [found.header for found in read_batches(data) if isinstance(found, Batch)]
    assert [header.codec for header in batches] == [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD, Codec.NONE]
    for header in batches:
        values = [record.value or b"" for record in read_records(data, header)]
        names = [f"c{header.codec.name.lower()}{number}".encode() for number in range(40)]
        assert len(values) == 40
        assert all(name in value for name, value in zip(names, values, strict=True))


@pytest.mark.parametrize("codec", Codec)
@given(data=st.binary(max_size=300), repeats=st.sampled_from([1, 7]))
def test_what_is_compressed_is_read_back_and_compressed_the_same(codec: Codec, data: bytes, repeats: int) -> None:
    original = data * repeats
    payload = compress(codec, original)
    assert payload == compress(codec, original)
    assert decompress(codec, payload, len(original)) == original


@pytest.mark.parametrize("codec", Codec)
def test_more_than_one_block_goes_through(codec: Codec) -> None:
    data = random.Random(5).randbytes(3 * ONE_MIB)  # noqa: S311
    assert decompress(codec, memoryview(compress(codec, data))) == data


def test_snappy_is_read_without_its_framing_too() -> None:
    block = pa.compress(b"orders" * 100, codec="snappy", asbytes=True)
    assert decompress(Codec.SNAPPY, block) == b"orders" * 100


def test_gzip_members_in_a_row_are_one_payload() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"abc") + gzip.compress(b"def")) == b"abcdef"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_one_byte_above_the_limit_is_too_much(codec: Codec) -> None:
    payload = compress(codec, bytes(range(256)) * 20)
    assert len(decompress(codec, payload, 5120)) == 5120
    assert reason_of(codec, payload, 5119) is Reason.DECOMP_LIMIT
    assert reason_of(codec, payload, 0) is Reason.DECOMP_LIMIT


def gzip_bomb() -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join([*(packer.compress(bytes(ONE_MIB)) for _ in range(200)), packer.flush()])


def lz4_or_zstd_bomb(codec: Codec) -> bytes:
    return bytes(pa.compress(bytes(100 * ONE_MIB), codec=codec.name.lower(), asbytes=True))


def snappy_bomb() -> bytes:
    block = pa.compress(bytes(32 * 1024), codec="snappy", asbytes=True)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 4000


BOMBS = {
    Codec.GZIP: gzip_bomb,
    Codec.SNAPPY: snappy_bomb,
    Codec.LZ4: lambda: lz4_or_zstd_bomb(Codec.LZ4),
    Codec.ZSTD: lambda: lz4_or_zstd_bomb(Codec.ZSTD),
}


@pytest.mark.slow
@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_stops_at_its_cap_and_costs_no_more(codec: Codec) -> None:
    bomb = BOMBS[codec]()
    cap = output_limit_bytes(len(bomb))
    pool = pa.default_memory_pool()
    arrow_before = pool.bytes_allocated()
    tracemalloc.start()
    try:
        if codec is Codec.SNAPPY:  # packs 21:1 at best, so that only the absolute cap can stop it
            assert reason_of(codec, bomb, 8 * ONE_MIB) is Reason.DECOMP_LIMIT
            cap = 8 * ONE_MIB
        else:
            assert reason_of(codec, bomb) is Reason.DECOMP_LIMIT
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * cap + len(bomb) + 4 * ONE_MIB
    assert pool.bytes_allocated() - arrow_before <= 4 * ONE_MIB


def test_the_cap_is_a_hundred_times_the_input_and_64_mib_at_most() -> None:
    assert output_limit_bytes(10) == 1000
    assert output_limit_bytes(ONE_MIB) == OUTPUT_BYTES_MAX == 64 * ONE_MIB


def test_a_snappy_block_that_claims_gigabytes_is_refused_unread() -> None:
    claim = b"\xff\xff\xff\xff\x07" + bytes(50)
    assert reason_of(Codec.SNAPPY, claim) is Reason.DECOMP_LIMIT
    assert reason_of(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(50)) is Reason.BAD_COMPRESSION


@pytest.mark.parametrize("codec", COMPRESSED)
def test_cut_foreign_and_trailing_bytes_are_refused(codec: Codec) -> None:
    payload = compress(codec, b"some records" * 50)
    assert reason_of(codec, b"") is Reason.BAD_COMPRESSION
    assert reason_of(codec, payload[:-3]) is Reason.BAD_COMPRESSION
    assert reason_of(codec, payload[: len(payload) // 2]) is Reason.BAD_COMPRESSION
    assert reason_of(codec, payload + b"\x07\x07\x07") is Reason.BAD_COMPRESSION
    assert reason_of(codec, b"\xff\xfe\xfd\xfc" * 9, 10_000) in (Reason.BAD_COMPRESSION, Reason.DECOMP_LIMIT)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_refusal_says_what_the_library_said(codec: Codec) -> None:
    foreign = b"\xff\xfe\xfd\xfc" * 9
    with pytest.raises(OSError, match=r"\w") as said:
        pa.CompressedInputStream(pa.BufferReader(foreign), codec.name.lower()).read()
    with pytest.raises(CodecError) as refused:
        decompress(codec, foreign, 10_000)
    assert refused.value.detail == f"{codec.name.lower()}: {str(said.value).splitlines()[0]}"


def test_a_refusal_without_words_names_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytearray:
        raise EOFError

    monkeypatch.setattr("kraft_codec.records.compression._read_stream", fail)
    with pytest.raises(CodecError) as refused:
        decompress(Codec.GZIP, b"bytes")
    assert refused.value.detail == "gzip: EOFError"


@pytest.mark.parametrize("codec", COMPRESSED)
@given(seed=st.integers(0, 2**32))
def test_mutated_payloads_raise_nothing_but_codec_errors(codec: Codec, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    payload = bytearray(compress(codec, bytes(range(200)) * 4))
    for _ in range(chance.randrange(1, 4)):
        payload[chance.randrange(len(payload))] = chance.randrange(256)
    try:
        assert len(decompress(codec, payload)) <= output_limit_bytes(len(payload))
    except CodecError as error:
        assert error.reason in (Reason.BAD_COMPRESSION, Reason.DECOMP_LIMIT)  # noqa: PT017


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=80))
def test_random_payloads_raise_nothing_but_codec_errors(codec: Codec, data: bytes) -> None:
    try:
        decompress(codec, data)
    except CodecError as error:
        assert error.reason in (Reason.BAD_COMPRESSION, Reason.DECOMP_LIMIT)  # noqa: PT017


@pytest.mark.parametrize("length", [*range(8, 16), *range(17, 24)])
def test_a_snappy_frame_that_is_cut_in_its_header_or_block_length(length: int) -> None:
    """The header of the framing takes 16 bytes, then a block begins with four bytes of length."""
    assert reason_of(Codec.SNAPPY, compress(Codec.SNAPPY, b"records" * 40)[:length]) is Reason.BAD_COMPRESSION
