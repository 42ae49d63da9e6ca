"""Logs that end before an epoch which their own leader-epoch-checkpoint lists: they once went on.

The file gets an epoch with its first record, so a later epoch proves that the log reached its start: the copy of the
log is older than the file, or its last segments are missing. An entry at the log's very end proves nothing: a new
leader lists its epoch before it writes, and a follower's first record of it may be lost in a power cut
(LeaderEpochFileCache, KafkaRaftClient.onBecomeLeader of Kafka 4.3.0).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import newest_captures, newest_round
from kraft_audit.text.readable import listed, nouns


@dataclass(frozen=True, slots=True)
class ShorterLog:
    """A captured log that ends at `end_offset`, though epoch `epoch` began at offset `reached` on the same disk."""

    row: TableRow
    end_offset: int
    epoch: int
    reached: int


def shorter_logs(history: ClusterHistory) -> list[ShorterLog]:
    """The newest captured logs that are shorter than they were, one for each disk."""
    return history.known("shorter logs", lambda: _shorter(newest_captures(history)))


def shorter_reason(history: ClusterHistory) -> str | None:
    """Why nothing can be said of the quorum: an epoch began after the end of every log; None where it did not."""
    end_offset, beyond = _beyond_all_logs(history)
    if not beyond:
        return None
    furthest = max(beyond, key=lambda each: each.reached)
    nodes = nouns("node", sorted({each.row["node_id"] for each in beyond if each.row["node_id"] is not None}))
    return (
        f"the logs are older than they were: leader-epoch-checkpoint of {nodes} says that epoch {furthest.epoch} began "
        f"at offset {furthest.reached}, and no log goes beyond offset {end_offset - 1}. What came after is not "
        "in these copies"
    )


def copy_again(history: ClusterHistory) -> str | None:
    """What to do where every log ends before an epoch that its own disk knows."""
    end_offset, beyond = _beyond_all_logs(history)
    if not beyond:
        return None
    nodes = listed(sorted({each.row["node_id"] for each in beyond if each.row["node_id"] is not None}))
    return (
        f"Copy __cluster_metadata-0 of {nodes} again, every *.log of it: a segment may be missing from the copy. If it "
        f"is not on the disks either, look for a copy that goes beyond offset {end_offset - 1}. Start no node "
        "from this state."
    )


def _beyond_all_logs(history: ClusterHistory) -> tuple[int, list[ShorterLog]]:
    """Where the longest log of the newest round ends, and the logs that once went on to beyond that."""
    rows = newest_round(history)
    end_offset = max((row["log_end_offset"] or 0 for row in rows), default=0)
    return end_offset, [each for each in _shorter(rows) if each.reached > end_offset]


def _shorter(rows: Iterable[TableRow]) -> list[ShorterLog]:
    found = []
    for row in rows:
        end = row["log_end_offset"]
        later = [
            (entry["start_offset"], entry["epoch"])
            for entry in row["leader_epoch_checkpoint"] or ()
            if end is not None and entry["start_offset"] > end and entry["epoch"] > (row["last_epoch"] or 0)
        ]
        if later:
            reached, epoch = max(later)
            found.append(ShorterLog(row, end, epoch, reached))
    return found
