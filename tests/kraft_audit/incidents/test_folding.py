"""Findings with one cause become one incident; what none explains stands by itself."""

from __future__ import annotations

from kraft_audit.incidents.folding import FoldedFindings, counted_findings, fold
from kraft_audit.incidents.incident import IncidentKind
from kraft_audit.rules.columns.quorum_standing import quorum_standing
from kraft_audit.rules.judging import check
from kraft_audit.rules.rule_model import Severity
from tests.builders.histories import T0, HistoryBuilder

RULES = ("KP001", "KP002", "KP005")


def _folded(build: HistoryBuilder) -> FoldedFindings:
    history = build.history()
    return fold(history, list(check(history, only=[*RULES, "KQ023", "KQ024", "KQ025"])))


def _lost_one_after_the_other(build: HistoryBuilder, *, is_clean: bool) -> HistoryBuilder:
    """Brokers 11, 12 and 13 leave at offsets 20, 22 and 24; the partition shrinks with them and has no leader then."""
    build.three_nodes().brokers(11, 12, 13).partition("t-0", 5)
    isr = [11, 12, 13]
    for offset, broker in ((20, 11), (22, 12), (24, 13)):
        change = {"in_controlled_shutdown": True} if is_clean else {"fenced": True}
        build.broker(broker, offset, **change)
        isr = [member for member in isr if member != broker] or [13]
        build.partition("t-0", offset + 1, isr=isr, leader=-1 if broker == 13 else isr[0])
    return build


def test_brokers_that_are_lost_one_after_the_other_are_one_open_incident(build: HistoryBuilder) -> None:
    folded = _folded(_lost_one_after_the_other(build, is_clean=False))
    (incident,) = folded.incidents
    assert incident.kind is IncidentKind.BROKER_LOSS
    assert incident.is_open
    assert not incident.is_clean
    assert incident.subject == "11, 12, 13"
    assert (incident.from_offset, incident.from_ms) == (20, T0 + 20_000)
    assert [event.text for event in incident.events] == ["broker 11 fenced", "broker 12 fenced", "broker 13 fenced"]
    assert {finding.rule for finding in incident.findings} == set(RULES)
    assert folded.unexplained == ()
    assert {finding.rule for finding in folded.open} == set(RULES)


def test_a_cluster_that_stopped_in_order_has_no_open_finding(build: HistoryBuilder) -> None:
    folded = _folded(_lost_one_after_the_other(build, is_clean=True))
    (incident,) = folded.incidents
    assert incident.kind is IncidentKind.CLUSTER_STOP
    assert incident.is_clean
    assert {finding.rule for finding in incident.findings} == set(RULES)
    assert folded.open == ()
    assert counted_findings(folded, None, with_resolved=True)


def test_a_broker_that_came_back_is_a_resolved_incident_with_what_it_did(build: HistoryBuilder) -> None:
    build.three_nodes().brokers(11, 12, 13).partition("t-0", 5)
    build.broker(11, 20, fenced=True).partition("t-0", 21, isr=[12], leader=12)
    build.broker(11, 30).partition("t-0", 32, isr=[12, 11], leader=12)
    folded = _folded(build)
    (incident,) = folded.incidents
    assert not incident.is_open
    assert (incident.to_offset, incident.to_ms) == (30, T0 + 30_000)
    assert any("below min ISR" in effect for effect in incident.effects)
    assert folded.open == ()


def test_absences_that_do_not_touch_are_two_incidents(build: HistoryBuilder) -> None:
    build.three_nodes().brokers(11, 12)
    build.broker(11, 10, in_controlled_shutdown=True).broker(11, 12)
    build.broker(12, 30, in_controlled_shutdown=True).broker(12, 32)
    assert [incident.subject for incident in _folded(build).incidents] == ["12", "11"]


def test_what_happened_before_a_broker_left_is_not_its_incident(build: HistoryBuilder) -> None:
    build.three_nodes().brokers(11, 12, 13).partition("t-0", 5, isr=[11], leader=11)
    build.broker(12, 30, fenced=True)
    folded = _folded(build)
    assert {finding.rule for finding in folded.unexplained} == {"KP001", "KP005"}


def test_epochs_without_a_leader_show_who_led_before_and_after(build: HistoryBuilder) -> None:
    build.three_nodes().add("leader_epochs", epoch=2, canonical=True, ended_by="burnt")
    build.leader_epoch(3, 2, 30)
    (incident,) = [i for i in _folded(build).incidents if i.kind is IncidentKind.NO_LEADER]
    assert "epoch 2" in incident.headline
    assert "node 1 led before, node 2 after" in incident.headline
    assert not incident.is_open


def test_two_elections_that_end_at_one_offset_are_two_incidents(build: HistoryBuilder) -> None:
    """What node 2 wrote in epoch 3 was cut off, so that node 3 begins epoch 5 at the same offset."""
    build.three_nodes().add("leader_epochs", epoch=2, canonical=True, ended_by="burnt")
    build.leader_epoch(3, 2, 30, canonical=False).add("leader_epochs", epoch=4, canonical=True, ended_by="burnt")
    build.leader_epoch(5, 3, 30)
    first, second = (i for i in _folded(build).incidents if i.kind is IncidentKind.NO_LEADER)
    assert first.from_offset == second.from_offset
    assert first.incident_id != second.incident_id


def test_disks_that_were_not_captured_open_no_incident(build: HistoryBuilder) -> None:
    """What `run` stores and `notify` sends of a quorum that is not judged: no disk of two voters is no alarm."""
    build.voters(1, 2, 3).leader_epoch(1, 1, 0, ended_by="open").log(1, to=40).capture(1, 40, leader_id=1)
    build.watermark(10, None, end=40)
    history = build.history()
    assert quorum_standing(history).lacks_majority
    folded = fold(history, list(check(history)))
    assert folded.incidents == ()
    assert [finding for finding in folded.open if finding.severity.rank >= Severity.HIGH.rank] == []
