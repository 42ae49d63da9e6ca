"""Where the controller's operations end: within one, a partition may name a broker that its last record fences."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from kraft_audit.rules.canonical import canonical_log
from kraft_audit.rules.history import ClusterHistory

MAX_RECORDS_PER_BATCH: Final = 10_000
"""QuorumController 4.3.0 cuts an operation that need not be atomic into batches of so many records."""


def operation_ends(history: ClusterHistory, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The end (exclusive) of the operation that each offset belongs to.

    An operation is one batch, or several where all but the last are full. An offset of which the batch was not read
    (a snapshot's state) is an operation of its own.
    """
    log = canonical_log(history)
    if not len(log.base_offset):
        return offsets + 1
    is_full = (log.record_count >= MAX_RECORDS_PER_BATCH) & ~log.is_control
    ends = log.last_offset + 1
    for number in np.flatnonzero(is_full[:-1])[::-1].tolist():
        ends[number] = ends[number + 1]
    batch = np.searchsorted(log.base_offset, offsets, side="right") - 1
    inside = (batch >= 0) & (offsets <= log.last_offset[np.maximum(batch, 0)])
    return np.where(inside, ends[np.maximum(batch, 0)], offsets + 1)
