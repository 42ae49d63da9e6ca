"""A plan whose captures are numbered as what was read proves their order, where planning could only guess it.

Planning looks at epochs and at the sizes of logs; what was committed, and what snapshots say, it cannot see. Rules go
by the number of a capture, so it has to agree with `capture_order`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kraft_audit.replay.cluster import Clock, OpenStorage, wall_clock_ms
from kraft_audit.replay.plan import ClusterPlan, ReplicaPlan
from kraft_audit.replay.rounds import committed_intervals
from kraft_audit.replay.survey import Survey, survey
from kraft_codec.redaction import Redactor


@dataclass(frozen=True, slots=True)
class ProvenPlan:
    """`shape` is the survey of the whole plan where one was made for it, and stands."""

    plan: ClusterPlan
    shape: Survey | None


def in_proven_order(
    plan: ClusterPlan, *, open_storage: OpenStorage, redactor: Redactor, clock_ms: Clock = wall_clock_ms
) -> ProvenPlan:
    """The plan with its captures numbered in time, as far as the captures prove it; else as they were numbered.

    One capture needs no reading. Raises InputError where a storage can no longer be opened.
    """
    whole = plan.whole()
    if len({replica.capture_number for replica in whole.replicas}) < 2:
        return ProvenPlan(plan, None)
    shape = survey(whole, open_storage=open_storage, redactor=redactor, clock_ms=clock_ms)
    order = [one.round.number for one in committed_intervals(shape, whole)]
    if order == sorted(order):
        return ProvenPlan(plan, shape)
    number_of = dict(zip(order, sorted(order), strict=True))
    numbered = replace(plan, replicas=_numbered(plan.replicas, number_of), context=_numbered(plan.context, number_of))
    return ProvenPlan(numbered, None)


def _numbered(replicas: Sequence[ReplicaPlan], number_of: Mapping[int, int]) -> tuple[ReplicaPlan, ...]:
    """Replicas that were refused have no place in time, and keep theirs."""
    kept = (replace(one, capture_number=number_of.get(one.capture_number, one.capture_number)) for one in replicas)
    return tuple(sorted(kept, key=lambda one: one.sort_key))
