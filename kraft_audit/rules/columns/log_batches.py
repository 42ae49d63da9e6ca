"""The batches of all captured logs in columns, and the canonical log of them.

`batches` holds every batch of every replica. The canonical log is what a replica holds that ends where the newest
watermark says that the canonical log ends: equal keys are equal bytes, and an equal batch means an equal log before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.captures import (
    ReplicaIdentity,
    captures_in_order,
    identity_of,
    moment_number,
    newest_watermark,
)
from kraft_audit.rules.columns.frame import Mask, Rows, distinct, numbered

KEY: Final = ("base_offset", "last_offset", "leader_epoch", "crc")
LOG_BATCHES: Final = "log_batches"
CANONICAL_LOG: Final = "canonical_log"
"""What is derived of `batches`, and of them with `watermarks` and `leader_epochs`, is known by."""
FOR_EVER: Final = np.iinfo(np.int64).max


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
class LogBatches(BatchColumns):
    """The batches of all replicas; `replica` numbers the replicas in `identities`.

    A replica held a batch from the capture `since` on until the capture `until`, as `moment_number` gives them;
    FOR_EVER where no later capture lacks it.
    """

    identities: tuple[ReplicaIdentity, ...]
    replica: Rows
    since: Rows
    until: Rows
    is_canonical: Mask

    def held_by(self, capture: Mapping[str, Any]) -> Mask:
        """The batches that a captured replica held when it was captured; what retention deleted since included."""
        identity = identity_of(capture)
        if identity not in self.identities:
            return np.zeros(len(self.replica), bool)
        moment = moment_number(capture)
        mine: Mask = self.replica == self.identities.index(identity)
        return mine & (self.since <= moment) & (moment < self.until)

    def covering(self, first: int, last: int, epoch: int) -> Mask:
        """The batches of an epoch that hold both offsets: other branches may have other epochs there."""
        mask: Mask = (self.base_offset <= first) & (self.last_offset >= last) & (self.leader_epoch == epoch)
        return mask

    def is_held(self, capture: Mapping[str, Any], offset: int, epoch: int) -> bool:
        """Whether a replica, as captured, held the record at `offset` as written in `epoch`."""
        return bool((self.covering(offset, offset, epoch) & self.held_by(capture)).any())


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


def log_batches(history: ClusterHistory) -> LogBatches:
    """The valid batches that each captured log ever held."""
    return history.known(LOG_BATCHES, lambda: _log_batches(history))


def canonical_log(history: ClusterHistory) -> CanonicalBatches:
    """The canonical log; empty where there is none or its end was not captured."""
    return history.known(CANONICAL_LOG, lambda: _canonical_log(history))


def replayed_log(history: ClusterHistory) -> CanonicalBatches:
    """The canonical log; where the last captures have none, the batches of the epochs that were replayed before."""
    log = canonical_log(history)
    return log if len(log.base_offset) else history.known("replayed log", lambda: _replayed_log(history))


def _log_batches(history: ClusterHistory) -> LogBatches:
    table = history.chunked_table("batches")
    in_log = pc.and_(pc.equal(table["source"], "log"), table["valid"]).to_numpy()
    is_present = pc.equal(table["status"], "present").to_numpy()
    # What one capture held and a later one lacks comes after what is present.
    rows = np.flatnonzero(in_log & is_present)
    everything = np.concatenate([rows, np.flatnonzero(in_log & ~is_present)])
    columns = {name: _int_column(table, name, everything) for name in KEY}
    replica, identities = _replica_numbers(table, everything)
    moment = _int_column(table, "captured_at_ms", everything) << 20
    moment += _int_column(table, "capture_number", everything)
    until = _until(replica, columns, moment, len(rows))
    replica = replica[: len(rows)]
    present = {name: columns[name][: len(rows)] for name in KEY}
    batches = LogBatches(
        row=rows,
        **present,
        timestamp_ms=_int_column(table, "max_timestamp_ms", rows),
        is_control=table["is_control"].to_numpy()[rows].astype(bool),
        identities=identities,
        replica=replica,
        since=_of_one_value(moment[: len(rows)]),
        until=_of_one_value(until),
        is_canonical=_is_canonical(history, replica, identities, present, until),
    )
    return replace(batches, until=_until_log_began_after(history, batches))


def _of_one_value(values: Rows) -> Rows:
    """The same values; in no memory, not to be written to, where all are one: disks of one round, nothing cut off."""
    if len(values) and values.min() == values.max():
        return np.broadcast_to(values[0], values.shape)
    return values


def _int_column(table: pa.Table, name: str, rows: Rows) -> Rows:
    values: Rows = table[name].to_numpy()
    is_all = len(rows) == len(values) and bool((rows[1:] > rows[:-1]).all())
    return (values if is_all else values[rows]).astype(np.int64, copy=False)


def _replica_numbers(table: pa.Table, rows: Rows) -> tuple[Rows, tuple[ReplicaIdentity, ...]]:
    """Numbers the replicas of the rows in order of appearance."""
    names = ("node_id", "directory_id", "root", "path")
    columns = table.select(names)
    node, directory, root, path = (_codes(columns[name])[rows] for name in names)
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


def _until(replica: Rows, columns: Mapping[str, Rows], moment: Rows, count: int) -> Rows:
    """When each of the first `count` rows, which say present, was contradicted by a row that says truncated."""
    until = np.full(count, FOR_EVER, np.int64)
    if len(replica) == count:
        return until
    number = numbered(replica, *(columns[name] for name in KEY))
    present_of: dict[int, list[int]] = {}
    for row in np.flatnonzero(np.isin(number[:count], number[count:])).tolist():
        present_of.setdefault(int(number[row]), []).append(row)
    for row in range(count, len(replica)):
        earlier = [place for place in present_of.get(int(number[row]), ()) if moment[place] < moment[row]]
        for place in earlier:
            until[place] = min(int(until[place]), int(moment[row]))
    return until


def _until_log_began_after(history: ClusterHistory, batches: LogBatches) -> Rows:
    """`until`, with when batches that are not on the canonical log had gone from a log that began after them.

    Kafka deletes what a snapshot of committed records covers, and a log that goes on from there has no other records
    below it: they were cut off before.
    """
    rows = np.flatnonzero(~batches.is_canonical & (batches.until == FOR_EVER))
    if not len(rows) or not batches.is_canonical.any():
        return batches.until
    until = batches.until.copy()
    for capture in reversed(captures_in_order(history)):
        identity, moment = identity_of(capture), moment_number(capture)
        if identity in batches.identities:
            is_after = batches.last_offset[rows] < (capture["log_start_offset"] or 0)
            is_after &= (batches.replica[rows] == batches.identities.index(identity)) & (batches.since[rows] < moment)
            until[rows[is_after]] = moment
    return until


def _is_altered(
    history: ClusterHistory, replica: Rows, identities: Sequence[ReplicaIdentity], columns: Mapping[str, Rows]
) -> Mask:
    """Which batches are another version of what most disks hold at the same offsets: they are not the log."""
    is_altered = np.zeros(len(replica), bool)
    for run in history.altered or ():
        if run.is_tied:
            continue
        holders = {
            identity_of({name: getattr(plan, name) for name in ("node_id", "directory_id", "root", "path")})
            for held in run.versions[1:]
            for plan in held
        }
        numbers = [number for number, identity in enumerate(identities) if identity in holders]
        within = (columns["base_offset"] >= run.from_offset) & (columns["last_offset"] < run.to_offset)
        is_altered |= within & (columns["leader_epoch"] == run.epoch) & np.isin(replica, numbers)
    return is_altered


def _is_canonical(
    history: ClusterHistory,
    replica: Rows,
    identities: Sequence[ReplicaIdentity],
    columns: Mapping[str, Rows],
    until: Rows,
) -> Mask:
    newest = newest_watermark(history)
    if newest is None or newest["canonical_end_offset"] is None or not len(replica):
        return np.zeros(len(replica), bool)
    is_end = (columns["last_offset"] + 1 == newest["canonical_end_offset"]) & (
        columns["leader_epoch"] == newest["canonical_epoch"]
    )
    is_true = ~_is_altered(history, replica, identities, columns)
    is_end &= is_true
    crcs = distinct(columns["crc"][is_end])
    if len(crcs) != 1:
        return np.zeros(len(replica), bool)
    number = _batch_numbers(replica, columns)
    lasts = (until == FOR_EVER) & (columns["last_offset"] < newest["canonical_end_offset"]) & is_true
    from_holders = lasts & np.isin(replica, distinct(replica[is_end]))
    is_led, is_led_otherwise = _led_as_known(history, columns["base_offset"], columns["leader_epoch"])
    count, chosen = 0, _marked(number, from_holders)
    while count < (size := int(chosen.sum())):
        count = size
        # Logs that begin with a snapshot hold no batch of those that end with the snapshot's last record.
        ends_there = lasts & is_led & np.isin(columns["last_offset"] + 1, columns["base_offset"][from_holders])
        is_common = from_holders | chosen[number] | ends_there
        from_holders |= lasts & _is_below_common(replica, columns["last_offset"], is_common)
        chosen = _marked(number, from_holders)
    rows = np.flatnonzero(from_holders)[np.unique(number[from_holders], return_index=True)[1]]
    rows = rows[~is_led_otherwise[rows]]
    return _marked(number, _written_last(rows, columns))[number]


def _marked(number: Rows, rows: Rows | Mask) -> Mask:
    """By number, whether one of the rows has it."""
    marked = np.zeros(len(number) + 1, bool)
    marked[number[rows]] = True
    return marked


def _batch_numbers(replica: Rows, columns: Mapping[str, Rows]) -> Rows:
    """A number for each row, below the count of rows: equal exactly where the batches are.

    Mostly each log is a stretch of the longest one: then a batch's number is its place there, and nothing is sorted.
    """
    rows_of = [np.flatnonzero(replica == each) for each in range(int(replica.max()) + 1)]
    longest = max(rows_of, key=len)
    log = {name: columns[name][longest] for name in KEY}
    starts = log["base_offset"]
    if (starts[1:] > starts[:-1]).all():
        number = np.empty(len(replica), np.int64)
        for rows in rows_of:
            place = int(np.searchsorted(starts, columns["base_offset"][rows[0]])) if len(rows) else 0
            if not all(np.array_equal(log[name][place : place + len(rows)], columns[name][rows]) for name in KEY):
                break
            number[rows] = place + np.arange(len(rows))
        else:
            return number
    return numbered(*(columns[name] for name in KEY))


def _is_below_common(replica: Rows, last_offset: Rows, is_common: Mask) -> Mask:
    """The batches of each replica up to its newest one that the canonical log holds: equal there, equal below."""
    reach = np.full(int(replica.max()) + 1, -1, np.int64)
    np.maximum.at(reach, replica[is_common], last_offset[is_common])
    below: Mask = last_offset <= reach[replica]
    return below


def _led_as_known(history: ClusterHistory, base_offset: Rows, leader_epoch: Rows) -> tuple[Mask, Mask]:
    """Whether `leader_epochs` says that this epoch wrote the canonical log there, and whether that another one did.

    A disk that began again at a snapshot may have held others below it, which no row says were cut off.
    """
    runs = []
    for row in history.rows("leader_epochs"):
        end = FOR_EVER if row["to_offset"] is None else row["to_offset"]
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


def _canonical_log(history: ClusterHistory) -> CanonicalBatches:
    return _distinct_batches(history, np.flatnonzero(log_batches(history).is_canonical))


def _replayed_log(history: ClusterHistory) -> CanonicalBatches:
    batches = log_batches(history)
    is_led, _ = _led_as_known(history, batches.base_offset, batches.leader_epoch)
    return _distinct_batches(history, np.flatnonzero(is_led & (batches.until == FOR_EVER)))


def _distinct_batches(history: ClusterHistory, chosen: Rows) -> CanonicalBatches:
    batches, table = log_batches(history), history.chunked_table("batches")
    places = chosen[np.unique(batches.base_offset[chosen], return_index=True)[1]]
    columns: dict[str, Any] = {field.name: getattr(batches, field.name)[places] for field in fields(BatchColumns)}
    more: dict[str, Any] = {name: _int_column(table, name, columns["row"]) for name in ("size_bytes", "record_count")}
    return CanonicalBatches(**columns, **more)
