"""What captured disks say of one cluster's log, and which holds of a record count as acknowledged.

A record is known by its epoch and offset (Raft's log matching); where two leaders wrote in one epoch that no longer
holds, and `conflicting_epochs` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kraft_audit.replay.epochs import EpochRun
from kraft_audit.replay.voters import VoterSet, in_effect


@dataclass(frozen=True, slots=True)
class LeaderStart:
    """A LeaderChange record: who led an epoch from where on; `directory_id` where the record tells (KIP-856)."""

    epoch: int
    offset: int
    leader_id: int
    directory_id: str | None = None


@dataclass(frozen=True)
class Branch:
    """One history of the log, as the longest replica that follows it has it; every captured log is part of one.

    `runs`: its epochs, ascending. `voter_sets`: the sets that came into effect on it (`voters.voter_history`).
    `first_batch_ends`: epochs of which it holds a metadata record behind the first batch, which is the LeaderChange's,
    and where that batch ends. `number` is what the reader calls the branch at its end.
    """

    runs: tuple[EpochRun, ...]
    leaders: Mapping[int, LeaderStart] = field(default_factory=dict)
    voter_sets: tuple[VoterSet, ...] = ()
    first_batch_ends: Mapping[int, int] = field(default_factory=dict)
    number: int | None = None

    @cached_property
    def run_of_epoch(self) -> dict[int, EpochRun]:
        return {run.epoch: run for run in self.runs}

    @property
    def end(self) -> tuple[int, int]:
        """(last epoch, end offset): what logs are compared by."""
        return (self.runs[-1].epoch, self.runs[-1].to_offset) if self.runs else (-1, 0)

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at an offset."""
        for run in self.runs:
            if run.from_offset <= offset < run.to_offset:
                return run.epoch
        return None

    def sets_in_epoch(self, epoch: int) -> list[tuple[VoterSet, int | None]]:
        """The sets that the leader of an epoch had in effect, each with the offset of its successor in that epoch.

        Raises KeyError where the branch holds nothing of the epoch.
        """
        run = self.run_of_epoch[epoch]
        first = in_effect(self.voter_sets, run.from_offset - 1)
        sets = [] if first is None else [first]
        sets += [s for s in self.voter_sets if s.from_epoch == epoch and s.from_offset >= run.from_offset]
        ends = [*(voter_set.from_offset for voter_set in sets[1:]), None][: len(sets)]
        return list(zip(sets, ends, strict=True))


def merged_branches(branches: Sequence[Branch]) -> tuple[Branch, ...]:
    """One branch for each history: what several replicas hold of the same one, joined."""
    merged: list[Branch] = []
    for branch in sorted(branches, key=lambda b: (b.end, -_start(b)), reverse=True):
        for at, longer in enumerate(merged):
            if _continues(longer, branch):
                if branch.runs and _start(branch) < _start(longer):
                    merged[at] = _joined(branch, longer)
                break
        else:
            merged.append(branch)
    return tuple(merged)


def _start(branch: Branch) -> int:
    return branch.runs[0].from_offset if branch.runs else 0


def _continues(longer: Branch, shorter: Branch) -> bool:
    """Whether all that the shorter one holds is, as far as both reach down, part of the longer one."""
    if not shorter.runs:
        return True
    last = shorter.runs[-1]
    common = longer.run_of_epoch.get(last.epoch)
    if common is None or last.to_offset < _start(longer):
        return False  # between them lies what nobody holds: other voter sets, perhaps another history
    start = longer.leaders.get(last.epoch, shorter.leaders.get(last.epoch))
    same_leader = shorter.leaders.get(last.epoch, start) == start
    return same_leader and last.to_offset <= common.to_offset


def _joined(below: Branch, above: Branch) -> Branch:
    """A branch that begins where `below` does and ends where `above` does; the two overlap or meet."""
    end = below.runs[-1].to_offset
    runs = {run.epoch: run for run in above.runs}
    for run in below.runs:
        further = runs.get(run.epoch, run)
        to_offset = max(run.to_offset, further.to_offset)
        runs[run.epoch] = EpochRun(run.epoch, run.from_offset, to_offset, run.timestamp_ms)
    return Branch(
        runs=tuple(runs[epoch] for epoch in sorted(runs)),
        leaders={**above.leaders, **below.leaders},
        voter_sets=(*below.voter_sets, *(s for s in above.voter_sets if s.from_offset >= end)),
        first_batch_ends={**above.first_batch_ends, **below.first_batch_ends},
        number=above.number,
    )


@dataclass(frozen=True, slots=True)
class PersistedState:
    """quorum-state as it was read *after* the log of the same node; ids are -1 for none."""

    epoch: int
    leader_id: int = -1
    voted_id: int = -1


@dataclass(frozen=True)
class Replica:
    """One captured disk: its log as epochs, the ends of its complete snapshots, its quorum-state.

    `branch` is the history that this disk alone tells; None for an empty log.
    """

    node_id: int
    directory_id: str | None
    runs: tuple[EpochRun, ...]
    snapshots: tuple[tuple[int, int], ...] = ()
    persisted: PersistedState | None = None
    read_from_ms: int = 0
    read_to_ms: int = 0
    branch: Branch | None = None

    @property
    def name(self) -> str:
        return f"node {self.node_id}"

    @property
    def end(self) -> tuple[int, int]:
        """(last epoch, end offset) of its log, of its newest snapshot where the log is empty."""
        if self.runs:
            return self.runs[-1].epoch, self.runs[-1].to_offset
        return max(((epoch, offset) for offset, epoch in self.snapshots), default=(-1, 0))

    def end_in_epoch(self, epoch: int) -> int | None:
        """Where its records of an epoch end; None where it holds none."""
        return next((run.to_offset for run in self.runs if run.epoch == epoch), None)

    def holds_to(self, branch: Branch) -> int:
        """It holds every record of the branch below this offset: by its log, or by a snapshot of it."""
        held = max((offset for offset, epoch in self.snapshots if _is_on(branch, offset, epoch)), default=0)
        for run in reversed(self.runs):
            common = branch.run_of_epoch.get(run.epoch)
            if common is not None:
                return max(held, min(run.to_offset, common.to_offset))
        return held


def _is_on(branch: Branch, end_offset: int, epoch: int) -> bool:
    """Whether a snapshot's last record is on a branch, as far as the branch is known."""
    known = branch.epoch_at(end_offset - 1)
    return known is None or known == epoch


@dataclass(frozen=True)
class ClusterEvidence:
    """All that was captured at about one time.

    `earlier_low`: (offset, epoch of the record below it) that earlier captures proved committed. `first_disks`: of an
    id the directory that the first voter set which knows one tells, whoever of the replicas saw that set.
    """

    branches: tuple[Branch, ...]
    replicas: tuple[Replica, ...]
    conflicting_epochs: frozenset[int] = frozenset()
    earlier_low: tuple[int, int] | None = None
    first_disks: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        replicas: Iterable[Replica],
        *,
        conflicting_epochs: frozenset[int] = frozenset(),
        earlier_low: tuple[int, int] | None = None,
        first_disks: Mapping[int, str] | None = None,
    ) -> ClusterEvidence:
        """What some disks say together, in whatever order they come."""
        ordered = sorted(replicas, key=lambda r: (r.node_id, r.directory_id or "", r.end, r.snapshots))
        branches = merged_branches([replica.branch for replica in ordered if replica.branch is not None])
        disks = _first_disks(branches) if first_disks is None else first_disks
        return cls(branches, tuple(ordered), conflicting_epochs, earlier_low, disks)

    def of_these(self, replicas: Iterable[Replica]) -> ClusterEvidence:
        """What some of its replicas say; of the others no more than whose disk each is."""
        return ClusterEvidence.of(
            replicas,
            conflicting_epochs=self.conflicting_epochs,
            earlier_low=self.earlier_low,
            first_disks=self.first_disks,
        )

    @cached_property
    def leaders(self) -> dict[int, LeaderStart]:
        """The LeaderChange of each epoch that any branch holds."""
        return {epoch: start for branch in self.branches for epoch, start in branch.leaders.items()}

    @cached_property
    def split_epochs(self) -> frozenset[int]:
        """Epochs that two leaders, or two starts, or other bytes claim."""
        seen: dict[int, LeaderStart] = {}
        split = set(self.conflicting_epochs)
        for branch in self.branches:
            for epoch, start in branch.leaders.items():
                if seen.setdefault(epoch, start) != start:
                    split.add(epoch)
        return frozenset(split)

    def captured(self, voter_set: VoterSet) -> list[Replica]:
        """The captured voters of a set, one disk for each voter (the one that is furthest).

        A disk that took the place of a static voter's, once an upgrade had made that possible, is not its disk.
        """
        found: dict[tuple[int, str | None], Replica] = {}
        for replica in self.replicas:
            for voter in voter_set.voters:
                if voter.voter_id != replica.node_id:
                    continue
                first = self.first_disks.get(voter.voter_id) if voter_set.is_static else None
                if first is not None and replica.directory_id not in (None, first):
                    continue
                if voter_set.is_disk_of(voter, replica.directory_id):
                    best = found.get(voter.key)
                    if best is None or best.end < replica.end:
                        found[voter.key] = replica
        return list(found.values())


def _first_disks(branches: Iterable[Branch]) -> dict[int, str]:
    sets = {(one.from_epoch, one.from_offset, one.voters) for branch in branches for one in branch.voter_sets}
    disks: dict[int, str] = {}
    for _, _, voters in sorted(sets, key=lambda one: one[:2]):
        for voter in voters:
            if voter.directory_id is not None:
                disks.setdefault(voter.voter_id, voter.directory_id)
    return disks


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Below `end_offset` a voter's hold of an epoch's records counts as acknowledged in that epoch, for this reason."""

    end_offset: int
    reason: str


def acknowledgements(evidence: ClusterEvidence, branch: Branch, voter_set: VoterSet, epoch: int) -> list[Acknowledged]:
    """One entry for each voter of the set whose hold of records of the epoch counts as acknowledged in it.

    Design rules (a) to (d): in the epoch by quorum-state; led it; led the next one; can have fetched in none between.
    """
    found = []
    for voter in voter_set.voters:
        replicas = [r for r in evidence.captured(voter_set) if r.node_id == voter.voter_id]
        replicas = [r for r in replicas if voter_set.is_disk_of(voter, r.directory_id)]
        candidates = [ack for r in replicas if (ack := _captured_hold(evidence, r, epoch)) is not None]
        candidates += _leader_holds(evidence, branch, voter.key, epoch)
        if candidates:
            found.append(max(candidates, key=lambda ack: ack.end_offset))
    return found


def _captured_hold(evidence: ClusterEvidence, replica: Replica, epoch: int) -> Acknowledged | None:
    """Rules (a) and (d): what the quorum-state of a captured voter proves of its log."""
    end = replica.end_in_epoch(epoch)
    persisted = replica.persisted
    if end is None or persisted is None or persisted.epoch < epoch:
        return None
    if persisted.epoch == epoch:
        return Acknowledged(end, f"{replica.name} holds epoch {epoch} to {end} and is in that epoch")
    for later in range(epoch + 1, persisted.epoch + 1):
        key = (replica.node_id, replica.directory_id)
        led = any((start := b.leaders.get(later)) is not None and _led(b, start, key) for b in evidence.branches)
        leaderless = later == persisted.epoch and persisted.leader_id == -1
        if not (led or leaderless):
            return None
    return Acknowledged(end, f"{replica.name} holds epoch {epoch} to {end} and can have fetched in no epoch since")


def _leader_holds(
    evidence: ClusterEvidence, branch: Branch, key: tuple[int, str | None], epoch: int
) -> list[Acknowledged]:
    """Rules (b) and (c): what leading an epoch, or the next one, proves of a voter, captured or not."""
    found = []
    start = branch.leaders.get(epoch)
    if start is not None and _led(branch, start, key):
        ends = [run.to_offset for b in evidence.branches if (run := b.run_of_epoch.get(epoch)) is not None]
        end = max(ends)
        found.append(Acknowledged(end, f"node {key[0]} led epoch {epoch}, of which records to {end} are seen"))
    following = branch.leaders.get(epoch + 1)
    run = branch.run_of_epoch.get(epoch)
    if following is not None and run is not None and _led(branch, following, key):
        end = min(run.to_offset, following.offset)
        found.append(Acknowledged(end, f"node {key[0]} led epoch {epoch + 1} behind records of epoch {epoch} to {end}"))
    return found


def _led(branch: Branch, start: LeaderStart, key: tuple[int, str | None]) -> bool:
    """Whether a disk, known by id and directory, is the leader that a LeaderChange names by its id.

    While a failed disk and its successor both vote (KIP-856) the id alone does not tell which of them led.
    """
    if start.leader_id != key[0]:
        return False
    if start.directory_id is not None and key[1] is not None:
        return start.directory_id == key[1]
    elected_in = in_effect(branch.voter_sets, start.offset - 1) or in_effect(branch.voter_sets, start.offset)
    if elected_in is None:
        return key[1] is None
    disks = [voter.directory_id for voter in elected_in.voters if voter.voter_id == key[0]]
    return len(disks) == 1 and (key[1] is None or disks[0] in (None, key[1]))


def majority(voter_count: int) -> int:
    """How many voters decide."""
    return voter_count // 2 + 1


def leader_high_watermark(end_offsets: Sequence[int | None]) -> int | None:
    """LeaderState.maybeUpdateHighWatermark 4.3.0: the end offset that a majority of the voters reached.

    None where that many end offsets are not known. That it must lie above the epoch's start is left to the caller.
    """
    known = sorted((-1 if end is None else end for end in end_offsets), reverse=True)
    end = known[len(known) // 2]
    return None if end < 0 else end
