"""Whether other disks bear out a snapshot that ends above the log of its own disk.

Kafka snapshots what is committed, so another disk's log reaches its end, or another disk has the same snapshot. A file
that was renamed, or came from another cluster, has the right form and nothing that bears it out. So has the snapshot of
a disk whose later segments are missing: what it says may be true, and proves nothing about the quorum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kraft_audit.capture.replica import Replica

SnapshotId = tuple[int, int]
"""(end offset, epoch of the last record)."""
UNBORNE: Final = "no other disk bears that out"
"""How the doubt of such a disk ends."""


def doubt_unborne_snapshots(replicas: Sequence[Replica]) -> None:
    """Sets `doubt` of a disk whose snapshots no other disk's log bears out, once all of the replicas were read.

    Such a snapshot is taken from its replica: it moves nothing. Where no other disk shows the log, it is all there is.
    """
    for replica, snapshot in list(_unborne(replicas)):
        log_end = None if replica.log is None else replica.log.end_offset
        replica.doubt = f"its log ends at {log_end}, its snapshot at {snapshot[0]}, and {UNBORNE}"
        replica.claimed_end = (snapshot[1], snapshot[0])
        replica.snapshots.remove(snapshot)


def _unborne(replicas: Sequence[Replica]) -> Iterator[tuple[Replica, SnapshotId]]:
    for replica in replicas:
        others = [other for other in replicas if other.plan.identity != replica.plan.identity]
        if any(map(_shows_the_log, others)):
            for snapshot in _beyond_the_log(replica):
                if not any(snapshot in other.snapshots or _holds_the_end(other, snapshot) for other in others):
                    yield replica, snapshot


def _beyond_the_log(replica: Replica) -> Sequence[SnapshotId]:
    """Ascending; none where no batch is left of a log, as a snapshot is put there in its place."""
    log = replica.log
    if log is None or log.last_epoch is None or log.end_offset is None or replica.doubt is not None:
        return ()
    return [snapshot for snapshot in replica.snapshots if snapshot[0] > log.end_offset]


def _holds_the_end(replica: Replica, snapshot: SnapshotId) -> bool:
    """Whether a log holds the batch that ends where a snapshot does, or the one that begins there."""
    end, epoch = snapshot
    log = replica.log
    if not _shows_the_log(replica) or log is None or log.end_offset is None or log.end_offset < end:
        return False
    before = [known for known, start in log.epoch_starts if start < end]
    return not before or before[-1] == epoch


def _shows_the_log(replica: Replica) -> bool:
    return replica.doubt is None and replica.log is not None and replica.log.last_epoch is not None
