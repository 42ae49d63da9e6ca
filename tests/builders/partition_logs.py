"""A log of partition records that is replayed record by record."""

from __future__ import annotations

from typing import Any

from kraft_audit.replay.partitions.partition_replay import PartitionReplay

TOPIC, CONFIG, PARTITION, CHANGE, LEADER = 2, 4, 3, 5, 2


TOPIC_ID = "AAAAAAAAAAAAAAAAAAAABA"


OTHER_ID = "AAAAAAAAAAAAAAAAAAAACA"


class PartitionLog:
    """Writes records one by one and replays each at once."""

    def __init__(self, to_columns: Any, **options: Any) -> None:
        self.to_columns = to_columns
        self.offset = 0
        self.replay = PartitionReplay(cluster_id="c", **options)

    def write(self, api_key: int, *, is_control: bool = False, **data: Any) -> list[dict[str, Any]]:
        line = {
            "offset": self.offset,
            "partitionLeaderEpoch": 1,
            "timestamp": 1_000 * self.offset,
            "isControl": is_control,
            "controlTypeId" if is_control else "apiKey": api_key,
            "data": data,
        }
        self.offset += 1
        return [row for batch in self.replay.replay(self.to_columns([line])) for row in batch.to_pylist()]

    def topic(self, name: str, topic_id: str, replica_counts: list[int]) -> list[int]:
        self.write(TOPIC, name=name, topicId=topic_id)
        found = []
        for partition, count in enumerate(replica_counts):
            replicas = list(range(1, count + 1))
            rows = self.write(
                PARTITION, partitionId=partition, topicId=topic_id, replicas=replicas, isr=replicas, leader=1
            )
            found += [row["effective_min_isr"] for row in rows]
        return found

    def config(self, type_: int, resource: str, value: str | None) -> list[tuple[str, int, int]]:
        rows = self.write(CONFIG, resourceType=type_, resourceName=resource, name="min.insync.replicas", value=value)
        assert {row["cause"] for row in rows} <= {"min_isr_edited"}
        return sorted((row["topic"], row["partition"], row["effective_min_isr"]) for row in rows)

    def controller(self, leader_id: int) -> list[tuple[str, int]]:
        rows = self.write(LEADER, is_control=True, version=0, leaderId=leader_id, voters=[], grantingVoters=[])
        assert {row["cause"] for row in rows} <= {"controller_changed"}
        return [(row["topic"], row["effective_min_isr"]) for row in rows]
