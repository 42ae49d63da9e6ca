"""From what was surveyed on disk to evidence, one round of captures at a time, and the small silver tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from kraft_audit.replay.branches import LogEnd
from kraft_audit.replay.capture_order import CaptureSigns, in_time, position_of, proven_earlier
from kraft_audit.replay.epochs import EpochRun, leader_epoch_rows
from kraft_audit.replay.evidence import (
    Branch,
    ClusterEvidence,
    LeaderStart,
    PersistedState,
    Replica,
)
from kraft_audit.replay.plan import ClusterPlan
from kraft_audit.replay.records import ControlRecord
from kraft_audit.replay.replica import Replica as ReadReplica
from kraft_audit.replay.survey import BranchEpoch, Survey
from kraft_audit.replay.voters import (
    VoterSet,
    bootstrapped,
    checkpoint_voters,
    voter_history,
    voter_set_rows,
    voters_before,
)
from kraft_audit.replay.watermarks import CommittedInterval, committed_interval, watermark_row
from kraft_codec.schemas import ZERO_UUID, Dialect
from kraft_codec.uuids import uuid_text

UNKNOWN_NODE = -1


@dataclass(frozen=True, slots=True)
class Round:
    """Replicas captured together: `replicas` are their numbers in the survey."""

    number: int
    capture: str
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RoundInterval:
    """What one round proves, with what rounds proved that are known to be earlier: `follows` are their numbers."""

    round: Round
    evidence: ClusterEvidence
    interval: CommittedInterval
    follows: frozenset[int] = frozenset()


def rounds_of(survey: Survey) -> list[Round]:
    """The rounds of captures as the plan numbers them; a replica of another cluster takes no part."""
    groups: dict[tuple[int, str], list[int]] = {}
    for replica in survey.replicas:
        if replica.is_accepted:
            groups.setdefault((replica.plan.capture_number, replica.plan.capture), []).append(replica.number)
    return [Round(number, capture, tuple(members)) for (number, capture), members in sorted(groups.items())]


def committed_intervals(
    survey: Survey, plan: ClusterPlan, earlier_low: tuple[int, int] | None = None
) -> list[RoundInterval]:
    """The committed interval of each round, in time; what one round proves is evidence for those known to be later.

    `earlier_low` is the (offset, epoch) that captures before these proved. Where nothing proves the order of two rounds
    they stand as the plan numbers them, and neither is evidence for the other.
    """
    alone: dict[int, RoundInterval] = {}
    for one in rounds_of(survey):
        evidence = round_evidence(survey, plan, one.replicas, earlier_low=earlier_low)
        alone[one.number] = RoundInterval(one, evidence, committed_interval(evidence))
    earlier = proven_earlier({number: _signs(survey, one) for number, one in alone.items()})
    found: dict[int, RoundInterval] = {}
    for number in in_time(alone, earlier):
        known = (found[before].interval for before in earlier[number])
        lows = [(interval.low, interval.low_epoch) for interval in known if interval.low > 0]
        found[number] = alone[number]
        if lows:
            evidence = replace(alone[number].evidence, earlier_low=max(lows))
            found[number] = RoundInterval(alone[number].round, evidence, committed_interval(evidence), earlier[number])
    return list(found.values())


def _signs(survey: Survey, one: RoundInterval) -> CaptureSigns:
    """One disk that lies in a round twice tells nothing of its place in time."""
    disks = [survey.replicas[number] for number in one.round.replicas]
    count = Counter(disk.plan.identity for disk in disks)
    positions = {disk.plan.identity: position_of(disk) for disk in disks if count[disk.plan.identity] == 1}
    return CaptureSigns(one.interval.low, one.interval.high, positions)


def round_evidence(
    survey: Survey, plan: ClusterPlan, numbers: Sequence[int], *, earlier_low: tuple[int, int] | None = None
) -> ClusterEvidence:
    """What the disks with these numbers say, and no others."""
    chosen = [(survey.replicas[number], survey.ends[number]) for number in numbers]
    static = static_voters(survey, plan)
    return ClusterEvidence.of(
        (_replica(survey, replica, end, branch_to(survey, plan, end, static)) for replica, end in chosen),
        conflicting_epochs=_conflicting_epochs(survey, chosen),
        earlier_low=earlier_low,
    )


def static_voters(survey: Survey, plan: ClusterPlan) -> tuple[int, ...]:
    """The configured voters of a quorum without a voter set in log or snapshot.

    From the plan's defaults (controller.quorum.voters as ids or id@host:port), a quorum-state of version 0, else the
    voters that the first LeaderChange lists. In the drafts, whose sets begin with a configured one and change, a
    quorum-state names the set of its own time: there the first LeaderChange comes first.
    """
    declared = dict(plan.defaults).get("controller.quorum.voters")
    if declared:
        return tuple(sorted(int(voter.split("@")[0]) for voter in declared.split(",")))
    by_state = (
        tuple(sorted(state.current_voters))
        for replica in survey.replicas
        if replica.is_accepted and (state := replica.quorum_state) is not None and state.current_voters
    )
    by_log = (
        tuple(sorted(voter["voter_id"] for voter in record.fields["voters"]))
        for _, record in survey.controls
        if record.name == "LEADER_CHANGE"
    )
    told = (by_state, by_log) if Dialect(plan.dialect) is Dialect.KIP853 else (by_log, by_state)
    return next(chain(*told), ())


def branch_to(survey: Survey, plan: ClusterPlan, end: LogEnd, static: tuple[int, ...]) -> Branch | None:
    """The history that ends where a replica's log ends; None for an empty log."""
    if end.branch is None:
        return None
    epochs = survey.epochs_to(end.branch, end.end_offset)
    controls = [record for record in survey.controls_to(end.branch) if record.offset < end.end_offset]
    runs = epoch_runs(epochs)
    leaders = {
        record.leader_epoch: leader_start(record) for record in reversed(controls) if record.name == "LEADER_CHANGE"
    }
    return Branch(
        runs=runs,
        leaders=leaders,
        voter_sets=tuple(branch_voters(survey, plan, controls, runs, static)),
        first_batch_ends={one.epoch: one.first_batch_end for one in epochs if _proves_first(one, leaders, controls)},
        number=end.branch,
    )


def leader_start(record: ControlRecord) -> LeaderStart:
    """What a LeaderChange says. Its voters have UUIDs in KIP-856, and a leader granted itself its vote."""
    leader_id = record.fields["leader_id"]
    granting = (voter for voter in record.fields["granting_voters"] if voter["voter_id"] == leader_id)
    disks = [voter["voter_uuid"] for voter in granting if voter.get("voter_uuid") not in (None, ZERO_UUID)]
    directory_id = uuid_text(disks[0]) if len(disks) == 1 else None
    return LeaderStart(record.leader_epoch, record.offset, leader_id, directory_id)


def epoch_runs(epochs: Sequence[BranchEpoch]) -> tuple[EpochRun, ...]:
    """The epochs of a branch, as voter sets and leader epochs are told from them."""
    return tuple(EpochRun(one.epoch, one.from_offset, one.to_offset, one.timestamp_ms) for one in epochs)


def branch_voters(
    survey: Survey,
    plan: ClusterPlan,
    controls: Sequence[ControlRecord],
    epochs: Sequence[EpochRun],
    static: tuple[int, ...],
) -> list[VoterSet]:
    """The voter sets along a branch: from where its first epoch begins, then from its records."""
    dialect = Dialect(plan.dialect)
    start = epochs[0].from_offset if epochs else 0
    before = None
    for snapshot in sorted(survey.snapshots, key=lambda one: (one.end_offset, one.epoch)):
        if snapshot.end_offset <= start:
            found = checkpoint_voters(snapshot.controls, snapshot.end_offset, snapshot.epoch, dialect=dialect)
            before = found or before
    if start > 0 and (before is None or before.from_offset < start - 1):
        before = _told_later(survey, controls, epochs, dialect) or before
    elif before is None and dialect is Dialect.KIP853:
        before = bootstrapped(controls)
    later = [record for record in controls if before is None or record.offset > before.from_offset]
    history = voter_history(later, dialect=dialect, static_voters=static, before=before)
    if before is None and start > 0 and history and history[0].is_static and _has_voter_records(survey, dialect):
        # Not configured: what stood in the part of the log that is gone. Another set may have stood there too.
        history[0] = replace(history[0], kraft_version=1)
    return history


def _told_later(
    survey: Survey, controls: Sequence[ControlRecord], epochs: Sequence[EpochRun], dialect: Dialect
) -> VoterSet | None:
    """The set in effect where a log begins behind a gap, from the first snapshot of what follows."""
    start = epochs[0].from_offset
    for snapshot in sorted(survey.snapshots, key=lambda one: one.end_offset):
        last = snapshot.end_offset - 1
        if last < start or not any(r.epoch == snapshot.epoch and r.from_offset <= last < r.to_offset for r in epochs):
            continue
        told = checkpoint_voters(snapshot.controls, snapshot.end_offset, snapshot.epoch, dialect=dialect)
        if told is not None:
            since = [record for record in controls if record.offset <= last]
            undone = voters_before(told, since, dialect=dialect)
            return undone and replace(undone, from_offset=start - 1, from_epoch=epochs[0].epoch, timestamp_ms=None)
    return None


def _has_voter_records(survey: Survey, dialect: Dialect) -> bool:
    """Whether any checkpoint holds a voter set: then voters are not a matter of configuration."""
    return any(
        checkpoint_voters(one.controls, one.end_offset, one.epoch, dialect=dialect) is not None
        for one in survey.snapshots
    )


def _proves_first(one: BranchEpoch, leaders: dict[int, LeaderStart], controls: Sequence[ControlRecord]) -> bool:
    """Whether metadata behind an epoch's first batch, the LeaderChange's, lies within what this replica holds."""
    start = leaders.get(one.epoch)
    if start is None or start.offset != one.from_offset or not one.has_data_behind:
        return False
    control_count = sum(one.first_batch_end <= record.offset < one.to_offset for record in controls)
    return one.to_offset - one.first_batch_end > control_count


def _replica(survey: Survey, replica: ReadReplica, end: LogEnd, branch: Branch | None) -> Replica:
    state = replica.quorum_state
    return Replica(
        node_id=UNKNOWN_NODE if replica.plan.node_id is None else replica.plan.node_id,
        directory_id=replica.plan.directory_id,
        runs=() if branch is None else branch.runs,
        snapshots=tuple(
            (snapshot.end_offset, snapshot.epoch)
            for snapshot in survey.snapshots
            if snapshot.end_offset > 0 and replica.number in snapshot.replicas
        ),
        persisted=None if state is None else PersistedState(state.leader_epoch, state.leader_id, state.voted_id),
        read_from_ms=replica.read_from_ms,
        read_to_ms=replica.read_to_ms,
        branch=branch,
    )


def _conflicting_epochs(survey: Survey, chosen: Sequence[tuple[ReadReplica, LogEnd]]) -> frozenset[int]:
    """Epochs of which two of these logs hold different records at one offset: two leaders wrote in them.

    A last branch that stands for several counts as if they did: which records are whose is not known there.
    """
    paths = {end.branch: set(survey.path(end.branch)) for _, end in chosen if end.branch is not None}
    reach = {end.branch: end.end_offset for _, end in sorted(chosen, key=lambda one: one[1].end_offset)}
    conflicting: set[int] = set()
    if survey.is_overflowing:
        last = len(survey.branches) - 1
        conflicting.update(one.epoch for one in survey.epochs if one.branch == last)
    for first, first_path in paths.items():
        for second, second_path in paths.items():
            mine = [one for one in survey.epochs if one.branch in first_path - second_path]
            theirs = [one for one in survey.epochs if one.branch in second_path - first_path]
            limit = min(reach[first], reach[second])
            conflicting.update(
                one.epoch
                for one in mine
                for other in theirs
                if one.epoch == other.epoch
                and max(one.from_offset, other.from_offset) < min(one.to_offset, other.to_offset, limit)
            )
    return frozenset(conflicting)


def quorum_rows(
    survey: Survey, plan: ClusterPlan, intervals: Sequence[RoundInterval] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """The rows of `watermarks`, `voter_sets` and `leader_epochs` (without cluster_id and plan), over all rounds."""
    intervals = committed_intervals(survey, plan) if intervals is None else intervals
    canonical = next((one.interval.canonical for one in reversed(intervals) if one.interval.canonical), None)
    static = static_voters(survey, plan)
    path = [] if canonical is None else survey.path(canonical.number)
    voter_sets: dict[tuple[Any, ...], dict[str, Any]] = {}
    epochs: dict[tuple[Any, ...], dict[str, Any]] = {}
    for end in _tips(survey, path):
        # Up to where a branch leaves the canonical log its rows are those of the canonical log.
        leaves_at = next((survey.branches[n].from_offset for n in survey.path(end.branch) if n not in path), None)
        is_earlier = comes_before(survey, end, path)
        if is_earlier:
            leaves_at = min(end.end_offset, survey.branches[path[0]].from_offset)
        controls = [record for record in survey.controls_to(end.branch) if record.offset < end.end_offset]
        runs = epoch_runs(survey.epochs_to(end.branch, end.end_offset))
        for row in voter_set_rows(branch_voters(survey, plan, controls, runs, static), canonical_to=leaves_at):
            told_once = {**row, "ended_by": "superseded"} if is_earlier and row["canonical"] else row
            voter_sets.setdefault((row["from_offset"], row["from_epoch"], row["canonical"]), told_once)
        persisted = _persisted_leaders(survey)
        for row in leader_epoch_rows(runs, controls, canonical_to=leaves_at, persisted_leaders=persisted):
            if row["canonical"] and leaves_at is not None and not is_earlier:
                continue
            told_once = row
            if is_earlier and row["canonical"]:
                to_offset = row["to_offset"] and min(row["to_offset"], leaves_at)
                told_once = {**row, "ended_by": "next_epoch", "to_offset": to_offset}
            epochs.setdefault((row["epoch"], row["from_offset"], row["leader_id"]), told_once)
    return {
        "watermarks": [
            watermark_row(one.interval, capture_number=one.round.number, capture=one.round.capture) for one in intervals
        ],
        "voter_sets": list(voter_sets.values()),
        "leader_epochs": list(epochs.values()),
    }


def comes_before(survey: Survey, end: LogEnd, path: Sequence[int]) -> bool:
    """Whether a log that shares nothing with the canonical one (`path`) is, below its start, what came before it.

    Nobody holds what lies between, and nothing contradicts it: unless a snapshot where the canonical log starts was
    taken of another epoch.
    """
    own = survey.path(end.branch)
    if not path or set(own) & set(path):
        return False
    start = survey.branches[path[0]].from_offset
    if survey.branches[own[0]].from_offset >= start:
        return False
    below = [
        one.epoch for one in survey.epochs_to(end.branch, end.end_offset) if one.from_offset < start <= one.to_offset
    ]
    told = {snapshot.epoch for snapshot in survey.snapshots if snapshot.end_offset == start and snapshot.replicas}
    return not below or not told or below[-1] in told


def _tips(survey: Survey, path: Sequence[int]) -> list[LogEnd]:
    """The furthest log end of each branch that ends somewhere, the canonical one first."""
    furthest: dict[int, LogEnd] = {}
    for number, end in enumerate(survey.ends):
        if end.branch is not None and survey.replicas[number].is_accepted:
            known = furthest.get(end.branch)
            if known is None or known.end_offset < end.end_offset:
                furthest[end.branch] = end
    inner = {n for branch in furthest for n in survey.path(branch)[:-1]}
    tips = [end for branch, end in furthest.items() if branch not in inner or (path and branch == path[-1])]
    return sorted(tips, key=lambda end: (not path or end.branch != path[-1], end.branch))


def _persisted_leaders(survey: Survey) -> dict[int, int]:
    known: dict[int, int] = {}
    for replica in survey.replicas:
        state = replica.quorum_state
        if replica.is_accepted and state is not None and state.leader_epoch > 0:
            known[state.leader_epoch] = max(state.leader_id, known.get(state.leader_epoch, -1))
    return known
