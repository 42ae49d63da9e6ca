"""The silver tables: what the replay tells, as Arrow schemas with a contract each.

A row of a `*_changes` table is the state of one subject as after the record at `from_offset`; it holds until the next
row of that subject. State taken from a snapshot stands at the last offset that the snapshot contains, with cause
"snapshot".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kraft_codec.contract import NODE_IDS, Column, Table
from kraft_codec.tables import build_rows


def _column(name: str, type_: pa.DataType, comment: str, *, nullable: bool = False) -> Column:
    return Column(name, type_, nullable, comment)


def list_of(type_: pa.DataType) -> pa.DataType:
    """A list without null elements."""
    return pa.list_(pa.field("element", type_, nullable=False))


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

_CLUSTER_ID: Final = _column("cluster_id", pa.string(), "cluster id, 22 characters as Kafka prints it")
_PLAN: Final = _column("plan", pa.int64(), "the plan that wrote this row; 0 where there is no ledger")
_ENVELOPE: Final = (
    _column("from_offset", pa.int64(), "offset of the record from which on this holds"),
    _column("from_epoch", pa.int32(), "epoch of that record"),
    _column("timestamp_ms", pa.int64(), "append time of that record"),
)


def _table(name: str, grain: str, key: Sequence[str], *columns: Column) -> Table:
    comment = "A plan that finds them contradicted replaces the rows from the contradiction on."
    return Table(name, "silver", grain, ("cluster_id", *key), "for ever", comment, (_CLUSTER_ID, *columns, _PLAN))


def _changes(name: str, grain: str, subject: Sequence[Column], *state: Column) -> Table:
    key = (*(column.name for column in subject), "from_offset")
    cause = _column("cause", pa.string(), "what brought the change about")
    return _table(name, grain, key, *_ENVELOPE, *subject, cause, *state)


LEADER_EPOCHS: Final = _table(
    "leader_epochs",
    "one leader epoch on one branch, or an epoch that was burnt without a leader",
    ("epoch", "from_offset"),
    _column("epoch", pa.int32(), "leader epoch"),
    _column("from_offset", pa.int64(), "offset of its first record; null where none is known", nullable=True),
    _column("to_offset", pa.int64(), "end offset (exclusive), as far as is known", nullable=True),
    _column("leader_change_offset", pa.int64(), "offset of its LeaderChange record", nullable=True),
    _column("leader_id", pa.int32(), "the elected leader; null where the log does not tell", nullable=True),
    _column("voters", NODE_IDS, "voter ids that its LeaderChange lists", nullable=True),
    _column("granting_voters", NODE_IDS, "voter ids that granted their vote", nullable=True),
    _column("timestamp_ms", pa.int64(), "append time of its first record", nullable=True),
    _column("canonical", pa.bool_(), "whether its first record is on the canonical log"),
    _column("ended_by", pa.string(), "open, next_epoch, truncated, or burnt (no leader known, no record)"),
)
WATERMARKS: Final = _table(
    "watermarks",
    "the committed interval that one round of captures shows",
    ("capture_number", "read_to_ms"),
    _column("capture_number", pa.int32(), "number of the round among the captures of the path, in time"),
    _column("capture", pa.string(), "folder of the node dirs, relative to the given path; empty where there is one"),
    _column("read_from_ms", pa.int64(), "start of reading: what was committed then lies at or below high"),
    _column("read_to_ms", pa.int64(), "end of reading: everything below low is committed by then"),
    _column("low", pa.int64(), "everything below this offset is proven committed"),
    _column("low_epoch", pa.int32(), "epoch of the last record below low; -1 where low is 0"),
    _column(
        "high", pa.int64(), "nothing from this offset on was committed; null where nothing is known", nullable=True
    ),
    _column("high_epoch", pa.int32(), "epoch of the last record below high", nullable=True),
    _column("canonical_epoch", pa.int32(), "last epoch of the canonical log; null where there is none", nullable=True),
    _column("canonical_end_offset", pa.int64(), "end of the canonical log", nullable=True),
    _column("voters", list_of(VOTER_KEY), "voter set in effect at the end of the canonical log"),
    _column("captured_voters", NODE_IDS, "voters of that set whose log was read"),
    _column("low_evidence", TEXTS, "what proves low, one fact a line"),
    _column("high_evidence", TEXTS, "what excludes everything from high on, one fact a line"),
    _column("undecided", pa.string(), "why low and high differ or high is null; null where they meet", nullable=True),
)
VOTER_SETS: Final = _table(
    "voter_sets",
    "one voter set on one branch, in effect from the moment it was appended",
    ("from_offset", "from_epoch"),
    _column("from_offset", pa.int64(), "offset of its record; -1 for a bootstrap checkpoint or a static set"),
    _column("from_epoch", pa.int32(), "epoch of its record"),
    _column("timestamp_ms", pa.int64(), "append time; null where unknown", nullable=True),
    _column("source", pa.string(), "static, bootstrap, snapshot or log"),
    _column("kraft_version", pa.int16(), "kraft.version in effect with it"),
    _column("voters", list_of(VOTER), "the voters, ascending by id"),
    _column("added", list_of(VOTER_KEY), "voters that the set before did not have"),
    _column("removed", list_of(VOTER_KEY), "voters that only the set before had"),
    _column("endpoints_changed", NODE_IDS, "voters that stayed and got other endpoints or version ranges"),
    _column("target_voters", NODE_IDS, "kip642: the voters that the assignment moves to", nullable=True),
    _column("canonical", pa.bool_(), "whether the record is on the canonical log"),
    _column("ended_by", pa.string(), "in_effect, superseded or truncated"),
)
PARTITION_CHANGES: Final = _changes(
    "partition_changes",
    "the registration of one partition after one change of it, or of its effective min ISR",
    (
        _column("topic_id", pa.string(), "topic id, 22 characters"),
        _column("partition", pa.int32(), "partition number"),
    ),
    _column("topic", pa.string(), "topic name"),
    _column("cause_broker_id", pa.int32(), "the broker whose event it was", nullable=True),
    _column(
        "election",
        pa.string(),
        "how a leader was chosen: isr, preferred, elr, last_known, unclean; none: lost; same: epoch bump only",
        nullable=True,
    ),
    _column("exists", pa.bool_(), "false once the topic was removed"),
    _column("replicas", NODE_IDS, "assigned replicas, in order of preference"),
    _column("isr", NODE_IDS, "in-sync replicas"),
    _column("elr", NODE_IDS, "eligible leader replicas"),
    _column("last_known_elr", NODE_IDS, "last known leader, where there is none"),
    _column("adding_replicas", NODE_IDS, "replicas that a reassignment adds"),
    _column("removing_replicas", NODE_IDS, "replicas that a reassignment removes"),
    _column("directories", TEXTS, "log directory id of each replica"),
    _column("leader", pa.int32(), "leading replica, -1 for none"),
    _column("leader_recovery_state", pa.string(), "RECOVERED or RECOVERING"),
    _column("leader_epoch", pa.int32(), "leader epoch of the partition"),
    _column("partition_epoch", pa.int32(), "partition epoch"),
    _column("effective_min_isr", pa.int32(), "min.insync.replicas in effect, capped by the replicas of partition 0"),
    _column("high_watermark_can_advance", pa.bool_(), "it has a leader and an ISR of at least effective_min_isr"),
    _column("expected_elr", NODE_IDS, "the ELR that the shipped rules give; null: do not apply", nullable=True),
)
_SUBJECT_EXISTS: Final = _column("exists", pa.bool_(), "false once it was removed")
BROKER_CHANGES: Final = _changes(
    "broker_changes",
    "the registration of one broker after one change",
    (_column("broker_id", pa.int32(), "broker id"),),
    _SUBJECT_EXISTS,
    _column("broker_epoch", pa.int64(), "broker epoch"),
    _column("incarnation_id", pa.string(), "incarnation id"),
    _column("fenced", pa.bool_(), "fenced: no leader, no ISR member"),
    _column("in_controlled_shutdown", pa.bool_(), "in controlled shutdown"),
    _column("rack", pa.string(), "rack", nullable=True),
    _column("log_dirs", TEXTS, "online log directory ids, sorted as Kafka sorts them"),
    _column("cordoned_log_dirs", TEXTS, "cordoned log directory ids"),
    _column("end_points", END_POINTS, "listeners"),
    _column("features", FEATURES, "supported feature ranges"),
    _column("is_migrating_zk_broker", pa.bool_(), "a ZooKeeper broker in migration"),
)
CONTROLLER_CHANGES: Final = _changes(
    "controller_changes",
    "the registration of one controller after one change",
    (_column("controller_id", pa.int32(), "controller id"),),
    _SUBJECT_EXISTS,
    _column("incarnation_id", pa.string(), "incarnation id"),
    _column("zk_migration_ready", pa.bool_(), "ready for the migration from ZooKeeper"),
    _column("end_points", END_POINTS, "listeners"),
    _column("features", FEATURES, "supported feature ranges"),
)
TOPIC_CHANGES: Final = _changes(
    "topic_changes",
    "a topic created or removed",
    (_column("topic_id", pa.string(), "topic id, 22 characters"),),
    _SUBJECT_EXISTS,
    _column("topic", pa.string(), "topic name"),
)
CONFIG_CHANGES: Final = _changes(
    "config_changes",
    "one config key of one resource after one write",
    (
        _column("resource_type", pa.string(), "TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP or the number"),
        _column("resource_name", pa.string(), "name; empty with BROKER: the default of all brokers"),
        _column("name", pa.string(), "config key"),
    ),
    _SUBJECT_EXISTS,
    _column("value", pa.string(), "value, a fingerprint where it may be a secret; null once deleted", nullable=True),
)
FEATURE_CHANGES: Final = _changes(
    "feature_changes",
    "the level of one feature after one change",
    (_column("name", pa.string(), "feature name; kraft.version from its control record"),),
    _SUBJECT_EXISTS,
    _column("feature_level", pa.int16(), "finalized level, 0 for none"),
)
SECURITY_CHANGES: Final = _changes(
    "security_changes",
    "one ACL, quota, SCRAM credential, token or producer id block after one change",
    (
        _column("kind", pa.string(), "ACL, CLIENT_QUOTA, SCRAM, DELEGATION_TOKEN or PRODUCER_IDS"),
        _column("subject", pa.string(), "what is described, unique within its kind"),
    ),
    _SUBJECT_EXISTS,
    _column("state", pa.string(), "its fields as JSON, secrets as fingerprints; null once removed", nullable=True),
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
        _column("from_offset", pa.int64(), "rows of earlier plans at or past it no longer hold"),
        _column("settled_offset", pa.int64(), "rows below it are final unless a capture contradicts them"),
        _column("to_offset", pa.int64(), "end of what was told (exclusive): low, or the end of the canonical log"),
        _column("low", pa.int64(), "everything below it is proven committed"),
        _column("low_epoch", pa.int32(), "epoch of the last record below low; -1 where low is 0"),
        _column("goes_beyond_low", pa.bool_(), "no majority of voters was captured: told to the log's end, unproven"),
        _column("began_at", pa.int64(), "the offset at which the first replay of this cluster began"),
        _column("started_at", pa.int64(), "the offset at which this replay started"),
        _column("log_start_offset", pa.int64(), "first offset of the canonical log that was captured"),
        _column("snapshot", pa.string(), "the snapshot that it started from; null: from the log", nullable=True),
        _column("is_complete", pa.bool_(), "false where the log begins after offset 0 and no snapshot leads there"),
        _column("gap_from_offset", pa.int64(), "history gap: nobody holds the log from here any more", nullable=True),
        _column("gap_to_offset", pa.int64(), "end of the history gap: state goes on with a snapshot", nullable=True),
        _column(
            "contradicted_from",
            pa.int64(),
            "the offset from which on the canonical log is another than earlier plans took it to be",
            nullable=True,
        ),
        _column("why_nothing", pa.string(), "why there is no canonical log to replay", nullable=True),
        _column("epochs", list_of(_struct(epoch=pa.int32(), to_offset=pa.int64())), "the replayed epochs past low"),
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
