"""Batches as producers write them, read and written without the codec: headers, producers, transactions, all codecs."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from kraft_codec.records.compression import Codec, compress

Header = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class Sent:
    """One record as an application sent it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int = 1_000


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _record(sent: Sent, delta: int, base_ms: int) -> bytes:
    body = b"\0" + _varint(sent.timestamp_ms - base_ms) + _varint(delta) + _bytes(sent.key) + _bytes(sent.value)
    body += _varint(len(sent.headers)) + b"".join(_bytes(key) + _bytes(value) for key, value in sent.headers)
    return _varint(len(body)) + body


def producer_batch(
    base_offset: int,
    leader_epoch: int,
    records: Sequence[Sent],
    *,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """A batch of version 2 (DefaultRecordBatch); `producer` is (id, epoch, base sequence)."""
    base_ms = records[0].timestamp_ms
    body = compress(codec, b"".join(_record(sent, delta, base_ms) for delta, sent in enumerate(records)))
    attributes = codec | (0x10 if is_transactional else 0) | (0x20 if is_control else 0)
    newest_ms = max(sent.timestamp_ms for sent in records)
    checked = struct.pack(">hiqqqhii", attributes, len(records) - 1, base_ms, newest_ms, *producer, len(records))
    checked += body
    tail = struct.pack(">ibI", leader_epoch, 2, google_crc32c.value(checked)) + checked
    return struct.pack(">qi", base_offset, len(tail)) + tail


def marker(base_offset: int, leader_epoch: int, producer: tuple[int, int], *, is_commit: bool) -> bytes:
    """A control batch that ends a transaction."""
    key, value = struct.pack(">hh", 0, int(is_commit)), struct.pack(">hi", 0, 7)
    sent = Sent(key, value)
    return producer_batch(
        base_offset, leader_epoch, [sent], producer=(*producer, -1), is_transactional=True, is_control=True
    )


def raw_batches(segment: Path) -> Iterator[tuple[int, int, bytes]]:
    """(base offset, leader epoch, bytes) of each batch of a whole segment."""
    content, position = segment.read_bytes(), 0
    while position < len(content):
        base_offset, length, leader_epoch = struct.unpack_from(">qii", content, position)
        yield base_offset, leader_epoch, content[position : position + 12 + length]
        position += 12 + length
