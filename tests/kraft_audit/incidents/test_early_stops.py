"""A roll is too fast where a broker is stopped while partitions still lack the one that came back before it."""

from __future__ import annotations

import pytest

from kraft_audit.findings.answer import answer_lines
from kraft_audit.incidents.early_stops import ROLL_STEP_MS
from kraft_audit.incidents.folding import Folding, fold, known_incidents
from kraft_audit.incidents.incident import Incident, IncidentKind
from kraft_audit.rules.cluster_history import ClusterHistory
from tests.builders.histories import HistoryBuilder

STEP_S = ROLL_STEP_MS // 1000
LEFT, BACK, STOPPED = 20, 30, 40
AGAIN = {"incarnation_id": "y" * 22}


def _rolled(build: HistoryBuilder, *, stopped: int = STOPPED, end: int = 80) -> HistoryBuilder:
    """Broker 11 is stopped and comes back; then 12 is being stopped. One record a second."""
    build.three_nodes(end).brokers(11, 12, 13).partition("t-0", 5).partition("u-0", 5, replicas=[12, 13], isr=[12, 13])
    build.broker(11, LEFT, in_controlled_shutdown=True).partition("t-0", LEFT, isr=[12, 13], leader=12)
    build.broker(11, BACK - 1, fenced=True, **AGAIN).broker(11, BACK, **AGAIN)
    return build.broker(12, stopped, in_controlled_shutdown=True)


def _leaves(build: HistoryBuilder, at: int = STOPPED) -> HistoryBuilder:
    return build.partition("t-0", at, isr=[13], leader=13).partition("u-0", at, isr=[13], leader=13)


def _told(history: ClusterHistory) -> dict[str, Incident]:
    return {incident.subject: incident for incident in fold(history, []).incidents}


def test_a_stop_while_a_partition_lacks_the_broker_before(build: HistoryBuilder) -> None:
    history = _leaves(_rolled(build)).history()
    incidents = _told(history)
    assert incidents["11"].kind is IncidentKind.BROKER_STOP
    early = incidents["12"]
    assert (early.kind, early.is_open, early.is_clean) == (IncidentKind.ROLL_TOO_FAST, True, True)
    assert early.headline == "Roll too fast: broker 12 was stopped before the ISR was whole again"
    assert len(early.effects) == 1
    assert early.effects[0].startswith("t-0 lacked broker 11, back since ")
    assert early.effects[0].endswith(", when broker 12 was stopped")
    lines = [line.text for line in answer_lines(history, fold(history, []), "PATH")]
    assert any("do: Start what is stopped, with its disk, and stop no other broker before" in line for line in lines)


def test_a_roll_that_is_over_keeps_its_name(build: HistoryBuilder) -> None:
    _leaves(_rolled(build)).broker(12, 50, incarnation_id="z" * 22)
    assert (_told(build.history())["12"].kind, _told(build.history())["12"].is_open) == (
        IncidentKind.ROLL_TOO_FAST,
        False,
    )


def test_a_broker_that_registered_again_and_is_still_fenced_is_back(build: HistoryBuilder) -> None:
    build.three_nodes(80).brokers(11, 12, 13).partition("t-0", 5)
    build.broker(11, LEFT, in_controlled_shutdown=True).partition("t-0", LEFT, isr=[12, 13], leader=12)
    build.broker(11, BACK, fenced=True, **AGAIN).broker(12, STOPPED, in_controlled_shutdown=True)
    build.partition("t-0", STOPPED, isr=[13], leader=13)
    assert _told(build.history())["11, 12"].kind is IncidentKind.ROLL_TOO_FAST


def test_the_last_member_stays_in_the_isr_and_leads_no_more(build: HistoryBuilder) -> None:
    build.three_nodes(80).brokers(11, 12, 13).partition("t-0", 5, replicas=[11, 12], isr=[11, 12])
    build.broker(11, LEFT, in_controlled_shutdown=True).partition("t-0", LEFT, isr=[12], leader=12)
    build.broker(11, BACK, **AGAIN).broker(12, STOPPED, in_controlled_shutdown=True)
    build.partition("t-0", STOPPED, leader=-1)
    assert _told(build.history())["12"].kind is IncidentKind.ROLL_TOO_FAST


@pytest.mark.parametrize(("seconds", "is_early"), [(STEP_S, True), (STEP_S + 1, False)])
def test_whoever_waited_for_an_hour_rolled_nothing(build: HistoryBuilder, seconds: int, is_early: bool) -> None:
    _leaves(_rolled(build, stopped=BACK + seconds, end=BACK + seconds + 20), BACK + seconds)
    assert (_told(build.history())["12"].kind is IncidentKind.ROLL_TOO_FAST) is is_early


def _in_sync_again(build: HistoryBuilder) -> None:
    _leaves(_rolled(build).partition("t-0", STOPPED - 1, isr=[12, 13, 11], leader=12))
    build.partition("t-0", STOPPED, isr=[13, 11], leader=13)


def _fell_out_again(build: HistoryBuilder) -> None:
    """In sync once it was back, and out again by itself."""
    _rolled(build).partition("t-0", BACK + 1, isr=[12, 13, 11], leader=12)
    _leaves(build.partition("t-0", BACK + 3, isr=[12, 13], leader=12))


def _is_being_added(build: HistoryBuilder) -> None:
    _rolled(build).partition("t-0", STOPPED - 1, isr=[12, 13], leader=12, adding_replicas=[11])
    _leaves(build)


def _no_replica(build: HistoryBuilder) -> None:
    _rolled(build).partition("t-0", STOPPED - 1, replicas=[12, 13], isr=[12, 13], leader=12)
    _leaves(build)


def _lost(build: HistoryBuilder) -> None:
    """Nobody stopped broker 12."""
    _leaves(_rolled(build))
    build.rows["broker_changes"][-1] |= {"in_controlled_shutdown": False, "fenced": True}


def _whole_cluster(build: HistoryBuilder) -> None:
    """All brokers are stopped a little after a start."""
    _leaves(_rolled(build)).broker(13, STOPPED + 1, in_controlled_shutdown=True)
    build.broker(11, STOPPED + 2, in_controlled_shutdown=True, **AGAIN).broker(12, 60, **AGAIN)


def _first_start(build: HistoryBuilder) -> None:
    """Broker 11 was never in service before: it lacks nothing that it had."""
    build.three_nodes(80).brokers(12, 13).broker(11, 25, fenced=True).broker(11, BACK)
    build.partition("t-0", 5, isr=[12, 13], leader=12).broker(12, STOPPED, in_controlled_shutdown=True)
    build.partition("t-0", STOPPED, isr=[13], leader=13)


@pytest.mark.parametrize(
    "story",
    [_in_sync_again, _fell_out_again, _is_being_added, _no_replica, _lost, _whole_cluster, _first_start],
    ids=lambda story: story.__name__.strip("_"),
)
def test_what_is_no_roll_that_was_too_fast(build: HistoryBuilder, story: object) -> None:
    assert callable(story)
    story(build)
    assert IncidentKind.ROLL_TOO_FAST not in {incident.kind for incident in fold(build.history(), []).incidents}


def test_while_a_broker_is_lost_that_is_said_first(build: HistoryBuilder) -> None:
    _leaves(_rolled(build)).broker(13, STOPPED + 2, fenced=True)
    incident = _told(build.history())["12, 13"]
    assert incident.kind is IncidentKind.BROKER_LOSS
    assert incident.effects[0].startswith("t-0 lacked broker 11, back since ")


def test_all_partitions_that_lacked_the_broker_are_counted(build: HistoryBuilder) -> None:
    _leaves(_rolled(build).partition("v-0", 6, isr=[12, 13], leader=12)).partition("v-0", STOPPED, isr=[13], leader=13)
    history = build.history()
    folding = Folding(known_incidents(history), keeps_ids=True)
    folding.see(history)
    assert any(effect.startswith("2 partitions lacked") for row in folding.rows("c") for effect in row["effects"])
