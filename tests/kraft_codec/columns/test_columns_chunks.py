"""Reading in chunks gives what reading at once gives; and batches may be chosen by row."""

from __future__ import annotations

import numpy as np
import pytest

from kraft_codec import columns
from kraft_codec.columns.batches import BATCH_COLUMNS, kernel_crc32c


def test_a_cut_at_each_byte(small_log: bytes) -> None:
    whole = columns.index_batches(small_log)
    for cut in range(len(small_log) + 1):
        first = columns.index_batches(small_log[:cut], is_last=False)
        if first.stop is not None:
            assert first.stop.reason is None
            assert first.stop.position == first.consumed_bytes
        rest = columns.index_batches(small_log[first.consumed_bytes :], is_last=True)
        for name in BATCH_COLUMNS:
            column = np.concatenate([getattr(first, name), getattr(rest, name)])
            if name == "position":
                column[len(first) :] += first.consumed_bytes
            np.testing.assert_array_equal(column, getattr(whole, name))


def test_damage_is_reported_as_soon_as_its_header_is_there(small_log: bytes) -> None:
    for tail, reason in ((bytes(61), "ZERO_TAIL"), (b"\x01" * 8 + bytes(4) + b"\x01" * 49, "BAD_LENGTH")):
        assert columns.index_batches(small_log + tail, is_last=False).stop.reason == reason
        assert columns.index_batches((small_log + tail)[:-1], is_last=False).stop.reason is None


def test_a_part_of_a_buffer(small_log: bytes) -> None:
    whole = columns.index_batches(small_log)
    second = int(whole.position[1])
    part = columns.index_batches(b"before" + small_log + b"after", 6 + second, 6 + len(small_log))
    np.testing.assert_array_equal(part.position, whole.position[1:] + 6)
    assert part.stop is None
    with pytest.raises(ValueError, match="expected a range of the buffer's"):
        columns.index_batches(small_log, 5, len(small_log) + 1)


def test_batches_chosen_by_row_in_any_order(small_log: bytes) -> None:
    batches = columns.index_batches(small_log)
    whole = columns.json_text(columns.index_records(small_log, batches)).to_pylist()
    chosen = columns.index_records(small_log, batches, rows=[2, 0])
    assert chosen.batch_row.tolist() == [2] * 3 + [0] * 4
    assert columns.json_text(chosen).to_pylist() == whole[13:] + whole[:4]
    with pytest.raises(ValueError, match="not of this buffer"):
        columns.index_records(small_log[:-1], batches)


@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 0, 1], [2, 2, 0, 2], [1], []])
def test_where_compressed_records_stand_whatever_the_order(small_log: bytes, rows: list[int]) -> None:
    batches = columns.index_batches(small_log)
    assert batches.codec.tolist() == [0, 0, 1]
    chosen = columns.index_records(small_log, batches, rows=rows)
    assert chosen.batch_row.tolist() == np.repeat(rows, batches.record_count[rows]).tolist()
    compressed_at = int(batches.position[2]) + 61
    assert chosen.packed_position.tolist() == [compressed_at if row == 2 else -1 for row in chosen.batch_row]


def test_rows_are_not_counted_from_the_end(small_log: bytes) -> None:
    with pytest.raises(ValueError, match="row -1"):
        columns.index_records(small_log, columns.index_batches(small_log), rows=[0, -1])


def test_each_compressed_batch_is_a_group_of_its_own(small_log: bytes) -> None:
    batches = columns.index_batches(small_log * 2)
    groups = [group.tolist() for group in columns.row_groups(batches, np.arange(6))]
    assert groups == [[0, 1], [2], [3, 4], [5]]
    assert [group.tolist() for group in columns.row_groups(batches, [0, 3, 4])] == [[0, 3, 4]]
    assert list(columns.row_groups(batches, [])) == []


def test_batches_that_cannot_be_trusted_are_read_when_asked_for(small_log: bytes) -> None:
    damaged = bytearray(small_log)
    damaged[17] ^= 1
    batches = columns.index_batches(damaged)
    assert str(batches.reason(0)) == "BAD_CRC"
    assert columns.index_records(damaged, batches).selected.tolist() == [1, 2]
    assert len(columns.index_records(damaged, batches, rows=[0])) == 4


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_every_kind_of_buffer(small_log: bytes, kind) -> None:
    buffer = kind(small_log)
    records = columns.index_records(buffer, columns.index_batches(buffer), rows=[0, 1])
    assert len(records) == 13
    assert np.shares_memory(records.buffer, np.frombuffer(buffer, np.uint8))


def test_nothing_at_all() -> None:
    batches = columns.index_batches(b"")
    assert (len(batches), batches.consumed_bytes, batches.stop) == (0, 0, None)
    records = columns.index_records(b"", batches)
    assert columns.json_text(records).to_pylist() == []


@pytest.mark.parametrize("size_bytes", [*range(26), 255, 767, 768, 769, 775, 776, 1536, 5000])
def test_crc32c_of_every_length(size_bytes: int) -> None:
    google_crc32c = pytest.importorskip("google_crc32c")
    content = np.random.default_rng(size_bytes).bytes(size_bytes)
    assert kernel_crc32c(content) == google_crc32c.value(content)
