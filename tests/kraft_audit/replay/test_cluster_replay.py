"""The whole state against Kafka's own MetadataImage, and every snapshot against the replay up to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft_audit.replay.cluster_replay import REPLAY_TABLES, ClusterReplay
from kraft_audit.tables.silver import SILVER
from tests.builders.property_examples import quickly

SECURITY_PROTOCOLS = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


def replayed(oracle: Any, log_dir: str, to_columns: Any) -> ClusterReplay:
    replay = ClusterReplay(cluster_id="c")
    lines = oracle.log_records(log_dir)
    if not lines or lines[0]["offset"] > 0:
        end_offset, epoch, path = next(s for s in oracle.snapshots(log_dir) if s[0] > 0 or not lines)
        windows = [to_columns(oracle.records(path))]
        assert [name for name, _ in replay.load_snapshot(windows, end_offset=end_offset, epoch=epoch, timestamp_ms=0)]
        lines = [line for line in lines if line["offset"] >= end_offset]
    if lines:
        list(replay.replay(to_columns(lines), lines[-1]["offset"] + 1))
    list(replay.finish())
    return replay


def rows_of(replay: ClusterReplay, table: str) -> list[dict[str, Any]]:
    return [row for name, batch in replay.state(0, 0, 0) if name == table for row in batch.to_pylist()]


def image_of(oracle: Any, log_dir: str) -> dict[str, Any] | None:
    image = oracle.image(log_dir)
    source = image.get("wholeLog") or image.get("snapshotPlusTail")
    return dict(source["image"]) if source and source.get("image") else None


def broker_as_kafka_shows(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["broker_id"],
        "epoch": row["broker_epoch"],
        "incarnationId": row["incarnation_id"],
        "fenced": row["fenced"],
        "inControlledShutdown": row["in_controlled_shutdown"],
        "directories": row["log_dirs"],
        "rack": row["rack"],
        "listeners": {
            e["name"]: f"{e['host']}:{e['port']}/{SECURITY_PROTOCOLS[e['security_protocol']]}"
            for e in row["end_points"]
        },
        "supportedFeatures": {
            f["name"]: f"{f['min_supported_version']}-{f['max_supported_version']}" for f in row["features"]
        },
    }


@pytest.mark.slow
def test_state_is_kafkas_image(oracles: list[Any], to_columns: Any) -> None:
    compared = 0
    for oracle in oracles:
        for log_dir in oracle.distinct_logs() if oracle.folder.name != "crafted" else ():
            image = image_of(oracle, log_dir)
            if image is None:
                continue
            replay = replayed(oracle, log_dir, to_columns)
            assert not replay.problems
            brokers = {row["broker_id"]: broker_as_kafka_shows(row) for row in rows_of(replay, "broker_changes")}
            assert brokers == {b["id"]: {**b, "rack": b.get("rack")} for b in image["brokers"]}
            keys = {"controller_id": "id", "incarnation_id": "incarnationId", "zk_migration_ready": "zkMigrationReady"}
            controllers = [
                {theirs: row[ours] for ours, theirs in keys.items()} for row in rows_of(replay, "controller_changes")
            ]
            assert sorted(controllers, key=str) == sorted(image["controllers"], key=str)
            features = {r["name"]: r["feature_level"] for r in rows_of(replay, "feature_changes")}
            features.pop("kraft.version", None)
            assert features == {k: v for k, v in image["features"].items() if k != "metadata.version.name"}
            configs: dict[tuple[str, str], dict[str, str]] = {}
            for row in rows_of(replay, "config_changes"):
                configs.setdefault((row["resource_type"], row["resource_name"]), {})[row["name"]] = row["value"]
            assert configs == {(c["type"], c["name"]): c["data"] for c in image["configs"] if c["data"]}
            names = {(row["topic"], row["topic_id"]) for row in rows_of(replay, "topic_changes")}
            assert names == {(p["topic"], p["topicId"]) for p in image["partitions"]}
            security = rows_of(replay, "security_changes")
            counts = {
                kind: sum(row["kind"] == kind for row in security) for kind in ("ACL", "SCRAM", "DELEGATION_TOKEN")
            }
            assert counts == {
                "ACL": image["acls"], "SCRAM": image["scram"], "DELEGATION_TOKEN": image["delegationTokens"]
            }  # fmt: skip
            produced = [json.loads(row["state"]) for row in security if row["kind"] == "PRODUCER_IDS"]
            assert [p["next_producer_id"] for p in produced] in ([image["producerIdsNext"]], [])
            compared += 1
    assert compared >= 10


@pytest.mark.slow
def test_every_snapshot_is_the_replay_up_to_it(oracles: list[Any], to_columns: Any) -> None:
    compared = 0
    for oracle in oracles:
        for log_dir in oracle.distinct_logs() if oracle.folder.name != "crafted" else ():
            lines = oracle.log_records(log_dir)
            if not lines or lines[0]["offset"] > 0:
                continue
            for end_offset, epoch, path in oracle.snapshots(log_dir):
                if not 0 < end_offset <= lines[-1]["offset"] + 1:
                    continue
                below = [line for line in lines if line["offset"] < end_offset]
                whole, loaded = ClusterReplay(cluster_id="c"), ClusterReplay(cluster_id="c")
                list(whole.replay(to_columns(below), end_offset))
                list(whole.finish())
                windows = [to_columns(oracle.records(path))]
                list(loaded.load_snapshot(windows, end_offset=end_offset, epoch=epoch, timestamp_ms=0))
                for table in REPLAY_TABLES:
                    mine, theirs = rows_of(whole, table), rows_of(loaded, table)
                    if table == "security_changes":  # a snapshot writes producer ids without their broker
                        mine, theirs = ([r for r in rows if r["kind"] != "PRODUCER_IDS"] for rows in (mine, theirs))
                    assert sorted(mine, key=str) == sorted(theirs, key=str), (path, table)
                compared += 1
    assert compared >= 1


def all_rows(lines: list[dict[str, Any]], edges: list[int], to_columns: Any) -> dict[str, list[dict[str, Any]]]:
    replay = ClusterReplay(cluster_id="c", plan=3)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in REPLAY_TABLES}
    cuts = [0, *sorted(edge for edge in set(edges) if 0 < edge < len(lines)), len(lines)]
    batches: list[tuple[str, pa.RecordBatch]] = []
    for start, end in pairwise(cuts):
        batches += replay.replay(to_columns(lines[start:end]), lines[end - 1]["offset"] + 1)
    batches += replay.finish()
    for name, batch in batches:
        assert batch.schema == SILVER[name].schema
        found[name] += batch.to_pylist()
    return found


@pytest.fixture(scope="session")
def elr_rows(
    sample_lines: Callable[[str], list[dict[str, Any]]], to_columns: Any
) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    lines = sample_lines("elr")
    return lines, all_rows(lines, [], to_columns)


@pytest.mark.slow
@settings(max_examples=quickly(10))
@given(edges=st.lists(st.integers(1, 900), max_size=8))
def test_any_split_into_windows_gives_the_same_tables(edges: list[int], elr_rows: Any, to_columns: Any) -> None:
    lines, expected = elr_rows
    assert all_rows(lines, edges, to_columns) == expected


@settings(max_examples=quickly(5), deadline=None)
@given(cut=st.integers(1, 2_000))
def test_replaying_more_never_changes_earlier_rows(cut: int, elr_rows: Any, to_columns: Any) -> None:
    """Prefix-monotone: the rows of the records up to a cut are the first rows of all records."""
    lines, whole = elr_rows
    part = lines[: min(cut, len(lines))]
    replay = ClusterReplay(cluster_id="c", plan=3)
    rows_of_table: dict[str, list[dict[str, Any]]] = {name: [] for name in REPLAY_TABLES}
    for name, batch in replay.replay(to_columns(part), part[-1]["offset"] + 1):
        rows_of_table[name] += batch.to_pylist()
    for name, rows in rows_of_table.items():
        assert rows == whole[name][: len(rows)], name


def test_rows_begin_where_they_are_asked_for(elr_rows: Any, to_columns: Any) -> None:
    lines, expected = elr_rows
    replay = ClusterReplay(cluster_id="c", plan=3, emit_from_offset=500)
    batches = [*replay.replay(to_columns(lines), lines[-1]["offset"] + 1), *replay.finish()]
    for name in REPLAY_TABLES:
        rows = [row for table, batch in batches if table == name for row in batch.to_pylist()]
        assert rows == [row for row in expected[name] if row["from_offset"] >= 500]


def test_keys_are_unique(elr_rows: Any) -> None:
    for name, rows in elr_rows[1].items():
        keys = [tuple(row[column] for column in SILVER[name].key) for row in rows]
        assert len(keys) == len(set(keys)), name


def test_a_snapshot_fills_the_tables_that_are_wanted_and_no_other(to_columns: Any) -> None:
    envelope = {"offset": 0, "partitionLeaderEpoch": 1, "timestamp": 0, "isControl": False}
    topic_id = "AAAAAAAAAAAAAAAAAAAABQ"
    created = {"partitionId": 0, "topicId": topic_id, "replicas": [1], "isr": [1], "leader": 1}
    lines = [envelope | {"apiKey": 2, "data": {"name": "t", "topicId": topic_id}}]
    lines.append(envelope | {"offset": 1, "apiKey": 3, "data": created})
    replay = ClusterReplay(cluster_id="c", tables=frozenset({"topic_changes"}))
    batches = list(replay.load_snapshot([to_columns(lines)], end_offset=7, epoch=1, timestamp_ms=0))
    assert {name for name, _ in batches} == {"topic_changes"}
    rows = [row for _, batch in batches for row in batch.to_pylist()]
    assert [(row["topic"], row["from_offset"], row["cause"]) for row in rows] == [("t", 6, "snapshot")]
