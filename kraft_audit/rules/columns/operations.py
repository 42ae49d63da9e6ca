"""Which records one operation of a controller wrote: what happens within it is judged at its end."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow.compute as pc

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.frame import Rows, distinct
from kraft_audit.rules.columns.log_batches import replayed_log
from kraft_audit.rules.rule_model import RowNumbers

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


def batches_of_operations(history: ClusterHistory, offsets: Rows) -> RowNumbers:
    """The rows of `batches` that hold the operations of some offsets, from each offset to the operation's end."""
    table = history.chunked_table("batches")
    base, last = (table[name].to_numpy() for name in ("base_offset", "last_offset"))
    wanted = np.zeros(len(base), bool)
    starts = distinct(offsets)
    ends = operation_ends(history, starts)
    if len(starts):
        # The last operation that begins at or before a batch's end: operations do not overlap.
        place = np.searchsorted(starts, last, side="right") - 1
        wanted = (place >= 0) & (base < ends[np.maximum(place, 0)])
    in_log = pc.equal(table["source"], "log").to_numpy()
    return "batches", np.flatnonzero(wanted & in_log)
