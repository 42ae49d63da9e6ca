"""Records of the leader's epoch that no majority of the voters holds, and for how long the leader wrote on without one.

A leader that works waits for its followers for milliseconds. A longer wait means that they do not fetch, or that their
disks were read earlier than the leader's. Times of files tell the two apart only where the copies themselves wrote
them, and at different times: what a copy keeps is when a disk was written, not when it was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, once_per_history
from kraft_audit.rules.columns.captures import (
    is_no_evidence,
    newest_round,
    newest_watermark,
    replica_end,
    watermarks_in_order,
)
from kraft_audit.rules.columns.log_batches import canonical_log, passed_ms
from kraft_audit.rules.columns.voter_sets import current_set, voter_ids
from kraft_audit.text.readable import listed, nouns

WAITS_AFTER_MS: Final = 5_000
"""Records that wait for longer, in time of the log, are no delay of followers that fetch; KV013 has the same limit."""
STALLED_AFTER_MS: Final = 10_000
"""A quorum whose records wait for longer, on disks that are surely of one moment, counts as stalled."""
ONE_MOMENT_MS: Final = 1_000
"""Copies that were made together have times so near."""


@dataclass(frozen=True, slots=True)
class UnheldRecords:
    """Offsets [from_offset, to_offset) that only `holders` of the captured voters hold.

    `waited_ms` is the log's time since the last record that a majority holds, or since the leader's election;
    `since_ms` is when the first of them was appended. `is_stalled`: the disks are of one moment, and the wait is long.
    `are_times_equal`: all files of all disks have one time. `unread` are voters that may hold them too.
    """

    from_offset: int
    to_offset: int
    holders: tuple[int, ...]
    lagging: tuple[int, ...]
    waited_ms: int
    since_ms: int
    is_stalled: bool
    are_times_equal: bool
    unread: tuple[int, ...] = ()

    @property
    def reason(self) -> str:
        """What waits, who lacks it, and what leaves open whether the quorum works."""
        waited = (
            f"offsets {self.from_offset} to {self.to_offset - 1} wait for a majority, {self.waited_ms / 1000:.1f} s of "
            "the log"
        )
        if self.is_stalled:
            return f"{waited}; {listed(self.lagging)} lag behind"
        does, its = ("does", "its copy is") if len(self.lagging) == 1 else ("do", "their copies are")
        holds = "holds" if len(self.holders) == 1 else "hold"
        text = f"{waited}: only {nouns('voter', self.holders)} {holds} them. Either {nouns('voter', self.lagging)} "
        text += f"{does} not fetch, or {its} older"
        if self.unread:
            text += f", or {nouns('voter', self.unread)}, not read here, hold{'s' * (len(self.unread) == 1)} them"
        times = "all files have one time" if self.are_times_equal else "the times of the files do not tell"
        return f"{text}; {times}"


@once_per_history
def unheld_records(history: ClusterHistory) -> UnheldRecords | None:
    """What waits for a majority for longer than WAITS_AFTER_MS of the log; None where nothing does, or where the
    lagging disks were read at least so much earlier.

    What an earlier leader left above the high watermark has waited since before this one was elected, and is not
    counted. An idle leader of before metadata.version 3.3-IV1 writes nothing: at most 2 s pass from batch to batch.
    """
    newest, log = newest_watermark(history), canonical_log(history)
    if newest is None or newest["high"] is None or newest["canonical_end_offset"] is None:
        return None
    voters = voter_ids(current_set(history))
    rows = [row for row in newest_round(history) if row["node_id"] in voters]
    # A voter that was not read may hold all of it: then only what is proven is known to be held by a majority.
    unread = tuple(sorted(voters - {row["node_id"] for row in rows if not is_no_evidence(row)}))
    high, end = newest["low"] if unread else newest["high"], newest["canonical_end_offset"]
    if high >= end or not len(log.base_offset):
        return None
    own_from = int(log.base_offset[np.searchsorted(log.leader_epoch, log.leader_epoch[-1])])
    begin = int(log.base_offset[0])
    first, last = log.row_of(max(high - 1, own_from, begin)), log.row_of(end - 1)
    since_ms = log.time_at(max(high, own_from, begin))
    if first is None or last is None or since_ms is None:
        return None
    waited_ms = int(passed_ms(log)[first + 1 : last + 1].sum())
    if waited_ms <= WAITS_AFTER_MS:
        return None
    behind, ahead = ([row for row in rows if (replica_end(row) <= high) is is_behind] for is_behind in (True, False))
    if not ahead:
        return None  # an observer's copy alone reaches further: no captured voter has them
    apart_ms = _read_apart_ms(history, behind, ahead)
    if apart_ms is not None and apart_ms >= waited_ms:
        return None
    written_ms = log.time_at(end - 1)
    is_proven = written_ms is not None and _is_proven_stalled(history, high, written_ms)
    is_live = waited_ms > STALLED_AFTER_MS + _reading_ms(rows) and _are_read_live(history, rows)
    return UnheldRecords(
        high,
        end,
        tuple(sorted(row["node_id"] for row in ahead)),
        tuple(sorted(row["node_id"] for row in behind)),
        waited_ms,
        since_ms,
        (is_proven or is_live) and not unread,
        apart_ms is not None and abs(apart_ms) <= ONE_MOMENT_MS,
        unread,
    )


def _read_apart_ms(history: ClusterHistory, behind: Sequence[TableRow], ahead: Sequence[TableRow]) -> int | None:
    """How much earlier the last of the lagging disks was copied than the first of the others, by times of files that
    the copies wrote; None where copying kept the times."""
    times = [[history.copied_ms.get((row["root"], row["path"])) for row in rows] for rows in (behind, ahead)]
    known = [[time_ms for time_ms in group if time_ms is not None] for group in times]
    if not all(known) or [len(group) for group in known] != [len(group) for group in times]:
        return None
    return min(known[1]) - max(known[0])


def _are_read_live(history: ClusterHistory, rows: Sequence[TableRow]) -> bool:
    """Whether the operator says that the nodes run and write what was read; an archive is a copy of some moment."""
    return history.operator.is_running and not any(row["medium"] == "archive" for row in rows)


def _reading_ms(rows: Sequence[TableRow]) -> int:
    """How long reading all of them took."""
    return max(row["read_to_ms"] for row in rows) - min(row["read_from_ms"] for row in rows) if rows else 0


def _is_proven_stalled(history: ClusterHistory, high: int, written_ms: int) -> bool:
    """Whether an earlier round ended above today's `high`, ten seconds of log time before the newest record."""
    ends = (row["canonical_end_offset"] for row in watermarks_in_order(history)[:-1])
    times_ms = (canonical_log(history).time_at(end - 1) for end in ends if end is not None and end > high)
    return any(time_ms is not None and written_ms - time_ms >= STALLED_AFTER_MS for time_ms in times_ms)
