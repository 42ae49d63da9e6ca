"""The evidence of captured disks about one cluster's log, and which holds of a record count as acknowledged.

Epoch and offset identify a record (log matching, Raft section 5.3). Where two leaders wrote in one epoch they do not:
`conflicting_epochs` names such epochs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kraft_audit.capture.found_log import VoterKey
from kraft_audit.quorum.voter_history import VoterSet, in_effect


@dataclass(frozen=True, slots=True)
class EpochRun:
    """The records of one leader epoch on one branch: half-open offsets, and the append time of the first batch."""

    epoch: int
    from_offset: int
    to_offset: int
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LeaderStart:
    """A LeaderChange record: the leader of an epoch from an offset on. `directory_id` is known in KIP-856 only.

    `granting` are the ids of the voters that elected it.
    """

    epoch: int
    offset: int
    leader_id: int
    directory_id: str | None = None
    granting: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class LogChain:
    """One chain of batches from the log's start to an end, as the longest replica on it holds it.

    Every captured log is part of a chain. `runs`: its epochs, ascending. `voter_sets`: the sets that came into effect
    on it (`voter_history`). `first_batch_ends`: by epoch, the end offset of the first batch, where that batch is the
    LeaderChange's and a metadata record of the epoch follows it. `number`: the number of the branch at its end.
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
        """(last epoch, end offset), by which logs are compared (OffsetAndEpoch, Kafka 4.3.0)."""
        return (self.runs[-1].epoch, self.runs[-1].to_offset) if self.runs else (-1, 0)

    @property
    def voters_at_end(self) -> VoterSet | None:
        """The voter set at its end, uncommitted changes included."""
        return in_effect(self.voter_sets, self.end[1])

    def electing_set(self, start: LeaderStart) -> VoterSet | None:
        """The set whose voters elected a leader; where the set is not known that its log had before, the first one.

        A static set that begins at a LeaderChange is that of the leader's configuration, which elected it.
        """
        own = in_effect(self.voter_sets, start.offset)
        if own is not None and own.is_static and own.from_offset == start.offset:
            return own
        return in_effect(self.voter_sets, start.offset - 1) or own

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record at an offset, None where the chain holds no record there."""
        for run in self.runs:
            if run.from_offset <= offset < run.to_offset:
                return run.epoch
        return None

    def sets_in_epoch(self, epoch: int) -> list[tuple[VoterSet, int | None]]:
        """The sets that the leader of an epoch had in effect, each with the offset of that epoch's next set.

        Raises KeyError where the chain holds no record of the epoch.
        """
        run = self.run_of_epoch[epoch]
        sets = [s for s in self.voter_sets if s.from_epoch == epoch and s.from_offset >= run.from_offset]
        first = in_effect(self.voter_sets, run.from_offset - 1)
        is_reconfigured = bool(sets) and sets[0].is_static and sets[0].from_offset == run.from_offset
        if first is not None and not is_reconfigured:
            sets.insert(0, first)
        ends = [*(voter_set.from_offset for voter_set in sets[1:]), None][: len(sets)]
        return list(zip(sets, ends, strict=True))


def merged_chains(chains: Sequence[LogChain]) -> tuple[LogChain, ...]:
    """The chains without duplicates: what several replicas hold of the same chain is joined."""
    merged: list[LogChain] = []
    for chain in sorted(chains, key=lambda b: (b.end, -_start_offset(b)), reverse=True):
        for at, longer in enumerate(merged):
            if _continues(longer, chain):
                if chain.runs and _start_offset(chain) < _start_offset(longer):
                    merged[at] = _joined_chain(chain, longer)
                break
        else:
            merged.append(chain)
    return tuple(merged)


def _start_offset(chain: LogChain) -> int:
    return chain.runs[0].from_offset if chain.runs else 0


def _continues(longer: LogChain, shorter: LogChain) -> bool:
    """Whether the shorter chain is part of the longer one, as far as both begin low enough to be compared."""
    if not shorter.runs:
        return True
    last = shorter.runs[-1]
    common = longer.run_of_epoch.get(last.epoch)
    if common is None or last.to_offset < _start_offset(longer):
        return False  # no replica holds the records between them: other voter sets, perhaps another chain
    start = longer.leaders.get(last.epoch, shorter.leaders.get(last.epoch))
    same_leader = shorter.leaders.get(last.epoch, start) == start
    return same_leader and last.to_offset <= common.to_offset


def _joined_chain(below: LogChain, above: LogChain) -> LogChain:
    """The chain from the start of `below` to the end of `above`; the two overlap or meet."""
    end = below.runs[-1].to_offset
    runs = {run.epoch: run for run in above.runs}
    for run in below.runs:
        further = runs.get(run.epoch, run)
        to_offset = max(run.to_offset, further.to_offset)
        runs[run.epoch] = EpochRun(run.epoch, run.from_offset, to_offset, run.timestamp_ms)
    return LogChain(
        runs=tuple(runs[epoch] for epoch in sorted(runs)),
        leaders={**above.leaders, **below.leaders},
        voter_sets=(*below.voter_sets, *(s for s in above.voter_sets if s.from_offset >= end)),
        first_batch_ends={**above.first_batch_ends, **below.first_batch_ends},
        number=above.number,
    )


@dataclass(frozen=True, slots=True)
class PersistedState:
    """The quorum-state, read *after* the log of the same node: the other order proves nothing. Ids are -1 for none.

    `current_voters` are the configured ones of kraft.version 0 as of the node's last start; None where it has none.
    """

    epoch: int
    leader_id: int = -1
    voted_id: int = -1
    current_voters: frozenset[int] | None = None

    def forgotten_epoch(self, took_part: int, earlier: int) -> int:
        """The newest epoch that the disk once knew and no longer does; -1 where there is none.

        `took_part`: the newest epoch in which it led or elected a leader, `earlier`: the largest one that it had
        persisted. A vote is persisted before it is given, and an epoch never goes back (QuorumState, Kafka 4.3).
        """
        if max(took_part, earlier) > self.epoch:
            return max(took_part, earlier)
        is_blank = self.leader_id < 0 and self.voted_id < 0
        return took_part if is_blank and took_part == self.epoch else -1


@dataclass(frozen=True)
class CapturedReplica:
    """One captured disk: its log as epochs, its complete snapshots as (end offset, epoch), its quorum-state.

    `chain` is what this disk alone shows of the log, None for an empty log. Times are in milliseconds. Offsets below
    `held_end_offset` had reached the disk; None where no copier noted it.
    """

    node_id: int
    directory_id: str | None
    runs: tuple[EpochRun, ...]
    snapshots: tuple[tuple[int, int], ...] = ()
    persisted: PersistedState | None = None
    read_from_ms: int = 0
    read_to_ms: int = 0
    chain: LogChain | None = None
    held_end_offset: int | None = None

    @property
    def name(self) -> str:
        return f"node {self.node_id}"

    @property
    def key(self) -> VoterKey:
        """What a voter is known by: node id and directory id."""
        return self.node_id, self.directory_id

    @property
    def end(self) -> tuple[int, int]:
        """(last epoch, end offset) of its log, or of its newest snapshot where the log is empty."""
        if self.runs:
            return self.runs[-1].epoch, self.runs[-1].to_offset
        return max(((epoch, offset) for offset, epoch in self.snapshots), default=(-1, 0))

    @property
    def is_partly_held(self) -> bool:
        """Whether the end of its log was read and may not have reached the disk."""
        return self.held_end_offset is not None and bool(self.runs) and self.held_end_offset < self.end[1]

    def end_in_epoch(self, epoch: int) -> int | None:
        """The offset after its last record of an epoch, None where it holds none."""
        return next((run.to_offset for run in self.runs if run.epoch == epoch), None)

    def holds_to(self, chain: LogChain) -> int:
        """The offset below which it holds every record of the chain, in its log or in a snapshot."""
        held = max((offset for offset, epoch in self.snapshots if _is_on(chain, offset, epoch)), default=0)
        for run in reversed(self.runs):
            common = chain.run_of_epoch.get(run.epoch)
            if common is not None:
                return max(held, min(run.to_offset, common.to_offset))
        return held


def _is_on(chain: LogChain, end_offset: int, epoch: int) -> bool:
    """Whether a snapshot's last record is on a chain, as far as the chain is known there."""
    known = chain.epoch_at(end_offset - 1)
    return known is None or known == epoch


@dataclass(frozen=True)
class QuorumEvidence:
    """What one round of captures says about the log.

    `earlier_low`: (offset, epoch of the record before it) that earlier captures proved committed. `known_low`: the same
    of captures that may be later ones, so that a disk that lacks it may have been read before. `first_disks`: by voter
    id, the directory id in the first voter set that has one, on any chain. Without `counts_unsynced` a hold reaches
    only as far as it had surely reached the disk: what vanishes with a page cache was held by none.
    """

    chains: tuple[LogChain, ...]
    replicas: tuple[CapturedReplica, ...]
    conflicting_epochs: frozenset[int] = frozenset()
    earlier_low: tuple[int, int] | None = None
    first_disks: Mapping[int, str] = field(default_factory=dict)
    counts_unsynced: bool = True
    known_low: tuple[int, int] | None = None

    @classmethod
    def of(
        cls,
        replicas: Iterable[CapturedReplica],
        *,
        conflicting_epochs: frozenset[int] = frozenset(),
        earlier_low: tuple[int, int] | None = None,
        first_disks: Mapping[int, str] | None = None,
        known_low: tuple[int, int] | None = None,
    ) -> QuorumEvidence:
        """The evidence of these disks together; their order does not matter."""
        ordered = sorted(replicas, key=lambda r: (r.node_id, r.directory_id or "", r.end, r.snapshots))
        chains = merged_chains([replica.chain for replica in ordered if replica.chain is not None])
        disks = _first_disks(chains) if first_disks is None else first_disks
        return cls(chains, tuple(ordered), conflicting_epochs, earlier_low, disks, known_low=known_low)

    def of_these(self, replicas: Iterable[CapturedReplica]) -> QuorumEvidence:
        """The evidence of a part of the replicas; of the other replicas only `first_disks` and conflicts remain."""
        return QuorumEvidence.of(
            replicas,
            conflicting_epochs=self.conflicting_epochs,
            earlier_low=self.earlier_low,
            first_disks=self.first_disks,
            known_low=self.known_low,
        )

    @cached_property
    def leaders(self) -> dict[int, LeaderStart]:
        """The LeaderChange of each epoch, from any chain."""
        return {epoch: start for chain in self.chains for epoch, start in chain.leaders.items()}

    @property
    def newest_leader(self) -> tuple[int, int]:
        """(epoch, leader id) of the highest epoch that any disk names, in quorum-state or a LeaderChange; -1: none."""
        states = (replica.persisted for replica in self.replicas)
        named = [(state.epoch, state.leader_id) for state in states if state is not None]
        named += [(epoch, start.leader_id) for epoch, start in self.leaders.items()]
        return max(named, default=(-1, -1))

    @cached_property
    def newest_leaders(self) -> frozenset[int]:
        """All that led the newest epoch: several contradict each other."""
        return self.leaders_of(self.newest_leader[0])

    def leaders_of(self, epoch: int) -> frozenset[int]:
        """The ids of all that led an epoch, by LeaderChange or quorum-state."""
        starts = (chain.leaders.get(epoch) for chain in self.chains)
        states = (state for replica in self.replicas if (state := replica.persisted) is not None)
        named = {start.leader_id for start in starts if start is not None}
        return frozenset((named | {state.leader_id for state in states if state.epoch == epoch}) - {-1})

    @cached_property
    def split_epochs(self) -> frozenset[int]:
        """Epochs with two leaders, two starts, or different records at one offset."""
        seen: dict[int, LeaderStart] = {}
        split = set(self.conflicting_epochs)
        for chain in self.chains:
            for epoch, start in chain.leaders.items():
                if seen.setdefault(epoch, start) != start:
                    split.add(epoch)
        return frozenset(split)

    def captured(self, voter_set: VoterSet) -> list[CapturedReplica]:
        """The captured voters of a set, one disk for each voter: the one whose log reaches furthest.

        Not counted: a disk that replaced a static voter's disk after an upgrade to kraft.version 1 had made that
        possible.
        """
        replica_of: dict[VoterKey, CapturedReplica] = {}
        for replica in self.replicas:
            for voter in voter_set.by_id.get(replica.node_id, ()):
                first = self.first_disks.get(voter.voter_id) if voter_set.is_static else None
                if first is not None and replica.directory_id not in (None, first):
                    continue
                if voter_set.is_disk_of(voter, replica.directory_id):
                    best = replica_of.get(voter.key)
                    if best is None or best.end < replica.end:
                        replica_of[voter.key] = replica
        return list(replica_of.values())


def _first_disks(chains: Iterable[LogChain]) -> dict[int, str]:
    sets = {(known.from_epoch, known.from_offset, known.voters) for chain in chains for known in chain.voter_sets}
    disks: dict[int, str] = {}
    for _, _, voters in sorted(sets, key=lambda known: known[:2]):
        for voter in voters:
            if voter.directory_id is not None:
                disks.setdefault(voter.voter_id, voter.directory_id)
    return disks


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A voter's hold of an epoch's records below `end_offset` counts as acknowledged in that epoch, for this reason."""

    end_offset: int
    reason: str


def acknowledgements(
    evidence: QuorumEvidence, chain: LogChain, voter_set: VoterSet, epoch: int
) -> list[Acknowledgement]:
    """One entry for each voter of the set whose hold of the epoch's records counts as acknowledged in it.

    A voter's hold counts when (a) its quorum-state is in the epoch, (b) it led the epoch, (c) it led the next epoch and
    the record lies below that LeaderChange, or (d) it can have fetched in no epoch from the next to the persisted one.
    """
    holds = []
    captured: dict[int | None, list[CapturedReplica]] = defaultdict(list)
    for replica in evidence.captured(voter_set):
        captured[replica.node_id].append(replica)
    for voter in voter_set.voters:
        replicas = [r for r in captured.get(voter.voter_id, ()) if voter_set.is_disk_of(voter, r.directory_id)]
        candidates = [ack for r in replicas if (ack := _captured_hold(evidence, r, epoch)) is not None]
        candidates += _leader_holds(evidence, chain, voter.key, epoch)
        if candidates:
            holds.append(max(candidates, key=lambda ack: ack.end_offset))
    return holds


def _captured_hold(evidence: QuorumEvidence, replica: CapturedReplica, epoch: int) -> Acknowledgement | None:
    """Rules (a) and (d): what the quorum-state of a captured voter proves about its log."""
    end = replica.end_in_epoch(epoch)
    if end is not None and not evidence.counts_unsynced and replica.held_end_offset is not None:
        end = min(end, replica.held_end_offset)
    persisted = replica.persisted
    if end is None or persisted is None or persisted.epoch < epoch:
        return None
    if persisted.epoch == epoch:
        reason = f"{replica.name} holds epoch {epoch} to {end} and is in that epoch"
        if replica.held_end_offset is not None and replica.held_end_offset < end:
            reason += f", if what was read of it from offset {replica.held_end_offset} on had reached its disk"
        return Acknowledgement(end, reason)
    for later in range(epoch + 1, persisted.epoch + 1):
        starts = ((b, b.leaders.get(later)) for b in evidence.chains)
        led = any(start is not None and _led(b, start, replica.key) for b, start in starts)
        leaderless = later == persisted.epoch and persisted.leader_id == -1
        if not (led or leaderless):
            return None
    return Acknowledgement(end, f"{replica.name} holds epoch {epoch} to {end} and can have fetched in no epoch since")


def _leader_holds(evidence: QuorumEvidence, chain: LogChain, key: VoterKey, epoch: int) -> list[Acknowledgement]:
    """Rules (b) and (c): what leading the epoch, or the next one, proves about a voter, captured or not."""
    holds = []
    if _led_epoch(evidence, chain, epoch, key):
        ends = [run.to_offset for b in evidence.chains if (run := b.run_of_epoch.get(epoch)) is not None]
        end = max(ends)
        if not evidence.counts_unsynced:
            end = min([end, *_held_ends(evidence, key)])
        holds.append(Acknowledgement(end, f"node {key[0]} led epoch {epoch}, of which records to {end} are seen"))
    following = chain.leaders.get(epoch + 1)
    run = chain.run_of_epoch.get(epoch)
    if following is not None and run is not None and _led(chain, following, key):
        end = min(run.to_offset, following.offset)
        holds.append(
            Acknowledgement(end, f"node {key[0]} led epoch {epoch + 1} after records of epoch {epoch} to {end}")
        )
    return holds


def _held_ends(evidence: QuorumEvidence, key: VoterKey) -> list[int]:
    """Up to where a captured disk had surely taken its log in, where a copier noted that."""
    own = [replica for replica in evidence.replicas if replica.key == key]
    return [replica.held_end_offset for replica in own if replica.held_end_offset is not None]


def _led_epoch(evidence: QuorumEvidence, chain: LogChain, epoch: int, key: VoterKey) -> bool:
    """Whether a disk led an epoch of a chain.

    Kafka deletes a LeaderChange with its segment. Another disk may still hold it, on a chain that ends before this one
    begins: perhaps in a log that began again. So it counts here only where a disk that holds records of the epoch on
    this chain is still in it and names the same leader, and no disk names another one.
    """
    own = chain.leaders.get(epoch)
    if own is not None:
        return _led(chain, own, key)
    begin = chain.runs[0].from_offset
    states = [r.persisted for r in evidence.replicas if (r.end_in_epoch(epoch) or 0) > begin]
    is_named = any(state is not None and (state.epoch, state.leader_id) == (epoch, key[0]) for state in states)
    if not is_named or len(evidence.leaders_of(epoch)) != 1:
        return False
    starts = ((other, other.leaders.get(epoch)) for other in evidence.chains)
    return any(start is not None and _led(other, start, key) for other, start in starts)


def _led(chain: LogChain, start: LeaderStart, key: VoterKey) -> bool:
    """Whether a disk (id, directory id) is the leader that a LeaderChange names by id.

    While a failed disk and its replacement both vote (KIP-856), the id alone does not decide which of them led.
    """
    if start.leader_id != key[0]:
        return False
    if start.directory_id is not None and key[1] is not None:
        return start.directory_id == key[1]
    elected_in = chain.electing_set(start)
    if elected_in is None:
        return key[1] is None
    disks = [voter.directory_id for voter in elected_in.voters if voter.voter_id == key[0]]
    return len(disks) == 1 and (key[1] is None or disks[0] in (None, key[1]))


def majority(voter_count: int) -> int:
    """How many of that many voters are a majority."""
    return voter_count // 2 + 1
