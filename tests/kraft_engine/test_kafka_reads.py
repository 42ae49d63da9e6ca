"""Kafka's own classes read what the engine writes, and its image is the engine's.

Needs Java and Kafka's jars: their class path in KRAFT_AUDIT_KAFKA_CLASSPATH, or Maven to fetch them by coordinates.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kraft_engine.capture import Recorder
from kraft_engine.cluster import Process
from kraft_engine.image import Image
from kraft_engine.kafka_run import KafkaRun
from kraft_engine.simulate import simulate

pytestmark = pytest.mark.kafka

KAFKA_VERSION = "4.3.1"
SEED_COUNT = int(os.environ.get("KRAFT_SEEDS", "12"))
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>local</groupId><artifactId>kafka-engine-{KAFKA_VERSION}</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-shell</artifactId><version>{KAFKA_VERSION}</version></dependency>
</dependencies></project>
"""


@pytest.fixture(scope="module")
def kafka_classpath(project_root: Path) -> str:
    if shutil.which("java") is None:
        pytest.skip("Java is not here")
    if declared := os.environ.get("KRAFT_AUDIT_KAFKA_CLASSPATH"):
        return declared
    if shutil.which("mvn") is None:
        pytest.skip("neither KRAFT_AUDIT_KAFKA_CLASSPATH nor Maven is here")
    folder = project_root / ".cache" / f"kafka-engine-{KAFKA_VERSION}"
    found = folder / "classpath.txt"
    if not found.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_text(POM)
        goal = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:build-classpath"]
        run = subprocess.run([*goal, f"-Dmdep.outputFile={found}"], capture_output=True, text=True, timeout=250)
        if run.returncode != 0:
            pytest.skip(f"Maven could not fetch Kafka's jars: {run.stdout[-200:]}")
    return found.read_text()


def read_by_kafka(classpath: str, folders: list[Path]) -> list[list[str]]:
    program = Path(__file__).parent / "java" / "ReadLogDirs.java"
    command = ["java", "-Xmx400m", "-XX:+UseSerialGC", "-cp", classpath, str(program)]
    run = subprocess.run(
        command, input="\n".join(map(str, folders)), capture_output=True, text=True, timeout=280, check=True
    )
    return [line.split("\t") for line in run.stdout.splitlines()]


def partition_rows(process: Process) -> list[list[str]]:
    """What the engine says of every partition at the end of this node's log, as the Java program prints it."""
    log = process.disk.log
    image, start = Image(), 0
    snapshot = log.latest_snapshot
    if snapshot is not None and isinstance(snapshot.image, Image):
        image, start = snapshot.image.copy(), snapshot.id[0]
    for batch in log.batches:
        if batch.base_offset >= start:
            image.replay_batch(batch)
    rows = []
    for name in sorted(image.topic_ids):
        for number, found in sorted(image.partitions[image.topic_ids[name]].items()):
            rows.append([
                "partition", name, str(number), str(found.replicas), str(found.isr), str(found.elr),
                str(found.last_known_elr), str(found.leader), str(found.leader_epoch), str(found.partition_epoch),
                str(found.recovering),
            ])  # fmt: skip
    return rows


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
    simulate("random", 5, tmp_path / "run")
    files = sorted((tmp_path / "run").glob("capture-3/node-*/__cluster_metadata-0/*.log"))
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
