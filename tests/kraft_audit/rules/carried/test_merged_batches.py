"""What is carried of captures and batches does not grow with the hours, and says what single batches say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft_audit.rules.carried.carried_rows import CarriedRows, sizes
from kraft_audit.rules.carried.carrying import carry
from kraft_audit.rules.carried.continued_history import begins_below, history_of, until
from kraft_audit.rules.carried.merged_batches import merged_batches
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.captures import newest_captures
from kraft_audit.rules.columns.log_batches import canonical_log, is_run, log_batches
from kraft_audit.rules.judging import check
from kraft_audit.rules.rule_model import Status
from tests.builders.carried_judgements import judged
from tests.builders.histories import T0, HistoryBuilder
from tests.builders.log_stories import running

HOUR_MS = 3_600_000
AN_HOUR = 120
"""Batches of one record each that every disk gets in an hour."""


def a_second_each(offset: int) -> int:
    return 1000 * offset


def hour(
    number: int, nodes: tuple[int, ...] = (1, 2, 3), lag: int = 0, time_of: Callable[[int], int] = a_second_each
) -> ClusterHistory:
    """What the plan of an hour adds: batches, captures, the committed interval; a snapshot was made at its beginning.

    The last of `nodes` lacks the last `lag` batches, which the hour after shows. `time_of`: when which batch was
    written.
    """
    first, end = number * AN_HOUR, (number + 1) * AN_HOUR
    builder = HistoryBuilder().voters(1, 2, 3).leader_epoch(1, 1, 0)
    when = number * HOUR_MS
    for node in nodes:
        behind = lag if node == nodes[-1] else 0
        for offset in range(max(first - behind, 0), end - behind):
            builder.batch(node, offset, offset, captured_at_ms=T0 + when, max_timestamp_ms=T0 + time_of(offset))
        of_snapshot = {"snapshot_end_offset": first, "snapshot_epoch": 1} if first else {}
        builder.capture(node, end - behind, when=when, **of_snapshot)
    builder.watermark(end, end, end=end, when=when)
    return builder.history()


def chained(hours: int, lag: int = 0) -> tuple[CarriedRows, ClusterHistory]:
    """The state after so many hours, and the history that the last one judged."""
    state, history = None, hour(0, lag=lag)
    for number in range(hours):
        new = hour(number, lag=lag)
        history = new if state is None else history_of(state, new)
        to_offset = (number + 1) * AN_HOUR
        octets = carry(until(history, to_offset), judged(until(history, to_offset)), to_offset).to_bytes()
        state = CarriedRows.from_bytes(octets)
        assert state.to_bytes() == octets
    assert state is not None
    return state, history


@pytest.mark.slow
def test_what_is_carried_of_captures_does_not_grow_with_the_hours() -> None:
    early, late = (sizes(chained(hours)[0]) for hours in (4, 9))
    assert early["batches"] <= 3 * (AN_HOUR + 10)
    assert late == early


@pytest.mark.slow
@settings(max_examples=15)
@given(lag=st.integers(0, AN_HOUR // 2), hours=st.integers(2, 4))
def test_runs_hold_what_the_batches_held(lag: int, hours: int) -> None:
    """Each disk still holds every offset that it held, once, on the canonical log, and judgements stay the same."""
    state, history = chained(hours, lag)
    again = replace(history, tables={**history.tables, **state.tables}, _shared={})
    log, batches = canonical_log(again), log_batches(again)
    assert (log.start_offset, log.end_offset) == (0, hours * AN_HOUR)
    assert (log.base_offset[1:] == log.last_offset[:-1] + 1).all()
    assert batches.is_canonical.all()
    for row in newest_captures(again):
        held = batches.held_by(row)
        counts = batches.last_offset[held] - batches.base_offset[held] + 1
        assert counts.sum() == row["log_end_offset"]
    assert said(again) == said(history)


def said(history: ClusterHistory) -> list[tuple[str, str]]:
    return [(each.rule, each.summary) for each in judged(history)]


def stopped_for_an_hour(offset: int) -> int:
    """From one batch on all comes an hour later."""
    return 1000 * offset + HOUR_MS * (offset >= AN_HOUR + 50)


def set_back(offset: int) -> int:
    """A clock that ran half a minute ahead of what is true for a minute."""
    return 1000 * offset + 30_000 * (AN_HOUR + 20 <= offset < AN_HOUR + 50)


def two_a_second(offset: int) -> int:
    return 500 * offset


@pytest.mark.parametrize(
    ("time_of", "seconds"),
    [
        (a_second_each, 4.0 * AN_HOUR),
        (two_a_second, 2.0 * AN_HOUR),
        (stopped_for_an_hour, 4.0 * AN_HOUR + 1),
        (set_back, 4.0 * AN_HOUR),
    ],
)
def test_how_far_a_voter_is_behind_is_the_same_over_runs(time_of: Callable[[int], int], seconds: float) -> None:
    """It stopped hours ago, and what it lacks is in runs: each batch adds at most 2 s, and no step back takes any."""
    first, state = hour(0), None
    for number in range(5):
        new = hour(number, nodes=(1, 2, 3) if number == 0 else (1, 2), time_of=time_of)
        history = new if state is None else history_of(state, new)
        to_offset = (number + 1) * AN_HOUR
        before = until(history, to_offset)
        state = carry(before, judged(before), to_offset)
    assert state is not None
    assert state.merged_to > first.rows("captures")[2]["log_end_offset"] + AN_HOUR
    again = replace(history, tables={**history.tables, **state.tables}, _shared={})
    (behind,) = (each.summary for each in judged(again, ["KV013"]))
    assert (
        behind == f"ends at {AN_HOUR}, {4 * AN_HOUR} records and {seconds} s behind what is committed ({5 * AN_HOUR})"
    )


def test_a_lake_gives_the_batches_of_runs_back() -> None:
    state, history = chained(4)
    runs = is_run(state.tables["batches"]).sum()
    assert runs
    assert state.merged_to
    whole = [hour(number).table("batches") for number in range(4)]
    known = pa.concat_tables(whole)
    single = state.with_single_batches(known)
    assert single.merged_to == 0
    assert single.tables["batches"].num_rows == known.num_rows
    assert history.table("batches").num_rows < known.num_rows


def test_batches_that_wait_are_in_runs_and_single_again_once_their_transaction_ends() -> None:
    begin, history = 2 * AN_HOUR + 10, chained(4)[1]
    before = until(history, begin, 4 * AN_HOUR)
    state = carry(before, judged(before), begin, 4 * AN_HOUR)
    runs = state.tables["batches"].filter(pa.array(is_run(state.tables["batches"])))
    starts, ends = (set(runs[name].to_pylist()) for name in ("base_offset", "last_offset"))
    assert max(ends) > begin + AN_HOUR
    assert state.merged_to == max(ends) + 1
    # No run holds both what is settled and what waits.
    assert not any(start < begin <= end for start, end in zip(*(sorted(each) for each in (starts, ends)), strict=True))
    known = pa.concat_tables([hour(number).table("batches") for number in range(4)])
    waiting = known.filter(pc.greater_equal(known["base_offset"], begin))
    single = state.with_single_batches(waiting, begin)
    assert 0 < single.merged_to <= begin
    rows = single.tables["batches"]
    assert rows.filter(pc.greater_equal(rows["base_offset"], begin)).num_rows == waiting.num_rows
    # In the transaction a broker began to shut down, and a batch later it left the ISR: not in one operation.
    at = begin + 20
    story = HistoryBuilder().voters(1, 2, 3).leader_epoch(1, 1, 0).brokers(11, 12, 13).partition("t-0", begin + 5)
    story.broker(11, at=at, in_controlled_shutdown=True).partition("t-0", at + 1, isr=[12, 13], leader=12)
    new = replace(story.history(), carried=None)
    assert begins_below(new, state.merged_to)
    assert [each.from_offset for each in judged(history_of(single, new), ["KP016"])] == [at]
    assert judged(history_of(state, new), ["KP016"]) == [], "a run does not say where operations end"


@pytest.mark.parametrize(("off_after", "hours"), [(None, 30), (20 * 60, 10)])
def test_how_long_no_snapshot_was_made_is_the_same_over_batches_that_wait(off_after: int | None, hours: int) -> None:
    """A transaction that stays open keeps the controllers from making one. Nodes that were off made none, either."""
    builder = HistoryBuilder()
    running(30 * 60, off_after=off_after or 0)(builder)
    history, begin = builder.history(), 10
    state = carry(until(history, begin, 30 * 60), [], begin, 30 * 60)
    assert state.merged_to > 28 * 60
    again = replace(history, tables={**history.tables, "batches": state.tables["batches"]}, _shared={})
    settings = {"KQ019": {"max_age_hours": 5}}
    for each in (history, again):
        (finding,) = (found for found in check(each, settings, only=["KQ019"]) if found.status is not Status.CLEAR)
        assert finding.summary.startswith(f"there is no snapshot: {hours} h of running time")


def test_a_state_that_is_judged_again_stays_as_it_is() -> None:
    """A step without anything new leaves the same bytes."""
    state, history = chained(4)
    new = replace(
        history,
        tables={name: table.slice(0, 0) for name, table in history.tables.items()}
        | {name: history.tables[name] for name in ("voter_sets", "leader_epochs")},
        carried=None,
        _shared={},
    )
    to_offset = state.episodes.to_offset
    again = until(history_of(state, new), to_offset)
    assert carry(again, judged(again), to_offset).to_bytes() == state.to_bytes()


@pytest.mark.parametrize(
    ("offsets", "epoch_at", "third_ends", "runs"),
    [
        ((), None, 180, [(0, 58)]),
        ((59,), None, 180, [(0, 57)]),
        ((60,), None, 180, [(0, 58)]),
        ((30,), None, 180, [(0, 28), (31, 58)]),
        ((0,), None, 180, [(1, 58)]),
        ((2,), None, 180, [(3, 58)]),
        ((), 30, 180, [(0, 29), (30, 58)]),
        ((), 58, 180, [(0, 57)]),
        ((), None, 30, [(0, 29), (30, 58)]),
        ((), None, 1, [(1, 58)]),
    ],
)
def test_where_runs_begin_and_end(
    offsets: tuple[int, ...], epoch_at: int | None, third_ends: int, runs: list[tuple[int, int]]
) -> None:
    """A snapshot ends at 60. A batch of interest and the one before it stay single, and so does what is alone."""
    end = 180
    builder = HistoryBuilder().voters(1, 2, 3).leader_epoch(1, 1, 0, to_offset=epoch_at)
    if epoch_at is not None:
        builder.leader_epoch(2, 2, epoch_at)
    for node, node_end in ((1, end), (2, end), (3, third_ends)):
        for offset in range(node_end):
            builder.batch(node, offset, offset, 1 if epoch_at is None or offset < epoch_at else 2)
        builder.capture(node, node_end, snapshot_end_offset=60 if node_end > 60 else None, snapshot_epoch=1)
    history = builder.watermark(end, end, end=end, epoch=1 if epoch_at is None else 2).history()
    batches, _ = merged_batches(history, history.rows("captures"), offsets, np.zeros(0, np.int64), end)
    merged = [row for row in batches.filter(pa.array(is_run(batches))).to_pylist() if row["node_id"] == 1]
    assert [(row["base_offset"], row["last_offset"]) for row in merged] == runs
    epochs = [1 if epoch_at is None or first < epoch_at else 2 for first, _ in runs]
    assert [row["leader_epoch"] for row in merged] == epochs
