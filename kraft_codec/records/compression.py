"""The compressed records of a batch: gzip, snappy, lz4, zstd (org.apache.kafka.common.compress, release 4.3).

KRaft writes none of them, but a decoder meets them. The formats are those that Kafka's clients write: gzip members, the
LZ4 frame, zstd frames, and snappy in xerial's framing (snappy-java's SnappyOutputStream: a 16-byte header, then blocks
of int32 length and raw snappy); raw snappy without that framing is read too, as snappy-java does.

Output is made in pieces and stops at a cap: `min(64 MiB, 100 x input)` where nothing else is said. More is
`DECOMP_LIMIT`; bytes that are not of the format, end too early, or follow its end are `BAD_COMPRESSION`.
"""

from __future__ import annotations

import enum
import struct
import zlib
from typing import Final

import pyarrow as pa

from kraft_codec.errors import CodecError, Reason
from kraft_codec.records.varint import BytesLike, read_unsigned_varint

OUTPUT_BYTES_MAX: Final = 64 * 1024 * 1024
OUTPUT_RATIO_MAX: Final = 100
_PIECE_BYTES: Final = 1024 * 1024
GZIP_WINDOW_BITS: Final = 31  # zlib's number for a 32 KiB window in gzip's wrapping

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest compatible version
_XERIAL_BLOCK_BYTES: Final = 32 * 1024


class Codec(enum.IntEnum):
    """The number in the low three bits of a batch's attributes; kafka-dump-log prints the name in lower case."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def output_limit_bytes(input_bytes: int) -> int:
    """How much a payload of this size may become."""
    return min(OUTPUT_BYTES_MAX, OUTPUT_RATIO_MAX * input_bytes)


def decompress(codec: Codec, payload: BytesLike, limit_bytes: int | None = None, *, position: int = 0) -> bytes:
    """The bytes that `payload` stands for, at most `limit_bytes` of them; errors carry `position`.

    Raises CodecError with DECOMP_LIMIT or BAD_COMPRESSION.
    """
    limit = output_limit_bytes(len(payload)) if limit_bytes is None else limit_bytes
    data = bytes(payload)
    try:
        match codec:
            case Codec.NONE:
                pieces = _bounded(bytearray(), data, limit)
            case Codec.SNAPPY:
                pieces = _read_snappy(data, limit)
            case _:
                pieces = _read_stream(codec, data, limit)
    except _LimitError:
        detail = f"{codec.name.lower()}: {len(data)} bytes become more than {limit}"
        raise CodecError(Reason.DECOMP_LIMIT, position, detail) from None
    except (OSError, ValueError, EOFError, zlib.error, pa.ArrowException, CodecError) as error:
        raise CodecError(Reason.BAD_COMPRESSION, position, f"{codec.name.lower()}: {_first_line(error)}") from None
    return bytes(pieces)


def compress(codec: Codec, data: bytes) -> bytes:
    """Bytes that Kafka reads back as `data`. The same input gives the same output, in any process."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            packer = zlib.compressobj(wbits=GZIP_WINDOW_BITS)
            return packer.compress(data) + packer.flush()
        case Codec.SNAPPY:
            return _write_xerial(data)
        case _:
            return bytes(pa.compress(data, codec=codec.name.lower(), asbytes=True))


class _LimitError(Exception):
    """More output than allowed."""


def _bounded(out: bytearray, piece: bytes, limit: int) -> bytearray:
    if len(out) + len(piece) > limit:
        raise _LimitError
    out += piece
    return out


def _read_stream(codec: Codec, data: bytes, limit: int) -> bytearray:
    """Reads one piece more than the limit at most, so that a bomb costs no more than its cap."""
    if not data:
        raise EOFError("no bytes")
    out = bytearray()
    with pa.CompressedInputStream(pa.BufferReader(data), codec.name.lower()) as stream:
        while piece := stream.read(min(_PIECE_BYTES, limit + 1 - len(out))):
            _bounded(out, piece, limit)
    return out


def _read_snappy(data: bytes, limit: int) -> bytearray:
    if not data.startswith(_XERIAL_MAGIC):
        return _bounded(bytearray(), _read_raw_snappy(data, limit), limit)
    if len(data) < len(_XERIAL_HEADER):
        raise EOFError("the header is cut")
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if len(data) - position < 4:
            raise EOFError("a block's length is cut")
        length = struct.unpack_from(">i", data, position)[0]
        position += 4
        if not 0 <= length <= len(data) - position:
            raise EOFError(f"a block of {length} bytes, {len(data) - position} remain")
        _bounded(out, _read_raw_snappy(data[position : position + length], limit - len(out)), limit)
        position += length
    return out


def _read_raw_snappy(block: bytes, limit: int) -> bytes:
    """A raw block says its own size first, so nothing is allocated before that size is judged."""
    size_bytes, _ = read_unsigned_varint(block, 0, len(block))
    if size_bytes < 0:
        raise EOFError(f"a block that says {size_bytes} bytes")
    if size_bytes > limit:
        raise _LimitError
    return bytes(pa.decompress(block, decompressed_size=size_bytes, codec="snappy", asbytes=True))


def _write_xerial(data: bytes) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = pa.compress(data[start : start + _XERIAL_BLOCK_BYTES], codec="snappy", asbytes=True)
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def _first_line(error: Exception) -> str:
    """What the library says; it names its own state, never the bytes."""
    return (str(error).splitlines() or [type(error).__name__])[0]
