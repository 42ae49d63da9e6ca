"""Where captured logs parted: the batches that the canonical log lacks, as branches, and which disks held them.

Equal batches mean equal logs before them, so the batches of all disks form a tree. Its stem is the canonical log. Where
no log is canonical, it is what no other log contradicts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kraft_audit.capture.plan import Identity, identity_of
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, once_per_history
from kraft_audit.rules.columns.batch_copies import STILL_HELD
from kraft_audit.rules.columns.captures import captures_in_order, moment_number, order_in_doubt
from kraft_audit.rules.columns.frame import numbered
from kraft_audit.rules.columns.log_batches import BatchColumns, HeldBatches, canonical_log, log_batches
from kraft_audit.tables.bronze import BATCH_KEY
from kraft_audit.tables.number_arrays import Mask, Rows

_NONE: Final = -1


@dataclass(frozen=True, slots=True, eq=False)
class LogBranch:
    """A run of records that parted from the log before it; `rows` are places in `PartedLogs.held`, by offset.

    `parted_ms` is the time of the last record before it, None where none was read. From `cut_from` on no disk that held
    the branch does so any more; None where one still holds its end. `holders` are the disks that hold any of it still.
    """

    rows: Rows
    from_offset: int
    to_offset: int
    from_ms: int
    to_ms: int
    epochs: tuple[int, ...]
    parted_ms: int | None
    cut_from: int | None
    holders: tuple[Identity, ...]


@dataclass(frozen=True, slots=True)
class PartedRun:
    """What one disk held of a branch; `is_cut` where a later capture of that disk lacks some of it."""

    from_offset: int
    from_ms: int
    to_ms: int
    is_held: bool
    is_cut: bool


@dataclass(frozen=True, slots=True, eq=False)
class PartedLogs:
    """The batches outside the canonical log, each as often as a disk held it, and the branches that they form.

    `is_kept` says of each whether no capture is known to be later that lacks it. `stem` are places of distinct batches
    that nothing contradicts, where no log is canonical; else none.
    """

    held: HeldBatches
    is_kept: Mask
    branches: tuple[LogBranch, ...]
    stem: Rows

    def runs_of(self, identity: Identity) -> Iterator[PartedRun]:
        """What a disk held of each branch, by offset."""
        for branch in self.branches:
            rows = branch.rows[self._is_of(branch.rows, identity)]
            if len(rows):
                from_ms, to_ms = _span_ms(self.held.timestamp_ms[rows])
                cut_from = _cut_from(self.held, rows, self.is_kept)
                first = int(self.held.base_offset[rows].min())
                yield PartedRun(first, from_ms, to_ms, cut_from != first, cut_from is not None)

    def last_ms(self, branches: Collection[int], epoch: int, from_offset: int) -> int | None:
        """The time of the last record of an epoch on some branches and, from an offset on, on the stem."""
        held = self.held
        stem = self.stem[held.base_offset[self.stem] >= from_offset]
        rows = np.concatenate([stem, *(self.branches[number].rows for number in branches)])
        times = held.timestamp_ms[rows[held.leader_epoch[rows] == epoch]]
        return int(times.max()) if len(times) else None

    def led_on(self, row: TableRow, same_epoch: Sequence[TableRow]) -> tuple[int, ...]:
        """The branches with records of one leader's epoch; `same_epoch` are the rows of `leader_epochs` of that epoch.

        A branch is hers that has the epoch's first record. Where that does not tell leaders of one epoch apart, and of
        what parted later, it is one that her own disk held.
        """
        begun = [number for number, branch in enumerate(self.branches) if self._begins_on(row, branch)]
        later = [
            number
            for number, branch in enumerate(self.branches)
            if branch.epochs[0] == row["epoch"] and branch.from_offset > row["from_offset"]
        ]
        is_alone = len({each["leader_id"] for each in same_epoch if each["leader_id"] is not None}) == 1
        own = [n for n in (*begun, *later) if self._was_held_by(row["leader_id"], self.branches[n])]
        begun = begun if is_alone or len(begun) == 1 else [n for n in begun if n in own]
        return (*begun, *(n for n in later if is_alone or n in own))

    def _begins_on(self, row: TableRow, branch: LogBranch) -> bool:
        held, rows = self.held, branch.rows
        is_first = (held.base_offset[rows] == row["from_offset"]) & (held.leader_epoch[rows] == row["epoch"])
        return bool((is_first & (held.timestamp_ms[rows] == row["timestamp_ms"])).any())

    def _was_held_by(self, node_id: int, branch: LogBranch) -> bool:
        return node_id in {self.held.identities[each][0] for each in np.unique(self.held.replica[branch.rows]).tolist()}

    def _is_of(self, rows: Rows, identity: Identity) -> Mask:
        if identity not in self.held.identities:
            return np.zeros(len(rows), bool)
        mask: Mask = self.held.replica[rows] == self.held.identities.index(identity)
        return mask


def parted_logs(history: ClusterHistory) -> PartedLogs | None:
    """The branches of a history, by offset; None where its batches are not known."""
    if not history.has("batches"):
        return None
    return _parted_logs(history)


def is_log_ambiguous(history: ClusterHistory) -> bool:
    """Whether disks hold two versions of what the canonical log has, and were not compared: either may be the log."""
    log, batches = canonical_log(history), log_batches(history)
    if history.altered is not None or not len(log.row):
        return False
    number = numbered(
        np.concatenate([log.base_offset, batches.base_offset[~batches.is_canonical]]),
        np.concatenate([log.leader_epoch, batches.leader_epoch[~batches.is_canonical]]),
    )
    return bool(np.isin(number[len(log.row) :], number[: len(log.row)]).any())


def times_held(history: ClusterHistory, identity: Identity) -> tuple[int, int, int] | None:
    """The time of the first record that a disk ever held, and time and end offset of the last one that it held last.

    None where its batches are not known, or it never held any.
    """
    if not history.has("batches"):
        return None
    batches = log_batches(history)
    if identity not in batches.identities:
        return None
    is_of = batches.holders.replica == batches.identities.index(identity)
    ever = batches.holders.mask(is_of, len(batches.row))
    last = batches.holders.mask(is_of & (batches.holders.until == STILL_HELD), len(batches.row))
    chosen = np.flatnonzero(last if last.any() else ever)
    if not len(chosen):
        return None
    at = chosen[np.argmax(batches.last_offset[chosen])]
    return _span_ms(batches.timestamp_ms[ever])[0], int(batches.timestamp_ms[at]), int(batches.last_offset[at]) + 1


def epoch_rows(history: ClusterHistory, epoch: int) -> list[TableRow]:
    """The rows of `leader_epochs` of one epoch that has records: of every branch where it had a leader."""
    return [row for row in history.rows("leader_epochs") if row["epoch"] == epoch and row["from_offset"] is not None]


def led_until(history: ClusterHistory, row: TableRow) -> int | None:
    """The time of an epoch's last record, on the canonical log or on a branch; None where no batch of it is known."""
    logs = parted_logs(history)
    if logs is None:
        return None
    branches = logs.led_on(row, epoch_rows(history, row["epoch"]))
    ends = [logs.last_ms(branches, row["epoch"], row["from_offset"])]
    if row["canonical"] and row["to_offset"] is not None:
        ends.append(canonical_log(history).time_at(row["to_offset"] - 1))
    return max((end for end in ends if end is not None), default=None)


@once_per_history
def _parted_logs(history: ClusterHistory) -> PartedLogs:
    batches = log_batches(history)
    held = batches.as_held(~batches.is_canonical)
    log = canonical_log(history)
    if not len(held.row):
        return PartedLogs(held, np.zeros(0, bool), (), np.zeros(0, np.int64))
    number = numbered(*(getattr(held, name) for name in BATCH_KEY))
    first = np.unique(number, return_index=True)[1]
    parent = _parents(held, number, first)
    branch_of = _branch_numbers(parent)
    contradicted = _contradicted(held, first, branch_of, log)
    places = np.lexsort((held.base_offset, branch_of[number]))
    pieces = np.split(places, np.flatnonzero(np.diff(branch_of[number[places]])) + 1)
    chosen = [piece for piece in pieces if contradicted[branch_of[number[piece[0]]]]]
    is_kept = (held.until == STILL_HELD) | _is_in_doubt(history, held)
    branches = [_branch(held, is_kept, piece, _parted_at(held, piece, number, first, parent, log)) for piece in chosen]
    branches.sort(key=lambda branch: (branch.from_offset, branch.from_ms, branch.epochs))
    stem = first[~contradicted[branch_of]] if not len(log.row) else first[:0]
    return PartedLogs(held, is_kept, tuple(branches), stem[np.argsort(held.base_offset[stem])])


def _parents(held: HeldBatches, number: Rows, first: Rows) -> Rows:
    """By number of a distinct batch the number of the one before it in a log that held both at once."""
    after: dict[tuple[int, int], list[int]] = defaultdict(list)
    ends = zip(held.replica.tolist(), (held.last_offset + 1).tolist(), strict=True)
    for place, key in enumerate(ends):
        after[key].append(place)
    parent = np.full(len(first), _NONE, np.int64)
    for place, key in enumerate(zip(held.replica.tolist(), held.base_offset.tolist(), strict=True)):
        for before in after.get(key, ()):
            if held.since[before] < held.until[place] and held.since[place] < held.until[before]:
                parent[number[place]] = number[before]
    return parent


def _branch_numbers(parent: Rows) -> Rows:
    """By distinct batch the one that its branch begins with: where a log begins, or where logs with one past part."""
    count = len(parent)
    children = np.bincount(parent[parent != _NONE], minlength=count)
    begins = (parent == _NONE) | (children[parent] > 1)
    root = np.where(begins, np.arange(count), parent)
    while not begins[root].all():
        root = root[root]
    return root


def _contradicted(held: HeldBatches, first: Rows, branch_of: Rows, log: BatchColumns) -> Mask:
    """By number of a branch, whether another log has other records at its offsets: the rest may lie before a gap."""
    base, last = held.base_offset[first], held.last_offset[first]
    contradicted = np.zeros(len(first), bool)
    if len(log.row):
        place = np.searchsorted(log.base_offset, base, side="right") - 1
        contradicted[branch_of[(place >= 0) & (base <= log.last_offset[np.maximum(place, 0)])]] = True
        return contradicted
    order = np.lexsort((last, base))
    reach = np.maximum.accumulate(last[order])
    is_within = np.append(False, base[order][1:] <= reach[:-1])[: len(order)]
    ahead = np.minimum.accumulate(base[order][::-1])[::-1]
    is_around = np.append(ahead[1:] <= last[order][:-1], False)[: len(order)]
    contradicted[branch_of[order[is_within | is_around]]] = True
    return contradicted


def _is_in_doubt(history: ClusterHistory, held: HeldBatches) -> Mask:
    """Which batches a capture lacks that may be older than the one which has them: a folder may hold such copies."""
    by_identity: dict[Identity, list[TableRow]] = defaultdict(list)
    for row in captures_in_order(history):
        by_identity[identity_of(row)].append(row)
    is_in_doubt = np.zeros(len(held.row), bool)
    for replica, until in {*zip(held.replica.tolist(), held.until.tolist(), strict=True)}:
        captures = by_identity[held.identities[replica]]
        before = [row for row in captures if moment_number(row) < until]
        after = [row for row in captures if moment_number(row) == until]
        if before and after and order_in_doubt(history, before[-1], after[0]) is not None:
            is_in_doubt |= (held.replica == replica) & (held.until == until)
    return is_in_doubt


def _cut_from(held: HeldBatches, rows: Rows, is_kept: Mask) -> int | None:
    """From which offset on nothing of some rows is kept; None where their end is. Kafka cuts a log at its end."""
    kept, end = rows[is_kept[rows]], int(held.last_offset[rows].max()) + 1
    kept_to = int(held.last_offset[kept].max()) + 1 if len(kept) else int(held.base_offset[rows].min())
    return kept_to if kept_to < end else None


def _parted_at(held: HeldBatches, rows: Rows, number: Rows, first: Rows, parent: Rows, log: BatchColumns) -> int | None:
    """The time of the last record before a branch."""
    before = parent[number[rows[0]]]
    if before != _NONE:
        return int(held.timestamp_ms[first[before]])
    place = int(np.searchsorted(log.base_offset, held.base_offset[rows[0]])) - 1
    return int(log.timestamp_ms[place]) if place >= 0 else None


def _branch(held: HeldBatches, is_kept: Mask, rows: Rows, parted_ms: int | None) -> LogBranch:
    from_ms, to_ms = _span_ms(held.timestamp_ms[rows])
    return LogBranch(
        rows,
        int(held.base_offset[rows[0]]),
        int(held.last_offset[rows].max()) + 1,
        from_ms,
        to_ms,
        tuple(np.unique(held.leader_epoch[rows]).tolist()),
        parted_ms,
        _cut_from(held, rows, is_kept),
        tuple(held.identities[replica] for replica in np.unique(held.replica[rows[is_kept[rows]]]).tolist()),
    )


def _span_ms(times: Rows) -> tuple[int, int]:
    """The first and the last of some append times; those that are no time only where there are no others."""
    known = times[times > 0]
    known = known if len(known) else times
    return int(known.min()), int(known.max())
