"""How brokers were away, as the engine played it and its truth names it, against the incidents that the audit tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.findings.answer import answer_lines
from kraft_audit.incidents.incident import Incident, IncidentKind
from kraft_audit.rules.columns.broker_stops import Stop, broker_stops, last_voter
from kraft_audit.rules.columns.quorum_standing import Standing
from kraft_engine import simulate
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.scenarios.scenario import load
from tests.witness.truth import Truth

KIND_OF = {
    "stop in order": IncidentKind.BROKER_STOP,
    "crash": IncidentKind.BROKER_LOSS,
    "freeze": IncidentKind.BROKER_FREEZE,
    "restart loop": IncidentKind.RESTART_LOOP,
    "roll too fast": IncidentKind.ROLL_TOO_FAST,
    "role change": IncidentKind.ROLE_CHANGE,
    "rest": IncidentKind.CLUSTER_STOP,
    "runs alone": IncidentKind.QUORUM,
}
"""The kind of incident that each word of the truth is."""
STORIES = sorted(
    name for name, each in load().items() if each.story.__module__ == "kraft_engine.scenarios.broker_absences"
)


def happened(truth: Truth) -> Iterator[tuple[IncidentKind, tuple[int, ...]]]:
    """What each group of brokers went through. Whoever runs alone does so while the others are stopped."""
    for line in truth.lines["happened"]:
        if line["what"] == "runs alone":
            yield IncidentKind.BROKER_STOP, tuple({1, 2, 3} - set(line["brokers"]))
        yield KIND_OF[line["what"]], tuple(line["brokers"])


@pytest.mark.parametrize("name", STORIES)
def test_an_incident_is_what_happened(name: str, tmp_path: Path) -> None:
    simulate(name, 3, tmp_path / "run")
    truth = Counter(kind for kind, _ in happened(Truth.of(tmp_path / "run")))
    with kraft_audit.open(str(tmp_path / "run")) as clusters:
        (cluster,) = clusters
        incidents = cluster.incidents(cluster.check()).incidents
    if name == "roll-that-waits":
        truth[IncidentKind.BROKER_STOP] = 1  # what follows within seconds is one story
    assert Counter(incident.kind for incident in incidents) == truth


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        ("idle-stop", "Broker 13 was stopped in order"),
        ("idle-broker-killed", "Broker 13 was lost, without a controlled shutdown"),
        ("freeze", "Broker 12 was fenced and came back as the same process: frozen, or cut off from the controller"),
        ("roll-too-fast", "Roll too fast: broker 12 was stopped before the ISR was whole again"),
        ("roll-that-waits", "Brokers 11 and 12 were stopped by controlled shutdown and came back"),
        (
            "crash-beside-rest",
            "Broker 12 was lost, without a controlled shutdown; brokers 13 and 11 were stopped in order",
        ),
        ("stopped-in-order", "Whole cluster stopped, in order"),
    ],
)
def test_the_sentence_names_whom_it_happened_to(name: str, headline: str, tmp_path: Path) -> None:
    simulate(name, 4, tmp_path / "run")
    with kraft_audit.open(str(tmp_path / "run")) as clusters:
        (cluster,) = clusters
        assert [incident.headline for incident in cluster.incidents(cluster.check()).incidents] == [headline]


@pytest.mark.parametrize(
    ("name", "standing", "ran_on"),
    [("last-voter-runs-alone", Standing.STALLED, True), ("last-voter-stops-too", Standing.AT_REST, False)],
)
def test_the_last_voter_of_three(name: str, standing: Standing, ran_on: bool, tmp_path: Path) -> None:
    """It cannot write its own stop: unless its disk shows that it went on, both are said, and whom to ask."""
    simulate(name, 5, tmp_path / "run")
    with kraft_audit.open(str(tmp_path / "run")) as clusters:
        (cluster,) = clusters
        judged = cluster.standing()
        assert judged.standing is standing
        last = last_voter(cluster.history, judged.voters)
        assert last is not None
        assert last.ran_on is ran_on
        said = " ".join(line.text for line in answer_lines(cluster.history, cluster.incidents(cluster.check()), "X"))
        both = f"node {last.node_id} stopped last, or still runs without a majority: ask it"
        assert (both in said) is not ran_on


# Stories that are told verb by verb


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Three controllers, and three brokers with a topic that each of them leads a partition of."""
    stage = Stage(7, tmp_path / "out")
    stage.controllers(1, 2, 3)
    stage.brokers(11, 12, 13)
    stage.topic("orders", [11, 12, 13], [12, 13, 11], [13, 11, 12])
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


def cut_off(stage: Stage, broker_id: int) -> None:
    """The broker's process lives on, and the controllers hear nothing of it until they have fenced it."""
    stage.isolate(broker_id)
    stage.until(lambda: not stage.is_active(broker_id), f"broker {broker_id} fenced")
    stage.heal()
    stage.until(lambda: stage.is_active(broker_id), f"broker {broker_id} unfenced")


@pytest.mark.parametrize("freeze", [cut_off, Stage.freeze_broker])
def test_a_broker_that_comes_back_as_the_same_process_was_frozen_or_cut_off(
    stage: Stage, tmp_path: Path, freeze: object
) -> None:
    assert callable(freeze)
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
    for number in range(3):
        stage.topic(f"led-by-12-{number}", [12, 11])
        stage.stop_broker(12)
        stage.start_broker(12)
    incidents, stops = told(stage, tmp_path / "out")
    assert stops == [(12, Stop.CONTROLLED)] * 3
    assert {incident.kind for incident in incidents} == {IncidentKind.BROKER_STOP}


@pytest.mark.parametrize("is_killed", [True, False])
def test_kills_and_stops_of_a_broker_that_leads_nothing_look_alike(
    stage: Stage, tmp_path: Path, is_killed: bool
) -> None:
    """Both are said then, with what decides."""
    stage.stop_broker(12)
    stage.start_broker(12)
    for _ in range(3):
        if is_killed:
            stage.kill_broker(12, power_cut=False)
        else:
            stage.stop_broker(12)
        stage.start_broker(12)
    incidents, stops = told(stage, tmp_path / "out")
    assert stops == [(12, Stop.CONTROLLED), *[(12, Stop.CRASHED)] * 3]
    (loop,) = [incident for incident in incidents if incident.kind is IncidentKind.RESTART_LOOP]
    assert loop.is_open
    assert loop.rivals == (
        "Either its process ends by itself, or is killed, or somebody stops it in order again and again while it leads "
        "nothing, which the log shows as a fence. This decides: the last lines of its server.log."
    )
