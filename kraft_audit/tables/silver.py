"""The silver tables as contracts: what the replay emits.

A row of a `*_changes` table is the state of one subject as after the record at `from_offset`; it holds until the next
row of that subject. State taken from a snapshot stands at the last offset that the snapshot contains, with cause
"snapshot".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from kraft_audit.tables.bronze import PLAN_COLUMN, TRUNCATED
from kraft_audit.tables.contract import (
    BOOL,
    INT16,
    INT32,
    INT64,
    NODE_IDS,
    TEXT,
    TEXTS,
    Column,
    Table,
    choice,
    list_of,
    nullable,
    required,
    struct_of,
    tables_by_name,
)

SNAPSHOT: Final = "snapshot"
"""Stored as `cause` of state that a snapshot holds, and as `source` of a voter set whose own record was not read."""
WITHOUT_LEADER: Final = "burnt"
"""Stored as `ended_by` of an epoch without a leader, and therefore never renamed."""
WITHDRAWN: Final = "withdrawn"
"""`ended_by` of a row that a later plan knows not to be one; views leave it out."""
VOTER_KEY: Final = pa.struct(
    [pa.field("voter_id", INT32, nullable=False), pa.field("directory_id", TEXT, nullable=True)]
)
VOTER: Final = pa.struct(
    [
        *VOTER_KEY,
        pa.field("endpoints", list_of(struct_of(name=TEXT, host=TEXT, port=INT32)), nullable=False),
        pa.field("min_supported_version", INT16, nullable=False),
        pa.field("max_supported_version", INT16, nullable=False),
    ]
)
END_POINTS: Final = list_of(struct_of(name=TEXT, host=TEXT, port=INT32, security_protocol=INT16))
FEATURES: Final = list_of(struct_of(name=TEXT, min_supported_version=INT16, max_supported_version=INT16))

_CLUSTER_ID: Final = required("cluster_id", TEXT, "cluster id, 22 characters as Kafka prints it")
_ENVELOPE: Final = (
    required("from_offset", INT64, "offset of the record from which on this holds"),
    required("from_epoch", INT32, "epoch of that record"),
    required("timestamp_ms", INT64, "append time of that record"),
)
_CAUSE: Final = required("cause", TEXT, "what caused the change")
_PARTITION_CAUSES: Final = (
    nullable("cause", TEXT, "what caused the change; null where the log leaves it open: see possible_causes"),
    nullable("possible_causes", TEXTS, "what may have caused it where operations share a batch; null: cause says it"),
)


def _table(name: str, grain: str, key: Sequence[str], *columns: Column) -> Table:
    comment = "A plan that finds rows contradicted replaces them from the contradiction on."
    return Table(name, "silver", grain, ("cluster_id", *key), "for ever", comment, (_CLUSTER_ID, *columns, PLAN_COLUMN))


def _surveyed(name: str, grain: str, key: Sequence[str], *columns: Column) -> Table:
    comment = "A plan adds the rows that differ from what earlier plans know; the newest row of a key holds."
    return Table(name, "silver", grain, ("cluster_id", *key), "for ever", comment, (_CLUSTER_ID, *columns, PLAN_COLUMN))


def _changes(
    name: str, grain: str, subject: Sequence[Column], *state: Column, causes: Sequence[Column] = (_CAUSE,)
) -> Table:
    key = (*(column.name for column in subject), "from_offset")
    return _table(name, grain, key, *_ENVELOPE, *subject, *causes, *state)


def _states(
    name: str,
    grain: str,
    subject: Sequence[Column],
    *state: Column,
    part: str,
    change: str,
    causes: Sequence[Column] = (_CAUSE,),
) -> Table:
    table = _changes(name, grain, subject, *state, causes=causes)
    return replace(table, subject=tuple(column.name for column in subject), part=part, change=change)


LEADER_EPOCHS: Final = _surveyed(
    "leader_epochs",
    "one leader epoch on one branch, or an epoch without a leader",
    ("epoch", "from_offset"),
    required("epoch", INT32, "leader epoch"),
    nullable("from_offset", INT64, "offset of its first record; null where none is known"),
    nullable("to_offset", INT64, "end offset (exclusive), as far as is known"),
    nullable("leader_change_offset", INT64, "offset of its LeaderChange record"),
    nullable("leader_id", INT32, "the elected leader; null where the log does not say"),
    nullable("voters", NODE_IDS, "voter ids that its LeaderChange lists"),
    nullable("granting_voters", NODE_IDS, "voter ids that granted their vote"),
    nullable("timestamp_ms", INT64, "append time of its first record"),
    required("canonical", BOOL, "whether its first record is on the canonical log"),
    choice(
        "ended_by",
        ("open", "next_epoch", TRUNCATED, WITHOUT_LEADER, WITHDRAWN),
        f"{WITHOUT_LEADER}: no leader, no record; {WITHDRAWN}: no row any more",
    ),
)
WATERMARKS: Final = _table(
    "watermarks",
    "the committed interval that one round of captures shows",
    ("capture_number", "read_to_ms"),
    required("capture_number", INT32, "number of the round among the captures of the path, in time"),
    required("capture", TEXT, "folder of the node dirs, relative to the given path; empty where there is one"),
    required("read_from_ms", INT64, "start of reading: what was committed then lies at or below high"),
    required("read_to_ms", INT64, "end of reading: everything below low is committed by then"),
    required("low", INT64, "everything below this offset is proven committed"),
    required("low_epoch", INT32, "epoch of the last record below low; -1 where low is 0"),
    nullable("held_low", INT64, "what is proven by bytes that had surely reached a disk; null: as much as low"),
    nullable("held_low_epoch", INT32, "epoch of the last record below held_low"),
    nullable("high", INT64, "nothing from this offset on was committed; null where nothing is known"),
    nullable("high_epoch", INT32, "epoch of the last record below high"),
    nullable("canonical_epoch", INT32, "last epoch of the canonical log; null where there is none"),
    nullable("canonical_end_offset", INT64, "end of the canonical log"),
    required("voters", list_of(VOTER_KEY), "voter set in effect at the end of the canonical log"),
    required("captured_voters", NODE_IDS, "voters of that set whose log was read"),
    required("low_evidence", TEXTS, "what proves low, one fact a line"),
    required("high_evidence", TEXTS, "what excludes everything from high on, one fact a line"),
    nullable("undecided", TEXT, "why low and high differ or high is null; null where they are equal"),
)
VOTER_SETS: Final = replace(
    _surveyed(
        "voter_sets",
        "one voter set on one branch, in effect from the moment it was appended",
        ("from_offset", "from_epoch"),
        required(
            "from_offset",
            INT64,
            "offset of its record, of a static set the LeaderChange that first lists it; -1: the first set",
        ),
        required("from_epoch", INT32, "epoch of its record"),
        nullable("timestamp_ms", INT64, "append time; null where unknown"),
        choice("source", ("static", "bootstrap", SNAPSHOT, "log"), "what holds the set"),
        required("kraft_version", INT16, "kraft.version in effect with it"),
        required("voters", list_of(VOTER), "the voters, ascending by id"),
        required("added", list_of(VOTER_KEY), "voters that the set before did not have"),
        required("removed", list_of(VOTER_KEY), "voters that only the set before had"),
        required("endpoints_changed", NODE_IDS, "voters that stayed and got other endpoints or version ranges"),
        nullable("target_voters", NODE_IDS, "kip642: the voters that the assignment moves to"),
        required("canonical", BOOL, "whether the record is on the canonical log"),
        choice("ended_by", ("in_effect", "superseded", TRUNCATED, WITHDRAWN), f"{WITHDRAWN}: no row any more"),
    ),
    part="voters",
    change="voter change",
)
PARTITION_CHANGES: Final = _states(
    "partition_changes",
    "the registration of one partition after one change of it, or of its effective min ISR",
    (required("topic_id", TEXT, "topic id, 22 characters"), required("partition", INT32, "partition number")),
    required("topic", TEXT, "topic name"),
    nullable("cause_broker_id", INT32, "the broker whose event it was"),
    nullable(
        "election", TEXT, "how it got its leader: isr, preferred, elr, last_known, unclean, none, same (new epoch)"
    ),
    required("exists", BOOL, "false once the topic was removed"),
    required("replicas", NODE_IDS, "assigned replicas, in order of preference"),
    required("isr", NODE_IDS, "in-sync replicas"),
    required("elr", NODE_IDS, "eligible leader replicas"),
    required("last_known_elr", NODE_IDS, "last known leader, where there is none"),
    required("adding_replicas", NODE_IDS, "replicas that a reassignment adds"),
    required("removing_replicas", NODE_IDS, "replicas that a reassignment removes"),
    required("directories", TEXTS, "log directory id of each replica"),
    required("leader", INT32, "leading replica, -1 for none"),
    required("leader_recovery_state", TEXT, "RECOVERED or RECOVERING"),
    required("leader_epoch", INT32, "leader epoch of the partition"),
    required("partition_epoch", INT32, "partition epoch"),
    required("effective_min_isr", INT32, "min.insync.replicas in effect, capped by the replicas of partition 0"),
    required("high_watermark_can_advance", BOOL, "it has a leader and an ISR of at least effective_min_isr"),
    nullable("expected_elr", NODE_IDS, "the ELR that the shipped rules give; null: do not apply"),
    causes=_PARTITION_CAUSES,
    part="partitions",
    change="partition change",
)
EXPOSURE_CHANGES: Final = _changes(
    "exposure_changes",
    "one change of a partition that was exposed before it, or is after it",
    (required("topic_id", TEXT, "topic id, 22 characters"), required("partition", INT32, "partition number")),
    required("topic", TEXT, "topic name"),
    nullable("keeper_id", INT32, "the replica that it depends on: the leader, else the first of ISR, else of ELR"),
    required("is_last_replica", BOOL, "one replica alone in ISR and ELR though more are assigned (KP001)"),
    required("is_offline", BOOL, "without a leader (KP002)"),
    required("is_under_min_isr", BOOL, "ISR below the effective min ISR (KP005)"),
    causes=_PARTITION_CAUSES,
)
_SUBJECT_EXISTS: Final = required("exists", BOOL, "false once it was removed")
BROKER_CHANGES: Final = _states(
    "broker_changes",
    "the registration of one broker after one change",
    (required("broker_id", INT32, "broker id"),),
    _SUBJECT_EXISTS,
    required("broker_epoch", INT64, "broker epoch"),
    required("incarnation_id", TEXT, "incarnation id"),
    required("fenced", BOOL, "fenced: no leader, no ISR member"),
    required("in_controlled_shutdown", BOOL, "in controlled shutdown"),
    nullable("rack", TEXT, "rack"),
    required("log_dirs", TEXTS, "online log directory ids, sorted as Kafka sorts them"),
    required("cordoned_log_dirs", TEXTS, "cordoned log directory ids"),
    required("end_points", END_POINTS, "listeners"),
    required("features", FEATURES, "supported feature ranges"),
    required("is_migrating_zk_broker", BOOL, "a ZooKeeper broker in migration"),
    part="brokers",
    change="broker change",
)
CONTROLLER_CHANGES: Final = _states(
    "controller_changes",
    "the registration of one controller after one change",
    (required("controller_id", INT32, "controller id"),),
    _SUBJECT_EXISTS,
    required("incarnation_id", TEXT, "incarnation id"),
    required("zk_migration_ready", BOOL, "ready for the migration from ZooKeeper"),
    required("end_points", END_POINTS, "listeners"),
    required("features", FEATURES, "supported feature ranges"),
    part="controllers",
    change="controller registration",
)
TOPIC_CHANGES: Final = _states(
    "topic_changes",
    "a topic created or removed",
    (required("topic_id", TEXT, "topic id, 22 characters"),),
    _SUBJECT_EXISTS,
    required("topic", TEXT, "topic name"),
    part="topics",
    change="topic change",
)
CONFIG_CHANGES: Final = _states(
    "config_changes",
    "one config key of one resource after one write",
    (
        required("resource_type", TEXT, "TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP or the number"),
        required("resource_name", TEXT, "name; empty with BROKER: the default of all brokers"),
        required("name", TEXT, "config key"),
    ),
    _SUBJECT_EXISTS,
    nullable("value", TEXT, "value, a fingerprint where it may be a secret; null once deleted"),
    part="configs",
    change="config write",
)
FEATURE_CHANGES: Final = _states(
    "feature_changes",
    "the level of one feature after one change",
    (required("name", TEXT, "feature name; kraft.version from its control record"),),
    _SUBJECT_EXISTS,
    required("feature_level", INT16, "finalized level, 0 for none"),
    part="features",
    change="feature level",
)
SECURITY_CHANGES: Final = _states(
    "security_changes",
    "one ACL, quota, SCRAM credential, token or producer id block after one change",
    (
        choice("kind", ("ACL", "CLIENT_QUOTA", "SCRAM", "DELEGATION_TOKEN", "PRODUCER_IDS")),
        required("subject", TEXT, "what is described, unique within its kind"),
    ),
    _SUBJECT_EXISTS,
    nullable("state", TEXT, "its fields as JSON, secrets as fingerprints; null once removed"),
    part="security",
    change="ACL, quota or credential change",
)

REPLAYS: Final = Table(
    "replays",
    "silver",
    "what one plan replayed of one cluster: from from_offset on, its rows replace those of earlier plans",
    ("cluster_id", "plan"),
    "for ever",
    "Rows are never updated: a later plan with from_offset <= o replaces a canonical row at offset o.",
    (
        _CLUSTER_ID,
        required("from_offset", INT64, "rows of earlier plans at or past it no longer hold"),
        required("settled_offset", INT64, "rows below it are final unless a capture contradicts them"),
        required("to_offset", INT64, "end of the emitted rows (exclusive): low, or the end of the canonical log"),
        required("low", INT64, "everything below it is proven committed"),
        required("low_epoch", INT32, "epoch of the last record below low; -1 where low is 0"),
        required("goes_beyond_low", BOOL, "no majority of voters was captured: emitted to the log's end, unproven"),
        required("began_at", INT64, "the offset at which the first replay of this cluster began"),
        required("started_at", INT64, "the offset at which this replay started"),
        required("log_start_offset", INT64, "first offset of the canonical log that was captured"),
        nullable("snapshot", TEXT, "the snapshot that it started from; null: from the log"),
        required(
            "is_complete",
            BOOL,
            "false where the log begins after offset 0 and no snapshot leads there, and where a record from "
            "from_offset on is missing or could not be decoded",
        ),
        nullable("gap_from_offset", INT64, "history gap: no replica holds the log from here on any more"),
        nullable("gap_to_offset", INT64, "end of the history gap: state goes on with a snapshot"),
        nullable("contradicted_from", INT64, "offset from which the canonical log differs from that of earlier plans"),
        nullable("why_nothing", TEXT, "why there is no canonical log to replay"),
        required("epochs", list_of(struct_of(epoch=INT32, to_offset=INT64)), "the replayed epochs past low"),
        nullable(
            "lists_all",
            BOOL,
            "whether this plan's rows of leader_epochs and voter_sets are all that it knows; false: those that differ "
            "from earlier plans' rows; null: all",
        ),
        PLAN_COLUMN,
    ),
)

SILVER: Final = tables_by_name(
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
STATE_TABLES: Final = tables_by_name(*(table for table in SILVER.values() if table.subject))
"""The tables whose newest row of each subject is what a cluster knows of it."""
