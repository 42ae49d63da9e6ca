"""Kafka's own simulation of a quorum writes log dirs: the audit's intervals hold its high watermarks, and what it lost.

Needs Java and Kafka's test jars, which Maven fetches by their coordinates.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_codec.records.batch import Batch, read_batches
from kraft_engine.consensus.messages import RemoveRaftVoterRequest
from kraft_engine.kraft_cluster import KraftCluster
from kraft_engine.runs.healing import could_elect
from kraft_engine.world.world import MS
from tests.witness.audited import Audited

pytestmark = [pytest.mark.kafka, pytest.mark.ci]

SEED_COUNT = int(os.environ.get("KRAFT_SEEDS", "6"))
WIPED = range(4)
"""With a lagging voter or a second wiped one, with the old directory id or a new one."""
REMOVED = range(4)
"""Even: of two voters the one that stays has no copy of the record that removes the leader. Odd: it has."""


@dataclass
class Simulated:
    """What Kafka's simulation says of its runs."""

    high_watermarks: dict[Path, int] = field(default_factory=dict)
    lost: dict[Path, tuple[int, int, str]] = field(default_factory=dict)
    """By run: the wiped node, the high watermark when it was wiped, what Kafka's validation says afterwards."""
    led: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By seed: the leader that removed itself, and who leads when both have run again for long; -1: none."""

    def runs(self, kind: str) -> list[Path]:
        return sorted({path.parent for path in self.high_watermarks if path.parent.name.startswith(kind)})

    def captures(self, run: Path) -> list[Path]:
        return sorted(path for path in self.high_watermarks if path.parent == run)


@pytest.fixture(scope="module")
def simulated(kafka_test_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    runs = [*(f"random-{seed}" for seed in range(SEED_COUNT)), *(f"wiped-{seed}" for seed in WIPED)]
    runs += [f"removed-{seed}" for seed in REMOVED]
    command = ["java", "-Xmx400m", "-XX:+UseSerialGC", "-cp", kafka_test_classpath]
    command += ["org.apache.kafka.raft.SimulateRaft", str(tmp_path_factory.mktemp("kafka-raft")), *runs]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60 + 20 * len(runs), check=False)
    assert run.returncode == 0, run.stderr
    found = Simulated()
    for kind, folder, *values in (line.split("\t") for line in run.stdout.splitlines()):
        if kind == "capture":
            found.high_watermarks[Path(folder)] = int(values[0])
        elif kind == "led":
            found.led[int(folder.rpartition("-")[2])] = int(values[0]), int(values[1])
        else:
            found.lost[Path(folder)] = int(values[0]), int(values[1]), values[2]
    return found


def epochs_of(capture: Path) -> dict[int, int]:
    """The leader epoch of every offset of the longest log of a capture, by offset."""
    return max(epochs_of_each(capture), key=len)


def epochs_of_each(capture: Path) -> list[dict[int, int]]:
    logs = [sorted(node.glob("__cluster_metadata-0/*.log")) for node in capture.iterdir()]
    return [
        {
            offset: batch.header.leader_epoch
            for log in of_node
            for batch in read_batches(log.read_bytes())
            if isinstance(batch, Batch)
            for offset in range(batch.header.base_offset, batch.header.last_offset + 1)
        }
        for of_node in logs
    ]


def raised(run: Path) -> list[dict[str, Any]]:
    with kraft_audit.open(str(run)) as clusters:
        rows = [row for cluster in clusters for row in cluster.findings().to_pylist()]
    return [row for row in rows if row["status"] == "raised"]


def test_intervals_contain_the_high_watermark(simulated: Simulated) -> None:
    exact = 0
    for run in simulated.runs("random"):
        survived = epochs_of(simulated.captures(run)[-1])
        for capture in simulated.captures(run):
            (audited,) = Audited.of(run, capture=capture.name).rounds
            low, high = audited.interval.low, audited.interval.high
            high_watermark = simulated.high_watermarks[capture]
            assert high_watermark <= high, capture
            # A majority may hold what the leader has not counted yet: then it survives all that follows.
            canonical = audited.interval.canonical
            assert canonical is not None
            for epoch_run in canonical.runs:
                for offset in range(epoch_run.from_offset, min(epoch_run.to_offset, low)):
                    assert survived.get(offset, epoch_run.epoch) == epoch_run.epoch, capture
            exact += low == high_watermark == high
    assert exact > len(simulated.high_watermarks) // 3


def test_a_quorum_within_its_faults_lost_nothing(simulated: Simulated) -> None:
    for run in simulated.runs("random"):
        last = simulated.captures(run)[-1]
        shortest = min(max(epochs, default=-1) for epochs in epochs_of_each(last))
        lags = {"KV014"} if shortest + 1 < simulated.high_watermarks[last] else set()
        alarms = {row["rule"] for row in raised(run) if row["severity"] in ("critical", "high")}
        assert alarms <= lags, run


def test_the_loss_that_kafka_sees_is_found_at_its_offset(simulated: Simulated) -> None:
    assert simulated.lost.keys() == set(simulated.runs("wiped"))
    for run, (wiped, acknowledged, said) in simulated.lost.items():
        offset = int(re.findall(r"offset (\d+)", said)[0])
        assert offset < acknowledged
        rows = raised(run)
        assert min(row["from_offset"] for row in rows if row["rule"] == "KQ002") == offset
        keeps_directory_id = int(run.name.split("-")[1]) % 4 < 2
        went_back = {row["subject"] for row in rows if row["rule"] == "KQ020"}
        # These voters are static: with another directory id it is still the same voter, known by its id alone. Others
        # followed it, and were cut.
        assert f"node {wiped}" in went_back or not keeps_directory_id, run
        before, *_, after = map(epochs_of, simulated.captures(run))
        overwritten = min(offset for offset in range(acknowledged) if before[offset] != after[offset])
        assert overwritten <= offset
        assert all(row["from_offset"] <= overwritten for row in rows if row["rule"] == "KQ020")


def engine_plays_removal(folder: Path, *, is_cut_off: bool) -> tuple[bool, int]:
    """What SimulateRaft.playRemoved does, in the engine: whether a leader is possible, and who leads; -1: none."""
    quorum = KraftCluster.started(folder, controllers=(0, 1), brokers=(), seed=int(is_cut_off))
    cluster, leader = quorum.stage.cluster, quorum.stage.leader()
    staying = 1 - leader.id
    if is_cut_off:
        quorum.cut(staying)
    request = RemoveRaftVoterRequest(cluster.settings.cluster_id, leader.key)
    cluster.ask(leader.slot, request)
    holder = cluster.processes[cluster.slot_of(staying)].node if not is_cut_off else leader

    def has_record() -> bool:
        return holder is not None and holder.voters is not None and len(holder.voters) == 1

    assert cluster.world.run_until(has_record, limit_us=5_000 * MS)
    quorum.kill(0, 1, power_cut=False)
    quorum.heal()
    for slot in range(2):
        cluster.restart(slot)
    is_possible = could_elect(cluster)
    cluster.world.run_until(lambda: cluster.ready_leader() is not None, limit_us=100_000 * MS)
    elected = cluster.ready_leader()
    return is_possible, elected.id if elected is not None else -1


def test_a_leader_that_removed_itself_and_stopped_may_leave_a_quorum_that_cannot_elect(
    simulated: Simulated, tmp_path: Path
) -> None:
    """Of two voters one holds the longer log and is none by it; the other needs its vote and never gets it."""
    assert sorted(simulated.led) == list(REMOVED)
    for seed, (removed, elected) in simulated.led.items():
        assert elected == (-1 if seed % 2 == 0 else 1 - removed), seed
    assert engine_plays_removal(tmp_path / "cut-off", is_cut_off=True) == (False, -1)
    is_possible, elected = engine_plays_removal(tmp_path / "with-record", is_cut_off=False)
    assert is_possible
    assert elected >= 0
