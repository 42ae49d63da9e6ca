"""Damaged bytes: the same rows, the same reasons, the same positions as the reference, whatever was changed."""

from __future__ import annotations

import os
import random
import struct
import tracemalloc

import pytest

from kraft_codec import columns
from kraft_codec.kernels.codes import REASONS
from kraft_codec.records.batch import write_batch
from kraft_codec.records.record import write_metadata_value
from tests.builders.damaged_batches import with_right_crcs

CASES = int(os.environ.get("KRAFT_AUDIT_DAMAGE_CASES", "1500"))


def one_batch(*values: bytes) -> bytes:
    return write_batch(base_offset=1, leader_epoch=1, timestamp_ms=1, records=[(None, value) for value in values])


def mutated(seeded: random.Random, log: bytes) -> bytearray:
    """One to four bytes changed, inserted, removed or swapped for bytes that mean much to a decoder."""
    changed = bytearray(log)
    for _ in range(seeded.randint(1, 4)):
        position = seeded.randrange(len(changed))
        match seeded.randrange(5):
            case 0:
                changed[position] ^= 1 << seeded.randrange(8)
            case 1:
                changed[position] = seeded.choice([0, 1, 2, 0x7F, 0x80, 0xFF, 0xC0, 0xED])
            case 2:
                changed[position : position + 5] = seeded.choice(
                    [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x80"]
                )[: len(changed) - position]
            case 3:
                del changed[position]
            case 4:
                changed.insert(position, seeded.randrange(256))
    return changed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_any_change_with_its_crc_made_right(agree, small_log: bytes, seed: int) -> None:
    seeded = random.Random(seed)  # noqa: S311
    seen = [agree(with_right_crcs(mutated(seeded, small_log))) for _ in range(CASES // 4)]
    reasons = {reason for agreement in seen for reason in agreement.quarantined}
    assert reasons >= {"BAD_RECORD", "BAD_VARINT"}
    assert any(agreement.undecodable > 1 for agreement in seen)


@pytest.mark.slow
def test_any_change_with_its_crc_left_alone(agree, small_log: bytes) -> None:
    seeded = random.Random(1)  # noqa: S311
    seen = [agree(bytes(mutated(seeded, small_log))) for _ in range(CASES // 4)]
    assert {agreement.stop for agreement in seen} >= {None, "TORN_TAIL", "BAD_LENGTH"}


def test_truncation_at_each_length(agree, small_log: bytes) -> None:
    whole = agree(small_log)
    assert (whole.batches, whole.quarantined, whole.stop) == (3, (), None)
    for length in range(len(small_log)):
        agree(small_log[:length], typed=False)


@pytest.mark.slow
def test_each_record_cut_or_lengthened_at_each_byte(agree, small_log: bytes) -> None:
    """Batches whose record count, record length and value length are consistent around a body that is not."""
    batches = columns.index_batches(small_log)
    records = columns.index_records(small_log, batches, rows=[1])
    for position, length in zip(records.value_position.tolist(), records.value_length.tolist(), strict=True):
        value = small_log[position : position + length]
        for size in range(length):
            agree(one_batch(value[:size]))
        agree(one_batch(value + b"\0"))
        for at in range(length):
            for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF):
                agree(one_batch(value[:at] + bytes([byte]) + value[at + 1 :]), typed=byte == 1)


@pytest.mark.parametrize("zeros", [1, 7, 17, 18, 60, 61, 62, 4096])
def test_zero_tails(agree, small_log: bytes, zeros: int) -> None:
    assert agree(small_log + bytes(zeros)).stop == "ZERO_TAIL"


@pytest.mark.parametrize("field", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x30", b"\x04\x00\x00\x01", b"\x00\x00\x00\x00"])
def test_lengths_that_cannot_be(agree, small_log: bytes, field: bytes) -> None:
    assert agree(small_log + b"\x00" * 7 + b"\x09" + field + bytes(100)).stop == "BAD_LENGTH"


def test_all_frames_types_and_versions(agree) -> None:
    no_op = write_metadata_value("NoOpRecord", 0, {})
    for api_key in range(256):
        values = [no_op]
        for version in range(9):
            prefix = bytes([1, api_key]) if api_key < 128 else bytes([1, api_key & 0x7F | 0x80, 1])
            values.append(prefix + bytes([version]) + b"\0")
        agree(one_batch(*values))
    odd = [
        b"\x00\x14\x00\x00",
        b"\x02\x14\x00\x00",
        b"\x01\xff\xff\xff\xff\x0f\x00",
        b"\x01\x14\xff\xff\xff\xff\x0f\x00",
    ]
    assert agree(one_batch(*odd)).undecodable == 4


@pytest.mark.ci
def test_every_two_byte_varint_as_a_count_a_length_and_a_tag(agree) -> None:
    """All 65,536 prefixes as the length of a text, the count of a list, the number of tagged fields.

    With bytes after it that end the integer, it is a length that cannot be; with what does not, one of too many bytes.
    """
    prefixes = [bytes([first, second]) for first in range(256) for second in (range(256) if first >= 0x80 else (0,))]
    endless = [prefix for prefix in prefixes if min(prefix) >= 0x80]
    for starts, rest, reason in ((prefixes, b"\x01" * 40, "BAD_RECORD"), (endless, b"\x80" * 3, "BAD_VARINT")):
        heads = (b"\x01\x0c\x00", b"\x01\x0a\x00\x01\x01", b"\x01\x14\x00")
        seen = agree(b"".join(one_batch(head + prefix + rest) for prefix in starts for head in heads))
        assert seen.batches == len(heads) * len(starts)
        assert set(seen.quarantined) == {reason}
        assert reason == "BAD_RECORD" or len(seen.quarantined) == seen.batches


@pytest.mark.parametrize("count", [2**31 - 1, 2**20, -1, -(2**31), 0, 1])
def test_record_counts_that_are_wrong(agree, small_log: bytes, count: int) -> None:
    for batch in columns.index_batches(small_log).position.tolist():
        changed = bytearray(small_log)
        struct.pack_into(">i", changed, batch + 57, count)
        assert agree(with_right_crcs(changed)).quarantined == ("BAD_RECORD",)


@pytest.mark.parametrize("claimed", [2**31 - 1, 149_000])
def test_a_count_gets_no_memory_before_its_records_are_seen(claimed: int) -> None:
    """A record count that fits the bytes, and list counts that do not: memory stays a few times the bytes."""
    no_op = write_metadata_value("NoOpRecord", 0, {})
    batch = bytearray(one_batch(no_op) + bytes(1 << 20))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, claimed)
    log = with_right_crcs(batch) + one_batch(b"\x01\x05\x02" + bytes(20) + b"\x01\x00\x06\xff\xff\xff\xff\x07")
    columns.index_batches(log)  # loads what it needs once
    tracemalloc.start()
    try:
        records = columns.index_records(log, columns.index_batches(log))
        columns.json_text(records)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(records) == 0
    assert {str(REASONS[status]) for status in records.batch_status} == {"BAD_RECORD"}
    assert peak_bytes < 5 * len(log)


def test_text_that_is_not_utf8(agree) -> None:
    """The borders of what UTF-8 allows, at each distance from the end of eight-byte steps."""
    texts = [
        b"\x80", b"\xbf", b"\xc1\xbf", b"\xc2\x80", b"\xc2", b"\xdf\xbf", b"\xe0\x9f\xbf", b"\xe0\xa0\x80",
        b"\xed\x9f\xbf", b"\xed\xa0\x80", b"\xee\x80\x80", b"\xef\xbf\xbf", b"\xe2\x82",
        b"\xf0\x8f\xbf\xbf", b"\xf0\x90\x80\x80",
        b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xf0\x9f\x98", b"\xf0\x9f\x98\x80",
        b"\xe2\x28\xa1", b"\xe2\x82\x28", b"\xf0\x28\x8c\xbc",
    ]  # fmt: skip
    log = b""
    for text in texts:
        for before in range(10):
            content = b"x" * before + text + b"yz"[: before % 3]
            log += one_batch(b"\x01\x1c\x00" + bytes([len(content) + 1]) + content + b"\0")
    seen = agree(log)
    assert 0 < len(seen.quarantined) < seen.batches
    assert set(seen.quarantined) == {"BAD_STRING"}
