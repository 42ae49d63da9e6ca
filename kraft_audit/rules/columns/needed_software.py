"""Which Kafka software a log needs, by the levels of its features, and whether a registered node has older software."""

from __future__ import annotations

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.nodes import registrations, supported_levels
from kraft_codec.schemas.releases import (
    KRAFT_VERSION_FEATURE,
    METADATA_VERSION_FEATURE,
    release_needed_by,
    release_text,
)


def highest_level(history: ClusterHistory, feature: str, to_offset: int | None = None) -> int | None:
    """The highest level of a feature that the log ever had, below `to_offset`; None where it was not set there.

    A log keeps records of a higher level after a downgrade.
    """
    rows = (row for row in history.rows("feature_changes") if row["name"] == feature and row["exists"])
    return max(
        (row["feature_level"] for row in rows if to_offset is None or row["from_offset"] < to_offset), default=None
    )


def software_needed(history: ClusterHistory, to_offset: int | None = None) -> str | None:
    """The first release that reads the log, up to `to_offset` (`4.0`); None where none is known or no level is set."""
    levels = (
        highest_level(history, feature, to_offset) for feature in (METADATA_VERSION_FEATURE, KRAFT_VERSION_FEATURE)
    )
    release = release_needed_by(*levels)
    return None if release is None else release_text(release)


def has_older_software(history: ClusterHistory) -> bool:
    """Whether a node is registered with software that does not reach the metadata.version of the log."""
    level = highest_level(history, METADATA_VERSION_FEATURE)
    if level is None or not (history.has("broker_changes") and history.has("controller_changes")):
        return False
    supported = (supported_levels(rows[-1], METADATA_VERSION_FEATURE) for rows in registrations(history).values())
    return any(levels is not None and levels[1] < level for levels in supported)
