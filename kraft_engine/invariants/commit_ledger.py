"""A ledger of what is committed, kept outside every node: all nodes must agree with it.

Everything below offset o is committed when, for one epoch e, a majority of a voter set held, each while in epoch e and
persisted, one same record of epoch e at or above o - 1; the set is one that e's leader had in effect at some time
since it wrote that record (the latest appended, even uncommitted; a leader outside it does not count itself;
observers never count). It can lie above the leader's own high watermark: the last acknowledging fetch may be missing.
"""

from __future__ import annotations

from bisect import bisect_left

from kraft_engine.consensus.log_batches import Batch
from kraft_engine.consensus.replica_log import MetadataLog, Snapshot
from kraft_engine.consensus.voter_sets import NO_DIRECTORY, ReplicaKey, VoterSet


class EpochTruth:
    """One leader's epoch: the sets that it had in effect, and what each replica held of the epoch's own records."""

    __slots__ = ("ends", "ends_by_id", "epoch", "leader", "sets", "start_offset")

    def __init__(self, epoch: int, leader: ReplicaKey, start_offset: int, voters: VoterSet) -> None:
        self.epoch = epoch
        self.leader = leader
        self.start_offset = start_offset
        # (set, the end below which it counts: where the next set's record stands; -1 while it is the latest)
        self.sets: list[tuple[VoterSet, int]] = [(voters, -1)]
        self.ends: dict[ReplicaKey, int] = {}
        self.ends_by_id: dict[int, int] = {}

    def change(self, offset: int, voters: VoterSet) -> None:
        last, _ = self.sets[-1]
        self.sets[-1] = (last, offset)
        self.sets.append((voters, -1))

    def committed_end(self, above: int) -> int:
        """The largest end above `above` that a majority of one of the sets holds; `above` where there is none."""
        best = above
        ends, by_id = self.ends, self.ends_by_id
        for voters, limit in self.sets:
            if 0 <= limit <= above:
                continue
            held = [ends.get(key, -1) if key[1] != NO_DIRECTORY else by_id.get(key[0], -1) for key in voters.keys]
            held.sort(reverse=True)
            end = held[voters.majority - 1]
            if limit >= 0 and end > limit:
                end = limit
            if end > self.start_offset and end > best:
                best = end
        return best


class CommitLedger:
    """The committed log: each batch once, in order, and the offset that it reaches."""

    __slots__ = ("batches", "by_base", "commits", "committed_epoch", "committed_offset", "covered_to", "epochs")

    def __init__(self) -> None:
        self.committed_offset = 0
        self.committed_epoch = 0
        self.batches: list[Batch] = []
        self.by_base: dict[int, Batch] = {}
        self.epochs: dict[int, EpochTruth] = {}
        # (epoch whose leader's majority it was, end offset), ascending.
        self.commits: list[tuple[int, int]] = []
        # Of each snapshot, the offset to which it holds the committed log.
        self.covered_to: dict[Snapshot, int] = {}

    def elected(self, epoch: int, leader: ReplicaKey, start_offset: int, voters: VoterSet) -> None:
        self.epochs[epoch] = EpochTruth(epoch, leader, start_offset, voters)

    def voters_changed(self, epoch: int, offset: int, voters: VoterSet) -> None:
        truth = self.epochs.get(epoch)
        if truth is not None:
            truth.change(offset, voters)
            # A set counts for records written before it: what is held already may now be committed.

    def held(self, key: ReplicaKey, epoch: int, end_offset: int, log: MetadataLog) -> str:
        """A replica in `epoch` has persisted records of that epoch up to `end_offset`.

        Returns what contradicts the ledger, "" where nothing does.
        """
        truth = self.epochs.get(epoch)
        if truth is None or end_offset <= truth.ends.get(key, -1):
            return ""
        truth.ends[key] = end_offset
        if end_offset > truth.ends_by_id.get(key[0], -1):
            truth.ends_by_id[key[0]] = end_offset
        end = truth.committed_end(self.committed_offset)
        if end <= self.committed_offset:
            return ""
        return self._advance(log, end, epoch)

    def recheck(self, epoch: int, log: MetadataLog) -> str:
        """A new voter set may commit what was already held."""
        truth = self.epochs.get(epoch)
        if truth is None:
            return ""
        end = truth.committed_end(self.committed_offset)
        return self._advance(log, min(end, log.end_offset), epoch) if end > self.committed_offset else ""

    def _advance(self, log: MetadataLog, end: int, epoch: int) -> str:
        for batch in log.read_from(self.committed_offset, 1 << 30):
            if batch.end_offset > end:
                break
            last = self.batches[-1] if self.batches else None
            if batch.base_offset != self.committed_offset:
                return f"committed {batch!r} does not follow the committed end {self.committed_offset}"
            if batch.previous is not last and last is not None and batch.previous is not None:
                return f"committed {batch!r} follows {batch.previous!r}, but {last!r} was committed before it"
            self.batches.append(batch)
            self.by_base[batch.base_offset] = batch
            self.committed_offset = batch.end_offset
            self.committed_epoch = batch.epoch
        self.commits.append((epoch, self.committed_offset))
        return ""

    def committed_before(self, epoch: int) -> int:
        """How many of the committed batches were committed in an epoch below `epoch`: its leader must have those.

        A leader that learns late that it won an old epoch need not have what a later one committed.
        """
        for commit_epoch, end_offset in reversed(self.commits):
            if commit_epoch < epoch:
                return bisect_left(self.batches, end_offset, key=lambda batch: batch.end_offset) + 1
        return 0

    def must_hold(self, batch: Batch, epoch: int) -> bool:
        """Whether the leader of an epoch, and so whoever follows it, keeps a batch: it is committed, in no later epoch.

        One that stood in the log before may be committed by a later leader, while others still follow this one.
        """
        known = self.committed_before(epoch + 1)
        return self.agrees(batch) and known > 0 and batch.end_offset <= self.batches[known - 1].end_offset

    def snapshot_made(self, snapshot: Snapshot, log: MetadataLog) -> None:
        """Notes how far a snapshot of this log holds the committed one: another log may have taken its place since."""
        own = (batch.end_offset for batch in reversed(log.batches) if self.agrees(batch))
        earlier = max((self.covered_to.get(made, 0) for made in log.snapshots), default=0)
        self.covered_to[snapshot] = min(next(own, earlier), snapshot.id[0])

    def agrees(self, batch: Batch) -> bool:
        """Whether a batch below the committed end is the committed one."""
        return self.by_base.get(batch.base_offset) is batch
