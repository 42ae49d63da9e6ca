"""How far a voter's log ends behind what is committed, in records and in time of the log."""

from __future__ import annotations

from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import replica_end
from kraft_audit.rules.columns.log_batches import canonical_log, passed_ms


def lag_below(history: ClusterHistory, row: TableRow, low: int) -> tuple[int, float]:
    """How many records below `low` a replica lacks, and how many seconds of the log they span.

    One that ends where the captured log begins, or before, lacks all of it.
    """
    log, end = canonical_log(history), replica_end(row)
    if end >= low or not len(log.base_offset):
        return max(low - end, 0), 0.0
    last, first = log.row_of(low - 1), 0 if end <= log.base_offset[0] else log.row_of(end - 1)
    if last is None or first is None:
        return low - end, 0.0
    passed = passed_ms(log)
    return low - end, float(passed[first + 1 : last + 1].sum()) / 1000
