"""The copies of a log that a lake's archive holds, as a plan to read: alone, or beside the disks that are left.

A copy is a node dir as it was when it was captured. The disks of now come after all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from kraft_audit.archive.archived_captures import ArchivedCluster
from kraft_audit.archive.runs import ArchivedKey
from kraft_audit.archive.whole_batches import whole_batches
from kraft_audit.capture.histories import split_histories
from kraft_audit.capture.plan import ARCHIVED_ROOT, ClusterPlan, cluster_id_of
from kraft_audit.lake.closed_plans import ClosedPlans
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.staging.archive_reading import (
    ArchiveOf,
    LakeCluster,
    chosen_cluster,
    closed_plans,
    lake_at,
    lake_clusters,
    open_archive,
)
from kraft_codec.columns.buffers import Bytes
from kraft_codec.errors import ChoiceError
from kraft_codec.storage.random_access import Storage


@dataclass(frozen=True, slots=True)
class LakeCopies:
    """A plan with copies of a lake, and by their root the storage of these."""

    plan: ClusterPlan
    storages: Mapping[str, Storage]


def copies_alone(lake: str, cluster: str | None) -> LakeCopies:
    """The copies of one cluster: the one of this id or name, or the only one. Raises InputError, ChoiceError."""
    there = lake_at(lake)
    closed = closed_plans(there)
    return copies_of(there, chosen_cluster(there, lake_clusters(there, closed), cluster), closed)


def copies_of(
    lake: DeltaLake,
    cluster: LakeCluster,
    closed: ClosedPlans,
    archive_of: ArchiveOf | None = None,
    only_telling: bool = False,
) -> LakeCopies:
    """The copies of one cluster as these plans left them. Raises InputError."""
    archived = open_archive(lake, cluster, closed, root=ARCHIVED_ROOT, archive_of=archive_of, only_telling=only_telling)
    return LakeCopies(archived.plan, {archived.storage.location: archived.storage})


def copies_beside(lake: str, disks: ClusterPlan, storage: Storage) -> LakeCopies:
    """One history of a cluster on disks, and what a lake holds of it. `storage`: that of the disks.

    Raises InputError, and ChoiceError where the lake holds no copy of this history.
    """
    there = lake_at(lake)
    closed = closed_plans(there)
    clusters = lake_clusters(there, closed)
    same = [cluster for cluster in clusters if cluster_id_of(cluster.cluster_id) == disks.cluster_id]
    if not same:
        names = ", ".join(f"{cluster.cluster_id} ({cluster.name})" for cluster in clusters) or "none"
        raise ChoiceError(there.uri, f"nothing of cluster {disks.cluster_id}; there are {names}")

    def find_whole(wanted: Collection[ArchivedKey]) -> Mapping[ArchivedKey, Bytes]:
        return whole_batches(disks.replicas, lambda _: storage, wanted)

    for cluster in same:
        archived = open_archive(there, cluster, closed, root=ARCHIVED_ROOT, find_whole=find_whole)
        copies = joined(archived, disks, storage)
        if copies is not None:
            return copies
    detail = f"the logs of cluster {disks.cluster_id} there are other histories than the one on the disks"
    raise ChoiceError(there.uri, f"{detail}: read the lake alone")


def joined(archived: ArchivedCluster, disks: ClusterPlan, storage: Storage) -> LakeCopies | None:
    """The plan of some disks with the archived copies before them; None where these are of another history."""
    root, archive = archived.storage.location, archived.storage
    first = max(replica.capture_number for replica in archived.plan.replicas) + 1
    later = [replace(replica, capture_number=first + replica.capture_number) for replica in disks.replicas]
    both = replace(disks, replicas=(*archived.plan.replicas, *later))
    for history in split_histories(both, {disks.replicas[0].root: storage, root: archive}.__getitem__):
        if len({replica.is_archived for replica in history.replicas}) == 2:
            return LakeCopies(replace(history, history_of=disks.history_of), {root: archive})
    return None
