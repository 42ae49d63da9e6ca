"""The canonical log in columns, and where each captured replica leaves it.

`batches` holds every batch of every replica. The canonical log is what a replica holds that ends where the newest
watermark says that the canonical log ends: equal keys are equal bytes, and an equal batch means an equal log before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.numbering import numbered

Rows = npt.NDArray[np.int64]


Identity = tuple[int | None, str]
"""A replica over time: node id and directory id; the path of its folder where meta.properties does not tell."""
KEY: Final = ("base_offset", "last_offset", "leader_epoch", "crc")
FOR_EVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class LogBatches:
    """Valid batches of logs as columns; `replica` numbers the replicas in `identities`.

    A replica held a batch from the capture `since` on until the capture `until`: (captured_at_ms, capture_number) as
    one number that `moment_number` gives; FOR_EVER where no later capture lacks it.
    """

    identities: tuple[Identity, ...]
    replica: Rows
    row: Rows
    base_offset: Rows
    last_offset: Rows
    leader_epoch: Rows
    crc: Rows
    timestamp_ms: Rows
    is_control: npt.NDArray[np.bool_]
    is_canonical: npt.NDArray[np.bool_]
    size_bytes: Rows
    position: Rows
    since: Rows
    until: Rows

    def held_by(self, capture: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        """The batches that a captured replica held when it was captured; what retention deleted since included."""
        identity = identity_of(capture)
        if identity not in self.identities:
            return np.zeros(len(self.replica), bool)
        moment = moment_number(capture)
        mine: npt.NDArray[np.bool_] = self.replica == self.identities.index(identity)
        return mine & (self.since <= moment) & (moment < self.until)


def identity_of(row: Mapping[str, Any]) -> Identity:
    """Which replica a row of `captures` or `batches` is about."""
    if row["node_id"] is None:
        return None, f"{row['root']}\0{row['path']}"
    return row["node_id"], row["directory_id"] or ""


def moment_number(row: Mapping[str, Any]) -> int:
    """When a capture was taken, as a number that orders captures: time, then number within the plan."""
    return (int(row["captured_at_ms"]) << 20) + int(row["capture_number"])


@dataclass(frozen=True, slots=True, eq=False)
class CanonicalLog:
    """The distinct batches of the canonical log, ascending."""

    base_offset: Rows
    last_offset: Rows
    leader_epoch: Rows
    crc: Rows
    timestamp_ms: Rows
    is_control: npt.NDArray[np.bool_]
    size_bytes: Rows
    record_count: Rows

    @property
    def start_offset(self) -> int:
        return int(self.base_offset[0]) if len(self.base_offset) else 0

    @property
    def end_offset(self) -> int:
        return int(self.last_offset[-1]) + 1 if len(self.base_offset) else 0

    def holds(self, offset: int) -> bool:
        """Whether the record at `offset` lies in a batch that was read."""
        return self.row_of(offset) is not None

    def row_of(self, offset: int) -> int | None:
        """The batch that holds an offset."""
        row = int(np.searchsorted(self.base_offset, offset, side="right")) - 1
        return row if row >= 0 and offset <= self.last_offset[row] else None

    def epoch_at(self, offset: int) -> int | None:
        row = self.row_of(offset)
        return None if row is None else int(self.leader_epoch[row])

    def time_at(self, offset: int) -> int | None:
        row = self.row_of(offset)
        return None if row is None else int(self.timestamp_ms[row])


def newest_watermark(history: ClusterHistory) -> dict[str, Any] | None:
    """The committed interval of the last captures."""
    rows = watermarks_in_order(history)
    return rows[-1] if rows else None


def watermarks_in_order(history: ClusterHistory) -> list[dict[str, Any]]:
    """The committed intervals, that of the oldest captures first."""
    return sorted(history.rows("watermarks"), key=lambda row: (_number(row), row["read_to_ms"], row["low"]))


def is_after(later: Mapping[str, Any], earlier: Mapping[str, Any]) -> bool:
    """Whether what one row tells was so after all that the other tells: copies are ordered by their number, not by
    when they are read."""
    if _number(later) != _number(earlier):
        return _number(later) > _number(earlier)
    return bool(later["read_from_ms"] >= earlier["read_to_ms"])


def proves_for(watermark: Mapping[str, Any], capture: Mapping[str, Any]) -> bool:
    """Whether what a watermark proves was so when a capture was taken: it is that of its set of captures, or older."""
    if watermark["capture"] and watermark["capture"] == capture["capture"]:
        return True
    return not is_after(watermark, capture)


def _number(row: Mapping[str, Any]) -> int:
    return int(row["capture_number"])


def log_batches(history: ClusterHistory) -> LogBatches:
    """The valid batches that each captured log ever held."""
    return history.known("log_batches", lambda: _log_batches(history))


def canonical_log(history: ClusterHistory) -> CanonicalLog:
    """The canonical log; empty where there is none or its end was not captured."""
    return history.known("canonical_log", lambda: _canonical_log(history))


def _log_batches(history: ClusterHistory) -> LogBatches:
    table = history.as_told("batches")
    in_log = pc.and_(pc.equal(table["source"], "log"), table["valid"])
    is_present = pc.equal(table["status"], "present")
    rows = np.flatnonzero(_numpy(pc.and_(in_log, is_present)))
    gone = np.flatnonzero(_numpy(pc.and_(in_log, pc.invert(is_present))))
    everything = np.concatenate([rows, gone])
    columns = {
        name: _numpy(table[name])[everything].astype(np.int64)
        for name in (
            *("base_offset", "last_offset", "leader_epoch", "crc"),
            *("max_timestamp_ms", "size_bytes", "position", "captured_at_ms", "capture_number"),
        )
    }
    replica, identities = _replicas(table, everything)
    moment = (columns["captured_at_ms"] << 20) + columns["capture_number"]
    until = _until(replica, columns, moment, len(rows))
    kept = {name: values[: len(rows)] for name, values in columns.items()}
    is_canonical = _is_canonical(history, replica[: len(rows)], kept, until)
    return LogBatches(
        identities,
        replica[: len(rows)],
        rows,
        kept["base_offset"],
        kept["last_offset"],
        kept["leader_epoch"],
        kept["crc"],
        kept["max_timestamp_ms"],
        _numpy(table["is_control"])[rows].astype(bool),
        is_canonical,
        kept["size_bytes"],
        kept["position"],
        moment[: len(rows)],
        until,
    )


def _replicas(table: pa.Table, rows: Rows) -> tuple[Rows, tuple[Identity, ...]]:
    """Numbers the replicas of some rows in order of appearance."""
    names = ("node_id", "directory_id", "root", "path")
    columns = table.select(names)
    node, directory, root, path = (_codes(columns[name])[rows] for name in names)
    # A replica is known by its ids, and only without them by where it was read.
    is_unknown = node < 0
    key = np.zeros(len(rows), np.int64)
    for codes, counts in ((node, ~is_unknown), (directory, ~is_unknown), (root, is_unknown), (path, is_unknown)):
        key = key * (int(codes.max(initial=0)) + 2) + np.where(counts, codes, -1) + 1
    encoded = pa.array(key).dictionary_encode()
    numbers = _numpy(encoded.indices).astype(np.int64)
    if not len(numbers):
        return numbers, ()
    first = np.unique(numbers, return_index=True)[1]
    firsts = columns.take(pa.array(rows[first])).to_pylist()
    return numbers, tuple(identity_of(row) for row in firsts)


def _codes(column: pa.ChunkedArray) -> npt.NDArray[np.int32]:
    """The values of a column as numbers; -1 for null, and for the empty text."""
    told = column.combine_chunks()
    encoded = told if pa.types.is_dictionary(told.type) else told.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    number = np.array([*(-1 if text == "" else place for place, text in enumerate(texts)), -1], np.int32)
    codes: npt.NDArray[np.int32] = number[_numpy(pc.fill_null(encoded.indices, -1))]
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
        earlier = [one for one in present_of.get(int(number[row]), ()) if moment[one] < moment[row]]
        for one in earlier:
            until[one] = min(int(until[one]), int(moment[row]))
    return until


def _is_canonical(
    history: ClusterHistory, replica: Rows, columns: Mapping[str, Rows], until: Rows
) -> npt.NDArray[np.bool_]:
    newest = newest_watermark(history)
    if newest is None or newest["canonical_end_offset"] is None or not len(replica):
        return np.zeros(len(replica), bool)
    is_end = (columns["last_offset"] + 1 == newest["canonical_end_offset"]) & (
        columns["leader_epoch"] == newest["canonical_epoch"]
    )
    crcs = np.unique(columns["crc"][is_end])
    if len(crcs) != 1:
        return np.zeros(len(replica), bool)
    number = numbered(*(columns[name] for name in KEY))
    lasts = (until == FOR_EVER) & (columns["last_offset"] < newest["canonical_end_offset"])
    from_holders = lasts & np.isin(replica, np.unique(replica[is_end]))
    count = 0
    while count < (chosen := np.unique(number[from_holders])).size:
        count = chosen.size
        from_holders |= lasts & _is_below_common(
            replica, columns["last_offset"], from_holders | np.isin(number, chosen)
        )
    rows = np.flatnonzero(from_holders)[np.unique(number[from_holders], return_index=True)[1]]
    rows = rows[_is_of_its_epoch(history, columns["base_offset"][rows], columns["leader_epoch"][rows])]
    return np.isin(number, number[_written_last(rows, columns)])


def _is_below_common(replica: Rows, last_offset: Rows, is_common: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The batches of each replica up to its newest one that the canonical log holds: equal there, equal below."""
    reach = np.full(int(replica.max()) + 1, -1, np.int64)
    np.maximum.at(reach, replica[is_common], last_offset[is_common])
    below: npt.NDArray[np.bool_] = last_offset <= reach[replica]
    return below


def _is_of_its_epoch(history: ClusterHistory, base_offset: Rows, leader_epoch: Rows) -> npt.NDArray[np.bool_]:
    """Whether no other epoch is told to have written the canonical log there.

    A disk that began anew at a snapshot may have held others below it, which nothing says were cut off.
    """
    runs = []
    for row in history.rows("leader_epochs"):
        end = FOR_EVER if row["to_offset"] is None else row["to_offset"]
        if row["canonical"] and row["from_offset"] is not None and row["from_offset"] < end:
            runs.append((row["from_offset"], end, row["epoch"]))
    if not runs:
        return np.ones(len(base_offset), bool)
    starts, ends, epochs = np.array(sorted(runs), np.int64).T
    place = np.searchsorted(starts, base_offset, side="right") - 1
    is_told = (place >= 0) & (base_offset < ends[place])
    is_another: npt.NDArray[np.bool_] = is_told & (leader_epoch != epochs[place])
    return ~is_another


def _written_last(rows: Rows, columns: Mapping[str, Rows]) -> Rows:
    """Distinct batches without those that were overwritten in a later epoch, where no epoch is told."""
    base, last = columns["base_offset"], columns["last_offset"]
    ordered = rows[np.argsort(base[rows], kind="stable")]
    reach = np.maximum.accumulate(last[ordered])
    begins = np.append(True, base[ordered][1:] > reach[:-1])[: len(ordered)]
    if begins.all():
        return ordered
    groups = np.split(ordered, np.flatnonzero(begins)[1:])
    return np.concatenate([_of_latest_epochs(group, columns) if len(group) > 1 else group for group in groups])


def _of_latest_epochs(overlapping: Rows, columns: Mapping[str, Rows]) -> Rows:
    """Of batches that overlap, those that no batch of a later epoch which stands overlaps."""
    starts: list[int] = []
    ends: list[int] = []
    kept: list[int] = []
    base, last, epoch = (columns[name][overlapping] for name in ("base_offset", "last_offset", "leader_epoch"))
    for place in np.lexsort((base, -epoch)).tolist():
        start, end = int(base[place]), int(last[place])
        at = bisect_left(starts, start)
        if (at == 0 or ends[at - 1] < start) and (at == len(starts) or end < starts[at]):
            starts.insert(at, start)
            ends.insert(at, end)
            kept.append(place)
    return overlapping[kept]


def _canonical_log(history: ClusterHistory) -> CanonicalLog:
    batches = log_batches(history)
    chosen = np.flatnonzero(batches.is_canonical)
    _, first = np.unique(batches.base_offset[chosen], return_index=True)
    rows = chosen[first]
    count = _numpy(history.as_told("batches")["record_count"].take(pa.array(batches.row[rows]))).astype(np.int64)
    return CanonicalLog(
        batches.base_offset[rows],
        batches.last_offset[rows],
        batches.leader_epoch[rows],
        batches.crc[rows],
        batches.timestamp_ms[rows],
        batches.is_control[rows],
        batches.size_bytes[rows],
        count,
    )


def _numpy(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False) if isinstance(array, pa.Array) else array.to_numpy()
    return values
