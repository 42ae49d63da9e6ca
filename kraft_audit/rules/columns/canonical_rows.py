"""Which of the batches of all captured logs are the canonical log.

It is what a replica holds that ends where the newest watermark says that the canonical log ends: equal keys are equal
bytes, and an equal batch means an equal log before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from kraft_audit.capture.plan import Identity
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.batch_copies import STILL_HELD, BatchHolders
from kraft_audit.rules.columns.captures import newest_watermark
from kraft_audit.rules.columns.frame import distinct, numbered
from kraft_audit.tables.bronze import BATCH_KEY
from kraft_audit.tables.number_arrays import Mask, Rows

_NO_END: Final = np.iinfo(np.int64).max
"""An offset after all others."""


def _altered(
    history: ClusterHistory, identities: Sequence[Identity], columns: Mapping[str, Rows]
) -> list[tuple[frozenset[int], Mask]]:
    """Of each altered run the replicas with a version that is not taken for the log, and which batches that may be."""
    altered = []
    for run in history.altered or ():
        if run.is_tied:
            continue
        holders = {plan.identity for held in run.versions[1:] for plan in held}
        within = (columns["base_offset"] >= run.from_offset) & (columns["last_offset"] < run.to_offset)
        numbers = frozenset(number for number, identity in enumerate(identities) if identity in holders)
        altered.append((numbers, within & (columns["leader_epoch"] == run.epoch)))
    return altered


def canonical_rows(
    history: ClusterHistory,
    columns: Mapping[str, Rows],
    identities: Sequence[Identity],
    holders: BatchHolders,
) -> Mask:
    """Which batches of `columns` the canonical log has; none where it is not known, or its end was not captured."""
    newest, count = newest_watermark(history), len(columns["base_offset"])
    nothing = np.zeros(count, bool)
    if newest is None or newest["canonical_end_offset"] is None or not count:
        return nothing
    end, altered = newest["canonical_end_offset"], _altered(history, identities, columns)

    def held(replica: int) -> Mask:
        return holders.mask(holders.replica == replica, count)

    def lasting(replica: int) -> Mask:
        """What a replica holds still, of the log."""
        mask = holders.mask((holders.replica == replica) & (holders.until == STILL_HELD), count)
        mask &= (columns["last_offset"] < end) & ~_is_altered(altered, replica, nothing)
        return mask

    is_end = (columns["last_offset"] + 1 == end) & (columns["leader_epoch"] == newest["canonical_epoch"])
    # Up to which offset each replica holds the canonical log: equal there, equal below.
    reach, is_held_end = [], nothing.copy()
    for replica in range(len(identities)):
        ends = held(replica) & is_end & ~_is_altered(altered, replica, nothing)
        is_held_end |= ends
        reach.append(_NO_END if ends.any() else -1)
    if len(distinct(columns["crc"][is_held_end])) != 1:
        return nothing
    number = _batch_numbers(columns)
    is_led, is_led_otherwise = led_as_known(history, columns["base_offset"], columns["leader_epoch"])
    known, is_taken = -1, _taken(lasting, reach, columns, count)
    while known < (size := int((chosen := _marked(number, is_taken)).sum())):
        known = size
        # Logs that begin with a snapshot hold no batch of those that end with the snapshot's last record.
        ends_there = is_led & np.isin(columns["last_offset"] + 1, columns["base_offset"][is_taken])
        for replica in range(len(identities)):
            common = (held(replica) & chosen[number]) | (lasting(replica) & ends_there)
            reach[replica] = max(reach[replica], int(columns["last_offset"][common].max(initial=-1)))
        is_taken = _taken(lasting, reach, columns, count)
    rows = np.flatnonzero(is_taken)
    rows = rows[np.unique(number[rows], return_index=True)[1]]
    rows = rows[~is_led_otherwise[rows]]
    return _marked(number, _written_last(rows, columns))[number]


def _is_altered(altered: Sequence[tuple[frozenset[int], Mask]], replica: int, nothing: Mask) -> Mask:
    """Which batches of a replica may be another version of the log's own."""
    for numbers, mask in altered:
        if replica in numbers:
            nothing = nothing | mask
    return nothing


def _taken(lasting: Callable[[int], Mask], reach: Sequence[int], columns: Mapping[str, Rows], count: int) -> Mask:
    """What replicas hold of the canonical log, each up to its reach."""
    is_taken = np.zeros(count, bool)
    for replica, last_offset in enumerate(reach):
        if last_offset >= 0:
            is_taken |= lasting(replica) & (columns["last_offset"] <= last_offset)
    return is_taken


def _marked(number: Rows, rows: Rows | Mask) -> Mask:
    """By number, whether one of the rows has it."""
    marked = np.zeros(len(number) + 1, bool)
    marked[number[rows]] = True
    return marked


def _batch_numbers(columns: Mapping[str, Rows]) -> Rows:
    """A number for each row, below the count of rows: equal exactly where the batches are.

    Mostly each batch has one row, and nothing is sorted.
    """
    starts = columns["base_offset"]
    if (starts[1:] > starts[:-1]).all():
        return np.arange(len(starts))
    return numbered(*(columns[name] for name in BATCH_KEY))


def led_as_known(history: ClusterHistory, base_offset: Rows, leader_epoch: Rows) -> tuple[Mask, Mask]:
    """Whether `leader_epochs` says that this epoch wrote the canonical log there, and whether that another one did.

    A disk that began again at a snapshot may have held others below it, which no row says were cut off.
    """
    runs = []
    for row in history.rows("leader_epochs"):
        end = _NO_END if row["to_offset"] is None else row["to_offset"]
        if row["canonical"] and row["from_offset"] is not None and row["from_offset"] < end:
            runs.append((row["from_offset"], end, row["epoch"]))
    if not runs:
        unknown = np.zeros(len(base_offset), bool)
        return unknown, unknown
    starts, ends, epochs = np.array(sorted(runs), np.int64).T
    place = np.searchsorted(starts, base_offset, side="right") - 1
    is_covered = (place >= 0) & (base_offset < ends[place])
    is_same = leader_epoch == epochs[place]
    return is_covered & is_same, is_covered & ~is_same


def _written_last(rows: Rows, columns: Mapping[str, Rows]) -> Rows:
    """Distinct batches without those that were overwritten in a later epoch, where no epoch is known."""
    base, last = columns["base_offset"], columns["last_offset"]
    ordered = rows[np.argsort(base[rows], kind="stable")]
    reach = np.maximum.accumulate(last[ordered])
    begins = np.append(True, base[ordered][1:] > reach[:-1])[: len(ordered)]
    if begins.all():
        return ordered
    groups = np.split(ordered, np.flatnonzero(begins)[1:])
    return np.concatenate([_of_latest_epochs(group, columns) if len(group) > 1 else group for group in groups])


def _of_latest_epochs(overlapping: Rows, columns: Mapping[str, Rows]) -> Rows:
    """Of batches that overlap, the latest epochs' and those that do not overlap with them."""
    starts: list[int] = []
    ends: list[int] = []
    standing: list[int] = []
    base, last, epoch = (columns[name][overlapping] for name in ("base_offset", "last_offset", "leader_epoch"))
    for place in np.lexsort((base, -epoch)).tolist():
        start, end = int(base[place]), int(last[place])
        at = bisect_left(starts, start)
        if (at == 0 or ends[at - 1] < start) and (at == len(starts) or end < starts[at]):
            starts.insert(at, start)
            ends.insert(at, end)
            standing.append(place)
    return overlapping[standing]
