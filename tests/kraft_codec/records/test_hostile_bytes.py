"""Random, mutated and absurd bytes: nothing but CodecError, and no memory for what is not there."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_codec.errors import CodecError, Reason
from kraft_codec.records.batch import HEADER_BYTES, Batch, Stop, crc32c, read_batches, read_header
from kraft_codec.records.record import decode_records, write_metadata_value
from tests.builders.short_batches import NO_OP, RECORD, batch_of, with_body

PARTITION = write_metadata_value("PartitionRecord", 0, {"replicas": [1, 2]})
GOOD = batch_of(NO_OP, PARTITION)


def peak_bytes(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


HUGE_VARINTS = [b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08", b"\xfe\xff\xff\xff\x07", b"\x80\x80\x80\x80\x04"]


def test_absurd_lengths_and_counts_cost_no_memory() -> None:
    def run() -> None:
        for huge in HUGE_VARINTS:
            for position in range(3, len(PARTITION)):
                value = PARTITION[:position] + huge + PARTITION[position:]
                with pytest.raises(CodecError):
                    decode_records(batch_of(value), read_header(batch_of(value), 0))
            for position in range(len(RECORD)):
                batch = with_body(RECORD[:position] + huge + RECORD[position:] + b"\xff", 1)
                with pytest.raises(CodecError):
                    decode_records(batch, read_header(batch, 0))

    assert peak_bytes(run) < 1_000_000


@pytest.fixture(scope="module")
def real_batches(small_corpus: Path) -> list[bytes]:
    """All record types in all versions, from a log that Kafka's own serializers wrote."""
    log = small_corpus / "crafted" / "all-records-all-versions" / "__cluster_metadata-0" / "00000000000000000000.log"
    data = log.read_bytes()
    return [
        data[batch.header.position :][: batch.header.size_bytes]
        for batch in read_batches(data)
        if isinstance(batch, Batch)
    ]


def mutated(batch: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, removed or added, under a CRC that is right again."""
    damaged = bytearray(batch)
    for _ in range(chance.choice((1, 1, 2, 5))):
        position = chance.randrange(21, len(damaged))
        match chance.randrange(4):
            case 0:
                del damaged[position : position + chance.randrange(1, 9)]
            case 1:
                damaged[position:position] = chance.randbytes(chance.randrange(1, 9))
            case _:
                damaged[position : position + 1] = chance.choice((b"\x00", b"\x80", b"\xff", chance.randbytes(1)))
    damaged += bytes(max(0, HEADER_BYTES - len(damaged)))
    struct.pack_into(">i", damaged, 8, len(damaged) - 12)
    struct.pack_into(">I", damaged, 17, crc32c(damaged[21:]))
    return bytes(damaged)


def read_all(buffer: bytes) -> int:
    records = 0
    for found in read_batches(buffer):
        if isinstance(found, Batch):
            try:
                records += len(decode_records(buffer, found.header))
            except CodecError as error:
                position = error.position
                assert found.header.position <= position <= found.header.position + found.header.size_bytes
    return records


@given(st.integers(0, 2**32))
def test_mutated_batches_raise_nothing_but_codec_errors_inside_the_batch(real_batches: list[bytes], seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    damaged = [mutated(chance.choice(real_batches), chance) for _ in range(8)]
    assert read_all(b"".join([*damaged, GOOD])) >= 2


@given(st.binary(max_size=400))
def test_random_bytes_raise_nothing_but_codec_errors(data: bytes) -> None:
    read_all(data)
    read_all(with_body(data, 1))
    read_all(batch_of(data))
    read_all(batch_of(b"\x01" + data))


@given(st.integers(0, 2**32))
def test_a_batch_cut_anywhere_gives_a_torn_tail(real_batches: list[bytes], seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    batch = chance.choice(real_batches)
    cut = chance.randrange(13, len(batch))
    stop = list(read_batches(batch + batch[:cut]))[-1]
    assert isinstance(stop, Stop)
    assert (stop.reason, stop.position, stop.length_bytes) == (Reason.TORN_TAIL, len(batch), cut)
