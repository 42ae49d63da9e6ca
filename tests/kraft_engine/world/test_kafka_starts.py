"""A real Kafka controller starts on a dir that the engine wrote, wins its election, and holds the engine's state.

Needs Java and Kafka's jars: their class path in KRAFT_AUDIT_KAFKA_CLASSPATH, or Maven to fetch them by coordinates.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_engine.runs.scenario_stage import Stage
from tests.builders.kafka_tools import controller_properties, image_rows, read_by_kafka, started_status
from tests.builders.ports import free_port

pytestmark = [pytest.mark.kafka, pytest.mark.ci]


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
    quorum = "controller.quorum.voters=1@" if static else "controller.quorum.bootstrap.servers="
    properties = controller_properties(tmp_path, log_dir, 1, port, f"{quorum}127.0.0.1:{port}")
    status = started_status(kafka_classpath, properties, port)
    assert status["ClusterId"] == stage.settings.cluster_id
    assert status["LeaderId"] == "1"
    assert int(status["LeaderEpoch"]) > 1
    assert int(status["HighWatermark"]) > end_offset
    rows = read_by_kafka(kafka_classpath, [log_dir / "__cluster_metadata-0"])
    assert [row for row in rows if row[0] == "partition"] == expected
    assert any(row[5] != "[]" for row in expected)
