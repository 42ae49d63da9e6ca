"""How brokers were away, as the engine played it, against the incidents that the audit tells of its log dirs."""

from __future__ import annotations

from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.incidents.incident import Incident, IncidentKind
from kraft_audit.rules.columns.broker_stops import Stop, broker_stops
from kraft_engine.runs.scenario_stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Three controllers, and three brokers with a topic."""
    stage = Stage(7, tmp_path / "out")
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13])
    stage.settle()
    return stage


def told(stage: Stage, out: Path) -> tuple[list[Incident], list[tuple[int, Stop]]]:
    """The incidents of what was captured last, and how each broker left each time."""
    stage.settle()
    stage.capture("afterwards")
    with kraft_audit.open(str(out)) as clusters:
        (cluster,) = clusters
        incidents = cluster.incidents(cluster.check()).incidents
        return list(incidents), [(each.absence.broker_id, each.stop) for each in broker_stops(cluster.history)]


def freeze(stage: Stage, broker_id: int) -> None:
    """The broker's process lives on, and the controllers hear nothing of it until they have fenced it."""
    stage.isolate(broker_id)
    stage.until(lambda: not stage.is_active(broker_id), f"broker {broker_id} fenced")
    stage.heal()
    stage.until(lambda: stage.is_active(broker_id), f"broker {broker_id} unfenced")


def test_a_broker_that_comes_back_as_the_same_process_was_frozen(stage: Stage, tmp_path: Path) -> None:
    freeze(stage, 12)
    (incident,), stops = told(stage, tmp_path / "out")
    assert stops == [(12, Stop.FROZEN)]
    assert (incident.kind, incident.subject, incident.is_open) == (IncidentKind.BROKER_FREEZE, "12", False)


def test_a_broker_that_comes_back_as_another_process_was_not(stage: Stage, tmp_path: Path) -> None:
    stage.kill_broker(12, power_cut=False)
    stage.start_broker(12)
    incidents, stops = told(stage, tmp_path / "out")
    assert stops == [(12, Stop.CRASHED)]
    assert IncidentKind.BROKER_FREEZE not in {incident.kind for incident in incidents}


@pytest.mark.parametrize(("kills", "is_loop"), [(2, False), (3, True)])
def test_a_broker_that_is_killed_after_each_start_is_in_a_loop(
    stage: Stage, tmp_path: Path, kills: int, is_loop: bool
) -> None:
    for _ in range(kills):
        stage.kill_broker(12, power_cut=False)
        stage.start_broker(12)
    incidents, stops = told(stage, tmp_path / "out")
    assert stops == [(12, Stop.CRASHED)] * kills
    loops = [incident for incident in incidents if incident.kind is IncidentKind.RESTART_LOOP]
    assert len(loops) == is_loop
    assert all(incident.advice.startswith("Stop whatever restarts it") for incident in loops)


def test_stops_in_order_are_no_loop(stage: Stage, tmp_path: Path) -> None:
    for _ in range(3):
        stage.stop_broker(12)
        stage.start_broker(12)
    incidents, stops = told(stage, tmp_path / "out")
    assert stops == [(12, Stop.CONTROLLED)] * 3
    assert {incident.kind for incident in incidents} == {IncidentKind.BROKER_STOP}
