"""Which copy of the log to go on from where a controller quorum lost its majority, and what each copy would cost.

Logs are ranked as elections rank them (OffsetAndEpoch, Kafka 4.3): a leader of a later epoch had every record that was
committed before it. So what only a lower-ranked branch holds was not committed. What only disks held that are gone can
neither be excluded nor named.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from kraft_audit.capture.disk_trust import DiskTrust
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.survey import Survey
from kraft_audit.quorum.committed_interval import (
    Proof,
    canonical_chain,
    committed_interval,
    sets_from,
)
from kraft_audit.quorum.quorum_evidence import majority
from kraft_audit.quorum.rounds import ProvenRound, proven_rounds
from kraft_audit.quorum.voter_history import VoterSet
from kraft_audit.reading import ClusterReading
from kraft_audit.recovery.lost_quorum.copies_evidence import (
    all_evidence,
    chain_of_snapshot,
    committed_on_two_branches,
    is_last_round,
)
from kraft_audit.recovery.lost_quorum.own_log import dry_run
from kraft_audit.recovery.lost_quorum.plan_refusals import PlanRefusals, owners_option
from kraft_audit.recovery.lost_quorum.surviving_copies import (
    SurvivingCopy,
    parting_offset,
    snapshot_of,
    surviving_copies,
)
from kraft_audit.recovery.may_i.doubted_disks import EMPTIED
from kraft_audit.recovery.may_i.electorate import DiskDoubt
from kraft_audit.recovery.may_i.quorum_disks import doubted_disks, quorum_disks
from kraft_audit.recovery.restore.state_differences import Operation, operations
from kraft_audit.replay.cluster_state import BranchName, ClusterState, branches_apart, state_at
from kraft_audit.replay.driver import BranchLog
from kraft_audit.text.gone_nodes import gone_option
from kraft_audit.text.readable import capitalized, listed, nouns
from kraft_codec.file_names import METADATA_LOG_DIR

OLD_DISKS: Final = "OLD_DISKS"
"""Stands for a folder with the disks that were read and others beside them."""
NO_COPY: Final = "no copy of this cluster's log was read"


class RescueVerdict(StrEnum):
    """Whether there is a plan. The order is that of their weight."""

    STANDS = "a plan stands"
    UNDECIDED = "undecided"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """What going on from one copy would mean. Offsets are exclusive ends.

    It surely keeps everything below `keeps_to`, and surely loses `lost_from` to `lost_to` where they differ. Of what it
    holds from `keeps_to` on nothing proves that it was committed: `gains` names it, and it becomes committed. `loses`
    and `brings_back` name what better copies hold and undo: deleted topics and revoked rights are back. From
    `unknown_from` on there may be records that only disks that were not read held; None where there are none.
    """

    copy: SurvivingCopy
    keeps_to: int
    lost_from: int
    lost_to: int
    unknown_from: int | None
    loses: tuple[Operation, ...] = ()
    brings_back: tuple[Operation, ...] = ()
    gains: tuple[Operation, ...] = ()
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class RescuePlan:
    """The copies, best first, and whether one of them may be gone on from: `chosen` is its place among them.

    `low` and `high` bound what was committed; `high` is None without an upper bound. `newest_epoch` and `end_offset`
    are the highest that any disk names. `is_end_proven`: no node acted on anything after what the copies hold, as a
    majority of the voters' disks is here and not said to be gone, or the copy of every registered broker.
    `disks_left` are the nodes whose disks were read and are not said to be gone: nothing may start from them.
    `asked_again` is the command that gives the plan once more.
    """

    verdict: RescueVerdict
    reason: str
    next_steps: tuple[str, ...] = ()
    outcomes: tuple[CopyOutcome, ...] = ()
    chosen: int | None = None
    voters: tuple[int, ...] = ()
    kraft_version: int = 0
    gone: tuple[int, ...] = ()
    low: int = 0
    high: int | None = None
    newest_epoch: int = -1
    end_offset: int = 0
    uncaptured_brokers: tuple[int, ...] = ()
    is_end_proven: bool = False
    asked_again: str = ""
    disks_left: tuple[int, ...] = ()

    @property
    def newest_broker_copy(self) -> SurvivingCopy | None:
        """The copy of a broker's disk that reaches furthest; None where none was read."""
        brokers = [each.copy for each in self.outcomes if not each.copy.is_voter and each.copy.archived_ms is None]
        return max(brokers, key=lambda copy: copy.end, default=None)

    @property
    def best(self) -> CopyOutcome | None:
        return None if self.chosen is None else self.outcomes[self.chosen]


def rescue_plan(
    reading: ClusterReading, plan: ClusterPlan, path: str, gone: Collection[int], lake: str | None = None
) -> RescuePlan:
    """The plan for one cluster. `gone`: nodes that are lost with their disks. `path`: where it was read, to paste.

    `lake`: the lake that was read beside the disks below the path.
    """
    rounds = proven_rounds(reading.survey, plan)
    if not rounds:
        return RescuePlan(RescueVerdict.UNDECIDED, NO_COPY)
    return _Planner(reading, plan, rounds, (path, lake), frozenset(gone)).plan()


class _Planner:
    """The copies of a log, and what all rounds prove of it.

    `_disk_ids` are the nodes whose disks are here now, `_read_ids` those of them whose disks are evidence.
    """

    def __init__(
        self,
        reading: ClusterReading,
        plan: ClusterPlan,
        rounds: Sequence[ProvenRound],
        places: tuple[str, str | None],
        gone: frozenset[int],
    ) -> None:
        self._reading = reading
        self._path = shlex.quote(places[0])
        self._asked = self._path if places[1] is None else f"{self._path} --lake {shlex.quote(places[1])}"
        self._gone = gone
        self._states: dict[tuple[int | None, str | None, int], ClusterState] = {}
        self._newest = newest = rounds[-1]
        self._evidence = all_evidence(reading.survey, plan, rounds)
        # A copy may hold what was proven earlier where no voter's disk does.
        evidence = replace(self._evidence, earlier_low=None)
        self._interval = committed_interval(evidence)
        earlier = self._evidence.earlier_low or (0, -1)
        self._low, low_epoch = max((self._interval.low, self._interval.low_epoch), earlier)
        self._chain = canonical_chain(evidence, Proof(self._low, low_epoch, "of all rounds"))
        if self._chain is None and not evidence.chains:
            self._chain = chain_of_snapshot(reading.survey, plan, newest)
            self._low = self._low if self._chain is None else max(self._low, self._chain.end[1])
        disks = [reading.survey.replicas[number].plan for number in newest.replicas]
        owners = owners_option(each.plan for each in reading.survey.replicas)
        self._asked += owners
        # Nothing can be added to a path that is one node dir.
        is_one_disk = any(each.path in ("", METADATA_LOG_DIR) for each in disks)
        self._asked_again = self._asked.replace(self._path, f'"${OLD_DISKS}"', 1) if is_one_disk else self._asked
        self._is_lake = all(each.is_archived for each in disks)
        if self._is_lake:
            self._asked += f" --cluster {shlex.quote(plan.key)}"
            self._asked_again = self._asked
        self._disk_ids = {each.node_id for each in disks if each.node_id is not None and not each.is_archived}
        self._disks_left = tuple(sorted(self._disk_ids - gone))
        self._doubts = doubted_disks(reading.survey, newest) | _emptied_disks(reading.survey, newest)
        self._read_ids = self._disk_ids - self._doubts.keys()
        high = newest.interval.high if is_last_round(reading.survey, rounds) else None
        nameless = sorted((each for each in disks if each.node_id is None), key=lambda each: each.path)
        self._refusals = PlanRefusals(
            self._path, self._asked, self._is_lake, gone, self._disk_ids, nameless, plan.cluster_id, owners
        )
        safety, self._undecided = quorum_disks(reading.survey, plan)
        self._sets: Sequence[VoterSet] = sets_from(self._chain, self._low) if self._chain else ()
        voters = {voter for voter_set in self._sets for voter in voter_set.ids}
        known = () if safety is None else safety.disks
        copies = surviving_copies(reading.survey, plan, self._chain, known, voters, gone, newest.replicas)
        tried = [self._tried(copy) for copy in copies]
        self._copies = sorted(tried, key=lambda copy: copy.excluded is not None)
        self._ranked = [copy for copy in self._copies if copy.excluded is None]
        self._is_end_proven = self._has_majority_of_now() or self._has_every_broker()
        # A backup says nothing of what was committed after it.
        self._high = None if high is None or high < self._low or not self._is_end_proven else high

    def _tried(self, copy: SurvivingCopy) -> SurvivingCopy:
        """The copy, not ranked where a rescue cannot build a state from all of it."""
        if copy.excluded is not None:
            return copy
        replica = self._reading.survey.replicas[copy.number].plan
        with self._reading.settings.open_storage(replica.root) as storage:
            found = dry_run(storage, replica, copy.end_offset)
        if found.problem is None:
            return copy
        return replace(copy, excluded=f"no state can be built from it: {found.problem}", usable_to=found.to_offset)

    def _has_majority_of_now(self) -> bool:
        """Whether a majority of the voters' disks is here, none of them said to be gone."""
        here = self._read_ids - self._gone
        return bool(self._sets) and all(len(here & each.ids) >= majority(len(each.ids)) for each in self._sets)

    def _has_every_broker(self) -> bool:
        """Whether the copy of every registered broker was read, none of them said to be gone."""
        registered = self._registered_brokers()
        return bool(registered) and not registered & self._gone and not self._uncaptured_brokers()

    def plan(self) -> RescuePlan:
        verdict, reason, steps = self._verdict()
        outcomes = [self._outcome(copy) for copy in self._copies]
        newest = self._sets[-1] if self._sets else None
        survey = self._reading.survey
        states = (replica.quorum_state for replica in survey.replicas if replica.is_accepted)
        epochs = [state.leader_epoch for state in states if state is not None]
        ends = [(run.epoch, run.to_offset) for run in survey.epochs]
        ends += [(snapshot.epoch, snapshot.end_offset) for snapshot in survey.snapshots]
        return RescuePlan(
            verdict,
            reason,
            tuple(steps),
            tuple(outcomes),
            self._chosen() if verdict is RescueVerdict.STANDS else None,
            tuple(sorted(newest.ids)) if newest is not None else (),
            newest.kraft_version if newest is not None else 0,
            tuple(sorted(self._gone)),
            self._low,
            self._high,
            max([*epochs, *(epoch for epoch, _ in ends)], default=-1),
            max((offset for _, offset in ends), default=0),
            self._uncaptured_brokers(),
            self._is_end_proven,
            self._again(),
            self._disks_left,
        )

    def _chosen(self) -> int:
        """The place of the copy to go on from: the best, or the one that can be used furthest."""
        usable = self._usable()
        return 0 if self._ranked or usable is None else self._copies.index(usable)

    def _usable(self) -> SurvivingCopy | None:
        """The copy of which a rescue can use a part, the furthest one; None without such a copy."""
        usable = [copy for copy in self._copies if copy.usable_to is not None]
        return max(usable, key=lambda copy: (copy.last_epoch, copy.usable_to), default=None)

    # Whether there is a plan

    def _verdict(self) -> tuple[RescueVerdict, str, list[str]]:
        refused, undecided = RescueVerdict.REFUSED, RescueVerdict.UNDECIDED
        if not self._copies:
            return undecided, f"{capitalized(NO_COPY)}.", []
        conflict = committed_on_two_branches(self._evidence)
        if conflict is not None:
            first, second = conflict
            reason = (
                f"Two branches were both committed: {first.text}, and {second.text}. Whichever is chosen, committed "
                "records of the other one are lost, and brokers may have acted on both."
            )
            return refused, reason, list(self._see_branches())
        for voter_set in self._sets:
            alive = sorted(voter_set.ids - self._gone)
            if len(alive) >= majority(len(voter_set.ids)):
                return refused, *self._refusals.may_live(voter_set.ids, alive)
        if self._chain is None or not self._sets:
            why = self._interval.undecided or self._undecided or "its logs contradict each other"
            return undecided, f"No log is known to be the canonical one: {why}.", list(self._see_branches())
        tied = [copy for copy in self._copies if copy.excluded is not None and "other bytes" in copy.excluded]
        missing = self._uncaptured_voters()
        if missing:
            return undecided, *self._refusals.missing_disks(missing, self._doubts)
        usable = self._usable()
        if not self._ranked and usable is not None:
            reason = f"Go on from {usable.name} up to offset {usable.usable_to}, the end of its last whole operation: "
            reason += f"{usable.excluded}."
            return RescueVerdict.STANDS, reason, list(self._steps(usable))
        if not self._ranked:
            which = listed([copy.name for copy in tied or self._copies])
            return undecided, f"No copy can be ranked: {which}: {(tied or self._copies)[0].excluded}.", []
        best = self._ranked[0]
        reason = f"Go on from {best.name}: epoch {best.last_epoch}, log end offset {best.end_offset}."
        return RescueVerdict.STANDS, reason, list(self._steps(best))

    def _see_branches(self) -> Iterator[str]:
        if not self._disk_ids:
            return
        for held in branches_apart(self._reading.survey, self._newest):
            branch = self._reading.survey.branches[held.number]
            name = BranchName(branch.epochs[0][0], branch.from_offset, held.node_ids[0])
            asked = f"kraft-audit rescue --plan {self._asked} --branch {name}"
            yield f"If the log of {nouns('node', held.node_ids)} is to go on: {asked}"
        yield f"kraft-audit quorum --diverge {self._path}"

    def _uncaptured_voters(self) -> list[int]:
        voters = {voter for voter_set in self._sets for voter in voter_set.ids}
        return sorted(voters - self._gone - self._read_ids)

    def _uncaptured_brokers(self) -> tuple[int, ...]:
        """Registered brokers whose copy of the metadata log was not read: one of them may reach further."""
        read = {copy.node_id for copy in self._copies if copy.archived_ms is None} - self._doubts.keys()
        return tuple(sorted(self._registered_brokers() - self._gone - read))

    def _registered_brokers(self) -> set[int]:
        """The brokers that the best copy knows."""
        if not self._ranked:
            return set()
        state = self._state(self._ranked[0], self._ranked[0].end_offset)
        return {row["broker_id"] for row in state.existing("broker_changes")}

    def _again(self) -> str:
        return f"kraft-audit rescue --plan {self._asked_again}{gone_option(self._gone)}"

    def _steps(self, best: SurvivingCopy) -> Iterator[str]:
        if self._disks_left:
            whose = nouns("node", self._disks_left)
            yield f"Copy the metadata logs of {whose} before anything starts, and leave those disks as they are."
        brokers = self._uncaptured_brokers()
        if brokers:
            yield f"Add the node dirs of {nouns('broker', brokers)}, which hold copies of this log too, and ask again."
        if best.node_id is not None:
            # A broker's id cannot be a controller's, unless it is both.
            named = "" if best.is_voter else " --node-id NODE --endpoint HOST:PORT"
            named += "" if best.usable_to is None else f" --to {best.usable_to}"
            asked = f"{self._asked}{gone_option(self._gone)}"
            words = f"kraft-audit rescue {asked} --from {best.node_id} --out rescued-{best.node_id}{named}"
            yield f"Build the node dir to go on with, and get the procedure: {words}"
            if not best.is_voter:
                yield "NODE is an id that no broker has, best a new one. HOST:PORT is where it will listen."

    # What each copy would mean

    def _outcome(self, copy: SurvivingCopy) -> CopyOutcome:
        keeps_to = min(copy.held_to, self._low)
        best = self._ranked[0] if self._ranked else self._copies[0]
        own = self._state(copy, copy.end_offset)
        loses: list[Operation] = []
        if copy.end != best.end:
            parted = self._state(best, parting_offset(self._reading.survey, copy, best))
            loses = operations(parted, self._state(best, best.end_offset))
        proven = self._state(copy, keeps_to)
        return CopyOutcome(
            copy,
            keeps_to,
            self._low if self._chain is None else keeps_to,
            self._low,
            keeps_to if self._high is None else None,
            tuple(operation for operation in loses if operation.change != "deleted"),
            tuple(operation for operation in loses if operation.change == "deleted"),
            tuple(operations(proven, own)),
            own.is_complete,
        )

    def _state(self, copy: SurvivingCopy, end_offset: int) -> ClusterState:
        """The state that a copy's records below an offset give."""
        key = (copy.branch, copy.snapshot, end_offset)
        if key not in self._states:
            beyond = snapshot_of(self._reading.survey, copy)
            log = BranchLog(self._reading, copy.branch, beyond=beyond)
            self._states[key] = state_at(log, offset=end_offset - 1)
        return self._states[key]


def _emptied_disks(survey: Survey, newest: ProvenRound) -> dict[int, DiskDoubt]:
    """By node, disks without a record whose own files name epochs."""
    emptied = (survey.replicas[number] for number in newest.replicas)
    return {
        replica.plan.node_id: EMPTIED
        for replica in emptied
        if replica.trust is DiskTrust.EMPTY and replica.leader_epochs and replica.plan.node_id is not None
    }
