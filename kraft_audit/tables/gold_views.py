"""The views of gold as contracts: what a data engineer or a board selects, computed when it is asked for."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from kraft_audit.tables.contract import INT32, INT64, TEXT, Table, choice, nullable, required, tables_by_name
from kraft_audit.tables.gold import LABELS, SEVERITIES

_CLUSTER: Final = required("cluster_id", TEXT, "the history, as in every other table")
_DAY: Final = required("day", pa.date32(), "day, UTC")

CLUSTER_HEALTH: Final = Table(
    "cluster_health",
    "gold",
    "one cluster as the newest closed plan left it",
    ("cluster_id",),
    "computed",
    "One wide row a cluster: who answers for it, how fresh its reading is, who leads, what is open.",
    (
        _CLUSTER,
        required("cluster_name", TEXT, "name in fleet.yaml"),
        *(nullable(label, TEXT, "label") for label in LABELS),
        nullable("plan", INT64, "the plan that read it last; null where none could"),
        nullable("read_to_ms", INT64, "when its newest capture had been read"),
        nullable("low", INT64, "everything below this offset is proven committed"),
        nullable("high", INT64, "nothing from this offset on was committed; null where nothing is known"),
        nullable("canonical_end_offset", INT64, "end of the canonical log"),
        nullable("not_proven_count", INT64, "offsets of the canonical log that are not proven committed"),
        nullable("why_not_proven", TEXT, "why low and high differ; null where they are equal"),
        nullable("voter_count", INT64, "voters in effect at the end of the canonical log"),
        nullable("captured_voter_count", INT64, "voters of that set whose log was read"),
        nullable("leader_epoch", INT32, "the newest epoch of the canonical log"),
        nullable("leader_id", INT32, "its leader; null where unknown"),
        required("open_incidents", INT64, "incidents that last"),
        choice("worst_incident_severity", SEVERITIES, "of those; null where there is none", is_nullable=True),
        nullable("worst_incident", TEXT, "its headline"),
        *(required(f"open_{severity}", INT64, f"open findings of severity {severity}") for severity in SEVERITIES),
        required("undecided_findings", INT64, "findings that could not be decided"),
        required("waived_findings", INT64, "findings that are accepted today"),
        nullable("judged_day", pa.date32(), "the newest day of cluster_compliance"),
        required("broken_controls", INT64, "controls that were broken on it"),
        required("undecided_controls", INT64, "controls that could not be decided on it"),
    ),
)
INCIDENTS_BY_DAY: Final = Table(
    "incidents_by_day",
    "gold",
    "the incidents of one cluster, day, kind and severity",
    ("cluster_id", "day", "kind", "severity"),
    "computed",
    "How many incidents began on each day, how many of them last, and how long the longest took.",
    (
        _CLUSTER,
        _DAY,
        required("kind", TEXT, "as in incidents"),
        choice("severity", SEVERITIES),
        required("incidents", INT64, "incidents that began on this day"),
        required("still_open", INT64, "those of them that last"),
        required("clean", INT64, "those of them in which every step was a controlled shutdown"),
        nullable("longest_ms", INT64, "the longest of those that ended; null where none did"),
    ),
)
FINDING_TREND: Final = Table(
    "finding_trend",
    "gold",
    "the episodes of findings of one cluster, day and severity",
    ("cluster_id", "day", "severity"),
    "computed",
    "What opened and closed on each day on which anything did, and what was open when it ended.",
    (
        _CLUSTER,
        _DAY,
        choice("severity", SEVERITIES),
        required("opened", INT64, "episodes that were seen first on this day"),
        required("closed", INT64, "episodes that were closed on this day"),
        required("open_at_end", INT64, "episodes that were open when it ended"),
    ),
)
GOLD_VIEWS: Final = tables_by_name(CLUSTER_HEALTH, INCIDENTS_BY_DAY, FINDING_TREND)
