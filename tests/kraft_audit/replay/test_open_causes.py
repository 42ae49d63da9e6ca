"""What one batch leaves open: a leader's request just before a broker's event has the bytes of a part of the event."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_audit.replay.partitions.partition_replay import PartitionReplay
from tests.builders.partition_logs import CHANGE, OTHER_ID, PARTITION, TOPIC, TOPIC_ID

FEATURE_LEVEL, REGISTER, UNREGISTER, BROKER_CHANGE = 12, 0, 1, 17
NO_LEADER = -1

Record = tuple[int, dict[str, Any]]


def fence(broker: int) -> Record:
    return BROKER_CHANGE, {"brokerId": broker, "brokerEpoch": 1, "fenced": 1}


def unfence(broker: int) -> Record:
    return BROKER_CHANGE, {"brokerId": broker, "brokerEpoch": 1, "fenced": -1}


def register(broker: int) -> Record:
    return REGISTER, {"brokerId": broker, "incarnationId": OTHER_ID, "endPoints": [], "features": []}


def change(partition: int, **fields: Any) -> Record:
    return CHANGE, {"partitionId": partition, "topicId": TOPIC_ID, **fields}


def causes(to_columns: Any, *batches: list[Record], elr: int = 0) -> list[Any]:
    """The causes of all changes; of an open one, what it may be. Partition 0 is led by broker 1, 1 by 2, 2 by none."""
    made = [(TOPIC, {"name": "t", "topicId": TOPIC_ID})]
    made += [(FEATURE_LEVEL, {"name": "eligible.leader.replicas.version", "featureLevel": elr})] if elr else []
    for partition, leader in enumerate((1, 2, NO_LEADER)):
        lists = {"replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": leader}
        made.append((PARTITION, {"partitionId": partition, "topicId": TOPIC_ID, **lists}))
    replay, offset, lines = PartitionReplay(cluster_id="c", default_min_isr=2), 0, []
    for batch in (made, *batches):
        lines += [
            {
                "offset": offset + number,
                "baseOffset": offset,
                "partitionLeaderEpoch": 1,
                "timestamp": 1_000,
                "isControl": False,
                "apiKey": key,
                "data": data,
            }
            for number, (key, data) in enumerate(batch)
        ]
        offset += len(batch)
    found = [row for rows in replay.replay(to_columns(lines)) for row in rows.to_pylist()]
    assert all((row["cause"] is None) == (row["possible_causes"] is not None) for row in found)
    return [row["cause"] or set(row["possible_causes"]) for row in found if row["cause"] != "created"]


FENCED = {"fenced", "isr_shrunk"}


def test_a_leader_may_have_asked_for_it_just_before(to_columns: Any) -> None:
    assert causes(to_columns, [change(0, isr=[1, 3]), fence(2)]) == [FENCED]
    assert causes(to_columns, [change(0, isr=[1, 3])], [fence(2)]) == ["isr_shrunk"]


def test_no_leader_asks_to_leave_and_all_after_it_is_the_same_operation(to_columns: Any) -> None:
    led, followed = change(1, isr=[1, 3], leader=1), change(0, isr=[1, 3])
    assert causes(to_columns, [led, followed, fence(2)]) == ["fenced", "fenced"]
    assert causes(to_columns, [followed, led, fence(2)]) == [FENCED, "fenced"]
    assert causes(to_columns, [change(2, isr=[1, 3]), fence(2)]) == ["fenced"]


def test_nothing_of_another_operation_stands_within_one(to_columns: Any) -> None:
    grown = change(1, isr=[3, 2, 1])
    assert causes(to_columns, [change(0, isr=[1, 3]), grown, fence(2)])[0] == "isr_shrunk"
    assert causes(to_columns, [change(0, isr=[3, 1]), fence(2)]) == ["isr_shrunk"]  # Kafka keeps the order of the ISR
    assigned = change(0, isr=[1, 3], directories=[TOPIC_ID, TOPIC_ID, OTHER_ID])
    assert causes(to_columns, [assigned, fence(2)]) == ["directory_assigned"]


def test_what_a_shutdown_takes_out_stays_out(to_columns: Any) -> None:
    shutdown = (BROKER_CHANGE, {"brokerId": 2, "brokerEpoch": 1, "inControlledShutdown": 1})
    assert causes(to_columns, [shutdown, change(0, isr=[1, 3]), fence(2)]) == ["controlled_shutdown"]
    assert causes(to_columns, [change(0, isr=[1, 3]), shutdown]) == ["isr_shrunk"]


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        ((UNREGISTER, {"brokerId": 2, "brokerEpoch": 1}), "unregistered"),
        ((BROKER_CHANGE, {"brokerId": 2, "brokerEpoch": 1, "logDirs": [OTHER_ID]}), "directory_failed"),
        (register(2), "registered"),
    ],
)
def test_every_event_that_takes_a_broker_out(to_columns: Any, last: Record, cause: str) -> None:
    assert causes(to_columns, [change(0, isr=[1, 3]), last]) == [{cause, "isr_shrunk"}]
    assert causes(to_columns, [change(1, isr=[1, 3], leader=1), last]) == [cause]


def test_an_unclean_shutdown_shows_below_the_minimum(to_columns: Any) -> None:
    """What a leader asks for leaves the broker in the ELR there (PartitionChangeBuilder.populateTargetElr 4.3.0)."""
    first = [change(0, isr=[1, 2])]
    assert causes(to_columns, [change(0, isr=[1, 3]), register(2)], elr=1) == [{"isr_shrunk", "unclean_shutdown"}]
    assert causes(to_columns, first, [change(0, isr=[1]), register(2)], elr=1)[-1] == "unclean_shutdown"
    with_elr = change(0, isr=[1], eligibleLeaderReplicas=[2])
    assert causes(to_columns, first, [with_elr, register(2)], elr=1)[-1] == {"isr_shrunk", "registered"}


def test_an_unclean_election_after_an_unfencing_may_be_asked_for(to_columns: Any) -> None:
    unclean = change(2, isr=[3], leader=3, leaderRecoveryState=1)
    assert causes(to_columns, [unfence(3), unclean]) == [{"unclean_election", "unfenced"}]
    assert causes(to_columns, [unfence(3)], [unclean]) == ["unclean_election"]
    assert causes(to_columns, [unfence(3), change(2, leader=3)]) == ["unfenced"]


def test_an_operation_goes_on_after_a_full_batch_alone(to_columns: Any) -> None:
    many = [change(2, isr=[1, 2, 3], leader=NO_LEADER)] * 9_999
    shrunk = change(1, isr=[1, 3], leader=1)
    assert causes(to_columns, [*many, shrunk], [fence(2)])[-1] == "fenced"
    assert causes(to_columns, [*many[1:], shrunk], [fence(2)])[-1] != "fenced"
