"""A fleet's topics as batches, made from one that the codec wrote: another id, name, offset and CRC in each."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kraft_codec.records.batch import crc32c
from kraft_codec.schemas import Dialect
from kraft_engine.consensus.log_batches import Record
from kraft_engine.world.encoding import records_octets

Octets = npt.NDArray[np.uint8]
FLEET_BROKERS: Final = (11, 12, 13)
PARTITIONS_A_TOPIC: Final = 50
# Names of one length, so that batches are.
NAMED_MAX: Final = 100_000
_ID: Final = b"a topic's own id"
_EPOCH: Final = 0x5A5B5C5D
_CRC_AT, _CRC_FROM = 17, 21


def topic_records(number: int, topic_id: bytes, partition_epochs: Sequence[int]) -> list[Record]:
    """A topic and its partitions, every replica in sync."""
    records: list[Record] = [("TopicRecord", 0, {"name": topic_name(number), "topicId": topic_id})]
    for index, partition_epoch in enumerate(partition_epochs):
        fields = {
            "partitionId": index,
            "topicId": topic_id,
            "replicas": list(FLEET_BROKERS),
            "isr": list(FLEET_BROKERS),
            "removingReplicas": [],
            "addingReplicas": [],
            "leader": FLEET_BROKERS[0],
            "leaderEpoch": 0,
            "partitionEpoch": partition_epoch,
            "directories": [bytes(15) + b"\x01"] * len(FLEET_BROKERS),
        }
        records.append(("PartitionRecord", 2, fields))
    return records


def topic_name(number: int) -> str:
    return f"topic-{number:05d}"


def topic_batches(
    topic_ids: Sequence[bytes], base_offset: int, timestamp_ms: int, partition_epochs: npt.NDArray[np.int64]
) -> list[bytes]:
    """A batch a topic, each of PARTITIONS_A_TOPIC partitions, from `base_offset` on in epoch 1.

    `partition_epochs`: a row a topic.
    """
    if not topic_ids:
        return []
    if len(topic_ids) > NAMED_MAX:
        raise ValueError(f"{len(topic_ids)} topics: names are made for {NAMED_MAX}")
    records = topic_records(0, _ID, [_EPOCH] * PARTITIONS_A_TOPIC)
    template = records_octets(records, 0, 1, timestamp_ms, False, Dialect.KIP853)
    rows = np.tile(np.frombuffer(template, np.uint8), (len(topic_ids), 1))
    ids = np.frombuffer(b"".join(topic_ids), np.uint8).reshape(-1, len(_ID))
    for place in _places(template, _ID):
        rows[:, place : place + len(_ID)] = ids
    epochs = big_endian(partition_epochs, ">i4")
    for index, place in enumerate(_places(template, struct.pack(">i", _EPOCH))):
        rows[:, place : place + 4] = epochs[:, index]
    names = "".join(map(topic_name, range(len(topic_ids)))).encode()
    (place,) = _places(template, topic_name(0).encode())
    length = len(topic_name(0))
    rows[:, place : place + length] = np.frombuffer(names, np.uint8).reshape(-1, length)
    offsets = base_offset + len(records) * np.arange(len(topic_ids))
    rows[:, :8] = big_endian(offsets, ">i8")
    sign(rows)
    return [row.tobytes() for row in rows]


def _places(octets: bytes, part: bytes) -> list[int]:
    places, start = [], 0
    while (place := octets.find(part, start)) >= 0:
        places.append(place)
        start = place + len(part)
    return places


def big_endian(values: npt.NDArray[np.int64], kind: str) -> Octets:
    """The values' bytes, one more axis at the end."""
    converted = np.ascontiguousarray(values.astype(kind))
    return converted.view(np.uint8).reshape(*values.shape, -1)


def sign(batches: Octets) -> None:
    """Puts the CRC-32C of bytes 21 to the end into every batch, a row each."""
    for row in batches:
        row[_CRC_AT:_CRC_FROM] = np.frombuffer(struct.pack(">I", crc32c(row[_CRC_FROM:].tobytes())), np.uint8)
