"""The silver tables: what the replay tells, as Arrow schemas with a contract each.

A row of a `*_changes` table is the state of one subject as after the record at `from_offset`; it holds until the next
row of that subject. State taken from a snapshot stands at the last offset that the snapshot contains, with cause
"snapshot".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kraft_codec.contract import NODE_IDS, Column, Table, is_, list_of, may
from kraft_codec.tables import build_rows


def _struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct([pa.field(name, type_, nullable=False) for name, type_ in fields.items()])


TEXTS: Final = list_of(pa.string())
VOTER_KEY: Final = pa.struct(
    [pa.field("voter_id", pa.int32(), nullable=False), pa.field("directory_id", pa.string(), nullable=True)]
)
VOTER: Final = pa.struct(
    [
        *VOTER_KEY,
        pa.field("endpoints", list_of(_struct(name=pa.string(), host=pa.string(), port=pa.int32())), nullable=False),
        pa.field("min_supported_version", pa.int16(), nullable=False),
        pa.field("max_supported_version", pa.int16(), nullable=False),
    ]
)
END_POINTS: Final = list_of(_struct(name=pa.string(), host=pa.string(), port=pa.int32(), security_protocol=pa.int16()))
FEATURES: Final = list_of(_struct(name=pa.string(), min_supported_version=pa.int16(), max_supported_version=pa.int16()))

_CLUSTER_ID: Final = is_("cluster_id", pa.string(), "cluster id, 22 characters as Kafka prints it")
_PLAN: Final = is_("plan", pa.int64(), "the plan that wrote this row; 0 where there is no ledger")
_ENVELOPE: Final = (
    is_("from_offset", pa.int64(), "offset of the record from which on this holds"),
    is_("from_epoch", pa.int32(), "epoch of that record"),
    is_("timestamp_ms", pa.int64(), "append time of that record"),
)


def _table(name: str, grain: str, key: Sequence[str], *columns: Column) -> Table:
    comment = "A plan that finds them contradicted replaces the rows from the contradiction on."
    return Table(name, "silver", grain, ("cluster_id", *key), "for ever", comment, (_CLUSTER_ID, *columns, _PLAN))


def _changes(name: str, grain: str, subject: Sequence[Column], *state: Column) -> Table:
    key = (*(column.name for column in subject), "from_offset")
    cause = is_("cause", pa.string(), "what brought the change about")
    return _table(name, grain, key, *_ENVELOPE, *subject, cause, *state)


LEADER_EPOCHS: Final = _table(
    "leader_epochs",
    "one leader epoch on one branch, or an epoch that was burnt without a leader",
    ("epoch", "from_offset"),
    is_("epoch", pa.int32(), "leader epoch"),
    may("from_offset", pa.int64(), "offset of its first record; null where none is known"),
    may("to_offset", pa.int64(), "end offset (exclusive), as far as is known"),
    may("leader_change_offset", pa.int64(), "offset of its LeaderChange record"),
    may("leader_id", pa.int32(), "the elected leader; null where the log does not tell"),
    may("voters", NODE_IDS, "voter ids that its LeaderChange lists"),
    may("granting_voters", NODE_IDS, "voter ids that granted their vote"),
    may("timestamp_ms", pa.int64(), "append time of its first record"),
    is_("canonical", pa.bool_(), "whether its first record is on the canonical log"),
    is_("ended_by", pa.string(), "open, next_epoch, truncated, or burnt (no leader known, no record)"),
)
WATERMARKS: Final = _table(
    "watermarks",
    "the committed interval that one round of captures shows",
    ("capture_number", "read_to_ms"),
    is_("capture_number", pa.int32(), "number of the round among the captures of the path, in time"),
    is_("capture", pa.string(), "folder of the node dirs, relative to the given path; empty where there is one"),
    is_("read_from_ms", pa.int64(), "start of reading: what was committed then lies at or below high"),
    is_("read_to_ms", pa.int64(), "end of reading: everything below low is committed by then"),
    is_("low", pa.int64(), "everything below this offset is proven committed"),
    is_("low_epoch", pa.int32(), "epoch of the last record below low; -1 where low is 0"),
    may("high", pa.int64(), "nothing from this offset on was committed; null where nothing is known"),
    may("high_epoch", pa.int32(), "epoch of the last record below high"),
    may("canonical_epoch", pa.int32(), "last epoch of the canonical log; null where there is none"),
    may("canonical_end_offset", pa.int64(), "end of the canonical log"),
    is_("voters", list_of(VOTER_KEY), "voter set in effect at the end of the canonical log"),
    is_("captured_voters", NODE_IDS, "voters of that set whose log was read"),
    is_("low_evidence", TEXTS, "what proves low, one fact a line"),
    is_("high_evidence", TEXTS, "what excludes everything from high on, one fact a line"),
    may("undecided", pa.string(), "why low and high differ or high is null; null where they meet"),
)
VOTER_SETS: Final = _table(
    "voter_sets",
    "one voter set on one branch, in effect from the moment it was appended",
    ("from_offset", "from_epoch"),
    is_("from_offset", pa.int64(), "offset of its record; -1 for a bootstrap checkpoint or a static set"),
    is_("from_epoch", pa.int32(), "epoch of its record"),
    may("timestamp_ms", pa.int64(), "append time; null where unknown"),
    is_("source", pa.string(), "static, bootstrap, snapshot or log"),
    is_("kraft_version", pa.int16(), "kraft.version in effect with it"),
    is_("voters", list_of(VOTER), "the voters, ascending by id"),
    is_("added", list_of(VOTER_KEY), "voters that the set before did not have"),
    is_("removed", list_of(VOTER_KEY), "voters that only the set before had"),
    is_("endpoints_changed", NODE_IDS, "voters that stayed and got other endpoints or version ranges"),
    may("target_voters", NODE_IDS, "kip642: the voters that the assignment moves to"),
    is_("canonical", pa.bool_(), "whether the record is on the canonical log"),
    is_("ended_by", pa.string(), "in_effect, superseded or truncated"),
)
PARTITION_CHANGES: Final = _changes(
    "partition_changes",
    "the registration of one partition after one change of it, or of its effective min ISR",
    (
        is_("topic_id", pa.string(), "topic id, 22 characters"),
        is_("partition", pa.int32(), "partition number"),
    ),
    is_("topic", pa.string(), "topic name"),
    may("cause_broker_id", pa.int32(), "the broker whose event it was"),
    may(
        "election",
        pa.string(),
        "how a leader was chosen: isr, preferred, elr, last_known, unclean; none: lost; same: epoch bump only",
    ),
    is_("exists", pa.bool_(), "false once the topic was removed"),
    is_("replicas", NODE_IDS, "assigned replicas, in order of preference"),
    is_("isr", NODE_IDS, "in-sync replicas"),
    is_("elr", NODE_IDS, "eligible leader replicas"),
    is_("last_known_elr", NODE_IDS, "last known leader, where there is none"),
    is_("adding_replicas", NODE_IDS, "replicas that a reassignment adds"),
    is_("removing_replicas", NODE_IDS, "replicas that a reassignment removes"),
    is_("directories", TEXTS, "log directory id of each replica"),
    is_("leader", pa.int32(), "leading replica, -1 for none"),
    is_("leader_recovery_state", pa.string(), "RECOVERED or RECOVERING"),
    is_("leader_epoch", pa.int32(), "leader epoch of the partition"),
    is_("partition_epoch", pa.int32(), "partition epoch"),
    is_("effective_min_isr", pa.int32(), "min.insync.replicas in effect, capped by the replicas of partition 0"),
    is_("high_watermark_can_advance", pa.bool_(), "it has a leader and an ISR of at least effective_min_isr"),
    may("expected_elr", NODE_IDS, "the ELR that the shipped rules give; null: do not apply"),
)
EXPOSURE_CHANGES: Final = _changes(
    "exposure_changes",
    "one change of a partition that was exposed before it, or is after it",
    (
        is_("topic_id", pa.string(), "topic id, 22 characters"),
        is_("partition", pa.int32(), "partition number"),
    ),
    is_("topic", pa.string(), "topic name"),
    may("keeper_id", pa.int32(), "whom everything hangs on: the leader, else the first of the ISR, else of the ELR"),
    is_("is_last_replica", pa.bool_(), "one replica alone in ISR and ELR though more are assigned (KP001)"),
    is_("is_offline", pa.bool_(), "without a leader (KP002)"),
    is_("is_under_min_isr", pa.bool_(), "ISR below the effective min ISR (KP005)"),
)
_SUBJECT_EXISTS: Final = is_("exists", pa.bool_(), "false once it was removed")
BROKER_CHANGES: Final = _changes(
    "broker_changes",
    "the registration of one broker after one change",
    (is_("broker_id", pa.int32(), "broker id"),),
    _SUBJECT_EXISTS,
    is_("broker_epoch", pa.int64(), "broker epoch"),
    is_("incarnation_id", pa.string(), "incarnation id"),
    is_("fenced", pa.bool_(), "fenced: no leader, no ISR member"),
    is_("in_controlled_shutdown", pa.bool_(), "in controlled shutdown"),
    may("rack", pa.string(), "rack"),
    is_("log_dirs", TEXTS, "online log directory ids, sorted as Kafka sorts them"),
    is_("cordoned_log_dirs", TEXTS, "cordoned log directory ids"),
    is_("end_points", END_POINTS, "listeners"),
    is_("features", FEATURES, "supported feature ranges"),
    is_("is_migrating_zk_broker", pa.bool_(), "a ZooKeeper broker in migration"),
)
CONTROLLER_CHANGES: Final = _changes(
    "controller_changes",
    "the registration of one controller after one change",
    (is_("controller_id", pa.int32(), "controller id"),),
    _SUBJECT_EXISTS,
    is_("incarnation_id", pa.string(), "incarnation id"),
    is_("zk_migration_ready", pa.bool_(), "ready for the migration from ZooKeeper"),
    is_("end_points", END_POINTS, "listeners"),
    is_("features", FEATURES, "supported feature ranges"),
)
TOPIC_CHANGES: Final = _changes(
    "topic_changes",
    "a topic created or removed",
    (is_("topic_id", pa.string(), "topic id, 22 characters"),),
    _SUBJECT_EXISTS,
    is_("topic", pa.string(), "topic name"),
)
CONFIG_CHANGES: Final = _changes(
    "config_changes",
    "one config key of one resource after one write",
    (
        is_("resource_type", pa.string(), "TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP or the number"),
        is_("resource_name", pa.string(), "name; empty with BROKER: the default of all brokers"),
        is_("name", pa.string(), "config key"),
    ),
    _SUBJECT_EXISTS,
    may("value", pa.string(), "value, a fingerprint where it may be a secret; null once deleted"),
)
FEATURE_CHANGES: Final = _changes(
    "feature_changes",
    "the level of one feature after one change",
    (is_("name", pa.string(), "feature name; kraft.version from its control record"),),
    _SUBJECT_EXISTS,
    is_("feature_level", pa.int16(), "finalized level, 0 for none"),
)
SECURITY_CHANGES: Final = _changes(
    "security_changes",
    "one ACL, quota, SCRAM credential, token or producer id block after one change",
    (
        is_("kind", pa.string(), "ACL, CLIENT_QUOTA, SCRAM, DELEGATION_TOKEN or PRODUCER_IDS"),
        is_("subject", pa.string(), "what is described, unique within its kind"),
    ),
    _SUBJECT_EXISTS,
    may("state", pa.string(), "its fields as JSON, secrets as fingerprints; null once removed"),
)

REPLAYS: Final = Table(
    "replays",
    "silver",
    "what one plan replayed of one cluster: its rows stand for what earlier plans told from from_offset on",
    ("cluster_id", "plan"),
    "for ever",
    "Rows are never updated: of a canonical row at o, a later plan with from_offset <= o has said better.",
    (
        _CLUSTER_ID,
        is_("from_offset", pa.int64(), "rows of earlier plans at or past it no longer hold"),
        is_("settled_offset", pa.int64(), "rows below it are final unless a capture contradicts them"),
        is_("to_offset", pa.int64(), "end of what was told (exclusive): low, or the end of the canonical log"),
        is_("low", pa.int64(), "everything below it is proven committed"),
        is_("low_epoch", pa.int32(), "epoch of the last record below low; -1 where low is 0"),
        is_("goes_beyond_low", pa.bool_(), "no majority of voters was captured: told to the log's end, unproven"),
        is_("began_at", pa.int64(), "the offset at which the first replay of this cluster began"),
        is_("started_at", pa.int64(), "the offset at which this replay started"),
        is_("log_start_offset", pa.int64(), "first offset of the canonical log that was captured"),
        may("snapshot", pa.string(), "the snapshot that it started from; null: from the log"),
        is_(
            "is_complete",
            pa.bool_(),
            "false where the log begins after offset 0 and no snapshot leads there, and where a record from "
            "from_offset on is missing or could not be decoded",
        ),
        may("gap_from_offset", pa.int64(), "history gap: nobody holds the log from here any more"),
        may("gap_to_offset", pa.int64(), "end of the history gap: state goes on with a snapshot"),
        may(
            "contradicted_from",
            pa.int64(),
            "the offset from which on the canonical log is another than earlier plans took it to be",
        ),
        may("why_nothing", pa.string(), "why there is no canonical log to replay"),
        is_("epochs", list_of(_struct(epoch=pa.int32(), to_offset=pa.int64())), "the replayed epochs past low"),
        _PLAN,
    ),
)

SILVER: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        LEADER_EPOCHS,
        WATERMARKS,
        VOTER_SETS,
        PARTITION_CHANGES,
        EXPOSURE_CHANGES,
        BROKER_CHANGES,
        CONTROLLER_CHANGES,
        TOPIC_CHANGES,
        CONFIG_CHANGES,
        FEATURE_CHANGES,
        SECURITY_CHANGES,
        REPLAYS,
    )
}


def silver_batch(table: Table, cluster_id: str, plan: int, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Builds a batch from rows that lack `cluster_id` and `plan`."""
    return build_rows(table, [{**row, "cluster_id": cluster_id, "plan": plan} for row in rows])
