"""Audit of the metadata logs of Apache Kafka's KRaft controllers: what was unsafe, when, and why.

    >>> import kraft_audit
    >>> with kraft_audit.open("samples/elr-06-kill-13-last-replica.tgz") as clusters:
    ...     for cluster in clusters:
    ...         print(cluster.cluster_id, cluster.quorum().committed_low, cluster.smallest_loss().brokers)
    SPA6Lw-19VaaSAxl6jMkhw 189 (13,)

Everything here is read without Spark, without Java and without a live cluster. `open` gives a `Clusters` of `Cluster`s;
their methods answer in Arrow tables or small values. Commands, notebooks and the data source call the same methods.
`open_lake` gives a cluster as the archive of a lake holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft_audit.cluster import Cluster
    from kraft_audit.clusters import Clusters, open, open_lake  # noqa: A004  # as people know it from other libraries

__all__ = ["Cluster", "Clusters", "open", "open_lake"]


def __getattr__(name: str) -> object:
    """Names are imported when they are first asked for: they need Arrow, and this package does not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kraft_audit import clusters

    return getattr(clusters, name)
