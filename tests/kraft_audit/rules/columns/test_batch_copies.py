"""A history in which batches stand once says what one with a row for each batch of each disk says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.capture.log_facts import BATCH_COPIES, OF_DISK, LogFacts
from kraft_audit.capture.path_plans import plan_path
from kraft_audit.pipeline.history_collector import JUDGED_TABLES, HistoryCollector
from kraft_audit.reading import ClusterReading, ReadingSettings
from kraft_audit.replay.driver import replay_canonical
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.batch_copies import BatchHolders, holders_of_rows, rows_as_held
from kraft_audit.rules.columns.frame import ranges
from kraft_audit.rules.columns.log_batches import log_batches
from kraft_audit.rules.judging import check
from kraft_audit.tables.bronze import BATCH_KEY, BATCHES
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.histories import HistoryBuilder
from tests.builders.hourly_disks import HourlyDisks, dialect_of

KINDS = ("random", "random-wide", "random-storm", "random-kip856", "random-kip642")


def histories(kind: str, seed: int, folder: Path) -> tuple[ClusterHistory, ClusterHistory]:
    """(as it is, with a row for each batch of each disk) of disks that part, captured twice."""
    disks = HourlyDisks(kind, seed, folder / "hours" / "0", events=3_000)
    disks.pass_hour(len(disks.captures) - 1, share=0.7, stands_still=0.0)
    later = HourlyDisks(kind, seed, folder / "hours" / "1", events=3_000, run=folder / "hours" / "run")
    later.pass_hour(len(disks.captures) - 1, share=0.9, deletes=seed % 2 == 1, stands_still=0.0)
    plans = plan_path(str(folder / "hours"), open_storage=open_storage, captured_at_ms=1, dialect=dialect_of(kind))
    plan = max(plans, key=lambda each: len(each.replicas))
    with ClusterReading(plan, ReadingSettings(open_storage, Redactor(b"k" * 32), clock_ms=lambda: 5)) as reading:
        collector, batches = HistoryCollector(reading), []
        for name, rows in reading.bronze(JUDGED_TABLES | {BATCHES.name}, collector.facts):
            if name == BATCHES.name:
                batches.append(rows)
            else:
                collector.take_rows(name, rows)
        replay_canonical(reading, collector)
    found = collector.history()
    rows = pa.Table.from_batches(batches).select(found.tables["batches"].column_names)
    flat = {"batches": rows, BATCH_COPIES.name: BATCH_COPIES.schema.empty_table()}
    return found, replace(found, tables={**found.tables, **flat}, _shared={})


def every_row(table: pa.Table, copies: pa.Table) -> pa.Table:
    """`batches` with a row for each batch of each disk: its own rows first, then those of copies."""
    own, counts = np.arange(table.num_rows), copies["batch_count"].to_numpy()
    rows = np.concatenate([own, ranges(copies["first_row"].to_numpy(), counts)])
    copy = np.concatenate([np.full(len(own), -1), np.repeat(np.arange(len(counts)), counts)])
    return rows_as_held(table, copies, rows, copy)


def as_counted(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def held(history: ClusterHistory) -> Counter[tuple[Any, ...]]:
    """Who held which batch from when until when, and whether the canonical log has it."""
    batches = log_batches(history)
    each = batches.as_held(np.ones(len(batches.row), bool))
    is_canonical = dict(zip(batches.row.tolist(), batches.is_canonical.tolist(), strict=True))
    columns = [
        getattr(each, name).tolist() for name in (*BATCH_KEY, "timestamp_ms", "replica", "since", "until", "row")
    ]
    return Counter(
        (*own, each.identities[replica], since, until, is_canonical[row])
        for *own, replica, since, until, row in zip(*columns, strict=True)
    )


@pytest.mark.parametrize("seed", range(15))
def test_copies_say_what_rows_of_each_disk_say(seed: int, tmp_path: Path) -> None:
    history, flat = histories(KINDS[seed % len(KINDS)], seed, tmp_path)
    table, copies = history.tables["batches"], history.tables[BATCH_COPIES.name]
    in_log, in_flat = (np.sum(each["source"].to_numpy() == "log") for each in (table, flat.tables["batches"]))
    assert in_log < in_flat
    assert copies.num_rows < in_flat - in_log
    assert as_counted(every_row(table, copies)) == as_counted(flat.tables["batches"])
    assert held(history) == held(flat)
    findings = [(each.rule, each.summary, each.evidence) for each in check(history)]
    assert findings == [(each.rule, each.summary, each.evidence) for each in check(flat)]


def piece(node: int, batches: Sequence[tuple[int, int]], position: int, file: str) -> pa.RecordBatch:
    """Rows of one disk's file: (base offset, CRC) of batches of one record each."""
    builder = HistoryBuilder()
    for number, (offset, crc) in enumerate(batches):
        builder.batch(node, offset, offset, crc=crc, position=position + 100 * number, file_name=file)
    (batch,) = builder.history().tables["batches"].to_batches()
    return batch


def rows_at(part: pa.RecordBatch, places: slice) -> pa.RecordBatch:
    return part.slice(places.start, places.stop - places.start)


def facts_of(windows: Sequence[Sequence[pa.RecordBatch]]) -> tuple[pa.Table, pa.Table]:
    """`batches` and copies of windows, each with what every disk's files hold in it."""
    stored = list[pa.RecordBatch]()
    facts = LogFacts(stored.append)
    for parts in windows:
        rows = [part.select(BATCH_KEY).to_pylist() for part in parts]
        keys = sorted({tuple(row.values()) for part in rows for row in part})
        facts.begin_window(len(keys))
        for part, own in zip(parts, rows, strict=True):
            numbers = np.array([keys.index(tuple(row.values())) for row in own], np.int64)
            columns = {name: part.column(name) for name in ("position", "valid")}
            facts.add(
                numbers,
                columns["position"].to_numpy(),
                columns["valid"].to_numpy(zero_copy_only=False),
                {name: part.column(name)[0].as_py() for name in OF_DISK},
                partial(rows_at, part),
            )
    return pa.Table.from_batches(stored, BATCHES.schema), facts.copies()


@st.composite
def disks_by_windows(draw: st.DrawFn) -> list[list[pa.RecordBatch]]:
    """What disks hold, in windows that come one after the other.

    A disk may part, lack the middle, or have files of its own.
    """
    windows, at = [], 0
    for _ in range(draw(st.integers(1, 3))):
        parts = []
        log = [(at + place, draw(st.integers(1, 2))) for place in range(draw(st.integers(1, 5)))]
        at += len(log)
        for node in range(draw(st.integers(1, 4))):
            own = [(offset, crc + 5 * draw(st.sampled_from([0, 0, 0, 0, 1]))) for offset, crc in log]
            cut = draw(st.integers(0, len(own)))
            for part in (own[:cut], own[cut + draw(st.integers(0, 1)) :]):
                if part:
                    parts.append(piece(node, part, draw(st.sampled_from([0, 700])), draw(st.sampled_from("ab"))))
        windows.append(parts)
    return windows


@pytest.mark.slow
@given(disks_by_windows())
def test_every_row_comes_back_as_it_was(windows: list[list[pa.RecordBatch]]) -> None:
    table, copies = facts_of(windows)
    parts = [part for window in windows for part in window]
    assert as_counted(every_row(table, copies)) == as_counted(pa.Table.from_batches(parts, BATCHES.schema))
    assert len({tuple(row.values()) for row in table.select(BATCH_KEY).to_pylist()}) == table.num_rows


def test_copies_of_many_disks_go_on_from_window_to_window() -> None:
    """And what one disk has otherwise is no reason to hold again what others have."""
    windows: list[list[pa.RecordBatch]] = []
    for window in range(3):
        windows.append([])
        for node in range(30):
            crc = 9 if node == 7 and window == 1 else 1
            own = [(10 * window + place, crc if place == 4 else 1) for place in range(10)]
            windows[-1].append(piece(node, own, 1000 * window, "a"))
    table, copies = facts_of(windows)
    assert table.num_rows == 31
    assert copies.num_rows == 29 + 28 + 2


@st.composite
def holders(draw: st.DrawFn) -> BatchHolders:
    replica = np.array(draw(st.lists(st.integers(0, 2), min_size=1, max_size=12)), np.int64)
    return holders_of_rows(
        replica, np.array(draw(st.lists(st.integers(0, 1), min_size=12, max_size=12)))[: len(replica)]
    )


def one_by_one(holders_: BatchHolders) -> Iterator[tuple[int, ...]]:
    """(row, replica, since, until) of each."""
    for replica, first, end, since, until in zip(
        *(getattr(holders_, name) for name in ("replica", "first", "end", "since", "until")), strict=True
    ):
        yield from ((row, int(replica), int(since), int(until)) for row in range(first, end))


@given(holders(), st.data())
def test_rows_that_end_earlier_cut_their_holdings(held_by: BatchHolders, data: st.DataObject) -> None:
    everything = list(one_by_one(held_by))
    chosen = sorted(data.draw(st.sets(st.sampled_from([row for row, *_ in everything]))))
    among = held_by.among(np.array(chosen, np.int64))
    assert sorted(zip(among.row.tolist(), among.replica.tolist(), strict=True)) == sorted(
        (row, replica) for row, replica, *_ in everything if row in chosen
    )
    until = np.array([data.draw(st.integers(5, 6)) for _ in among.row], np.int64)
    ends = dict(zip(among.row.tolist(), until.tolist(), strict=True))
    ended = held_by.ended(among, until)
    assert sorted(one_by_one(ended)) == sorted(
        (row, replica, since, ends.get(row, end)) for row, replica, since, end in everything
    )
    for replica in range(3):
        mask = ended.mask(ended.replica == replica, len(everything))
        assert np.flatnonzero(mask).tolist() == sorted(row for row, who, *_ in everything if who == replica)
