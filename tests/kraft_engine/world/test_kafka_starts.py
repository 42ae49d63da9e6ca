"""A real Kafka controller starts on a dir that the engine wrote, wins its election, and holds the engine's state.

Needs Java and Kafka's jars: their class path in KRAFT_AUDIT_KAFKA_CLASSPATH, or Maven to fetch them by coordinates.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from kraft_engine.runs.scenario_stage import Stage
from tests.builders.kafka_tools import free_port, image_rows, quorum_status, read_by_kafka

pytestmark = [pytest.mark.kafka, pytest.mark.ci]

PATIENCE_S = 150


def server_properties(folder: Path, log_dir: Path, port: int, *, static: bool) -> Path:
    quorum = "controller.quorum.voters=1@" if static else "controller.quorum.bootstrap.servers="
    path = folder / "server.properties"
    path.write_text(
        "process.roles=controller\nnode.id=1\n"
        f"listeners=CONTROLLER://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n"
        f"{quorum}127.0.0.1:{port}\nlog.dirs={log_dir}\n"
        # No broker sends heartbeats: their sessions must outlast the test.
        "broker.session.timeout.ms=3600000\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
    )
    return path


@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_a_controller_starts_on_an_engine_dir(static: bool, kafka_classpath: str, tmp_path: Path) -> None:
    port = free_port()
    stage = Stage(5, tmp_path / "engine")
    stage.cluster.endpoints[1] = ("127.0.0.1", port)
    stage.controllers(1, static=static)
    stage.brokers(11, 12, 13)
    orders = stage.topic("orders", [11, 12, 13], [12, 13, 11], configs={"min.insync.replicas": "2"})
    stage.stop_broker(11)
    stage.stop_broker(12)
    stage.produce(orders, 3)
    process = stage.cluster.processes[0]
    stage.stop(1)
    log_dir = stage.capture("stopped", 1) / "node-1"
    end_offset, expected = process.disk.log.end_offset, [row for row in image_rows(process) if row[0] == "partition"]
    properties = server_properties(tmp_path, log_dir, port, static=static)
    with (tmp_path / "server.log").open("w") as output:
        server = subprocess.Popen(
            ["java", "-Xmx400m", "-cp", kafka_classpath, "kafka.Kafka", str(properties)], stdout=output, stderr=output
        )
        try:
            status: dict[str, str] = {}
            deadline = time.monotonic() + PATIENCE_S
            while not status and server.poll() is None and time.monotonic() < deadline:
                status = quorum_status(kafka_classpath, port)
            assert status, (tmp_path / "server.log").read_text()[-2000:]
        finally:
            server.terminate()
            server.wait(60)
    assert status["ClusterId"] == stage.settings.cluster_id
    assert status["LeaderId"] == "1"
    assert int(status["LeaderEpoch"]) > 1
    assert int(status["HighWatermark"]) > end_offset
    rows = read_by_kafka(kafka_classpath, [log_dir / "__cluster_metadata-0"])
    assert [row for row in rows if row[0] == "partition"] == expected
    assert any(row[5] != "[]" for row in expected)
