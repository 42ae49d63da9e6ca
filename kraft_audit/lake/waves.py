"""The waves of a run: the clusters with changes in a few plans, so that those with little to read wait for no other."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from math import ceil
from typing import Final

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.lake.ledger_state import PlannedCluster
from kraft_audit.lake.staging.archive_reading import is_archived
from kraft_audit.lake.staging.staging_tasks import planned_bytes

LARGE_BYTES: Final = 1 << 30
"""Reading so much takes minutes. An hour's changes are far below it: that is one wave, and one commit a table."""
SHARE_BYTES_MIN: Final = 512 << 20
"""Reading less than that takes less than the tasks that a share more needs."""
SHARES_MAX: Final = 8
"""Each reads all of the log, a sixth of the work on it: eight take a third of the time of one, and more gain little."""
_EXCESS: Final = 0.25
"""A cluster that is so much more than an even part of the work is not split for that."""

Wave = tuple[PlannedCluster, ...]


def waves_of(planned: Sequence[PlannedCluster], failed: Container[str]) -> list[Wave]:
    """The clusters with little to read, those with much, then each that failed at all its attempts before, alone.

    `failed` are names. The histories of one entry of the fleet stay together, in their order.
    """
    sizes: dict[str, int] = {}
    for cluster in planned:
        sizes[cluster.plan.name] = sizes.get(cluster.plan.name, 0) + planned_bytes(cluster.plan)
    waves: dict[tuple[int, str], list[PlannedCluster]] = {}
    for cluster in planned:
        name = cluster.plan.name
        wave = (2, name) if name in failed else (int(sizes[name] >= LARGE_BYTES), "")
        waves.setdefault(wave, []).append(cluster)
    return [tuple(waves[wave]) for wave in sorted(waves)]


def with_shares(wave: Wave, processors: int) -> Wave:
    """The wave, with clusters that would keep one processor busy while the others have no more to do split among them.

    Each task reads the whole log, so a cluster is split no further than that. What goes on from a state is not: it has
    little to read.
    """
    costs = [planned_bytes(cluster.plan) for cluster in wave]
    even = max(SHARE_BYTES_MIN, sum(costs) // processors, 1)
    shares = [max(1, min(ceil(cost / even - _EXCESS), processors, SHARES_MAX)) for cost in costs]
    return tuple(
        replace(cluster, plan=replace(cluster.plan, shares=count)) if _is_read_first(cluster.plan) else cluster
        for cluster, count in zip(wave, shares, strict=True)
    )


def _is_read_first(plan: ClusterPlan) -> bool:
    return plan.is_whole and not plan.kept_state and not is_archived(plan)


def numbered(wave: Wave, number: int) -> Wave:
    """The wave as plan `number`; what it names for the first time is of that plan too."""
    return tuple(
        replace(cluster, plan=replace(plan, number=number, first_plan=number if is_new else plan.first_plan))
        for cluster in wave
        for plan, is_new in [(cluster.plan, cluster.plan.first_plan == cluster.plan.number)]
    )
