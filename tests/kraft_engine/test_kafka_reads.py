"""Kafka's own classes read what the engine writes, and its image is the engine's.

Needs Java and Kafka's jars: their class path in KRAFT_AUDIT_KAFKA_CLASSPATH, or Maven to fetch them by coordinates.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kraft_engine.capture import Recorder
from kraft_engine.kafka_run import KafkaRun
from kraft_engine.simulate import simulate
from tests.kraft_engine.kafka_tools import partition_rows, read_by_kafka

pytestmark = pytest.mark.kafka

SEED_COUNT = int(os.environ.get("KRAFT_SEEDS", "12"))


def test_kafka_reads_random_clusters_as_they_were_meant(kafka_classpath: str, tmp_path: Path) -> None:
    expected: dict[str, tuple[int, list[list[str]]]] = {}
    for seed in range(SEED_COUNT):
        run = KafkaRun(seed)
        recorder = Recorder(tmp_path / str(seed), run.cluster, run.invariants)
        for moment in ("early", "late"):
            run.run(4_000)
            recorder.capture(moment)
            for process in run.cluster.processes:
                folder = tmp_path / str(seed) / moment / f"node-{process.id}" / "__cluster_metadata-0"
                log = process.disk.log
                # A crash may take a log's unsynced tail below the newest snapshot, which recovery then starts from.
                end = max([log.end_offset, *(snapshot.id[0] for snapshot in log.snapshots)])
                expected[str(folder)] = (end, partition_rows(process))
    found: dict[str, tuple[int, list[list[str]]]] = {}
    for row in read_by_kafka(kafka_classpath, [Path(folder) for folder in expected]):
        assert row[0] != "error", row
        if row[0] == "dir":
            current = row[1]
            found[current] = (int(row[4]), [])
        else:
            found[current][1].append(row)
    assert found == expected
    assert any(rows for _, rows in found.values())


def test_kafka_reads_quorums_whose_voters_change(kafka_classpath: str, tmp_path: Path) -> None:
    folders = []
    for seed in range(SEED_COUNT):
        simulate("random-raft", seed, tmp_path / str(seed))
        folders += sorted((tmp_path / str(seed)).glob("*/node-*/__cluster_metadata-0"))
    rows = read_by_kafka(kafka_classpath, folders)
    assert [row for row in rows if row[0] == "error"] == []
    assert len([row for row in rows if row[0] == "dir"]) == len(folders)


def test_kafka_dump_log_finds_every_batch_valid(kafka_classpath: str, tmp_path: Path) -> None:
    simulate("every-record-type", 5, tmp_path / "run")
    files = sorted((tmp_path / "run").glob("all/node-[123]/__cluster_metadata-0/*.log"))
    command = ["java", "-Xmx400m", "-XX:+UseSerialGC", "-cp", kafka_classpath, "org.apache.kafka.tools.DumpLogSegments"]
    run = subprocess.run(
        [*command, "--cluster-metadata-decoder", "--files", ",".join(map(str, files))],
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    batches = [line for line in run.stdout.splitlines() if line.startswith("baseOffset:")]
    assert len(batches) > 20 * len(files) / 2
    assert all(line.endswith("isvalid: true") for line in batches)
    assert "Error at" not in run.stdout
    assert "invalid bytes" not in run.stdout
