"""The tasks that stage a plan: whole clusters, by what reading them costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kraft_audit.capture.plan import ClusterPlan

# What opening a file costs, in bytes of log, so that many tiny files count too.
FILE_COST_BYTES: Final = 16 << 10
# Below this a task costs more to start than to run.
TASK_BYTES: Final = 4 << 20
# Clusters differ in size. A few tasks a core balance that; more would make many small files.
TASKS_A_CORE: Final = 3

Task = tuple[tuple[int, str], ...]
"""(number, plan as JSON) of each of its clusters."""


def planned_bytes(plan: ClusterPlan) -> int:
    """The cost of reading a cluster, in bytes of log."""
    files = [file for replica in plan.replicas for file in replica.files if not file.is_unchanged]
    return sum(FILE_COST_BYTES + file.size_bytes - (file.earlier.scanned_to if file.earlier else 0) for file in files)


def staging_tasks(clusters: Sequence[tuple[int, str, int]], tasks_max: int) -> list[Task]:
    """Distributes (number, plan, cost) over at most so many tasks: the costliest first, each to the least loaded."""
    total = sum(cost for _, _, cost in clusters)
    count = max(1, min(tasks_max, len(clusters), total // TASK_BYTES + 1))
    assigned: list[list[tuple[int, str]]] = [[] for _ in range(count)]
    loads = [0] * count
    for number, text, cost in sorted(clusters, key=lambda cluster: (-cluster[2], cluster[0])):
        least = loads.index(min(loads))
        assigned[least].append((number, text))
        loads[least] += cost
    return [tuple(share) for share in assigned if share]


def task_label(plan: int, task: int) -> str:
    """What the names of a task's data files begin with."""
    return f"plan-{plan:08d}-{task:05d}"
