"""Batches that are carried as runs: what all disks that hold them hold alike, one row for many batches of an epoch.

A run takes the place of batches whose single offsets no rule asks for any more. It begins and ends at the same batches
on every disk, so that runs are compared as batches are: equal keys mean that all batches of the runs are equal. Where a
disk shows batches below the end of the runs later, or lacks some, the lake gives the single batches back (`split`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.continuity import run_begins
from kraft_audit.capture.log_facts import BATCH_COPIES
from kraft_audit.capture.plan import identity_of
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.batch_copies import STILL_HELD, HeldRows, cut_to, renumbered, rows_as_held
from kraft_audit.rules.columns.captures import moment_number, newest_captures, newest_watermark
from kraft_audit.rules.columns.log_batches import (
    MAX_RECORDS_PER_BATCH,
    OFF_AFTER_MS,
    CanonicalBatches,
    LogBatches,
    canonical_log,
    is_run,
    log_batches,
    passed_ms,
)
from kraft_audit.rules.columns.quorum_standing import IDLE_BATCHES
from kraft_audit.tables.contract import with_column
from kraft_audit.tables.number_arrays import Mask, Rows

_FOLD: Final = np.uint64(0x9E3779B97F4A7C15)
_MASK: Final = np.uint64((1 << 62) - 1)

BatchTables = tuple[pa.Table, pa.Table]
"""`batches`, and the `batch_copies` of them."""


def merged_batches(
    history: ClusterHistory,
    captures: Sequence[TableRow],
    offsets: Collection[int],
    wanted: Rows,
    to_offset: int,
    waiting_to: int | None = None,
) -> BatchTables:
    """`batches` and `batch_copies` with runs.

    `captures` are those that are carried, `offsets` those whose batches stay single, `wanted` rows that stay. What
    comes after the newest snapshot, after what is committed, or at the end of the log stays as well, but for records
    in [to_offset, waiting_to), which wait for the end of their transaction.
    """
    table, copies = history.chunked_table("batches"), history.chunked_table(BATCH_COPIES.name)
    log, batches = canonical_log(history), log_batches(history)
    mergeable = _mergeable(history, log, to_offset, waiting_to)
    if mergeable.sum() < 2:
        return table, copies
    place, is_single = _places(log, batches, history, mergeable)
    is_single |= _holds_any(log, {*offsets, to_offset})
    stays = np.isin(batches.row, wanted)
    is_single[place[stays & (place >= 0)]] = True
    moments, is_unknown = _moments(batches, captures)
    of_unknown = place[batches.holders.mask(is_unknown, len(place))]
    is_single[of_unknown[of_unknown >= 0]] = True
    is_joined = _is_joined(log, batches, place, moments, is_single)
    run = np.cumsum(np.append(True, ~is_joined))
    counts = np.bincount(run)
    in_run = (place >= 0) & (counts[run[np.maximum(place, 0)]] > 1)
    if not in_run.any():
        return table, copies
    return _with_runs((table, copies), batches, moments, in_run, (place, run, passed_ms(table, log)))


def merged_to(table: pa.Table) -> int:
    """The end of the runs among carried batches; 0 without any."""
    runs = table.filter(pa.array(is_run(table)))
    return int(pc.max(runs["last_offset"]).as_py()) + 1 if runs.num_rows else 0


def split(table: pa.Table, known: pa.Table, from_offset: int = 0) -> pa.Table:
    """Carried batches with single ones, which a lake knows, in the places of runs that begin at an offset or after."""
    is_split = is_run(table) & (table["base_offset"].to_numpy() >= from_offset)
    spans: dict[object, list[tuple[int, int]]] = {}
    for row in table.filter(pa.array(is_split)).to_pylist():
        spans.setdefault(identity_of(row), []).append((row["base_offset"], row["last_offset"]))
    of_runs = []
    names = ("node_id", "directory_id", "root", "path", "base_offset", "source", "status", "valid")
    for number, row in enumerate(known.select(names).to_pylist()):
        is_present = row["source"] == "log" and row["valid"] and row["status"] == "present"
        if is_present and any(first <= row["base_offset"] <= last for first, last in spans.get(identity_of(row), ())):
            of_runs.append(number)
    singles = known.take(pa.array(of_runs, pa.int64())).select(table.column_names)
    return pa.concat_tables([singles.cast(table.schema), table.filter(pa.array(~is_split))])


def _mergeable(history: ClusterHistory, log: CanonicalBatches, to_offset: int, waiting_to: int | None) -> Mask:
    """Which batches of the log may be in runs.

    Of records that wait rules only ask when nodes were off, and no snapshot ends among them. Disks that are among them
    go on there.
    """
    mask = np.zeros(len(log.base_offset), bool)
    watermark, captures = newest_watermark(history), newest_captures(history)
    if watermark is None:
        return mask
    snapshots = [row["snapshot_end_offset"] for row in captures if row["snapshot_end_offset"]]
    end = min(to_offset, watermark["low"], max(snapshots, default=0))
    mask[: np.searchsorted(log.last_offset, end - 1)] = True
    ends = [row["log_end_offset"] for row in captures if (row["log_end_offset"] or 0) > to_offset]
    end = min([waiting_to or 0, watermark["low"], *ends])
    waiting = slice(np.searchsorted(log.base_offset, to_offset), np.searchsorted(log.last_offset, end - 1))
    mask[waiting] = ~_is_after_stop(history, log)[waiting]
    mask[max(len(mask) - IDLE_BATCHES - 1, 0) :] = False
    return mask


def _is_after_stop(history: ClusterHistory, log: CanonicalBatches) -> Mask:
    """Which batches are the first ones after all nodes were off."""
    off = np.diff(log.timestamp_ms, prepend=log.timestamp_ms[:1]) > OFF_AFTER_MS
    return np.asarray(off & ~is_run(history.chunked_table("batches"))[log.row])


def _places(log: CanonicalBatches, batches: LogBatches, history: ClusterHistory, mergeable: Mask) -> tuple[Rows, Mask]:
    """Of each row the number of its batch in the log, -1 for others; and which batches are no part of a run."""
    place = np.searchsorted(log.base_offset, batches.base_offset)
    place = np.minimum(place, len(log.base_offset) - 1)
    is_same = batches.is_canonical & (log.base_offset[place] == batches.base_offset) & mergeable[place]
    is_single = log.is_control | (log.record_count >= MAX_RECORDS_PER_BATCH)
    is_single[1:] |= log.record_count[:-1] >= MAX_RECORDS_PER_BATCH
    is_single |= ~mergeable
    holders, count = batches.holders, len(batches.row)
    is_single[place[is_same & holders.mask(holders.until != STILL_HELD, count)]] = True
    for replica in range(len(batches.identities)):
        held = holders.of(replica).row
        is_single |= np.bincount(place[held[is_same[held]]], minlength=len(is_single)) > 1
    for altered in history.altered or ():
        is_single |= (log.base_offset < altered.to_offset) & (log.last_offset >= altered.from_offset)
    return np.where(is_same, place, -1), is_single


def _holds_any(log: CanonicalBatches, offsets: Collection[int]) -> Mask:
    """The batches that hold one of the offsets, or the one before it."""
    mask = np.zeros(len(log.base_offset), bool)
    if offsets:
        wanted = np.array(sorted(offsets), np.int64)
        places = np.searchsorted(log.base_offset, np.concatenate([wanted, wanted - 1]), side="right") - 1
        mask[places[places >= 0]] = True
    return mask


def _moments(batches: LogBatches, captures: Sequence[TableRow]) -> tuple[Rows, Mask]:
    """For each holding the first carried capture of its disk that shows it, as a moment, and where there is none."""
    holders = batches.holders
    moments, is_unknown = holders.since.copy(), np.zeros(len(holders.since), bool)
    for number, identity in enumerate(batches.identities):
        mine = np.flatnonzero(holders.replica == number)
        known = np.array(sorted({moment_number(row) for row in captures if identity_of(row) == identity}), np.int64)
        place = np.searchsorted(known, holders.since[mine])
        is_unknown[mine[place == len(known)]] = True
        has = place < len(known)
        moments[mine[has]] = known[place[has]]
    return moments, is_unknown


def _is_joined(log: CanonicalBatches, batches: LogBatches, place: Rows, moments: Rows, is_single: Mask) -> Mask:
    """Which batches of the log are in one run with the next one: the same disks hold both, from the same capture on."""
    holders = np.zeros(len(log.base_offset), np.uint64)
    of_holding = _mixed((moments.astype(np.uint64) * _FOLD) ^ (batches.holders.replica + 1).astype(np.uint64))
    for replica in range(len(batches.identities)):
        held = batches.holders.of(replica)
        at = place[held.row]
        np.add.at(holders, at[at >= 0], of_holding[held.holding[at >= 0]])
    return np.asarray(
        ~is_single[:-1]
        & ~is_single[1:]
        & (holders[:-1] == holders[1:])
        & (log.leader_epoch[:-1] == log.leader_epoch[1:])
        & (log.last_offset[:-1] + 1 == log.base_offset[1:])
        & (log.timestamp_ms[:-1] <= log.timestamp_ms[1:])  # so that the last time of a run is its latest
    )


def _mixed(values: np.typing.NDArray[np.uint64]) -> np.typing.NDArray[np.uint64]:
    """Numbers that are far apart for numbers that are close (splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _with_runs(
    tables: BatchTables,
    batches: LogBatches,
    moments: Rows,
    in_run: Mask,
    where: tuple[Rows, Rows, Rows],
) -> BatchTables:
    """The tables with a row for each run of each disk, and all else as it was.

    Runs come last, by disks and offsets: however many steps merged them, the rows are the same.
    """
    table, copies = tables
    known = {name: table[name].to_numpy() for name in ("base_offset", "position", "record_count", "size_bytes")}
    was_run, stays = known["position"] < 0, known["position"] >= 0
    stays[batches.row[in_run]] = False
    rows, copy, run_columns = [np.flatnonzero(stays)], [np.full(stays.sum(), -1)], []
    for replica in range(len(batches.identities)):
        # One disk after the other: what is computed of a batch takes more memory than its row.
        held = batches.holders.of(replica)
        is_in, own = in_run[held.row], batches.row[held.row]
        chosen = HeldRows(batches.holders, held.row[is_in], held.holding[is_in])
        runs = _runs_of_disk(known, batches, chosen, moments, where)
        earlier = own[was_run[own] & ~is_in]
        first = np.concatenate([earlier, runs.pop("row")])
        copy_of = np.concatenate([np.full(len(earlier), -1), runs.pop("copy")])
        order = np.argsort(known["base_offset"][first], kind="stable")
        run_columns.append({"place": np.argsort(order)[len(earlier) :] + sum(map(len, rows)), **runs})
        rows.append(first[order])
        copy.append(copy_of[order])
    merged = rows_as_held(table, copies, np.concatenate(rows), np.concatenate(copy))
    columns = {name: np.concatenate([each[name] for each in run_columns]) for name in run_columns[0]}
    place = columns.pop("place")
    for name, values in columns.items():
        column = merged[name].to_numpy().copy()
        column[place] = values
        merged = with_column(merged, name, pa.array(column, merged.schema.field(name).type))
    return merged, renumbered(cut_to(copies, stays), np.cumsum(stays) - 1)


def _runs_of_disk(
    known: Mapping[str, Rows], batches: LogBatches, held: HeldRows, moments: Rows, where: tuple[Rows, Rows, Rows]
) -> dict[str, Rows]:
    """The columns of the runs of one disk in which what it held is.

    `known` are columns of the table; `row` and `copy` name the first batch of a run.
    """
    place, run, passed = where
    order = np.argsort(place[held.row], kind="stable")
    rows = held.row[order]
    first = np.flatnonzero(run_begins(run[place[rows]]))
    end = np.append(first[1:], len(rows))[: len(first)] - 1
    own, begins = batches.row[rows], held.holding[order][first]
    crc = batches.crc[rows].astype(np.uint64)
    single = _mixed((crc << np.uint64(30)) ^ (batches.base_offset[rows].astype(np.uint64) * _FOLD)) & _MASK
    return {
        "row": own[first],
        "copy": batches.holders.copy[begins],
        "last_offset": batches.last_offset[rows][end],
        # A sum, so that runs of runs say what one run says.
        "crc": np.add.reduceat(np.where(known["position"][own] < 0, crc, single), first) & _MASK,
        "max_timestamp_ms": np.maximum.reduceat(batches.timestamp_ms[rows], first),
        "record_count": np.minimum(np.add.reduceat(known["record_count"][own], first), MAX_RECORDS_PER_BATCH - 1),
        "size_bytes": np.add.reduceat(known["size_bytes"][own], first),
        "position": -1 - np.add.reduceat(passed[place[rows]], first),
        "captured_at_ms": moments[begins] >> 20,
        "capture_number": moments[begins] & ((1 << 20) - 1),
    }
