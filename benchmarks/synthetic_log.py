"""A log of any size, made at once: 80 % PartitionChangeRecord v2 and 20 % PartitionRecord v2, 69 bytes each on average.

One batch is written by the readable codec; the others are that batch with other partitions, topics, leaders, offsets
and epochs in the places where those stand, and the CRC that then is right.
"""

from __future__ import annotations

import google_crc32c
import numpy as np
import numpy.typing as npt

from kraft_codec.columns import index_batches, index_records
from kraft_codec.records.batch import write_batch
from kraft_codec.records.record import write_metadata_value

RECORDS_PER_BATCH = 1_000
RECORDS_PER_PARTITION = 5
_PARTITION_ID_BYTES = 4
_UUID_BYTES = 16
_CRC_FROM = 21


def synthetic_log(size_bytes: int, *, seed: int = 1, connected: bool = False) -> npt.NDArray[np.uint8]:
    """As many whole batches as fit into `size_bytes`, at least one.

    `connected`: each PartitionRecord and the four changes after it are of one partition, so that a replay finds it.
    """
    template = np.frombuffer(_template(), np.uint8)
    records = index_records(template, index_batches(template))
    count = max(1, size_bytes // len(template))
    batches = np.tile(template, (count, 1))
    generator = np.random.default_rng(seed)
    for number, position in enumerate(records.body_position.tolist()):
        topic = position + _PARTITION_ID_BYTES
        if number % RECORDS_PER_PARTITION == 0 or not connected:
            partition = generator.integers(0, 128, count, np.uint8)
            topic_id = generator.integers(0, 256, (count, _UUID_BYTES), np.uint8)
        batches[:, topic - 1] = partition
        batches[:, topic : topic + _UUID_BYTES] = topic_id
    offsets = (np.arange(count) * RECORDS_PER_BATCH).astype(">i8")
    batches[:, :8] = offsets.view(np.uint8).reshape(count, 8)
    crcs = np.array([google_crc32c.value(batch[_CRC_FROM:].tobytes()) for batch in batches], dtype=">u4")
    batches[:, 17:21] = crcs.view(np.uint8).reshape(count, 4)
    log = batches.reshape(-1)
    made = index_batches(log)
    assert made.crc_ok.all()
    assert (made.base_offset == np.arange(count) * RECORDS_PER_BATCH).all()
    return log


def _template() -> bytes:
    generator = np.random.default_rng(0)
    values = []
    for number in range(RECORDS_PER_BATCH):
        topic = generator.bytes(_UUID_BYTES)
        brokers = generator.choice(np.arange(1, 13), 3, replace=False).tolist()
        if number % RECORDS_PER_PARTITION == 0:
            fields = {
                "partitionId": number % 128,
                "topicId": topic,
                "replicas": brokers,
                "isr": brokers,
                "leader": brokers[0],
                "leaderEpoch": 0,
                "partitionEpoch": 0,
                "directories": [generator.bytes(_UUID_BYTES) for _ in brokers],
            }
            values.append(write_metadata_value("PartitionRecord", 2, fields))
        else:
            isr = brokers[: 1 + number % 3]
            fields = {"partitionId": number % 128, "topicId": topic, "isr": isr}
            if number % 3:
                fields["leader"] = isr[0]
            if number % 4 == 0:
                fields["eligibleLeaderReplicas"] = brokers[len(isr) :]
            values.append(write_metadata_value("PartitionChangeRecord", 2, fields))
    return write_batch(
        base_offset=0, leader_epoch=7, timestamp_ms=1_795_000_000_000, records=[(None, value) for value in values]
    )
