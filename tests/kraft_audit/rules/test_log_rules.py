"""What the rules about the quorum and the log say, when each finding ends, and where they are undecided."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_audit.rules.columns.log_batches import canonical_log
from kraft_audit.rules.rule_model import Severity, Status
from tests.builders.facts import facts
from tests.builders.histories import T0, HistoryBuilder, directory
from tests.builders.log_stories import divergent, of_epoch, running, snapshot, storm, votes


def test_kq001_shows_both_batches_and_where_they_lie(build: HistoryBuilder) -> None:
    divergent(build)
    (finding,) = build.raised("KQ001")
    assert (finding.subject, finding.from_offset, finding.epoch) == ("node 1", 30, 1)
    assert finding.evidence[0].before == "batch [30, 40) epoch 2 crc 000007ee"
    assert finding.evidence[0].after == "batch [30, 40) epoch 1 crc 00000406"
    assert (finding.evidence[1].path, finding.evidence[1].position) == ("node-1", 0)
    assert not finding.is_over


def test_kq001_is_over_once_the_node_no_longer_holds_it(build: HistoryBuilder) -> None:
    divergent(build)
    later = {"path": "later/node-1", "captured_at_ms": 60_000}
    build.batch(1, 30, 39, 1, status="truncated", **later).batch(1, 30, 39, 2, **later)
    build.capture(1, 40, when=60_000, epoch=2, path="later/node-1")
    assert [finding.is_over for finding in build.raised("KQ001")] == [True]


@pytest.mark.parametrize(("start", "is_over"), [(20, False), (30, False), (31, True), (40, True)])
def test_kq001_is_over_once_the_log_of_the_node_begins_after_its_first_batch(
    build: HistoryBuilder, start: int, is_over: bool
) -> None:
    """What a snapshot of committed records covers is deleted: no batch says that the node had cut its own off."""
    divergent(build)
    build.batch(2, 40, 49, 2).batch(3, 40, 49, 2).batch(1, 40, 49, 2, captured_at_ms=T0 + 60_000)
    build.capture(2, 50, epoch=2, when=60_000).capture(3, 50, epoch=2, when=60_000)
    build.capture(1, 50, epoch=2, when=60_000, log_start_offset=start)
    build.watermark(50, 50, end=50, epoch=2, when=60_000)
    assert [finding.is_over for finding in build.raised("KQ001")] == [is_over]


@pytest.mark.parametrize("doubt", ["KQ003", "KQ014"])
def test_kq001_is_critical_where_an_election_cannot_be_trusted(build: HistoryBuilder, doubt: str) -> None:
    """A later leader's election rules out that a suffix was committed, unless a voter forgot what it held or voted."""
    divergent(build)
    stale = build.raised("KQ001")
    if doubt == "KQ003":
        build.capture(4, 40, leader_id=3, epoch=2)
    else:
        build.capture(3, 40, when=60_000, epoch=1, path="later/node-3")
    assert build.raised(doubt)
    (finding,) = build.raised("KQ001")
    assert [stale[0].severity, finding.severity] == [Severity.MEDIUM, Severity.CRITICAL]
    assert doubt in finding.why
    assert "before its disk is copied" in finding.what_to_do
    assert "Nothing" not in stale[0].what_to_do


def test_kq001_is_critical_where_its_leader_wrote_metadata_in_its_epoch(build: HistoryBuilder) -> None:
    """The controller writes none before its LeaderChange is committed."""
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).leader_epoch(2, 1, 30).leader_epoch(3, 2, 30)
    build.log(1, 2, 3, to=30).batch(1, 30, 30, 2, is_control=True).batch(1, 31, 39, 2)
    build.batch(2, 30, 39, 3).batch(3, 30, 39, 3)
    build.capture(1, 40, epoch=2).capture(2, 40, epoch=3).capture(3, 40, epoch=3).watermark(40, 40, end=40, epoch=3)
    assert [finding.severity for finding in build.raised("KQ001")] == [Severity.CRITICAL]


def test_kq002_counts_who_still_holds_what_was_committed(build: HistoryBuilder) -> None:
    build.three_nodes(40)
    for node_id in (2, 3):
        build.capture(node_id, 10, when=60_000, path=f"later/node-{node_id}")
    # Within one round the copies may be of different moments: what it proves need not lie on those read first.
    assert build.raised("KQ002") == []
    build.watermark(40, 40, end=40, when=60_000)
    (finding,) = build.raised("KQ002")
    assert facts(finding.summary) >= {"1", "3", "39"}


def test_kq002_counts_snapshots_and_waits_for_all_voters(build: HistoryBuilder) -> None:
    build.three_nodes(40)
    build.capture(2, 10, when=60_000, snapshot_end_offset=40, snapshot_epoch=1).capture(3, 10, when=60_000)
    build.watermark(40, 40, end=40, when=60_000)
    assert build.raised("KQ002") == []


def test_kq003_by_the_leaders_that_disks_name(build: HistoryBuilder) -> None:
    build.three_nodes().capture(4, 40, leader_id=3, epoch=1)
    (finding,) = build.raised("KQ003")
    assert "leaders [1, 3]" in finding.summary


def test_kq005_is_low_where_the_leader_change_is_only_late(build: HistoryBuilder) -> None:
    """As 3.5.2 wrote: two metadata records of the epoch before its LeaderChange."""
    build.three_nodes().leader_epoch(2, 2, 20, leader_change_offset=22)
    assert [finding.severity for finding in build.raised("KQ005")] == [Severity.LOW]


def test_kq005_excuses_an_epoch_that_began_below_the_log_start(build: HistoryBuilder) -> None:
    build.log(1, to=40, start=20).leader_epoch(3, 1, 20, leader_change_offset=None).watermark(40, 40, end=40)
    assert build.raised("KQ005") == []


def test_kq005_excuses_an_epoch_whose_beginning_an_earlier_capture_reports(build: HistoryBuilder) -> None:
    """It ended where the log of the next capture begins, cleaned up to there."""
    of_epoch(leader_change_offset=None)(build)
    assert len(build.raised("KQ005")) == 1
    (reported,) = (row for row in build.rows["leader_epochs"] if row["from_offset"] == 20)
    build.rows["leader_epochs"].append({**reported, "from_offset": 12, "to_offset": 20, "leader_change_offset": 12})
    assert build.raised("KQ005") == []


@pytest.mark.parametrize(("later_start", "count"), [(20, 0), (10, 1)])
def test_kq005_excuses_an_epoch_below_whose_records_another_one_was_cut(
    build: HistoryBuilder, later_start: int, count: int
) -> None:
    """Node 1 held epoch 1 to 40, then began epoch 3 somewhere below 20; cleaned up to there, nothing says where."""
    build.log(1, to=40).capture(1, 40)
    again = {"captured_at_ms": T0 + 9_000, "capture_number": 2}
    build.capture(1, 40, when=9_000, epoch=3, capture_number=2, log_start_offset=later_start)
    build.log(1, to=40, epoch=3, start=20, **again)
    build.leader_epoch(3, 1, 20, leader_change_offset=None).watermark(40, 40, end=40)
    assert len(build.raised("KQ005")) == count


@pytest.mark.parametrize(("epoch_before", "count"), [(3, 0), (2, 1)])
def test_kq005_excuses_an_epoch_that_goes_on_above_a_gap(build: HistoryBuilder, epoch_before: int, count: int) -> None:
    """Today's logs begin at 20, a copy that lags ends below; an earlier capture of node 1 held the batch before 20."""
    build.batch(1, 10, 19, epoch=epoch_before).log(1, to=40, epoch=3, start=20).capture(1, 40, epoch=3)
    build.leader_epoch(3, 1, 20, leader_change_offset=None).watermark(40, 40, end=40)
    assert len(build.raised("KQ005")) == count


def test_kq006_a_leader_outside_the_set_needs_a_removal(build: HistoryBuilder) -> None:
    build.three_nodes().leader_epoch(2, 9, 20, granting_voters=[1, 2, 9])
    assert len(build.raised("KQ006")) == 1
    build.rows["voter_sets"].clear()
    build.rows["leader_epochs"][0]["granting_voters"] = [1, 2, 3]
    build.voters(1, 2, 3, 9).voters(1, 2, 3, at=5)
    assert build.raised("KQ006") == []


def test_kq008_says_what_kafka_would_lose(build: HistoryBuilder) -> None:
    build.three_nodes().damage(2, "BAD_CRC")
    build.rows["captures"][1]["reachable_end_offset"] = 20
    (finding,) = build.raised("KQ008")
    assert "BAD_CRC" in finding.summary
    assert finding.summary.count("20") == 2, "where Kafka would cut, and how many records that costs"


@pytest.mark.parametrize(("level", "severity"), [(21, Severity.LOW), (30, Severity.HIGH)])
def test_kq011_a_snapshot_inside_a_batch_was_legal_once(build: HistoryBuilder, level: int, severity: Severity) -> None:
    snapshot(25)(build)
    build.feature("metadata.version", level)
    assert [finding.severity for finding in build.raised("KQ011")] == [severity]


def test_kq014_an_epoch_that_goes_back(build: HistoryBuilder) -> None:
    votes((5, -1), (4, -1))(build)
    assert "from 5 back to 4" in build.raised("KQ014")[0].summary


@pytest.mark.parametrize(
    ("persisted", "is_raised"),
    [
        ({"leader_id": -1}, True),
        ({"leader_id": 1}, False),  # a leader knows itself, up to a later epoch
        ({"leader_id": -1, "voted_id": 1}, False),  # read while it was a candidate
        ({"leader_id": -1, "epoch": 4}, False),
        ({"leader_id": -1, "directory_id": directory(1, 1)}, False),  # another disk, which never led
        ({"leader_id": -1, "leader_epoch": None}, False),
    ],
)
def test_kq014_a_leader_that_forgot_its_epoch(
    build: HistoryBuilder, persisted: dict[str, Any], is_raised: bool
) -> None:
    build.voters(1, 2, 3).leader_epoch(3, 1, 30).capture(1, 0, **{"epoch": 3, **persisted})
    assert ["forgot" in finding.summary for finding in build.raised("KQ014")] == [True] * is_raised


def test_kq016_epochs_without_a_leader(build: HistoryBuilder) -> None:
    """The longest run with all of its epochs, though the limit is exceeded before its end, and by another run."""
    build.leader_epoch(1, 1, 0)
    for epoch in (*range(2, 24), *range(30, 160), *range(170, 192)):
        build.leader_epoch(
            epoch, 1, 0, from_offset=None, leader_change_offset=None, timestamp_ms=None, ended_by="burnt"
        )
    (finding,) = build.raised("KQ016")
    assert (finding.subject, finding.epoch) == ("burnt epochs", 30)
    assert facts(finding.summary) == {"130", "30", "159"}
    assert facts(finding.evidence[0].text) == {"30", "159"}


def test_kq016_counts_all_epochs_of_each_storm(build: HistoryBuilder) -> None:
    """36 at once; a day later 41 that each begin five minutes after the other, of which an hour holds 13."""
    for epoch in range(1, 37):
        build.leader_epoch(epoch, 1, 10 * epoch, timestamp_ms=T0 + epoch)
    for epoch in range(37, 78):
        build.leader_epoch(epoch, 1, 10 * epoch, timestamp_ms=T0 + 86_400_000 + epoch * 300_000)
    assert [(finding.from_offset, facts(finding.summary)) for finding in build.raised("KQ016")] == [
        (10, {"36", "1"}),
        (370, {"13", "41", "37", "77"}),
    ]


def test_kq016_counts_an_epoch_once_though_it_is_reported_in_pieces(build: HistoryBuilder) -> None:
    """A gap between captures lies in epoch 7: twelve epochs began, which is just not too many."""
    for epoch in range(1, 13):
        build.leader_epoch(epoch, 1, 10 * epoch)
    build.leader_epoch(7, 1, 75, leader_change_offset=None)
    assert build.raised("KQ016") == []
    build.leader_epoch(13, 1, 130)
    (finding,) = build.raised("KQ016")
    assert facts(finding.summary) == {"13", "1"}


def test_kq020_needs_directory_ids(build: HistoryBuilder) -> None:
    build.capture(1, 40, directory_id=None).watermark(40, 40, end=40)
    assert [finding.status for finding in build.findings("KQ020")] == [Status.UNDECIDED]


def test_what_was_not_captured_is_undecided(build: HistoryBuilder) -> None:
    build.three_nodes().missing = {"batches"}
    (finding,) = build.findings("KQ001")
    assert finding.status is Status.UNDECIDED
    assert finding.reason == "not captured: batches"


def test_kq001_a_batch_that_came_back_is_held_again(build: HistoryBuilder) -> None:
    """Cut off in the second capture; in the third the disk is what it was in the first. One suffix, not over."""
    divergent(build)
    for number, status, crc_epoch in ((1, "truncated", 2), (2, "present", 1)):
        later = {"path": f"{number}/node-1", "captured_at_ms": 60_000 * number, "capture_number": number}
        build.batch(1, 30, 39, 1, status=status, **later)
        build.capture(1, 40, when=60_000 * number, epoch=crc_epoch, path=later["path"], capture_number=number)
    (finding,) = build.raised("KQ001")
    assert (finding.subject, finding.from_offset, finding.is_over) == ("node 1", 30, False)


@pytest.mark.parametrize("is_disk_replaced", [False, True])
def test_kq002_a_log_that_no_replica_continues_contradicts_no_snapshot(
    build: HistoryBuilder, is_disk_replaced: bool
) -> None:
    """Node 3 held epoch 1 up to 40, a snapshot says epoch 2 from before 30 on; then node 3 has a new, empty disk."""
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(3, to=40).capture(3, 40)
    build.capture(1, 0, snapshot_end_offset=30, snapshot_epoch=2).watermark(0, None, end=40)
    if is_disk_replaced:
        build.capture(3, 0, when=60_000, directory_id=directory(3, 1))
    found = [finding.from_offset for finding in build.raised("KQ002")]
    assert found == ([] if is_disk_replaced else [29])


def test_kq002_counts_no_replica_where_no_voter_is_known(build: HistoryBuilder) -> None:
    build.three_nodes(40)
    for node_id in (2, 3):
        build.capture(node_id, 10, when=60_000, path=f"later/node-{node_id}")
    build.watermark(40, 40, end=40, when=60_000)
    assert len(build.raised("KQ002")) == 1
    build.rows["voter_sets"].clear()
    assert build.raised("KQ002") == []


def test_kq009_leaves_a_torn_snapshot_to_kq011(build: HistoryBuilder) -> None:
    build.three_nodes().damage(2, "TORN_TAIL", file_name="00000000000000000030-0000000001.checkpoint")
    assert build.raised("KQ009") == []
    assert [finding.summary for finding in build.raised("KQ011")] == ["TORN_TAIL: as read"]


def test_kq012_is_undecided_by_the_captures_of_one_round(build: HistoryBuilder) -> None:
    """The disk with the snapshot may have been copied last: what it holds may have been committed since."""
    snapshot(45)(build)
    del build.rows["watermarks"][1]
    (finding,) = build.findings("KQ012")
    assert (finding.status, finding.subject, finding.from_offset) == (Status.UNDECIDED, "node 1", 45)


def test_kq018_reports_a_record_once_however_many_hold_it(build: HistoryBuilder) -> None:
    for node_id in (1, 2, 3):
        build.damage(node_id, "UNKNOWN_RECORD_TYPE")
    build.damage(1, "UNKNOWN_RECORD_TYPE", base_offset=30)
    assert [finding.from_offset for finding in build.raised("KQ018")] == [20, 30]


def test_kq019_counts_the_time_since_the_only_voter_started(build: HistoryBuilder) -> None:
    """Its log shows no gap where it was off for seconds; each start begins an epoch, and the hour again."""
    running(30 * 60)(build)
    build.leader_epoch(1, 1, 0, voters=[1], timestamp_ms=T0).leader_epoch(
        2, 1, 60, voters=[1], timestamp_ms=T0 + 60_000
    )
    (finding,) = build.raised("KQ019")
    assert finding.from_ms == T0 + 60_000
    build.leader_epoch(3, 1, 900, voters=[1], timestamp_ms=T0 + 900 * 60_000)
    assert build.raised("KQ019") == []


def test_kq019_asks_no_release_before_3_4_for_timed_snapshots(build: HistoryBuilder) -> None:
    running(30 * 60)(build)
    build.broker(11, features=[{"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 7}])
    assert build.raised("KQ019") == []


def test_kq005_late_leader_changes_are_one_low_finding(build: HistoryBuilder) -> None:
    build.three_nodes()
    for epoch in (2, 3):
        build.leader_epoch(epoch, 1, 10 * epoch, leader_change_offset=10 * epoch + 2)
    (finding,) = build.raised("KQ005")
    assert (finding.severity, finding.from_offset) == (Severity.LOW, 20)
    assert facts(finding.summary) >= {"2", "3"}


@pytest.mark.parametrize(
    ("processes", "voters", "severity"),
    [(14, [1, 2, 3], Severity.LOW), (1, [1, 2, 3], Severity.MEDIUM), (0, [1], Severity.LOW)],
)
def test_kq016_starts_of_voters_are_no_election_storm(
    build: HistoryBuilder, processes: int, voters: list[int], severity: Severity
) -> None:
    build.voters(*voters)
    for epoch in range(1, 15):
        build.leader_epoch(epoch, 1, epoch * 60, voters=voters)
    for number in range(processes):
        build.controller(1, at=60 * (number + 1), incarnation_id=f"process{number}".ljust(22, "x"))
    (finding,) = build.raised("KQ016")
    assert finding.severity is severity
    assert not finding.is_over


def test_kq016_is_over_an_hour_later(build: HistoryBuilder) -> None:
    storm(60)(build)
    build.capture(1, 40, last_timestamp_ms=T0 + 14 * 60_000 + 3_600_001)
    assert [finding.is_over for finding in build.raised("KQ016")] == [True]


@pytest.mark.parametrize(("level", "unreleased"), [(16, True), (19, False)])
def test_kq008_a_record_of_a_build_between_releases_may_be_no_damage(
    build: HistoryBuilder, level: int, unreleased: bool
) -> None:
    build.three_nodes().feature("metadata.version", level).damage(2, "BAD_RECORD")
    (finding,) = build.raised("KQ008")
    assert finding.severity is (Severity.HIGH if unreleased else Severity.CRITICAL)
    assert ("unreleased build" in finding.summary) is unreleased


@pytest.mark.parametrize(
    "stale",
    [
        [(10, 19, 1)],
        [(5, 14, 1)],
        [(20, 24, 1), (25, 29, 1)],
        [(10, 12, 1), (13, 24, 1)],
        [(10, 14, 1), (15, 24, 2), (25, 29, 2)],
    ],
    ids=["at the same offsets", "reaching back", "in pieces", "in pieces that reach on", "of two epochs"],
)
def test_a_later_epoch_overwrites_where_no_epoch_is_reported(
    build: HistoryBuilder, stale: list[tuple[int, int, int]]
) -> None:
    """A disk that is copied while it is cut holds both: what the last leader had and wrote is the log (KIP-595)."""
    written = [(0, 4, 0), (5, 9, 0), (10, 19, 3), (20, 29, 3)]
    build.voters(1, 2, 3)
    for first, last, epoch in [*written, *stale]:
        build.batch(1, first, last, epoch)
    build.capture(1, 30, epoch=3).watermark(0, None, end=30, epoch=3)
    log = canonical_log(build.history())
    columns = (log.base_offset, log.last_offset, log.leader_epoch)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == written


def test_kq002_is_undecided_where_a_log_only_ends_before_its_snapshot(build: HistoryBuilder) -> None:
    """Kafka would start from the snapshot: a copy of two moments, or without a segment, is no loss."""
    build.voters(1).leader_epoch(1, 1, 0).log(1, to=20).watermark(40, None, end=20, ids=(1,), canonical_end_offset=None)
    build.capture(1, 20, snapshot_end_offset=40, snapshot_epoch=1, snapshot_count=1)
    (finding,) = build.findings("KQ002")
    assert finding.status is Status.UNDECIDED
    assert finding.reason is not None
    assert "20" in finding.reason
    assert "40" in finding.reason


def test_kq002_is_raised_where_an_earlier_round_proved_more(build: HistoryBuilder) -> None:
    build.voters(1).leader_epoch(1, 1, 0).log(1, to=20).watermark(40, 40, end=40, ids=(1,), when=-90_000)
    build.watermark(20, 20, end=20, ids=(1,)).capture(1, 20)
    assert len(build.raised("KQ002")) >= 1


@pytest.mark.parametrize(("held", "raised"), [(None, True), (40, True), (35, True), (30, False), (0, False)])
def test_kq020_counts_what_had_reached_the_disk(build: HistoryBuilder, held: int | None, raised: bool) -> None:
    """What a copier saw once may have been lost with the page cache. By hand nothing of it is known."""
    build.three_nodes(40)
    for row in build.rows["captures"]:
        row["held_end_offset"] = held
    build.capture(1, 30, when=60_000, path="later/node-1", directory_id=directory(1))
    assert bool(build.raised("KQ020")) is raised


@pytest.mark.parametrize(("held", "raised"), [(None, True), (40, True), (25, True), (20, False), (0, False)])
def test_kq002_holds_disks_to_what_had_reached_them(build: HistoryBuilder, held: int | None, raised: bool) -> None:
    """An earlier round proved 40 offsets, of which page caches may have held some alone; three disks end at 20 now."""
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, 2, 3, to=20)
    build.watermark(40, 40, end=40, when=-90_000, held_low=held, held_low_epoch=None if held is None else 1)
    build.watermark(20, 20, end=20)
    for node in (1, 2, 3):
        build.capture(node, 20)
    assert bool(build.raised("KQ002")) is raised


@pytest.mark.parametrize(("held", "raised"), [(None, True), (40, True), (25, True), (20, False), (0, False)])
def test_kq015_holds_later_rounds_to_what_had_reached_disks(
    build: HistoryBuilder, held: int | None, raised: bool
) -> None:
    build.watermark(40, 40, end=40, when=-90_000, held_low=held, held_low_epoch=None if held is None else 1)
    build.watermark(20, 20, end=20)
    assert bool(build.raised("KQ015")) is raised


def test_kq020_sees_other_batches_below_a_later_snapshot(build: HistoryBuilder) -> None:
    """A snapshot of the history that replaced the committed one does not excuse what the log lacks below it."""
    build.three_nodes(40)
    for first in (20, 30):
        build.batch(1, first, first + 9, status="truncated", captured_at_ms=T0 + 60_000)
        build.batch(1, first, first + 9, 2, captured_at_ms=T0 + 60_000)
    build.capture(1, 80, when=60_000, epoch=2, snapshot_end_offset=60)
    (finding,) = build.raised("KQ020")
    assert (finding.subject, finding.from_offset) == ("node 1", 20)


@pytest.mark.parametrize("is_torn_later", [True, False])
def test_kq002_is_undecided_while_the_newest_logs_differ_from_their_checkpoints(
    build: HistoryBuilder, is_torn_later: bool
) -> None:
    """An hour copies each disk to where the hour before had it: what is copied now decides."""
    torn, sound = [{"epoch": 1, "start_offset": 0}, {"epoch": 2, "start_offset": 5}], [{"epoch": 1, "start_offset": 0}]
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, 2, 3, to=40)
    for when, entries in ((0, sound if is_torn_later else torn), (60_000, torn if is_torn_later else sound)):
        for node_id in (1, 2, 3):
            build.capture(node_id, 40, when=when, leader_epoch_checkpoint=entries)
        build.watermark(40, 40, end=40, when=when)
    (finding,) = build.findings("KQ002")
    assert finding.status is (Status.UNDECIDED if is_torn_later else Status.CLEAR)
