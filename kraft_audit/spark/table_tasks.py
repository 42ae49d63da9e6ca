"""The tasks of a query on one table: clusters are dealt out by size, and a large one is split by parts of its log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kraft_audit.capture.log_parts import WHOLE_LOG, LogPart, can_be_split, log_parts
from kraft_audit.capture.plan import ClusterPlan, plan_to_json
from kraft_audit.lake.staging.staging_tasks import planned_bytes, shares
from kraft_codec.errors import InputError
from kraft_codec.storage.opener import StoragePool
from kraft_codec.storage.random_access import Storage

LEAST_PART_BYTES: Final = 16 << 20
"""A smaller part costs more to start than it saves."""
TaskParts = tuple[tuple[str, LogPart], ...]
"""(plan as JSON, part of its log) of each cluster of one task."""


def table_tasks(
    plans: Sequence[ClusterPlan], table: str, limit: int, *, are_parts_read: bool = True
) -> list[TaskParts]:
    """Deal out clusters to at most `limit` tasks.

    Args:
        plans: the clusters of the query.
        table: the table that is read.
        limit: the most tasks.
        are_parts_read: whether a cluster may be split at all.

    Returns:
        The clusters, or parts of them, of each task; their costs are about equal.
    """
    costs = [planned_bytes(plan) for plan in plans]
    fair = max(sum(costs) // limit, LEAST_PART_BYTES, 1)
    dealt: list[tuple[str, LogPart]] = []
    dealt_costs: list[int] = []
    with StoragePool() as pool:
        for plan, cost in zip(plans, costs, strict=True):
            count = min(limit, -(-cost // fair)) if are_parts_read and can_be_split(plan, table) else 1
            parts = _parts(plan, count, pool) if count > 1 else [WHOLE_LOG]
            text = plan_to_json(plan)
            dealt += [(text, part) for part in parts]
            dealt_costs += [cost // len(parts)] * len(parts)
    return [tuple(dealt[place] for place in share) for share in shares(dealt_costs, limit)]


def _parts(plan: ClusterPlan, count: int, pool: StoragePool) -> list[LogPart]:
    def storage_of(root: str) -> Storage:
        with pool.open(root) as storage:  # the pool keeps it open
            return storage

    try:
        return log_parts(plan, count, storage_of)
    except InputError:
        return [WHOLE_LOG]  # the task says why
