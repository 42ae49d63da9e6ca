"""Logs whose timestamps are no times."""

from __future__ import annotations

from typing import Any

from kraft_audit.text.readable import LAST_TIME_MS
from kraft_codec.records.record import write_metadata_value
from tests.builders.logs import Log

NO_TIMES = (-(2**63), -5, LAST_TIME_MS, 2**53, 2**60, 2**63 - 1)


TOPIC_ID = b"t" * 16


def unsafe_log(times_ms: tuple[int, int]) -> Log:
    """Two brokers, and a partition that loses one of them and its leader; half of it at each of two times."""
    first, then = times_ms
    log = Log(timestamp_ms=first - 1)
    log.lead(1, epoch=1)

    def say(name: str, fields: dict[str, Any], time_ms: int) -> None:
        log.timestamp_ms = time_ms - 1
        log.append(write_metadata_value(name, 1 if name == "BrokerRegistrationChangeRecord" else 0, fields))

    for broker in (11, 12):
        say("RegisterBrokerRecord", {"brokerId": broker, "brokerEpoch": broker, "rack": "r", "fenced": False}, first)
    say("ConfigRecord", {"resourceType": 4, "name": "unclean.leader.election.enable", "value": "true"}, first)
    say("TopicRecord", {"name": "t", "topicId": TOPIC_ID}, first)
    partition = {"partitionId": 0, "topicId": TOPIC_ID}
    nodes = [11, 12]
    say("PartitionRecord", {**partition, "replicas": nodes, "isr": nodes, "leader": 11, "leaderEpoch": 0}, first)
    say("BrokerRegistrationChangeRecord", {"brokerId": 12, "brokerEpoch": 12, "fenced": 1}, then)
    say("PartitionChangeRecord", {**partition, "isr": [11]}, then)
    say("PartitionChangeRecord", {**partition, "leader": -1}, then)
    return log
