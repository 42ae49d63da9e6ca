"""RecordBatch v2: header, CRC-32C and records, read and written (DefaultRecordBatch, DefaultRecord, release 4.3).

`read_batches` walks a buffer. At each position, in this order:

1. no byte left: the end;
2. the first min(61, remaining) bytes are all zero: ZERO_TAIL;
3. at most 17 bytes left: TORN_TAIL (Kafka's file reader ends silently there);
4. batchLength below 49 (61 - 12) or above BATCH_LENGTH_MAX: BAD_LENGTH;
5. fewer bytes left than batchLength says: TORN_TAIL. Each of 2 to 5 is a Stop there that covers all that remains;
6. magic is not 2: BAD_MAGIC (Kafka's file reader takes any magic above 2 for 2, its memory reader, which a controller
   uses, refuses it);
7. the CRC differs: BAD_CRC. 6 and 7 damage this batch alone, and the walk goes on after it.

`read_records` checks in this order; every failure is the failure of the whole batch, `+n` counts from its position:

1. codec bits above 4: BAD_COMPRESSION at +21;
2. recordCount below 0: BAD_RECORD at +57;
3. what decompression says (BAD_COMPRESSION, DECOMP_LIMIT): at +61;
4. fewer than 7 bytes, the shortest record, for each record: BAD_RECORD at +57;
5. each record in turn. Its length, where negative or beyond the end of the records: BAD_RECORD at the record's first
   byte. From there on nothing beyond the record's own end is read: no attributes byte: BAD_RECORD after the length;
   a varint that does not end: BAD_RECORD at its first byte; an overlong one: BAD_VARINT at its first byte; a key,
   value, header key or header value that does not fit: BAD_RECORD at its length varint; a header count that is
   negative or above the bytes left in the record, a negative header key length: BAD_RECORD at that varint; bytes left
   over in the record: BAD_RECORD at the first of them;
6. bytes left after the last record: BAD_RECORD at the first of them. Kafka refuses all this too, but for a batch of no
   records, whose bytes it never looks at.

In a compressed batch no byte of a record has a position in the file: records and errors carry that of the compressed
bytes (+61). Any negative key or value length means null. A record's attributes byte is not read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import google_crc32c

from kraft_codec.errors import CodecError, Reason
from kraft_codec.records.compression import Codec, compress, decompress
from kraft_codec.records.varint import BytesLike, read_varint, read_varlong, to_int64, write_varint, write_varlong

HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12  # baseOffset and batchLength: what batchLength does not count
HEADER_UP_TO_MAGIC_BYTES: Final = 17
BATCH_LENGTH_MAX: Final = 64 * 1024 * 1024  # KRaft writes at most 8 MiB
RECORD_BYTES_MIN: Final = 7  # length, attributes, two deltas, key length, value length, header count
MAGIC: Final = 2
NO_PRODUCER: Final = -1

LENGTH_POSITION: Final = 8
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
TIMES_POSITIONS: Final = (27, 43)
"""Where baseTimestamp and maxTimestamp begin and end."""
RECORD_COUNT_POSITION: Final = 57
_HEAD: Final = struct.Struct(">qiibI")  # base offset, batch length, leader epoch, magic, crc
_CHECKED: Final = struct.Struct(">hiqqqhii")  # attributes to record count: with the records, what the CRC covers
CODEC_BITS: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20

Header: TypeAlias = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The 61 bytes before the records; `position` is where they start, `size_bytes` counts header and records."""

    position: int
    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return to_int64(self.base_offset + self.last_offset_delta)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def codec(self) -> Codec:
        """Raises CodecError (BAD_COMPRESSION) for a number that no codec has."""
        number = self.attributes & CODEC_BITS
        try:
            return Codec(number)
        except ValueError:
            position = self.position + ATTRIBUTES_POSITION
            raise CodecError(Reason.BAD_COMPRESSION, position, f"compression codec {number}") from None


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch found by its length; `damage` is BAD_MAGIC or BAD_CRC where it cannot be trusted."""

    header: BatchHeader
    damage: Reason | None


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the walk over batches ended before the buffer did: all of buffer[position:] is unread."""

    position: int
    length_bytes: int
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record before its value is decoded. `position` is its first byte's, `size_bytes` includes its length varint.

    `key_position` and `value_position` are those of the bytes themselves, or of the record where there are none.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    position: int
    size_bytes: int
    key_position: int
    value_position: int


def crc32c(buffer: BytesLike) -> int:
    """CRC-32C (Castagnoli), by Google's C library."""
    return int(google_crc32c.value(bytes(buffer)))


def read_batches(buffer: BytesLike, start: int = 0) -> Iterator[Batch | Stop]:
    """Every batch of buffer[start:], and last a Stop where it does not end with a whole batch."""
    view = memoryview(buffer)
    position, end = start, len(view)
    while position < end:
        stop = _stop(view, position, end)
        if stop is not None:
            yield stop
            return
        header = read_header(view, position)
        yield Batch(header, _damage(view, header))
        position += header.size_bytes


def _stop(view: memoryview, position: int, end: int) -> Stop | None:
    remaining = end - position
    if not any(view[position : min(end, position + HEADER_BYTES)]):
        return Stop(position, remaining, Reason.ZERO_TAIL, "zeros where a batch would start")
    if remaining <= HEADER_UP_TO_MAGIC_BYTES:
        return Stop(position, remaining, Reason.TORN_TAIL, "fewer bytes than a batch header needs")
    batch_length = struct.unpack_from(">i", view, position + 8)[0]
    if not HEADER_BYTES - LOG_OVERHEAD_BYTES <= batch_length <= BATCH_LENGTH_MAX:
        return Stop(position, remaining, Reason.BAD_LENGTH, f"batch length {batch_length}")
    if batch_length + LOG_OVERHEAD_BYTES > remaining:
        detail = f"a batch of {batch_length + LOG_OVERHEAD_BYTES} bytes, of which {remaining} are there"
        return Stop(position, remaining, Reason.TORN_TAIL, detail)
    return None


def read_header(buffer: BytesLike, position: int) -> BatchHeader:
    """The header at `position`; all 61 bytes must be there."""
    base_offset, batch_length, leader_epoch, magic, crc = _HEAD.unpack_from(buffer, position)
    size_bytes = batch_length + LOG_OVERHEAD_BYTES
    rest = _CHECKED.unpack_from(buffer, position + _HEAD.size)
    return BatchHeader(position, base_offset, size_bytes, leader_epoch, magic, crc, *rest)


def computed_crc(buffer: BytesLike, header: BatchHeader) -> int:
    """The CRC-32C of the batch's bytes from its attributes on, as it should stand in the header."""
    checked = memoryview(buffer)[header.position + ATTRIBUTES_POSITION : header.position + header.size_bytes]
    return crc32c(checked)


def _damage(view: memoryview, header: BatchHeader) -> Reason | None:
    if header.magic != MAGIC:
        return Reason.BAD_MAGIC
    return None if computed_crc(view, header) == header.crc else Reason.BAD_CRC


def read_records(
    buffer: BytesLike, header: BatchHeader, *, is_count_checked: bool = True, limit_bytes: int | None = None
) -> Iterator[RawRecord]:
    """The records of a batch, uncompressed. Raises CodecError as the module's text says; does not check the CRC.

    Without `is_count_checked` a count that the bytes cannot hold (4) is found out by reading them. `limit_bytes` is
    what compressed records may become, where that is not what `decompress` allows by itself.
    """
    codec = header.codec
    body_position = header.position + HEADER_BYTES
    count_position = header.position + RECORD_COUNT_POSITION
    body = memoryview(buffer)[body_position : header.position + header.size_bytes]
    if header.record_count < 0:
        raise CodecError(Reason.BAD_RECORD, count_position, f"{header.record_count} records")
    if codec is not Codec.NONE:
        body = memoryview(decompress(codec, body, limit_bytes, position=body_position))
    if is_count_checked and header.record_count * RECORD_BYTES_MIN > len(body):
        raise CodecError(Reason.BAD_RECORD, count_position, f"{header.record_count} records in {len(body)} bytes")
    base = body_position if codec is Codec.NONE else None
    try:
        position = 0
        for _ in range(header.record_count):
            record, position = _read_record(body, position, header, base)
            yield record
        if position != len(body):
            raise CodecError(Reason.BAD_RECORD, position, f"{len(body) - position} bytes after the last record")
    except CodecError as error:
        raise CodecError(error.reason, body_position + (0 if base is None else error.position), error.detail) from None


def _read_record(body: memoryview, position: int, header: BatchHeader, base: int | None) -> tuple[RawRecord, int]:
    start = position
    length, position = read_varint(body, position, len(body))
    if not 0 <= length <= len(body) - position:
        raise CodecError(Reason.BAD_RECORD, start, f"a record of {length} bytes, {len(body) - position} remain")
    end = position + length
    if length == 0:
        raise CodecError(Reason.BAD_RECORD, position, "a record without its attributes")
    timestamp_delta, position = read_varlong(body, position + 1, end)
    offset_delta, position = read_varint(body, position, end)
    key, position = _read_bytes(body, position, end)
    key_end = position
    value, position = _read_bytes(body, position, end)
    value_end = position
    headers, position = _read_headers(body, position, end)
    if position != end:
        raise CodecError(Reason.BAD_RECORD, position, f"{end - position} bytes after a record's headers")

    def absolute(inside: int) -> int:
        return header.position + HEADER_BYTES if base is None else base + inside

    timestamp_ms = header.max_timestamp_ms if header.is_log_append_time else header.base_timestamp_ms + timestamp_delta
    record = RawRecord(
        offset=to_int64(header.base_offset + offset_delta),
        timestamp_ms=to_int64(timestamp_ms),
        key=key,
        value=value,
        headers=headers,
        position=absolute(start),
        size_bytes=end - start,
        key_position=absolute(start if key is None else key_end - len(key)),
        value_position=absolute(start if value is None else value_end - len(value)),
    )
    return record, end


def _read_bytes(body: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    length, start = read_varint(body, position, end)
    if length < 0:
        return None, start
    if length > end - start:
        raise CodecError(Reason.BAD_RECORD, position, f"{length} bytes, {end - start} remain in the record")
    return bytes(body[start : start + length]), start + length


def _read_headers(body: memoryview, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, start = read_varint(body, position, end)
    if not 0 <= count <= end - start:
        raise CodecError(Reason.BAD_RECORD, position, f"{count} headers, {end - start} bytes remain in the record")
    headers = []
    position = start
    for _ in range(count):
        key, value_position = _read_bytes(body, position, end)
        if key is None:
            raise CodecError(Reason.BAD_RECORD, position, "a header without a key")
        value, position = _read_bytes(body, value_position, end)
        headers.append((key, value))
    return tuple(headers), position


def write_batch(
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
    records: Sequence[tuple[bytes | None, bytes | None]],
    is_control: bool = False,
    codec: Codec = Codec.NONE,
    timestamps_ms: Sequence[int] | None = None,
) -> bytes:
    """A batch as KRaft writes it: dense offsets, no producer, no headers.

    `timestamp_ms` is the time of every record, as in all batches that KRaft writes; `timestamps_ms` gives each its
    own instead (the first is the batch's base, the largest its maximum).
    """
    times = list(timestamps_ms) if timestamps_ms is not None else [timestamp_ms] * len(records)
    base_timestamp_ms = times[0] if times else timestamp_ms
    body = bytearray()
    for offset_delta, ((key, value), time_ms) in enumerate(zip(records, times, strict=True)):
        _write_record(body, key, value, time_ms - base_timestamp_ms, offset_delta)
    payload = bytes(body) if codec is Codec.NONE else compress(codec, bytes(body))
    checked = (
        _CHECKED.pack(
            codec | (CONTROL_BIT if is_control else 0),
            len(records) - 1,
            base_timestamp_ms,
            max(times, default=timestamp_ms),
            NO_PRODUCER,
            NO_PRODUCER,
            NO_PRODUCER,
            len(records),
        )
        + payload
    )
    batch_length = _HEAD.size - LOG_OVERHEAD_BYTES + len(checked)
    return _HEAD.pack(base_offset, batch_length, leader_epoch, MAGIC, crc32c(checked)) + checked


def _write_record(
    out: bytearray, key: bytes | None, value: bytes | None, timestamp_delta_ms: int, offset_delta: int
) -> None:
    record = bytearray(1)  # attributes
    write_varlong(record, timestamp_delta_ms)
    write_varint(record, offset_delta)
    for part in (key, value):
        write_varint(record, -1 if part is None else len(part))
        record += part or b""
    write_varint(record, 0)  # headers
    write_varint(out, len(record))
    out += record
