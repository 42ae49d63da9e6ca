"""Every decision of the engine's controllers about a partition is the one that Kafka's PartitionChangeBuilder makes.

Needs Java and Kafka's jars: their class path in KRAFT_AUDIT_KAFKA_CLASSPATH, or Maven to fetch them by coordinates.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kraft_engine.brokers.elr import ONLINE, ChangeBuilder
from kraft_engine.invariants.switches import ALL_ON, Switches
from kraft_engine.runs.chronicle import InvariantViolationError
from kraft_engine.runs.kafka_run import KafkaRun

SEED_COUNT = int(os.environ.get("KRAFT_SEEDS", "12"))
PROGRAM = Path(__file__).resolve().parents[2] / "builders" / "java" / "DecidePartitionChanges.java"
FIELDS = ("isr", "eligibleLeaderReplicas", "lastKnownElr", "replicas", "removingReplicas", "addingReplicas")


def asked(builder: ChangeBuilder, election: str) -> str:
    """The partition and what the controller wants of it, as the Java program reads it."""
    partition = builder.partition
    known = {*partition.replicas, *partition.isr, *partition.elr, *partition.last_known_elr, *builder.isr,
             *builder.replicas}  # fmt: skip
    usable = sorted(broker for broker in known if builder.usable(broker))
    values: list[Any] = [
        builder.metadata_version, builder.min_isr, int(builder.elr_enabled), election, usable, partition.replicas,
        partition.isr, partition.elr, partition.last_known_elr, partition.leader, partition.recovering,
        partition.removing, partition.adding, builder.isr, builder.replicas, builder.removing, builder.adding,
        builder.recovery, sorted(builder.unclean_shutdown),
    ]  # fmt: skip
    return "\t".join(",".join(map(str, value)) if isinstance(value, list) else str(value) for value in values)


def decided(record: dict[str, Any] | None) -> str:
    """The engine's decision, as the Java program prints Kafka's. Directories are the caller's choice."""
    if record is None or not any(name in record for name in ("leader", "leaderRecoveryState", *FIELDS)):
        return "none"
    head = [str(record.get(name, "same")) for name in ("leader", "leaderRecoveryState")]
    return "\t".join([*head, *(str(record.get(name, "same")) for name in FIELDS)])


Case = tuple[str, str, str]
"""What was asked, what the engine decides, what Kafka decides."""


def cases_of(seeds: range, classpath: str, monkeypatch: pytest.MonkeyPatch, switches: Switches = ALL_ON) -> list[Case]:
    """Each different question of the runs once."""
    cases: dict[str, str] = {}
    build = ChangeBuilder.build

    def noted(builder: ChangeBuilder, election: str = ONLINE) -> dict[str, Any] | None:
        question = asked(builder, election)
        lost = set(builder.partition.last_known_elr) - set(builder.partition.replicas)
        record = build(builder, election)
        if not builder.directories and not lost:
            cases.setdefault(question, decided(record))
        return record

    with monkeypatch.context() as patched:
        patched.setattr(ChangeBuilder, "build", noted)
        for seed in seeds:
            try:
                KafkaRun(seed, beyond_model=bool(seed % 2), switches=switches).run(10_000)
            except InvariantViolationError:
                assert switches is not ALL_ON
    command = ["java", "-Xmx300m", "-XX:+UseSerialGC", "-cp", classpath, str(PROGRAM)]
    run = subprocess.run(command, input="\n".join(cases), capture_output=True, text=True, timeout=280, check=True)
    return [(question, cases[question], kafka) for question, kafka in zip(cases, run.stdout.splitlines(), strict=True)]


@pytest.mark.kafka
@pytest.mark.ci
def test_kafka_decides_the_same(kafka_classpath: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = cases_of(range(SEED_COUNT), kafka_classpath, monkeypatch)
    differing = [case for case in cases if case[1] != case[2]]
    assert differing == [], f"{len(differing)} of {len(cases)}"
    assert len(cases) > 300
    leaders = Counter(engine.split("\t")[0] for _, engine, _ in cases)
    assert min(leaders["none"], leaders["same"], leaders["-1"]) > 0


@pytest.mark.kafka
@pytest.mark.ci
def test_a_rule_that_is_off_shows_as_a_difference(kafka_classpath: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = cases_of(range(4), kafka_classpath, monkeypatch, ALL_ON.without("elr_only_below_min_isr"))
    assert any(engine != kafka for _, engine, kafka in cases)
