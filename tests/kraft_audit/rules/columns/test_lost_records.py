"""What shows that a voter held records which its disk lacks, when it counts, and what is only behind."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_audit.rules.rule_model import Status
from tests.builders.facts import facts
from tests.builders.histories import T0, HistoryBuilder, Story, directory
from tests.builders.log_stories import emptied

MINUTE_MS = 60_000


def one_lacks(build: HistoryBuilder, *, lags: bool = False, led_by: int = 1, **of_third: Any) -> HistoryBuilder:
    """Epoch 1 to offset 20, epoch 2 to 60, committed; node 3 ends where it is said to, node 1 at 20 where it lags."""
    build.voters(1, 2, 3)
    build.leader_epoch(1, 2, 0, to_offset=20).leader_epoch(2, led_by, 20, to_offset=60, granting_voters=[led_by, 2])
    holders = (2,) if lags else (1, 2)
    build.log(1, 2, to=20).log(*holders, start=20, to=60, epoch=2).watermark(60, 60, end=60, epoch=2)
    build.capture(1, 20 if lags else 60, epoch=2, last_epoch=1 if lags else 2).capture(2, 60, epoch=2)
    build.capture(3, of_third.pop("end", 0), last_epoch=of_third.pop("last_epoch", None), **of_third)
    return build


def status(build: HistoryBuilder, rule: str = "KQ020") -> list[tuple[str, str]]:
    return [(str(finding.status), finding.subject) for finding in build.findings(rule)]


def test_with_a_voter_that_is_behind_it_is_raised_on_the_set(build: HistoryBuilder) -> None:
    one_lacks(build, lags=True, led_by=3, epoch=3)
    (finding,) = build.raised("KQ020")
    assert (finding.subject, finding.from_offset) == ("voters 1 and 3", 20)
    assert {"2", "0", "20", "59"} <= facts(finding.summary)
    assert f"--controller-directory-id {directory(3)}" in finding.what_to_do
    assert "remove-controller --controller-id 3" in finding.what_to_do


def test_where_the_others_are_a_majority_it_is_raised_on_the_voter(build: HistoryBuilder) -> None:
    one_lacks(build, led_by=3, epoch=3)
    assert [finding.subject for finding in build.raised("KQ020")] == ["node 3"]


@pytest.mark.parametrize(
    ("leader_id", "voted_id", "expected"),
    [(-1, -1, "raised"), (1, -1, "raised"), (-1, 3, "undecided"), (3, -1, "undecided")],
)
def test_a_leader_whose_disk_forgot_its_own_epoch(
    build: HistoryBuilder, leader_id: int, voted_id: int, expected: str
) -> None:
    """A candidate persists a vote for itself before it leads: a copy from between those moments is no loss."""
    one_lacks(build, led_by=3, epoch=2, leader_id=leader_id, voted_id=voted_id)
    assert [kind for kind, _ in status(build)] == [expected]


def test_what_a_power_cut_may_take_is_no_evidence(build: HistoryBuilder) -> None:
    """Node 3 led epoch 2 and lacks its last five seconds, of a time when it had not synced yet."""
    one_lacks(build, led_by=3, epoch=3, end=55, last_epoch=2).log(3, to=20).batch(3, 20, 54, 2)
    assert status(build) == [("clear", "")]


@pytest.mark.parametrize(
    ("written_ms", "expected"), [(20_000 + MINUTE_MS, "raised"), (19_999 + MINUTE_MS, "undecided")]
)
def test_a_forgotten_vote_counts_where_the_disk_was_written_to_later(
    build: HistoryBuilder, written_ms: int, expected: str
) -> None:
    one_lacks(build, epoch=1)
    build.rows["leader_epochs"][1]["granting_voters"] = [1, 3]
    build.written_ms = {("/captures", "node-3"): T0 + written_ms}
    assert status(build) == [(expected, "node 3")]


def test_a_vote_that_the_disk_remembers_is_no_evidence(build: HistoryBuilder) -> None:
    one_lacks(build, epoch=2, voted_id=1)
    build.rows["leader_epochs"][1]["granting_voters"] = [1, 3]
    assert status(build) == [("clear", "")]


@pytest.mark.parametrize(("admitted_at", "expected"), [(30, ("raised", "node 3")), (10, ("clear", ""))])
def test_a_voter_was_admitted_with_the_log_before_the_epoch(
    build: HistoryBuilder, admitted_at: int, expected: tuple[str, str]
) -> None:
    one_lacks(build, epoch=3)
    build.rows["voter_sets"].clear()
    build.voters(1, 2).voters(1, 2, 3, at=admitted_at, epoch=2 if admitted_at > 20 else 1)
    assert status(build) == [expected]


@pytest.mark.parametrize(("starts", "expected"), [((0, 10, 20), "raised"), ((0, 20), "clear")])
def test_two_epochs_that_only_its_own_checkpoint_names(
    build: HistoryBuilder, starts: tuple[int, ...], expected: str
) -> None:
    """One epoch may have begun between the copies of the log and of the checkpoint."""
    build.voters(1, 2, 3)
    for epoch, (start, end) in enumerate(zip(starts, (*starts[1:], 60), strict=True), 1):
        build.leader_epoch(epoch, 1, start, to_offset=end).log(1, 2, start=start, to=end, epoch=epoch)
    build.watermark(60, 60, end=60, epoch=len(starts)).capture(1, 60, epoch=3).capture(2, 60, epoch=3)
    entries = [{"epoch": epoch, "start_offset": start} for epoch, start in enumerate(starts, 1)]
    build.capture(3, 0, epoch=3, last_epoch=None, leader_epoch_checkpoint=entries)
    assert [kind for kind, _ in status(build)] == [expected]


@pytest.mark.parametrize(("written_ms", "expected"), [(39_000, "clear"), (39_001, "raised")])
def test_one_epoch_that_began_ten_seconds_before_its_disk_was_last_written(
    build: HistoryBuilder, written_ms: int, expected: str
) -> None:
    """The first batch of epoch 2 was written 29 s after T0."""
    build.voters(1, 2, 3).leader_epoch(1, 1, 0, to_offset=20).leader_epoch(2, 1, 20, to_offset=60)
    build.log(1, 2, to=20).log(1, 2, start=20, to=60, epoch=2).watermark(60, 60, end=60, epoch=2)
    build.capture(1, 60, epoch=2).capture(2, 60, epoch=2)
    entries = [{"epoch": 1, "start_offset": 0}, {"epoch": 2, "start_offset": 20}]
    build.capture(3, 0, epoch=2, last_epoch=None, leader_epoch_checkpoint=entries)
    build.written_ms = {("/captures", "node-3"): T0 + written_ms}
    assert [kind for kind, _ in status(build)] == [expected]


def test_a_copy_without_segments_or_quorum_state_is_undecided(build: HistoryBuilder) -> None:
    entries = [{"epoch": 1, "start_offset": 0}]
    one_lacks(build, led_by=3, epoch=3, log_end_offset=None, leader_epoch_checkpoint=entries)
    assert status(build) == [("undecided", "node 3")]
    (finding,) = build.findings("KQ020")
    assert "*.log" in (finding.reason or "")


def test_unreadable_bytes_are_not_absent_records(build: HistoryBuilder) -> None:
    one_lacks(build, led_by=3, epoch=3, bytes_quarantined=100)
    assert status(build) == [("clear", "")]


def test_a_static_voter_is_known_by_its_id_alone(build: HistoryBuilder) -> None:
    one_lacks(build, lags=True, led_by=3, epoch=3, directory_id=directory(3, 1))
    assert status(build) == [("clear", "")]  # the voter is another disk: KV008
    for row in build.rows["voter_sets"]:
        row |= {"kraft_version": 0, "voters": [{**voter, "directory_id": None} for voter in row["voters"]]}
    (finding,) = build.raised("KQ020")
    assert finding.subject == "voters 1 and 3"
    assert "remove-controller" not in finding.what_to_do


@pytest.mark.parametrize(("end", "expected"), [(69, "undecided"), (70, "raised")])
def test_kq021_an_empty_voter_that_runs_and_stays_empty(build: HistoryBuilder, end: int, expected: str) -> None:
    """The log of node 1 grows by one record a second, from offset 40 on: for half a minute, or a second less."""
    emptied(1)(build)
    assert status(build, "KQ021") == [("undecided", "node 3")]
    build.is_running = True
    build.log(1, start=40, to=end).capture(1, end, when=MINUTE_MS, path="later/node-1", capture_number=1)
    later = {"when": MINUTE_MS, "path": "later/node-3", "capture_number": 1}
    build.capture(3, 0, epoch=1, last_epoch=None, voted_id=3, **later)
    build.rows["captures"][2]["last_timestamp_ms"] = build.rows["captures"][4]["last_timestamp_ms"] = None
    assert status(build, "KQ021") == [(expected, "node 3")]


@pytest.mark.parametrize(("count", "expected"), [(1, ("clear", "")), (2, ("raised", "voters"))])
def test_kq021_all_voters_are_empty_and_one_of_them_names_epochs(
    build: HistoryBuilder, count: int, expected: tuple[str, str]
) -> None:
    """One epoch may have begun between the copies of the log and of the checkpoint: two did not."""
    build.voters(1, 2, 3).watermark(0, 0, end=0)
    entries = [{"epoch": epoch, "start_offset": 7 * (epoch - 1)} for epoch in range(1, count + 1)]
    for node_id in (1, 2, 3):
        named = entries if node_id == 2 else []
        build.capture(node_id, 0, epoch=count, last_epoch=None, leader_epoch_checkpoint=named)
    assert status(build, "KQ021") == [expected]


@pytest.mark.parametrize(
    ("apart_ms", "unread", "expected"),
    [(30_000, 0, "raised"), (29_999, 0, "undecided"), (30_000, 100, "undecided")],
)
def test_kq021_needs_two_empty_readings_half_a_minute_apart(
    build: HistoryBuilder, apart_ms: int, unread: int, expected: str
) -> None:
    """`unread`: bytes of the earlier copy that could not be read, so that nobody knows whether it was empty."""
    emptied(1)(build)
    build.is_running = True
    first = build.rows["captures"][0]["last_timestamp_ms"]
    build.log(1, start=40, to=80).capture(1, 80, when=MINUTE_MS, path="later/node-1", capture_number=1)
    build.rows["captures"][-1]["last_timestamp_ms"] = first + apart_ms
    build.capture(3, 0, epoch=1, last_epoch=None, voted_id=3, when=MINUTE_MS, path="later/node-3", capture_number=1)
    build.rows["captures"][2]["last_timestamp_ms"] = build.rows["captures"][4]["last_timestamp_ms"] = None
    if unread:
        build.rows["captures"][2].update(log_end_offset=None, bytes_unread=unread)
    assert [kind for kind, _ in status(build, "KQ021")] == [expected]


@pytest.mark.parametrize(("entry_count", "expected"), [(1, "clear"), (2, "raised")])
def test_kq021_of_all_voters_needs_two_epochs(build: HistoryBuilder, entry_count: int, expected: str) -> None:
    """On a first start each empty log may be read before the file that names the first epoch."""
    entries = [{"epoch": epoch, "start_offset": 10 * epoch - 10} for epoch in range(1, entry_count + 1)]
    build.voters(1, 2, 3)
    for node_id in (1, 2, 3):
        build.capture(node_id, 0, epoch=entry_count, last_epoch=None, leader_epoch_checkpoint=entries)
    found = [finding for finding in build.findings("KQ021") if finding.status is not Status.UNDECIDED]
    assert [(each.status.value, each.subject) for each in found] == [(expected, "voters" if entry_count > 1 else "")]


def test_kq021_is_clear_of_voters_with_records(build: HistoryBuilder) -> None:
    build.three_nodes()
    assert [finding.status for finding in build.findings("KQ021")] == [Status.CLEAR]


# What became of the disk: both situations are said, with the file that decides, unless what was read has decided


def _static(build: HistoryBuilder) -> None:
    for row in build.rows["voter_sets"]:
        row |= {"kraft_version": 0, "voters": [{**voter, "directory_id": None} for voter in row["voters"]]}


def _by_key(build: HistoryBuilder) -> None:
    one_lacks(build, led_by=3, epoch=3)


def _by_id(build: HistoryBuilder) -> None:
    one_lacks(build, led_by=3, epoch=3)
    _static(build)


def _ends_early(build: HistoryBuilder) -> None:
    one_lacks(build, led_by=3, epoch=3, end=20, last_epoch=1).log(3, to=20)


def _with_its_checkpoint(build: HistoryBuilder) -> None:
    test_two_epochs_that_only_its_own_checkpoint_names(build, (0, 10, 20), "raised")


def _replaced(build: HistoryBuilder) -> None:
    """An earlier capture has another directory id of the same static voter."""
    build.three_nodes(40)
    _static(build)
    build.capture(3, 0, when=10 * MINUTE_MS, path="later/node-3", directory_id=directory(3, 1), last_epoch=None)


@pytest.mark.parametrize(
    ("story", "begins"),
    [
        (_by_key, "Either its log was removed and its meta.properties kept, or a copy from before its first record "),
        (_by_id, "Either its log was removed, or the disk was formatted again or replaced. This decides: the date in "),
        (_ends_early, "Either an older copy of the disk was put back, or its last writes never reached the disk, "),
        (_with_its_checkpoint, "Either segments were removed, or left out of this copy, or Kafka cut the log at its "),
        (_replaced, ""),
    ],
    ids=lambda value: getattr(value, "__name__", "").strip("_"),
)
def test_what_may_have_become_of_a_disk(build: HistoryBuilder, story: Story, begins: str) -> None:
    story(build)
    (finding,) = (each for each in build.raised("KQ020") if each.subject == "node 3")
    assert finding.why.startswith(begins)
    assert ("Either " in finding.why, "This decides: " in finding.why) == (bool(begins), bool(begins))
