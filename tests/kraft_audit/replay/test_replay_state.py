"""A replay that stops, is kept as bytes and goes on gives the rows of one that never stopped.

The logs are simulated ones of every dialect, with their snapshots, transactions and elections; they are cut anywhere,
inside operations and transactions too.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from kraft_audit.capture.decoded_records import RecordColumns, between
from kraft_audit.capture.path_plans import plan_path
from kraft_audit.quorum.rounds import proven_rounds
from kraft_audit.reading import ClusterReading, ReadingSettings
from kraft_audit.replay.cluster_replay import ClusterReplay, TableBatch, drain
from kraft_audit.replay.driver import BranchLog, UndecodedRecords, branch_start
from kraft_audit.replay.replay_state import STATE_PARTS, load_replay, save_replay
from kraft_audit.tables.kept_parts import KeptPartsError, columns_from_bytes, columns_to_bytes, pack, unpack
from kraft_codec.columns import typed_schema
from kraft_codec.records.redaction import Redactor
from kraft_codec.schemas import CONTROL_TYPES, METADATA_BY_NAME, Dialect
from kraft_codec.storage.opener import open_storage
from kraft_engine import simulate
from tests.builders.partition_logs import OTHER_ID, TOPIC_ID

QUICK: Final = (("random", 1), ("random-wide", 2))
LOGS: Final = (
    ("random-lifelike", 2),
    *(("random-wide", seed) for seed in (1, 3, 11)),
    *((kind, 1) for kind in ("random-upgrade", "random-beyond", "random-kip856", "random-kip642")),
)
BROKER, TOPIC, PARTITION, CONFIG, CHANGE, FENCE, NO_TOPIC, FEATURE = 0, 2, 3, 4, 5, 7, 9, 12
CHANGED_BROKER, CONTROLLER = 17, 27
CHANGED: Final = {"partitionId": 0, "topicId": TOPIC_ID}
ASSIGNED: Final = {**CHANGED, "replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1}
DEFAULTS: Final = {"min.insync.replicas": "2"}
Window = tuple[RecordColumns, int]


class Log:
    """Windows of records from offset 0 on."""

    def __init__(self, windows: list[Window]) -> None:
        self.windows = windows

    def begun(self) -> tuple[ClusterReplay, list[TableBatch]]:
        """A replay that has seen none of them, and the rows that it begins with."""
        return ClusterReplay(cluster_id="c", defaults=DEFAULTS), []


class KeptLog(Log):
    """The canonical log of a simulated cluster: the snapshot it begins with, if any, and its windows."""

    def __init__(self, kind: str, seed: int) -> None:
        with TemporaryDirectory() as folder:
            simulate(kind, seed, Path(folder) / "run")
            plans = plan_path(folder, open_storage=open_storage, captured_at_ms=0)
            plan = max(plans, key=lambda each: len(each.replicas))
            with ClusterReading(plan, ReadingSettings(open_storage, Redactor(bytes(32)))) as reading:
                newest = proven_rounds(reading.survey, plan)[-1].interval.canonical
                log = BranchLog(reading, None if newest is None else newest.number)
                self.start = branch_start(log)
                snapshot = self.start.snapshot
                self.snapshot = [] if snapshot is None else list(log.snapshot_records(snapshot, UndecodedRecords()))
                windows = list(log.windows(self.start.from_offset, None))
        super().__init__(list(_cut(windows, self.start.from_offset, random.Random(seed))))  # noqa: S311  # not a secret

    def begun(self) -> tuple[ClusterReplay, list[TableBatch]]:
        replay, _ = super().begun()
        if self.start.snapshot is None:
            return replay, []
        return replay, list(
            replay.load_snapshot(
                self.snapshot, end_offset=self.start.from_offset, epoch=self.start.snapshot.epoch, timestamp_ms=0
            )
        )


def _cut(windows: list[Any], from_offset: int, chance: random.Random) -> Iterator[Window]:
    """The records in order; most cuts lie near each other, where operations and transactions are."""
    for window in windows:
        start = max(from_offset, window.from_offset)
        while start < window.to_offset:
            end = min(window.to_offset, start + chance.choice((1, 2, 3, 10, 50)))
            yield between(window.records, start, end), end
            start = end


@functools.cache
def kept_log(kind: str, seed: int) -> KeptLog:
    return KeptLog(kind, seed)


def rows_without_a_stop(log: Log) -> list[list[TableBatch]]:
    replay, first = log.begun()
    steps = [first, *(list(replay.replay(records, end)) for records, end in log.windows)]
    return [*steps, list(replay.finish()), list(replay.state(1, 1, 1))]


def resumed(content: bytes) -> ClusterReplay:
    return load_replay(content, cluster_id="c", defaults=DEFAULTS)


def assert_goes_on(log: Log, *, every: int) -> int:
    """Stops and goes on after every so many windows; returns how often records waited there."""
    expected = rows_without_a_stop(log)
    replay, found = log.begun()
    assert_equal(found, expected[0])
    waited = 0
    for number, (records, end) in enumerate(log.windows):
        assert_equal(list(replay.replay(records, end)), expected[number + 1])
        if number % every == 0:
            content = save_replay(replay)
            problems, replay = replay.problems, resumed(content)
            assert save_replay(replay) == content
            assert replay.settler.fed_to == end
            assert replay.problems == problems
            waited += replay.settled_offset < end
    assert_equal(list(replay.finish()), expected[-2])
    assert_equal(list(replay.state(1, 1, 1)), expected[-1])
    return waited


def assert_equal(found: list[TableBatch], expected: list[TableBatch]) -> None:
    assert [name for name, _ in found] == [name for name, _ in expected]
    for (name, batch), (_, known) in zip(found, expected, strict=True):
        assert batch.equals(known), name


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), QUICK)
def test_going_on_gives_the_rows_of_going_on_without_a_stop(kind: str, seed: int) -> None:
    assert assert_goes_on(kept_log(kind, seed), every=2) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), LOGS)
def test_going_on_after_every_window(kind: str, seed: int) -> None:
    assert_goes_on(kept_log(kind, seed), every=1)


def test_what_is_cut_off_or_altered_is_not_taken() -> None:
    log = kept_log(*QUICK[0])
    replay, _ = log.begun()
    for records, end in log.windows:
        list(replay.replay(records, end))
    content = save_replay(replay)
    parts = unpack(content)
    assert all(parts[name] for name in ("topics", "nodes", "partitions", "directories")), "none of them is empty"
    for damaged in (
        b"",
        content[:-1],
        content[:30],
        content + b"x",
        b"X" + content[1:],
        pack({name: part for name, part in parts.items() if name != "topics"}),
        pack(parts | {"topics": parts["nodes"]}),
        pack(parts | {"partitions": parts["partitions"][:-20]}),
        pack(parts | {"directories": columns_to_bytes(pa.RecordBatch.from_pylist([], STATE_PARTS["directories"]))}),
    ):
        with pytest.raises(KeptPartsError):
            resumed(damaged)


def as_decoded(records: RecordColumns) -> RecordColumns:
    """Columns as decoding gives them, their versions zero."""
    controls = {control.message.name: control.message for control in CONTROL_TYPES[Dialect.KIP853].values()}
    found = {}
    for name, batch in records.items():
        schema = typed_schema((METADATA_BY_NAME | controls)[name])
        columns = [
            batch.column(field.name).cast(field.type) if field.name in batch.schema.names else pa.array([0], field.type)
            for field in schema
        ]
        found[name] = pa.RecordBatch.from_arrays(columns, schema=schema)
    return found


@pytest.fixture(scope="module")
def written(to_columns: Any) -> Log:
    """What simulated clusters seldom or never write, a record a window: each matters to a record after it."""
    records = [(CONTROLLER, {"controllerId": 1, "incarnationId": TOPIC_ID, "zkMigrationReady": True, "endPoints": []})]
    for controller_id, level in ((1, 26), (2, 30)):
        feature = {"name": "metadata.version", "minSupportedVersion": 7, "maxSupportedVersion": level}
        records.append((CONTROLLER, {**records[0][1], "controllerId": controller_id, "features": [feature]}))
    records += [
        (None, {"version": 0, "leaderId": 1, "voters": [], "grantingVoters": []}),
        (FEATURE, {"name": "eligible.leader.replicas.version", "featureLevel": 1}),
        (BROKER, {"brokerId": 1, "brokerEpoch": 5, "isMigratingZkBroker": True, "cordonedLogDirs": [OTHER_ID]}),
        (FENCE, {"id": 77, "epoch": 1}),
        (TOPIC, {"name": "t", "topicId": TOPIC_ID}),
        (PARTITION, {**ASSIGNED, "removingReplicas": list(range(5_000)), "leaderRecoveryState": 1}),
        (CONFIG, {"resourceType": 2, "resourceName": "t", "name": "retention.ms", "value": "1"}),
        (CONFIG, {"resourceType": 4, "resourceName": "1", "name": "min.insync.replicas", "value": "2"}),
        (CONFIG, {"resourceType": 4, "resourceName": "2", "name": "min.insync.replicas", "value": "3"}),
        (CHANGE, {**CHANGED, "isr": [1]}),
        (CHANGE, {**CHANGED, "removingReplicas": []}),
        (CHANGE, {**CHANGED, "eligibleLeaderReplicas": [2], "lastKnownElr": [3]}),
        (CHANGE, {**CHANGED, "directories": [OTHER_ID, OTHER_ID, OTHER_ID]}),
        (None, {"version": 0, "leaderId": 2, "voters": [], "grantingVoters": []}),
        (CHANGE, {**CHANGED, "directories": [OTHER_ID, OTHER_ID, TOPIC_ID]}),
        (None, {"version": 0, "leaderId": 1, "voters": [], "grantingVoters": []}),
        (CONFIG, {"resourceType": 4, "resourceName": "1", "name": "min.insync.replicas", "value": "1"}),
        (CHANGE, {**CHANGED, "partitionId": 9}),
        (NO_TOPIC, {"topicId": TOPIC_ID}),
        (CHANGED_BROKER, {"brokerId": 1, "brokerEpoch": 5, "cordonedLogDirs": []}),
        (CONTROLLER, {**records[0][1], "incarnationId": OTHER_ID}),
    ]
    windows = []
    for offset, (api_key, data) in enumerate(records):
        kind = {"isControl": True, "controlTypeId": 2} if api_key is None else {"isControl": False, "apiKey": api_key}
        line = {"offset": offset, "partitionLeaderEpoch": 1, "timestamp": 1_000 * offset, **kind, "data": data}
        windows.append((as_decoded(to_columns([line])), offset + 1))
    return Log(windows)


def test_records_that_are_rare_are_kept_too(written: Log) -> None:
    assert assert_goes_on(written, every=1) > 0


FIELDS: Final = [(part, field.name) for part, schema in STATE_PARTS.items() for field in schema]


def erased(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """The batch as if a field had never been kept: empty where it may be, else zero."""
    place = batch.schema.get_field_index(name)
    field = batch.schema.field(place)
    if field.nullable:
        values = pa.nulls(batch.num_rows, field.type)
    elif pa.types.is_list(field.type):
        values = pa.array([[]] * batch.num_rows, field.type)
    elif pa.types.is_string(field.type):
        values = pa.array([""] * batch.num_rows, field.type)
    elif pa.types.is_boolean(field.type):
        values = pa.array([False] * batch.num_rows, field.type)
    elif pa.types.is_fixed_size_binary(field.type):
        values = pa.array([number.to_bytes(16, "big") for number in range(batch.num_rows)], field.type)
    else:
        values = pa.array(np.zeros(batch.num_rows), field.type)
    return batch.set_column(place, field, values)


@pytest.mark.slow
@pytest.mark.parametrize(("part", "field"), FIELDS)
def test_no_field_of_the_state_can_be_left_out(part: str, field: str, written: Log) -> None:
    logs = (written, *(kept_log(kind, seed) for kind, seed in LOGS))
    assert any(is_noticed(log, part, field) for log in logs)


def is_noticed(log: Log, part: str, field: str) -> bool:
    replay, _ = log.begun()
    for number, (records, end) in enumerate(log.windows):
        drain(replay.replay(records, end))
        if number % 10 == 7 or not isinstance(log, KeptLog):
            parts = unpack(save_replay(replay))
            changed = erased(columns_from_bytes(parts[part], STATE_PARTS[part]), field)
            altered = parts | {part: columns_to_bytes(changed)}
            if altered[part] == parts[part]:
                continue
            try:
                erring = resumed(pack(altered))
                assert_continues_as(resumed(pack(parts)), erring, log.windows[number + 1 :])
            except (AssertionError, KeptPartsError):
                return True
    return False


def assert_continues_as(replay: ClusterReplay, erring: ClusterReplay, windows: list[Window]) -> None:
    assert erring.settled_offset == replay.settled_offset
    assert erring.problems == replay.problems
    for records, end in windows:
        assert_equal(list(erring.replay(records, end)), list(replay.replay(records, end)))
    assert_equal(list(erring.finish()), list(replay.finish()))
    assert erring.problems == replay.problems
    assert_equal(list(erring.state(1, 1, 1)), list(replay.state(1, 1, 1)))
