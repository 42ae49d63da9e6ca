"""Records that wait for a majority: for how long, and what the times of copies say of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_audit.rules.cluster_history import OperatorWord
from kraft_audit.rules.columns.quorum_standing import Standing, quorum_standing
from kraft_audit.rules.columns.unheld_records import unheld_records
from tests.builders.histories import T0, HistoryBuilder

HELD = 40


@pytest.fixture
def build() -> HistoryBuilder:
    return HistoryBuilder()


def leader_alone(build: HistoryBuilder, seconds: int, step_s: int = 1) -> HistoryBuilder:
    """Voters 2 and 3 hold [0, 40); node 1 goes on for so many seconds, a batch of one record every `step_s`."""
    end = HELD + seconds // step_s
    build.voters(1, 2, 3).leader_epoch(1, 1, 0, ended_by="open").watermark(HELD, HELD, end=end)
    for offset in range(end):
        time_ms = T0 + 1_000 * min(offset, HELD - 1) + 1_000 * step_s * max(0, offset - HELD + 1)
        for node_id in (1, 2, 3) if offset < HELD else (1,):
            build.batch(node_id, offset, offset, is_control=offset == 0, max_timestamp_ms=time_ms)
    for node_id in (1, 2, 3):
        build.capture(node_id, end if node_id == 1 else HELD, leader_id=1)
    return build


def copied(build: HistoryBuilder, *seconds: float) -> HistoryBuilder:
    """When the copies of nodes 1, 2 and 3 were made."""
    for node_id, time_s in enumerate(seconds, 1):
        build.copied_ms["/captures", f"node-{node_id}"] = T0 + int(1_000 * time_s)
    return build


def test_five_seconds_are_no_wait_and_six_are(build: HistoryBuilder) -> None:
    assert quorum_standing(leader_alone(build, 5).history()).standing is Standing.HEALTHY
    standing = quorum_standing(leader_alone(HistoryBuilder(), 6).history())
    assert (standing.standing, standing.leader_id) == (Standing.UNDECIDED, 1)
    assert standing.reason == (
        "offsets 40 to 45 wait for a majority, 6.0 s of the log: only voter 1 holds them. Either voters 2 and 3 do not "
        "fetch, or their copies are older; the times of the files do not tell"
    )


def test_silence_of_an_idle_leader_is_no_wait(build: HistoryBuilder) -> None:
    """A leader without NoOps wrote two records in an hour: no more than 2 s count from batch to batch."""
    assert unheld_records(leader_alone(build, 3_600, step_s=1_800).history()) is None


def test_copies_of_one_time_are_said_to_be(build: HistoryBuilder) -> None:
    waiting = unheld_records(copied(leader_alone(build, 6), 100, 100, 100).history())
    assert waiting is not None
    assert waiting.are_times_equal
    assert waiting.reason.endswith("; all files have one time")


@pytest.mark.parametrize(
    ("times", "is_waiting"),
    [((106, 100, 100), False), ((105, 100, 100), True), ((106, 100, 101), True), ((100, 106, 106), True)],
    ids=["read six seconds earlier", "read five seconds earlier", "one of them later", "read afterwards"],
)
def test_disks_that_were_read_earlier_lag_for_that_reason(
    build: HistoryBuilder, times: tuple[int, ...], is_waiting: bool
) -> None:
    assert (unheld_records(copied(leader_alone(build, 6), *times).history()) is not None) is is_waiting


def test_a_copy_whose_time_is_unknown_excuses_nothing(build: HistoryBuilder) -> None:
    assert unheld_records(copied(leader_alone(build, 6), 200, 100).history()) is not None


@pytest.mark.parametrize(
    ("seconds", "medium", "standing"),
    [
        (10, "directory", Standing.UNDECIDED),
        (11, "directory", Standing.STALLED),
        (11, "archive", Standing.UNDECIDED),
    ],
)
def test_live_disks_are_of_one_moment(build: HistoryBuilder, seconds: int, medium: str, standing: Standing) -> None:
    leader_alone(build, seconds)
    for row in build.rows["captures"]:
        row["medium"] = medium
    history = replace(build.history(), operator=OperatorWord(is_running=True))
    found = quorum_standing(history)
    assert found.standing is standing
    assert (found.reason.endswith("2 and 3 lag behind")) is (standing is Standing.STALLED)
