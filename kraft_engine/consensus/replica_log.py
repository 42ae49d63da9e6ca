"""A replica's copy of the metadata log: batches, segments, leader-epoch cache, snapshots, what is synced
(KafkaRaftLog).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

from kraft_engine.consensus.log_batches import Batch
from kraft_engine.consensus.voter_sets import VoterSet

SnapshotId = tuple[int, int]
"""(end offset, exclusive; epoch of the record before it)."""


class Snapshot:
    """A frozen snapshot. `records` are the image's metadata records; voters and kraft.version stand in its header
    batch.
    """

    __slots__ = ("id", "image", "kraft_version", "last_timestamp_ms", "made_ms", "voters")

    def __init__(
        self,
        id: SnapshotId,  # noqa: A002
        image: Any,
        kraft_version: int,
        voters: VoterSet | None,
        last_timestamp_ms: int,
        made_ms: int,
    ) -> None:
        self.id = id
        self.image = image
        self.kraft_version = kraft_version
        self.voters = voters
        self.last_timestamp_ms = last_timestamp_ms
        self.made_ms = made_ms


class MetadataLog:
    """Batches from the first kept segment's base to the end. `synced_end` is what survives a crash for certain."""

    __slots__ = (
        "bases",
        "batches",
        "end_offset",
        "epoch_starts",
        "last_epoch",
        "segment_bases",
        "segment_bytes",
        "segment_limit_bytes",
        "snapshots",
        "start_offset",
        "synced_end",
    )

    def __init__(self, segment_limit_bytes: int = 1 << 30) -> None:
        self.batches: list[Batch] = []
        self.bases: list[int] = []
        self.start_offset = 0
        self.end_offset = 0
        self.last_epoch = 0
        self.epoch_starts: list[tuple[int, int]] = []
        self.snapshots: list[Snapshot] = []
        self.synced_end = 0
        self.segment_limit_bytes = segment_limit_bytes
        self.segment_bases: list[int] = [0]
        self.segment_bytes = 0

    @property
    def last_batch(self) -> Batch | None:
        return self.batches[-1] if self.batches else None

    def append(self, batch: Batch) -> None:
        """Appends a batch at the log end; the caller has made sure that it follows."""
        if batch.base_offset != self.end_offset:
            raise ValueError(f"a batch at {batch.base_offset} does not follow the log end {self.end_offset}")
        if self.segment_bytes + batch.size_bytes > self.segment_limit_bytes and self.segment_bytes:
            self.segment_bases.append(self.end_offset)
            self.segment_bytes = 0
        self.segment_bytes += batch.size_bytes
        self.batches.append(batch)
        self.bases.append(batch.base_offset)
        self.end_offset = batch.end_offset
        epoch = batch.epoch
        self.last_epoch = epoch
        starts = self.epoch_starts
        if not starts or starts[-1][0] < epoch:
            # LeaderEpochFileCache.assign: an entry that begins no earlier had no record.
            while starts and starts[-1][1] >= batch.base_offset:
                starts.pop()
            starts.append((epoch, batch.base_offset))

    def assign_epoch_start(self, epoch: int) -> None:
        """A leader notes its epoch at the log end when it is elected, before it appends (LeaderEpochFileCache)."""
        if not self.epoch_starts or self.epoch_starts[-1][0] < epoch:
            self.forget_empty_epochs()
            self.epoch_starts.append((epoch, self.end_offset))

    def sync(self) -> None:
        self.synced_end = self.end_offset

    def read_from(self, offset: int, limit: int) -> list[Batch]:
        """Up to `limit` batches from the one that holds `offset` on."""
        index = bisect_right(self.bases, offset) - 1
        if index < 0:
            index = 0
        elif self.batches[index].end_offset <= offset:
            index += 1
        return self.batches[index : index + limit]

    def batch_at(self, offset: int) -> Batch | None:
        """The batch that holds the record at `offset`, where the log has it."""
        index = bisect_right(self.bases, offset) - 1
        if index < 0:
            return None
        batch = self.batches[index]
        return batch if batch.end_offset > offset else None

    @property
    def is_connected(self) -> bool:
        """Whether what stands before its start is in a snapshot: else no process starts on it (KafkaRaftLog)."""
        return not self.start_offset or (bool(self.snapshots) and self.snapshots[-1].id[0] >= self.start_offset)

    def forget_empty_epochs(self) -> None:
        """An epoch that a leader noted at the log end, and died before it wrote anything, is dropped by the next start
        or truncation, one that cuts nothing included (LogLoader, UnifiedLog.truncateTo).
        """
        while self.epoch_starts and self.epoch_starts[-1][1] >= self.end_offset:
            self.epoch_starts.pop()

    def truncate(self, end_offset: int) -> None:
        """Cuts the log so that it ends at `end_offset`, which is a batch boundary or is moved down to one."""
        keep = bisect_left(self.bases, end_offset)
        if keep and self.batches[keep - 1].end_offset > end_offset:
            keep -= 1
        del self.batches[keep:], self.bases[keep:]
        self.end_offset = self.batches[-1].end_offset if keep else min(end_offset, self.start_offset)
        self.forget_empty_epochs()
        while len(self.segment_bases) > 1 and self.segment_bases[-1] >= self.end_offset:
            self.segment_bases.pop()
        self.segment_bytes = sum(
            batch.size_bytes for batch in self.batches[bisect_left(self.bases, self.segment_bases[-1]) :]
        )
        self.synced_end = min(self.synced_end, self.end_offset)
        self._set_last_epoch()

    def truncate_to_snapshot(self, snapshot: Snapshot) -> None:
        """The log restarts empty at the snapshot's end; older snapshots go (truncateToLatestSnapshot)."""
        offset = snapshot.id[0]
        del self.batches[:], self.bases[:], self.epoch_starts[:]
        self.start_offset = self.end_offset = self.synced_end = offset
        self.segment_bases = [offset]
        self.segment_bytes = 0
        self.snapshots = [snapshot]
        self.last_epoch = snapshot.id[1]

    def _set_last_epoch(self) -> None:
        if self.batches:
            self.last_epoch = self.batches[-1].epoch
        else:
            self.last_epoch = self.snapshots[-1].id[1] if self.snapshots else 0

    @property
    def latest_snapshot(self) -> Snapshot | None:
        return self.snapshots[-1] if self.snapshots else None

    @property
    def earliest_snapshot(self) -> Snapshot | None:
        return self.snapshots[0] if self.snapshots else None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch at or below `epoch`, its end offset) (KafkaRaftLog.endOffsetForEpoch)."""
        if epoch == self.last_epoch:
            return epoch, self.end_offset
        starts = self.epoch_starts
        index = bisect_right(starts, (epoch, 1 << 62)) - 1
        if index < 0:
            earliest = self.earliest_snapshot
            if earliest is not None and earliest.id[0] == self.start_offset and earliest.id[1] <= epoch:
                return earliest.id[1], self.start_offset
            return 0, self.start_offset
        end = starts[index + 1][1] if index + 1 < len(starts) else self.end_offset
        return starts[index][0], end

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`."""
        batch = self.batch_at(offset)
        if batch is not None:
            return batch.epoch
        for snapshot in self.snapshots:
            if snapshot.id[0] - 1 == offset:
                return snapshot.id[1]
        return self.end_offset_for_epoch(self.last_epoch)[0]

    def validate(self, offset: int, epoch: int) -> tuple[str, int, int]:
        """How a leader validates a fetch: ("valid"|"diverging"|"snapshot", offset, epoch) (validateOffsetAndEpoch)."""
        latest = self.snapshots[-1] if self.snapshots else None
        if offset == 0 and latest is not None and latest.id != (0, 0):
            return "snapshot", latest.id[0], latest.id[1]
        if self.start_offset == 0 and offset == 0:
            return "valid", 0, 0
        if latest is not None:
            earliest = self.snapshots[0].id
            behind = offset < self.start_offset
            wrong_epoch = offset == self.start_offset and epoch != earliest[1] and self.start_offset > 0
            too_old = epoch < earliest[1]
            if behind or wrong_epoch or too_old:
                return "snapshot", latest.id[0], latest.id[1]
        known_epoch, end_offset = self.end_offset_for_epoch(epoch)
        if known_epoch != epoch or end_offset < offset:
            return "diverging", end_offset, known_epoch
        return "valid", offset, epoch

    def advance_start(self, snapshot_id: SnapshotId) -> None:
        """Cleaning: the log starts at the snapshot's end; older snapshots and whole segments below go (KIP-630)."""
        offset = snapshot_id[0]
        self.start_offset = offset
        self.snapshots = [snapshot for snapshot in self.snapshots if snapshot.id[0] >= offset]
        while len(self.segment_bases) > 1 and self.segment_bases[1] <= offset:
            self.segment_bases.pop(0)
        keep = bisect_left(self.bases, self.segment_bases[0])
        del self.batches[:keep], self.bases[:keep]
        # LeaderEpochFileCache.truncateFromStart: the epoch that covers the new start is kept, moved up to it.
        covering = [entry for entry in self.epoch_starts if entry[1] <= offset]
        above = [entry for entry in self.epoch_starts if entry[1] > offset]
        self.epoch_starts = ([(covering[-1][0], offset)] if covering else []) + above
