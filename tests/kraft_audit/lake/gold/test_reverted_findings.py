"""P·X in one hour, P·Y in the next: the lake says what a lake that only ever saw P·Y says, and X is closed as reverted.

X is what a leader wrote and the quorum did not keep: here on the one disk that was captured.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.gold.findings_table import FindingsTable
from kraft_audit.lake.gold.gold_merge import GoldLake
from kraft_audit.lake.settings import FleetSettings
from kraft_codec.records.record import write_metadata_value
from tests.builders.lakes import no_session
from tests.builders.logs import Log, write_node

TOPIC = {"partitionId": 0, "topicId": b"t" * 16}
OTHER = {"partitionId": 0, "topicId": b"u" * 16}
SAID = ("rule", "subject", "status", "severity", "summary", "from_offset", "to_offset", "is_over")
OF_THE_LOG = "scope <> 'log'"


def say(log: Log, name: str, fields: dict[str, Any], version: int = 0) -> None:
    log.append(write_metadata_value(name, version, fields))


def shared() -> Log:
    """P: two topics on two brokers; broker 12 has left the ISR of `u`."""
    log = Log()
    log.lead(1, epoch=1)
    for broker in (11, 12):
        say(log, "RegisterBrokerRecord", {"brokerId": broker, "brokerEpoch": broker, "fenced": False})
    for name, partition in (("t", TOPIC), ("u", OTHER)):
        say(log, "TopicRecord", {"name": name, "topicId": partition["topicId"]})
        say(
            log, "PartitionRecord", {**partition, "replicas": [11, 12], "isr": [11, 12], "leader": 11, "leaderEpoch": 0}
        )
    say(log, "PartitionChangeRecord", {**OTHER, "isr": [11]})
    return log


def findings(lake: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        DeltaLake(lake).query(f"SELECT * FROM findings WHERE {OF_THE_LOG}", "findings").to_pylist()  # noqa: S608
    )
    return rows


def said_of(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(str(row[name]) for name in SAID) for row in rows if row["state"] != "resolved")


@pytest.mark.slow
def test_what_the_quorum_did_not_keep(
    make_fleet: Callable[..., FleetSettings], without_spark: ModuleType, tmp_path: Path
) -> None:
    x, y = shared(), copy.deepcopy(shared())
    say(x, "PartitionChangeRecord", {**TOPIC, "isr": [11]})
    parted_at = x.next_offset - 1
    y.lead(2, epoch=2)
    y.noop()
    y.noop()

    def hour(fleet: FleetSettings, log: Log, disk: Path) -> None:
        write_node(disk, 1, log.content)
        assert without_spark.run(fleet).failed == {}
        FindingsTable(GoldLake(DeltaLake(fleet.lake), no_session)).update()

    hours = make_fleet({"a": [tmp_path / "disk"]}, lake="hours", file="hours.yaml")
    hour(hours, x, tmp_path / "disk")
    on_x = {row["finding_id"] for row in findings(hours.lake) if row["from_offset"] == parted_at}
    assert on_x, "the ISR of t has shrunk to one"
    hour(hours, y, tmp_path / "disk")
    whole = make_fleet({"a": [tmp_path / "other"]}, lake="whole", file="whole.yaml")
    hour(whole, y, tmp_path / "other")

    assert said_of(findings(hours.lake)) == said_of(findings(whole.lake)) != []
    gone = {row["finding_id"]: row["closed_by"] for row in findings(hours.lake) if row["state"] == "resolved"}
    assert {finding_id: gone.get(finding_id) for finding_id in on_x} == dict.fromkeys(on_x, "reverted")
    assert set(gone.values()) <= {"reverted", "ended"}
