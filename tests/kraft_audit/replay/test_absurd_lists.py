"""A record may name as many replicas as its bytes hold; rows that repeat them must not take memory without bound."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import pytest

from kraft_audit.replay.kernels.layout import OUTPUT_VALUES_MAX
from kraft_audit.replay.partitions.partition_replay import PartitionReplay

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAABQ"
REPLICAS = 200_000
CHANGES = 200


def _line(offset: int, api_key: int, version: int, data: dict[str, Any]) -> dict[str, Any]:
    envelope = {"offset": offset, "partitionLeaderEpoch": 1, "timestamp": 0, "isControl": False}
    return {**envelope, "apiKey": api_key, "version": version, "data": data}


@pytest.mark.slow
def test_a_batch_of_rows_ends_where_its_lists_grow_too_long(to_columns: Any) -> None:
    created = {"partitionId": 0, "topicId": TOPIC_ID, "replicas": list(range(REPLICAS)), "isr": [0], "leader": 0}
    lines = [_line(0, 2, 0, {"name": "t", "topicId": TOPIC_ID}), _line(1, 3, 2, created)]
    for number in range(CHANGES):
        change = {"partitionId": 0, "topicId": TOPIC_ID, "isr": [number % 3], "leader": number % 3}
        lines.append(_line(2 + number, 5, 2, change))
    offsets: list[int] = []
    for batch in PartitionReplay(cluster_id="c").replay(to_columns(lines)):
        values = sum(
            pc.sum(pc.list_value_length(batch.column(name))).as_py() or 0
            for name in ("replicas", "isr", "elr", "last_known_elr", "adding_replicas", "removing_replicas")
        )
        assert values <= OUTPUT_VALUES_MAX + 2 * REPLICAS
        offsets += batch.column("from_offset").to_pylist()
    assert offsets == list(range(1, CHANGES + 2))
