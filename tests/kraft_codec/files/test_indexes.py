"""Indexes and producer state, against the files that Kafka wrote and the segments that they describe."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_codec.errors import CodecError, Reason
from kraft_codec.files.indexes import (
    PREALLOCATED_OFFSET_INDEX_BYTES,
    PREALLOCATED_TIME_INDEX_BYTES,
    OffsetIndex,
    ProducerEntry,
    TimeIndex,
    format_offset_index,
    format_producer_state,
    format_time_index,
    parse_offset_index,
    parse_producer_state,
    parse_time_index,
)
from kraft_codec.records.batch import Batch, read_batches

MOST_FILES = 60  # an index is mostly ten megabytes of zeros: the smallest ones of each kind will do


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(1 << 16)


def _files(scenarios: list[Path], pattern: str) -> list[Path]:
    paths = [path for scenario in scenarios for path in scenario.glob(f"*/node-*/__cluster_metadata-0/{pattern}")]
    return sorted(paths, key=lambda path: (path.stat().st_size, path))[:MOST_FILES]


@pytest.mark.parametrize(
    ("pattern", "parse", "format_"),
    [
        ("*.index", parse_offset_index, format_offset_index),
        ("*.timeindex", parse_time_index, format_time_index),
        ("*.snapshot", parse_producer_state, format_producer_state),
    ],
)
def test_what_kafka_wrote_is_written_back(
    scenarios: list[Path], pattern: str, parse: Callable[[bytes], Any], format_: Callable[[Any], bytes]
) -> None:
    paths = _files(scenarios, pattern)
    assert len(paths) > 10
    for path in paths:
        data = path.read_bytes()
        assert format_(parse(data)) == data, path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "parse", "format_"),
    [("*.index", parse_offset_index, format_offset_index), ("*.timeindex", parse_time_index, format_time_index)],
)
def test_every_index_of_every_capture_is_written_back(
    scenarios: list[Path], pattern: str, parse: Callable[[bytes], Any], format_: Callable[[Any], bytes]
) -> None:
    paths = (path for scenario in scenarios for path in scenario.glob(f"*/node-*/__cluster_metadata-0/{pattern}"))
    # Most captures of one scenario hold the same entries, with zeros after them as far as Kafka reserves.
    distinct = {(path.stat().st_size, _first_bytes(path)): path for path in paths}
    assert len(distinct) > 10
    for path in distinct.values():
        data = path.read_bytes()
        assert format_(parse(data)) == data, path


def test_entries_point_at_batches(scenarios: list[Path]) -> None:
    entry_count = 0
    for path in _files(scenarios, "*.index"):
        index = parse_offset_index(path.read_bytes())
        times = parse_time_index(path.with_suffix(".timeindex").read_bytes())
        if not len(index.positions):
            continue
        base_offset = int(path.stem)
        headers = [
            item.header for item in read_batches(path.with_suffix(".log").read_bytes()) if isinstance(item, Batch)
        ]
        batches = {header.position: header for header in headers}
        for relative_offset, position in zip(index.relative_offsets, index.positions, strict=True):
            assert batches[int(position)].last_offset == base_offset + int(relative_offset), path
            entry_count += 1
        last_offsets = {header.last_offset: header.max_timestamp_ms for header in headers}
        for relative_offset, timestamp_ms in zip(times.relative_offsets, times.timestamps_ms, strict=True):
            assert last_offsets[base_offset + int(relative_offset)] == int(timestamp_ms), path
    assert entry_count > 10


def test_an_unused_preallocated_index_is_zeros_only() -> None:
    empty = np.zeros(0, np.int32)
    assert format_offset_index(OffsetIndex(empty, empty, PREALLOCATED_OFFSET_INDEX_BYTES)) == bytes(10_485_760)
    times = TimeIndex(np.zeros(0, np.int64), empty, PREALLOCATED_TIME_INDEX_BYTES)
    assert format_time_index(times) == bytes(10_485_756)
    assert len(parse_offset_index(bytes(10_485_760)).positions) == 0


def test_entries_that_do_not_fit_are_not_written() -> None:
    with pytest.raises(ValueError, match="1 entries take 8 bytes, more than 7"):
        format_offset_index(OffsetIndex(np.ones(1, np.int32), np.ones(1, np.int32), 7))


@pytest.mark.parametrize(
    ("data", "position"),
    [
        (b"\0" * 9, 8),
        (struct.pack(">iiii", 5, 100, 5, 200), 8),
        (struct.pack(">iiii", 5, 100, 6, 100), 8),
        (struct.pack(">iiiiii", 5, 100, 6, 101, 4, 102), 16),
        (struct.pack(">ii", -1, 100), 0),
        (struct.pack(">ii", 1, -100), 0),
    ],
)
def test_a_damaged_offset_index(data: bytes, position: int) -> None:
    with pytest.raises(CodecError) as caught:
        parse_offset_index(data)
    assert (caught.value.reason, caught.value.position) == (Reason.BAD_FILE, position)


def test_a_damaged_time_index() -> None:
    for data, position in (
        (b"\1" * 13, 12),
        (struct.pack(">qiqi", 10, 1, 10, 2), 12),
        (struct.pack(">qiqi", 10, 2, 11, 1), 12),
    ):
        with pytest.raises(CodecError) as caught:
            parse_time_index(data)
        assert (caught.value.reason, caught.value.position) == (Reason.BAD_FILE, position)


def test_no_producers_are_ten_known_bytes() -> None:
    assert format_producer_state().hex() == "000148674bc700000000"
    assert parse_producer_state(bytes.fromhex("000148674bc700000000")) == ()


@given(st.lists(st.tuples(*[st.integers(-(2**15), 2**15 - 1)] * 8), max_size=5))
def test_producers_come_back(rows: list[tuple[int, int, int, int, int, int, int, int]]) -> None:
    entries = tuple(ProducerEntry(*row) for row in rows)
    data = format_producer_state(entries)
    assert len(data) == 10 + 46 * len(entries)
    assert parse_producer_state(data) == entries


def test_a_damaged_producer_state() -> None:
    data = format_producer_state((ProducerEntry(1, 2, 3, 4, 5, 6, 7, 8),))
    for length in range(len(data)):
        with pytest.raises(CodecError):
            parse_producer_state(data[:length])
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CodecError) as caught:
            parse_producer_state(bytes(flipped))
        assert caught.value.reason is (Reason.BAD_FILE if bit < 16 else Reason.BAD_CRC)


def test_a_count_of_billions_costs_nothing() -> None:
    body = struct.pack(">i", 2**31 - 1)
    crc = struct.unpack(">I", format_producer_state()[2:6])[0]
    with pytest.raises(CodecError):
        parse_producer_state(struct.pack(">hI", 1, crc) + body)


def test_files_beyond_all_measure_are_refused_unread() -> None:
    for parse in (parse_offset_index, parse_time_index, parse_producer_state):
        with pytest.raises(CodecError) as caught:
            parse(bytes((64 << 20) + 12))
        assert caught.value.reason is Reason.LIMIT


@pytest.mark.parametrize("count", [-1, 1, 2**31 - 1])
def test_a_count_under_a_right_crc_that_is_not_that_of_the_entries(count: int) -> None:
    body = struct.pack(">i", count)
    data = struct.pack(">hI", 1, google_crc32c.value(body)) + body
    with pytest.raises(CodecError, match="entries do not fit 10 bytes") as problem:
        parse_producer_state(data)
    assert problem.value.reason is Reason.BAD_FILE
