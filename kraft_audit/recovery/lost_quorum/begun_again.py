"""Disks that are said to be gone and whose logs began again: another history, which proves nothing about this one.

Controllers on ephemeral disks come back formatted and elect each other with an empty log, while brokers keep the old
one. Offset by offset the two contradict each other, so that no log is canonical until the new one is left out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kraft_audit.capture.branches import Branch
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.survey import Survey
from kraft_audit.recovery.lost_quorum.rescue_plan import RescuePlan
from kraft_audit.text.readable import listed


def without_new_logs(survey: Survey, plan: ClusterPlan, gone: Collection[int]) -> ClusterPlan | None:
    """The plan without the disks of `gone` nodes that share no batch with any other disk's log where both have offsets;
    None where there is no such disk."""
    roots = {end.replica: _root(survey, end.branch) for end in survey.ends if end.branch is not None}
    ends = {end.replica: end.end_offset for end in survey.ends}
    replicas = [replica for replica in survey.replicas if replica.is_accepted and replica.number in roots]
    kept = [replica.number for replica in replicas if replica.plan.node_id not in gone]
    new = {
        replica.plan.identity
        for replica in replicas
        if replica.plan.node_id in gone
        and kept
        and all(_contradict(roots, ends, replica.number, number) for number in kept)
    }
    if not new:
        return None
    return replace(plan, replicas=tuple(each for each in plan.replicas if each.identity not in new))


def began_again(plan: RescuePlan, whole: ClusterPlan, rest: ClusterPlan) -> RescuePlan:
    """The plan of the other disks, which says whose logs are left out and why."""
    kept = {each.identity for each in rest.replicas}
    nodes = listed(
        sorted({each.node_id for each in whole.replicas if each.identity not in kept and each.node_id is not None})
    )
    text = f"The logs of {nodes} began again: they share no batch with the other disks, and prove nothing about these."
    return replace(plan, reason=f"{plan.reason} {text}")


def _root(survey: Survey, number: int) -> Branch:
    branch = survey.branches[number]
    while branch.parent is not None:
        branch = survey.branches[branch.parent]
    return branch


def _contradict(roots: dict[int, Branch], ends: dict[int, int], one: int, other: int) -> bool:
    """Whether two logs begin with other batches and overlap: the older one has no place for the newer one's."""
    first, second = roots[one], roots[other]
    overlap_from = max(first.from_offset, second.from_offset)
    return first.number != second.number and overlap_from < min(ends[one], ends[other])
