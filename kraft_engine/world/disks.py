"""A node's disk: what a crash leaves, and how disks lie.

Within Raft's model a disk loses at most what was not yet synced, and may tear the last unsynced write. Wiping it,
losing a synced write, or flipping bits goes beyond the model and is labelled so in the truth.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from kraft_engine.consensus.log_batches import Batch, Record
from kraft_engine.consensus.replica_log import MetadataLog, Snapshot
from kraft_engine.consensus.voter_sets import NO_DIRECTORY, ReplicaKey
from kraft_engine.world.world import EPOCH_MS, Chance


class DiskFailureError(Exception):
    """A write that the disk refused. Kafka's fault handler halts the process."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What a lying disk did to the batch at `offset`: "bit rot", or a "misdirected write": the newest batch's bytes
    landed there and its own place is zeros. Recovery cuts the log at `offset` (LogLoader). Beyond the model.
    """

    kind: str
    offset: int


class QuorumState:
    """What `quorum-state` holds, and the version in which it was written (QuorumStateData)."""

    __slots__ = ("applied_offset", "epoch", "leader_id", "version", "voted", "voter_ids")

    def __init__(
        self,
        epoch: int = 0,
        leader_id: int = -1,
        voted: ReplicaKey | None = None,
        version: int = 0,
        voter_ids: tuple[int, ...] = (),
        applied_offset: int = 0,
    ) -> None:
        self.voter_ids = voter_ids
        self.applied_offset = applied_offset
        self.epoch = epoch
        self.leader_id = leader_id
        self.voted = voted
        self.version = version


class Disk:
    """One log dir. `log` is as processes see it (page cache included); `log.synced_end` bounds what a crash may
    take.
    """

    __slots__ = (
        "bootstrap",
        "clean_shutdown_epoch",
        "damage",
        "dies_before_sync",
        "directory",
        "formatted_ms",
        "log",
        "quorum_state",
        "read_only",
        "slow_us",
        "torn_batch",
        "torn_octets",
        "unsynced_state",
        "wiped_ms",
    )

    def __init__(self, directory: bytes, *, segment_limit_bytes: int = 1 << 30) -> None:
        self.directory = directory
        # When `kafka-storage format` ran, and since when the log dir is empty.
        self.formatted_ms = self.wiped_ms = EPOCH_MS
        self.log = MetadataLog(segment_limit_bytes)
        self.quorum_state: QuorumState | None = None
        # Only used with the switch persist_vote_before_reply off: a state that a crash forgets.
        self.unsynced_state: QuorumState | None = None
        self.bootstrap: Snapshot | None = None
        self.torn_octets = 0
        self.torn_batch: Batch | None = None
        self.damage: Damage | None = None
        # Writes fail, which ends the process.
        self.read_only = False
        self.slow_us = 0
        # The next append reaches the page cache only: the process dies before its sync.
        self.dies_before_sync = False
        self.clean_shutdown_epoch = -1

    @property
    def visible_state(self) -> QuorumState | None:
        return self.unsynced_state if self.unsynced_state is not None else self.quorum_state

    def write_state(self, state: QuorumState, *, synced: bool) -> None:
        """Replaces quorum-state by an atomic rename (FileQuorumStateStore). Raises DiskFailureError."""
        if self.read_only:
            raise DiskFailureError(f"quorum-state of epoch {state.epoch}")
        if synced:
            self.quorum_state = state
            self.unsynced_state = None
        else:
            self.unsynced_state = state

    def lose_power(self, chance: Chance, *, cut_torn_tail: bool) -> int:
        """Loses a random part of the unsynced tail; returns the log's end after it.

        The first lost batch may be left torn: its first bytes are on the disk until recovery at start cuts them.
        With `cut_torn_tail` false (a switch) recovery keeps the torn batch as if it were whole.
        """
        self.unsynced_state = None
        log = self.log
        self.torn_octets = 0
        if log.end_offset <= log.synced_end:
            return log.end_offset
        first = bisect_left(log.bases, log.synced_end)
        unsynced = len(log.batches) - first
        whole_count = first + chance.below(unsynced + 1)
        torn = log.batches[whole_count] if whole_count < len(log.batches) else None
        if torn is not None:
            self.torn_octets = chance.below(torn.size_bytes)
            self.torn_batch = torn
        end = log.batches[whole_count - 1].end_offset if whole_count else log.start_offset
        if end < log.end_offset:
            log.truncate(end)
        if torn is not None and self.torn_octets and not cut_torn_tail:
            garbage: tuple[Record, ...] = tuple(("NoOpRecord", 0, {}) for _ in torn.records)
            log.append(Batch(torn.base_offset, torn.epoch, torn.timestamp_ms, False, garbage, torn.previous))
        log.synced_end = log.end_offset
        return log.end_offset

    def recover(self) -> None:
        """Recovers the log at start: the torn tail is cut, snapshots below the log start go (KafkaRaftLog)."""
        self.torn_octets = 0
        log = self.log
        if self.damage is not None and log.start_offset <= self.damage.offset < log.end_offset:
            log.truncate(self.damage.offset)
        self.damage = None
        log.forget_empty_epochs()
        log.sync()
        log.snapshots = [snapshot for snapshot in log.snapshots if snapshot.id[0] >= log.start_offset]
        latest = log.latest_snapshot
        if latest is not None and (latest.id[1], latest.id[0]) > (log.last_epoch, log.end_offset):
            # KafkaRaftLog.truncateToLatestSnapshot: the snapshot was synced, the log's tail was not.
            log.truncate_to_snapshot(latest)

    def wipe(self, directory: bytes, now_ms: int | None = None) -> None:
        """The disk comes back empty, under `directory`: the old id again goes beyond Raft's model."""
        if now_ms is not None:
            self.wiped_ms = now_ms
            if directory != self.directory:
                self.formatted_ms = now_ms
        self.directory = directory
        self.log = MetadataLog(self.log.segment_limit_bytes)
        self.quorum_state = None
        self.unsynced_state = None
        self.bootstrap = None
        self.torn_octets = 0
        self.damage = None

    def wipe_log(self, now_ms: int | None = None) -> None:
        """The log is gone, what format wrote is not: beyond the model."""
        bootstrap = self.bootstrap
        self.wipe(self.directory, now_ms)
        self.bootstrap = bootstrap

    def lose_synced_tail(self, chance: Chance, batch_count: int) -> int:
        """A disk that lied about a sync: the last batches are gone although they were acknowledged. Beyond the
        model.
        """
        log = self.log
        whole_count = max(len(log.batches) - 1 - chance.below(batch_count), 0)
        end = log.batches[whole_count].base_offset if log.batches else log.end_offset
        if end < log.end_offset and end >= log.start_offset:
            log.truncate(end)
            log.synced_end = log.end_offset
        return log.end_offset


def voted_fields(voted: ReplicaKey | None) -> tuple[int, bytes]:
    """quorum-state's (votedId, votedDirectoryId): -1 and the zero id for no vote."""
    return voted if voted is not None else (-1, NO_DIRECTORY)
