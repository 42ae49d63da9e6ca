"""Real controllers of three releases start on what random runs left, as `--boot` says, and hold what was meant.

Their quorum goes on from there. Needs Java and Kafka's jars, which Maven fetches by their coordinates. KRAFT_BOOTS dirs
are booted, 3 by default: release, kind of voter set and seed take turns.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from kraft_codec.records.batch import Batch, read_batches
from kraft_engine import Options, simulate
from kraft_engine.runs.boot import BootPlan, prepare
from tests.builders.kafka_jars import kafka_jars
from tests.builders.kafka_tools import read_by_kafka
from tests.witness.truth import RECOVERY_STATES, Truth

PATIENCE_S = 150
JVM = ("java", "-Xmx200m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
RELEASES = ("3.9.2", "4.0.2", "4.3.1")
BOOT_COUNT = int(os.environ.get("KRAFT_BOOTS", "3"))
LISTS = ("replicas", "isr", "elr", "last_known_elr")
NUMBERS = ("leader", "leader_epoch", "partition_epoch")


def status_of(plan: BootPlan, classpath: str) -> dict[str, str]:
    """What kafka-metadata-quorum says; nothing while the quorum is not up."""
    command = [*JVM, f"-Djdk.net.hosts.file={plan.folder / 'hosts'}", "-cp", classpath]
    command += ["org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-controller"]
    command += [f"controller-{plan.node_ids[0]}:9093", "describe", "--status"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    except subprocess.TimeoutExpired:
        return {}
    return dict(re.findall(r"^(\w+):\s+(.*)$", run.stdout, re.MULTILINE))


def boot(plan: BootPlan, classpath: str) -> dict[str, str]:
    """Starts the controllers and kills them once they have committed more; what their quorum said of itself."""
    servers = []
    status: dict[str, str] = {}
    try:
        for node_id in plan.node_ids:
            properties = plan.properties(node_id)
            # No broker sends heartbeats: their sessions must outlast the test.
            properties.write_text(properties.read_text() + "broker.session.timeout.ms=3600000\n")
            command = [*JVM, f"-Djdk.net.hosts.file={plan.folder / 'hosts'}", "-cp", classpath, "kafka.Kafka"]
            with (plan.folder / f"server-{node_id}.log").open("w") as output:
                servers.append(subprocess.Popen([*command, str(properties)], stdout=output, stderr=output))
        deadline = time.monotonic() + PATIENCE_S
        while int(status.get("HighWatermark", "-1")) <= plan.committed_offset and time.monotonic() < deadline:
            status = status_of(plan, classpath)
    finally:
        for server in servers:
            server.kill()
            server.wait(60)
    return status


def last_epoch(log_dirs: list[Path]) -> int:
    logs = [log for log_dir in log_dirs for log in log_dir.glob("*.log")]
    headers = [batch.header for log in logs for batch in read_batches(log.read_bytes()) if isinstance(batch, Batch)]
    return max(header.leader_epoch for header in headers)


def first_offset_after(log_dir: Path, epoch: int) -> int:
    """Where the epochs after `epoch` begin in a log."""
    logs = sorted(log_dir.glob("*.log"))
    headers = [batch.header for log in logs for batch in read_batches(log.read_bytes()) if isinstance(batch, Batch)]
    return min(header.base_offset for header in headers if header.leader_epoch > epoch)


def partitions_of(rows: list[list[str]]) -> list[list[str]]:
    return sorted(row[1:] for row in rows if row[0] == "partition")


def meant_partitions(run: Path, end_offset: int) -> list[list[str]]:
    """Every partition by the engine's truth, as the Java program prints Kafka's image."""
    return sorted(
        [
            state["topic"],
            str(number),
            *(str(state[name]) for name in (*LISTS, *NUMBERS)),
            str(RECOVERY_STATES.index(state["leader_recovery_state"])),
            f"[{', '.join(state['directories'])}]",
        ]
        for (_, number), state in Truth.of(run).partitions_at(end_offset - 1).items()
    )


@pytest.mark.kafka
@pytest.mark.ci
@pytest.mark.parametrize("number", range(BOOT_COUNT))
def test_real_controllers_boot_and_hold_what_was_meant(
    number: int, kafka_classpath: str, project_root: Path, tmp_path: Path
) -> None:
    release, static = RELEASES[number % 3], number % 2 == 1
    classpath = kafka_jars(project_root, release)
    options = Options(release=release, static=static, voters=3, events=2_500)
    simulate("random", 7 + number, tmp_path / "run", options)
    plan = prepare(tmp_path / "run", tmp_path / "boot")
    assert plan.is_static == static
    log_dirs = [plan.folder / f"node-{node_id}" / "__cluster_metadata-0" for node_id in plan.node_ids]
    epoch = last_epoch(log_dirs)
    status = boot(plan, classpath)
    assert status.get("ClusterId") == plan.cluster_id, plan.folder
    leader = int(status["LeaderId"])
    assert leader in plan.node_ids
    assert int(status["HighWatermark"]) > plan.committed_offset
    log_dir = log_dirs[plan.node_ids.index(leader)]
    end_offset = first_offset_after(log_dir, epoch)
    assert end_offset >= plan.committed_offset
    assert partitions_of(read_by_kafka(kafka_classpath, [log_dir])) == meant_partitions(tmp_path / "run", end_offset)
