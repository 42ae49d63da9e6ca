"""What a cluster is called where people read it: everywhere the same, also where it has no id."""

from __future__ import annotations

from typing import Final

NO_CLUSTER_ID: Final = "(no cluster id)"


def shown_cluster_id(cluster_id: str | None) -> str:
    """The id, or the words that stand for none: replicas of which nothing says whose they are have no other name."""
    return cluster_id or NO_CLUSTER_ID
