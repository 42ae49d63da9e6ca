"""Every state of every partition that Kafka's own controllers write is the one that the audit replays.

QuorumController, in the environment of Kafka's own tests, answers random requests. Its records become log dirs, and its
MetadataImage is printed after each of them. Needs Java and Kafka's test jars, which Maven fetches by their coordinates.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kraft_audit

SEED_COUNT = int(os.environ.get("KRAFT_SEEDS", "12"))
LISTS = ("replicas", "isr", "elr", "last_known_elr", "adding_replicas", "removing_replicas")
NUMBERS = ("leader", "leader_epoch", "partition_epoch")
State = tuple[str, ...]
Key = tuple[int, str, int]


@pytest.fixture(scope="module")
def printed(kafka_test_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[str]]]:
    """The folder with a log dir of each node below each seed, and what Kafka says of them."""
    folder = tmp_path_factory.mktemp("controllers")
    command = ["java", "-Xmx400m", "-XX:+UseSerialGC", "-cp", kafka_test_classpath]
    command += ["org.apache.kafka.controller.RunControllers", str(folder), *map(str, range(SEED_COUNT))]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60 + 20 * SEED_COUNT, check=False)
    assert run.returncode == 0, run.stderr
    return folder, [line.split("\t") for line in run.stdout.splitlines()]


def replayed(row: dict[str, Any]) -> State:
    """A row of partition_changes, as the Java program prints Kafka's image of it."""
    return (
        *(str(row[name]) for name in (*LISTS, *NUMBERS)),
        row["leader_recovery_state"],
        f"[{', '.join(row['directories'])}]",
    )


def changes(folder: Path) -> Iterator[dict[str, Any]]:
    with kraft_audit.open(str(folder)) as clusters:
        for cluster in clusters:
            yield from cluster.partitions().to_pylist()


@pytest.mark.kafka
@pytest.mark.ci
def test_every_state_of_every_partition_is_kafkas(printed: tuple[Path, list[list[str]]]) -> None:
    folder, rows = printed
    causes: Counter[str] = Counter()
    compared = 0
    for seed in range(SEED_COUNT):
        of_kafka: dict[Key, State] = {
            (int(offset), topic, int(number)): tuple(state)
            for kind, of_seed, offset, topic, number, *state in (row for row in rows if row[0] == "partition")
            if of_seed == str(seed)
        }
        latest: dict[tuple[str, int], State] = {}
        seen = set()
        for row in changes(folder / str(seed)):
            key = row["from_offset"], row["topic"], row["partition"]
            causes[row["cause"]] += 1
            if key in of_kafka:
                seen.add(key)
                latest[key[1:]] = of_kafka[key]
            if row["exists"]:
                assert replayed(row) == latest[key[1:]], (folder / str(seed), key)
        assert seen == of_kafka.keys()
        compared += len(seen)
    assert compared > 60 * SEED_COUNT
    assert len(causes) > 12, causes


@pytest.mark.kafka
@pytest.mark.ci
def test_brokers_at_the_end_are_kafkas(printed: tuple[Path, list[list[str]]]) -> None:
    folder, rows = printed
    for seed in range(SEED_COUNT):
        of_kafka = [row[2:] for row in rows if row[:2] == ["broker", str(seed)]]
        with kraft_audit.open(str(folder / str(seed))) as clusters:
            (cluster,) = clusters
            brokers = cluster.state().tables["broker_changes"].to_pylist()
        assert of_kafka == [
            [
                str(row["broker_id"]), str(row["broker_epoch"]), row["incarnation_id"],
                str(row["fenced"]).lower(), str(row["in_controlled_shutdown"]).lower(),
            ]
            for row in sorted(brokers, key=lambda row: row["broker_id"]) if row["exists"]
        ]  # fmt: skip
