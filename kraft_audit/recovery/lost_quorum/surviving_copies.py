"""The copies of a metadata log that are left, ranked as elections rank logs: by (last epoch, end offset).

A copy is a disk's log, or its newest snapshot where that reaches further. Out of the ranking are disks that forgot
their votes, as what they hold now says nothing of what they once held, and disks whose bytes were altered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kraft_audit.capture.plan import ARCHIVED_ROOT, ClusterPlan, Identity, ReplicaPlan
from kraft_audit.capture.survey import Survey, SurveyedSnapshot
from kraft_audit.quorum.quorum_evidence import CapturedReplica, LogChain
from kraft_audit.quorum.rounds import captured_replicas
from kraft_audit.recovery.may_i.electorate import NO_EPOCH, VoterDisk
from kraft_audit.text.readable import time_text
from kraft_codec.storage.random_access import join

FORGETFUL: Final = "its quorum-state is older than its own elections: the disk was restored, or forgot its vote"


@dataclass(frozen=True, slots=True)
class SurvivingCopy:
    """One copy: `number` is its replica's in the survey, `held_to` how far it holds the canonical log.

    `snapshot` is the source of the snapshot that it stands for, None for a log. `excluded`: why it is not ranked.
    `archived_ms`: when a lake read it, None for a disk; `path` is then the lake. `last_record_ms` is the append time of
    its last record, None where nothing says it. `usable_to` is the offset up to which a state can be built from a copy
    that is not ranked as it cannot be built from all of it.
    """

    number: int
    node_id: int | None
    directory_id: str | None
    capture: str
    path: str
    is_voter: bool
    last_epoch: int
    end_offset: int
    held_to: int
    branch: int | None
    snapshot: str | None = None
    excluded: str | None = None
    archived_ms: int | None = None
    last_record_ms: int | None = None
    usable_to: int | None = None

    @property
    def end(self) -> tuple[int, int]:
        return self.last_epoch, self.end_offset

    @property
    def name(self) -> str:
        """What it is called in a sentence."""
        who = f"node {self.node_id}" if self.node_id is not None else self.path
        if self.archived_ms is not None:
            return f"{who} (lake, {time_text(self.archived_ms)} UTC)"
        return f"{who} (capture {self.capture})" if self.capture else who


def surviving_copies(
    survey: Survey,
    plan: ClusterPlan,
    chain: LogChain | None,
    disks: Collection[VoterDisk],
    voters: Collection[int],
    gone: Collection[int],
    newest: Collection[int],
) -> list[SurvivingCopy]:
    """The copies that are left, best first, and after them those that are not ranked.

    A node that is gone has no disk, but what was captured of it before still is a copy, and so is what a lake holds of
    any node. `disks` are those with the numbers `newest`.
    """
    copies: dict[Identity, list[SurvivingCopy]] = defaultdict(list)
    accepted = sorted(
        (replica for replica in survey.replicas if replica.is_accepted),
        key=lambda replica: replica.plan.capture_number,
    )
    shown = captured_replicas(survey, plan, [replica.number for replica in accepted])
    for replica, captured in zip(accepted, shown, strict=True):
        own = disks if replica.number in newest else ()
        copies[replica.plan.identity].append(_copy(survey, replica.number, captured, chain, own, voters))
    return sorted(
        (copy for of_disk in copies.values() for copy in _left_of(of_disk) if copy.end > (-1, 0)),
        key=lambda copy: (
            copy.excluded is not None,
            -copy.last_epoch,
            -copy.end_offset,
            copy.archived_ms is not None,
            copy.archived_ms is None and copy.node_id in gone,
            not copy.is_voter,
            -1 if copy.node_id is None else copy.node_id,
            copy.path,
        ),
    )


def _left_of(of_disk: Sequence[SurvivingCopy]) -> Iterator[SurvivingCopy]:
    """The copies of one disk, in time, that count: as it is now, and earlier captures that reach further than that.

    A lake may have read it many times: of those the furthest counts.
    """
    *earlier, now = of_disk
    archived = [copy for copy in earlier if copy.archived_ms is not None]
    yield now
    for copy in (*(copy for copy in earlier if copy.archived_ms is None), *_furthest(archived)):
        if copy.end > now.end:
            yield copy


def _furthest(copies: Sequence[SurvivingCopy]) -> Sequence[SurvivingCopy]:
    return [max(copies, key=lambda copy: (copy.end, copy.number))] if copies else []


def _copy(
    survey: Survey,
    number: int,
    captured: CapturedReplica,
    chain: LogChain | None,
    disks: Collection[VoterDisk],
    voters: Collection[int],
) -> SurvivingCopy:
    replica, end = survey.replicas[number], survey.ends[number]
    log_end = (end.last_epoch, end.end_offset)
    own = [known for known in survey.complete_snapshots if number in known.replicas]
    newest = max(own, key=lambda known: (known.epoch, known.end_offset), default=None)
    is_snapshot = newest is not None and (newest.epoch, newest.end_offset) > log_end
    last_epoch, end_offset = (newest.epoch, newest.end_offset) if newest is not None and is_snapshot else log_end
    last_record_ms = replica.log.last_timestamp_ms if replica.log is not None else None
    if newest is not None and is_snapshot:
        last_record_ms = newest.timestamp_ms
    is_voter = captured.node_id in voters
    # A missing quorum-state says nothing of the log, and a rescued dir has a new one above all epochs.
    is_forgetful = is_voter and replica.quorum_state is not None
    is_forgetful = is_forgetful and any(
        disk.forgotten_to != NO_EPOCH
        for disk in disks
        if disk.is_captured and (disk.node_id, disk.directory_id) == captured.key
    )
    return SurvivingCopy(
        number,
        replica.plan.node_id,
        replica.plan.directory_id,
        replica.plan.capture,
        _place(replica.plan),
        is_voter,
        last_epoch,
        end_offset,
        min(captured.holds_to(chain), chain.end[1]) if chain is not None else 0,
        end.branch,
        newest.source if newest is not None and is_snapshot else None,
        FORGETFUL if is_forgetful else _altered_text(survey, number),
        replica.plan.captured_at_ms if replica.plan.is_archived else None,
        last_record_ms,
    )


def _place(plan: ReplicaPlan) -> str:
    if plan.is_archived:
        return plan.root.removeprefix(ARCHIVED_ROOT)
    return join(plan.root, plan.path) if plan.path else plan.root


def _altered_text(survey: Survey, number: int) -> str | None:
    for run in survey.altered:
        if any(number in replicas for _, replicas in run.versions[0 if run.is_tied else 1 :]):
            return f"it holds other bytes than other disks at offset {run.from_offset}, epoch {run.epoch}"
    return None


def parting_offset(survey: Survey, first: SurvivingCopy, second: SurvivingCopy) -> int:
    """The offset below which two copies hold the same records."""
    shared = min(first.end_offset, second.end_offset)
    if first.branch is None or second.branch is None:
        return shared
    return min(shared, survey.common_to(first.branch, second.branch))


def snapshot_of(survey: Survey, copy: SurvivingCopy) -> SurveyedSnapshot | None:
    """The snapshot that a copy stands for; None for a log."""
    return next((known for known in survey.snapshots if known.source == copy.snapshot), None)
