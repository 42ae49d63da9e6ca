"""The canonical log in columns, and where each captured replica leaves it.

`batches` holds every batch of every replica. The canonical log is what a replica holds that ends where the newest
watermark says that the canonical log ends: equal keys are equal bytes, and an equal batch means an equal log before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.rules.history import ClusterHistory

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class LogBatches:
    """Valid batches of logs as columns; `replica` numbers the captured log dirs in `replicas`."""

    replicas: tuple[Mapping[str, Any], ...]
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
    """Whether what one row tells was so after all that the other tells: copies are ordered by their number."""
    return _number(later) > _number(earlier) or bool(later["read_from_ms"] >= earlier["read_to_ms"])


def _number(row: Mapping[str, Any]) -> int:
    return int(row.get("capture_number") or 0)


def log_batches(history: ClusterHistory) -> LogBatches:
    """The valid batches that each captured log ever held."""
    return history.known("log_batches", lambda: _log_batches(history))


def canonical_log(history: ClusterHistory) -> CanonicalLog:
    """The canonical log; empty where there is none or its end was not captured."""
    return history.known("canonical_log", lambda: _canonical_log(history))


def _log_batches(history: ClusterHistory) -> LogBatches:
    table = history.table("batches")
    wanted = pc.and_(pc.equal(table["source"], "log"), pc.and_(table["valid"], pc.equal(table["status"], "present")))
    rows = np.flatnonzero(_numpy(wanted))
    table = table.take(pa.array(rows))
    columns = {
        name: _numpy(table[name]).astype(np.int64)
        for name in (
            *("base_offset", "last_offset", "leader_epoch", "crc"),
            *("max_timestamp_ms", "size_bytes", "position", "record_count"),
        )
    }
    replica, replicas = _replicas(table)
    is_canonical = _is_canonical(history, replica, columns)
    return LogBatches(
        replicas,
        replica,
        rows,
        columns["base_offset"],
        columns["last_offset"],
        columns["leader_epoch"],
        columns["crc"],
        columns["max_timestamp_ms"],
        _numpy(table["is_control"]).astype(bool),
        is_canonical,
        columns["size_bytes"],
        columns["position"],
    )


def _replicas(table: pa.Table) -> tuple[Rows, tuple[Mapping[str, Any], ...]]:
    """Numbers the log dirs (root, path) in order of appearance."""
    names = ("node_id", "directory_id", "root", "path", "capture")
    joined = pc.binary_join_element_wise(table["root"].cast("string"), table["path"].cast("string"), "\x00")
    if isinstance(joined, pa.ChunkedArray):
        joined = joined.combine_chunks()
    encoded = joined.dictionary_encode()
    numbers = _numpy(encoded.indices).astype(np.int64)
    if not len(numbers):
        return numbers, ()
    first = np.unique(numbers, return_index=True)[1]
    return numbers, tuple(table.select(names).take(pa.array(first)).to_pylist())


def _is_canonical(history: ClusterHistory, replica: Rows, columns: Mapping[str, Rows]) -> npt.NDArray[np.bool_]:
    newest = newest_watermark(history)
    if newest is None or newest["canonical_end_offset"] is None or not len(replica):
        return np.zeros(len(replica), bool)
    is_end = (columns["last_offset"] + 1 == newest["canonical_end_offset"]) & (
        columns["leader_epoch"] == newest["canonical_epoch"]
    )
    crcs = np.unique(columns["crc"][is_end])
    if len(crcs) != 1:
        return np.zeros(len(replica), bool)
    holders = np.unique(replica[is_end])
    from_holders = np.isin(replica, holders) & (columns["last_offset"] < newest["canonical_end_offset"])
    keys = np.stack([columns[name] for name in ("base_offset", "last_offset", "leader_epoch", "crc")], axis=1)
    number = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
    return np.isin(number, np.unique(number[from_holders & _is_last_version(replica, columns)]))


def _is_last_version(replica: Rows, columns: Mapping[str, Rows]) -> npt.NDArray[np.bool_]:
    """False for batches that the same log dir replaced later: those that a batch of a newer epoch overlaps."""
    order = np.lexsort((columns["leader_epoch"], columns["base_offset"], replica))
    is_last = np.ones(len(replica), bool)
    if len(order) < 2:
        return is_last
    overlap = (replica[order][1:] == replica[order][:-1]) & (
        columns["base_offset"][order][1:] <= columns["last_offset"][order][:-1]
    )
    if not overlap.any():
        return is_last
    # rare: a log dir with more than one version of an offset; keep what no batch of a higher epoch begins at or below
    for number in np.unique(replica[order][1:][overlap]).tolist():
        mine = np.flatnonzero(replica == number)
        by_epoch = mine[np.lexsort((columns["base_offset"][mine], columns["leader_epoch"][mine]))]
        lowest_above = np.minimum.accumulate(columns["base_offset"][by_epoch][::-1])[::-1]
        following = np.append(lowest_above[1:], np.iinfo(np.int64).max)
        is_last[by_epoch] = following > columns["last_offset"][by_epoch]
    return is_last


def _canonical_log(history: ClusterHistory) -> CanonicalLog:
    batches = log_batches(history)
    chosen = np.flatnonzero(batches.is_canonical)
    _, first = np.unique(batches.base_offset[chosen], return_index=True)
    rows = chosen[first]
    count = _numpy(history.table("batches")["record_count"].take(pa.array(batches.row[rows]))).astype(np.int64)
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
