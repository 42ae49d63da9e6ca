"""The replicas of a planned cluster, opened for one reading."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Final

from kraft_audit.replay.plan import ClusterPlan
from kraft_audit.replay.replica import Replica
from kraft_audit.replay.scanner import CHUNK_BYTES_MAX, ScanSettings, ValueHash, chunk_bytes
from kraft_codec.random_access import Storage

FILES_BESIDE: Final = 512
OpenStorage = Callable[[str], AbstractContextManager[Storage]]
Clock = Callable[[], int]


def wall_clock_ms() -> int:
    """The time of day, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def open_replicas(
    plan: ClusterPlan,
    stack: ExitStack,
    open_storage: OpenStorage,
    value_hash: ValueHash,
    clock_ms: Clock,
    *,
    stop_on_change: bool = False,
    chunk_bytes_max: int = CHUNK_BYTES_MAX,
) -> tuple[list[Replica], ScanSettings]:
    """Opens what the plan names, in an order that does not depend on the plan's; storages are closed with the stack.

    Raises InputError where a storage cannot be opened any more.
    """
    planned = sorted(plan.replicas, key=lambda replica: replica.sort_key)
    _allow_open_files(len(planned))
    settings = ScanSettings(chunk_bytes(len(planned), chunk_bytes_max), value_hash, stop_on_change)
    storages: dict[str, Storage] = {}
    replicas = []
    for number, replica_plan in enumerate(planned):
        if replica_plan.root not in storages:
            storages[replica_plan.root] = stack.enter_context(open_storage(replica_plan.root))
        replica = Replica(number, plan, replica_plan, storages[replica_plan.root], settings)
        replica.open(clock_ms)
        replicas.append(replica)
    return replicas, settings


def _allow_open_files(replica_count: int) -> None:
    """Each replica has a file open while the others are read: hundreds of captures need more than the usual 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = replica_count + FILES_BESIDE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
