"""What the log is made of: sums are the bytes on disk, shares what a count by hand gives, and the culprit is first."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import pytest

from kraft_audit.findings.log_cost import IDLE, NO_OP_TYPE, CostBy, CostRow, LogCost
from kraft_engine.runs.simulate import simulate
from tests.builders.pictures import only_cluster

CAPTURES = (
    ("elr", "29-stopped", 1),
    ("elr", "06-kill-13-last-replica", 1),
    ("six", "08-stopped", 5),
    ("jbod", "03-stopped", 1),
)


def _rows(cost: LogCost, by: CostBy) -> dict[str, CostRow]:
    return {row.name: row for row in cost.rows if row.by is by}


def _batch_bytes(node_dir: Path) -> tuple[int, int]:
    """(bytes, records) of the batches in a node's segments, by their length fields alone."""
    size = records = 0
    for segment in sorted(node_dir.glob("**/__cluster_metadata-0/*.log")):
        content = segment.read_bytes()
        position = 0
        while position + 61 <= len(content):
            (length,) = struct.unpack_from(">i", content, position + 8)
            if length <= 0 or position + 12 + length > len(content):
                break
            size += 12 + length
            records += struct.unpack_from(">i", content, position + 57)[0]
            position += 12 + length
    return size, records


@pytest.mark.parametrize(("scenario", "capture", "node"), CAPTURES)
def test_each_way_of_counting_sums_to_the_bytes_on_disk(
    scenario: str, capture: str, node: int, captured_logs: Path
) -> None:
    path = captured_logs / scenario / capture
    cost = only_cluster(path).cost()
    assert (cost.size_bytes, cost.record_count) == _batch_bytes(path / f"node-{node}")
    for by in CostBy:
        rows = _rows(cost, by).values()
        assert sum(row.size_bytes for row in rows) == cost.size_bytes, by
        assert sum(row.record_count for row in rows) == cost.record_count, by
        assert sum(row.share for row in rows) == pytest.approx(1)


def test_types_cost_what_a_count_by_hand_gives(captured_logs: Path) -> None:
    """Batch by batch, in fractions: a value, and an equal share of the rest."""
    cluster = only_cluster(captured_logs / "elr" / "29-stopped")
    rows: dict[str, list[dict[str, object]]] = defaultdict(list)
    for name, batch in cluster.bronze(["batches", "records"]):
        rows[name] += batch.to_pylist()
    batches = {row["base_offset"]: row for row in rows["batches"] if row["source"] == "log" and row["valid"]}
    values: dict[int, list[dict[str, object]]] = defaultdict(list)
    for row in rows["records"]:
        if row["source"] == "log":
            values[max(base for base in batches if base <= row["offset"])].append(row)
    expected: dict[str, Fraction] = defaultdict(Fraction)
    for base, batch in batches.items():
        rest = Fraction(batch["size_bytes"] - sum(row["value_bytes"] for row in values[base]), batch["record_count"])
        expected[NO_OP_TYPE] += rest * (batch["record_count"] - len(values[base]))
        for row in values[base]:
            expected[str(row["record_type"])] += row["value_bytes"] + rest
    found = _rows(cluster.cost(), CostBy.TYPE)
    assert found.keys() == {name for name, size in expected.items() if size}
    for name, row in found.items():
        assert row.size_bytes == pytest.approx(float(expected[name]), abs=row.record_count), name


@pytest.mark.parametrize("scenario", ["broker-flapping", "isr-flapping"])
def test_a_planted_culprit_is_first(scenario: str, tmp_path: Path) -> None:
    """Broker 13 is killed and started all the time: most bytes are its, and each start is one registration."""
    simulate(scenario, 3, tmp_path / "run")
    truth = [json.loads(line) for line in (tmp_path / "run" / "truth.jsonl").read_text().splitlines()]
    starts = [row["broker"] for row in truth if row.get("what") == "broker starts"]
    assert starts
    assert set(starts) == {13}
    cost = only_cluster(tmp_path / "run").cost()
    brokers = [row for row in cost.rows if row.by is CostBy.BROKER]
    assert brokers[0].name == "broker 13"
    assert brokers[0].share > 0.75
    causes = _rows(cost, CostBy.CAUSE)
    assert causes["broker reregistered"].record_count in (len(starts), len(starts) - 1), (
        "the last may not be registered"
    )


def test_an_idle_cluster_pays_for_no_ops(captured_logs: Path) -> None:
    cost = only_cluster(captured_logs / "elr" / "06-kill-13-last-replica").cost()
    assert _rows(cost, CostBy.CAUSE)[IDLE] == CostRow(
        CostBy.CAUSE, IDLE, *((row := _rows(cost, CostBy.TYPE)[NO_OP_TYPE]).size_bytes, row.record_count, row.share)
    )


def test_the_command_prints_each_way_and_all_of_one(kraft_audit, samples: Path) -> None:
    logs = samples / "elr-29-stopped.tgz"
    printed = kraft_audit("cost", logs)
    assert printed.code == 0
    for text in ("59,557 bytes in 817 records", "by type:", "by cause:", "by topic:", "by broker:", "by hour:"):
        assert text in printed.out
    rows = json.loads(kraft_audit("cost", logs, "--by", "broker", "--output", "json").out)
    assert {row["by"] for row in rows} == {"broker"}
    assert sum(row["size_bytes"] for row in rows) == 59_557
