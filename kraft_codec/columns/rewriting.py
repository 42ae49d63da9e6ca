"""Batches whose bytes may be stored for ever: secrets overwritten, undecodable records taken out, CRC renewed.

A batch without either stays as it is, byte for byte. Of one that is rewritten, offsets, times, epoch and attributes
stay. A data record that this codec does not know becomes a NoOp of its offset; a control record's value of an unknown
type becomes zeros. Keys of data records and headers of any, which KRaft does not write, are left out: no schema says
what they hold. Where the record shall be read as unknown again, `unknown_value` takes the place of the NoOp.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from kraft_codec.columns.records import RecordIndex
from kraft_codec.kernels.codes import OK
from kraft_codec.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_BITS,
    CRC_POSITION,
    HEADER_BYTES,
    LENGTH_POSITION,
    LOG_OVERHEAD_BYTES,
    crc32c,
    read_header,
)
from kraft_codec.records.compression import Codec, compress
from kraft_codec.records.record import CONTROL_KEY_BYTES, write_metadata_value
from kraft_codec.records.varint import read_varint, read_varlong, write_unsigned_varint, write_varint
from kraft_codec.schemas import FRAME_VERSION, METADATA_BY_API_KEY

NO_OP_VALUE: Final = write_metadata_value("NoOpRecord", 0, {})


def records_to_rewrite(index: RecordIndex) -> npt.NDArray[np.bool_]:
    """Which records cannot stay as they are even with their secrets overwritten: unknown ones, and odd envelopes."""
    value_end = np.minimum(index.value_position + index.value_length, len(index.buffer) - 1)
    # After a value comes the count of headers: one zero byte in everything that KRaft writes.
    has_headers = index.buffer[value_end] != 0 if len(index.buffer) else np.zeros(len(index), bool)
    has_key = ~index.is_control & (index.key_length > 0)
    has_long_key = index.is_control & (index.key_length > CONTROL_KEY_BYTES)
    odd = (index.status != OK) | (index.value_length < 0) | has_headers | has_key | has_long_key
    return np.asarray(odd)


def with_new_crc(batch: bytes | bytearray | memoryview) -> bytes:
    """The same batch with the CRC of its bytes as they are now."""
    return _closed(bytearray(batch))


def plain_image(index: RecordIndex, row: int, read_bytes: int) -> memoryview:
    """The image of one of `index.batches` as its records were indexed, uncompressed.

    A compressed batch must be indexed alone: its image stands after the `read_bytes` that the buffer begins with.
    """
    batches = index.batches
    start, size_bytes = int(batches.position[row]), int(batches.size_bytes[row])
    is_compressed = int(batches.codec[row]) != Codec.NONE
    image: memoryview = (index.buffer[read_bytes:] if is_compressed else index.buffer[start : start + size_bytes]).data
    return image


def rewritten(image: bytes | bytearray | memoryview, codec: Codec, unknown: Mapping[int, bytes]) -> bytes:
    """A batch written again from its uncompressed image, whose records are sound, and compressed as it was.

    `unknown` has the offsets of the records to take out, and the value to put in the place of each data record. Raises
    CodecError where the image is not sound after all.
    """
    header = read_header(image, 0)
    body = memoryview(image)[HEADER_BYTES:]
    out = bytearray()
    position = 0
    for _ in range(header.record_count):
        length, position = read_varint(body, position, len(body))
        end = position + length
        record = _rewritten_record(body[position:end], header.base_offset, unknown, header.is_control)
        write_varint(out, len(record))
        out += record
        position = end
    payload = compress(codec, bytes(out))
    batch = bytearray(image[:HEADER_BYTES]) + payload
    (attributes,) = struct.unpack_from(">h", batch, ATTRIBUTES_POSITION)
    struct.pack_into(">h", batch, ATTRIBUTES_POSITION, (attributes & ~CODEC_BITS) | codec)
    struct.pack_into(">i", batch, LENGTH_POSITION, len(batch) - LOG_OVERHEAD_BYTES)
    return _closed(batch)


def unknown_value(api_key: int | None, version: int | None) -> bytes:
    """A value that reads as the record of an unknown type or version that it stands for, without its body.

    None, or a type and version that are known after all: as one of an unknown frame.
    """
    out = bytearray()
    message = None if api_key is None else METADATA_BY_API_KEY.get(api_key)
    if api_key is None or version is None or (message is not None and version in message.versions):
        write_unsigned_varint(out, FRAME_VERSION + 1)
    else:
        for number in (FRAME_VERSION, api_key, version):
            write_unsigned_varint(out, number)
    return bytes(out)


def _rewritten_record(
    record: memoryview, base_offset: int, unknown: Mapping[int, bytes], is_control: bool
) -> bytearray:
    end = len(record)
    _, after_time = read_varlong(record, 1, end)
    offset_delta, key_at = read_varint(record, after_time, end)
    key, value_at = _field(record, key_at)
    value, _ = _field(record, value_at)
    out = bytearray(record[:key_at])
    instead = unknown.get(base_offset + offset_delta)
    if is_control:
        _write(out, None if key is None else key[:CONTROL_KEY_BYTES])
        _write(out, bytes(len(value)) if instead is not None and value is not None else value)
    else:
        _write(out, None)
        _write(out, value if instead is None else instead)
    write_varint(out, 0)  # headers
    return out


def _field(record: memoryview, position: int) -> tuple[bytes | None, int]:
    length, start = read_varint(record, position, len(record))
    if length < 0:
        return None, start
    return bytes(record[start : start + length]), start + length


def _write(out: bytearray, content: bytes | None) -> None:
    write_varint(out, -1 if content is None else len(content))
    out += content or b""


def _closed(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(batch[ATTRIBUTES_POSITION:]))
    return bytes(batch)
