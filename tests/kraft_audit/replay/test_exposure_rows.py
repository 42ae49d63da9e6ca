"""`exposure_changes` holds just the changes of partitions that are exposed, as a count over all changes has it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.capture.path_plans import plan_path
from kraft_audit.replay.cluster_replay import ClusterReplay
from kraft_audit.tables.silver import EXPOSURE_CHANGES, PARTITION_CHANGES
from kraft_codec.records.message import default_fields
from kraft_codec.records.redaction import Redactor
from kraft_codec.schemas import METADATA_BY_NAME
from kraft_codec.storage.opener import open_storage
from kraft_engine import simulate
from tests.builders.expected_exposures import Row, exposure_rows_of
from tests.builders.readings import silver_rows

SAMPLES = ("elr", "jbod", "dynamic-quorum", "divergence", "mini-3.9.2", "mini-4.4.0", "static-to-dynamic-upgrade")
TABLES = frozenset({PARTITION_CHANGES.name, EXPOSURE_CHANGES.name})
TOPIC = "AAAAAAAAAAAAAAAAAAAAAQ"


def in_order(rows: Iterable[Row]) -> list[dict[str, Any]]:
    names = EXPOSURE_CHANGES.column_names
    return sorted(({name: row[name] for name in names} for row in rows), key=lambda row: str(sorted(row.items())))


def rows_by(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Both tables of every cluster below a path."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for plan in plan_path(str(path), open_storage=open_storage, captured_at_ms=0):
        for name, batch in silver_rows(plan, TABLES, open_storage=open_storage, redactor=Redactor(bytes(32))):
            rows[name] += batch.to_pylist()
    return rows


@pytest.mark.parametrize("sample", SAMPLES)
def test_real_captures(sample: str, small_corpus: Path) -> None:
    rows = rows_by(small_corpus / sample)
    assert rows[PARTITION_CHANGES.name]
    assert rows[EXPOSURE_CHANGES.name] or sample not in ("elr", "jbod")
    assert in_order(rows[EXPOSURE_CHANGES.name]) == in_order(exposure_rows_of(rows[PARTITION_CHANGES.name]))


@pytest.mark.parametrize("scenario", ["random", "random-wide", "last-replica-standing-elr"])
def test_simulated_clusters(scenario: str, tmp_path: Path) -> None:
    simulate(scenario, 5, tmp_path / "run")
    rows = rows_by(tmp_path / "run")
    assert rows[EXPOSURE_CHANGES.name]
    assert in_order(rows[EXPOSURE_CHANGES.name]) == in_order(exposure_rows_of(rows[PARTITION_CHANGES.name]))


def drawn(chance: random.Random, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Six partitions, then changes with lists of any kind: empty, a broker twice, one that is no replica."""
    records: list[tuple[str, dict[str, Any]]] = [("TopicRecord", {"name": "t", "topicId": TOPIC})]
    for partition in range(6):
        lists = {"replicas": [1, 2, 3][: 1 + partition % 3], "isr": [1], "removingReplicas": [], "addingReplicas": []}
        records.append(("PartitionRecord", {"partitionId": partition, "topicId": TOPIC, "leader": 1, **lists}))
    for _ in range(count):
        data: dict[str, Any] = {"partitionId": chance.randrange(6), "topicId": TOPIC}
        if chance.random() < 0.6:
            data["isr"] = chance.choices([1, 2, 3, 9], k=chance.randrange(4))
        if chance.random() < 0.4:
            data["eligibleLeaderReplicas"] = chance.choices([1, 2, 3], k=chance.randrange(3))
        if chance.random() < 0.3:
            data["leader"] = chance.choice([-1, 1, 2])
        records.append(("PartitionChangeRecord", data))
        if chance.random() < 0.05:
            value = {"name": "min.insync.replicas", "value": chance.choice("123")}
            records.append(("ConfigRecord", {"resourceType": 2, "resourceName": "t", **value}))
    return records


def lines_of(records: Iterable[tuple[str, dict[str, Any]]], from_offset: int = 0) -> list[dict[str, Any]]:
    """Records in the oracle's form."""
    lines = []
    for offset, (name, data) in enumerate(records, from_offset):
        message = METADATA_BY_NAME[name]
        envelope = {"offset": offset, "partitionLeaderEpoch": 1, "timestamp": 1_000 * offset, "isControl": False}
        lines.append({**envelope, "apiKey": message.number, "data": {**default_fields(message.fields), **data}})
    return lines


def replayed(replay: ClusterReplay, parts: Iterable[Any]) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for part in parts:
        for name, batch in part:
            rows[name] += batch.to_pylist()
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_any_history(seed: int, to_columns: Callable[..., Any]) -> None:
    """In windows, so that what was before is remembered from one to the next; only the narrow table is the same."""
    chance = random.Random(seed)  # noqa: S311  # a seed, no secret
    lines = lines_of([*drawn(chance, 300), ("RemoveTopicRecord", {"topicId": TOPIC})])
    cuts = sorted(chance.sample(range(1, len(lines)), 5))
    windows = [lines[start:end] for start, end in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
    both, narrow = (ClusterReplay(cluster_id="c", tables=only) for only in (TABLES, frozenset({EXPOSURE_CHANGES.name})))
    rows, alone = (
        replayed(replay, (replay.replay(to_columns(window), window[-1]["offset"] + 1) for window in windows))
        for replay in (both, narrow)
    )
    assert in_order(rows[EXPOSURE_CHANGES.name]) == in_order(exposure_rows_of(rows[PARTITION_CHANGES.name]))
    assert alone == {PARTITION_CHANGES.name: [], EXPOSURE_CHANGES.name: rows[EXPOSURE_CHANGES.name]}


@pytest.mark.parametrize("is_every", [False, True])
def test_a_snapshot(is_every: bool, to_columns: Callable[..., Any]) -> None:
    """A snapshot gives rows of exposed partitions only; after a gap of all, as they may have been exposed before."""
    chance = random.Random(3)  # noqa: S311  # a seed, no secret
    later = lines_of(drawn(chance, 200)[7:], from_offset=50)
    replay = ClusterReplay(cluster_id="c", tables=TABLES)
    snapshot = [to_columns(lines_of(drawn(chance, 0)))]
    parts: Sequence[Any] = (
        replay.load_snapshot(snapshot, end_offset=50, epoch=1, timestamp_ms=9, is_every_exposure=is_every),
        replay.replay(to_columns(later), later[-1]["offset"] + 1),
    )
    rows = replayed(replay, parts)
    every = 49 if is_every else None
    wanted = exposure_rows_of(rows[PARTITION_CHANGES.name], is_every_of_offset=every)
    assert in_order(rows[EXPOSURE_CHANGES.name]) == in_order(wanted)
    partitions = {row["partition"] for row in rows[EXPOSURE_CHANGES.name] if row["from_offset"] == 49}
    assert partitions == (set(range(6)) if is_every else {1, 2, 4, 5}), "partitions of one replica are not exposed"
