"""Plans of the clusters below a query's paths: those that a command finds there, each replica below its own path."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from kraft_audit.capture.histories import split_histories
from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.plan import ClusterPlan, FilePlan, PlannedDamage, ReplicaPlan
from kraft_audit.spark.path_options import location_of
from kraft_codec.schemas import Dialect
from kraft_codec.storage.opener import JoinedStorage, open_together
from kraft_codec.storage.path_patterns import paths_of_all
from kraft_codec.storage.random_access import join


def plans_below(paths: Sequence[str], dialect: Dialect | None, capture: str | None) -> list[ClusterPlan]:
    """A plan for each history below the paths and patterns, which are read as commands read several PATHs.

    Each replica is planned below the one path that holds it: a task opens only the paths of its own clusters, and a
    pattern means the same on every worker. Raises InputError and ChoiceError, as `kraft_audit.open` does.
    """
    given, location = paths_of_all(paths), location_of(paths)
    with open_together(given, location) as storage:
        plans = plan_path(
            location,
            open_storage=lambda _: nullcontext(storage),
            captured_at_ms=time.time_ns() // 1_000_000,
            dialect=dialect,
            capture=capture,
        )
        histories = [history for plan in plans for history in split_histories(plan, lambda _: storage)]
        if isinstance(storage, JoinedStorage):
            return [_below_own_paths(history, storage) for history in histories]
    return [_below(history, given[0]) for history in histories]


def _below(plan: ClusterPlan, path: str) -> ClusterPlan:
    replicas = tuple(replace(replica, root=path) for replica in plan.replicas)
    return replace(plan, replicas=replicas, damages=tuple(replace(damage, root=path) for damage in plan.damages))


def _below_own_paths(plan: ClusterPlan, storage: JoinedStorage) -> ClusterPlan:
    return replace(
        plan,
        replicas=tuple(_replica_below_own_path(replica, storage) for replica in plan.replicas),
        damages=tuple(_damage_below_own_path(damage, storage) for damage in plan.damages),
    )


def _replica_below_own_path(replica: ReplicaPlan, storage: JoinedStorage) -> ReplicaPlan:
    opened = storage.opened_path(replica.log_dir)
    assert opened is not None  # noqa: S101  # it was found below a given path
    root, log_dir = opened
    node = storage.opened_path(replica.path)
    # A segment that is given by itself is opened without the node dir around it.
    path = node[1] if node is not None and node[0] == root else ""

    def below(file: FilePlan) -> FilePlan:
        inner = storage.opened_path(join(replica.path, file.name))
        return file if inner is None else replace(file, name=inner[1][len(path) :].lstrip("/"))

    return replace(replica, root=root, path=path, log_dir=log_dir, files=tuple(map(below, replica.files)))


def _damage_below_own_path(damage: PlannedDamage, storage: JoinedStorage) -> PlannedDamage:
    opened = storage.opened_path(damage.path)
    return damage if opened is None else replace(damage, root=opened[0], path=opened[1])
