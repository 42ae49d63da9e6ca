"""How work is dealt out to tasks, by what reading a cluster costs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Final

from kraft_audit.capture.plan import ClusterPlan

# What opening a file costs, in bytes of log, so that many tiny files count too.
FILE_COST_BYTES: Final = 16 << 10
# Below this a task costs more to start than to run.
TASK_BYTES: Final = 4 << 20
# Clusters differ in size. A few tasks a core balance that; more would make many small files.
TASKS_A_CORE: Final = 3


CGROUP: Final = Path("/sys/fs/cgroup")
"""Where a container sees its own control group; the CPU limit of a pod is there, and not in the CPU affinity."""


def processors(cgroup: Path = CGROUP) -> int:
    """How many processors this process may use, at most: as its affinity and its container's CPU limit allow."""
    allowed = getattr(os, "sched_getaffinity", None)
    count = len(allowed(0)) if allowed is not None else os.cpu_count() or 1
    return min(count, _limit(cgroup) or count)


def _limit(cgroup: Path) -> int | None:
    """The CPU limit of a control group in whole processors, rounded up; None without one.

    Source: cpu.max of cgroup v2 is `QUOTA PERIOD` or `max PERIOD`; v1 has two files, and -1 for no limit.
    """
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = map(int, " ".join((cgroup / name).read_text() for name in names).split())
        except (OSError, ValueError):
            continue
        if quota > 0 and period > 0:
            return ceil(quota / period)
    return None


def planned_bytes(plan: ClusterPlan) -> int:
    """The cost of reading a cluster, in bytes of log."""
    files = [file for replica in plan.replicas for file in replica.files if not file.is_unchanged]
    return sum(FILE_COST_BYTES + file.size_bytes - (file.earlier.scanned_to if file.earlier else 0) for file in files)


def shares(costs: Sequence[int], shares_max: int) -> list[list[int]]:
    """Distributes places of `costs` over as many shares as are worth their start: the costliest to the least loaded."""
    count = max(1, min(shares_max, len(costs), sum(costs) // TASK_BYTES + 1))
    assigned: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for place in sorted(range(len(costs)), key=lambda place: (-costs[place], place)):
        least = loads.index(min(loads))
        assigned[least].append(place)
        loads[least] += costs[place]
    return [share for share in assigned if share]
