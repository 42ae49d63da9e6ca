"""The gold tables and views as contracts: findings, what Spark computes from them across clusters and time, and what a
data engineer or a board selects, computed when it is asked for.

Tables stay plain Delta (no deletion vectors, no column mapping), so that any reader opens them.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from kraft_audit.tables.contract import (
    BOOL,
    INT32,
    INT64,
    TEXT,
    TIMESTAMP,
    Table,
    choice,
    list_of,
    nullable,
    required,
    struct_of,
    tables_by_name,
)

EVIDENCE: Final = list_of(
    pa.struct(
        [
            pa.field("text", TEXT, nullable=False),
            pa.field("offset", INT64),
            pa.field("epoch", INT32),
            pa.field("timestamp_ms", INT64),
            pa.field("node_id", INT32),
            pa.field("path", TEXT),
            pa.field("file_name", TEXT),
            pa.field("position", INT64),
            pa.field("before", TEXT),
            pa.field("after", TEXT),
        ]
    )
)
WAIVER: Final = struct_of(who=TEXT, why=TEXT, until=TEXT)
SEVERITIES: Final = ("critical", "high", "medium", "low")
MINUTES: Final = pa.float64()
CONTROL_NAMES: Final = ("durability", "change_management", "quorum_safety", "log_integrity", "access")

JUDGED_FINDINGS: Final = Table(
    "findings",
    "gold",
    "one episode of one subject that one rule raised, or could not decide",
    ("finding_id", "from_offset", "from_ms"),
    "for ever",
    "What was unsafe. A re-run finds the same finding_id again.",
    (
        required("finding_id", TEXT, "hash of (history, rule, kind of subject, key of the subject): no time is in it"),
        required("cluster_id", TEXT, "cluster id, 22 characters as Kafka prints it"),
        required("rule", TEXT, "id of the rule, which never changes"),
        required("name", TEXT, "name of the rule"),
        choice("severity", SEVERITIES),
        choice("scope", ("voters", "log", "partition", "broker", "cluster"), "what the subject is"),
        choice("status", ("raised", "undecided", "clear"), "clear rows have no subject"),
        choice(
            "state",
            ("open", "folded", "resolved", "waived", "acknowledged", "undecided", "clear"),
            "open alone alarms. folded: it lasts as the cluster was stopped in order; resolved: its cause is gone; "
            "waived, of a loss acknowledged: accepted today",
        ),
        choice("severity_now", SEVERITIES, "its severity while it is open; null where it is not", is_nullable=True),
        nullable("incident_id", TEXT, "the incident that explains it, as in incidents; null where none does"),
        required("subject", TEXT, "the partition, voter, replica, broker or setting"),
        required("summary", TEXT, "what was found, one line"),
        nullable("reason", TEXT, "why it is undecided"),
        nullable("from_offset", INT64, "offset at which the episode began"),
        nullable("to_offset", INT64, "offset at which it ended (exclusive); null while it lasts"),
        nullable("from_ms", INT64, "append time of its beginning"),
        nullable("to_ms", INT64, "append time of its end"),
        nullable("from_time", TIMESTAMP, "from_ms for people; null where that is no time"),
        nullable("to_time", TIMESTAMP, "to_ms for people; null where that is no time"),
        nullable("epoch", INT32, "leader epoch it is about: of the partition for partitions, of the log otherwise"),
        required("is_over", BOOL, "it is history: its cause is gone"),
        required("evidence", EVIDENCE, "the facts that show it"),
        required("why", TEXT, "why it matters"),
        required("what_to_do", TEXT, "what to do"),
        nullable("waiver", WAIVER, "who accepts it, why, and until which day"),
        nullable("seen_ms", INT64, "when the captures that show it had been read"),
        required("plan", INT64, "the plan that wrote this row; 0 where there is no ledger"),
    ),
)
"""A finding as the rules of one plan judged it: what `check` prints. The lake merges these rows into `FINDINGS` and
`FINDING_EPISODES`."""

HISTORIES: Final = Table(
    "histories",
    "gold",
    "what one plan learned about a history: one life of a metadata log",
    ("cluster_id", "history_id", "plan"),
    "for ever",
    "Which logs have a cluster id. The newest row of a history_id counts; the views show that one alone.",
    (
        required("history_id", TEXT, "given once: what `cluster_id` holds in every other table of the lake"),
        required("cluster_id", TEXT, "cluster id, 22 characters as Kafka prints it"),
        required("name", TEXT, "name of the cluster in fleet.yaml"),
        required("aliases", list_of(TEXT), "what else it is known by: its batch at offset 0, else its first snapshot"),
        required("first_plan", INT64, "the plan that read it first"),
        nullable("merged_into", TEXT, "the history that it proved to be; its findings are closed as merged"),
        required("plan", INT64, "the plan that wrote this row"),
    ),
)
RULE_IDS: Final = list_of(TEXT)
FINDINGS: Final = Table(
    "findings",
    "gold",
    "one subject that one rule raised, or could not decide, as in the episode that lasts, else in the newest",
    ("finding_id",),
    "for ever",
    "What was and is unsafe. Each plan merges the findings of the clusters that it read; no finding has two rows.",
    (
        *JUDGED_FINDINGS.columns,
        required("first_seen_ms", INT64, "when the captures that first showed it had been read"),
        required("last_seen_ms", INT64, "when the newest captures that showed it had been read"),
        nullable("closed_ms", INT64, "when it ended, as far as is known; null while it is not resolved"),
        choice(
            "closed_by",
            ("ended", "not_found", "reverted", "merged"),
            "the log shows its end, a later plan does not find it, the quorum did not keep the records that began it, "
            "or its history proved to be another one",
            is_nullable=True,
        ),
        required("reopened_count", INT32, "how often it came back after it had been resolved"),
        required("first_plan", INT64, "the plan that found it first; `plan` is the newest that changed it"),
        required("changed_ms", INT64, "when its state or its waiver last changed"),
        nullable("expired_waiver", WAIVER, "the waiver that has expired; the finding counts again"),
    ),
)
FINDING_EPISODES: Final = Table(
    "finding_episodes",
    "gold",
    "one time span during which a finding's condition held",
    ("cluster_id", "finding_id", "from_offset", "from_ms"),
    "for ever",
    "When each finding began and ended, and what showed it. A finding is open while one of its episodes is.",
    (
        *(
            column
            for column in JUDGED_FINDINGS.columns
            if column.name
            in (
                *(
                    "finding_id",
                    "cluster_id",
                    "rule",
                    "scope",
                    "severity",
                    "status",
                    "incident_id",
                    "summary",
                    "reason",
                    "from_offset",
                ),
                *("to_offset", "from_ms", "to_ms", "epoch", "is_over", "evidence"),
            )
        ),
        choice("state", ("open", "resolved"), "resolved: its end is known, or it is no longer found"),
        *(
            column
            for column in FINDINGS.columns
            if column.name in ("first_seen_ms", "last_seen_ms", "closed_ms", "closed_by", "first_plan", "changed_ms")
        ),
        required("plan", INT64, "the plan that wrote this row"),
    ),
)
_INCIDENT: Final = (
    required("incident_id", TEXT, "hash of (history, family of the cause, beginning)"),
    required("cluster_id", TEXT, "cluster id, 22 characters as Kafka prints it"),
    choice(
        "kind",
        (
            *("quorum", "cluster_stop", "broker_loss", "broker_stop", "broker_restart", "broker_freeze"),
            *("restart_loop", "roll_too_fast", "role_change", "no_leader", "declared_rescue"),
        ),
    ),
    choice("severity", SEVERITIES, "the worst of its open findings"),
    required("subject", TEXT, "the brokers, the epochs or the quorum"),
    required("headline", TEXT, "what happened, one line"),
    nullable("from_offset", INT64, "offset at which it began"),
    nullable("to_offset", INT64, "offset at which it ended (exclusive); null while it lasts"),
    nullable("from_ms", INT64, "append time of its beginning"),
    nullable("to_ms", INT64, "append time of its end"),
    choice("state", ("open", "stopped", "resolved"), "open alone alarms; stopped: the cluster was stopped in order"),
    required("is_open", BOOL, "it lasts"),
    required("is_clean", BOOL, "every step of it was a controlled shutdown"),
    required("effects", list_of(TEXT), "what it did to partitions, in words"),
    required(
        "events",
        list_of(pa.struct([pa.field("timestamp_ms", INT64), pa.field("text", TEXT, nullable=False)])),
        "its story, line by line",
    ),
    required("rules", RULE_IDS, "the rules of its findings, each once"),
)
JUDGED_INCIDENTS: Final = Table(
    "incidents",
    "gold",
    "findings with one cause: an operation in the log",
    ("incident_id",),
    "for ever",
    "What happened: stops, losses, restarts, epochs without a leader, a broken quorum: what `check --incidents` lists.",
    (
        *_INCIDENT,
        required("finding_ids", RULE_IDS, "the findings that it explains"),
        required("plan", INT64, "the plan that wrote this row; 0 where there is no ledger"),
    ),
)
INCIDENTS: Final = Table(
    "incidents",
    "gold",
    JUDGED_INCIDENTS.grain,
    JUDGED_INCIDENTS.key,
    "for ever",
    "What happened, each once. An incident that a later plan no longer finds is not open.",
    (
        *_INCIDENT,
        choice("closed_by", ("ended", "not_found", "merged"), "as for findings; null while it lasts", is_nullable=True),
        required("first_plan", INT64, "the plan that found it first"),
        required("plan", INT64, "the newest plan that wrote this row"),
    ),
)
PARTITION_RISK: Final = Table(
    "partition_risk",
    "gold",
    "one topic of one cluster on one day (UTC), by the rack of the replica that it depends on",
    ("cluster_id", "day", "topic", "rack"),
    "for ever",
    "Exposure, in minutes summed over partitions. A day without a row had none; what lasts counts to the log's end.",
    (
        required("cluster_id", TEXT, "cluster id, 22 characters as Kafka prints it"),
        required("day", pa.date32(), "day, UTC"),
        required("topic", TEXT, "topic name"),
        required("rack", TEXT, "newest registered rack of the leader, else of the first in ISR or ELR; empty: none"),
        required("partitions", INT64, "partitions that were exposed in any of the three ways"),
        required("last_replica_minutes", MINUTES, "one replica in ISR and ELR though more are assigned (KP001)"),
        required("offline_minutes", MINUTES, "without a leader (KP002)"),
        required("under_min_isr_minutes", MINUTES, "ISR below the effective min ISR (KP005)"),
        required("exposure_minutes", MINUTES, "any of the three, each minute of a partition once"),
        required("plan", INT64, "the plan that wrote this row"),
    ),
)
CLUSTER_COMPLIANCE: Final = Table(
    "cluster_compliance",
    "gold",
    "one control of one cluster on one day (UTC), from the first day of its log",
    ("cluster_id", "day", "control"),
    "for ever",
    "Which controls were met, by the findings that lasted into that day and were not waived.",
    (
        required("cluster_id", TEXT, "cluster id, 22 characters as Kafka prints it"),
        required("day", pa.date32(), "day, UTC"),
        choice("control", CONTROL_NAMES),
        choice(
            "status",
            ("met", "weakened", "not_met", "undecided"),
            "undecided: a rule could not be decided, and nothing severe is open",
        ),
        required("not_met_by", RULE_IDS, "rules with open high or critical findings, such as an unacknowledged loss"),
        required("weakened_by", RULE_IDS, "rules with open medium findings, or an acknowledged loss of that day"),
        required("waived_by", RULE_IDS, "ids of rules whose findings are waived on that day: counted apart"),
        required("undecided_by", RULE_IDS, "ids of rules that could not be decided"),
        required("open_findings", INT64, "open findings of severity medium and up"),
        required("acknowledged_losses", INT64, "losses of that day that a person acknowledged"),
        required("waived_findings", INT64, "waived findings of the rules in waived_by"),
        required("low_findings", INT64, "findings of severity low: hygiene, which breaks no control"),
        choice("worst_severity", SEVERITIES, "of the open findings; null where there are none", is_nullable=True),
        choice("trend", ("first", "same", "better", "worse"), "open findings compared with the day before"),
        required("not_met_days", INT64, "days in a row that it has not been met, this one included"),
        required("as_of_ms", INT64, "the newest changed_ms of the cluster's findings that this row counts"),
        required("plan", INT64, "the plan that wrote this row"),
    ),
)
_ANSWER_LINE: Final = pa.struct(
    [
        pa.field("word", TEXT, nullable=False),
        pa.field("text", TEXT, nullable=False),
        pa.field("severity", TEXT),
        pa.field("is_header", BOOL, nullable=False),
    ]
)
SITUATIONS: Final = Table(
    "situations",
    "gold",
    "one history of one cluster, as the newest merged plan and the waivers of now leave it",
    ("cluster_id",),
    "for ever",
    "Where each cluster stands, as one row: what the pages, the end of a run, messages and boards say of it.",
    (
        required("cluster_id", TEXT, "the history, as in every other table"),
        required("standing", TEXT, "what the quorum does: healthy, at rest, stalled, no leader, …"),
        required("exit_code", INT32, "that of `check` by default"),
        choice("severity_now", SEVERITIES, "the worst that is open; null where nothing is", is_nullable=True),
        nullable("need", INT32, "how urgent it is that somebody acts, 0 first; null where nobody has to"),
        required("what", TEXT, "what is wrong, in one clause; empty where nobody has to act"),
        nullable("since_ms", INT64, "when that began; null where no time is known"),
        required("hit", INT64, "how many partitions it is about"),
        required("advice", TEXT, "what to do, as its worst finding says; empty where nobody has to act"),
        required("command", TEXT, "the first command to run; empty where there is none"),
        required("lines", list_of(_ANSWER_LINE), "what `check` opens with, line by line"),
        nullable("leader_id", INT32, "who leads; null where no disk names a leader"),
        required("leader_epoch", INT32, "the newest persisted epoch; -1 where none is known"),
        nullable("committed_to", INT64, "everything below this offset is proven committed"),
        nullable("log_end_offset", INT64, "end of the canonical log"),
        nullable("log_end_ms", INT64, "append time of the last batch"),
        required("partitions", INT64, "partitions at the end of the log"),
        required("leaderless", INT64, "those without a leader"),
        required("at_one_replica", INT64, "those with one replica in ISR and ELR though more are assigned"),
        required("blocked", INT64, "those with a leader and fewer replicas in the ISR than min ISR"),
        required("lost", INT64, "partitions that may have lost acknowledged records, which nobody acknowledged"),
        required("lost_for_sure", INT64, "those of them that are proven to have lost some"),
        required("open_incidents", INT64, "incidents that last, stops in order left out"),
        *(required(f"open_{severity}", INT64, f"open findings of severity {severity}") for severity in SEVERITIES),
        required("folded", INT64, "findings that last because the cluster was stopped in order"),
        required("accepted", INT64, "findings that are waived or acknowledged"),
        required("undecided", INT64, "findings that could not be decided"),
        required("as_of_ms", INT64, "the newest changed_ms of its findings that this row counts"),
        required("plan", INT64, "the newest plan that read it"),
    ),
)
LABELS: Final = ("owner", "environment", "tier", "contact")
"""What fleet.yaml may say of a cluster beside its name."""
CLUSTERS: Final = Table(
    "clusters",
    "gold",
    "what fleet.yaml said of one history of one cluster, from one time on",
    ("cluster_id", "valid_from_ms"),
    "for ever",
    "Names and labels. The newest row of a cluster id holds; a change adds a row.",
    (
        required("cluster_id", TEXT, "the history, as in every other table"),
        required("valid_from_ms", INT64, "when a run first saw this name and these labels"),
        required("cluster_name", TEXT, "name in fleet.yaml"),
        nullable("owner", TEXT, "label: who answers for the cluster"),
        nullable("environment", TEXT, "label: production, test and the like"),
        nullable("tier", TEXT, "label: how much depends on it"),
        nullable("contact", TEXT, "label: whom to call, as a channel or an address"),
        required("plan", INT64, "the newest closed plan then"),
    ),
)
NOTIFICATIONS: Final = Table(
    "notifications",
    "gold",
    "one step of one message about an incident: that it is to be sent, was sent, or could not be",
    ("subject_key", "n", "target", "stage", "at_ms"),
    "for ever",
    "What `notify` sent, and what it has to know. Rows are only added; event and n say which message it is.",
    (
        required(
            "incident_id", TEXT, "as in incidents; of findings that no incident explains a hash of cluster and rule"
        ),
        choice(
            "event",
            ("opened", "worse", "reopened", "resolved", "clean", "unclean", "folded"),
            "folded: said by the message about the incident that explains it",
        ),
        required("n", INT64, "counts the events of one subject from 1 on"),
        choice("stage", ("intent", "sent", "failed", "noted"), "noted: nothing is sent for it"),
        required("target", TEXT, "name in notify.yaml; empty where it is noted"),
        required("subject_key", TEXT, "hash of (cluster, kind, subject): an incident that comes back has the same"),
        required("cluster_id", TEXT, "the history, as in every other table"),
        choice("severity", SEVERITIES),
        required("headline", TEXT, "what happened, one line"),
        required("at_ms", INT64, "when this step was recorded"),
        required("run", TEXT, "which call of notify recorded it"),
        nullable("why", TEXT, "why it could not be sent"),
        required("plan", INT64, "the newest plan that read the cluster"),
    ),
)
GOLD: Final = tables_by_name(*(FINDINGS, FINDING_EPISODES, INCIDENTS, SITUATIONS, PARTITION_RISK, CLUSTER_COMPLIANCE))
FLEET_TABLES: Final = tables_by_name(CLUSTERS, NOTIFICATIONS)
"""Tables about the fleet itself, which no plan computes."""
CHANGE_FEED: Final = frozenset({FINDINGS.name})
"""Tables whose changes other systems may follow."""


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
        required("not_met_controls", INT64, "controls that were not met on it"),
        required("weakened_controls", INT64, "controls that were weakened on it"),
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
OPEN_FINDINGS: Final = Table(
    "open_findings",
    "gold",
    FINDINGS.grain,
    FINDINGS.key,
    "computed",
    "What is open now, with the name and labels of its cluster: what `check` alarms about by default.",
    (
        *(column for column in FINDINGS.columns if column.name not in ("waiver", "expired_waiver")),
        nullable("cluster_name", TEXT, "name in fleet.yaml"),
        *(nullable(label, TEXT, "label") for label in LABELS),
    ),
)
GOLD_VIEWS: Final = tables_by_name(OPEN_FINDINGS, CLUSTER_HEALTH, INCIDENTS_BY_DAY, FINDING_TREND)
