"""Which log is shown as of a capture: the canonical one, the snapshot beyond a log, or a branch that is asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kraft_audit.capture.survey import Survey, SurveyedSnapshot
from kraft_audit.quorum.divergence import replicas_on
from kraft_audit.quorum.rounds import ProvenRound
from kraft_audit.reading import ClusterReading
from kraft_audit.replay.cluster_state import Moment
from kraft_audit.replay.driver import BranchLog, snapshot_beyond
from kraft_audit.text.readable import listed, nouns, when

_BRANCH: Final = re.compile(r"([0-9]{1,10})@([0-9]{1,19})(?::([0-9]{1,10}))?")


@dataclass(frozen=True, slots=True)
class BranchName:
    """A branch as `diverge` shows it: epoch and offset of its first record or of its end, and of which node."""

    epoch: int
    offset: int
    node_id: int | None = None

    @classmethod
    def parse(cls, text: str) -> BranchName:
        """EPOCH@OFFSET, or EPOCH@OFFSET:NODE where several branches begin there. Raises ValueError."""
        found = _BRANCH.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r}: expected EPOCH@OFFSET as `diverge` shows them, or EPOCH@OFFSET:NODE")
        epoch, offset, node_id = found.groups()
        return cls(int(epoch), int(offset), None if node_id is None else int(node_id))

    def __str__(self) -> str:
        return f"{self.epoch}@{self.offset}" + ("" if self.node_id is None else f":{self.node_id}")


@dataclass(frozen=True, slots=True)
class HeldBranch:
    """A branch with the nodes that hold it: the way to its furthest end goes over branch `tip`."""

    number: int
    tip: int
    end_offset: int
    node_ids: tuple[int, ...]


def moment_of(
    reading: ClusterReading,
    rounds: Sequence[ProvenRound],
    chosen: ProvenRound,
    tables: frozenset[str],
    branch: BranchName | None = None,
) -> Moment | None:
    """The moment of one round; None where its logs contradict each other and no branch is named.

    Raises ValueError where none, or more than one, has that name.
    """
    survey, interval = reading.survey, chosen.interval
    why: str | None = None
    if branch is not None:
        held = _held_branch(survey, chosen, branch)
        log, end_offset = BranchLog(reading, held.tip, tables), held.end_offset
        why = f"branch {branch}, held by {nouns('node', held.node_ids)}, log end offset {end_offset}"
    elif interval.canonical is not None:
        log, end_offset = BranchLog(reading, interval.canonical.number, tables), interval.canonical.end[1]
    elif (snapshot := snapshot_beyond(survey, chosen.replicas)) is not None:
        furthest = max(chosen.replicas, key=lambda number: survey.ends[number].end_offset)
        log = BranchLog(reading, survey.ends[furthest].branch, tables, snapshot)
        end_offset, why = snapshot.end_offset, _beyond_text(survey, furthest, snapshot)
    else:
        return None
    others = tuple(each.capture for each in rounds if each is not chosen)
    return Moment(log, chosen.capture, others, end_offset, interval.low, interval.low_epoch, why)


def branch_names(survey: Survey, chosen: ProvenRound) -> list[str]:
    """The names of the branches between which the logs of a round differ, each exact."""
    held = [branch for branch in survey.branches if len(_siblings(survey, branch.number)) > 1]
    names = []
    for branch in held:
        nodes = _held(survey, chosen, branch.number).node_ids
        names += [str(BranchName(branch.epochs[0][0], branch.from_offset, nodes[0]))] if nodes else []
    return names


def _siblings(survey: Survey, number: int) -> list[int]:
    parent = survey.branches[number].parent
    return [branch.number for branch in survey.branches if branch.parent == parent]


def _held_branch(survey: Survey, chosen: ProvenRound, name: BranchName) -> HeldBranch:
    ends = {survey.ends[number] for number in chosen.replicas}
    numbers = {end.branch for end in ends if (end.last_epoch, end.end_offset) == (name.epoch, name.offset)}
    numbers |= {
        branch.number
        for branch in survey.branches
        if branch.from_offset == name.offset and branch.epochs[0][0] == name.epoch
    }
    found = [_held(survey, chosen, number) for number in sorted(each for each in numbers if each is not None)]
    found = [held for held in found if held.node_ids and name.node_id in (None, *held.node_ids)]
    if len(found) == 1:
        return found[0]
    if found:
        exact = listed([f"{name}:{held.node_ids[0]} (held by {nouns('node', held.node_ids)})" for held in found])
        raise ValueError(f"{name}: several branches begin or end there: {exact}")
    there = branch_names(survey, chosen)
    raise ValueError(f"no captured log has a branch {name}; {f'there are {listed(there)}' if there else 'none differ'}")


def _held(survey: Survey, chosen: ProvenRound, number: int) -> HeldBranch:
    """The holders of a branch in a round. A version that only some hold of altered offsets ends where it is left."""
    replicas = [each for each in replicas_on(survey, survey.branches[number]) if each in chosen.replicas]
    node_ids = sorted({plan_id for each in replicas if (plan_id := survey.replicas[each].plan.node_id) is not None})
    ends = [survey.ends[each] for each in replicas]
    along = [end for end in ends if number in survey.path(end.branch)]
    best = max(along, key=lambda end: (end.last_epoch, end.end_offset), default=None)
    if best is None or best.branch is None:
        return HeldBranch(number, number, survey.branches[number].to_offset, tuple(node_ids))
    return HeldBranch(number, best.branch, best.end_offset, tuple(node_ids))


def _beyond_text(survey: Survey, furthest: int, snapshot: SurveyedSnapshot) -> str:
    """What a copy holds instead of a log that reaches its snapshot, and from when either is."""
    log = survey.replicas[furthest].log
    taken = "" if snapshot.timestamp_ms is None else f" ({when(snapshot.timestamp_ms)} UTC)"
    newest = f"the newest state is that of snapshot {snapshot.end_offset}{taken}"
    if survey.ends[furthest].branch is None or log is None or log.end_offset is None:
        return f"no segment was captured: {newest}"
    written = "" if log.last_timestamp_ms is None else f" ({when(log.last_timestamp_ms)} UTC)"
    return f"the log ends at {log.end_offset}{written}, before its own snapshot: {newest}"
