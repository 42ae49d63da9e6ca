"""One branch taken for the log where captured logs contradict each other: which disks hold it, and what it has alone.

Two leaders of one epoch, or disks that began again, leave logs of which none is canonical. Each can be asked about by
itself: the disks of another log are left out, prove nothing, and are not said to run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.survey import Survey
from kraft_audit.quorum.divergence import replicas_on
from kraft_audit.quorum.rounds import ProvenRound
from kraft_audit.reading import ClusterReading
from kraft_audit.replay.cluster_state import BranchName, branches_apart, held_branch, state_at
from kraft_audit.replay.driver import BranchLog
from kraft_audit.text.readable import nouns

_WITH_BRANCH: Final = ("may-i", "partitions", "quorum(?! --)", "rescue", "restore-kit", "state", "timeline")
"""The commands that take --branch; `quorum` only without --diverge and --voters."""


@dataclass(frozen=True, slots=True)
class PartedLog:
    """A log that parted from another one. `topics` are those that only it has, at its end.

    It holds [from_offset, to_offset) alone, and `epoch` is that of the first record there.
    """

    name: str
    epoch: int
    from_offset: int
    to_offset: int
    node_ids: tuple[int, ...]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChosenBranch:
    """The branch that stands for the log: its exact name, the nodes that hold it, and those that hold another one."""

    name: str
    node_ids: tuple[int, ...]
    end_offset: int
    left_out: tuple[int, ...]

    @property
    def text(self) -> str:
        """What an answer is about."""
        held = f"Of branch {self.name} alone, held by {nouns('node', self.node_ids)}, log end offset {self.end_offset}."
        return f"{held} {self.others}" if self.left_out else held

    @property
    def others(self) -> str:
        """Whose disks are left out."""
        holds = "holds" if len(self.left_out) == 1 else "hold"
        return f"Left out: {nouns('node', self.left_out)}, which {holds} another log and must stay stopped."

    def with_branch(self, step: str, path: str) -> str:
        """A step whose commands name the branch."""
        words = "|".join(_WITH_BRANCH)
        command = rf"(kraft-audit (?:{words})(?: [\w.-]+)*? {re.escape(shlex.quote(path))})(?! --branch)(?=[\s,;]|$)"
        return re.sub(command, lambda found: f"{found[1]} --branch {self.name}", step)


def plan_on_branch(
    survey: Survey, plan: ClusterPlan, chosen: ProvenRound, name: BranchName
) -> tuple[ClusterPlan, ChosenBranch]:
    """The plan without the disks of other logs. Raises ValueError where no branch, or more than one, has that name."""
    held = held_branch(survey, chosen, name)
    branch = survey.branches[held.number]
    along = {*survey.path(held.tip), held.number}
    own = set(replicas_on(survey, branch))
    versions = {replica for run in survey.altered for _, replicas in run.versions for replica in replicas}
    others = {
        replica.number
        for replica, end in zip(survey.replicas, survey.ends, strict=True)
        if replica.number not in own and (set(survey.path(end.branch)) - along or replica.number in versions)
    }
    identities = {survey.replicas[number].plan.identity for number in others & set(chosen.replicas)}
    left_out = {survey.replicas[number].plan.node_id for number in others & set(chosen.replicas)}
    plans = {survey.replicas[number].plan for number in others}
    kept = tuple(each for each in plan.replicas if each not in plans and each.identity not in identities)
    nodes = tuple(sorted(node for node in left_out if node is not None))
    exact = str(BranchName(branch.epochs[0][0], branch.from_offset, held.node_ids[0]))
    return replace(plan, replicas=kept), ChosenBranch(exact, held.node_ids, held.end_offset, nodes)


def parted_logs(reading: ClusterReading, chosen: ProvenRound, tables: Collection[str]) -> tuple[PartedLog, ...]:
    """The logs between which those of a round differ, the one with most topics of its own first; none if all agree."""
    logs = []
    for held in branches_apart(reading.survey, chosen):
        branch = reading.survey.branches[held.number]
        log = BranchLog(reading, held.tip, frozenset(tables))
        before, after = (_topics(log, offset) for offset in (branch.from_offset - 1, held.end_offset - 1))
        epoch = branch.epochs[0][0]
        name = str(BranchName(epoch, branch.from_offset, held.node_ids[0]))
        only = tuple(sorted(after - before))
        logs.append(PartedLog(name, epoch, branch.from_offset, held.end_offset, held.node_ids, only))
    logs.sort(key=lambda log: (-len(log.topics), log.from_offset - log.to_offset, log.name))
    return tuple(logs) if len(logs) > 1 else ()


def _topics(log: BranchLog, offset: int) -> set[str]:
    if offset < 0:
        return set()
    return {row["topic"] for row in state_at(log, offset=offset).existing("topic_changes")}
