"""The gold tables as contracts: what Spark keeps across clusters and time. Nothing here needs Spark.

They stay plain Delta (no deletion vectors, no column mapping), so that any reader opens them.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from kraft_audit.rules.tables import FINDINGS as JUDGED
from kraft_audit.rules.tables import WAIVER
from kraft_codec.contract import Table, is_, list_of, may

RULE_IDS: Final = list_of(pa.string())


FINDINGS: Final = Table(
    "findings",
    "gold",
    JUDGED.grain,
    JUDGED.key,
    "for ever",
    "What was and is unsafe. Each plan merges what the rules said of the clusters that it read: never a row twice.",
    (
        *JUDGED.columns,
        is_("state", pa.string(), "open; waived: somebody accepts it today; closed: its cause is gone"),
        is_("first_seen_ms", pa.int64(), "when the captures that first showed it had been read"),
        is_("last_seen_ms", pa.int64(), "when the newest captures that showed it had been read"),
        may("closed_ms", pa.int64(), "when it ended, as far as is known; null while it is not closed"),
        may("closed_by", pa.string(), "ended: the log shows its end; not_found: a later plan no longer finds it"),
        is_("reopened_count", pa.int32(), "how often it was back after it had been closed"),
        is_("first_plan", pa.int64(), "the plan that found it first; `plan` is the newest that said anything of it"),
        is_("changed_ms", pa.int64(), "when its state or its waiver last became another one"),
        may("expired_waiver", WAIVER, "the waiver that held once; the finding counts again"),
    ),
)
PARTITION_RISK: Final = Table(
    "partition_risk",
    "gold",
    "one topic of one cluster on one day (UTC), by the rack of the replica that everything hangs on",
    ("cluster_id", "day", "topic", "rack"),
    "for ever",
    "Exposure, in minutes summed over partitions. A day without a row was safe; what lasts counts to the log's end.",
    (
        is_("cluster_id", pa.string(), "cluster id, 22 characters as Kafka prints it"),
        is_("day", pa.date32(), "day, UTC"),
        is_("topic", pa.string(), "topic name"),
        is_("rack", pa.string(), "newest registered rack of the leader, else of the first in ISR or ELR; empty: none"),
        is_("partitions", pa.int64(), "partitions that were exposed in any way"),
        is_("last_replica_minutes", pa.float64(), "one replica alone in ISR and ELR though more are assigned (KP001)"),
        is_("offline_minutes", pa.float64(), "without a leader (KP002)"),
        is_("under_min_isr_minutes", pa.float64(), "ISR below the effective min ISR (KP005)"),
        is_("exposure_minutes", pa.float64(), "any of the three, each minute of a partition once"),
        is_("plan", pa.int64(), "the plan that wrote this row"),
    ),
)
CLUSTER_COMPLIANCE: Final = Table(
    "cluster_compliance",
    "gold",
    "one control of one cluster on one day (UTC), from the first day that its log tells of",
    ("cluster_id", "day", "control"),
    "for ever",
    "Which controls held: broken by findings of severity medium and up that lasted into that day and were not waived.",
    (
        is_("cluster_id", pa.string(), "cluster id, 22 characters as Kafka prints it"),
        is_("day", pa.date32(), "day, UTC"),
        is_("control", pa.string(), "durability, change_management, quorum_safety, log_integrity or access"),
        is_("status", pa.string(), "held, broken, or undecided: not broken, but a rule could not tell"),
        is_("broken_by", RULE_IDS, "ids of the rules that broke it, in order"),
        is_("waived_by", RULE_IDS, "ids of rules whose findings are waived on that day: counted apart"),
        is_("undecided_by", RULE_IDS, "ids of rules that could not be decided"),
        is_("open_findings", pa.int64(), "findings behind broken_by"),
        is_("waived_findings", pa.int64(), "findings behind waived_by"),
        is_("low_findings", pa.int64(), "findings of severity low: hygiene, which breaks no control"),
        may("worst_severity", pa.string(), "of the findings behind broken_by; null where there are none"),
        is_("trend", pa.string(), "open findings against the day before: first, same, better or worse"),
        is_("broken_days", pa.int64(), "days without a break that it has been broken, this one included"),
        is_("as_of_ms", pa.int64(), "the newest changed_ms of the cluster's findings that this row knows"),
        is_("plan", pa.int64(), "the plan that wrote this row"),
    ),
)
GOLD: Final[dict[str, Table]] = {table.name: table for table in (FINDINGS, PARTITION_RISK, CLUSTER_COMPLIANCE)}
CHANGE_FEED: Final = frozenset({FINDINGS.name})
"""Tables whose changes other systems may follow."""
