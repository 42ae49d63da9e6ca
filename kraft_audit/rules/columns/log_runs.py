"""What captured logs hold by leader epochs (`log_runs`), and since when replicas hold their batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.log_facts import LOG_RUNS
from kraft_audit.capture.plan import Identity, identity_of
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, once_per_history
from kraft_audit.rules.columns.batch_copies import STILL_HELD, BatchHolders, joined
from kraft_audit.rules.columns.captures import moment_number
from kraft_audit.tables.number_arrays import Rows


@dataclass(frozen=True, slots=True, eq=False)
class BatchSpans:
    """The offsets and epochs of batches, and their rows in the order of their offsets."""

    base_offset: Rows
    last_offset: Rows
    leader_epoch: Rows
    order: Rows
    starts: Rows

    @classmethod
    def of_columns(cls, columns: Mapping[str, Rows]) -> BatchSpans:
        """Of columns with one value for each row."""
        base = columns["base_offset"]
        is_sorted = bool((base[1:] >= base[:-1]).all())
        order = np.arange(len(base)) if is_sorted else np.argsort(base, kind="stable")
        return cls(base, columns["last_offset"], columns["leader_epoch"], order, base[order])

    @classmethod
    def of(cls, table: pa.Table) -> BatchSpans:
        """Of a table `batches`; rows that are no batch of a log have no offsets."""
        is_batch = pc.and_(
            pc.and_(pc.equal(table["source"], "log"), table["valid"]), pc.equal(table["status"], "present")
        )
        is_other = ~is_batch.to_numpy()
        columns = {
            name: table[name].to_numpy().astype(np.int64) for name in ("base_offset", "last_offset", "leader_epoch")
        }
        columns["base_offset"] = np.where(is_other, -1, columns["base_offset"])
        return cls.of_columns(columns)

    @property
    def first_offset(self) -> int:
        """The first offset of any batch; 0 without one."""
        place = int(np.searchsorted(self.starts, 0))
        return int(self.starts[place]) if place < len(self.starts) else 0

    def rows_of(self, run: Mapping[str, Any]) -> Rows:
        """The rows of the batches that lie within a row of `log_runs`, ascending."""
        first, end = np.searchsorted(self.starts, (run["from_offset"], run["to_offset"]))
        rows = self.order[first:end]
        is_held = (self.leader_epoch[rows] == run["leader_epoch"]) & (self.last_offset[rows] < run["to_offset"])
        return np.sort(rows[is_held])

    def offsets_of(self, rows: Rows) -> list[tuple[int, int]]:
        """The offsets of batches as [from, to), neighbours joined."""
        order = np.argsort(self.base_offset[rows], kind="stable")
        starts, ends = self.base_offset[rows][order], self.last_offset[rows][order] + 1
        begins = np.flatnonzero(np.append(True, starts[1:] != ends[:-1])[: len(starts)])
        lasts = np.append(begins[1:], len(starts))[: len(begins)] - 1
        return list(zip(starts[begins].tolist(), ends[lasts].tolist(), strict=True))


def runs_of(history: ClusterHistory, capture: Mapping[str, Any]) -> Sequence[TableRow]:
    """What one captured log holds; an archive names the disk, and not where it was read."""
    runs = _runs_by_capture(history)
    place, disk = _place(capture), _disk(capture)
    return runs.get(place if place in runs else disk, [])


@once_per_history
def _runs_by_capture(history: ClusterHistory) -> dict[tuple[Any, ...], list[TableRow]]:
    runs: dict[tuple[Any, ...], list[TableRow]] = defaultdict(list)
    for row in history.rows(LOG_RUNS.name):
        runs[_place(row)].append(row)
        runs[_disk(row)].append(row)
    return runs


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return "place", row["root"], row["path"], moment_number(row)


def _disk(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return "disk", *identity_of(row), moment_number(row)


def is_held(history: ClusterHistory, capture: Mapping[str, Any], offset: int, epoch: int) -> bool:
    """Whether a captured log holds the record at `offset` as written in `epoch`."""
    return any(
        run["leader_epoch"] == epoch and run["from_offset"] <= offset < run["to_offset"]
        for run in runs_of(history, capture)
    )


CutOff = tuple[int, int]
"""(moment, offset): a capture that shows a log without what it held from an offset on."""


def since_first_held(
    history: ClusterHistory,
    columns: Mapping[str, Rows],
    identities: Sequence[Identity],
    holders: BatchHolders,
    cut_offs: Mapping[Identity, Sequence[CutOff]],
) -> BatchHolders:
    """The holders; what a replica held in an earlier capture, and not cut off since, it holds since that one."""
    runs: dict[Identity, list[TableRow]] = defaultdict(list)
    for row in history.rows(LOG_RUNS.name) if history.captured_from else ():
        if row["capture_number"] < history.captured_from:
            runs[identity_of(row)].append(row)
    if not runs:
        return holders
    spans, pieces = BatchSpans.of_columns(columns), []
    since = np.empty(len(spans.base_offset), np.int64)
    number_of = {identity: number for number, identity in enumerate(identities)}
    moved = np.zeros(len(holders.replica), bool)
    for identity in (each for each in number_of if each in runs):
        own = np.flatnonzero((holders.replica == number_of[identity]) & (holders.until == STILL_HELD))
        since.fill(STILL_HELD)
        for run in sorted(runs[identity], key=moment_number, reverse=True):
            moment, rows = moment_number(run), spans.rows_of(run)
            end = min((offset for cut_ms, offset in cut_offs.get(identity, ()) if cut_ms > moment), default=STILL_HELD)
            since[rows[spans.base_offset[rows] < end]] = moment
        moved[own] = True
        for holding in own.tolist():
            first, end = int(holders.first[holding]), int(holders.end[holding])
            each = np.minimum(since[first:end], holders.since[holding])
            pieces.append(holders.cut(holding, "since", each))
    stays = np.flatnonzero(~moved)
    return joined(holders.taken(stays), *pieces)
