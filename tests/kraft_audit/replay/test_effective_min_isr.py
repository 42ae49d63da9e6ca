"""The effective min.insync.replicas at every offset: which scope wins, what caps it, which partitions it moves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.partition_logs import CHANGE, OTHER_ID, TOPIC_ID, PartitionLog


def test_topic_then_controllers_node_then_cluster_then_static(to_columns: Any) -> None:
    """KafkaConfigSchema of Kafka 4.3.0: the node that is asked is the active controller, not the partition's leader."""
    log = PartitionLog(to_columns, default_min_isr=2)
    log.controller(7)
    assert log.topic("t", TOPIC_ID, [5]) == [2]
    assert log.config(4, "", "3") == [("t", 0, 3)]
    assert log.config(4, "1", "5") == []  # the leader's own node says nothing
    assert log.config(4, "7", "4") == [("t", 0, 4)]
    assert log.config(2, "t", "1") == [("t", 0, 1)]
    assert log.config(4, "", "2") == []
    assert log.config(2, "t", None) == [("t", 0, 4)]
    assert log.controller(1) == [("t", 5)]
    assert log.config(4, "1", None) == [("t", 0, 2)]
    assert log.config(4, "", None) == []  # the static default happens to be the same


def test_a_node_whose_name_is_no_number_says_nothing(to_columns: Any) -> None:
    """No Kafka writes such a record: ConfigResource names a broker by its id."""
    log = PartitionLog(to_columns, default_min_isr=2)
    log.controller(7)
    assert log.topic("t", TOPIC_ID, [5]) == [2]
    assert log.config(4, "node-7", "4") == []
    assert log.config(4, "node-7", None) == []
    assert log.config(4, "7", "3") == [("t", 0, 3)]


def test_replicas_of_partition_0_cap_all_partitions(to_columns: Any) -> None:
    log = PartitionLog(to_columns, default_min_isr=3)
    assert log.topic("t", TOPIC_ID, [2, 4]) == [2, 2]
    assert log.topic("other", OTHER_ID, [4]) == [3]
    rows = log.write(CHANGE, partitionId=0, topicId=TOPIC_ID, replicas=[1, 2, 3, 4])
    changes = sorted((row["partition"], row["effective_min_isr"], row["cause"]) for row in rows)
    assert changes == [(0, 3, "reassignment_completed"), (1, 3, "replicas_of_partition_0")]
    assert log.write(CHANGE, partitionId=1, topicId=TOPIC_ID, replicas=[4])[0]["effective_min_isr"] == 3


@pytest.mark.parametrize(("isr", "leader", "can_advance"), [([1, 2], 1, True), ([1], 1, False), ([1, 2], -1, False)])
def test_high_watermark_advances_with_enough_in_sync(
    to_columns: Any, isr: list[int], leader: int, can_advance: bool
) -> None:
    log = PartitionLog(to_columns, default_min_isr=2)
    log.topic("t", TOPIC_ID, [3])
    (row,) = log.write(CHANGE, partitionId=0, topicId=TOPIC_ID, isr=isr, leader=leader)
    assert row["high_watermark_can_advance"] is can_advance


def test_change_of_an_unknown_partition_is_a_problem_and_no_row(to_columns: Any) -> None:
    log = PartitionLog(to_columns)
    log.topic("t", TOPIC_ID, [1])
    assert log.write(CHANGE, partitionId=9, topicId=TOPIC_ID, isr=[1]) == []
    assert [(problem.offset, problem.problem) for problem in log.replay.problems] == [(2, "unknown_partition")]


def test_directories_follow_a_reassignment_while_all_are_migrating(to_columns: Any) -> None:
    """PartitionRegistration.merge, defaultToMigrating: one MIGRATING a replica, however many there are now."""
    log = PartitionLog(to_columns)
    log.topic("t", TOPIC_ID, [2])
    (row,) = log.write(CHANGE, partitionId=0, topicId=TOPIC_ID, replicas=[1, 2, 3])
    assert row["directories"] == ["AAAAAAAAAAAAAAAAAAAAAA"] * 3
    assert (row["leader_epoch"], row["partition_epoch"]) == (-1, 0)  # from the defaults -1 and -1: no leader was set


def test_many_partitions_fill_many_batches(to_columns: Any) -> None:
    """A change of the default touches all partitions: output goes on where a full batch stopped."""
    from kraft_audit.replay.partitions import partition_replay

    log = PartitionLog(to_columns, default_min_isr=1)
    log.topic("t", TOPIC_ID, [3] * 40)
    original, partition_replay.MAX_BATCH_ROWS = partition_replay.MAX_BATCH_ROWS, 7
    try:
        rows = log.config(4, "", "2")
    finally:
        partition_replay.MAX_BATCH_ROWS = original
    assert rows == [("t", partition, 2) for partition in range(40)]
