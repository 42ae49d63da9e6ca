"""Causes, elections and the expected ELR, against the batches in which Kafka wrote each operation."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from kraft_audit.replay.cluster_replay import Settler
from kraft_audit.replay.partitions.partition_replay import PartitionReplay
from tests.builders.partition_logs import CHANGE, OTHER_ID, TOPIC_ID, PartitionLog

FEATURE_LEVEL, REGISTER_CONTROLLER = 12, 27

COLUMNS = (
    "from_offset",
    "topic",
    "leader",
    "leader_recovery_state",
    "elr",
    "expected_elr",
    "election",
    "cause",
    "possible_causes",
    "cause_broker_id",
)


def rows_of(lines: list[dict[str, Any]], to_columns: Any, window: int) -> list[dict[str, Any]]:
    settler, replay = Settler(), PartitionReplay(cluster_id="c")
    rows: list[dict[str, Any]] = []
    for start in range(0, len(lines), window):
        part = lines[start : start + window]
        for batch in replay.replay(settler.feed(to_columns(part), part[-1]["offset"] + 1)):
            rows += batch.select(COLUMNS).to_pylist()
    for batch in replay.replay(settler.rest()):
        rows += batch.select(COLUMNS).to_pylist()
    return rows


def logs(oracles: list[Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The longest log of each scenario that begins at 0."""
    found = []
    for oracle in oracles:
        if oracle.folder.name == "crafted":
            continue
        candidates = (oracle.log_records(log_dir) for log_dir in oracle.distinct_logs())
        longest = max((lines for lines in candidates if lines and lines[0]["offset"] == 0), key=len, default=[])
        found.append((oracle.folder.name, longest))
    return found


def event_of(lines: list[dict[str, Any]]) -> tuple[set[str], int] | None:
    """The causes that the changes of a batch may have, and the broker, where it holds one broker event."""
    events: list[tuple[set[str], int]] = []
    for line in lines:
        data = line["data"]
        if line.get("type") == "REGISTER_BROKER_RECORD":
            events.append(({"unclean_shutdown", "registered"}, data["brokerId"]))
        elif line.get("type") == "BROKER_REGISTRATION_CHANGE_RECORD":
            if data.get("fenced"):
                events.append(({"fenced"} if data["fenced"] > 0 else {"unfenced"}, data["brokerId"]))
            elif data.get("inControlledShutdown"):
                events.append(({"controlled_shutdown"}, data["brokerId"]))
            elif data.get("logDirs"):
                events.append(({"directory_failed"}, data["brokerId"]))
        elif line.get("type") == "UNREGISTER_BROKER_RECORD":
            events.append(({"unregistered"}, data["brokerId"]))
    return events[0] if len(events) == 1 else None


@pytest.mark.parametrize("window", [10_000, pytest.param(23, marks=pytest.mark.slow)])
def test_changes_beside_a_broker_event_are_its_own(oracles: list[Any], to_columns: Any, window: int) -> None:
    stated_count = open_count = 0
    for name, lines in logs(oracles):
        if name == "volume" and window < 100:
            continue
        rows = {row["from_offset"]: row for row in rows_of(lines, to_columns, window)}
        for _, group in groupby(lines, key=lambda line: line["baseOffset"]):
            batch = list(group)
            changes = [line for line in batch if line.get("type") == "PARTITION_CHANGE_RECORD"]
            event = event_of(batch)
            if event is None or not changes or len(batch) != len(changes) + 1:
                continue
            # One batch may hold several operations: a broker's own changes are all on one side of its record.
            comes_first = bool(event[0] & {"unfenced", "controlled_shutdown"})
            if batch[0 if comes_first else -1] in changes:
                continue
            for line in changes:
                row = rows[line["offset"]]
                if row["cause"] in ("isr_expanded", "directory_assigned"):
                    continue  # a broker's own request, which the accumulator put into the same batch
                if row["cause"] is None:
                    # A leader may have asked for it just before: Kafka's bytes are the same.
                    assert event[0] & {*row["possible_causes"]}, (name, row)
                    open_count += 1
                    continue
                assert (row["cause"] in event[0], row["cause_broker_id"]) == (True, event[1]), (name, row)
                stated_count += 1
    assert stated_count >= 50
    assert open_count < stated_count / 2


@pytest.mark.slow
def test_every_recorded_elr_is_the_expected_one(oracles: list[Any], to_columns: Any) -> None:
    compared = not_empty = 0
    for name, lines in logs(oracles):
        for row in rows_of(lines, to_columns, 10_000):
            if row["expected_elr"] is not None:
                assert sorted(row["elr"]) == row["expected_elr"], (name, row)
                compared += 1
                not_empty += bool(row["elr"])
    assert compared >= 300
    assert not_empty >= 50


@pytest.mark.slow
def test_every_change_has_a_cause(oracles: list[Any], to_columns: Any) -> None:
    for name, lines in logs(oracles):
        for row in rows_of(lines, to_columns, 10_000):
            assert row["cause"] not in ("other", "leader_lost", "elr_changed", "replaced"), (name, row)
            assert (row["election"] == "none") <= (row["leader"] == -1)


def test_kinds_of_unclean_election_are_distinguished(sample_lines: Any, to_columns: Any) -> None:
    """Facts 6.2, 6.7: the last known leader is elected although unclean election is off; elr-u allows unclean."""
    rows = rows_of(sample_lines("elr"), to_columns, 10_000)
    by_election: dict[str, set[str]] = {}
    for row in rows:
        if row["election"] in ("elr", "last_known", "unclean"):
            by_election.setdefault(row["election"], set()).add(row["leader_recovery_state"])
    assert by_election == {"elr": {"RECOVERED"}, "last_known": {"RECOVERING"}, "unclean": {"RECOVERING"}}
    assert {row["topic"] for row in rows if row["election"] == "unclean"} == {"elr-u"}


def log_with_elr(to_columns: Any) -> PartitionLog:
    log = PartitionLog(to_columns, default_min_isr=2)
    log.controller(7)
    log.write(FEATURE_LEVEL, name="eligible.leader.replicas.version", featureLevel=1)
    log.topic("t", TOPIC_ID, [2])
    return log


@pytest.mark.parametrize(("metadata_version", "elr"), [(None, [2]), (22, [2]), (23, []), (29, []), (30, [2])])
def test_some_releases_wipe_the_elr_where_a_directory_is_assigned(
    to_columns: Any, metadata_version: int | None, elr: list[int]
) -> None:
    """KAFKA-19840: the active controllers of 4.0.0 (metadata.version 23, 4.0-IV1) to 4.2.0, not of 4.3 (30)."""
    log = log_with_elr(to_columns)
    supported = {"name": "metadata.version", "minSupportedVersion": 7, "maxSupportedVersion": metadata_version}
    log.write(
        REGISTER_CONTROLLER, controllerId=7, incarnationId=TOPIC_ID, zkMigrationReady=False, endPoints=[],
        features=[] if metadata_version is None else [supported],
    )  # fmt: skip
    (shrunk,) = log.write(CHANGE, partitionId=0, topicId=TOPIC_ID, isr=[1], eligibleLeaderReplicas=[2])
    assert (shrunk["cause"], shrunk["expected_elr"]) == ("isr_shrunk", [2])
    (assigned,) = log.write(CHANGE, partitionId=0, topicId=TOPIC_ID, directories=[TOPIC_ID, OTHER_ID])
    assert (assigned["cause"], assigned["expected_elr"]) == ("directory_assigned", elr)


def test_a_replica_is_expected_in_the_elr_once(to_columns: Any) -> None:
    """PartitionChangeBuilder.populateTargetElr 4.3.0 joins the old ELR and the old ISR as a set."""
    log = log_with_elr(to_columns)
    log.write(CHANGE, partitionId=0, topicId=TOPIC_ID, isr=[1, 2], eligibleLeaderReplicas=[2])
    (row,) = log.write(CHANGE, partitionId=0, topicId=TOPIC_ID, isr=[1], eligibleLeaderReplicas=[2])
    assert row["expected_elr"] == [2]
