"""Batches as lines of JSON: their records, and the markers that end transactions.

Keys, values and header values are base64; what is null in Kafka is null here.
"""

from __future__ import annotations

import base64
import json
import struct
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kraft_codec.records.batch import NO_PRODUCER, BatchHeader, RawRecord, read_records
from kraft_codec.records.record import read_control_key

DECOMPRESSED_BYTES_MAX: Final = 512 << 20
"""Records of users compress better than those of KRaft: what one batch may become."""
MARKER_TYPES: Final = {0: "ABORT", 1: "COMMIT"}
"""ControlRecordType of partitions' markers, Kafka 4.3."""
_COORDINATOR_EPOCH: Final = struct.Struct(">hi")
_SEQUENCES: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a producer's transaction; `type` is COMMIT, ABORT, or the number of a type that is unknown."""

    leader_epoch: int
    offset: int
    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    type: str
    coordinator_epoch: int | None

    @property
    def line(self) -> bytes:
        return json_line({name: getattr(self, name) for name in self.__slots__})


class RecordSet:
    """(leader epoch, offset) of records, kept as ranges."""

    def __init__(self) -> None:
        self._ranges: dict[int, list[list[int]]] = defaultdict(list)

    def __contains__(self, place: tuple[int, int]) -> bool:
        ranges = self._ranges.get(place[0], [])
        at = bisect_right(ranges, place[1], key=_range_start) - 1
        return at >= 0 and place[1] < ranges[at][1]

    def add(self, leader_epoch: int, offset: int) -> None:
        """Adds a record that is not in it."""
        ranges = self._ranges[leader_epoch]
        at = bisect_right(ranges, offset, key=_range_start) - 1
        if at >= 0 and ranges[at][1] == offset:
            ranges[at][1] += 1
        else:
            insort(ranges, [offset, offset + 1])
            at += 1
        if at + 1 < len(ranges) and ranges[at][1] == ranges[at + 1][0]:
            ranges[at][1] = ranges.pop(at + 1)[1]

    @property
    def ranges(self) -> list[dict[str, int]]:
        """Half-open ranges, by leader epoch."""
        return [
            {"leader_epoch": epoch, "from_offset": first, "to_offset": end}
            for epoch, ranges in sorted(self._ranges.items())
            for first, end in ranges
        ]


def _range_start(each: list[int]) -> int:
    return each[0]


def records_of(octets: bytes, header: BatchHeader) -> list[RawRecord]:
    """The records of a batch. Raises CodecError where one of them cannot be read."""
    return list(read_records(octets, header, limit_bytes=DECOMPRESSED_BYTES_MAX))


def markers_of(header: BatchHeader, records: list[RawRecord]) -> Iterator[Marker]:
    """The markers of a control batch (EndTransactionMarker, Kafka 4.3). Raises CodecError."""
    for record in records:
        number = read_control_key(record.key)
        try:
            coordinator_epoch = int(_COORDINATOR_EPOCH.unpack_from(record.value or b"")[1])
        except struct.error:
            coordinator_epoch = None
        yield Marker(
            header.leader_epoch,
            record.offset,
            record.timestamp_ms,
            header.producer_id,
            header.producer_epoch,
            MARKER_TYPES.get(number, str(number)),
            coordinator_epoch,
        )


def record_line(header: BatchHeader, record: RawRecord) -> bytes:
    """One record as a line of JSON."""
    has_producer = header.producer_id != NO_PRODUCER
    sequence = None
    if has_producer and header.base_sequence >= 0:
        sequence = (header.base_sequence + record.offset - header.base_offset) % _SEQUENCES
    return json_line(
        {
            "leader_epoch": header.leader_epoch,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
            "key": _base64(record.key),
            "value": _base64(record.value),
            "headers": [
                # A key that is no UTF-8 keeps its bytes as lone surrogates, as Python's surrogateescape has them.
                {"key": key.decode("utf-8", "surrogateescape"), "value": _base64(value)}
                for key, value in record.headers
            ],
            "producer_id": header.producer_id if has_producer else None,
            "producer_epoch": header.producer_epoch if has_producer else None,
            "sequence": sequence,
            "is_transactional": header.is_transactional,
        }
    )


def json_line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode("ascii")
