"""Each rule about the quorum and the log raised by a small history, and silent in its near miss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraft_audit.rules.canonical import canonical_log
from kraft_audit.rules.history import SnapshotCheck
from kraft_audit.rules.model import Severity, Status
from tests.kraft_audit.rules.conftest import CLUSTER_ID, T0, HistoryBuilder, directory

Story = Callable[[HistoryBuilder], object]


def _damage(reason: str, **more: Any) -> Story:
    return lambda b: b.three_nodes().damage(2, reason, **more)


def _healthy(b: HistoryBuilder) -> None:
    b.three_nodes()


def _divergent(b: HistoryBuilder) -> None:
    """Node 1 led epoch 1 and wrote [30, 40) alone; 2 and 3 went on in epoch 2."""
    b.voters(1, 2, 3).leader_epoch(1, 1, 0).leader_epoch(2, 2, 30)
    b.log(1, 2, 3, to=30).batch(1, 30, 39, 1).batch(2, 30, 39, 2).batch(3, 30, 39, 2)
    b.capture(1, 40).capture(2, 40, epoch=2).capture(3, 40, epoch=2)
    b.watermark(40, 40, end=40, epoch=2)


def _behind(b: HistoryBuilder) -> None:
    b.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, 2, to=40).log(3, to=20)
    b.capture(1, 40).capture(2, 40).capture(3, 20).watermark(40, 40, end=40)


def _low_of_other_epoch(epoch: int) -> Story:
    """Offset 29 was committed in `epoch` by an earlier capture; the canonical log has epoch 1 there."""
    return lambda b: b.three_nodes().watermark(30, 30, end=30, when=-90_000, epoch=epoch)


def _epoch(number: int = 2, leader_id: int = 2, **more: Any) -> Story:
    """Three nodes whose records from offset 20 on are of an epoch."""

    def story(b: HistoryBuilder) -> None:
        b.three_nodes().leader_epoch(number, leader_id, 20, **more)
        for row in b.rows["batches"]:
            if row["base_offset"] >= 20:
                row["leader_epoch"] = number

    return story


def _votes(*votes: tuple[int, int]) -> Story:
    """(epoch, voted id) in successive captures of node 1."""

    def story(b: HistoryBuilder) -> None:
        for number, (epoch, voted_id) in enumerate(votes):
            b.capture(1, 40, when=number * 60_000, epoch=epoch, voted_id=voted_id)

    return story


def _lows(later_high: int) -> Story:
    return lambda b: b.watermark(40, 40, end=40).watermark(20, later_high, end=40, when=60_000)


def _storm(seconds: int) -> Story:
    def story(b: HistoryBuilder) -> None:
        for epoch in range(1, 15):
            b.leader_epoch(epoch, 1, epoch * 10, timestamp_ms=T0 + epoch * seconds * 1000)

    return story


def _transaction(*types: str) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.three_nodes()
        for number, type_ in enumerate(types):
            record = '{"name":"Bootstrap records"}' if type_.startswith("BEGIN") else "{}"
            b.add("records", source="log", offset=2 + number, leader_epoch=1, record_type=type_, record=record)

    return story


def _snapshot(end: int, **more: Any) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.voters(1, 2, 3).log(1, to=40).capture(1, 40, snapshot_end_offset=end, snapshot_epoch=1, **more)
        b.watermark(40, 40, end=40).watermark(40, 40, end=40, capture_number=1)

    return story


def _went_back(later_end: int, generation: int = 0) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.three_nodes(40)
        b.capture(1, later_end, when=60_000, path="later/node-1", directory_id=directory(1, generation))

    return story


def _checkpoint(*entries: tuple[int, int]) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.log(1, to=20).batch(1, 20, 29, 2).watermark(30, 30, end=30, epoch=2)
        told = [{"epoch": epoch, "start_offset": offset} for epoch, offset in entries]
        b.capture(1, 30, epoch=2, leader_epoch_checkpoint=told)

    return story


def _state_check(*differences: str) -> Story:
    def story(b: HistoryBuilder) -> None:
        b.three_nodes()
        b.snapshot_checks = (SnapshotCheck(30, 1, differences),)

    return story


def _age(hours: int) -> Story:
    def story(b: HistoryBuilder) -> None:
        _snapshot(20)(b)
        b.rows["captures"][0]["last_timestamp_ms"] = T0 + 19_000 + hours * 3_600_000

    return story


RAISED: dict[str, tuple[Story, Story]] = {
    "KQ001": (_divergent, _behind),
    "KQ002": (_low_of_other_epoch(2), _low_of_other_epoch(1)),
    "KQ003": (_epoch(1), _epoch(2)),
    "KQ004": (_damage("EPOCH_WENT_BACK"), _healthy),
    "KQ005": (_epoch(leader_change_offset=None), _epoch()),
    "KQ006": (_epoch(granting_voters=[2]), _epoch(granting_voters=[2, 3])),
    "KQ007": (_damage("GAP"), _damage("TORN_TAIL")),
    "KQ008": (_damage("BAD_CRC"), _damage("BAD_CRC", file_name="__cluster_metadata-0/0-0.checkpoint")),
    "KQ009": (_damage("ZERO_TAIL"), _damage("BAD_CRC")),
    "KQ010": (
        lambda b: b.three_nodes().capture(9, 10, accepted=False, meta_cluster_id="other-cluster-id-22-ch"),
        lambda b: b.three_nodes().capture(9, 10, meta_cluster_id=CLUSTER_ID),
    ),
    "KQ011": (_state_check("topic t: 2 partitions, replayed 3"), _state_check()),
    "KQ012": (_snapshot(45), _snapshot(40)),
    "KQ013": (_checkpoint((1, 0), (2, 25)), _checkpoint((1, 0), (2, 20), (3, 30))),
    "KQ014": (_votes((2, 2), (2, 3)), _votes((2, 2), (2, -1), (3, 3))),
    "KQ015": (_lows(30), _lows(40)),
    "KQ016": (_storm(60), _storm(600)),
    "KQ017": (
        _transaction("BEGIN_TRANSACTION_RECORD"),
        _transaction("BEGIN_TRANSACTION_RECORD", "END_TRANSACTION_RECORD"),
    ),
    "KQ018": (_damage("UNKNOWN_RECORD_TYPE"), _damage("BAD_RECORD")),
    "KQ019": (_age(25), _age(23)),
    "KQ020": (_went_back(10), _went_back(10, generation=1)),
}


@pytest.mark.parametrize("rule_id", sorted(RAISED))
def test_raised(build: HistoryBuilder, rule_id: str) -> None:
    RAISED[rule_id][0](build)
    found = build.raised(rule_id)
    assert len(found) == 1
    assert found[0].evidence


@pytest.mark.parametrize("rule_id", sorted(RAISED))
def test_near_miss_is_not_raised(build: HistoryBuilder, rule_id: str) -> None:
    RAISED[rule_id][1](build)
    assert build.raised(rule_id) == []


def test_kq001_shows_both_batches_and_where_they_lie(build: HistoryBuilder) -> None:
    _divergent(build)
    (finding,) = build.raised("KQ001")
    assert (finding.subject, finding.from_offset, finding.epoch) == ("node 1", 30, 1)
    assert finding.evidence[0].before == "batch [30, 40) epoch 2 crc 000007ee"
    assert finding.evidence[0].after == "batch [30, 40) epoch 1 crc 00000406"
    assert (finding.evidence[1].path, finding.evidence[1].position) == ("node-1", 0)
    assert not finding.is_over


def test_kq001_is_over_once_the_node_no_longer_holds_it(build: HistoryBuilder) -> None:
    _divergent(build)
    later = {"path": "later/node-1", "captured_at_ms": 60_000}
    build.batch(1, 30, 39, 1, status="truncated", **later).batch(1, 30, 39, 2, **later)
    build.capture(1, 40, when=60_000, epoch=2, path="later/node-1")
    assert [finding.is_over for finding in build.raised("KQ001")] == [True]


def test_kq002_counts_who_still_holds_what_was_committed(build: HistoryBuilder) -> None:
    build.three_nodes(40)
    for node_id in (2, 3):
        build.capture(node_id, 10, when=60_000, path=f"later/node-{node_id}")
    # Within one round the copies may be of different moments: what it proves need not lie on those read first.
    assert build.raised("KQ002") == []
    build.watermark(40, 40, end=40, when=60_000)
    (finding,) = build.raised("KQ002")
    assert "only 1 of 3 voters still hold offset 39" in finding.summary


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


def test_kq005_excuses_an_epoch_whose_beginning_an_earlier_capture_tells(build: HistoryBuilder) -> None:
    """It ended where the log of the next capture begins, cleaned up to there."""
    _epoch(leader_change_offset=None)(build)
    assert len(build.raised("KQ005")) == 1
    (told,) = (row for row in build.rows["leader_epochs"] if row["from_offset"] == 20)
    build.rows["leader_epochs"].append({**told, "from_offset": 12, "to_offset": 20, "leader_change_offset": 12})
    assert build.raised("KQ005") == []


@pytest.mark.parametrize(("later_start", "count"), [(20, 0), (10, 1)])
def test_kq005_excuses_an_epoch_below_whose_records_another_one_was_cut(
    build: HistoryBuilder, later_start: int, count: int
) -> None:
    """Node 1 held epoch 1 to 40, then began epoch 3 somewhere below 20; cleaned up to there nothing tells where."""
    build.log(1, to=40).capture(1, 40)
    again = {"captured_at_ms": T0 + 9_000, "capture_number": 2}
    build.capture(1, 40, when=9_000, epoch=3, capture_number=2, log_start_offset=later_start)
    build.log(1, to=40, epoch=3, start=20, **again)
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
    assert "cut the log at 20, 20 records are behind it" in finding.summary


@pytest.mark.parametrize(("level", "severity"), [(21, Severity.LOW), (30, Severity.HIGH)])
def test_kq011_a_snapshot_inside_a_batch_was_legal_once(build: HistoryBuilder, level: int, severity: Severity) -> None:
    _snapshot(25)(build)
    build.feature("metadata.version", level)
    assert [finding.severity for finding in build.raised("KQ011")] == [severity]


def test_kq014_an_epoch_that_goes_back(build: HistoryBuilder) -> None:
    _votes((5, -1), (4, -1))(build)
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


def test_kq016_burnt_epochs(build: HistoryBuilder) -> None:
    """The longest run with all of its epochs, though the limit is exceeded before its end, and by another run."""
    build.leader_epoch(1, 1, 0)
    for epoch in (*range(2, 24), *range(30, 160), *range(170, 192)):
        build.leader_epoch(
            epoch, 1, 0, from_offset=None, leader_change_offset=None, timestamp_ms=None, ended_by="burnt"
        )
    (finding,) = build.raised("KQ016")
    assert (finding.subject, finding.epoch) == ("burnt epochs", 30)
    assert finding.summary == "130 epochs in a row elected nobody, 30 to 159"
    assert finding.evidence[0].text == "epochs 30 to 159 have no record"


def test_kq016_counts_all_epochs_of_each_storm(build: HistoryBuilder) -> None:
    """36 at once; a day later 41 that each begin five minutes after the other, of which an hour holds 13."""
    for epoch in range(1, 37):
        build.leader_epoch(epoch, 1, 10 * epoch, timestamp_ms=T0 + epoch)
    for epoch in range(37, 78):
        build.leader_epoch(epoch, 1, 10 * epoch, timestamp_ms=T0 + 86_400_000 + epoch * 300_000)
    assert [(finding.from_offset, finding.summary) for finding in build.raised("KQ016")] == [
        (10, "36 epochs within an hour, from epoch 1"),
        (370, "up to 13 epochs within an hour, 41 from epoch 37 to 77"),
    ]


def test_kq016_counts_an_epoch_once_though_it_is_told_in_pieces(build: HistoryBuilder) -> None:
    """A gap between captures lies in epoch 7: twelve epochs began, which is just not too many."""
    for epoch in range(1, 13):
        build.leader_epoch(epoch, 1, 10 * epoch)
    build.leader_epoch(7, 1, 75, leader_change_offset=None)
    assert build.raised("KQ016") == []
    build.leader_epoch(13, 1, 130)
    (finding,) = build.raised("KQ016")
    assert finding.summary == "13 epochs within an hour, from epoch 1"


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
    _divergent(build)
    for number, status, crc_epoch in ((1, "truncated", 2), (2, "present", 1)):
        later = {"path": f"{number}/node-1", "captured_at_ms": 60_000 * number, "capture_number": number}
        build.batch(1, 30, 39, 1, status=status, **later)
        build.capture(1, 40, when=60_000 * number, epoch=crc_epoch, path=later["path"], capture_number=number)
    (finding,) = build.raised("KQ001")
    assert (finding.subject, finding.from_offset, finding.is_over) == ("node 1", 30, False)


@pytest.mark.parametrize("is_disk_replaced", [False, True])
def test_kq002_a_log_that_nobody_goes_on_with_contradicts_no_snapshot(
    build: HistoryBuilder, is_disk_replaced: bool
) -> None:
    """Node 3 held epoch 1 up to 40, a snapshot says epoch 2 from before 30 on; then node 3 has a new, empty disk."""
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(3, to=40).capture(3, 40)
    build.capture(1, 0, snapshot_end_offset=30, snapshot_epoch=2).watermark(0, None, end=40)
    if is_disk_replaced:
        build.capture(3, 0, when=60_000, directory_id=directory(3, 1))
    found = [finding.from_offset for finding in build.raised("KQ002")]
    assert found == ([] if is_disk_replaced else [29])


def test_kq002_counts_nobody_where_no_voter_is_known(build: HistoryBuilder) -> None:
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
    assert [finding.summary for finding in build.raised("KQ011")] == ["TORN_TAIL: as told"]


def test_kq012_is_undecided_by_the_captures_of_one_round(build: HistoryBuilder) -> None:
    """The disk with the snapshot may have been copied last: what it holds may have been committed since."""
    _snapshot(45)(build)
    del build.rows["watermarks"][1]
    (finding,) = build.findings("KQ012")
    assert (finding.status, finding.subject, finding.from_offset) == (Status.UNDECIDED, "node 1", 45)


def test_kq018_tells_a_record_once_however_many_hold_it(build: HistoryBuilder) -> None:
    for node_id in (1, 2, 3):
        build.damage(node_id, "UNKNOWN_RECORD_TYPE")
    build.damage(1, "UNKNOWN_RECORD_TYPE", base_offset=30)
    assert [finding.from_offset for finding in build.raised("KQ018")] == [20, 30]


def test_kq019_an_age_is_counted_from_where_a_cleaned_log_begins(build: HistoryBuilder) -> None:
    """The record before the snapshot's end is gone: the next one's time stands for it."""
    hour_ms = 3_600_000
    build.voters(1, 2, 3).log(1, to=40, start=20).watermark(40, 40, end=40)
    build.capture(1, 40, snapshot_end_offset=20, snapshot_epoch=1, log_start_offset=20)
    build.rows["captures"][0]["last_timestamp_ms"] = T0 + 29_000 + 25 * hour_ms
    (finding,) = build.raised("KQ019")
    assert finding.from_ms == T0 + 29_000
    assert finding.summary.startswith("the newest snapshot ends at 20: 25 h")


def test_kq019_is_undecided_where_the_log_ends_before_the_snapshot(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).log(1, to=40).capture(1, 40, snapshot_end_offset=90, snapshot_epoch=1)
    build.watermark(40, None, end=40)
    (finding,) = build.findings("KQ019")
    assert (finding.status, finding.from_offset) == (Status.UNDECIDED, 90)


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
def test_a_later_epoch_overwrites_where_no_epoch_is_told(
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
