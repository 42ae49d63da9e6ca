"""Whether elections among some disks can lose a committed record, or let two nodes lead one epoch.

A record is lost where a voter without it may be elected: a majority of the voters that *its* log names grants it their
votes (KafkaRaftClient.handleVoteRequest of Kafka 4.3: the candidate's (last epoch, end offset) is at least the voter's;
KIP-853: a candidate asks the voters of its own log, uncommitted changes included). Two nodes lead one epoch where a
voter has forgotten its vote (FileQuorumStateStore). Epochs can always be raised, so they decide nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kraft_audit.capture.found_log import VoterKey
from kraft_audit.quorum.committed_interval import CommittedInterval, committed_interval
from kraft_audit.quorum.quorum_evidence import (
    CapturedReplica,
    LeaderStart,
    LogChain,
    QuorumEvidence,
    majority,
)
from kraft_audit.quorum.voter_history import VoterSet
from kraft_audit.recovery.may_i.compared_captures import DiskWentBack, RivalCapture
from kraft_audit.recovery.may_i.electorate import EMPTY_END, NO_EPOCH, DiskDoubt, Electorate, VoterDisk


@dataclass(frozen=True, slots=True)
class Election:
    """An election that loses the committed record at `offset`: `candidate` wins with the votes of `voters`."""

    candidate: int
    voters: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class SecondLeader:
    """`candidate` may lead `epoch`, in which `first` led or stood, with the votes of `voters`."""

    candidate: int
    first: int
    voters: tuple[int, ...]
    epoch: int


@dataclass(frozen=True)
class StartSafety:
    """The disks of one quorum, and what of their log is committed: below `low` surely, below `high` perhaps.

    `high` is None without an upper bound. `stood`: by epoch, the nodes that led it or got a vote in it. `rival` is a
    capture that may be later than the one that the disks are of; `went_back` are those that held more before it.
    """

    disks: tuple[VoterDisk, ...]
    chain: LogChain
    low: int
    high: int | None
    stood: Mapping[int, frozenset[int]]
    rival: RivalCapture | None = None
    went_back: tuple[DiskWentBack, ...] = ()

    @property
    def newest_epoch(self) -> int:
        """The largest epoch that any disk names; what a disk in doubt claims names none."""
        states = (disk.state.epoch for disk in self.disks if disk.state is not None)
        ends = (disk.end[0] for disk in self.disks if disk.doubt is None)
        return max([*states, *self.stood, *ends], default=NO_EPOCH)

    def voter_ids(self, *, with_earlier: bool) -> frozenset[int]:
        """Who is a voter in a set that a disk goes by; with those of earlier sets, which an empty disk may go by."""
        sets = {id(voter_set): voter_set for disk in self.disks for voter_set in disk.voter_sets}
        sets |= {id(voter_set): voter_set for voter_set in (self.chain.voter_sets if with_earlier else ())}
        return frozenset().union(*(voter_set.ids for voter_set in sets.values()))

    def may_hold_more(self, doubts: Mapping[int, DiskDoubt]) -> bool:
        """Whether these voters may hold committed records that no disk holds which is evidence.

        Their bytes say so, or say nothing. Who led the last epoch counted its own records before they had reached its
        disk, so they make a majority with it. Without them a majority was read, which holds what is committed.
        """
        voters, epoch = self.chain.voters_at_end, self.chain.end[0]
        if voters is None:
            return False
        held = max((disk.held_to for disk in self.disks if disk.node_id not in doubts), default=0)
        more = {node for node, doubt in doubts.items() if doubt.claimed_end == EMPTY_END or doubt.claimed_end[1] > held}
        start = self.chain.leaders.get(epoch)
        led = {disk.state.leader_id for disk in self.disks if disk.state is not None and disk.state.epoch == epoch}
        leaders = (led if start is None else {start.leader_id}) & voters.ids
        return bool(more) and len(leaders | (voters.ids & more)) >= majority(len(voters.ids))

    def with_disks(self, disks: Iterable[VoterDisk]) -> StartSafety:
        return replace(self, disks=tuple(disks))

    def after_wipe(
        self, node_id: int, running: Collection[VoterDisk], forgotten_to: int
    ) -> tuple[list[VoterDisk], list[VoterDisk]]:
        """The running disks once this node's is empty, twice: with every voter set that it may go by, and that it does.

        Only a configured set surely outlives the wipe. The one that the disk was first formatted with, which it may get
        again, can name fewer voters, so that fewer votes elect it.
        """
        own = [disk for disk in running if disk.node_id == node_id]
        rest = [disk for disk in running if disk.node_id != node_id]
        seen = _distinct((*self.chain.voter_sets, *(each for disk in own for each in disk.voter_sets)))
        may_go_by = [replace(disk.emptied(forgotten_to), voter_sets=tuple(seen)) for disk in own]
        goes_by = [
            replace(disk.emptied(forgotten_to), voter_sets=tuple(each for each in sets if each.is_static))
            for disk in own
            for sets in (disk.voter_sets if disk.is_configured else seen,)
        ]
        return [*rest, *may_go_by], [*rest, *goes_by]

    def playable(self, running: Collection[VoterDisk]) -> Election | None:
        """An election that can be won at once, with disks that were read, and loses what is surely committed."""
        read = [disk for disk in running if disk.is_captured]
        return next(self._elections(read, self.low, is_playable=True), None)

    def losing(self, running: Collection[VoterDisk]) -> Election | None:
        """An election, perhaps after others, without a record that may be committed; None where none can be.

        A voter that lacks the record may grant any candidate its vote: what makes its log longer may be truncated. What
        it holds below `low` may not: the first leader that lacks a committed record lacks the last one too.
        """
        return next(self._elections(running, self.high, from_offset=max(self.low - 1, 0)), None)

    def can_elect(self, running: Collection[VoterDisk]) -> bool:
        """Whether one of these disks can be elected by the others, whichever of the sets it goes by."""
        electorates = _Electorates(running)
        return any(
            all(electorates.of(each).count() >= electorates.of(each).majority for each in disk.voter_sets)
            for disk in running
            if any(each.holds(disk.node_id, disk.directory_id) for each in disk.voter_sets)
        )

    def losing_first(self, running: Collection[VoterDisk]) -> Election | None:
        """The same of every record of the log, committed or not, the first one that can be lost."""
        return next(self._elections(running, self.chain.end[1]), None)

    def _elections(
        self, running: Collection[VoterDisk], limit: int | None, *, from_offset: int = 0, is_playable: bool = False
    ) -> Iterator[Election]:
        electorates = _Electorates(running)
        for offset in self._records(limit, from_offset):
            for candidate in running:
                if offset is not None and candidate.held_to > offset:
                    continue
                for voter_set in candidate.voter_sets:
                    votes = self._votes(candidate, electorates.of(voter_set), offset, is_playable=is_playable)
                    if votes is not None:
                        yield Election(candidate.node_id, votes, self.chain.end[1] if offset is None else offset)

    def _records(self, limit: int | None, from_offset: int) -> Iterator[int | None]:
        """The offsets that matter: who lacks a record changes only where a disk's log ends.

        None stands for a record that no captured disk holds: there may be one where nothing bounds what is committed.
        """
        ends = {self.chain.runs[0].from_offset, *(disk.held_to for disk in self.disks)} if self.chain.runs else set()
        yield from sorted(end for end in {from_offset, *ends} if from_offset <= end and (limit is None or end < limit))
        if limit is None:
            yield None

    def _votes(
        self, candidate: VoterDisk, electorate: Electorate, offset: int | None, *, is_playable: bool
    ) -> tuple[int, ...] | None:
        """The voters that elect the candidate; None where they are no majority of its set."""
        if is_playable:
            count = electorate.count_ends_to(candidate.end)
            return electorate.votes(candidate, lambda disk: candidate.end >= disk.end, count)
        epoch = None if offset is None else self.chain.epoch_at(offset)
        if offset is None or candidate.end >= (0 if epoch is None else epoch, offset + 1):
            return electorate.votes(candidate, lambda _: True, electorate.count())
        # What holds the record grants no vote to a candidate whose log is shorter.
        return electorate.votes(candidate, lambda disk: disk.held_to <= offset, electorate.count_held_to(offset))

    def second_leader(self, running: Collection[VoterDisk]) -> SecondLeader | None:
        """An epoch that a second node may lead, as a voter forgot its vote in it; None where there is none."""
        forgotten_to = max((disk.forgotten_to for disk in running), default=NO_EPOCH)
        electorates = _Electorates(running)
        for epoch in sorted((epoch for epoch in self.stood if epoch <= forgotten_to), reverse=True):
            for candidate in running:
                first = next((node for node in sorted(self.stood[epoch]) if node != candidate.node_id), None)
                if first is None and candidate.forgotten_to >= epoch:
                    first = candidate.node_id
                if first is None or not _can_stand(candidate, epoch):
                    continue
                for voter_set in candidate.voter_sets:
                    votes = electorates.of(voter_set).votes_in_epoch(candidate, epoch)
                    if votes is not None:
                        return SecondLeader(candidate.node_id, first, votes, epoch)
        return None


def _distinct(sets: Iterable[VoterSet]) -> list[VoterSet]:
    """Each voter set once. Disks share them, and comparing two of thousands of voters takes a while."""
    objects = {id(voter_set): voter_set for voter_set in sets}
    return list(dict.fromkeys(objects.values()))


class _Electorates:
    """The electorates of some running disks, each made once; voter sets of one place in memory are one."""

    def __init__(self, running: Collection[VoterDisk]) -> None:
        self._running = running
        self._known: dict[int, tuple[VoterSet, Electorate]] = {}

    def of(self, voter_set: VoterSet) -> Electorate:
        if id(voter_set) not in self._known:
            self._known[id(voter_set)] = voter_set, Electorate(voter_set, self._running)
        return self._known[id(voter_set)][1]


def _can_stand(disk: VoterDisk, epoch: int) -> bool:
    """A candidate raises its epoch to the one in which it stands."""
    if disk.forgotten_to >= epoch or disk.state is None or disk.state.epoch < epoch:
        return True
    return disk.state.epoch == epoch and disk.state.voted_id == disk.node_id


def start_safety(
    evidence: QuorumEvidence,
    interval: CommittedInterval,
    sets_of: Mapping[int, VoterSet | None],
    *,
    earlier_epochs: Mapping[VoterKey, int] | None = None,
    shortened: Collection[int] = (),
    doubts: Mapping[int, DiskDoubt] | None = None,
) -> StartSafety | None:
    """What these disks can do to each other; None without a canonical log.

    `sets_of`: by place among the evidence's replicas, the voter set that the disk's own log, snapshot or configuration
    names. `earlier_epochs`: the largest epoch that an earlier capture of a disk had persisted. `shortened`: the places
    of disks that held more of the log than they do now. `doubts`: by node, disks that were read and are no evidence.
    """
    chain = interval.canonical
    if chain is None:
        return None
    stood = _stood(evidence)
    newest = max([*stood, *(r.persisted.epoch for r in evidence.replicas if r.persisted is not None)], default=NO_EPOCH)
    disks = []
    elections = _elections_by_node(evidence)
    snapshots = {snapshot for own in evidence.replicas for snapshot in own.snapshots}
    for place, replica in enumerate(evidence.replicas):
        voter_set = sets_of.get(place)
        earlier = (earlier_epochs or {}).get(replica.key, NO_EPOCH)
        doubt = (doubts or {}).get(replica.node_id)
        disks.append(
            VoterDisk(
                replica.node_id,
                replica.directory_id,
                replica.end if doubt is None else max(replica.end, doubt.claimed_end),
                _held_to(snapshots, replica, chain) if doubt is None else 0,
                () if voter_set is None else (voter_set,),
                replica.persisted,
                _forgotten_to(elections.get(replica.node_id, ()), replica, newest, earlier),
                is_captured=doubt is None,
                doubt=doubt,
                is_configured=replica.persisted is not None and replica.persisted.current_voters is not None,
            )
        )
    high = interval.high
    remembering = [
        replica
        for place, (replica, disk) in enumerate(zip(evidence.replicas, disks, strict=True))
        if disk.forgotten_to == NO_EPOCH and place not in shortened
    ]
    if len(remembering) < len(disks):
        # What a wiped or emptied disk lacks now says nothing of what it once acknowledged.
        high = committed_interval(evidence.of_these(remembering)).high
    disks += _uncaptured(evidence, disks, newest, doubts or {})
    return StartSafety(tuple(disks), chain, interval.low, None if high is None else max(high, interval.low), stood)


def _held_to(snapshots: Collection[tuple[int, int]], replica: CapturedReplica, chain: LogChain) -> int:
    """The offset below which it holds the chain, and what any disk's snapshots say stood below the chain's start.

    A snapshot names the epoch of its last record. Who holds a record of that epoch holds the same one there.
    """
    held = replica.holds_to(chain)
    for offset, epoch in snapshots:
        for run in replica.runs:
            if run.epoch == epoch and run.from_offset < offset:
                held = max(held, min(run.to_offset, offset))
    return held


def _stood(evidence: QuorumEvidence) -> dict[int, frozenset[int]]:
    """By epoch, who led it or got a vote in it, as any disk or LeaderChange says."""
    seen = [(start.epoch, start.leader_id) for chain in evidence.chains for start in chain.leaders.values()]
    for replica in evidence.replicas:
        if (state := replica.persisted) is not None:
            seen += [(state.epoch, node) for node in (state.leader_id, state.voted_id) if node >= 0]
    stood: dict[int, set[int]] = defaultdict(set)
    for epoch, node in seen:
        stood[epoch].add(node)
    return {epoch: frozenset(nodes) for epoch, nodes in stood.items()}


def _forgotten_to(
    elections: Iterable[tuple[LogChain, LeaderStart]], replica: CapturedReplica, newest: int, earlier: int
) -> int:
    """The newest epoch in which this disk may have voted without knowing it; NO_EPOCH where it knows."""
    state = replica.persisted
    if state is None:
        return newest
    took_part = max((start.epoch for start in _elections_of(elections, replica)), default=NO_EPOCH)
    return state.forgotten_epoch(took_part, earlier)


def _elections_by_node(evidence: QuorumEvidence) -> dict[int, list[tuple[LogChain, LeaderStart]]]:
    """The LeaderChanges that name a node as leader or among those who elected it."""
    elections: dict[int, list[tuple[LogChain, LeaderStart]]] = defaultdict(list)
    for chain in evidence.chains:
        for start in chain.leaders.values():
            for node_id in {start.leader_id, *start.granting}:
                elections[node_id].append((chain, start))
    return elections


def _elections_of(elections: Iterable[tuple[LogChain, LeaderStart]], replica: CapturedReplica) -> Iterator[LeaderStart]:
    """Of those of its node the LeaderChanges in which this disk took part."""
    for chain, start in elections:
        elected_in = chain.electing_set(start)
        if elected_in is None or elected_in.holds(*replica.key):
            yield start


def _uncaptured(
    evidence: QuorumEvidence, disks: Sequence[VoterDisk], newest: int, doubts: Mapping[int, DiskDoubt]
) -> list[VoterDisk]:
    """Voters of any set whose disk was not read: taken as empty and forgetful, with any set that names them.

    A disk in doubt may be as empty, and may stand with the end that its bytes claim: both are taken together. A disk
    that was replaced is not one of them: its node runs with the disk that was read.
    """
    read = {disk.node_id for disk in disks}
    sets = [voter_set for chain in evidence.chains for voter_set in chain.voter_sets]
    sets += [voter_set for disk in disks for voter_set in disk.voter_sets]
    missing: dict[VoterKey, list[VoterSet]] = {}
    for voter_set in _distinct(sets):
        for voter in voter_set.voters:
            if voter.voter_id not in read:
                missing.setdefault(voter.key, []).append(voter_set)
    return [
        VoterDisk(
            *key,
            end=EMPTY_END if key[0] not in doubts else doubts[key[0]].claimed_end,
            voter_sets=tuple(voter_sets),
            forgotten_to=newest,
            is_captured=False,
            doubt=doubts.get(key[0]),
        )
        for key, voter_sets in missing.items()
    ]
