"""Replicas of data partitions: logs with leader epochs, divergence, high watermark, in-sync bookkeeping (UnifiedLog,
Partition, KIP-966).

Records are numbers; what matters is which replica holds which, and which were acknowledged.
"""

from __future__ import annotations

from kraft_engine.invariants.switches import Switches
from kraft_engine.world.world import Chance

TopicPartition = tuple[bytes, int]
LAG_LIMIT_US = 3_000_000


class FollowerState:
    """A follower as the leader sees it."""

    __slots__ = ("broker_epoch", "end_offset", "last_caught_up_us")

    def __init__(self, now_us: int) -> None:
        self.end_offset = -1
        self.last_caught_up_us = now_us
        self.broker_epoch = -1


class Replica:
    """One copy of a partition: `epochs` and `values` by offset. The disk part outlives the process."""

    __slots__ = (
        "acks",
        "assigned_epoch",
        "attempt",
        "checkpointed_watermark",
        "epoch_start",
        "epochs",
        "followers",
        "high_watermark",
        "is_leader",
        "isr",
        "leader_epoch",
        "partition_epoch",
        "pending_isr",
        "recovering",
        "recovery_point",
        "synced_end",
        "values",
    )

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.values: list[int] = []
        self.synced_end = 0
        # What the two checkpoint files of the log dir say: both may be stale, and point past a log that lost its tail.
        self.recovery_point = 0
        self.checkpointed_watermark = 0
        # The epoch in which this replica was elected and has written nothing yet: leader-epoch-checkpoint names it from
        # the election on. Loading the log drops it again (LeaderEpochFileCache.assign, LogLoader).
        self.assigned_epoch = -1
        self.forget_memory()

    def forget_memory(self) -> None:
        """What a restart starts from; the log stays."""
        self.high_watermark = min(self.checkpointed_watermark, self.end_offset)
        self.is_leader = False
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.isr: list[int] = []
        self.pending_isr: list[int] | None = None
        self.attempt = 0
        self.recovering = 0
        self.epoch_start = 0
        self.followers: dict[int, FollowerState] = {}
        self.acks: list[tuple[int, int]] = []

    @property
    def end_offset(self) -> int:
        return len(self.values)

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1] if self.epochs else -1

    def append(self, epoch: int, value: int) -> None:
        self.epochs.append(epoch)
        self.values.append(value)
        self.assigned_epoch = -1

    def sync(self) -> None:
        """Flushes, and notes so in recovery-point-offset-checkpoint."""
        self.synced_end = self.recovery_point = self.end_offset

    def checkpoint_watermark(self) -> None:
        """replication-offset-checkpoint: every five seconds, and at a clean stop (ReplicaManager)."""
        self.checkpointed_watermark = self.high_watermark

    def truncate(self, end_offset: int) -> None:
        del self.epochs[end_offset:], self.values[end_offset:]
        self.assigned_epoch = -1
        self.synced_end = min(self.synced_end, self.end_offset)
        self.recovery_point = min(self.recovery_point, self.end_offset)
        self.high_watermark = min(self.high_watermark, self.end_offset)

    def lose_unsynced(self, chance: Chance) -> list[int]:
        """A power cut: a random part of what was not synced is gone. Returns the values of the lost records."""
        unsynced = self.end_offset - self.synced_end
        return self._lose(chance.below(unsynced + 1)) if unsynced > 0 else []

    def lose_unflushed(self) -> list[int]:
        """A power cut that finds nothing on the disk but what was flushed. Returns the values of the lost records."""
        return self._lose(self.end_offset - self.synced_end)

    def _lose(self, count: int) -> list[int]:
        end_offset = self.end_offset - count
        lost = self.values[end_offset:]
        self.truncate(end_offset)
        self.synced_end = end_offset
        return lost

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch at or below `epoch` that has records, its end offset); (-1, 0) where there is none."""
        index = len(self.epochs)
        while index and self.epochs[index - 1] > epoch:
            index -= 1
        return (self.epochs[index - 1], index) if index else (-1, 0)

    def diverges(self, fetch_offset: int, last_epoch: int) -> tuple[int, int] | None:
        """For a leader: where a follower's log diverges from its own (the fetch protocol's diverging epoch)."""
        if fetch_offset == 0:
            return None
        epoch, end = self.end_of_epoch(last_epoch)
        if epoch != last_epoch or end < fetch_offset:
            return epoch, end
        return None

    def follow_divergence(self, epoch: int, end_offset: int) -> None:
        """For a follower: cuts to the common end."""
        own_epoch, own_end = self.end_of_epoch(epoch)
        self.truncate(min(end_offset, own_end) if own_epoch == epoch else own_end)

    def maximal_isr(self, switches: Switches) -> set[int]:
        """The committed ISR and the members that are being added; those that are leaving count until they have left."""
        joining = self.pending_isr if switches.pending_members_hold_the_watermark else None
        return {*self.isr, *(joining or ())}

    def in_sync_end(self, own_id: int, switches: Switches) -> int:
        """The smallest end of the maximal ISR."""
        end = self.end_offset
        if not switches.high_watermark_needs_whole_isr:
            return end
        for broker in self.isr if self.pending_isr is None else self.maximal_isr(switches):
            if broker != own_id:
                follower = self.followers.get(broker)
                end = min(end, follower.end_offset if follower is not None else -1)
        return end
