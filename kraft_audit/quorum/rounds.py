"""Rounds: captures that were taken together, what each proves, and their order in time."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kraft_audit.capture.branches import LogEnd
from kraft_audit.capture.capture_order import in_time
from kraft_audit.capture.decoded_records import ControlRecord
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.replica import Replica
from kraft_audit.capture.survey import BranchEpoch, Survey, SurveyedSnapshot, joined_epochs
from kraft_audit.quorum.committed_interval import CommittedInterval, committed_interval
from kraft_audit.quorum.proven_order import CaptureSigns, position_of, proven_earlier, stated_captures
from kraft_audit.quorum.quorum_evidence import (
    CapturedReplica,
    EpochRun,
    LeaderStart,
    LogChain,
    PersistedState,
    QuorumEvidence,
)
from kraft_audit.quorum.static_voters import (
    NamedVoters,
    StaticVoters,
    declared_voters,
    static_voters,
    voters_named_since,
)
from kraft_audit.quorum.voter_history import (
    VoterSet,
    bootstrapped,
    checkpoint_voters,
    static_set,
    voter_history,
    voters_before,
)
from kraft_codec.files.state_files import QuorumState
from kraft_codec.schemas import ZERO_UUID, Dialect
from kraft_codec.text.java_text import uuid_text

UNKNOWN_NODE = -1


@dataclass(frozen=True, slots=True)
class ProvenRound:
    """Replicas that were captured together, and what they prove.

    `replicas` are their numbers in the survey. `follows` are the numbers of the rounds that are known to be earlier;
    what those proved is evidence here. Of those in `stated` something other than content says that they are.
    """

    number: int
    capture: str
    replicas: tuple[int, ...]
    evidence: QuorumEvidence
    interval: CommittedInterval
    follows: frozenset[int] = frozenset()
    stated: frozenset[int] = frozenset()


def proven_rounds(survey: Survey, plan: ClusterPlan, earlier_low: tuple[int, int] | None = None) -> list[ProvenRound]:
    """The rounds with the committed interval of each, in time; a replica of another cluster takes no part.

    `earlier_low` is the (offset, epoch) that captures before these proved. Where nothing proves the order of two rounds
    they stand as the plan numbers them, and neither is evidence for the other. Copies of a lake come before the disks
    that they are read beside, and are no evidence for these: whether the disks still hold as much is the question. Each
    of these copies may be older than what proved `earlier_low`.
    """
    rounds: list[ProvenRound] = []
    for is_archived in (True, False):
        members: dict[tuple[int, str], list[int]] = defaultdict(list)
        for replica in survey.replicas:
            if replica.is_accepted and replica.plan.is_archived is is_archived:
                members[replica.plan.capture_number, replica.plan.capture].append(replica.number)
        known, earlier = (earlier_low, None) if is_archived else (None, earlier_low)
        rounds += _rounds_of(survey, plan, members, earlier, known)
    return rounds


def _rounds_of(
    survey: Survey,
    plan: ClusterPlan,
    members: Mapping[tuple[int, str], list[int]],
    earlier_low: tuple[int, int] | None,
    known_low: tuple[int, int] | None,
) -> list[ProvenRound]:
    """The rounds of these replicas, by capture, in time."""
    alone: dict[int, ProvenRound] = {}
    for (number, capture), replicas in sorted(members.items()):
        evidence = round_evidence(survey, plan, replicas, earlier_low=earlier_low)
        alone[number] = ProvenRound(number, capture, tuple(replicas), evidence, committed_interval(evidence))
    stated = stated_captures(survey.replicas[each] for replicas in members.values() for each in replicas)
    earlier = proven_earlier({number: _signs(survey, captured) for number, captured in alone.items()}, stated)
    ordered: dict[int, ProvenRound] = {}
    for number in in_time(alone, earlier):
        ordered[number] = captured = replace(alone[number], follows=earlier[number], stated=stated[number])
        known = (alone[before].interval for before in earlier[number])
        lows = [(interval.held_low, interval.held_low_epoch) for interval in known if interval.held_low > 0]
        if lows or known_low is not None:
            earlier_low = max(lows, default=captured.evidence.earlier_low)
            evidence = replace(captured.evidence, earlier_low=earlier_low, known_low=known_low)
            interval = committed_interval(evidence)
            ordered[number] = replace(captured, evidence=evidence, interval=interval)
    return list(ordered.values())


def newest_canonical(rounds: Sequence[ProvenRound]) -> ProvenRound | None:
    """The newest round that has a canonical log."""
    return next((captured for captured in reversed(rounds) if captured.interval.canonical), None)


def _signs(survey: Survey, captured: ProvenRound) -> CaptureSigns:
    """A disk that is in a round twice says nothing about its place in time."""
    disks = [survey.replicas[number] for number in captured.replicas]
    count = Counter(disk.plan.identity for disk in disks)
    positions = {disk.plan.identity: position_of(disk) for disk in disks if count[disk.plan.identity] == 1}
    return CaptureSigns(captured.interval.low, captured.interval.high, positions)


def round_evidence(
    survey: Survey, plan: ClusterPlan, numbers: Sequence[int], *, earlier_low: tuple[int, int] | None = None
) -> QuorumEvidence:
    """What the disks with these numbers say, and no others."""
    chosen = [(survey.replicas[number], survey.ends[number]) for number in numbers]
    return QuorumEvidence.of(
        captured_replicas(survey, plan, numbers),
        conflicting_epochs=_conflicting_epochs(survey, chosen),
        earlier_low=earlier_low,
    )


def captured_replicas(survey: Survey, plan: ClusterPlan, numbers: Sequence[int]) -> list[CapturedReplica]:
    """What each of the disks with these numbers shows, in their order; those that are no evidence are left out."""
    numbers = [number for number in numbers if survey.replicas[number].is_evidence]
    static = static_voters(survey, plan)
    # Logs that end alike have one history, which names each of perhaps thousands of voters at every change.
    ends = {(end.branch, end.end_offset): end for end in (survey.ends[number] for number in numbers)}
    chains = {place: chain_to(survey, plan, end, static) for place, end in ends.items()}
    replicas = []
    for number in numbers:
        end = survey.ends[number]
        replicas.append(_replica(survey, survey.replicas[number], chains[end.branch, end.end_offset]))
    return replicas


def chain_to(survey: Survey, plan: ClusterPlan, end: LogEnd, static: StaticVoters) -> LogChain | None:
    """The history that ends where a replica's log ends; None for an empty log."""
    if end.branch is None:
        return None
    earlier = survey.earlier_log(end.branch)
    epochs = joined_epochs([*earlier.epochs, *survey.epochs_to(end.branch, end.end_offset)])
    own = (record for record in survey.controls_to(end.branch) if record.offset < end.end_offset)
    controls = [*earlier.controls, *own]
    runs = epoch_runs(epochs)
    leaders = {
        record.leader_epoch: leader_start(record) for record in reversed(controls) if record.name == "LEADER_CHANGE"
    }
    # Sorted once: a log may have thousands of epochs, each with its LeaderChange.
    offsets = sorted(record.offset for record in controls)
    return LogChain(
        runs=runs,
        leaders=leaders,
        voter_sets=tuple(branch_voters(survey, plan, controls, runs, static, earlier.snapshots)),
        first_batch_ends={run.epoch: run.first_batch_end for run in epochs if _proves_first(run, leaders, offsets)},
        number=end.branch,
    )


def newest_voters(survey: Survey, plan: ClusterPlan, captured: ProvenRound) -> VoterSet | None:
    """The set in effect at the end of the canonical log; without one, at the furthest end, else in a snapshot.

    At kraft.version 0 it is the one that the nodes were started with since.
    """
    chain = captured.interval.canonical or max(captured.evidence.chains, key=lambda each: each.end, default=None)
    if chain is not None:
        voters = chain.voters_at_end
        since = voters if voters is None or not voters.is_static else _named_since(plan, captured, chain, voters)
        return since or voters
    history = branch_voters(survey, plan, (), (), static_voters(survey, plan))
    return history[-1] if history else None


def _named_since(plan: ClusterPlan, captured: ProvenRound, chain: LogChain, voters: VoterSet) -> VoterSet | None:
    epoch = chain.end[0]
    start = chain.leaders.get(epoch)
    states = (
        NamedVoters(replica.node_id, state.epoch, state.leader_id, tuple(sorted(state.current_voters or ())))
        for replica in captured.evidence.replicas
        if (state := replica.persisted) is not None
    )
    leader_id = None if start is None else start.leader_id
    named = voters_named_since(states, voters.ids, epoch, leader_id, declared_voters(dict(plan.defaults)))
    return static_set(named) if named else None


def leader_start(record: ControlRecord) -> LeaderStart:
    """What a LeaderChange says. Its voters have UUIDs in KIP-856, and a leader granted itself its vote."""
    leader_id = record.fields["leader_id"]
    granting = (voter for voter in record.fields["granting_voters"] if voter["voter_id"] == leader_id)
    disks = [voter["voter_uuid"] for voter in granting if voter.get("voter_uuid") not in (None, ZERO_UUID)]
    directory_id = uuid_text(disks[0]) if len(disks) == 1 else None
    granted = tuple(sorted(voter["voter_id"] for voter in record.fields["granting_voters"]))
    return LeaderStart(record.leader_epoch, record.offset, leader_id, directory_id, granted)


def epoch_runs(epochs: Sequence[BranchEpoch]) -> tuple[EpochRun, ...]:
    """The epochs of a branch, from which voter sets and leader epochs are derived."""
    return tuple(EpochRun(run.epoch, run.from_offset, run.to_offset, run.timestamp_ms) for run in epochs)


def branch_voters(
    survey: Survey,
    plan: ClusterPlan,
    controls: Sequence[ControlRecord],
    epochs: Sequence[EpochRun],
    static: StaticVoters,
    earlier_snapshots: Sequence[SurveyedSnapshot] = (),
) -> list[VoterSet]:
    """The voter sets along a branch: from where its first epoch begins, then from its records. Without a log they are
    those of the newest snapshot that names voters; where the dialect is undecided there are none.
    """
    dialect = plan.known_dialect
    if dialect is None:
        return []  # no record says who voted before it is known how to read it
    snapshots = [*earlier_snapshots, *survey.snapshots]
    start = epochs[0].from_offset if epochs else 0
    before = None
    for snapshot in sorted(snapshots, key=lambda own: (own.end_offset, own.epoch)):
        if not epochs or snapshot.end_offset <= start:
            voter_set = _snapshot_voters(snapshot, dialect)
            before = voter_set or before
    if start > 0 and (before is None or before.from_offset < start - 1):
        before = _set_after_gap(snapshots, controls, epochs, dialect) or before
    elif before is None and dialect is Dialect.KIP853:
        before = bootstrapped(controls)
    first = () if before is not None else static.first_of(epochs[0].epoch if epochs else None, controls)
    if first and start > 0 and dialect is Dialect.KIP853 and _were_recorded(survey, snapshots):
        # These ids come from a LeaderChange or quorum-state, not from configuration, and a snapshot names other voters:
        # in what was deleted another set may have been in effect. Above kraft.version 0 a set is not `is_static`.
        before = static_set(first, kraft_version=1)
    later = [record for record in controls if before is None or record.offset > before.from_offset]
    return voter_history(later, dialect=dialect, static_voters=first, before=before)


def _were_recorded(survey: Survey, snapshots: Sequence[SurveyedSnapshot]) -> bool:
    """Whether anything shows that voters came from records: a snapshot that names them, or a quorum-state."""
    states = (replica.quorum_state for replica in survey.replicas)
    return any(_snapshot_voters(snapshot, Dialect.KIP853) for snapshot in snapshots) or any(
        state.data_version > 0 for state in states if state is not None
    )


def _set_after_gap(
    snapshots: Sequence[SurveyedSnapshot],
    controls: Sequence[ControlRecord],
    epochs: Sequence[EpochRun],
    dialect: Dialect,
) -> VoterSet | None:
    """The set in effect where a log begins after a gap, from the first snapshot of what follows."""
    start = epochs[0].from_offset
    for snapshot in sorted(snapshots, key=lambda own: own.end_offset):
        last = snapshot.end_offset - 1
        if last < start or not any(r.epoch == snapshot.epoch and r.from_offset <= last < r.to_offset for r in epochs):
            continue
        recorded = _snapshot_voters(snapshot, dialect)
        if recorded is not None:
            since = [record for record in controls if record.offset <= last]
            undone = voters_before(recorded, since, dialect=dialect)
            return undone and replace(undone, from_offset=start - 1, from_epoch=epochs[0].epoch, timestamp_ms=None)
    return None


def _snapshot_voters(snapshot: SurveyedSnapshot, dialect: Dialect) -> VoterSet | None:
    return checkpoint_voters(snapshot.controls, snapshot.end_offset, snapshot.epoch, dialect=dialect)


def _proves_first(run: BranchEpoch, leaders: Mapping[int, LeaderStart], control_offsets: Sequence[int]) -> bool:
    """Whether metadata after an epoch's first batch, the LeaderChange's, lies within what this replica holds.

    `control_offsets` are the offsets of its control records, ascending.
    """
    start = leaders.get(run.epoch)
    if start is None or start.offset != run.from_offset or not run.has_data:
        return False
    first = bisect_left(control_offsets, run.first_batch_end)
    control_count = bisect_left(control_offsets, run.to_offset, lo=first) - first
    return run.to_offset - run.first_batch_end > control_count


def _replica(survey: Survey, replica: Replica, chain: LogChain | None) -> CapturedReplica:
    state, archived = replica.quorum_state, replica.plan.newest_snapshot
    snapshots = {
        (snapshot.end_offset, snapshot.epoch)
        for snapshot in survey.complete_snapshots
        if replica.number in snapshot.replicas
    }
    return CapturedReplica(
        node_id=UNKNOWN_NODE if replica.plan.node_id is None else replica.plan.node_id,
        directory_id=replica.plan.directory_id,
        runs=() if chain is None else chain.runs,
        snapshots=tuple(sorted(snapshots if archived is None else {*snapshots, archived})),
        persisted=None if state is None else _persisted(state),
        read_from_ms=replica.read_from_ms,
        read_to_ms=replica.read_to_ms,
        chain=chain,
        held_end_offset=replica.plan.held_end_offset,
    )


def _persisted(state: QuorumState) -> PersistedState:
    names_voters = state.data_version == 0 and state.current_voters is not None
    configured = frozenset(state.current_voters or ()) if names_voters else None
    return PersistedState(state.leader_epoch, state.leader_id, state.voted_id, configured)


def _conflicting_epochs(survey: Survey, chosen: Sequence[tuple[Replica, LogEnd]]) -> frozenset[int]:
    """Epochs of which two of these logs hold different records at one offset: two leaders wrote in them.

    A last branch that stands for several counts as if they did: which records are whose is not known there.
    """
    paths = {end.branch: set(survey.path(end.branch)) for _, end in chosen if end.branch is not None}
    reach = {end.branch: end.end_offset for _, end in sorted(chosen, key=lambda pair: pair[1].end_offset)}
    conflicting: set[int] = set()
    if survey.is_overflowing:
        last = len(survey.branches) - 1
        conflicting.update(run.epoch for run in survey.epochs if run.branch == last)
    for first, first_path in paths.items():
        for second, second_path in paths.items():
            mine = [run for run in survey.epochs if run.branch in first_path - second_path]
            theirs = [run for run in survey.epochs if run.branch in second_path - first_path]
            limit = min(reach[first], reach[second])
            conflicting.update(
                run.epoch
                for run in mine
                for opposite in theirs
                if run.epoch == opposite.epoch
                and max(run.from_offset, opposite.from_offset) < min(run.to_offset, opposite.to_offset, limit)
            )
    return frozenset(conflicting)
