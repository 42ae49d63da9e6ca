"""Each rule about voters raised by a small history, and silent in its near miss."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraft_audit.rules.model import Severity, Status
from kraft_audit.rules.voter_view import was_uncommitted
from kraft_codec.schemas import Dialect
from tests.kraft_audit.rules.conftest import HistoryBuilder, directory

Story = Callable[[HistoryBuilder], object]


def _change(*ids: int, **more: object) -> Story:
    return lambda b: b.three_nodes().voters(*ids, at=20, **more)  # type: ignore[arg-type]


def _kv003(metadata_between: bool) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.voters(1, 2, 3).leader_epoch(1, 1, 0).leader_epoch(2, 2, 20)
        b.log(1, 2, 3, to=20).batch(1, 20, 20, 2, is_control=True)
        if metadata_between:
            b.batch(1, 21, 21, 2).batch(1, 22, 22, 2, is_control=True)
        else:
            b.batch(1, 21, 21, 2, is_control=True).batch(1, 22, 22, 2)
        b.voters(1, 2, 3, 4, at=22 if metadata_between else 21, epoch=2)
        b.capture(1, 23, epoch=2).watermark(20, 20, end=23, epoch=2)

    return story


def _kv004(third: tuple[int, ...]) -> Story:
    return lambda b: b.three_nodes().voters(1, 2, 3, 4, at=20).voters(*third, at=30)


def _kv005(high: int) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, to=40).voters(1, 2, 3, 4, at=25)
        b.capture(1, 40).watermark(min(high, 20) if high < 26 else high, high, end=40)

    return story


def _kv008(generation: int) -> Story:
    return lambda b: b.voters(1, 2, 3).capture(1, 40, directory_id=directory(1, generation)).capture(2, 40)


def _endpoint(host: str, port: int = 9093) -> list[dict[str, object]]:
    return [{"name": "CONTROLLER", "host": host, "port": port}]


def _kv009(port: int) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.voters(1, 2, endpoints={1: _endpoint("c1.example"), 2: _endpoint("c2.example")})
        for node, host in ((1, "c1.example"), (2, "c2.example")):
            endpoint = {**_endpoint(host, port if node == 2 else 9093)[0], "security_protocol": 1}
            b.controller(node, end_points=[endpoint])

    return story


def _kv010(last_second: int) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, 2, 3, to=20).voters(2, 3, at=15)
        b.capture(1, 20).watermark(20, 20, end=20)
        b.batch(1, 20, 20).batch(1, 21, last_second).capture(1, last_second + 1, capture_number=1)
        b.watermark(last_second + 1, last_second + 1, end=last_second + 1, capture_number=1)

    return story


def _kv013(end: int) -> Story:
    return lambda b: b.voters(1, 2, 3).capture(1, 5000).capture(2, 5000).capture(3, end).watermark(5000, 5000, end=5000)


def _kv015(generation: tuple[int, ...]) -> Story:
    return lambda b: b.three_nodes().voters(1, 2, at=20).voters(1, 2, 3, at=30, replaced=generation)


def _kip856(
    *steps: tuple[int, tuple[int, ...]], low: int, end: int, high: int | None = None, data_at: int = 2
) -> Story:
    """A kip856 history: the first set at offset 1, metadata from `data_at`, the steps; captured at `end`."""

    def story(b: HistoryBuilder) -> None:
        b.dialect = Dialect.KIP856
        b.voters(1, 2, 3, at=1)
        b.batch(1, 0, 1, is_control=True)
        for offset in range(2, end):
            is_change = offset in {at for at, _ in steps}
            b.batch(1, offset, offset, is_control=is_change or offset < data_at)
        for at, ids in steps:
            b.voters(*ids, at=at)
        _captured_twice(b, low, high, end)

    return story


def _kip642(*steps: tuple[int, tuple[int, ...], list[int]], high: int | None, low: int = 0) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.dialect = Dialect.KIP642
        b.voters(1, 2, 3, at=1, target_voters=[1, 2, 3])
        for at, ids, target in steps:
            b.voters(*ids, at=at, target_voters=target)
        _captured_twice(b, low, high, 40)

    return story


def _captured_twice(b: HistoryBuilder, low: int, high: int | None, end: int) -> None:
    """Disks of one round may be of different moments: a second round shows that nothing moved."""
    for number in (0, 1):
        b.capture(1, end, capture_number=number).watermark(low, high, end=end, capture_number=number)


RAISED: dict[str, tuple[Story, Story]] = {
    "KV001": (_change(1, 2, 4), _change(1, 2, 3, 4)),
    "KV002": (_change(1, 2, 3, 4, 5), _change(1, 2)),
    "KV003": (_kv003(False), _kv003(True)),
    "KV004": (_kv004((1, 2, 3, 5)), _kv004((1, 2, 3))),
    "KV005": (_kv005(25), _kv005(40)),
    "KV006": (_change(1, 2, 3, 4, canonical=False), _change(1, 2, 3, 4)),
    "KV007": (lambda b: b.voters(1, 2), lambda b: b.voters(1, 2, 3)),
    "KV008": (_kv008(1), _kv008(0)),
    "KV009": (_kv009(9094), _kv009(9093)),
    "KV010": (_kv010(100), _kv010(45)),
    "KV011": (lambda b: b.voters(1, 2, 3, kraft_version=0, source="static"), lambda b: b.voters(1, 2, 3)),
    "KV012": (
        lambda b: b.voters(1).voters(2, canonical=False, source="bootstrap"),
        lambda b: b.voters(1).voters(1, canonical=False, source="bootstrap"),
    ),
    "KV013": (_kv013(3999), _kv013(4000)),
    "KV014": (_kv013(3999), _kv013(4000)),
    "KV015": (_kv015(()), _kv015((3,))),
    "KV016": (
        lambda b: b.three_nodes().controller(9),
        lambda b: b.three_nodes().controller(9).controller(9, at=20, exists=False),
    ),
    "KV601": (
        _kip642((10, (1, 2, 3, 4), [1, 2, 3, 4, 5]), (20, (1, 2, 3, 4), [1, 2, 4]), high=10),
        _kip642((10, (1, 2, 3, 4), [1, 2, 3, 4, 5]), (20, (1, 2, 3, 4, 5), [1, 2, 3, 4, 5]), high=10),
    ),
    "KV602": (
        _kip642((10, (1, 2, 4), [1, 2, 4]), high=40),
        _kip642((10, (1, 2, 3, 4), [1, 2, 4]), high=40),
    ),
    "KV801": (
        _kip856((10, (1, 2, 3, 4)), (12, (1, 2, 3, 4, 5)), low=8, high=10, end=20),
        _kip856((10, (1, 2, 3, 4)), low=20, high=20, end=20),
    ),
    "KV802": (
        _kip856((10, (1, 2, 3, 4)), (12, (1, 2, 3)), low=8, high=10, end=20),
        _kip856((10, (1, 2, 3, 4)), (12, (1, 2, 4)), low=8, high=10, end=20),
    ),
    "KV803": (
        _kip856((2, (1, 2, 3, 4)), low=8, high=10, end=20, data_at=5),
        _kip856((6, (1, 2, 3, 4)), low=8, high=10, end=20, data_at=5),
    ),
}


@pytest.mark.parametrize("rule_id", sorted(RAISED))
def test_raised(build: HistoryBuilder, rule_id: str) -> None:
    RAISED[rule_id][0](build)
    found = build.raised(rule_id)
    assert len(found) == 1
    assert found[0].summary
    assert found[0].finding_id


@pytest.mark.parametrize("rule_id", sorted(RAISED))
def test_near_miss_is_not_raised(build: HistoryBuilder, rule_id: str) -> None:
    RAISED[rule_id][1](build)
    assert build.raised(rule_id) == []


def test_kv001_prints_the_pair_and_kafkas_verdict(build: HistoryBuilder) -> None:
    build.three_nodes().voters(1, 2, 4, at=20)
    (finding,) = build.raised("KV001")
    assert finding.summary == "{1 3} is a majority of {1 2 3}, {2 4} of {1 2 4}, and they share no voter"
    assert finding.evidence[0].before == "{1 2 3}"
    assert finding.evidence[0].after == "{1 2 4}"
    assert "passes this change" in finding.evidence[1].text


def test_kv001_and_kv002_see_a_disk_swap_as_two_voters(build: HistoryBuilder) -> None:
    """{1,2,3} → {1,2,3'}: the node is the same, the voter is not."""
    build.three_nodes().voters(1, 2, 3, at=20, replaced=(3,))
    assert len(build.raised("KV001")) == 1
    assert build.raised("KV002")[0].evidence[0].offset == 20


def test_directories_that_nobody_knew_are_no_change(build: HistoryBuilder) -> None:
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
    _kv003(True)(build)
    build.batch(3, 20, 22, 1)
    assert build.raised("KV003") == []


def test_kv004_by_captures_that_show_both_uncommitted(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).voters(1, 2, 3, 4, at=20).voters(1, 2, 3, 4, 5, at=21)
    build.capture(1, 30).watermark(15, 20, end=30)
    assert [finding.status for finding in build.findings("KV004")] == [Status.UNDECIDED]
    build.capture(1, 31).watermark(15, 20, end=31)
    assert [finding.from_offset for finding in build.raised("KV004")] == [21]


def test_kv005_is_undecided_between_low_and_high(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, to=40).voters(1, 2, 3, 4, at=25)
    build.capture(1, 40).watermark(20, 40, end=40)
    assert [finding.status for finding in build.findings("KV005")] == [Status.UNDECIDED]


@pytest.mark.parametrize(
    ("ids", "severity"), [((1,), Severity.HIGH), ((1, 2), Severity.HIGH), ((1, 2, 3, 4), Severity.MEDIUM)]
)
def test_kv007_severity(build: HistoryBuilder, ids: tuple[int, ...], severity: Severity) -> None:
    build.voters(*ids)
    assert [finding.severity for finding in build.raised("KV007")] == [severity]


def test_kv007_gives_the_reason_of_the_count_that_there_is(build: HistoryBuilder) -> None:
    build.voters(1, 2)
    (of_two,) = build.raised("KV007")
    build.voters(1, 2, 3, at=5).voters(1, 2, 3, 4, at=9)
    (of_four,) = build.raised("KV007")
    assert [("one or two voters" in one.why, "even count" in one.why.lower()) for one in (of_two, of_four)] == [
        (True, False),
        (False, True),
    ]
    assert ["until there are" in one.what_to_do for one in (of_two, of_four)] == [True, False]


def test_kv008_ends_when_the_voter_is_replaced(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).capture(1, 40, directory_id=directory(1, 1))
    build.voters(2, 3, at=50).capture(1, 60, when=60_000, directory_id=directory(1, 1))
    (finding,) = build.raised("KV008")
    assert finding.is_over
    assert finding.evidence[1].before == directory(1, 0)
    assert finding.evidence[1].after == directory(1, 1)


def test_kv009_loopback_among_several_hosts(build: HistoryBuilder) -> None:
    build.voters(1, 2, endpoints={1: _endpoint("127.0.0.1"), 2: _endpoint("c2.example")})
    assert [finding.subject for finding in build.raised("KV009")] == ["voter 1"]


def test_kv009_all_on_one_loopback_is_a_laptop(build: HistoryBuilder) -> None:
    build.voters(1, 2, endpoints={1: _endpoint("127.0.0.1"), 2: _endpoint("127.0.0.1", 9094)})
    assert build.raised("KV009") == []


def test_kv013_and_kv014_do_not_guess_about_voters_that_were_not_captured(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).capture(1, 40).capture(2, 40).watermark(40, 40, end=40)
    assert [f.subject for f in build.findings("KV013") if f.status is Status.UNDECIDED] == ["voter 3"]
    assert [f.status for f in build.findings("KV014")] == [Status.UNDECIDED]


def test_draft_rules_do_not_apply_to_the_shipped_dialect(build: HistoryBuilder) -> None:
    build.three_nodes().voters(1, 2, 4, at=20)
    for rule_id in ("KV601", "KV602", "KV801", "KV802", "KV803"):
        assert [finding.status for finding in build.findings(rule_id)] == [Status.CLEAR]


@pytest.mark.parametrize(
    ("low", "end", "told"),
    [(21, 30, False), (20, 30, None), (21, 31, None), (21, None, None)],
    ids=["committed before", "not proven", "the second is there already", "no canonical log"],
)
def test_what_was_committed_before_another_record_was_there(
    build: HistoryBuilder, low: int, end: int | None, told: bool | None
) -> None:
    """The records at 20 and 30; a round proves all below `low` committed, where the log ends at `end`."""
    build.watermark(low, None, end=end or 0)
    build.rows["watermarks"][0]["canonical_end_offset"] = end
    assert was_uncommitted(build.history(), 20, 30, 1) is told


def test_kv003_a_capture_from_between_proves_the_epoch_committed(build: HistoryBuilder) -> None:
    """All records up to the LeaderChange at 20 were committed in a capture that does not hold the change at 21."""
    _kv003(False)(build)
    build.rows["captures"].clear()
    build.rows["watermarks"].clear()
    build.capture(1, 21, epoch=2).watermark(21, 21, end=21, epoch=2)
    build.capture(1, 23, epoch=2, capture_number=1).watermark(23, 23, end=23, epoch=2, capture_number=1)
    assert [finding.status for finding in build.findings("KV003")] == [Status.CLEAR]


def test_kv005_without_any_committed_interval_is_undecided(build: HistoryBuilder) -> None:
    _kv005(40)(build)
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
    RAISED[rule_id][0](build)
    for name in ("captures", "watermarks"):
        del build.rows[name][1:]
    (finding,) = build.findings(rule_id)
    assert finding.status is Status.UNDECIDED
    assert "if the disks are of one moment" in (finding.reason or "")


@pytest.mark.parametrize(
    ("rule_id", "story"),
    [
        (
            "KV601",
            _kip642((10, (1, 2, 3, 4), [1, 2, 3, 4, 5]), (20, (1, 2, 3, 4), [1, 2, 4]), high=None),
        ),
        ("KV801", _kip856((10, (1, 2, 3, 4)), (12, (1, 2, 3, 4, 5)), low=8, end=20)),
    ],
)
def test_a_draft_change_is_undecided_where_no_capture_tells(build: HistoryBuilder, rule_id: str, story: Story) -> None:
    story(build)
    (finding,) = build.findings(rule_id)
    assert finding.status is Status.UNDECIDED
    assert finding.reason == "no capture tells whether the record at offset 10 was committed then"
