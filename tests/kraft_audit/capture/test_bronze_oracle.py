"""Every record and batch of every capture, against what Kafka's own classes read in the same files."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.ci
NOOP = "NO_OP_RECORD"


class FileOracle:
    """What Kafka's own classes say of the files of one scenario."""

    def __init__(self, scenario: Path) -> None:
        self.scenario = scenario
        self.index: dict[str, str] = json.loads((scenario / "oracle-files/index.json").read_text())
        self._lines: dict[str, list[dict[str, Any]]] = {}

    def files(self, suffix: str) -> Iterator[str]:
        """The files below the scenario, of those that are there, that Kafka read."""
        for path in sorted(self.index):
            if path.endswith(suffix) and (self.scenario / path).is_file() and self._oracle(path).exists():
                yield path

    def lines(self, path: str) -> list[dict[str, Any]]:
        """Batches and records of one file, without the last line."""
        key = self.index[path]
        if key not in self._lines:
            with gzip.open(self._oracle(path), "rt") as lines:
                self._lines[key] = [line for line in map(json.loads, lines) if "end" not in line]
        return self._lines[key]

    def batches(self, path: str) -> list[dict[str, Any]]:
        return [line for line in self.lines(path) if line.get("batch")]

    def records(self, path: str) -> list[tuple[int, dict[str, Any]]]:
        """(crc of its batch, record)."""
        crc, found = 0, []
        for line in self.lines(path):
            if line.get("batch"):
                crc = line["crc"]
            else:
                found.append((crc, line))
        return found

    def _oracle(self, path: str) -> Path:
        return self.scenario / "oracle-files" / f"{self.index[path]}.records.jsonl.gz"


@pytest.fixture(scope="session")
def oracles(scenarios: list[Path]) -> list[FileOracle]:
    return [FileOracle(scenario) for scenario in scenarios]


def without_unknown_tags(value: Any) -> Any:
    """Kafka's JSON without the key that its tools do not print."""
    if isinstance(value, dict):
        return {key: without_unknown_tags(part) for key, part in value.items() if key != "unknownTaggedFields"}
    return [without_unknown_tags(part) for part in value] if isinstance(value, list) else value


def expected_row(crc: int, line: dict[str, Any]) -> dict[str, Any]:
    is_control = line["isControl"]
    return {
        "offset": line["offset"],
        "leader_epoch": line["partitionLeaderEpoch"],
        "batch_crc": crc,
        "timestamp_ms": line["timestamp"],
        "is_control": is_control,
        "record_type": line["controlType"] if is_control else line["type"],
        "record_version": None if is_control else line["recordVersion"],
        "api_key": None if is_control else line["apiKey"],
        "control_type": line["controlTypeId"] if is_control else None,
        "value_bytes": line["valueSize"],
        "record": without_unknown_tags(line["data"]),
    }


def seen_row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in expected_names} | {"record": json.loads(row["record"])}


expected_names = (
    "offset", "leader_epoch", "batch_crc", "timestamp_ms", "is_control", "record_type", "record_version", "api_key",
    "control_type", "value_bytes",
)  # fmt: skip


def key(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["offset"], row["leader_epoch"], row["batch_crc"]


def cluster_folders(oracle: Any) -> list[Path]:
    """The folders to read as one cluster: crafted logs have nothing to do with each other."""
    if oracle.scenario.name != "crafted":
        return [oracle.scenario]
    return sorted(
        {oracle.scenario / path.split("/__cluster")[0] for path in oracle.files(".log") if "damaged" not in path}
    )


def test_records_are_kafkas(oracles: list[Any], reading: Any) -> None:
    compared = 0
    for oracle in oracles:
        for folder in cluster_folders(oracle):
            prefix = folder.relative_to(oracle.scenario)
            paths = [path for path in oracle.files(".log") if Path(path).is_relative_to(prefix)]
            expected = {}
            for path in paths:
                rows = [expected_row(crc, line) for crc, line in oracle.records(path)]
                expected |= {key(row): row for row in rows if row["record_type"] != NOOP}
            tables = reading.revealed(folder)
            seen = [seen_row(row) for row in tables["records"] if row["source"] == "log"]
            assert len({key(row) for row in seen}) == len(seen), folder
            assert {key(row): row for row in seen} == expected, folder
            compared += len(seen)
    assert compared > 1_000


def test_noops_are_counted(oracles: list[Any], reading: Any) -> None:
    found = 0
    for oracle in oracles:
        for folder in cluster_folders(oracle):
            expected: dict[tuple[int, int, int], int] = {}
            prefix = folder.relative_to(oracle.scenario)
            for path in (path for path in oracle.files(".log") if Path(path).is_relative_to(prefix)):
                crc_of = {batch["baseOffset"]: batch for batch in oracle.batches(path)}
                counts = {(b["baseOffset"], b["partitionLeaderEpoch"], b["crc"]): 0 for b in crc_of.values()}
                for crc, line in oracle.records(path):
                    if not line["isControl"] and line["type"] == NOOP:
                        counts[line["baseOffset"], line["partitionLeaderEpoch"], crc] += 1
                expected |= counts
            batches = [row for row in reading.of(folder)["batches"] if row["source"] == "log"]
            seen = {(row["base_offset"], row["leader_epoch"], row["crc"]): row["noop_count"] for row in batches}
            assert seen == expected, folder
            found += sum(seen.values())
    assert found > 0


def test_snapshots_are_kafkas(oracles: list[Any], reading: Any) -> None:
    compared = 0
    for oracle in oracles:
        if oracle.scenario.name == "crafted":
            continue
        tables = reading.revealed(oracle.scenario)
        copies: dict[str, list[list[dict[str, Any]]]] = defaultdict(list)
        for path in oracle.files(".checkpoint"):
            name = Path(path).name.removesuffix(".checkpoint")
            copies[name].append([expected_row(crc, line) for crc, line in oracle.records(path)])
        seen: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in tables["records"]:
            if row["source"] != "log":
                seen[row["source"]].append(seen_row(row))
        for source, rows in seen.items():
            name = next(name for name in copies if source == name or source.startswith(f"{name}-"))
            assert rows in copies[name], (oracle.scenario, source)
            compared += 1
        named = {name for name in copies if any(source == name or source.startswith(f"{name}-") for source in seen)}
        assert named == set(copies), oracle.scenario
    assert compared > 20


def test_batches_are_where_kafka_sees_them(oracles: list[Any], reading: Any) -> None:
    compared = 0
    for oracle in oracles:
        if oracle.scenario.name == "crafted":
            continue
        tables = reading.of(oracle.scenario)
        held = held_by_capture(tables["batches"], tables["captures"])
        for path in oracle.files(".log"):
            node, _, _ = path.partition("/__cluster_metadata-0")
            expected = {
                (b["baseOffset"], b["lastOffset"], b["partitionLeaderEpoch"], b["crc"]) for b in oracle.batches(path)
            }
            segment = int(Path(path).name.removesuffix(".log"))
            following = [
                int(Path(file).name.removesuffix(".log"))
                for file in oracle.files(".log")
                if file.startswith(f"{node}/") and int(Path(file).name.removesuffix(".log")) > segment
            ]
            end = min(following, default=1 << 62)
            assert {batch for batch in held[node] if segment <= batch[0] < end} == expected, path
            compared += len(expected)
    assert compared > 1_000


def held_by_capture(batches: list[dict[str, Any]], captures: list[dict[str, Any]]) -> dict[str, set[Any]]:
    """What each capture held, by the rows alone: present adds, truncated takes away, in the order of the captures."""
    held: dict[str, set[Any]] = {}
    identity = {row["path"]: (row["node_id"], row["directory_id"]) for row in captures}
    start = {row["path"]: row["log_start_offset"] or 0 for row in captures}
    for disk in sorted(set(identity.values()), key=str):
        current: set[Any] = set()
        mine = sorted((row["capture_number"], row["path"]) for row in captures if identity[row["path"]] == disk)
        for _, path in mine:
            for row in batches:
                if row["path"] != path or row["source"] != "log":
                    continue
                batch = (row["base_offset"], row["last_offset"], row["leader_epoch"], row["crc"])
                if row["status"] == "present":
                    assert batch not in current, (path, batch)
                    current.add(batch)
                else:
                    current.remove(batch)
            held[path] = {batch for batch in current if batch[0] >= start[path]}
    return held


def test_bytes_add_up(oracles: list[Any], reading: Any) -> None:
    for oracle in oracles:
        for plan in reading.plans(oracle.scenario):
            tables = reading.tables(plan)
            for row in tables["files"] + tables["captures"]:
                parts = [row["bytes_decoded"], row["bytes_quarantined"], row["bytes_unread"]]
                assert row["bytes_seen"] == sum(parts), row
                assert min(parts) >= 0, row
            assert all(row["size_bytes"] == row["bytes_seen"] for row in tables["files"])


def test_real_captures_show_no_damage_but_torn_tails(oracles: list[Any], reading: Any) -> None:
    found = defaultdict(list)
    for oracle in oracles:
        if oracle.scenario.name != "crafted":
            for row in reading.of(oracle.scenario)["decode_errors"]:
                found[oracle.scenario.name].append((row["path"], row["reason"], row["position"], row["length_bytes"]))
    for name, rows in found.items():
        assert name == "torn-write", (name, rows)
        assert {reason for _, reason, _, _ in rows} == {"TORN_TAIL"}
        assert {length for *_, length in rows} <= {700, 433}


@pytest.mark.parametrize("seed", range(7))
def test_the_order_of_replicas_does_not_matter(small_corpus: Path, reading: Any, seed: int) -> None:
    import random
    from dataclasses import replace

    for scenario in ("divergence", "elr", "dynamic-quorum"):
        plan = reading.plan(small_corpus / scenario)
        replicas = list(plan.replicas)
        random.Random(seed).shuffle(replicas)  # noqa: S311
        shuffled = replace(plan, replicas=tuple(replicas))
        left, right = reading.rows(plan), reading.rows(shuffled)
        assert [(name, batch.to_pylist()) for name, batch in left] == [
            (name, batch.to_pylist()) for name, batch in right
        ]
