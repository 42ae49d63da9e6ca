"""Real Kafka starts from a rescued dir: it leads, and its state is that of the surviving copy at the cut.

The engine loses two of three controllers; what `rescue` writes of the third is read by Kafka's own classes, then led by
Kafka's own controller. Needs Java and Kafka's jars: KRAFT_AUDIT_KAFKA_CLASSPATH, or Maven to fetch them by coordinates.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.incidents.incident import IncidentKind
from kraft_audit.quorum.voter_history import Endpoint
from kraft_audit.recovery.lost_quorum.rescue import Rescue
from kraft_audit.recovery.lost_quorum.rescue_request import RescueRequest
from kraft_audit.rules.columns.quorum_standing import Standing
from kraft_audit.rules.rule_model import Severity
from kraft_engine.runs.scenario_stage import Stage
from tests.builders.kafka_tools import controller_properties, image_rows, read_by_kafka, started_status
from tests.builders.ports import free_port
from tests.builders.rescues import newest_history, raised
from tests.witness.lost_majority import LostMajority
from tests.witness.runs import seed_count

pytestmark = [pytest.mark.kafka, pytest.mark.ci]

LEADER_EPOCH, PARTITION_EPOCH = 8, 9
"""Columns of a partition's row, as ReadLogDirs prints it."""


def one_of_three_is_left(out: Path) -> Stage:
    """Controller 3 is left, with topics, configs and a lost broker in its log."""
    stage = Stage(9, out)
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13], [12, 13, 11], configs={"min.insync.replicas": "2"})
    stage.topic("payments", [13, 11])
    stage.stop_broker(11)
    stage.kill_broker(12)
    stage.settle()
    for node in (1, 2, 3):
        stage.stop(node)
    stage.capture("left", 3)
    return stage


def rescued(out: Path, target: Path, port: int) -> Rescue:
    with kraft_audit.open(str(out)) as clusters:
        (cluster,) = clusters
        return cluster.rescue(RescueRequest(3, target, endpoints=(Endpoint("", "127.0.0.1", port),)), [1, 2])


def with_fenced_epochs(rows: list[list[str]]) -> list[list[str]]:
    """The engine's rows as they should come back: leader and partition epochs 1,000 higher."""
    expected = []
    for row in rows:
        is_partition = row[0] == "partition"
        raised = (LEADER_EPOCH, PARTITION_EPOCH) if is_partition else ()
        expected.append([str(int(text) + 1_000) if place in raised else text for place, text in enumerate(row)])
    return expected


def test_kafka_leads_from_a_rescued_dir_with_the_state_at_the_cut(kafka_classpath: str, tmp_path: Path) -> None:
    stage, port, target = one_of_three_is_left(tmp_path / "engine"), free_port(), tmp_path / "rescued"
    expected = with_fenced_epochs(image_rows(stage.cluster.processes[stage.slot(3)]))
    found = rescued(tmp_path / "engine", target, port)
    log_dir = target / "__cluster_metadata-0"
    read = read_by_kafka(kafka_classpath, [log_dir])
    assert read[0][:2] == ["dir", str(log_dir)], read
    assert read[1:] == expected
    properties = controller_properties(
        tmp_path, target, 3, port, f"controller.quorum.bootstrap.servers=127.0.0.1:{port}"
    )
    status = started_status(kafka_classpath, properties, port)
    assert (status["ClusterId"], status["LeaderId"]) == (found.node.cluster_id, "3")
    assert int(status["LeaderEpoch"]) > found.epoch
    assert int(status["HighWatermark"]) > found.offset
    audited = newest_history(target)
    assert audited.standing().standing is Standing.HEALTHY
    (incident,) = [each for each in audited.incidents().incidents if each.kind is IncidentKind.DECLARED_RESCUE]
    assert not incident.is_open, incident.headline
    of_quorum = [f for f in raised(audited) if f.rule.startswith(("KQ", "KV")) and f.waiver is None and not f.is_over]
    assert {f.rule for f in of_quorum if f.severity.rank > Severity.MEDIUM.rank} == set()
    led = read_by_kafka(kafka_classpath, [log_dir])
    assert [row for row in led if row[0] == "partition"] == [row for row in expected if row[0] == "partition"]


def test_kafka_reads_the_surviving_copy_s_state_from_rescued_dirs(kafka_classpath: str, tmp_path: Path) -> None:
    """Static and dynamic quorums of three and five, with suffixes that were never committed."""
    expected: dict[str, list[list[str]]] = {}
    for seed in range(seed_count(12)):
        incident = LostMajority(seed, tmp_path / f"engine-{seed}")
        target = tmp_path / f"rescued-{seed}"
        node = incident.left[-1]
        request = RescueRequest(node, target, endpoints=(Endpoint("", "127.0.0.1", 9093),))
        with kraft_audit.open(str(incident.out)) as clusters:
            (cluster,) = clusters
            cluster.rescue(request, incident.gone)
        process = incident.stage.cluster.processes[incident.stage.slot(node)]
        expected[str(target / "__cluster_metadata-0")] = with_fenced_epochs(image_rows(process))
    read: dict[str, list[list[str]]] = {}
    for row in read_by_kafka(kafka_classpath, [Path(folder) for folder in expected]):
        assert row[0] != "error", row
        if row[0] == "dir":
            read[row[1]] = []
        else:
            read[list(read)[-1]].append(row)
    assert read == expected
