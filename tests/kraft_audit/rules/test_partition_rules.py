"""What the rules about partitions and brokers say, when each finding ends, and where they are undecided."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from kraft_audit.rules.cluster_history import Contradiction
from kraft_audit.rules.rule_model import Severity, Status
from tests.builders.facts import facts, stands_before
from tests.builders.histories import T0, HistoryBuilder
from tests.builders.partition_stories import PARTITION_STORIES, config, state, then

UNCLEAN_OFF = "turn unclean election off before any start, then"


def test_kp012_not_between_times_at_both_ends_of_what_64_bits_hold(build: HistoryBuilder) -> None:
    build.partition("t-0", 0, "created")
    for number in range(1, 15):
        build.partition("t-0", number, isr=[11, 12] if number % 2 else [11, 12, 13])
        build.rows["partition_changes"][-1]["timestamp_ms"] = -(1 << 63) if number < 8 else (1 << 63) - 1
    assert build.raised("KP012") == []


def test_kp014_not_where_replicas_only_change_their_order(build: HistoryBuilder) -> None:
    state(isr=[11], replicas=[13, 12, 11], cause="reassignment_completed")(build)
    assert build.raised("KP014") == []


def test_kp013_not_for_a_broker_unregistered_before_the_snapshot(build: HistoryBuilder) -> None:
    build.brokers(11, 12).partition("t-0", 10, "snapshot").partition("t-0", 20, "isr_shrunk", isr=[11, 12])
    build.contradictions = ()
    assert build.raised("KP013") == []


def test_kp013_for_a_replica_on_a_broker_that_never_registered(build: HistoryBuilder) -> None:
    build.brokers(11, 12).partition("t-0", 10, "created")
    build.contradictions = ()
    assert [finding.subject for finding in build.raised("KP013")] == ["broker 13"]


def test_kp001_exposure_from_and_to(build: HistoryBuilder) -> None:
    """The worked trace of the facts: 12 killed at 20, back in the ISR at 30; killed again at 50."""
    then({"isr": [13], "leader": 13, "cause": "fenced"}, {"isr": [13, 12], "cause": "isr_expanded"})(build)
    build.partition("t-0", 50, "fenced", isr=[13]).broker(12, at=51, fenced=True)
    past, now = build.raised("KP001")
    assert (past.from_offset, past.to_offset, past.from_ms, past.to_ms) == (20, 30, T0 + 20_000, T0 + 30_000)
    assert past.is_over
    assert (now.from_offset, now.to_offset, now.is_over) == (50, None, False)
    assert stands_before(now.what_to_do, "broker 12", "broker 13"), "who comes back first"
    assert stands_before(now.what_to_do, "broker 12 fenced", "broker 11 up")
    assert now.evidence[0].before == "ISR [13 12]  ELR []  of replicas [11 12 13], leader 13"


def test_kp001_counts_the_union_and_not_single_replicas(build: HistoryBuilder) -> None:
    build.partition("t-0", 10, isr=[], elr=[12], leader=-1).partition("u-0", 10, replicas=[11], isr=[11])
    assert [finding.subject for finding in build.raised("KP001")] == ["t-0"]


def test_kp001_ends_with_the_topic(build: HistoryBuilder) -> None:
    build.partition("t-0", 10, isr=[13]).partition("t-0", 20, "topic_removed", exists=False)
    assert [finding.to_offset for finding in build.raised("KP001")] == [20]


def test_kp020_names_the_leader_and_lasts_when_the_partition_has_recovered(build: HistoryBuilder) -> None:
    PARTITION_STORIES["KP020"][0](build)
    build.partition("t-0", 38, "recovered", isr=[13, 11], leader_recovery_state="RECOVERED")
    (finding,) = build.raised("KP020")
    assert (finding.subject, finding.from_offset, finding.to_offset, finding.is_over) == ("t-0", 35, None, False)
    assert (finding.epoch, finding.severity) == (3, Severity.HIGH)
    assert "broker 13 leads since" in finding.summary
    assert [fact.offset for fact in finding.evidence[:2]] == [20, 35], "when it fell out of sync, and its election"


def test_kp020_in_a_snapshot_began_before_the_log(build: HistoryBuilder) -> None:
    build.three_nodes().partition("t-0", 10, "snapshot", isr=[12], leader=12, leader_recovery_state="RECOVERING")
    (finding,) = build.raised("KP020")
    assert "before the log begins" in finding.summary


def test_kp020_of_each_leader_epoch_is_a_finding_of_its_own(build: HistoryBuilder) -> None:
    """Or the waiver of one loss would hide the next one of that partition."""
    PARTITION_STORIES["KP020"][0](build)
    elected = {"isr": [12], "leader": 12, "leader_epoch": 4, "leader_recovery_state": "RECOVERING"}
    build.partition("t-0", 37, "unclean_election", **elected)
    first, second = build.raised("KP020")
    assert (first.epoch, second.epoch) == (3, 4)
    assert first.finding_id != second.finding_id


def test_kp005_minutes(build: HistoryBuilder) -> None:
    then({"isr": [11]}, {"isr": [11, 12]})(build)
    assert facts(build.raised("KP005")[0].summary) == {"1", "2", "10"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"isr": [11, 12], "elr": [12]}, "a node is in the ISR and in the ELR"),
        ({"isr": [11], "elr": [19]}, "the ELR holds a node that is no replica"),
        ({"isr": [11, 12], "elr": [13]}, "an ELR remains though 2 in sync are enough"),
    ],
)
def test_kp006_each_invariant(build: HistoryBuilder, changes: dict[str, Any], text: str) -> None:
    state(**changes)(build)
    (finding,) = build.raised("KP006")
    assert text in finding.summary


def test_kp006_takes_the_elr_in_any_order(build: HistoryBuilder) -> None:
    """PartitionChangeBuilder collects it from a HashSet of 16 buckets: of 13 and 16, 16 comes first."""
    state(isr=[11], elr=[16, 13], replicas=[11, 13, 16], expected_elr=[13, 16])(build)
    assert build.raised("KP006") == []


def test_kp006_a_lowered_min_isr_recomputes_nothing(build: HistoryBuilder) -> None:
    then({"isr": [11], "elr": [12]}, {"effective_min_isr": 1, "cause": "min_isr_edited"})(build)
    assert build.raised("KP006") == []


def test_kp007_names_the_write(build: HistoryBuilder) -> None:
    then({"isr": [11], "elr": [12]}, {"elr": [], "cause": "elr_cleared"})(build)
    build.config("TOPIC", "t", "min.insync.replicas", "1", 29).config("TOPIC", "u", "min.insync.replicas", "3", 35)
    (finding,) = build.raised("KP007")
    assert "min.insync.replicas" in finding.summary
    assert facts(finding.summary) == {"1", "[12]"}
    assert finding.evidence[-2].offset == 29 or finding.evidence[-1].offset == 29


def test_kp007_the_directory_bug(build: HistoryBuilder) -> None:
    then({"isr": [11], "elr": [12]}, {"elr": [], "cause": "directory_assigned"})(build)
    assert "directory assignment wiped ELR [12]" in build.raised("KP007")[0].summary


def test_kp007_an_unclean_election_beside_a_directory_assignment_wipes_nothing(build: HistoryBuilder) -> None:
    elected = {"isr": [13], "leader": 13, "elr": [], "election": "unclean"}
    then({"isr": [], "leader": -1, "elr": [12]}, {**elected, "cause": "directory_assigned"})(build)
    assert build.raised("KP007") == []


def test_kp008_is_one_finding_a_return(build: HistoryBuilder) -> None:
    build.three_nodes().brokers(11, 12, 13)
    for name in ("t-0", "t-1"):
        build.partition(name, 10, "created").partition(name, 20, "unclean_shutdown", isr=[11, 12], cause_broker_id=13)
    build.broker(13, at=22).partition("t-0", 25, isr=[11, 12, 13])
    build.partition("t-0", 30, "unclean_shutdown", isr=[11, 12], cause_broker_id=13).broker(13, at=31)
    found = build.raised("KP008")
    assert [(finding.subject, finding.from_offset) for finding in found] == [("broker 13", 20), ("broker 13", 30)]
    assert "2 partitions: t-0, t-1" in found[0].summary


@pytest.mark.parametrize(("stays", "count"), [(True, 0), (False, 1)])
def test_kp008_a_broker_that_stays_in_an_elr_came_back_cleanly(build: HistoryBuilder, stays: bool, count: int) -> None:
    """A leader emptied the ELR of one partition, in the batch of the broker's registration."""
    build.three_nodes().brokers(11, 12, 13)
    for name in ("t-0", "u-0"):
        build.partition(name, 10, isr=[11], elr=[13], partition_epoch=1)
    build.partition("t-0", 20, "unclean_shutdown", elr=[], cause_broker_id=13, partition_epoch=2)
    if not stays:
        build.partition("u-0", 21, "unclean_shutdown", elr=[], cause_broker_id=13, partition_epoch=2)
    build.broker(13, at=22).partition("u-0", 30, isr=[11, 13], elr=[], partition_epoch=3)
    if stays:
        build.rows["partition_changes"][-1]["partition_epoch"] = 2
    assert len(build.raised("KP008")) == count


def test_kp009_one_rack_for_all_is_one_finding(build: HistoryBuilder) -> None:
    for broker in (11, 12):
        build.broker(broker, rack="a")
    build.partition("t-0", 10).partition("t-1", 11)
    assert [finding.subject for finding in build.raised("KP009")] == ["cluster"]


def test_kp009_needs_no_memory_for_brokers_that_are_not(build: HistoryBuilder) -> None:
    far = 50_000_000
    for broker, rack in ((11, "a"), (12, "b"), (far, "b")):
        build.broker(broker, rack=rack)
    build.partition("t-0", 10, replicas=[12, far], isr=[12, far]).partition(
        "t-1", 11, replicas=[11, far], isr=[11, far]
    )
    build.partition("t-2", 12, replicas=[12, far + 1], isr=[12, far + 1])
    tracemalloc.start()
    try:
        found = build.raised("KP009")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    ((subject, summary),) = [(finding.subject, finding.summary) for finding in found]
    assert subject == "t-0"
    assert facts(summary) == {"12", str(far)}
    assert summary.endswith("rack b")
    assert peak_bytes < far


def test_kp010_each_kind_by_topic(build: HistoryBuilder) -> None:
    build.partition("single-0", 10, replicas=[11], isr=[11], effective_min_isr=1)
    build.partition("single-1", 11, replicas=[11], isr=[11], effective_min_isr=1)
    build.partition("strict-0", 12, effective_min_isr=3).partition("loose-0", 13, effective_min_isr=1)
    found = {finding.subject: facts(finding.summary) for finding in build.raised("KP010")}
    assert found == {"topic single": {"1", "2"}, "topic loose": {"1", "3"}, "topic strict": {"1"}}


def test_kp011_ends_with_the_config(build: HistoryBuilder) -> None:
    config("true", "true", "false")(build)
    assert [(f.from_offset, f.to_offset) for f in build.raised("KP011")] == [(10, 12)]


def test_kp013_names_brokers_that_were_never_registered(build: HistoryBuilder) -> None:
    build.brokers(11, 12).partition("t-0", 10)
    assert [finding.subject for finding in build.raised("KP013")] == ["broker 13"]
    build.is_complete = False
    assert [finding.status for finding in build.findings("KP013")] == [Status.UNDECIDED]


def test_kp016_excuses_the_sole_member_without_leader(build: HistoryBuilder) -> None:
    """ELR off: an ISR is never emptied, the last member stays with leader -1."""
    build.three_nodes().brokers(11).partition("t-0", 10, replicas=[11], isr=[11])
    build.partition("t-0", 24, isr=[11], leader=-1).broker(11, at=25, fenced=True)
    assert build.raised("KP016") == []


def test_kp016_knows_operations_where_the_last_captures_have_no_canonical_log(build: HistoryBuilder) -> None:
    """The shutdown and the ISR without the broker are one batch, which the logs of the first captures hold."""
    build.three_nodes().brokers(11, 12, 13).partition("t-0", 10)
    build.broker(11, at=22, in_controlled_shutdown=True).partition("t-0", 24, isr=[12, 13], leader=12)
    assert build.raised("KP016") == []
    build.watermark(60, None, end=-1, when=9_000, capture_number=1, canonical_end_offset=None, canonical_epoch=None)
    assert build.raised("KP016") == []


def test_kp016_sees_controlled_shutdown_that_moves_nothing(build: HistoryBuilder) -> None:
    build.three_nodes().brokers(11, 12, 13).partition("t-0", 10).broker(11, at=12, in_controlled_shutdown=True)
    (finding,) = build.raised("KP016")
    assert "broker 11 shutting down" in finding.summary


def test_kb005_without_a_cluster_level_value(build: HistoryBuilder) -> None:
    build.feature("eligible.leader.replicas.version", 1)
    assert [finding.subject for finding in build.raised("KB005")] == ["all brokers"]


def test_identity_does_not_change_when_an_episode_ends(build: HistoryBuilder) -> None:
    state(isr=[13])(build)
    before = build.raised("KP001")[0].finding_id
    build.partition("t-0", 30, isr=[12, 13])
    after = build.raised("KP001")[0]
    assert after.is_over
    assert after.finding_id == before


def test_kp002_names_who_must_come_back_first(build: HistoryBuilder) -> None:
    """A member that crashed loses its place when it registers, so the one that led last comes first."""
    state(isr=[], leader=-1, elr=[12, 13], last_known_elr=[13])(build)
    build.broker(13, at=19, fenced=True)
    (finding,) = build.raised("KP002")
    assert "broker 13 fenced" in finding.what_to_do
    assert facts(finding.what_to_do) == {"13"}, "which led last"


@pytest.mark.parametrize(
    ("elr", "is_unclean", "begins"),
    [
        # The last leader came back uncleanly: only who is left in the ELR is eligible.
        ([12], False, "bring broker 12 back first"),
        ([11, 12], False, "bring broker 11 or 12 back first"),
        ([12, 13], True, f"{UNCLEAN_OFF} bring broker 13, which led last, back before 11"),
        ([11, 12, 13], True, f"{UNCLEAN_OFF} bring broker 13, which led last, back first"),
    ],
)
def test_who_must_come_back_first_is_eligible_and_before_whom(
    build: HistoryBuilder, elr: list[int], is_unclean: bool, begins: str
) -> None:
    build.config("TOPIC", "t", "unclean.leader.election.enable", "true" if is_unclean else "false", 15)
    build.partition("t-0", 10).partition("t-0", 20, isr=[], elr=elr, last_known_elr=[13], leader=-1)
    (finding,) = build.raised("KP002")
    assert finding.what_to_do.startswith(f"{begins}:")


def test_a_member_that_stopped_in_order_leads_cleanly_though_unclean_election_is_on(build: HistoryBuilder) -> None:
    build.three_nodes().brokers(11, 12, 13).config("TOPIC", "t", "unclean.leader.election.enable", "true", 8)
    build.partition("t-0", 10).partition("t-0", 20, isr=[], elr=[13], last_known_elr=[13], leader=-1)
    build.broker(13, 19, in_controlled_shutdown=True).broker(13, 21, fenced=True)
    (finding,) = build.raised("KP002")
    assert finding.what_to_do.startswith(
        "bring broker 13, which led last, back before 11 or 12, as unclean election is on and whoever is live first"
    )


@pytest.mark.parametrize("enabled", [True, False])
def test_kp020_names_the_setting_only_where_it_is_on(build: HistoryBuilder, enabled: bool) -> None:
    PARTITION_STORIES["KP020"][0](build)
    if enabled:
        build.config("TOPIC", "t", "unclean.leader.election.enable", "true", 5)
    (finding,) = build.raised("KP020")
    assert ("Turn unclean.leader.election.enable off" in finding.what_to_do) is enabled


def test_kp013_after_a_gap_is_one_line(build: HistoryBuilder) -> None:
    build.contradictions = tuple(Contradiction(offset, "unknown_topic") for offset in (50, 60, 70))
    build.gaps = ((30, 40),)
    (finding,) = build.findings("KP013")
    assert (finding.status, finding.from_offset) == (Status.UNDECIDED, 50)
    assert facts(finding.reason or "") >= {"3", "50"}


@pytest.mark.parametrize("changes", [{"effective_min_isr": 3}, {"replicas": [11, 12]}, {"election": "last_known"}])
def test_kp019_not_where_something_else_explains_it(build: HistoryBuilder, changes: dict[str, Any]) -> None:
    state(isr=[11], elr=[], cause="fenced", **changes)(build)
    build.feature("eligible.leader.replicas.version", 1)
    assert build.raised("KP019") == []


def test_kp019_not_without_the_elr(build: HistoryBuilder) -> None:
    state(isr=[11], elr=[], cause="fenced")(build)
    assert build.raised("KP019") == []


@pytest.mark.parametrize(("isr", "is_refused"), [([14], True), ([14, 15], True), ([13, 14], False), ([], False)])
def test_kp015_says_where_kafka_refuses_to_cancel(build: HistoryBuilder, isr: list[int], is_refused: bool) -> None:
    """PartitionReassignmentRevert drops whoever is being added from the ISR, and elects uncleanly if none is left."""
    leader = isr[0] if isr else -1
    state(adding_replicas=[14, 15], replicas=[11, 12, 13, 14, 15], isr=isr, leader=leader)(build)
    build.rows["captures"][0]["last_timestamp_ms"] = T0 + 20_000 + 25 * 3_600_000
    (finding,) = build.raised("KP015")
    assert ("Do not cancel" in finding.what_to_do) == is_refused
    assert ("kafka-reassign-partitions --cancel" in finding.what_to_do) != is_refused
