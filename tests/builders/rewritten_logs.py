"""Segments, snapshots and indexes with other names in them: each record is read, renamed and written by its schema."""

from __future__ import annotations

import struct
from bisect import bisect_right
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path

import numpy as np

from kraft_codec.errors import CodecError
from kraft_codec.file_names import segment_name
from kraft_codec.files.indexes import (
    OffsetIndex,
    TimeIndex,
    format_offset_index,
    format_time_index,
    parse_offset_index,
    parse_time_index,
)
from kraft_codec.records.batch import (
    CRC_POSITION,
    HEADER_BYTES,
    LENGTH_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TIMES_POSITIONS,
    Batch,
    BatchHeader,
    RawRecord,
    Stop,
    computed_crc,
    read_batches,
    read_header,
    read_records,
    write_batch,
)
from kraft_codec.records.compression import compress
from kraft_codec.records.record import (
    UnknownRecordError,
    decode_records,
    read_control_key,
    read_control_value,
    read_metadata_value,
    write_control_value,
    write_metadata_value,
)
from kraft_codec.records.varint import write_varint, write_varlong
from kraft_codec.schemas import CONTROL_TYPES, Dialect
from tests.builders.renaming import ADDED_OFFSETS, NO_OFFSET_MOVES, Renaming

TRANSACTION_ENDS = ("EndTransactionRecord", "AbortTransactionRecord")


def end_of_first_data(folder: Path) -> int | None:
    """The offset after the first batch with data of a log that begins at 0, its transaction included; NO_OFFSET_MOVES
    where there is none, None where the log begins later."""
    segment = folder / segment_name(0)
    content = segment.read_bytes() if segment.is_file() else b""
    first = next(read_batches(content), None)
    if not isinstance(first, Batch) or first.header.base_offset != 0:
        return None
    is_in_transaction = False
    for batch in read_batches(content):
        if isinstance(batch, Stop) or batch.damage is not None:
            break
        if batch.header.is_control:
            continue
        for record in decode_records(content, batch.header):
            name = record.message.name if record.message else ""
            is_in_transaction = (is_in_transaction or name == "BeginTransactionRecord") and name not in TRANSACTION_ENDS
        if not is_in_transaction:
            return batch.header.last_offset + 1
    return NO_OFFSET_MOVES


def rewritten_segment(content: bytes, renaming: Renaming) -> bytes:
    """The batches of a segment, renamed, with the added records where they belong."""
    return b"".join(piece for _, _, piece in _segment_pieces(content, renaming))


def rewritten_snapshot(content: bytes, renaming: Renaming) -> bytes:
    """The same of a snapshot, whose batches count from 0 whatever its offset."""
    return b"".join(_rewritten_batch(content, found, renaming, None) for found in read_batches(content))


def rewritten_offset_index(content: bytes, segment: Path, base_offset: int, renaming: Renaming) -> bytes:
    """Entries with other offsets, and the positions that the batches have now."""
    index = parse_offset_index(content)
    old, new = [0], [0]
    position = 0
    for start, _, piece in _segment_pieces(segment.read_bytes() if segment.is_file() else b"", renaming):
        if start >= 0:
            old.append(start)
            new.append(position)
        position += len(piece)
    positions = []
    for entry in index.positions.tolist():
        nearest = bisect_right(old, entry) - 1
        positions.append(new[nearest] + entry - old[nearest])
    relative = _moved_offsets(index.relative_offsets, base_offset, renaming)
    return format_offset_index(OffsetIndex(relative, np.array(positions, np.int32), index.size_bytes))


def rewritten_time_index(content: bytes, base_offset: int, renaming: Renaming) -> bytes:
    """Entries with other times and offsets."""
    index = parse_time_index(content)
    times = np.array([renaming.time(time_ms) for time_ms in index.timestamps_ms.tolist()], np.int64)
    return format_time_index(
        TimeIndex(times, _moved_offsets(index.relative_offsets, base_offset, renaming), index.size_bytes)
    )


def _moved_offsets(relative: np.ndarray, base_offset: int, renaming: Renaming) -> np.ndarray:
    new_base = renaming.offset(base_offset)
    return np.array([renaming.offset(base_offset + each) - new_base for each in relative.tolist()], np.int32)


def _segment_pieces(content: bytes, renaming: Renaming) -> list[tuple[int, int, bytes]]:
    """(old position, old length, bytes) of each batch and of what follows the last; position -1 for added records."""
    pieces = []
    batches = list(read_batches(content))
    for found, following in zip_longest(batches, batches[1:]):
        position, size_bytes = (
            (found.position, found.length_bytes)
            if isinstance(found, Stop)
            else (found.header.position, found.header.size_bytes)
        )
        base_offset = None if isinstance(found, Stop) else renaming.offset(found.header.base_offset)
        pieces.append((position, size_bytes, _rewritten_batch(content, found, renaming, base_offset)))
        if isinstance(found, Batch) and _ends_first_data(found, following, renaming):
            pieces.append((-1, 0, _added_records(found.header, renaming)))
    return pieces


def _ends_first_data(batch: Batch, following: Batch | Stop | None, renaming: Renaming) -> bool:
    """Records are added between two batches that meet there, and to the end of a log; a gap only grows."""
    end = batch.header.last_offset + 1
    return end == renaming.first_moved and not (isinstance(following, Batch) and following.header.base_offset != end)


def _added_records(header: BatchHeader, renaming: Renaming) -> bytes:
    count = renaming.offset(header.last_offset + 1) - header.last_offset - 1
    if not count:
        return b""
    return write_batch(
        base_offset=header.last_offset + 1,
        leader_epoch=header.leader_epoch,
        timestamp_ms=renaming.time(header.max_timestamp_ms),
        records=[(None, write_metadata_value("NoOpRecord", 0, {}))] * ADDED_OFFSETS,
    )


def _rewritten_batch(content: bytes, found: Batch | Stop, renaming: Renaming, base_offset: int | None) -> bytes:
    """Renamed, with its CRC; a damaged batch and what is no batch keep their records."""
    if isinstance(found, Stop):
        return content[found.position : found.position + found.length_bytes]
    header = found.header
    rewritten = bytearray(content[header.position : header.position + header.size_bytes])
    if found.damage is None:
        records = bytes(rewritten[HEADER_BYTES:])
        rewritten[HEADER_BYTES:] = _renamed_records(records, header.attributes, header.record_count, renaming)
        struct.pack_into(">i", rewritten, LENGTH_POSITION, len(rewritten) - LOG_OVERHEAD_BYTES)
    if base_offset is not None:
        struct.pack_into(">q", rewritten, 0, base_offset)
    for position in range(*TIMES_POSITIONS, 8):
        struct.pack_into(">q", rewritten, position, renaming.time(struct.unpack_from(">q", rewritten, position)[0]))
    if found.damage is None:
        struct.pack_into(">I", rewritten, CRC_POSITION, computed_crc(rewritten, read_header(rewritten, 0)))
    return bytes(rewritten)


@lru_cache(maxsize=1 << 16)
def _renamed_records(records: bytes, attributes: int, record_count: int, renaming: Renaming) -> bytes:
    """The bytes after a batch's header; kept, as replicas and captures hold the same batches, and many are one NoOp."""
    size_bytes = HEADER_BYTES + len(records)
    header = BatchHeader(0, 0, size_bytes, 0, MAGIC, 0, attributes, record_count - 1, 0, 0, -1, -1, -1, record_count)
    try:
        written = b"".join(
            _written_record(record, header.is_control, renaming)
            for record in read_records(bytes(HEADER_BYTES) + records, header)
        )
    except CodecError:  # a record that no schema fits
        return records
    return compress(header.codec, written) if header.codec else written


def _written_record(record: RawRecord, is_control: bool, renaming: Renaming) -> bytes:
    """A record of a batch that begins at offset 0 and time 0, so that it holds its own differences."""
    out = bytearray(1)  # attributes
    write_varlong(out, record.timestamp_ms)
    write_varint(out, record.offset)
    renamed = None if record.value is None else _renamed_value(record.value, record.key, is_control, renaming)
    for part in (record.key, renamed):
        write_varint(out, -1 if part is None else len(part))
        out += part or b""
    write_varint(out, len(record.headers))
    for key, value in record.headers:
        write_varint(out, len(key))
        out += key
        write_varint(out, -1 if value is None else len(value))
        out += value or b""
    length = bytearray()
    write_varint(length, len(out))
    return bytes(length + out)


def _renamed_value(value: bytes, key: bytes | None, is_control: bool, renaming: Renaming) -> bytes:
    """A record of an unknown type stays as it is."""
    if is_control:
        control_type = CONTROL_TYPES[Dialect.KIP853].get(read_control_key(key))
        if control_type is None:
            return value
        fields = renaming.record(control_type.message, read_control_value(control_type, value))
        return write_control_value(control_type, fields)
    try:
        record = read_metadata_value(value)
    except UnknownRecordError:
        return value
    return write_metadata_value(record.message.name, record.version, renaming.record(record.message, record.fields))
