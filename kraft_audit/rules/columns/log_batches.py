"""The batches of all captured logs in columns, who held them, the canonical log of them, and its operations.

A history's `batches` has every batch, and `batch_copies` says which other replicas hold it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.log_facts import BATCH_COPIES
from kraft_audit.capture.plan import Identity, identity_of
from kraft_audit.rules.cluster_history import ClusterHistory, once_per_history
from kraft_audit.rules.columns.batch_copies import STILL_HELD, BatchHolders, holders_of_rows, joined, rows_as_held
from kraft_audit.rules.columns.canonical_rows import canonical_rows, led_as_known
from kraft_audit.rules.columns.captures import captures_in_order, moment_number
from kraft_audit.rules.columns.frame import numbered
from kraft_audit.rules.columns.log_runs import CutOff, since_first_held
from kraft_audit.tables.bronze import BATCH_KEY, REPLICA_NAME
from kraft_audit.tables.number_arrays import Mask, Rows


@dataclass(frozen=True, slots=True, eq=False)
class BatchColumns:
    """Valid batches of a log as columns; `row` is a batch's row in the table `batches`."""

    row: Rows
    base_offset: Rows
    last_offset: Rows
    leader_epoch: Rows
    crc: Rows
    timestamp_ms: Rows
    is_control: Mask


@dataclass(frozen=True, slots=True, eq=False)
class HeldBatches(BatchColumns):
    """Some batches, each as often as it was held; `replica` numbers who held it in `identities`.

    A replica held a batch from the capture `since` on until the capture `until`, as `moment_number` gives them;
    STILL_HELD where no later capture lacks it. `copy` is the row of `batch_copies` that says so, -1 where its row does.
    """

    identities: tuple[Identity, ...]
    replica: Rows
    since: Rows
    until: Rows
    copy: Rows


@dataclass(frozen=True, slots=True, eq=False)
class LogBatches(BatchColumns):
    """The batches of all replicas, and who held them; a batch may have several rows."""

    identities: tuple[Identity, ...]
    holders: BatchHolders
    is_canonical: Mask

    def held_by(self, capture: Mapping[str, Any]) -> Mask:
        """The batches that a captured replica held when it was captured; what retention deleted since included."""
        identity = identity_of(capture)
        if identity not in self.identities:
            return np.zeros(len(self.row), bool)
        moment, holders = moment_number(capture), self.holders
        is_of = holders.replica == self.identities.index(identity)
        return holders.mask(is_of & (holders.since <= moment) & (moment < holders.until), len(self.row))

    def as_held(self, chosen: Mask) -> HeldBatches:
        """Some batches with each replica that held them."""
        held = self.holders.among(np.flatnonzero(chosen))
        columns: dict[str, Any] = {each.name: getattr(self, each.name)[held.row] for each in fields(BatchColumns)}
        return HeldBatches(
            **columns,
            identities=self.identities,
            replica=held.replica,
            since=held.since,
            until=held.until,
            copy=held.copy,
        )

    def covering(self, first: int, last: int, epoch: int) -> Mask:
        """The batches of an epoch that hold both offsets: other branches may have other epochs there."""
        mask: Mask = (self.base_offset <= first) & (self.last_offset >= last) & (self.leader_epoch == epoch)
        return mask


@dataclass(frozen=True, slots=True, eq=False)
class CanonicalBatches(BatchColumns):
    """The distinct batches of the canonical log, ascending."""

    size_bytes: Rows
    record_count: Rows

    @property
    def start_offset(self) -> int:
        return int(self.base_offset[0]) if len(self.base_offset) else 0

    @property
    def end_offset(self) -> int:
        return int(self.last_offset[-1]) + 1 if len(self.base_offset) else 0

    def row_of(self, offset: int) -> int | None:
        """The batch that holds an offset; None where it was not read."""
        row = int(np.searchsorted(self.base_offset, offset, side="right")) - 1
        return row if row >= 0 and offset <= self.last_offset[row] else None

    def epoch_at(self, offset: int) -> int | None:
        row = self.row_of(offset)
        return None if row is None else int(self.leader_epoch[row])

    def time_at(self, offset: int) -> int | None:
        row = self.row_of(offset)
        return None if row is None else int(self.timestamp_ms[row])


def rows_of_held(history: ClusterHistory, held: HeldBatches, places: Any) -> list[dict[str, Any]]:
    """The rows of `batches` at some places of `held`, each as that replica held it."""
    table, copies = history.chunked_table("batches"), history.chunked_table(BATCH_COPIES.name)
    rows: list[dict[str, Any]] = rows_as_held(table, copies, held.row[places], held.copy[places]).to_pylist()
    return rows


@once_per_history
def log_batches(history: ClusterHistory) -> LogBatches:
    """The valid batches that each captured log ever held."""
    table = history.chunked_table("batches")
    in_log = pc.and_(pc.equal(table["source"], "log"), table["valid"]).to_numpy()
    is_present = pc.equal(table["status"], "present").to_numpy()
    rows, gone = np.flatnonzero(in_log & is_present), np.flatnonzero(in_log & ~is_present)
    columns = {name: _int_column(table, name, rows) for name in BATCH_KEY}
    identities, holders = _holders(history, table, rows)
    holders = since_first_held(history, columns, identities, holders, _cut_offs(table, gone))
    if len(gone):
        holders = _until_cut_off(table, gone, identities, holders, columns)
    batches = LogBatches(
        row=rows,
        **columns,
        timestamp_ms=_int_column(table, "max_timestamp_ms", rows),
        is_control=table["is_control"].to_numpy()[rows].astype(bool),
        identities=identities,
        holders=holders,
        is_canonical=canonical_rows(history, columns, identities, holders),
    )
    return replace(batches, holders=_until_log_began_after(history, batches))


@once_per_history
def canonical_log(history: ClusterHistory) -> CanonicalBatches:
    """The canonical log; empty where there is none or its end was not captured."""
    return _distinct_batches(history, np.flatnonzero(log_batches(history).is_canonical))


def replayed_log(history: ClusterHistory) -> CanonicalBatches:
    """The canonical log; where the last captures have none, the batches of the epochs that were replayed before."""
    log = canonical_log(history)
    return log if len(log.base_offset) else _replayed_log(history)


def _holders(history: ClusterHistory, table: pa.Table, rows: Rows) -> tuple[tuple[Identity, ...], BatchHolders]:
    """The replicas that hold rows of `batches`, and which: as the rows name them, and as copies do."""
    replica, known = _replica_numbers(table, rows)
    copies = history.chunked_table(BATCH_COPIES.name)
    of_copies = [identity_of(row) for row in copies.select(REPLICA_NAME).to_pylist()]
    # In an order that does not depend on which of them a row names.
    identities = sorted({*known, *of_copies})
    number_of = {identity: number for number, identity in enumerate(identities)}
    own = holders_of_rows(replica, _moment_column(table, rows))
    own = replace(own, replica=np.array([number_of[each] for each in known], np.int64)[own.replica])
    first = np.searchsorted(rows, copies["first_row"].to_numpy())
    copy_holders = BatchHolders(
        np.array([number_of[each] for each in of_copies], np.int64),
        first,
        first + copies["batch_count"].to_numpy(),
        _moment_column(copies, slice(None)),
        np.full(len(first), STILL_HELD),
        np.arange(len(first)),
    )
    return tuple(identities), joined(own, copy_holders)


def _moment_column(table: pa.Table, rows: Rows | slice) -> Rows:
    time_ms, number = (table[name].to_numpy()[rows].astype(np.int64) for name in ("captured_at_ms", "capture_number"))
    moment: Rows = (time_ms << 20) + number
    return moment


def _int_column(table: pa.Table, name: str, rows: Rows) -> Rows:
    values: Rows = table[name].to_numpy()
    is_all = len(rows) == len(values) and bool((rows[1:] > rows[:-1]).all())
    return (values if is_all else values[rows]).astype(np.int64, copy=False)


def _replica_numbers(table: pa.Table, rows: Rows) -> tuple[Rows, tuple[Identity, ...]]:
    """Numbers the replicas of the rows in order of appearance."""
    columns = table.select(REPLICA_NAME)
    node, directory, root, path = (_codes(columns[name])[rows] for name in REPLICA_NAME)
    # A replica is known by its ids; without them, by where it was read.
    is_unknown = node < 0
    key = np.zeros(len(rows), np.int64)
    for codes, counts in ((node, ~is_unknown), (directory, ~is_unknown), (root, is_unknown), (path, is_unknown)):
        key = key * (int(codes.max(initial=0)) + 2) + np.where(counts, codes, -1) + 1
    encoded = pa.array(key).dictionary_encode()
    numbers = encoded.indices.to_numpy().astype(np.int64)
    if not len(numbers):
        return numbers, ()
    first = np.unique(numbers, return_index=True)[1]
    firsts = columns.take(pa.array(rows[first])).to_pylist()
    return numbers, tuple(identity_of(row) for row in firsts)


def _codes(column: pa.ChunkedArray) -> npt.NDArray[np.int32]:
    """The values of a column as numbers; -1 for null, and for the empty text."""
    array = column.combine_chunks()
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    number = np.array([*(-1 if text == "" else place for place, text in enumerate(texts)), -1], np.int32)
    codes: npt.NDArray[np.int32] = number[pc.fill_null(encoded.indices, -1).to_numpy()]
    return codes


def _cut_offs(table: pa.Table, gone: Rows) -> dict[Identity, list[CutOff]]:
    """By replica when its log was cut off, and from which offset on."""
    replica, names = _replica_numbers(table, gone)
    cut_offs: dict[Identity, list[CutOff]] = {}
    for number, moment, offset in zip(
        replica.tolist(),
        _moment_column(table, gone).tolist(),
        _int_column(table, "base_offset", gone).tolist(),
        strict=True,
    ):
        cut_offs.setdefault(names[number], []).append((moment, offset))
    return cut_offs


def _until_cut_off(
    table: pa.Table,
    gone: Rows,
    identities: tuple[Identity, ...],
    holders: BatchHolders,
    columns: Mapping[str, Rows],
) -> BatchHolders:
    """`holders`, with when batches were contradicted by rows that say truncated (`gone`)."""
    replica, names = _replica_numbers(table, gone)
    number_of = {number: identities.index(name) for number, name in enumerate(names) if name in identities}
    cut_off = zip(*(_int_column(table, name, gone).tolist() for name in BATCH_KEY), strict=True)
    moments: dict[tuple[int, ...], list[int]] = {}
    for number, key, moment in zip(replica.tolist(), cut_off, _moment_column(table, gone).tolist(), strict=True):
        if number in number_of:
            moments.setdefault((number_of[number], *key), []).append(moment)
    rows = np.flatnonzero(np.isin(columns["base_offset"], table["base_offset"].to_numpy()[gone]))
    held = holders.among(rows)
    until = held.until.copy()
    keys = zip(held.replica.tolist(), *(columns[name][held.row].tolist() for name in BATCH_KEY), strict=True)
    for place, (key, since) in enumerate(zip(keys, held.since.tolist(), strict=True)):
        until[place] = min((moment for moment in moments.get(key, ()) if since < moment), default=until[place])
    return holders.ended(held, until)


def _until_log_began_after(history: ClusterHistory, batches: LogBatches) -> BatchHolders:
    """The holders, with when batches that are not on the canonical log had gone from a log that began after them.

    Kafka deletes what a snapshot of committed records covers, and a log that goes on from there has no other records
    below it: they were cut off before.
    """
    if not batches.is_canonical.any():
        return batches.holders
    held = batches.holders.among(np.flatnonzero(~batches.is_canonical))
    is_open = held.until == STILL_HELD
    until = held.until.copy()
    for capture in reversed(captures_in_order(history)):
        identity, moment = identity_of(capture), moment_number(capture)
        if identity in batches.identities:
            # A log begins with a whole batch.
            is_after = is_open & (batches.base_offset[held.row] < (capture["log_start_offset"] or 0))
            is_after &= (held.replica == batches.identities.index(identity)) & (held.since < moment)
            until[is_after] = moment
    return batches.holders.ended(held, until)


@once_per_history
def _replayed_log(history: ClusterHistory) -> CanonicalBatches:
    batches = log_batches(history)
    is_led, _ = led_as_known(history, batches.base_offset, batches.leader_epoch)
    is_held = batches.holders.mask(batches.holders.until == STILL_HELD, len(batches.row))
    chosen = np.flatnonzero(is_led & is_held)
    starts = batches.base_offset[chosen]
    if (starts[1:] > starts[:-1]).all():
        return _distinct_batches(history, chosen)
    # Of several batches at one offset the one that most disks hold, whichever of them was read first.
    number = numbered(*(getattr(batches, name)[chosen] for name in BATCH_KEY))
    held = batches.holders.among(chosen)
    counts = np.bincount(number[np.searchsorted(chosen, held.row[held.until == STILL_HELD])], minlength=len(chosen))
    order = np.lexsort((*(getattr(batches, name)[chosen] for name in BATCH_KEY), -counts[number], starts))
    return _distinct_batches(history, chosen[order])


def _distinct_batches(history: ClusterHistory, chosen: Rows) -> CanonicalBatches:
    batches, table = log_batches(history), history.chunked_table("batches")
    starts = batches.base_offset[chosen]
    is_sorted = bool((starts[1:] > starts[:-1]).all())
    places = chosen if is_sorted else chosen[np.unique(starts, return_index=True)[1]]
    columns: dict[str, Any] = {field.name: getattr(batches, field.name)[places] for field in fields(BatchColumns)}
    more: dict[str, Any] = {name: _int_column(table, name, columns["row"]) for name in ("size_bytes", "record_count")}
    return CanonicalBatches(**columns, **more)


GAP_MS: Final = 2_000
"""What a step between two batches counts at most. A leader writes a NoOpRecord every 500 ms
(metadata.max.idle.interval.ms, KRaftConfigs, Kafka 4.3.0), and voters wait this long for a leader before another
election (quorum.fetch.timeout.ms, QuorumConfig): where more passed, a clock was set, or nothing was written that a
voter could lack."""
OFF_AFTER_MS: Final = 300_000
"""Nodes that wrote nothing for so long were off: idle leaders write a NoOp twice a second (KIP-835)."""
MAX_RECORDS_PER_BATCH: Final = 10_000
"""QuorumController 4.3.0 splits an operation that need not be atomic into batches of this size."""


def operation_ends(history: ClusterHistory, offsets: Rows) -> Rows:
    """The end (exclusive) of the operation that each offset belongs to.

    An operation is one batch, or several where all but the last are full. An offset whose batch was not read, as a
    snapshot's, is an operation of its own.
    """
    log = replayed_log(history)
    if not len(log.base_offset):
        return offsets + 1
    is_full = (log.record_count >= MAX_RECORDS_PER_BATCH) & ~log.is_control
    ends = log.last_offset + 1
    for number in np.flatnonzero(is_full[:-1])[::-1].tolist():
        ends[number] = ends[number + 1]
    batch = np.searchsorted(log.base_offset, offsets, side="right") - 1
    inside = (batch >= 0) & (offsets <= log.last_offset[np.maximum(batch, 0)])
    return np.where(inside, ends[np.maximum(batch, 0)], offsets + 1)


def passed_ms(log: CanonicalBatches) -> Rows:
    """For each batch of the log the milliseconds since the one before it, at most GAP_MS."""
    passed: Rows = np.clip(np.diff(log.timestamp_ms, prepend=log.timestamp_ms[:1]), 0, GAP_MS)
    return passed
