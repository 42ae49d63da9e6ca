"""The waves of a run: the clusters with changes in a few plans, so that those with little to read wait for no other."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Final

from kraft_audit.lake.ledger_state import PlannedCluster
from kraft_audit.lake.staging.staging_tasks import planned_bytes

LARGE_BYTES: Final = 1 << 30
"""Reading so much takes minutes. An hour's changes are far below it: that is one wave, and one commit a table."""

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


def numbered(wave: Wave, number: int) -> Wave:
    """The wave as plan `number`; what it names for the first time is of that plan too."""
    return tuple(
        replace(cluster, plan=replace(plan, number=number, first_plan=number if is_new else plan.first_plan))
        for cluster in wave
        for plan, is_new in [(cluster.plan, cluster.plan.first_plan == cluster.plan.number)]
    )
