"""An episode that lasts keeps its beginning when Kafka deletes the record that it began with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.gold.findings_table import FindingsTable
from kraft_audit.lake.gold.gold_merge import GoldLake
from kraft_audit.lake.settings import FleetSettings
from kraft_codec.file_names import segment_name, snapshot_name
from kraft_codec.records.record import write_metadata_value
from tests.builders.lakes import no_session
from tests.builders.logs import Log, write_node

PARTITION = {"partitionId": 0, "topicId": b"t" * 16}
REPLICAS = {**PARTITION, "replicas": [11, 12], "leader": 11, "leaderEpoch": 0}


def say(log: Log, name: str, fields: dict[str, Any]) -> None:
    log.append(write_metadata_value(name, 0, fields))


def cluster(log: Log, isr: list[int]) -> None:
    """Two brokers, and a topic with one partition."""
    for broker in (11, 12):
        say(log, "RegisterBrokerRecord", {"brokerId": broker, "brokerEpoch": broker, "fenced": False})
    say(log, "TopicRecord", {"name": "t", "topicId": b"t" * 16})
    say(log, "PartitionRecord", {**REPLICAS, "isr": isr})


def first_log() -> Log:
    """Broker 12 leaves the ISR."""
    log = Log()
    log.lead(1, epoch=1)
    cluster(log, [11, 12])
    say(log, "PartitionChangeRecord", {**PARTITION, "isr": [11]})
    return log


def snapshot_at_end(log: Log, isr: list[int]) -> dict[str, bytes]:
    """What a log says at its end, as a snapshot."""
    content = Log(epoch=1)
    header = {"version": 0, "lastContainedLogTimestamp": log.timestamp_ms}
    content.control("SNAPSHOT_HEADER", header)
    cluster(content, isr)
    content.control("SNAPSHOT_FOOTER", {"version": 0})
    return {snapshot_name(log.next_offset, 1): content.content}


@pytest.mark.slow
@pytest.mark.parametrize("is_over", [False, True])
def test_a_partition_that_was_alone_before_the_log_began(
    make_fleet: Callable[..., FleetSettings], without_spark: ModuleType, tmp_path: Path, is_over: bool
) -> None:
    disk, log = tmp_path / "disk", first_log()
    began_at = log.next_offset - 1
    node = write_node(disk, 1, log.content)
    fleet = make_fleet({"a": [disk]}, lake="lake", file="fleet.yaml")

    def findings() -> list[dict[str, Any]]:
        assert without_spark.run(fleet).failed == {}
        lake = DeltaLake(fleet.lake)
        FindingsTable(GoldLake(lake, no_session)).update()
        wanted = "rule = 'KP001' AND scope = 'partition' AND status = 'raised'"
        sql = f"SELECT * FROM {{}} WHERE {wanted} ORDER BY from_offset"  # noqa: S608  # our own words
        assert lake.query(sql.format("findings"), "findings").num_rows == 1
        rows: list[dict[str, Any]] = lake.query(sql.format("finding_episodes"), "finding_episodes").to_pylist()
        return rows

    (before,) = findings()
    assert (before["from_offset"], before["state"]) == (began_at, "open")

    later = Log(next_offset=log.next_offset, epoch=1, timestamp_ms=log.timestamp_ms)
    later.noop()
    if is_over:
        say(later, "PartitionChangeRecord", {**PARTITION, "isr": [11, 12]})
    later.noop()
    (node / "__cluster_metadata-0" / segment_name(0)).unlink()
    write_node(disk, 1, {log.next_offset: later.content}, files=snapshot_at_end(log, [11]))

    (after,) = findings()
    assert (after["from_offset"], after["from_ms"]) == (began_at, before["from_ms"])
    assert after["first_seen_ms"] == before["first_seen_ms"]
    assert (after["state"], after["closed_by"]) == (("resolved", "ended") if is_over else ("open", None))
