"""What the rules about voters say, when each finding ends, and where they are undecided."""

from __future__ import annotations

import pytest

from kraft_audit.findings.answer import answer_lines
from kraft_audit.incidents.folding import fold
from kraft_audit.rules.columns.voter_sets import was_uncommitted
from kraft_audit.rules.rule_model import Severity, Status
from tests.builders.facts import facts, stands_before
from tests.builders.histories import T0, HistoryBuilder, Story, directory
from tests.builders.voter_stories import VOTER_STORIES, endpoint_of, kip642, kip856, kv003, kv005, supports


def test_kv001_prints_the_pair_and_kafkas_verdict(build: HistoryBuilder) -> None:
    build.three_nodes().voters(1, 2, 4, at=20)
    (finding,) = build.raised("KV001")
    assert stands_before(finding.summary, "{1 3}", "{1 2 3}")
    assert stands_before(finding.summary, "{2 4}", "{1 2 4}")
    assert facts(finding.summary) == {"{1 3}", "{1 2 3}", "{2 4}", "{1 2 4}"}
    assert finding.evidence[0].before == "{1 2 3}"
    assert finding.evidence[0].after == "{1 2 4}"
    assert "passes this change" in finding.evidence[1].text


@pytest.mark.parametrize(("end", "count"), [(20, 1), (19, 0)])
def test_what_a_set_replaced_is_unknown_behind_a_gap(build: HistoryBuilder, end: int, count: int) -> None:
    """Epoch 1 was captured up to `end`, epoch 2 from 20 on: in between, another set may have stood."""
    build.voters(1).voters(2, at=30, epoch=2)
    build.leader_epoch(1, 1, 0, to_offset=end).leader_epoch(2, 2, 20, to_offset=40)
    assert len(build.raised("KV001")) == count
    assert len(build.raised("KV002")) == count


def test_kv001_and_kv002_see_a_disk_swap_as_two_voters(build: HistoryBuilder) -> None:
    """{1,2,3} → {1,2,3'}: the node is the same, the voter is not."""
    build.three_nodes().voters(1, 2, 3, at=20, replaced=(3,))
    assert len(build.raised("KV001")) == 1
    assert build.raised("KV002")[0].evidence[0].offset == 20


def test_unknown_directories_are_no_change(build: HistoryBuilder) -> None:
    """kraft.version 0 → 1: the first set with directory ids replaces one without; ids are compared alone."""
    build.voters(1, 2, 3, kraft_version=0, source="static")
    for voter in build.rows["voter_sets"][0]["voters"]:
        voter["directory_id"] = None
    build.voters(1, 2, 3, at=20)
    build.rows["voter_sets"][1].update(added=[], removed=[])
    for rule_id in ("KV001", "KV002", "KV003", "KV006"):
        assert build.raised(rule_id) == []


def test_kv003_is_undecided_without_metadata_between_or_a_capture(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).batch(1, 0, 0, is_control=True).batch(1, 1, 1, is_control=True)
    build.voters(1, 2, 3, 4, at=1).capture(1, 2).watermark(0, None, end=2)
    (finding,) = build.findings("KV003")
    assert finding.status is Status.UNDECIDED
    assert finding.reason is not None
    assert "no metadata record" in finding.reason


def test_kv003_raised_in_the_batch_of_the_leader_change(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).batch(1, 0, 2, is_control=True).voters(1, 2, 3, 4, at=2)
    build.capture(1, 3).watermark(3, 3, end=3)
    assert [finding.from_offset for finding in build.raised("KV003")] == [2]


def test_kv003_another_branch_has_one_batch_at_both_offsets(build: HistoryBuilder) -> None:
    kv003(True)(build)
    build.batch(3, 20, 22, 1)
    assert build.raised("KV003") == []


def test_kv004_by_captures_that_show_both_uncommitted(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).voters(1, 2, 3, 4, at=20).voters(1, 2, 3, 4, 5, at=21)
    build.capture(1, 30).watermark(15, 20, end=30)
    assert [finding.status for finding in build.findings("KV004")] == [Status.UNDECIDED]
    build.capture(1, 31).watermark(15, 20, end=31)
    assert [finding.from_offset for finding in build.raised("KV004")] == [21]


def test_kv004_compares_no_changes_on_two_sides_of_a_gap(build: HistoryBuilder) -> None:
    """The snapshot behind the gap has the first set again: another change was made where nothing was captured."""
    build.voters(1).voters(1, 2, at=10).voters(1, at=30, source="snapshot").voters(1, 2, at=40, replaced=(2,))
    build.leader_epoch(1, 1, 0, to_offset=20).leader_epoch(2, 2, 30, to_offset=60)
    assert build.raised("KV004") == []


def test_kv005_is_undecided_between_low_and_high(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, to=40).voters(1, 2, 3, 4, at=25)
    build.capture(1, 40).watermark(20, 40, end=40)
    assert [finding.status for finding in build.findings("KV005")] == [Status.UNDECIDED]


@pytest.mark.parametrize(
    ("ids", "severity"), [((1,), Severity.MEDIUM), ((1, 2), Severity.MEDIUM), ((1, 2, 3, 4), Severity.LOW)]
)
def test_kv007_severity(build: HistoryBuilder, ids: tuple[int, ...], severity: Severity) -> None:
    build.voters(*ids)
    assert [finding.severity for finding in build.raised("KV007")] == [severity]


def test_kv007_gives_the_reason_of_the_count_that_there_is(build: HistoryBuilder) -> None:
    build.voters(1, 2)
    (of_two,) = build.raised("KV007")
    build.voters(1, 2, 3, at=5).voters(1, 2, 3, 4, at=9)
    (of_four,) = build.raised("KV007")
    assert [
        ("one or two voters" in finding.why, "even count" in finding.why.lower()) for finding in (of_two, of_four)
    ] == [
        (True, False),
        (False, True),
    ]
    assert ["until there are" in finding.what_to_do for finding in (of_two, of_four)] == [True, False]


def test_kv008_ends_when_the_voter_is_replaced(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).capture(1, 40, directory_id=directory(1, 1))
    build.voters(2, 3, at=50).capture(1, 60, when=60_000, directory_id=directory(1, 1))
    (finding,) = build.raised("KV008")
    assert finding.is_over
    assert finding.evidence[1].before == directory(1, 0)
    assert finding.evidence[1].after == directory(1, 1)


def test_kv008_is_undecided_for_a_voter_whose_disk_was_not_captured(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).capture(1, 40, directory_id=directory(1, 0)).capture(2, 40, directory_id=directory(2, 0))
    (finding,) = build.findings("KV008")
    assert (finding.status, finding.subject) == (Status.UNDECIDED, "voter 3")
    assert finding.reason is not None
    assert directory(3, 0) in finding.reason


def test_kv005_ends_when_another_record_is_committed_in_its_place(build: HistoryBuilder) -> None:
    """Only the leader that appended it still holds it, and will truncate it when it starts."""
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, to=40).voters(1, 2, 3, 4, at=25)
    build.capture(1, 40).watermark(26, 30, end=30, low_epoch=2)
    build.rows["voter_sets"][-1]["canonical"] = False
    (finding,) = build.raised("KV005")
    assert finding.is_over
    build.rows["watermarks"][-1]["low"] = 25
    (finding,) = build.raised("KV005")
    assert not finding.is_over


def test_kv009_loopback_among_several_hosts(build: HistoryBuilder) -> None:
    build.voters(1, 2, endpoints={1: endpoint_of("127.0.0.1"), 2: endpoint_of("c2.example")})
    assert [finding.subject for finding in build.raised("KV009")] == ["voter 1"]


def test_kv009_all_on_one_loopback_is_a_laptop(build: HistoryBuilder) -> None:
    build.voters(1, 2, endpoints={1: endpoint_of("127.0.0.1"), 2: endpoint_of("127.0.0.1", 9094)})
    assert build.raised("KV009") == []


def test_kv013_and_kv014_do_not_guess_about_voters_that_were_not_captured(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).capture(1, 40, leader_id=1).capture(2, 40, leader_id=1).watermark(40, 40, end=40)
    assert [f.subject for f in build.findings("KV013") if f.status is Status.UNDECIDED] == ["voter 3"]
    assert [f.status for f in build.findings("KV014")] == [Status.UNDECIDED]


def test_draft_rules_do_not_apply_to_the_shipped_dialect(build: HistoryBuilder) -> None:
    build.three_nodes().voters(1, 2, 4, at=20)
    for rule_id in ("KV601", "KV602", "KV801", "KV802", "KV803"):
        assert [finding.status for finding in build.findings(rule_id)] == [Status.CLEAR]


@pytest.mark.parametrize(
    ("low", "end", "reported"),
    [(21, 30, False), (20, 30, None), (21, 31, None), (21, None, None)],
    ids=["committed before", "not proven", "the second is there already", "no canonical log"],
)
def test_what_was_committed_before_another_record_was_there(
    build: HistoryBuilder, low: int, end: int | None, reported: bool | None
) -> None:
    """The records at 20 and 30; a round proves all below `low` committed, where the log ends at `end`."""
    build.watermark(low, None, end=end or 0)
    build.rows["watermarks"][0]["canonical_end_offset"] = end
    assert was_uncommitted(build.history(), 20, 30, 1) is reported


def test_kv003_a_capture_from_between_proves_the_epoch_committed(build: HistoryBuilder) -> None:
    """All records up to the LeaderChange at 20 were committed in a capture that does not hold the change at 21."""
    kv003(False)(build)
    build.rows["captures"].clear()
    build.rows["watermarks"].clear()
    build.capture(1, 21, epoch=2).watermark(21, 21, end=21, epoch=2)
    build.capture(1, 23, epoch=2, capture_number=1).watermark(23, 23, end=23, epoch=2, capture_number=1)
    assert [finding.status for finding in build.findings("KV003")] == [Status.CLEAR]


def test_kv005_without_any_committed_interval_is_undecided(build: HistoryBuilder) -> None:
    kv005(40)(build)
    build.rows["watermarks"].clear()
    assert [finding.status for finding in build.findings("KV005")] == [Status.UNDECIDED]


def test_kv005_a_set_that_no_captured_log_holds_is_in_use_nowhere(build: HistoryBuilder) -> None:
    build.three_nodes(40).voters(1, 2, 3, 4, at=45)
    assert [finding.status for finding in build.findings("KV005")] == [Status.CLEAR]


def test_kv010_is_undecided_where_no_capture_proves_the_removal(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, 2, 3, to=20).voters(2, 3, at=15).batch(1, 20, 100)
    build.capture(1, 101).watermark(10, None, end=101)
    (finding,) = build.findings("KV010")
    assert (finding.status, finding.subject) == (Status.UNDECIDED, "leader 1 of epoch 1")


@pytest.mark.parametrize("rule_id", ["KV601", "KV801"])
def test_a_draft_change_that_one_round_alone_shows_open_is_undecided(build: HistoryBuilder, rule_id: str) -> None:
    """Its disks may have been copied one after the other, the leader's last."""
    VOTER_STORIES[rule_id][0](build)
    for name in ("captures", "watermarks"):
        del build.rows[name][1:]
    (finding,) = build.findings(rule_id)
    assert finding.status is Status.UNDECIDED
    assert finding.reason


@pytest.mark.parametrize(
    ("rule_id", "story"),
    [
        (
            "KV601",
            kip642((10, (1, 2, 3, 4), [1, 2, 3, 4, 5]), (20, (1, 2, 3, 4), [1, 2, 4]), high=None),
        ),
        ("KV801", kip856((10, (1, 2, 3, 4)), (12, (1, 2, 3, 4, 5)), low=8)),
    ],
)
def test_a_draft_change_is_undecided_where_no_capture_reports(
    build: HistoryBuilder, rule_id: str, story: Story
) -> None:
    story(build)
    (finding,) = build.findings(rule_id)
    assert finding.status is Status.UNDECIDED
    assert facts(str(finding.reason)) == {"10"}


@pytest.mark.parametrize(("level", "is_upgradable"), [(21, False), (30, True)])
@pytest.mark.parametrize("rule", ["KV007", "KV011"])
def test_static_voters_get_one_advice_that_fits_their_software(
    build: HistoryBuilder, rule: str, level: int, is_upgradable: bool
) -> None:
    """kraft.version can be raised from 4.1 on (KAFKA-16538); before that no voter can be added safely."""
    build.voters(1, kraft_version=0, source="static").controller(1, features=supports(level))
    (finding,) = build.raised(rule)
    assert "add-controller" not in finding.what_to_do
    assert "upgrade --feature kraft.version=1" in finding.what_to_do
    assert ("Upgrade all nodes" in finding.what_to_do) is not is_upgradable


@pytest.mark.parametrize("rule", ["KV013", "KV014"])
@pytest.mark.parametrize(("end", "raised"), [(0, True), (34, True), (36, False)])
def test_a_lag_counts_in_time_too(build: HistoryBuilder, rule: str, end: int, raised: bool) -> None:
    """A record a second: more than five seconds are missing below offset 40."""
    build.voters(1, 2, 3).watermark(40, 40, end=40)
    for node_id, node_end in ((1, 40), (2, 40), (3, end)):
        build.capture(node_id, node_end, leader_id=1)
    for offset in range(40):
        build.batch(1, offset, offset)
    assert len(build.raised(rule)) == raised


@pytest.mark.parametrize("rule", ["KV013", "KV014"])
@pytest.mark.parametrize(("step_ms", "raised"), [(100, False), (1000, True)])
@pytest.mark.parametrize("skew_ms", [-60_000, 60_000])
@pytest.mark.parametrize("then_epoch", [pytest.param(1, id="one leader"), pytest.param(2, id="two leaders")])
def test_a_lag_in_time_is_not_the_difference_of_two_clocks(
    build: HistoryBuilder, rule: str, step_ms: int, raised: bool, skew_ms: int, then_epoch: int
) -> None:
    """Node 3 lacks offsets 30 to 39; the last eight are from the next leader, or from after its clock was set."""
    build.voters(1, 2, 3).watermark(40, 40, end=40, epoch=then_epoch)
    for node_id, node_end in ((1, 40), (2, 40), (3, 30)):
        build.capture(node_id, node_end, leader_id=then_epoch)
    for offset in range(40):
        is_then = offset >= 32
        written_ms = T0 + step_ms * offset + skew_ms * is_then
        build.batch(1, offset, offset, epoch=then_epoch if is_then else 1, max_timestamp_ms=written_ms)
    assert len(build.raised(rule)) == raised


def _copied_early(build: HistoryBuilder, *, leads: int, ends: int, **of_first: int) -> None:
    """Voter 1 was copied when its log ended at `ends`, the others when 60 offsets, one a second, were committed."""
    build.voters(1, 2, 3).leader_epoch(1, leads, 0).watermark(60, 60, end=60)
    build.capture(1, ends, **of_first)
    for node_id in (2, 3):
        build.capture(node_id, 60, leader_id=leads)
    for offset in range(60):
        build.batch(2, offset, offset).batch(3, offset, offset)
        if offset < ends:
            build.batch(1, offset, offset)


@pytest.mark.parametrize("rule", ["KV013", "KV014"])
@pytest.mark.parametrize(("leads", "is_behind"), [(1, False), (2, True)])
def test_a_leader_holds_what_its_followers_hold(build: HistoryBuilder, rule: str, leads: int, is_behind: bool) -> None:
    """Its copy is older than theirs; a follower's may lag."""
    _copied_early(build, leads=leads, ends=20, leader_id=1, voted_id=-1)
    assert bool(build.raised(rule)) is is_behind


@pytest.mark.parametrize("rule", ["KV013", "KV014"])
def test_a_leader_whose_disk_lost_its_log_lags(build: HistoryBuilder, rule: str) -> None:
    """It led the epoch, and its disk knows neither a leader nor a vote of it."""
    _copied_early(build, leads=1, ends=20, leader_id=-1, voted_id=-1)
    assert build.raised("KQ020")
    assert len(build.raised(rule)) == 1


@pytest.mark.parametrize(("ends", "is_raised"), [(54, True), (55, False)])
def test_kv014_counts_as_kv013_does(build: HistoryBuilder, ends: int, is_raised: bool) -> None:
    """What is no lag of a voter is no missing voter of the quorum."""
    _copied_early(build, leads=2, ends=ends)
    assert [bool(build.raised(rule)) for rule in ("KV013", "KV014")] == [is_raised, is_raised]


def test_kv014_waits_where_the_copies_contradict_each_other(build: HistoryBuilder) -> None:
    """`check` says COPY then: the same copies prove nothing about who is near."""
    _copied_early(build, leads=2, ends=20)
    build.rows["watermarks"][0] |= {"high": 40, "undecided": "voter 1 was copied before the others: copy it again"}
    (finding,) = build.findings("KV014")
    assert (finding.status, finding.reason) == (
        Status.UNDECIDED,
        "voter 1 was copied before the others: copy it again",
    )
    history = build.history()
    assert [line.text for line in answer_lines(history, fold(history, []), "PATH") if line.word == "COPY"] == [
        "Voter 1 was copied before the others: copy it again."
    ]
