"""Who surely holds every acknowledged record, record by record, and which elections pass such replicas over.

The stories are those of KIP-966 and of what real brokers did; each says the exact witnesses at its boundary.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft_audit.recovery.may_i.broker_permission import broker_permission
from kraft_audit.recovery.may_i.permission import Action, Question, Verdict
from kraft_audit.rules.columns.loss_holders import Grade, HolderState, Loss, losses, losses_beside
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.rules.columns.sure_copies import copies
from kraft_audit.rules.columns.witnesses import Label, Reason, loss_events, witnesses
from kraft_audit.rules.rule_model import Severity
from tests.builders.histories import HistoryBuilder

ELR = "eligible.leader.replicas.version"
NEW = {"incarnation_id": "y" * 22, "fenced": True, "cause": "reregistered"}
DOWN = {"isr": [], "leader": -1}


@pytest.fixture
def story(build: HistoryBuilder) -> HistoryBuilder:
    """Three brokers, RF 3, min ISR 2, ELR on; t-0 is created at 10 with leader 11."""
    build.three_nodes(end=200).feature("metadata.version", 30).feature(ELR, 1)
    return build.brokers(11, 12, 13).partition("t-0", 10, "created", leader_epoch=0)


def now(build: HistoryBuilder) -> set[int]:
    history = build.history()
    return set(witnesses(history, int(partition_states(history).last_rows[0])).members)


def only(build: HistoryBuilder) -> Loss:
    (loss,) = losses(build.history())
    return loss


def test_who_leaves_the_isr_while_enough_stay_is_none_any_more(story: HistoryBuilder) -> None:
    assert now(story.partition("t-0", 20, "isr_shrunk", isr=[11, 12])) == {11, 12}


def test_below_min_isr_nothing_is_acknowledged_so_who_leaves_stays_one(story: HistoryBuilder) -> None:
    story.partition("t-0", 20, "isr_shrunk", isr=[11, 12])
    assert now(story.partition("t-0", 21, "isr_shrunk", isr=[11], elr=[12])) == {11, 12}


def test_before_the_watermark_waited_it_leaves_at_once(build: HistoryBuilder) -> None:
    build.three_nodes(end=200).feature("metadata.version", 14).brokers(11, 12, 13)
    build.partition("t-0", 10, "created").partition("t-0", 20, "isr_shrunk", isr=[11])
    assert now(build) == {11}


@pytest.mark.parametrize(("min_isr", "left"), [(1, {11}), (2, {11, 12, 13})])
def test_a_lower_minimum_lets_the_rest_acknowledge_alone(story: HistoryBuilder, min_isr: int, left: set[int]) -> None:
    """Lowering min.insync.replicas writes no partition record: the row is of the config alone."""
    story.partition("t-0", 20, "fenced", isr=[11], elr=[12, 13])
    assert now(story.partition("t-0", 21, "min_isr_edited", effective_min_isr=min_isr)) == left


@pytest.mark.parametrize(("partition", "left"), [("t-0", {11, 12}), ("t-1", {11, 12, 13})])
def test_a_leader_waits_for_as_many_as_its_own_partition_has_replicas(
    story: HistoryBuilder, partition: str, left: set[int]
) -> None:
    """The controller counts the two replicas of t-0 for all of topic t, and so does the replayed minimum."""
    story.config("TOPIC", "t", "min.insync.replicas", "3", at=5)
    story.partition("t-0", 15, replicas=[11, 12], isr=[11, 12])
    story.partition("t-1", 16, "created", leader_epoch=0).partition("t-1", 20, "fenced", isr=[11, 12])
    history = story.history()
    states = partition_states(history)
    (row,) = (int(row) for row in states.last_rows if states.name(int(row)) == partition)
    assert witnesses(history, row).members == left


def test_whom_a_standing_leader_takes_in_is_one(story: HistoryBuilder) -> None:
    story.partition("t-0", 20, isr=[11, 12]).partition("t-0", 21, "isr_expanded", isr=[11, 12, 13])
    assert now(story) == {11, 12, 13}


@pytest.mark.parametrize("state", ["RECOVERED", "RECOVERING"])
def test_who_is_elected_is_not_made_one_by_its_election(story: HistoryBuilder, state: str) -> None:
    story.partition("t-0", 20, isr=[11, 12])
    story.partition("t-0", 21, isr=[13], leader=13, leader_epoch=1, leader_recovery_state=state)
    assert [event.label for event in loss_events(story.history())] == [Label.UNCLEAN_ELECTION]


def test_a_crash_is_said_by_the_registration_and_a_clean_stop_by_its_announcement(build: HistoryBuilder) -> None:
    """With the ELR off: 12 was fenced in controlled shutdown, 13 without."""
    build.three_nodes(end=200).feature("metadata.version", 21).brokers(11, 12, 13)
    build.partition("t-0", 10, "created", effective_min_isr=3)
    build.partition("t-0", 20, isr=[11]).broker(13, at=22, fenced=True)
    build.broker(12, at=21, in_controlled_shutdown=True).broker(12, at=23, in_controlled_shutdown=True, fenced=True)
    assert now(build) == {11, 12, 13}
    build.broker(12, at=30, **NEW).broker(13, at=31, **NEW)
    assert now(build) == {11, 12}


@pytest.mark.parametrize(("gone", "verdict"), [((), Verdict.YES), ((12,), Verdict.NO)])
def test_a_sure_copy_counts_unless_it_is_gone(story: HistoryBuilder, gone: tuple[int, ...], verdict: Verdict) -> None:
    """12 stopped in order while the ISR was below the minimum: its disk has everything, if it is still there."""
    story.broker(12, at=21, in_controlled_shutdown=True).partition("t-0", 22, "controlled_shutdown", isr=[11], elr=[12])
    story.broker(12, at=23, in_controlled_shutdown=True, fenced=True).broker(13, at=24, fenced=True)
    answer = broker_permission(Question(Action.WIPE, 11, "captures", gone=frozenset(gone)), story.history())
    assert answer is not None
    assert answer.verdict is verdict


def test_the_drill_that_lost_500_of_500(story: HistoryBuilder) -> None:
    """11, 12 and 13 are killed in turn; 12 registers and leaves the ELR, then 13, which Kafka elects."""
    story.partition("t-0", 20, "fenced", isr=[12, 13], leader=12, leader_epoch=1).broker(11, at=21, fenced=True)
    story.partition("t-0", 30, "fenced", isr=[13], elr=[12], leader=13, leader_epoch=2).broker(12, at=31, fenced=True)
    story.partition("t-0", 40, "fenced", **DOWN, elr=[12, 13], last_known_elr=[13], leader_epoch=3)
    story.broker(13, at=41, fenced=True)
    history = story.history()
    known = copies(history, int(partition_states(history).last_rows[0]))
    assert (known.sure, known.unsure, known.last_leader) == (set(), {12, 13}, 13)
    story.partition("t-0", 50, "unclean_shutdown", elr=[13], cause_broker_id=12).broker(12, at=51, **NEW)
    assert now(story) == {13}
    story.partition("t-0", 60, "unclean_shutdown", elr=[], cause_broker_id=13).broker(13, at=61, **NEW)
    elected = {"isr": [13], "leader": 13, "leader_epoch": 4, "last_known_elr": [], "election": "last_known"}
    story.partition("t-0", 62, "unfenced", **elected, leader_recovery_state="RECOVERING")
    loss = only(story)
    assert (loss.event.label, loss.event.offset, loss.event.leader_epoch) == (Label.LAST_KNOWN_LEADER, 62, 4)
    assert (loss.grade, loss.severity) == (Grade.POSSIBLE, Severity.HIGH)
    assert loss.event.own is not None
    assert (loss.event.own.reason, loss.event.own.offset) == (Reason.CRASHED, 61)
    assert now(story) == {13}


def test_kafka_4_0_elects_the_last_known_leader_in_the_operation_that_registers_it(story: HistoryBuilder) -> None:
    """As real 4.0.2 wrote it: the election at 60 and the registration at 61 are one batch."""
    story.partition("t-0", 20, "fenced", isr=[12, 13], leader=12, leader_epoch=1).broker(11, at=21, fenced=True)
    story.partition("t-0", 30, "fenced", isr=[13], elr=[12], leader=13, leader_epoch=2).broker(12, at=31, fenced=True)
    story.partition("t-0", 40, "fenced", **DOWN, elr=[12, 13], last_known_elr=[13], leader_epoch=3)
    story.broker(13, at=41, fenced=True)
    story.partition("t-0", 50, "unclean_shutdown", elr=[13], cause_broker_id=12).broker(12, at=51, **NEW)
    elected = {"isr": [13], "elr": [], "leader": 13, "leader_epoch": 4, "last_known_elr": [], "election": "last_known"}
    story.partition("t-0", 60, "unclean_election", **elected, leader_recovery_state="RECOVERING")
    story.broker(13, at=61, **NEW)
    loss = only(story)
    assert (loss.event.label, loss.event.offset, loss.event.leader_epoch) == (Label.LAST_KNOWN_LEADER, 60, 4)
    assert (loss.grade, loss.severity) == (Grade.POSSIBLE, Severity.HIGH)
    assert loss.event.own is not None
    assert (loss.event.own.reason, loss.event.own.offset) == (Reason.CRASHED, 61)
    assert [(h.broker_id, h.is_witness, h.now) for h in loss.holders] == [(11, False, HolderState.DOWN)]
    assert now(story) == {13}


def unclean(story: HistoryBuilder) -> HistoryBuilder:
    """11 lagged and leads uncleanly at 50, with 12 stopped in order and 13 killed."""
    story.partition("t-0", 20, "isr_shrunk", isr=[12, 13], leader=12, leader_epoch=1)
    story.broker(12, at=30, in_controlled_shutdown=True).broker(12, at=32, in_controlled_shutdown=True, fenced=True)
    story.partition("t-0", 31, "controlled_shutdown", isr=[13], elr=[12], leader=13, leader_epoch=2)
    story.broker(13, at=41, fenced=True).partition(
        "t-0", 40, "fenced", **DOWN, elr=[12, 13], last_known_elr=[13], leader_epoch=3
    )
    elected: dict[str, Any] = {"isr": [11], "elr": [], "last_known_elr": [], "leader": 11, "leader_epoch": 4}
    return story.partition("t-0", 50, "unclean_election", **elected, leader_recovery_state="RECOVERING")


def test_an_unclean_election_passes_over_who_held_everything(story: HistoryBuilder) -> None:
    loss = only(unclean(story))
    assert (loss.event.label, loss.event.leader_id, loss.grade) == (Label.UNCLEAN_ELECTION, 11, Grade.POSSIBLE)
    assert (loss.severity, loss.event.witnesses) == (Severity.CRITICAL, {12, 13})
    assert loss.event.own is not None
    assert (loss.event.own.offset, loss.event.own.leader_epoch) == (20, 1)
    states = [(h.broker_id, h.is_witness, h.then, h.now, h.until_offset) for h in loss.holders]
    assert states == [
        (12, True, HolderState.STOPPED, HolderState.STOPPED, None),
        (13, True, HolderState.DOWN, HolderState.DOWN, None),
    ]
    assert loss.saved_until is None


def test_a_holder_that_comes_back_truncates(story: HistoryBuilder) -> None:
    unclean(story).broker(13, at=60, **NEW)
    loss = only(story)
    assert [(h.broker_id, h.now) for h in loss.holders] == [(12, HolderState.STOPPED), (13, HolderState.GONE)]
    assert (loss.saved_until, loss.severity_now) == (None, Severity.CRITICAL)
    story.broker(12, at=70, **NEW)
    loss = only(story)
    assert (loss.saved_until, loss.severity, loss.severity_now) == (70, Severity.CRITICAL, Severity.HIGH)


@pytest.mark.parametrize(("leader", "now", "until"), [(-1, HolderState.STOPPED, None), (11, HolderState.GONE, 60)])
def test_a_holder_that_runs_while_nobody_leads_truncates_nothing(
    story: HistoryBuilder, leader: int, now: HolderState, until: int | None
) -> None:
    unclean(story).partition("t-0", 55, leader=leader, leader_epoch=5)
    story.broker(12, at=60, **NEW).broker(12, at=61, incarnation_id="y" * 22)
    story.broker(12, at=62, incarnation_id="y" * 22, fenced=True)
    story.partition("t-0", 70, leader=11, leader_epoch=6)
    (holder,) = (each for each in losses(story.history())[0].holders if each.broker_id == 12)
    assert (holder.now, holder.until_offset) == (now, until)


def test_a_replica_that_was_down_may_have_what_a_crashed_leader_lost(story: HistoryBuilder) -> None:
    """13 leads again after a crash, which is a note: 11 has been down since before, 12 has come back."""
    story.partition("t-0", 20, "fenced", isr=[13], leader=13, leader_epoch=1, effective_min_isr=1)
    story.broker(11, at=21, fenced=True).broker(12, at=22, fenced=True)
    story.partition("t-0", 40, "unclean_shutdown", **DOWN, last_known_elr=[13], leader_epoch=2)
    story.broker(13, at=41, **NEW)
    elected = {"isr": [13], "leader": 13, "leader_epoch": 3, "last_known_elr": []}
    story.partition("t-0", 50, "unfenced", **elected, leader_recovery_state="RECOVERING")
    story.broker(13, at=51, incarnation_id="y" * 22)
    story.broker(12, at=60, **NEW).broker(12, at=61, incarnation_id="y" * 22)
    history = story.history()
    assert [loss.grade for loss in losses(history)] == [Grade.UNFLUSHED]
    assert [losses_beside(history, broker) == losses(history) for broker in (11, 12, 13)] == [True, False, False]
    for action in (Action.START, Action.WIPE, Action.SCALE_IN):
        answer = broker_permission(Question(action, 11, "captures"), history)
        assert answer is not None
        assert answer.verdict is Verdict.UNDECIDED
        assert "Broker 11 was down" in answer.reason


@pytest.mark.parametrize(
    ("later", "state"),
    [
        ({"replicas": [11, 12]}, HolderState.DELETED),
        ({"exists": False}, HolderState.DELETED),
        ({"leader": 13, "isr": [13], "leader_epoch": 5}, HolderState.BACK),
    ],
)
def test_what_else_becomes_of_a_holder(story: HistoryBuilder, later: dict[str, Any], state: HolderState) -> None:
    unclean(story).partition("t-0", 60, **later)
    assert {h.broker_id: h.now for h in losses(story.history())[0].holders}[13] is state


def test_a_completed_reassignment_adds_and_elects_in_one_record(story: HistoryBuilder) -> None:
    story.broker(14).partition("t-0", 20, replicas=[11, 12, 13, 14], adding_replicas=[14], isr=[11, 12])
    moved = {"replicas": [12, 14], "adding_replicas": [], "isr": [12, 14], "leader": 14, "leader_epoch": 1}
    story.partition("t-0", 30, "reassignment_completed", **moved)
    assert loss_events(story.history()) == []
    assert now(story) == {12, 14}


def test_who_stayed_in_the_elr_while_it_was_no_replica_is_elected_without_what_it_missed(story: HistoryBuilder) -> None:
    story.partition("t-0", 20, replicas=[11, 12], isr=[11], elr=[12, 13])
    story.partition("t-0", 25, replicas=[11, 12, 13], adding_replicas=[13])
    story.partition("t-0", 30, "fenced", isr=[13], elr=[11, 12], leader=13, leader_epoch=1, adding_replicas=[13])
    loss = only(story)
    assert (loss.event.label, loss.event.witnesses) == (Label.STALE_ELIGIBLE, {11, 12})
    assert loss.event.own is not None
    assert (loss.event.own.reason, loss.event.own.offset) == (Reason.REMOVED, 20)


def test_who_was_unregistered_comes_back_as_from_a_crash(story: HistoryBuilder) -> None:
    """However it stopped: the controller has forgotten it."""
    story.partition("t-0", 20, isr=[11], elr=[12, 13])
    story.broker(13, at=21, in_controlled_shutdown=True).broker(13, at=22, in_controlled_shutdown=True, fenced=True)
    story.partition("t-0", 24, elr=[12]).broker(13, at=25, in_controlled_shutdown=True, fenced=True, exists=False)
    assert now(story.broker(13, at=26, **NEW)) == {11, 12}


@pytest.mark.parametrize(("in_order", "count"), [(True, 0), (False, 1)])
def test_a_sole_replica_that_restarts(build: HistoryBuilder, in_order: bool, count: int) -> None:
    """T0 to T4 of KIP-966 with one replica: after a crash it leads without what it had not flushed. No alarm."""
    build.three_nodes(end=200).feature("metadata.version", 21).brokers(11)
    build.partition("t-0", 10, "created", replicas=[11], isr=[11], effective_min_isr=1)
    build.broker(11, at=20, in_controlled_shutdown=in_order).broker(
        11, at=22, in_controlled_shutdown=in_order, fenced=True
    )
    build.partition("t-0", 21, leader=-1, leader_epoch=1).broker(11, at=30, **NEW)
    build.partition("t-0", 31, "unfenced", leader=11, leader_epoch=2)
    found = losses(build.history())
    assert [(loss.event.label, loss.grade) for loss in found] == [(Label.CAME_BACK_ALONE, Grade.UNFLUSHED)] * count


@pytest.mark.parametrize(("registered", "label"), [(["old", "new"], None), (["new"], Label.EMPTIED_REPLICA)])
def test_a_replica_whose_directory_was_replaced(
    build: HistoryBuilder, registered: list[str], label: Label | None
) -> None:
    """A move within the broker has both directories registered."""
    build.three_nodes(end=200).feature("metadata.version", 30).broker(11, log_dirs=["new", "old"])
    build.partition("t-0", 10, "created", replicas=[11], isr=[11], effective_min_isr=1, directories=["old"])
    build.broker(11, at=20, log_dirs=registered)
    build.partition("t-0", 30, "directory_assigned", directories=["new"])
    found = losses(build.history())
    assert [(loss.event.label, loss.severity) for loss in found] == ([(label, Severity.CRITICAL)] if label else [])


def test_a_directory_may_be_assigned_before_its_broker_registers(build: HistoryBuilder) -> None:
    """As real 4.0.2 wrote it: the new directory at 30, and the registration that has it and lacks the old one at 33."""
    build.three_nodes(end=200).feature("metadata.version", 25).broker(11, log_dirs=["old", "other"])
    build.partition("t-0", 10, "created", replicas=[11], isr=[11], effective_min_isr=1, directories=["old"])
    build.partition("t-0", 20, "controlled_shutdown", leader=-1, leader_epoch=1)
    build.broker(11, at=21, log_dirs=["old", "other"], in_controlled_shutdown=True, fenced=True)
    build.partition("t-0", 30, "directory_assigned", directories=["new"])
    build.broker(11, at=33, log_dirs=["new", "other"], **NEW)
    build.partition("t-0", 35, "unfenced", leader=11, leader_epoch=2)
    loss = only(build)
    assert (loss.event.label, loss.event.offset, loss.severity) == (Label.EMPTIED_REPLICA, 35, Severity.CRITICAL)


def test_a_replica_on_a_directory_that_its_broker_lost_is_no_sure_copy(build: HistoryBuilder) -> None:
    build.three_nodes(end=200).feature("metadata.version", 30).broker(12, log_dirs=["new", "old"])
    build.partition("t-0", 10, "created", replicas=[12], isr=[12], leader=12, directories=["old"], effective_min_isr=1)
    build.broker(12, at=20, log_dirs=["new"]).partition("t-0", 19, **DOWN, elr=[12], last_known_elr=[12])
    history = build.history()
    known = copies(history, 1)
    assert (known.sure, known.off_disk) == (set(), {12})


@pytest.mark.parametrize(("replicas", "count"), [([11], 0), ([11, 12], 1)])
def test_a_snapshot_with_a_recovering_leader_is_a_loss_before_the_log(
    build: HistoryBuilder, replicas: list[int], count: int
) -> None:
    build.three_nodes(end=200).feature("metadata.version", 30).brokers(11, 12)
    lists = {"replicas": replicas, "isr": [11], "leader": 11, "leader_recovery_state": "RECOVERING"}
    build.partition("t-0", 10, "snapshot", **lists)
    found = losses(build.history())
    assert [(loss.event.label, loss.grade) for loss in found] == [(Label.BEFORE_THE_LOG, Grade.POSSIBLE)] * count


def test_a_default_of_the_caller_never_makes_a_witness(story: HistoryBuilder) -> None:
    """With min.insync.replicas from the command line, and nothing in the log, one member acknowledges alone."""
    story.partition("t-0", 20, "fenced", isr=[11])
    assert now(story) == {11, 12, 13}
    history = story.history()
    with_default = type(history)(history.cluster_id, history.tables, defaults={"min.insync.replicas": "2"})
    assert set(witnesses(with_default, 1).members) == {11}


@pytest.mark.parametrize(("partition_epoch", "events"), [(1, 1), (2, 0)])
def test_who_comes_back_within_a_gap_may_not_have_led(story: HistoryBuilder, partition_epoch: int, events: int) -> None:
    """Leader 11 comes back at 20. Without the row that a partition epoch is missing for, it may have been deposed."""
    story.partition("t-0", 15, "isr_shrunk", isr=[11], partition_epoch=0)
    story.broker(11, 20, **NEW)
    story.partition("t-0", 30, "isr_expanded", isr=[11, 12], partition_epoch=partition_epoch)
    assert len(loss_events(story.history())) == events


def test_rows_that_are_missing_begin_anew(story: HistoryBuilder) -> None:
    """Nothing is concluded across a gap: partition epochs say that changes are missing."""
    story.partition("t-0", 20, isr=[11, 12], partition_epoch=1)
    story.partition("t-0", 30, isr=[13], elr=[12], leader=13, leader_epoch=4, partition_epoch=7)
    assert loss_events(story.history()) == []
    assert now(story) == {12, 13}
