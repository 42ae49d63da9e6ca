"""Disks whose meta.properties names another cluster, though they are in the place of a node of this one.

Kafka refuses what a node of another cluster.id sends (INCONSISTENT_CLUSTER_ID), and does not compare logs: a disk with
this cluster's batches under another id votes with nobody, and one that was formatted with a wrong id is not that
cluster's either. Such a disk is judged with the cluster whose node it was, where it is refused and named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

from kraft_audit.capture.plan import ReplicaPlan

FirstBatch = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class FoundDisk:
    """A disk as it was found; `first_batches`: the first batches of its segments by offset, epoch and CRC."""

    plan: ReplicaPlan
    first_batches: frozenset[FirstBatch]


def homes(disks: Sequence[FoundDisk], voters_of: Callable[[ReplicaPlan], Set[int]]) -> dict[int, str]:
    """By position of a disk: the cluster that it is judged with, where that is another one than it names.

    A disk with batches goes to the cluster that has more disks with one of them. A disk without any goes to the cluster
    whose voters name its node, and whose other node dirs lie beside it. Neither does where its node has a disk of that
    cluster in the same capture: clones keep their node ids, and are clusters of their own. `voters_of` gives the node
    ids that the voter sets of a replica name.
    """
    count = Counter(disk.plan.cluster_id for disk in disks)
    if len(count) < 2:
        return {}
    found = {}
    for number, disk in enumerate(disks):
        if not disk.plan.cluster_id or disk.plan.node_id is None:
            continue
        others = [each for each in disks if each.plan.cluster_id and each.plan.cluster_id != disk.plan.cluster_id]
        kin = [each for each in disks if each.plan.cluster_id == disk.plan.cluster_id]
        if disk.first_batches:
            near = [each for each in others if each.first_batches & disk.first_batches]
            clusters = {each.plan.cluster_id for each in near if _is_larger(each, disk, count)}
        elif any(each.first_batches for each in kin):
            continue
        else:
            beside = [each for each in others if each.plan.folder == disk.plan.folder and each.first_batches]
            clusters = {each.plan.cluster_id for each in beside if disk.plan.node_id in voters_of(each.plan)}
        own = {cluster_id for cluster_id in clusters if not _is_doubled(disk, kin, cluster_id, others)}
        if len(own) == 1:
            found[number] = own.pop() or ""
    return found


def _is_larger(other: FoundDisk, disk: FoundDisk, count: Counter[str | None]) -> bool:
    """Whether the other disk's cluster has more disks here; of as many, the one that is named first stands."""
    mine, theirs = disk.plan.cluster_id, other.plan.cluster_id
    return (-count[theirs], theirs or "") < (-count[mine], mine or "")


def _is_doubled(disk: FoundDisk, kin: Iterable[FoundDisk], cluster_id: str | None, others: Iterable[FoundDisk]) -> bool:
    """Whether a node of this disk's cluster and one of the other cluster have one id in one capture."""
    nodes = {each.plan.node_id for each in kin if each.plan.capture == disk.plan.capture}
    return any(
        each.plan.cluster_id == cluster_id and each.plan.capture == disk.plan.capture and each.plan.node_id in nodes
        for each in others
    )
