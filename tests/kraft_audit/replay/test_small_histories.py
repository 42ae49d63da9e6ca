"""A few records a case: the cause of each kind of change, by the controller's own code (4.3.0) for that operation."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kraft_audit.replay.cluster_replay import ClusterReplay
from kraft_audit.replay.kernels.layout import LONG_LIST
from kraft_audit.replay.partitions import partition_replay
from kraft_audit.replay.partitions.interning import TextTable, uuid_values
from kraft_audit.replay.partitions.partition_replay import PartitionReplay
from kraft_codec.records.message import default_fields
from kraft_codec.schemas import METADATA_BY_NAME
from kraft_codec.text.java_text import uuid_text

TOPIC = uuid_text(bytes(range(1, 17)))
OTHER_TOPIC = uuid_text(bytes(range(17, 33)))
Record = tuple[str, dict[str, Any]]


def lines_of(records: list[Record]) -> list[dict[str, Any]]:
    """Records in the oracle's form: those of one operation are one batch, what comes before each its own."""
    lines = []
    for offset, (name, data) in enumerate(records):
        message = METADATA_BY_NAME[name]
        envelope = {
            "offset": offset,
            "baseOffset": min(offset, len(BEFORE) + 1),
            "partitionLeaderEpoch": 3,
            "timestamp": 1_000 * min(offset, len(BEFORE) + 1),
            "isControl": False,
        }
        lines.append({**envelope, "apiKey": message.number, "data": {**default_fields(message.fields), **data}})
    return lines


def broker(number: int) -> Record:
    return "RegisterBrokerRecord", {"brokerId": number, "brokerEpoch": 10 + number, "fenced": False}


def created(**fields: Any) -> Record:
    """Partition 0 of three replicas, all in sync, led by the first."""
    lists = {"replicas": [1, 2, 3], "isr": [1, 2, 3], "removingReplicas": [], "addingReplicas": []}
    return "PartitionRecord", {"topicId": TOPIC, "partitionId": 0, "leader": 1, **lists, **fields}


def changed(**fields: Any) -> Record:
    return "PartitionChangeRecord", {"topicId": TOPIC, "partitionId": 0, **fields}


ELR = ("FeatureLevelRecord", {"name": "eligible.leader.replicas.version", "featureLevel": 1})
BEFORE = [ELR, *map(broker, (1, 2, 3)), ("TopicRecord", {"name": "t", "topicId": TOPIC})]
FENCE: Record = ("FenceBrokerRecord", {"id": 3, "epoch": 13})
UNFENCE: Record = ("UnfenceBrokerRecord", {"id": 3, "epoch": 13})
UNREGISTER: Record = ("UnregisterBrokerRecord", {"brokerId": 3, "brokerEpoch": 13})
MOVING = {"removingReplicas": [3]}


def rows_of(records: list[Record], to_columns: Any) -> list[dict[str, Any]]:
    replay = PartitionReplay(cluster_id="c")
    lines = lines_of(records)
    return [row for batch in replay.replay(to_columns(lines)) for row in batch.to_pylist()]


CASES: dict[str, tuple[dict[str, Any], list[Record], tuple[str, str | None]]] = {
    "without a leader": ({}, [changed(leader=-1)], ("leader_lost", "none")),
    "the leader again": ({}, [changed(leader=1)], ("leader_epoch_bumped", "same")),
    "another of the ISR": ({}, [changed(leader=2)], ("leader_election", "isr")),
    "the preferred one": ({"leader": 2}, [changed(leader=1)], ("preferred_election", "preferred")),
    "one out of sync": (
        {"isr": [1, 2]},
        [changed(leader=3, isr=[3], leaderRecoveryState=1)],
        ("unclean_election", "unclean"),
    ),
    "one out of sync, of none that led": (
        {"isr": [1], "leader": -1},
        [changed(leader=3, isr=[3], leaderRecoveryState=1)],
        ("unclean_election", "unclean"),
    ),
    "one of the ISR, of none that led": (
        {"isr": [1, 2], "leader": -1},
        [changed(leader=2)],
        ("leader_election", "isr"),
    ),
    "recovered": ({"isr": [1], "leaderRecoveryState": 1}, [changed(leaderRecoveryState=0)], ("recovered", None)),
    "an ELR alone": ({"isr": [1]}, [changed(eligibleLeaderReplicas=[2])], ("elr_changed", None)),
    "a last known ELR alone": ({"isr": [1]}, [changed(lastKnownElr=[2])], ("elr_changed", None)),
    "nothing at all": ({}, [changed()], ("other", None)),
    "shrunk": ({}, [changed(isr=[1, 2])], ("isr_shrunk", None)),
    "expanded": ({"isr": [1]}, [changed(isr=[1, 3])], ("isr_expanded", None)),
    "shrunk and expanded": ({"isr": [1, 2]}, [changed(isr=[1, 3])], ("isr_changed", None)),
    "a removal that begins": ({}, [changed(removingReplicas=[3])], ("reassignment_started", None)),
    "a removal that becomes another": (MOVING, [changed(removingReplicas=[2])], ("reassignment_changed", None)),
    "a removal that is taken back": (MOVING, [changed(removingReplicas=[])], ("reassignment_cancelled", None)),
    "a removal that is done": (
        MOVING,
        [changed(replicas=[1, 2], isr=[1, 2], removingReplicas=[])],
        ("reassignment_completed", None),
    ),
    "an addition that is taken back": (
        {"replicas": [1, 2, 4], "isr": [1, 2], "addingReplicas": [4]},
        [changed(replicas=[1, 2], addingReplicas=[])],
        ("reassignment_cancelled", None),
    ),
    "another reassignment in its place, done at once": (
        MOVING,
        [changed(replicas=[3], isr=[3], leader=3, removingReplicas=[])],
        ("reassignment_completed", "isr"),
    ),
    "replicas in another order, at once": ({}, [changed(replicas=[2, 1, 3])], ("reassignment_completed", None)),
    "a removal that is done just before somebody else is fenced": (
        MOVING,
        [changed(replicas=[1, 2], isr=[1, 2], removingReplicas=[]), FENCE],
        ("reassignment_completed", None),
    ),
    "fenced, as early releases wrote it": ({}, [changed(isr=[1, 2]), FENCE], ("fenced|isr_shrunk", None)),
    "unregistered": ({}, [changed(isr=[1, 2]), UNREGISTER], ("isr_shrunk|unregistered", None)),
    "unfenced, as early releases wrote it": (
        {"isr": [3], "leader": -1},
        [UNFENCE, changed(leader=3)],
        ("unfenced", "isr"),
    ),
    "registered again, and still eligible": (
        {},
        [changed(isr=[1, 2], eligibleLeaderReplicas=[3]), broker(3)],
        ("isr_shrunk|registered", None),
    ),
    "registered again after an unclean end": (
        {},
        [changed(isr=[1, 2]), broker(3)],
        ("isr_shrunk|unclean_shutdown", None),
    ),
    "shrunk before somebody was registered": (
        {"isr": [1, 2]},
        [changed(isr=[1]), broker(3)],
        ("isr_shrunk", None),
    ),
    "unclean again, before it recovered": (
        {"isr": [2], "leader": -1, "leaderRecoveryState": 1},
        [changed(leader=3, isr=[3], leaderRecoveryState=1)],
        ("unclean_election", "unclean"),
    ),
    "an ELR that grew before somebody was registered": (
        {"isr": [1]},
        [changed(eligibleLeaderReplicas=[2]), broker(3)],
        ("elr_changed", None),
    ),
    "another ELR before somebody was registered": (
        {"isr": [1], "eligibleLeaderReplicas": [1]},
        [changed(eligibleLeaderReplicas=[2]), broker(3)],
        ("elr_changed", None),
    ),
    "the last known leader, as the last other comes back uncleanly": (
        {"isr": [], "leader": -1, "eligibleLeaderReplicas": [3], "lastKnownElr": [1]},
        [changed(isr=[1], leader=1, leaderRecoveryState=1, eligibleLeaderReplicas=[], lastKnownElr=[]), broker(3)],
        ("unclean_election|unclean_shutdown", "last_known"),
    ),
    "somebody else, as the last other comes back uncleanly": (
        {"isr": [], "leader": -1, "eligibleLeaderReplicas": [3], "lastKnownElr": [2]},
        [changed(isr=[1], leader=1, leaderRecoveryState=1, eligibleLeaderReplicas=[], lastKnownElr=[]), broker(3)],
        ("unclean_election|unclean_shutdown", "unclean"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_has_its_cause_and_election(to_columns: Any, case: str) -> None:
    fields, records, expected = CASES[case]
    rows = rows_of([*BEFORE, created(**fields), *records], to_columns)
    (row,) = [row for row in rows if row["from_offset"] > len(BEFORE)]
    assert (row["cause"] or "|".join(row["possible_causes"]), row["election"]) == expected


@pytest.mark.parametrize(
    ("before", "after", "whose"),
    [([1, 2, 3], [1, 2], 3), ([1, 2], [1, 2, 3], 3), ([1, 2], [1, 3], None), ([1], [1, 2, 3], None)],
)
def test_a_change_of_the_isr_is_one_brokers_where_it_is_about_one(
    to_columns: Any, before: list[int], after: list[int], whose: int | None
) -> None:
    rows = rows_of([*BEFORE, created(isr=before), changed(isr=after)], to_columns)
    assert rows[-1]["cause_broker_id"] == whose


def test_a_partition_that_is_written_again_replaces_itself(to_columns: Any) -> None:
    """The image takes a second PartitionRecord as it is; of a deleted topic that has the same id it is a new one."""
    again = created(isr=[2], leader=2, leaderEpoch=9)
    gone: Record = ("RemoveTopicRecord", {"topicId": TOPIC})
    rows = rows_of([*BEFORE, created(), again, gone, BEFORE[-1], created()], to_columns)
    changes = [(row["cause"], row["exists"], row["isr"]) for row in rows]
    assert changes == [
        ("created", True, [1, 2, 3]),
        ("replaced", True, [2]),
        ("topic_removed", False, [2]),
        ("created", True, [1, 2, 3]),
    ]


def test_records_of_unknown_subjects_change_nothing_and_are_reported(to_columns: Any) -> None:
    replay = PartitionReplay(cluster_id="c")
    records: list[Record] = [
        *BEFORE,
        ("PartitionChangeRecord", {"topicId": OTHER_TOPIC, "partitionId": 0, "leader": 1}),
        changed(leader=1),
        ("RemoveTopicRecord", {"topicId": OTHER_TOPIC}),
        ("ClearElrRecord", {"topicName": "nowhere"}),
        ("RemoveTopicRecord", {"topicId": TOPIC}),
        changed(leader=1),
    ]
    assert [row for batch in replay.replay(to_columns(lines_of(records))) for row in batch.to_pylist()] == []
    assert sorted(problem.offset - len(BEFORE) for problem in replay.problems) == [0, 1, 2, 3, 5]


def test_min_isr_of_a_node_comes_and_goes(to_columns: Any) -> None:
    """A controller's own static value counts while it leads (LeaderChange), the cluster's dynamic one before it."""

    def config(resource: str, value: str | None, kind: int = 4) -> Record:
        fields = {"resourceType": kind, "resourceName": resource, "name": "min.insync.replicas", "value": value}
        return "ConfigRecord", fields

    records = [*BEFORE, created(), config("", "2"), config("1", "3"), config("1", None), config("t", "x", 2)]
    records += [config("", None), ("ConfigRecord", {**config("t", "3", 2)[1]}), config("other", "1", 2)]
    rows = rows_of(records, to_columns)
    minimums = [row["effective_min_isr"] for row in rows]
    assert minimums[0] == 1
    assert 2 in minimums
    assert minimums[-1] == 3


@pytest.mark.parametrize("scenario", ["elr", "divergence"])
def test_little_room_changes_no_row(
    sample_lines: Any, to_columns: Any, monkeypatch: pytest.MonkeyPatch, scenario: str
) -> None:
    """Buffers that are full after three rows, an arena that is compacted at every window: the same rows."""
    lines = sample_lines(scenario)

    def rows_of_windows(window: int) -> list[dict[str, Any]]:
        replay = PartitionReplay(cluster_id="c")
        parts = [lines[start : start + window] for start in range(0, len(lines), window)]
        rows = [row for part in parts for batch in replay.replay(to_columns(part)) for row in batch.to_pylist()]
        return rows + [row for batch in replay.state(10**6, 1, 0) for row in batch.to_pylist()]

    # Operations are not cut here: causes look at what stands beside a change.
    expected = rows_of_windows(len(lines))
    monkeypatch.setattr(partition_replay, "_ARENA_SLACK", 4)
    monkeypatch.setattr(partition_replay, "MAX_BATCH_ROWS", 3)
    assert rows_of_windows(len(lines)) == expected
    lists = ("from_offset", "isr", "replicas", "elr")
    assert [[row[name] for name in lists] for row in rows_of_windows(40)] == [
        [row[name] for name in lists] for row in expected
    ]


def test_partitions_of_many_topics_are_kept_apart(to_columns: Any) -> None:
    """More ids than the first table of ids holds."""
    count = 1_500
    ids = [uuid_text(bytes([1]) + number.to_bytes(15, "big")) for number in range(count)]
    records: list[Record] = []
    for number, topic_id in enumerate(ids):
        records.append(("TopicRecord", {"name": f"t{number}", "topicId": topic_id}))
        fields = {"topicId": topic_id, "partitionId": 0, "leader": 1, "replicas": [1], "isr": [1]}
        records.append(("PartitionRecord", {**fields, "removingReplicas": [], "addingReplicas": []}))
    replay = PartitionReplay(cluster_id="c")
    rows: list[dict[str, Any]] = []
    for start in range(0, len(records), 500):
        lines = lines_of(records)[start : start + 500]
        rows += [row for batch in replay.replay(to_columns(lines)) for row in batch.to_pylist()]
    assert [(row["topic"], row["topic_id"]) for row in rows] == [(f"t{n}", topic_id) for n, topic_id in enumerate(ids)]


PROBLEMS: list[tuple[Record, str | None]] = [
    (FENCE, None),
    (UNFENCE, None),
    (("FenceBrokerRecord", {"id": 3, "epoch": 99}), "broker_epoch_mismatch"),
    (("FenceBrokerRecord", {"id": 9, "epoch": 1}), "unknown_broker"),
    (("UnregisterBrokerRecord", {"brokerId": 2, "brokerEpoch": 99}), "broker_epoch_mismatch"),
    (("UnregisterBrokerRecord", {"brokerId": 2, "brokerEpoch": 12}), "unknown_broker"),
    (("UnregisterControllerRecord", {"controllerId": 5}), "unknown_controller"),
    (("RemoveUserScramCredentialRecord", {"name": "unknown", "mechanism": 1}), "unknown_scram"),
    (("ClientQuotaRecord", {"entity": [], "key": "k", "value": 0.0, "remove": True}), None),
    (("FeatureLevelRecord", {"name": "kraft.version", "featureLevel": 1}), None),
]


def test_records_that_contradict_the_log_are_reported_at_their_offsets(to_columns: Any) -> None:
    """BrokerRegistration, ControllerRegistration and ScramImage refuse these; quotas and kraft.version are silent."""
    replay = ClusterReplay(cluster_id="c")
    lines = lines_of([*BEFORE, *(record for record, _ in PROBLEMS)])
    rows = list(replay.replay(to_columns(lines), len(lines)))
    rows += replay.finish()
    problems = {problem.offset - len(BEFORE): problem.problem for problem in replay.problems}
    assert problems == {number: problem for number, (_, problem) in enumerate(PROBLEMS) if problem is not None}
    brokers = [row for name, batch in rows if name == "broker_changes" for row in batch.to_pylist()]
    assert [(row["broker_id"], row["cause"]) for row in brokers][3:] == [
        (3, "fenced"), (3, "unfenced"), (2, "unregistered"),
    ]  # fmt: skip
    features = [row["name"] for name, batch in rows if name == "feature_changes" for row in batch.to_pylist()]
    assert "kraft.version" not in features, "its level comes from a control record alone"


def test_a_uuid_column_of_other_lengths_is_refused() -> None:
    with pytest.raises(ValueError, match="not 16 bytes"):
        uuid_values(pa.array([bytes(16), bytes(15)]))
    assert uuid_values(pa.array([bytes(range(16))] * 3)[1:]).shape == (2, 2)
    assert TextTable(["a", "é"]).text(1) == "é"
    assert TextTable(["a"]).text(7) == ""


def test_many_replicas_are_compared_as_few_are(to_columns: Any) -> None:
    """Lists beyond those that fit a word at a time, and beyond those whose change anybody looks into."""
    many, huge = list(range(1, 41)), list(range(LONG_LIST + 2))
    for replicas, cause in ((many, "isr_shrunk"), (huge, "other")):
        records = [*BEFORE, created(replicas=replicas, isr=replicas), changed(isr=replicas[:-2])]
        rows = rows_of(records, to_columns)
        assert [row["cause"] for row in rows] == ["created", cause]
        assert rows[-1]["isr"] == replicas[:-2]


def test_a_long_name_is_whole(to_columns: Any) -> None:
    """249 characters are Kafka's most; no log is bound by that."""
    for length in (249, 5_000):
        topic: Record = ("TopicRecord", {"name": "n" * length, "topicId": TOPIC})
        (row,) = rows_of([*BEFORE[:-1], topic, created()], to_columns)
        assert row["topic"] == "n" * length


def test_a_partition_without_its_first_sibling_has_the_topics_min_isr(to_columns: Any) -> None:
    """The number of replicas of partition 0 bounds it, where there is one."""
    fields = {"resourceType": 2, "resourceName": "t", "name": "min.insync.replicas", "value": "3"}
    records: list[Record] = [*BEFORE, ("ConfigRecord", fields), created(partitionId=1, replicas=[1, 2], isr=[1, 2])]
    assert [row["effective_min_isr"] for row in rows_of(records, to_columns)] == [3]


@pytest.mark.parametrize(
    ("isr", "elr", "left", "expected"),
    [([5, 3, 1, 4, 2], [], [4], [1, 2, 3, 5]), ([2], [5, 1], [], [1, 2, 5]), ([4, 1], [3, 1], [1], [3, 4])],
)
def test_the_expected_elr_ascends(
    to_columns: Any, isr: list[int], elr: list[int], left: list[int], expected: list[int]
) -> None:
    """PartitionChangeBuilder 4.3.0 `maybeUpdateRecordElr`: ELR and ISR of before, less the ISR of now, as a set."""
    lists = {"replicas": [1, 2, 3, 4, 5], "isr": isr, "eligibleLeaderReplicas": elr, "leader": isr[0]}
    fields = {"resourceType": 2, "resourceName": "t", "name": "min.insync.replicas", "value": "5"}
    rows = rows_of([*BEFORE, ("ConfigRecord", fields), created(**lists), changed(isr=left)], to_columns)
    assert rows[-1]["expected_elr"] == expected


def test_a_topic_that_is_removed_twice_goes_once(to_columns: Any) -> None:
    gone: Record = ("RemoveTopicRecord", {"topicId": TOPIC})
    rows = rows_of([*BEFORE, created(), gone, gone], to_columns)
    assert [row["cause"] for row in rows] == ["created", "topic_removed"]
