"""Which membership protocol wrote a log: found in its control records, and undecided where these disagree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kraft_audit as audit
from kraft_audit.capture.log_dialect import CONTROL_RECORDS_MAX
from kraft_audit.capture.path_plans import plan_cluster, plan_path
from kraft_audit.rules.rule_model import Status
from kraft_codec.records.batch import write_batch
from kraft_codec.records.record import write_control_key, write_control_value
from kraft_codec.schemas import CONTROL_TYPE_BY_NAME, Dialect
from kraft_codec.storage.opener import open_storage
from kraft_engine.runs.simulate import simulate
from tests.builders.logs import CLUSTER_ID, NOW_MS, Log, write_node

LEADER_CHANGE_FIELDS: dict[str, Any] = {"version": 0, "leaderId": 1}
VOTERS = {
    Dialect.KIP853: [{"voterId": 1}],
    Dialect.KIP856: [{"voterId": 1, "voterUuid": b"u" * 16}],
    Dialect.KIP642: [{"voterId": 1}],
}
SCENARIOS = {
    "last-replica-standing": Dialect.KIP853,
    "kip856-disk-replaced": Dialect.KIP856,
    "kip642-reassigned": Dialect.KIP642,
}


def control_batch(dialect: Dialect, *records: tuple[str, dict[str, Any]], base_offset: int = 0) -> bytes:
    pairs: list[tuple[bytes | None, bytes | None]] = []
    for name, fields in records:
        control = CONTROL_TYPE_BY_NAME[dialect][name]
        pairs.append((write_control_key(control.number), write_control_value(control, fields)))
    return write_batch(base_offset=base_offset, leader_epoch=1, timestamp_ms=NOW_MS, records=pairs, is_control=True)


def led(dialect: Dialect) -> bytes:
    """A log's first batch: the LeaderChange of a dialect."""
    fields = {**LEADER_CHANGE_FIELDS, "voters": VOTERS[dialect], "grantingVoters": VOTERS[dialect]}
    return control_batch(dialect, ("LEADER_CHANGE", fields))


def found(path: Path) -> set[str]:
    """What both ways to a plan find."""
    (by_path,) = plan_path(str(path), open_storage=open_storage, captured_at_ms=0)
    by_fleet = plan_cluster([str(path)], open_storage=open_storage, captured_at_ms=0, name="a")
    return {by_path.dialect, by_fleet.dialect}


@pytest.mark.parametrize("dialect", Dialect)
def test_the_first_control_record_decides(dialect: Dialect, tmp_path: Path) -> None:
    write_node(tmp_path, 1, led(dialect))
    assert found(tmp_path) == {dialect}


@pytest.mark.parametrize(("scenario", "dialect"), SCENARIOS.items())
def test_a_log_of_each_dialect_is_dumped_alike_without_the_option(
    scenario: str, dialect: Dialect, kraft_audit: Any, tmp_path: Path
) -> None:
    simulate(scenario, 1, tmp_path / "run")
    for style in (["--output", "jsonl"], ["--format", "kafka"]):
        command = ["dump", tmp_path / "run", "--reveal-secrets", *style]
        named, plain = kraft_audit(*command, "--dialect", dialect), kraft_audit(*command)
        assert (plain.code, plain.out) == (named.code, named.out)
        assert plain.out.count("\n") > 10
        others = [kraft_audit(*command, "--dialect", other).out for other in Dialect if other is not dialect]
        assert named.out not in others


@pytest.mark.parametrize(("scenario", "dialect"), [item for item in SCENARIOS.items() if "kip" in item[0]])
def test_a_draft_that_nobody_named_is_no_corrupt_batch(
    scenario: str, dialect: Dialect, kraft_audit: Any, tmp_path: Path
) -> None:
    """Its control records are damaged only for a reader that takes them for Kafka's."""
    simulate(scenario, 1, tmp_path / "run")
    checked = kraft_audit("check", tmp_path / "run", "--rule", "KQ008", "--output", "json")
    assert (checked.code, json.loads(checked.out)) == (0, [])
    statuses = {}
    for named in ("", dialect, Dialect.KIP853):
        with audit.open(str(tmp_path / "run"), **({"dialect": named} if named else {})) as clusters:
            (cluster,) = clusters
            statuses[named] = {finding.status for finding in cluster.check(only=["KQ008"])}
    assert statuses == {"": {Status.CLEAR}, dialect: {Status.CLEAR}, Dialect.KIP853: {Status.RAISED}}


@pytest.mark.parametrize(
    ("dialect", "records"),
    [
        (Dialect.KIP853, [("KRAFT_VERSION", {"version": 0, "kRaftVersion": 1})]),
        (Dialect.KIP856, [("ADD_VOTER", {"version": 0, "voterId": 1, "voterUuid": b"u" * 16})]),
        (
            Dialect.KIP642,
            [("VOTER_ASSIGNMENT", {"clusterId": "c", "currentVoters": [{"voterId": 1}], "targetVoters": None})],
        ),
    ],
)
def test_a_snapshot_decides_where_the_logs_beginning_is_gone(
    dialect: Dialect, records: list[tuple[str, dict[str, Any]]], tmp_path: Path
) -> None:
    later = Log(next_offset=40)
    later.topic("a")
    header = ("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": NOW_MS})
    snapshot = control_batch(dialect, header, *records)
    name = "00000000000000000040-0000000001.checkpoint"
    write_node(tmp_path, 1, {40: later.content}, files={name: snapshot})
    assert found(tmp_path) == {dialect}


def test_a_log_without_a_control_record_is_kafkas(tmp_path: Path, log: Log) -> None:
    log.topic("a")
    write_node(tmp_path, 1, log.content)
    assert found(tmp_path) == {Dialect.KIP853}


def test_two_records_that_disagree_leave_it_undecided(tmp_path: Path) -> None:
    """Then all that follows from control records is undecided."""
    write_node(tmp_path, 1, led(Dialect.KIP853))
    write_node(tmp_path, 2, led(Dialect.KIP856))
    assert found(tmp_path) == {""}
    with audit.open(str(tmp_path)) as clusters:
        for cluster in clusters:
            voters = list(cluster.check(only=["KV001", "KV003", "KV801", "KQ005"]))
            assert {finding.status for finding in voters} == {Status.UNDECIDED}
            assert {"fleet.yaml" in finding.summary for finding in voters} == {True}
            assert cluster.table("voter_sets").num_rows == 0
            (partitions,) = cluster.check(only=["KP001"])
            assert partitions.status is Status.CLEAR
    with audit.open(str(tmp_path), dialect="kip856") as clusters:
        assert {plan.dialect for plan in clusters.plans} == {"kip856"}


def test_segments_of_one_log_that_disagree_leave_it_undecided(tmp_path: Path) -> None:
    voter = ("ADD_VOTER", {"version": 0, "voterId": 1, "voterUuid": b"u" * 16})
    segments = {0: led(Dialect.KIP853), 1: control_batch(Dialect.KIP856, voter, base_offset=1)}
    write_node(tmp_path, 1, segments)
    (plan,) = plan_path(str(tmp_path), open_storage=open_storage, captured_at_ms=0)
    assert (plan.dialect, plan.read_as) == ("", Dialect.KIP853)


def test_a_replica_of_another_cluster_has_no_say(tmp_path: Path) -> None:
    write_node(tmp_path, 1, led(Dialect.KIP856))
    write_node(tmp_path, 2, led(Dialect.KIP853), cluster_id="A" * 22)
    plan = plan_cluster([str(tmp_path)], open_storage=open_storage, captured_at_ms=0, name="a", cluster_id=CLUSTER_ID)
    assert plan.dialect == Dialect.KIP856


def test_a_damaged_record_decides_nothing(tmp_path: Path) -> None:
    content = bytearray(led(Dialect.KIP856))
    content[-1] ^= 1
    write_node(tmp_path, 1, bytes(content))
    assert found(tmp_path) == {Dialect.KIP853}


@pytest.mark.parametrize(
    ("count", "dialect"), [(CONTROL_RECORDS_MAX, Dialect.KIP642), (CONTROL_RECORDS_MAX + 1, Dialect.KIP853)]
)
def test_a_batch_with_more_records_than_any_decides_nothing(count: int, dialect: Dialect, tmp_path: Path) -> None:
    """Before a log is read nobody decodes a batch of a million records three times."""
    fields = {**LEADER_CHANGE_FIELDS, "voters": VOTERS[Dialect.KIP642], "grantingVoters": VOTERS[Dialect.KIP642]}
    write_node(tmp_path, 1, control_batch(Dialect.KIP642, *[("LEADER_CHANGE", fields)] * count))
    assert found(tmp_path) == {dialect}
