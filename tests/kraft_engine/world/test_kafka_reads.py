"""Kafka's own classes read what the engine writes, and its image is the engine's.

Needs Java and Kafka's jars: their class path in KRAFT_AUDIT_KAFKA_CLASSPATH, or Maven to fetch them by coordinates.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kraft_engine.runs.kafka_run import KafkaRun
from kraft_engine.runs.simulate import simulate
from kraft_engine.world.capturing import Recorder
from tests.builders.kafka_tools import image_rows, read_by_kafka

pytestmark = pytest.mark.kafka

SEED_COUNT = int(os.environ.get("KRAFT_SEEDS", "16"))


@pytest.fixture(scope="module")
def engine_dirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, list[list[str]]]]:
    """More than 200 metadata log dirs of random clusters: by path the log's end and the image that it means."""
    root = tmp_path_factory.mktemp("engine")
    meant: dict[str, tuple[int, list[list[str]]]] = {}
    for seed in range(SEED_COUNT):
        run = KafkaRun(seed)
        bootstrap = run.machine.bootstrap.feature_records()
        recorder = Recorder(root / str(seed), run.cluster, run.invariants, bootstrap_records=bootstrap)
        for moment in ("early", "late"):
            run.run(4_000)
            recorder.capture(moment)
            for process in run.cluster.processes:
                folder = root / str(seed) / moment / f"node-{process.id}" / "__cluster_metadata-0"
                log = process.disk.log
                # A crash may take a log's unsynced tail below the newest snapshot, which recovery then starts from.
                end = max([log.end_offset, *(snapshot.id[0] for snapshot in log.snapshots)])
                meant[str(folder)] = (end, image_rows(process))
    assert len(meant) >= 200
    return meant


def test_kafka_reads_random_clusters_as_they_were_meant(
    kafka_classpath: str, engine_dirs: dict[str, tuple[int, list[list[str]]]]
) -> None:
    found: dict[str, tuple[int, list[list[str]]]] = {}
    for row in read_by_kafka(kafka_classpath, [Path(folder) for folder in engine_dirs]):
        assert row[0] != "error", row
        if row[0] == "dir":
            current = row[1]
            found[current] = (int(row[4]), [])
        else:
            found[current][1].append(row)
    for folder, meant in engine_dirs.items():
        assert found[folder] == meant, folder
    kinds = {row[0] for _, rows in found.values() for row in rows}
    assert kinds == {"feature", "broker", "config", "partition"}


def test_kafka_reads_quorums_whose_voters_change(kafka_classpath: str, tmp_path: Path) -> None:
    folders = []
    for seed in range(SEED_COUNT):
        simulate("random-raft", seed, tmp_path / str(seed))
        folders += sorted((tmp_path / str(seed)).glob("*/node-*/__cluster_metadata-0"))
    rows = read_by_kafka(kafka_classpath, folders)
    assert [row for row in rows if row[0] == "error"] == []
    assert len([row for row in rows if row[0] == "dir"]) == len(folders)


def test_kafka_dump_log_finds_every_batch_valid(
    kafka_classpath: str, engine_dirs: dict[str, tuple[int, list[list[str]]]], tmp_path: Path
) -> None:
    """Torn tails aside, which the tool reports and recovery cuts."""
    simulate("every-record-type", 5, tmp_path / "run")
    files = sorted((tmp_path / "run").glob("all/node-[123]/__cluster_metadata-0/*.log"))
    files += [file for folder in engine_dirs for file in sorted(Path(folder).glob("*.log"))]
    command = ["java", "-Xmx400m", "-XX:+UseSerialGC", "-cp", kafka_classpath, "org.apache.kafka.tools.DumpLogSegments"]
    run = subprocess.run(
        [*command, "--cluster-metadata-decoder", "--files", ",".join(map(str, files))],
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    lines = run.stdout.splitlines()
    batches = [line for line in lines if line.startswith("baseOffset:")]
    assert len([line for line in lines if line.startswith("Dumping ")]) == len(files)
    assert len(batches) > 10 * len(files)
    assert all(line.endswith("isvalid: true") for line in batches)
    assert "Error at" not in run.stdout
