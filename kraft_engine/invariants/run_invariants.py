"""Invariants that hold after every event of a run, each checked wherever its state can change.

Kafka's own simulation checks seven (RaftEventSimulationTest: M below), its TLA+ models more (T). Each invariant has a
name that its violation carries. A violation ends the run; after an event beyond Raft's model (a wiped or lying disk) it
is recorded as that damage's effect instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_engine.consensus.log_batches import Batch
from kraft_engine.consensus.raft import LEADER, RaftNode
from kraft_engine.consensus.replica_log import SnapshotId
from kraft_engine.consensus.voter_sets import NO_DIRECTORY, ReplicaKey, VoterSet, disjoint_majorities
from kraft_engine.invariants.election_invariants import ElectionInvariants
from kraft_engine.world.world import World

if TYPE_CHECKING:
    from kraft_engine.world.processes import Cluster


class RaftInvariants(ElectionInvariants):
    """The witness of one cluster. It sees every step of every node, and keeps the ledger of what is committed."""

    def __init__(self, world: World, *, is_static: bool = False) -> None:
        super().__init__(world)
        self.is_static = is_static
        self.one_voter_per_id = True
        self.newcomers_fetch = True
        self.cluster: Cluster | None = None
        self.marks: dict[int, tuple[RaftNode, int]] = {}
        self.seen_epochs: dict[int, int] = {}
        self.lost_ends: dict[ReplicaKey, int] = {}
        self.highest_mark = 0
        self.highest_mark_epoch = 0

    # Replication

    def appended(self, node: RaftNode, batch: Batch, *, by_leader: bool) -> None:
        """Log matching by induction: every batch follows the one that its leader had before it."""
        self.check_count += 1
        batches = node.log.batches
        if len(batches) > 1:
            before = batches[-2]
            # A leader whose log began with a snapshot has no batch before: what the snapshot covers is committed.
            after_snapshot = batch.previous is None and self.ledger.agrees(before)
            if batch.previous is not before and not after_snapshot:
                self.fail("LogMatching", f"node {node.id} puts {batch!r} after {before!r}, not {batch.previous!r}")
            if batch.epoch < before.epoch:
                self.fail("EpochsAscend", f"node {node.id} has {batch!r} after {before!r}")
        if batch.is_control:
            for index, (name, _, _) in enumerate(batch.records):
                if name in VOTER_RECORDS:
                    self.voter_records.setdefault(node.slot, []).append(batch.base_offset + index)
            self._check_voter_records(node, batch)
        if by_leader:
            self._check_leader_append(node, batch)

    def _check_voter_records(self, node: RaftNode, batch: Batch) -> None:
        """Voter sets exist from kraft.version 1 on, which comes with the first of them."""
        names = [name for name, _, _ in batch.records]
        if "KRAFT_VERSION" in names and "KRAFT_VOTERS" not in names:
            self.fail(
                "KraftVersionBringsVoters", f"node {node.id} has {batch!r}, whose kraft.version comes without voters"
            )
        if "KRAFT_VOTERS" in names and "KRAFT_VERSION" not in names and not node.history.version:
            self.fail("VotersNeedKraftVersion", f"node {node.id} has {batch!r}, voters under kraft.version 0")

    def _check_leader_append(self, node: RaftNode, batch: Batch) -> None:
        leader = node.leader
        if leader is None or batch.epoch != node.epoch:
            self.fail("LeaderAppends", f"node {node.id} appends {batch!r} in epoch {node.epoch}")
            return
        if batch.base_offset == leader.epoch_start and batch.records[0][0] not in EPOCH_STARTERS:
            self.fail("LeaderChangeFirst", f"epoch {batch.epoch} begins with {batch.records[0][0]}")
        if not batch.is_control and leader.high_watermark <= leader.epoch_start:
            self.fail("NoDataBeforeEpochCommit", f"node {node.id} writes data at {batch.base_offset} before its epoch")
        if self.seen_epochs.get(node.slot, 0) > node.epoch:
            self.fail("StaleLeaderStops", f"node {node.id} writes in epoch {node.epoch} though it saw a later one")
        offset = node.history.last_offset
        removed = not leader.voters.contains(node.key) and offset is not None and offset < leader.high_watermark
        if removed and not leader.forgot_removal and not batch.is_control:
            self.fail("RemovedLeaderResigns", f"node {node.id} still writes after its removal at {offset} committed")

    def synced(self, node: RaftNode) -> None:
        """A replica has persisted what it holds: the ledger counts what is of its own epoch."""
        log = node.log
        epoch = node.epoch
        if log.last_epoch != epoch or log.synced_end < log.end_offset:
            return
        contradiction = self.ledger.held(node.key, epoch, log.synced_end, log)
        if contradiction:
            self.fail("StateMachineSafety", contradiction)

    def truncating(self, node: RaftNode, end_offset: int, *, by_snapshot: bool) -> None:
        """Leaders append only; nothing committed or below the watermark is cut; M LeaderNeverLoadsSnapshot."""
        if node.role == LEADER:
            name = "LeaderNeverLoadsSnapshot" if by_snapshot else "LeaderAppendOnly"
            self.fail(name, f"leader {node.id} cuts its log at {end_offset}")
        if end_offset < node.high_watermark:
            self.fail("NoCutBelowWatermark", f"node {node.id} cuts at {end_offset}, watermark {node.high_watermark}")
        batch = node.log.batch_at(end_offset)
        if not by_snapshot and batch is not None and self.ledger.must_hold(batch, node.epoch):
            self.fail("CommittedIsKept", f"node {node.id} cuts the committed {batch!r}")
        records = self.voter_records.get(node.slot)
        if records:
            self.voter_records[node.slot] = [] if by_snapshot else [at for at in records if at < end_offset]
        self.seen["snapshot installed" if by_snapshot else "log truncated"] += 1
        self.record("truncated", node=node.id, from_offset=end_offset, to_offset=node.log.end_offset)
        self.note(node, f"{'installs a snapshot at' if by_snapshot else 'cuts its log at'} {end_offset}")

    def truncated(self, node: RaftNode) -> None:
        """An uncommitted voter set goes with its record."""
        last = node.history.last_offset
        if last is not None and last >= node.log.end_offset and not self._in_snapshot(node, last):
            self.fail("VoterSetFollowsLog", f"node {node.id} keeps the set of offset {last}, which it has cut away")

    def saw_epoch(self, node: RaftNode, epoch: int) -> None:
        if epoch > self.seen_epochs.get(node.slot, 0):
            self.seen_epochs[node.slot] = epoch

    def acknowledged(self, node: RaftNode, epoch: int) -> None:
        """Only a replica that is in the leader's epoch acknowledges to it."""
        if epoch != node.epoch:
            self.fail("AcknowledgedInEpoch", f"leader {node.id} of epoch {node.epoch} counts a fetch of epoch {epoch}")

    def crashed(self, node: RaftNode) -> None:
        """What a replica acknowledged survives its crash."""
        truth = self.ledger.epochs.get(node.epoch)
        end = truth.ends.get(node.key, -1) if truth is not None else -1
        if node.disk.log.end_offset < end:
            self.fail("AcknowledgedIsDurable", f"node {node.id} acknowledged {end}, holds {node.disk.log.end_offset}")
        self._survived(node)
        records = self.voter_records.get(node.slot)
        if records:
            self.voter_records[node.slot] = [at for at in records if at < node.disk.log.end_offset]
        self.marks.pop(node.slot, None)
        self.seen_epochs.pop(node.slot, None)

    def _survived(self, node: RaftNode) -> None:
        """What a crash has left on the disk is persisted, synced or not, in the epoch that the disk names."""
        state, log = node.disk.visible_state, node.disk.log
        if state is not None and log.last_epoch == state.epoch:
            contradiction = self.ledger.held(node.key, state.epoch, log.end_offset, log)
            if contradiction:
                self.fail("StateMachineSafety", contradiction)

    def forget(self, slot: int, *, replaced: ReplicaKey | None = None, end_offset: int = 0) -> None:
        """The slot's disk holds another log now; `replaced` is the replica that is gone for good."""
        if replaced is not None:
            self.lost_ends[replaced] = end_offset
        self.voter_records.pop(slot, None)
        self.marks.pop(slot, None)

    def watermark_moved(self, node: RaftNode, *, by_leader: bool) -> None:
        """M MonotonicHighWatermark, M MajorityReachedHighWatermark, M ConsistentCommittedData (T NoLogDivergence)."""
        self.check_count += 1
        mark = node.leader.high_watermark if by_leader and node.leader is not None else node.high_watermark
        entry = self.marks.get(node.slot)
        before = entry[1] if entry is not None and entry[0] is node else 0
        self.marks[node.slot] = (node, mark)
        if mark < before:
            self.fail("MonotonicHighWatermark", f"node {node.id} goes back from {before} to {mark}")
        if mark > node.log.end_offset:
            self.fail("WatermarkWithinLog", f"node {node.id} has watermark {mark}, end {node.log.end_offset}")
        ledger = self.ledger
        if by_leader:
            self._check_leader_mark(node, mark)
        by_base = ledger.by_base
        for batch in node.log.read_from(max(before, node.log.start_offset), 1 << 30):
            if batch.end_offset > mark:
                break
            if by_base.get(batch.base_offset) is not batch:
                self.fail("ConsistentCommittedData", f"node {node.id} takes {batch!r} for committed")
        if mark > ledger.committed_offset:
            self.fail("WatermarkIsCommitted", f"node {node.id}: {mark}, committed is {ledger.committed_offset}")

    def _check_leader_mark(self, node: RaftNode, mark: int) -> None:
        leader = node.leader
        if mark > self.ledger.committed_offset:
            self.fail("WatermarkIsCommitted", f"leader {node.id}: {mark}, committed is {self.ledger.committed_offset}")
        if node.epoch >= self.highest_mark_epoch:
            if mark < self.highest_mark:
                self.fail("MonotonicHighWatermark", f"leader {node.id} shows {mark} after {self.highest_mark}")
            self.highest_mark, self.highest_mark_epoch = mark, node.epoch
        if leader is None or self.cluster is None:
            return
        voters = leader.voters
        if not self._majority_has(voters, mark):
            older = node.history.at(mark - 1)
            if older is None or not self._majority_has(older, mark):
                self.fail("MajorityReachedHighWatermark", f"no majority of {voters!r} has {mark}")

    def _majority_has(self, voters: VoterSet, end: int) -> bool:
        cluster = self.cluster
        if cluster is None:
            return True
        reached = 0
        for process in cluster.processes:
            log = process.disk.log
            if log.end_offset >= end and voters.contains((process.id, process.disk.directory)):
                reached += 1
        # What a replica held when its disk was replaced was acknowledged: it is as if it were down.
        reached += sum(1 for key in voters.keys if self.lost_ends.get(key, -1) >= end)
        return reached >= voters.majority

    # Membership

    def voters_changed(self, node: RaftNode, offset: int, voters: VoterSet) -> None:
        """One voter at a time, majorities that meet, never on top of an uncommitted set, never before the epoch."""
        leader = node.leader
        if leader is None:
            return
        self.check_count += 1
        if not voters.keys:
            self.fail("VoterSetNotEmpty", f"the set at {offset} is empty")
        old = leader.voters
        self.ledger.voters_changed(node.epoch, offset, voters)
        contradiction = self.ledger.recheck(node.epoch, node.log)
        if contradiction:
            self.fail("StateMachineSafety", contradiction)
        self.record("voters", offset=offset, epoch=node.epoch, voters=[list(key) for key in voters.keys])
        if self.one_voter_per_id and len(set(voters.ids)) < len(voters):
            self.fail("OneVoterPerId", f"the set at {offset} has one id twice: {voters!r}")
        self._check_newcomers(node, offset, voters)
        self._check_members(node, offset, voters)
        by_id = old.keys[0][1] == NO_DIRECTORY
        if (old.ids == voters.ids) if by_id else (old.keys == voters.keys):
            return
        changed = len(set(old.ids) ^ set(voters.ids)) if by_id else len(set(old.keys) ^ set(voters.keys))
        if changed > 1:
            self.fail("OneVoterAtATime", f"the set at {offset}: {old!r} becomes {voters!r}")
        if disjoint_majorities(old, voters) is not None:
            self.fail("MajoritiesMeet", f"{old!r} and {voters!r} have disjoint majorities")
        entries = node.history.entries()
        predecessor = entries[-2][0] if len(entries) > 1 else -1
        if predecessor >= 0 and (predecessor >= self.ledger.committed_offset or predecessor >= node.high_watermark):
            self.fail("NoUncommittedSetUsedTwice", f"the set at {offset} builds on an uncommitted one at {predecessor}")
        if leader.high_watermark <= leader.epoch_start:
            self.fail("ChangeAfterEpochCommit", f"the set at {offset} precedes the commit of epoch {node.epoch}")

    def _check_members(self, node: RaftNode, offset: int, voters: VoterSet) -> None:
        """A dynamic set names directories, nodes that support its kraft.version, and what was asked for."""
        leader = node.leader
        if leader is None or not node.history.version:
            return
        old = leader.voters
        if old.keys[0][1] == NO_DIRECTORY and old.ids != voters.ids:
            self.fail("UpgradeKeepsVoters", f"the set at {offset} has {voters.ids}, configured are {old.ids}")
        if old.keys[0][1] == NO_DIRECTORY and leader.high_watermark <= leader.epoch_start:
            self.fail("ChangeAfterEpochCommit", f"the upgrade at {offset} precedes the commit of epoch {node.epoch}")
        pending = leader.pending
        if pending is not None and not pending.ack_when_committed:
            self.seen["auto join"] += 1
        asked = pending.voter.key if pending is not None and pending.offset == offset else None
        if asked is not None and set(old.keys) ^ set(voters.keys) != {asked}:
            self.fail("ChangeIsAsAsked", f"the set at {offset}: {old!r} becomes {voters!r}, asked for was {asked}")
        for voter in voters:
            if voter.directory == NO_DIRECTORY:
                self.fail("VotersHaveDirectories", f"the set at {offset} names no directory for {voter.id}")
            if node.addresses.max_kraft_version(voter.id) < node.history.version:
                self.fail("VotersSupportKraftVersion", f"the set at {offset} has {voter.id}, which is too old for it")

    def _check_newcomers(self, node: RaftNode, offset: int, voters: VoterSet) -> None:
        """A voter that joins has once held all that its leader had: an empty voter could stop the quorum (KIP-853)."""
        leader = node.leader
        if leader is None or not self.newcomers_fetch:
            return
        for key in voters.keys:
            if key not in leader.replicas and key[1] != NO_DIRECTORY and leader.voters.keys[0][1] != NO_DIRECTORY:
                state = leader.observers.get(key)
                if state is None or state.last_caught_up_us < 0:
                    self.fail("NewVoterHasCaughtUp", f"the set at {offset} adds {key[0]}, which never held the log")

    # Snapshots

    def snapshot_made(self, node: RaftNode, snapshot_id: SnapshotId) -> None:
        """Snapshots end at committed batch ends, and carry the epoch of the record before."""
        offset, epoch = snapshot_id
        if offset > node.high_watermark or offset > self.ledger.committed_offset:
            self.fail("SnapshotIsCommitted", f"node {node.id} makes {snapshot_id}, watermark {node.high_watermark}")
        batch = node.log.batch_at(offset - 1)
        if batch is not None and (batch.end_offset != offset or batch.epoch != epoch):
            self.fail("SnapshotAtBatchEnd", f"node {node.id} makes {snapshot_id} inside {batch!r}")
        made = node.log.latest_snapshot
        if made is not None and made.kraft_version and made.voters is None:
            self.fail("SnapshotHasVoters", f"node {node.id} makes {snapshot_id} without the voter set")
        if made is not None and made.voters is not None and made.voters is node.history.static:
            self.fail("StaticSnapshotHasNoVoters", f"node {node.id} makes {snapshot_id} with the configured voters")
        if made is not None:
            self.ledger.snapshot_made(made, node.log)
        self.seen["snapshot made"] += 1
        self.record("snapshot", node=node.id, offset=offset, epoch=epoch)

    def cleaned(self, node: RaftNode) -> None:
        """M SnapshotAtLogStart."""
        self.seen["log cleaned"] += 1
        log = node.log
        earliest = log.earliest_snapshot
        if log.start_offset > 0 and (earliest is None or earliest.id[0] != log.start_offset):
            self.fail("SnapshotAtLogStart", f"node {node.id} starts at {log.start_offset} without a snapshot there")
        records = self.voter_records.get(node.slot)
        if records:
            self.voter_records[node.slot] = [at for at in records if at >= log.start_offset]


VOTER_RECORDS = frozenset(("KRAFT_VOTERS", "ADD_VOTER", "REMOVE_VOTER", "VOTER_ASSIGNMENT"))
EPOCH_STARTERS = frozenset(("LEADER_CHANGE", "VOTER_ASSIGNMENT"))
