"""Stories that hardly any cluster has: each rule's rarer reasons, and what it leaves to another rule."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_audit.findings.check_text import check_lines
from kraft_audit.findings.finding_formats import worst
from kraft_audit.rules.columns.captures import replica_name
from kraft_audit.rules.columns.log_batches import MAX_RECORDS_PER_BATCH
from kraft_audit.rules.columns.nodes import status_text
from kraft_audit.rules.columns.voter_sets import disjoint_majorities
from kraft_audit.rules.families.partitions_at_risk import DEPARTURE_ROWS
from kraft_audit.rules.judging import check
from kraft_audit.rules.registry import _with_all_keys, rules
from kraft_audit.rules.rule_model import Case, Evidence, Severity, Status, finding_of
from kraft_audit.rules.rule_settings import parse_rule_settings
from kraft_codec.schemas import Dialect
from tests.builders.facts import facts, stands_before
from tests.builders.histories import CLUSTER_ID, T0, HistoryBuilder, Story
from tests.builders.log_stories import checkpoint, producer_state


def last_known(b: HistoryBuilder) -> None:
    """12 and 13 crash one after the other, leave the ELR when they register, and 13 leads again."""
    b.three_nodes(100).feature("metadata.version", 30).brokers(11, 12, 13).partition("t-0", 10, isr=[12, 13], leader=12)
    b.partition("t-0", 20, isr=[], leader=-1, elr=[12, 13], last_known_elr=[13], leader_epoch=1)
    b.partition("t-0", 25, elr=[]).broker(12, at=26, incarnation_id="y" * 22).broker(13, at=27, incarnation_id="y" * 22)
    elected = {"isr": [13], "leader": 13, "last_known_elr": [], "leader_epoch": 2}
    b.partition("t-0", 28, election="last_known", leader_recovery_state="RECOVERING", **elected)


def no_canonical(b: HistoryBuilder) -> None:
    b.three_nodes()
    b.rows["watermarks"][0]["canonical_end_offset"] = None


def election(b: HistoryBuilder) -> None:
    """An election whose LeaderChange names no granting voter, and one of an epoch without a leader."""
    b.three_nodes().leader_epoch(2, 2, 20, granting_voters=None).add("leader_epochs", epoch=3, canonical=True)
    b.leader_epoch(4, 2, 30, voters=[], canonical=False)


def granted_twice(b: HistoryBuilder) -> None:
    b.three_nodes().leader_epoch(2, 2, 20, granting_voters=[1, 2])
    b.leader_epoch(2, 3, 21, granting_voters=[1, 3], canonical=False)


def off_on(*seconds: int) -> Story:
    """A broker that is fenced and unfenced at these times."""

    def story(b: HistoryBuilder) -> None:
        b.three_nodes()
        for number, second in enumerate(seconds):
            b.broker(11, at=second, fenced=number % 2 == 1)

    return story


RAISED: dict[str, tuple[str, Story, str]] = {
    "no canonical log": ("KQ002", no_canonical, "there is no canonical log"),
    "a file of another cluster": (
        "KQ010",
        lambda b: b.three_nodes().damage(2, "CLUSTER_MISMATCH"),
        "as read",
    ),
    "a log that ends before an epoch of its checkpoint": (
        "KQ013",
        checkpoint((1, 0), (2, 20), (3, 35)),
        "the log ends at offset 30, and leader-epoch-checkpoint says that epoch 3 began at offset 35",
    ),
    "a log that ends before the name of its producer state": (
        "KQ013",
        producer_state(31),
        "the log ends at offset 30, and 00000000000000000031.snapshot was written when the log ended at offset 31",
    ),
    "granted to two": ("KQ014", granted_twice, "elected [2, 3], each leader of epoch 2"),
    "the election of a last known leader": ("KP020", last_known, "elected as the last known leader"),
    "none eligible, a last known leader": (
        "KP002",
        lambda b: b.three_nodes().brokers(11, 12, 13).partition("t-0", 10, isr=[], leader=-1, last_known_elr=[12]),
        "",
    ),
    "none eligible, none known": (
        "KP002",
        lambda b: b.three_nodes().brokers(11, 12, 13).partition("t-0", 10, isr=[], leader=-1),
        "",
    ),
    "all brokers in one rack": (
        "KB-rack",
        lambda b: b.three_nodes().broker(11, rack="a").broker(12, rack="a"),
        "all 2 brokers are in rack a",
    ),
    "a snapshot without its end": (
        "KQ011",
        lambda b: b.three_nodes().damage(
            2, "SNAPSHOT_INCOMPLETE", file_name="00000000000000000030-0000000001.checkpoint"
        ),
        "as read",
    ),
}


@pytest.mark.parametrize("story", RAISED)
def test_rarer_reasons(build: HistoryBuilder, story: str) -> None:
    rule, tell, text = RAISED[story]
    tell(build)
    found = build.raised("KP009" if rule == "KB-rack" else rule)
    assert [finding for finding in found if text in finding.summary], [finding.summary for finding in found]


@pytest.mark.parametrize(
    ("offset", "damage"),
    [(30, {}), (31, {"bytes_unread": 1}), (31, {"bytes_quarantined": 1})],
    ids=["at the log's end", "the rest is unread", "the rest was refused"],
)
def test_a_producer_state_that_the_log_bears_out_or_damage_explains(
    build: HistoryBuilder, offset: int, damage: dict[str, Any]
) -> None:
    producer_state(offset, **damage)(build)
    assert not build.raised("KQ013")


def test_what_to_do_of_a_partition_without_a_leader(build: HistoryBuilder) -> None:
    RAISED["none eligible, a last known leader"][1](build)
    (found,) = build.raised("KP002")
    assert "12" in facts(found.what_to_do)
    history_builder = HistoryBuilder()
    RAISED["none eligible, none known"][1](history_builder)
    (found,) = history_builder.raised("KP002")
    assert "no last leader is known" in found.what_to_do


@pytest.mark.parametrize(
    ("ends", "to_offset"),
    [({"isr": [11, 12]}, 50), ({"exists": False}, 50), ({"isr": [12], "leader": 12}, None)],
    ids=["enough are in sync", "the topic is gone", "still too few"],
)
def test_an_elr_is_missed_until_it_is_not_needed(
    build: HistoryBuilder, ends: dict[str, Any], to_offset: int | None
) -> None:
    build.three_nodes(60).brokers(11, 12, 13).partition("t-0", 10, "created").partition("t-0", 20, isr=[11], elr=[12])
    build.partition("t-0", 30, "elr_cleared", elr=[]).partition("t-0", 40, last_known_elr=[13])
    build.partition("t-0", 50, **ends)
    (found,) = build.raised("KP007")
    assert (found.from_offset, found.to_offset, found.is_over) == (30, to_offset, to_offset is not None)


def test_epochs_without_votes_raise_nothing(build: HistoryBuilder) -> None:
    election(build)
    for rule in ("KQ003", "KQ006"):
        assert build.raised(rule) == []


def test_a_checkpoint_that_goes_back_is_the_checkpoint_rule_s(build: HistoryBuilder) -> None:
    build.three_nodes().damage(2, "EPOCH_WENT_BACK", file_name="__cluster_metadata-0/leader-epoch-checkpoint")
    assert build.raised("KQ004") == []
    build.damage(2, "EPOCH_WENT_BACK")
    assert len(build.raised("KQ004")) == 1


@pytest.mark.parametrize("apart", [10, 3_600])
def test_turns_within_an_hour_are_flapping_and_slower_ones_are_not(build: HistoryBuilder, apart: int) -> None:
    off_on(*(number * apart for number in range(1, 20)))(build)
    assert bool(build.raised("KB001")) == (apart == 10)


def test_a_metadata_version_beside_the_baseline(build: HistoryBuilder) -> None:
    build.three_nodes().feature("metadata.version", 25)
    found = build.raised("KB002", baseline_metadata_version=27, newest_metadata_version=0)
    assert [facts(finding.summary) for finding in found] == [{"25", "27"}]
    assert build.raised("KB002", baseline_metadata_version=25, newest_metadata_version=0) == []


def test_an_acl_beside_other_secrets(build: HistoryBuilder) -> None:
    build.three_nodes().add("security_changes", kind="SCRAM", subject="1 u", from_offset=3, exists=True)
    assert build.raised("KB004") == []


def test_overlapping_changes_of_a_branch_that_vanished(build: HistoryBuilder) -> None:
    """Neither was committed, and the second was built on the first."""
    build.three_nodes().voters(1, 2, 3, 4, at=20, canonical=False).voters(1, 2, 3, 4, 5, at=21, canonical=False)
    assert [finding.from_offset for finding in build.raised("KV004")] == [21]
    build.dialect = Dialect.KIP856
    assert build.raised("KV004") == [], "KV801 judges those"


@pytest.mark.parametrize("rule", ["KV802", "KV015"])
def test_changes_of_a_branch_that_vanished_are_no_history(build: HistoryBuilder, rule: str) -> None:
    build.dialect = Dialect.KIP856 if rule.startswith("KV8") else Dialect.KIP853
    build.three_nodes().voters(1, 2, at=20, canonical=False)
    assert build.raised(rule) == []


def test_a_change_whose_leader_change_was_not_read_is_undecided(build: HistoryBuilder) -> None:
    build.three_nodes().voters(1, 2, at=20, epoch=7)
    (found,) = build.findings("KV003")
    assert found.status is Status.UNDECIDED
    assert "LeaderChange" in str(found.reason)


def test_a_change_before_the_leader_change_of_its_epoch(build: HistoryBuilder) -> None:
    build.three_nodes().leader_epoch(2, 2, 30).voters(1, 2, at=20, epoch=2)
    assert ["before the LeaderChange" in finding.summary for finding in build.raised("KV003")] == [True]


def test_names_of_what_has_none(build: HistoryBuilder) -> None:
    history = build.three_nodes().broker(11, exists=False).history()
    assert status_text(history, 11) == "broker 11 unregistered"
    assert status_text(history, 99) == "broker 99 unknown"
    row = {"node_id": None, "path": "", "root": "/captures"}
    assert (replica_name(row), replica_name({**row, "path": "a"})) == ("replica at /captures", "replica at a")
    assert disjoint_majorities(frozenset(), frozenset({1})) is None
    assert parse_rule_settings("", "rules.yaml") == {}
    with pytest.raises(ValueError, match="text of rule KX001 has keys"):
        _with_all_keys("KX001", {"why": "because"})


def test_what_fail_on_is_compared_with(build: HistoryBuilder) -> None:
    RAISED["none eligible, none known"][1](build)
    findings = list(check(build.history()))
    assert worst(findings) is Severity.CRITICAL
    assert worst([finding for finding in findings if finding.status is not Status.RAISED]) is None


def test_lines_of_what_is_over_and_where_it_stood(build: HistoryBuilder) -> None:
    """One that lasted, one without a beginning, several of one subject, and evidence with its place on disk."""
    place = Evidence("a batch", path="node-1", file_name="0.log", position=7)
    rule = rules()["KP001"]
    cases = [
        Case("t-0", "alone", from_offset=5, from_ms=T0, to_ms=T0 + 9_000, is_over=True, evidence=(place,)),
        Case("t-0", "alone again", from_offset=6, is_over=True),
        Case("topic u", "all of it", is_over=True),
    ]
    history = build.three_nodes().history()
    found = [finding_of(rule, CLUSTER_ID, case) for case in cases]
    text = "\n".join(line.text for line in check_lines(history, found, path="a", in_full=True))
    for part in ("resolved by", "resolved after", "node-1/0.log at byte 7"):
        assert part in text
    still = [finding_of(rule, CLUSTER_ID, Case("topic u", "all of it")), finding_of(rule, CLUSTER_ID, cases[1])]
    text = "\n".join(line.text for line in check_lines(history, still, path="a"))
    assert "topic" in text
    build.missing.add("batches")
    assert list(check_lines(build.history(), still, path="a"))


def test_partitions_whose_history_begins_in_the_middle(build: HistoryBuilder) -> None:
    """Nothing is known of before: no last leader to compare with, and no replicas that came or went."""
    build.three_nodes().brokers(11, 12, 13)
    build.partition("t-0", 10, "unclean_election", isr=[13], leader=13, election="unclean")
    build.partition("u-0", 11, "reassignment_completed", isr=[11])
    assert build.raised("KP020") == []
    assert build.raised("KP014") == []


def test_an_unclean_return_of_a_broker_whose_registration_was_not_read(build: HistoryBuilder) -> None:
    build.three_nodes().brokers(11, 12).partition("t-0", 10, "created")
    build.partition("t-0", 20, "unclean_shutdown", isr=[11, 12], cause_broker_id=13)
    (found,) = build.raised("KP008")
    assert found.subject == "broker 13"
    assert "not read" in found.summary, "its registration"


def test_an_unregistered_broker_that_only_a_removed_topic_names(build: HistoryBuilder) -> None:
    build.brokers(11, 12).partition("t-0", 10, "topic_removed", exists=False)
    build.partition("u-0", 20, "created", replicas=[11, 12], isr=[11, 12])
    build.contradictions = ()
    assert build.raised("KP013") == []


def test_partition_numbers_too_far_apart_to_be_packed(build: HistoryBuilder) -> None:
    """Numbers come from the log, and may be anything that 31 bits hold: states stay with their partitions."""
    last = 2**31 - 1
    build.three_nodes().partition("t-0", 10, isr=[11]).partition(f"t-{last}", 11, isr=[11])
    build.partition("t-0", 20, isr=[11, 12]).partition("u-5", 21, isr=[12]).partition(f"t-{last}", 22, isr=[13])
    found = {finding.subject: (finding.from_offset, finding.to_offset) for finding in build.raised("KP005")}
    assert found == {"t-0": (10, 20), f"t-{last}": (11, None), "u-5": (21, None)}


@pytest.mark.parametrize(("changes", "is_reported"), [(10, True), (DEPARTURE_ROWS + 10, False)])
def test_who_left_too_many_changes_ago_is_not_looked_up(build: HistoryBuilder, changes: int, is_reported: bool) -> None:
    build.three_nodes(200).brokers(11, 12, 13).partition("t-0", 10, "created", replicas=[12, 13], isr=[12, 13])
    build.partition("t-0", 20, "fenced", isr=[13], leader=13)
    for number in range(changes):
        build.partition("t-0", 30 + number, leader_epoch=number)
    (found,) = build.raised("KP001")
    assert stands_before(found.what_to_do, "broker 12", "broker 13"), "who comes back first"
    assert "broker 12 up" in found.what_to_do
    assert ("out of the ISR since" in found.what_to_do) == is_reported


@pytest.mark.parametrize("others", [{}, {12: None}], ids=["one broker", "a broker without a rack"])
def test_one_rack_is_no_finding_where_there_is_one_broker_or_an_unknown_rack(
    build: HistoryBuilder, others: dict[int, str | None]
) -> None:
    build.three_nodes().broker(11, rack="a")
    for broker, rack in others.items():
        build.broker(broker, rack=rack)
    build.partition("t-0", 10, replicas=[11, *others], isr=[11, *others])
    assert build.raised("KP009") == []


@pytest.mark.parametrize(("first_batch", "is_raised"), [(MAX_RECORDS_PER_BATCH, False), (9_999, True)])
def test_an_operation_goes_on_after_a_full_batch(build: HistoryBuilder, first_batch: int, is_raised: bool) -> None:
    """Broker 13 is fenced in one batch and leaves the ISR in the next: one operation, if the first one is full."""
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).batch(1, 0, 0, is_control=True)
    build.batch(1, 1, first_batch).batch(1, first_batch + 1, first_batch + 10)
    build.capture(1, first_batch + 11).watermark(first_batch + 11, None, end=first_batch + 11)
    build.brokers(11, 12, 13).partition("t-0", 2, "created").broker(13, at=5_000, fenced=True)
    build.partition("t-0", first_batch + 3, "fenced", isr=[11, 12])
    assert bool(build.raised("KP016")) == is_raised
