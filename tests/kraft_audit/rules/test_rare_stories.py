"""Stories that hardly any cluster tells: each rule's rarer reasons, and what it leaves to another rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraft_audit.rules.broker_states import status_text
from kraft_audit.rules.captured import replica_name
from kraft_audit.rules.exports import sarif, worst
from kraft_audit.rules.majorities import disjoint_majorities
from kraft_audit.rules.model import Case, Evidence, Severity, Status, finding_of
from kraft_audit.rules.registry import _text, check, rules
from kraft_audit.rules.render import check_lines
from kraft_audit.rules.settings import parse_rule_settings
from kraft_codec.schemas import Dialect
from tests.kraft_audit.rules.conftest import CLUSTER_ID, T0, HistoryBuilder

SNAPSHOT = "00000000000000000030-0000000001.checkpoint"
Story = Callable[[HistoryBuilder], object]


def unclean(b: HistoryBuilder, **more: Any) -> None:
    fields = {"isr": [13], "leader": 13, "election": "unclean", "leader_recovery_state": "RECOVERING", **more}
    b.three_nodes().brokers(11, 12, 13).partition("t-0", 10, "created", isr=[11, 12]).partition(
        "t-0", 20, "unclean_election", **fields
    )


def no_canonical(b: HistoryBuilder) -> None:
    b.three_nodes()
    b.rows["watermarks"][0]["canonical_end_offset"] = None


def election(b: HistoryBuilder) -> None:
    """An election whose LeaderChange names nobody who granted it, and one of an epoch that nobody led."""
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
        "as told",
    ),
    "granted to two": ("KQ014", granted_twice, "elected [2, 3], each leader of epoch 2"),
    "an unclean election of the last known leader": (
        "KP003",
        lambda b: unclean(b, election="last_known"),
        "as the last known leader",
    ),
    "nobody eligible, a last known leader": (
        "KP002",
        lambda b: b.three_nodes().brokers(11, 12, 13).partition("t-0", 10, isr=[], leader=-1, last_known_elr=[12]),
        "",
    ),
    "nobody eligible, nobody known": (
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
        "as told",
    ),
}


@pytest.mark.parametrize("story", RAISED)
def test_rarer_reasons(build: HistoryBuilder, story: str) -> None:
    rule, tell, text = RAISED[story]
    tell(build)
    found = build.raised("KP009" if rule == "KB-rack" else rule)
    assert [one for one in found if text in one.summary], [one.summary for one in found]


def test_what_to_do_of_a_partition_without_a_leader(build: HistoryBuilder) -> None:
    RAISED["nobody eligible, a last known leader"][1](build)
    (found,) = build.raised("KP002")
    assert "broker 12 was the last leader" in found.what_to_do
    other = HistoryBuilder()
    RAISED["nobody eligible, nobody known"][1](other)
    (found,) = other.raised("KP002")
    assert "no last leader is known" in found.what_to_do


def test_an_unclean_election_is_over_once_enough_are_in_sync(build: HistoryBuilder) -> None:
    unclean(build)
    (during,) = build.raised("KP003")
    assert not during.is_over
    build.partition("t-0", 30, isr=[13, 11], leader_recovery_state="RECOVERING")
    build.partition("t-0", 40, leader_recovery_state="RECOVERED")
    assert [one.is_over for one in build.raised("KP003")] == [True]


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
    assert [one.summary for one in found] == ["25, the fleet's baseline is 27"]
    assert build.raised("KB002", baseline_metadata_version=25, newest_metadata_version=0) == []


def test_an_acl_beside_other_secrets(build: HistoryBuilder) -> None:
    build.three_nodes().add("security_changes", kind="SCRAM", subject="1 u", from_offset=3, exists=True)
    assert build.raised("KB004") == []


def test_overlapping_changes_of_a_branch_that_vanished(build: HistoryBuilder) -> None:
    """Neither was committed, and the second was built on the first."""
    build.three_nodes().voters(1, 2, 3, 4, at=20, canonical=False).voters(1, 2, 3, 4, 5, at=21, canonical=False)
    assert [one.from_offset for one in build.raised("KV004")] == [21]
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
    assert (found.status, found.reason) == (Status.UNDECIDED, "the LeaderChange of its epoch was not read")


def test_a_change_before_the_leader_change_of_its_epoch(build: HistoryBuilder) -> None:
    build.three_nodes().leader_epoch(2, 2, 30).voters(1, 2, at=20, epoch=2)
    assert ["before the LeaderChange" in one.summary for one in build.raised("KV003")] == [True]


def test_names_of_what_has_none(build: HistoryBuilder) -> None:
    history = build.three_nodes().broker(11, exists=False).history()
    assert status_text(history, 11) == "broker 11 unregistered"
    assert status_text(history, 99) == "broker 99 unknown"
    row = {"node_id": None, "path": "", "root": "/captures"}
    assert (replica_name(row), replica_name({**row, "path": "a"})) == ("replica at /captures", "replica at a")
    assert disjoint_majorities(frozenset(), frozenset({1})) is None
    assert parse_rule_settings("", "rules.yaml") == {}
    with pytest.raises(ValueError, match="text of rule KX001 has keys"):
        _text("KX001", {"why": "because"})


def test_what_fail_on_is_compared_with(build: HistoryBuilder) -> None:
    RAISED["nobody eligible, nobody known"][1](build)
    findings = list(check(build.history()))
    assert worst(findings) is Severity.CRITICAL
    assert worst([one for one in findings if one.status is not Status.RAISED]) is None
    document = sarif(findings, version="1")
    results = document["runs"][0]["results"]
    without_place = finding_of(rules()["KP001"], CLUSTER_ID, Case("t-0", "alone", evidence=(Evidence("told"),)))
    assert sarif([without_place], version="1")["runs"][0]["results"][0]["locations"] == [
        {"logicalLocations": [{"fullyQualifiedName": f"{CLUSTER_ID}/t-0"}]}
    ]
    assert results


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
    found = [finding_of(rule, CLUSTER_ID, one) for one in cases]
    text = "\n".join(line.text for line in check_lines(history, found, path="a", in_full=True))
    for part in ("over by", "over after", "node-1/0.log at byte 7"):
        assert part in text
    still = [finding_of(rule, CLUSTER_ID, Case("topic u", "all of it")), finding_of(rule, CLUSTER_ID, cases[1])]
    text = "\n".join(line.text for line in check_lines(history, still, path="a"))
    assert "topic" in text
    build.missing.add("batches")
    assert list(check_lines(build.history(), still, path="a"))
