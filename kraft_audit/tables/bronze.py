"""The bronze tables as contracts: what captures hold, and the ledger of what was read.

Spark schemas, Parquet files, the data source, the command's JSON keys and the documentation derive from these. Columns
are snake_case of Kafka's own names. Times are int64 milliseconds since the epoch (`_ms`); where people read them, a UTC
timestamp stands beside.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from kraft_audit.tables.contract import (
    BOOL,
    CHANGED_BATCHES,
    EPOCH_CHECKPOINT,
    INT16,
    INT32,
    INT64,
    NODE_IDS,
    TEXT,
    TEXTS,
    TIMESTAMP,
    UNKNOWN_RECORDS,
    Table,
    choice,
    nullable,
    required,
    tables_by_name,
)
from kraft_codec.errors import Reason
from kraft_codec.file_names import FileKind

TRUNCATED: Final = "truncated"
"""Stored as `status` of a batch that a later capture no longer has, and as `ended_by` of an epoch or voter set."""
REPLICA_NAME: Final = ("node_id", "directory_id", "root", "path")
"""What a replica is known by: its node and directory id; without a node id its folder (`replica_identity`)."""
LOG_STATES: Final = ("read", "shorter", "missing", "empty", "unstarted", "foreign")
"""What became of the log of a node card."""
CLOSINGS: Final = ("in order", "open")
"""How the log of a node card was left, where its files show it."""
BATCH_KEY: Final = ("base_offset", "last_offset", "leader_epoch", "crc")
"""What a batch is known by: equal keys are equal bytes."""
_CLUSTER_ID: Final = required(
    "cluster_id", TEXT, "cluster.id of the replicas' meta.properties; where none has it, the declared one, else empty"
)
_NODE: Final = (
    nullable("node_id", INT32, "node.id of meta.properties; null where that file is missing or unreadable"),
    nullable("directory_id", TEXT, "directory.id of meta.properties, 22 characters; null before Kafka 3.7"),
)
_CAPTURE: Final = (
    required("captured_at_ms", INT64, "when this content was first read, as the plan fixed it"),
    required("captured_at", TIMESTAMP, "captured_at_ms for people"),
    required("capture", TEXT, "folder of the node dirs, relative to the given path; empty where there is one"),
    required("capture_number", INT32, "order of the captures that one plan reads, 0 the oldest"),
    required("root", TEXT, "the path or URI that was given, unprintable characters escaped"),
    required("path", TEXT, "the replica's folder below root, empty where root is it; unprintable characters escaped"),
)
PLAN_COLUMN: Final = required("plan", INT64, "the plan that wrote this row; 0 where there is no ledger")
_BYTES: Final = (
    required("bytes_seen", INT64, "planned size: always decoded + quarantined + unread"),
    required("bytes_decoded", INT64, "bytes of whole batches (or a whole text file) that are valid"),
    required("bytes_quarantined", INT64, "bytes of batches that were found and refused"),
    required("bytes_unread", INT64, "bytes that belong to no batch that could be found, or that were not asked for"),
)

CAPTURES: Final = Table(
    "captures",
    "bronze",
    "one replica as it was read at one time",
    ("cluster_id", "node_id", "directory_id", "captured_at_ms", "root", "path"),
    "for ever",
    "What a controller's disk says of itself: who it is, whom it voted for, where its log begins and ends.",
    (
        _CLUSTER_ID,
        *_NODE,
        *_CAPTURE,
        choice("medium", ("directory", "archive", "object_store"), "an archive was written at one moment"),
        required("accepted", BOOL, "false where it belongs to another cluster: nothing else of it was used"),
        nullable("meta_version", INT32, "version of meta.properties"),
        nullable("meta_cluster_id", TEXT, "cluster.id of this replica's own meta.properties"),
        nullable("data_version", INT32, "data_version of quorum-state; null where the file is missing or unreadable"),
        nullable("leader_id", INT32, "leaderId of quorum-state, -1 unknown"),
        nullable("leader_epoch", INT32, "leaderEpoch of quorum-state: the persisted epoch"),
        nullable("quorum_state_ms", INT64, "when quorum-state was written; null where copying kept no times of files"),
        nullable("voted_id", INT32, "votedId of quorum-state, -1 none; a leader stores -1"),
        nullable("voted_directory_id", TEXT, "votedDirectoryId of quorum-state version 1"),
        nullable(
            "current_voters", NODE_IDS, "currentVoters of quorum-state version 0; often empty under kraft.version 1"
        ),
        nullable("log_start_offset", INT64, "first offset of the log; null where no batch could be read"),
        nullable("log_end_offset", INT64, "after the last valid batch; of an empty log its segment's base offset"),
        nullable("last_epoch", INT32, "partitionLeaderEpoch of the last valid batch"),
        nullable("last_crc", INT64, "CRC-32C of the last valid batch"),
        nullable("last_timestamp_ms", INT64, "maxTimestamp of the last valid batch"),
        nullable("reachable_end_offset", INT64, "where Kafka itself would cut this log at its next start"),
        nullable("snapshot_end_offset", INT64, "end offset (exclusive) of the newest complete snapshot"),
        nullable("snapshot_epoch", INT32, "epoch of the newest complete snapshot"),
        required("snapshot_count", INT32, "complete snapshots, bootstrap files not counted"),
        nullable("leader_epoch_checkpoint", EPOCH_CHECKPOINT, "entries of the file leader-epoch-checkpoint"),
        nullable("producer_state_offset", INT64, "highest offset that names a `.snapshot`: the log ended there"),
        nullable("deleted_snapshot_end_offset", INT64, "highest end offset of a `.checkpoint.deleted`"),
        nullable("index_trimmed", BOOL, "the newest index is cut to size, as after a clean stop; null without"),
        nullable("clean_shutdown", BOOL, "`.kafka_cleanshutdown` is there: the broker of this node stopped in order"),
        nullable("further_directory_ids", TEXTS, "directory ids of the node's other log dirs that lie beside it"),
        nullable("held_end_offset", INT64, "offsets below it had reached the disk, as kraft-capture says; else null"),
        nullable("configuration", TEXT, "settings of a server.properties beside it, as JSON: roles, voters, no secret"),
        nullable("rescue", TEXT, "what rescue.json in the node dir declares, in short, as JSON"),
        nullable("doubt", TEXT, "how its own files contradict each other: then it is no evidence; else null"),
        required("batch_count", INT64, "valid batches in the log"),
        required("record_count", INT64, "records in valid batches of the log"),
        *_BYTES,
        required("damage_count", INT32, "rows of decode_errors that this reading of this replica wrote"),
        required("read_from_ms", INT64, "when reading this replica's log began"),
        required("read_to_ms", INT64, "when its quorum-state had been read, which is after its log"),
        PLAN_COLUMN,
    ),
)

NODE_CARDS: Final = Table(
    "node_cards",
    "bronze",
    "one node by all files of its node dir, as it was read at one time",
    ("cluster_id", "node_id", "directory_id", "captured_at_ms", "root", "path"),
    "for ever",
    "What every file of a node says of it: whose disk, which voters, how far its log got, and how it is configured.",
    (
        _CLUSTER_ID,
        *_NODE,
        *_CAPTURE,
        nullable("own_cluster_id", TEXT, "cluster.id of this node's own meta.properties"),
        nullable("meta_version", INT32, "version of meta.properties"),
        nullable("further_directory_ids", TEXTS, "directory ids of its other log dirs that lie beside it; null before"),
        choice("log", LOG_STATES, "shorter: it ends before reached_offset; foreign: another cluster's disk"),
        nullable("leader_epoch", INT32, "leaderEpoch of quorum-state"),
        nullable("leader_id", INT32, "leaderId of quorum-state, -1 unknown"),
        nullable("voted_id", INT32, "votedId of quorum-state, -1 none"),
        nullable("current_voters", NODE_IDS, "currentVoters of quorum-state, ascending: the voters of its last start"),
        nullable("log_start_offset", INT64, "first offset of the log"),
        nullable("log_end_offset", INT64, "end offset of the log, exclusive"),
        nullable("last_epoch", INT32, "epoch of the last valid batch"),
        nullable("snapshot_end_offset", INT64, "end offset, exclusive, of the newest complete snapshot"),
        nullable("deleted_snapshot_end_offset", INT64, "the same of the newest one that Kafka was about to delete"),
        nullable("reached_epoch", INT32, "the epoch that began at reached_offset; null where a `.snapshot` names it"),
        nullable("reached_offset", INT64, "the log had reached this offset, by the file reached_by"),
        nullable("reached_by", TEXT, "leader-epoch-checkpoint, or the name of a `.snapshot`"),
        choice("closed", CLOSINGS, "how the log was left; open: it ran, or was killed", is_nullable=True),
        nullable("configuration", TEXT, "path of its server.properties; null where none was captured"),
        nullable("configured_node_id", INT32, "node.id"),
        nullable("roles", TEXTS, "process.roles"),
        nullable("configured_voters", NODE_IDS, "the ids in controller.quorum.voters, ascending"),
        nullable("bootstrap_servers", TEXTS, "controller.quorum.bootstrap.servers"),
        nullable("log_dirs", TEXTS, "log.dirs, with metadata.log.dir first where it is set"),
        nullable("security_protocols", TEXTS, "LISTENER:PROTOCOL of each listener"),
        nullable("sasl_mechanisms", TEXTS, "sasl.enabled.mechanisms and those of controllers and brokers"),
        nullable("authorizer", TEXT, "authorizer.class.name"),
        nullable("timeouts", TEXTS, "KEY=MILLISECONDS of each timeout that is set"),
        PLAN_COLUMN,
    ),
)

FILES: Final = Table(
    "files",
    "bronze",
    "one file of one replica as one plan left it",
    ("cluster_id", "root", "path", "file_name", "plan"),
    "the newest closed plan is needed to resume; older rows are history",
    "The ledger of every file that was read: how far, and what the last batch was.",
    (
        _CLUSTER_ID,
        *_NODE,
        *_CAPTURE,
        required("file_name", TEXT, "relative to path, unprintable characters escaped"),
        choice("kind", tuple(FileKind), "what the file is, by its name"),
        nullable("base_offset", INT64, "the offset in the file's name"),
        nullable("epoch", INT32, "the epoch in a snapshot's name"),
        required("present", BOOL, "false where an earlier plan knew the file and it is gone"),
        required("size_bytes", INT64, "size when the plan was made"),
        required("mtime_ms", INT64, "modification time when the plan was made"),
        required("scanned_to", INT64, "position after the last batch that need not be read again"),
        nullable("last_position", INT64, "position of the last valid batch"),
        nullable("last_base_offset", INT64, "baseOffset of the last valid batch"),
        nullable("last_offset", INT64, "last offset of the last valid batch"),
        nullable("last_leader_epoch", INT32, "partitionLeaderEpoch of the last valid batch"),
        nullable("last_crc", INT64, "CRC-32C of the last valid batch"),
        required("batch_count", INT64, "valid batches, counted from the start of the file"),
        required("record_count", INT64, "records in valid batches, counted from the start of the file"),
        required("damage_count", INT32, "rows of decode_errors about this file, counted from the start of the file"),
        *_BYTES,
        PLAN_COLUMN,
    ),
)

BATCHES: Final = Table(
    "batches",
    "bronze",
    "one batch in one replica, appended once; a later capture that no longer has it adds a row with status truncated",
    ("cluster_id", *REPLICA_NAME, "source", *BATCH_KEY, "status", "plan"),
    "for ever",
    "Every batch header of every replica. Equal (base_offset, last_offset, leader_epoch, crc) means equal bytes.",
    (
        _CLUSTER_ID,
        *_NODE,
        *_CAPTURE,
        required("source", TEXT, "log, or the id of the snapshot that holds the batch"),
        required("base_offset", INT64, "baseOffset; inside a snapshot offsets run from 0"),
        required("last_offset", INT64, "baseOffset + lastOffsetDelta"),
        required("leader_epoch", INT32, "partitionLeaderEpoch: the epoch of the leader that wrote the batch"),
        required("crc", INT64, "CRC-32C as stored, unsigned"),
        required("magic", pa.int8(), "as stored; the CRC does not cover it"),
        required("attributes", INT16, "bit 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon"),
        required("is_control", BOOL, "control batch (leader change, voters, snapshot header …)"),
        choice("codec", ("none", "gzip", "snappy", "lz4", "zstd", "unknown"), "KRaft writes none"),
        required("base_timestamp_ms", INT64, "baseTimestamp"),
        required("max_timestamp_ms", INT64, "maxTimestamp"),
        required("producer_id", INT64, "producerId, -1 in a metadata log"),
        required("producer_epoch", INT16, "producerEpoch, -1 in a metadata log"),
        required("base_sequence", INT32, "baseSequence, -1 in a metadata log"),
        required("record_count", INT32, "records that the header declares"),
        nullable("noop_count", INT32, "NoOp records inside, which are not rows of records; null where not decoded"),
        required("file_name", TEXT, "relative to path"),
        required("position", INT64, "byte position in the file"),
        required("size_bytes", INT64, "whole batch with its 12 leading bytes"),
        required("valid", BOOL, "framing, CRC, offsets and body are right, so its records are rows of records"),
        nullable("reason", TEXT, "why it is not valid; decode_errors says more"),
        choice("status", ("present", TRUNCATED), f"{TRUNCATED}: a later capture of this replica no longer has it"),
        PLAN_COLUMN,
    ),
)

RECORDS: Final = Table(
    "records",
    "bronze",
    "one record of one distinct batch, whoever holds it",
    ("cluster_id", "source", "offset", "leader_epoch", "batch_crc"),
    "for ever",
    "Every record but NoOps, as the JSON that kafka-dump-log prints, secrets as keyed fingerprints.",
    (
        _CLUSTER_ID,
        required("source", TEXT, "log, or the id of the snapshot: <end offset>-<epoch>, bootstrap-<hash>"),
        required("offset", INT64, "offset of the record; inside a snapshot offsets run from 0"),
        required("leader_epoch", INT32, "partitionLeaderEpoch of its batch"),
        required("batch_crc", INT64, "CRC of its batch: it distinguishes two leaders of one epoch"),
        required("timestamp_ms", INT64, "the record's own timestamp"),
        required("is_control", BOOL, "control record"),
        nullable("api_key", INT32, "type number of a metadata record; null for control records and unreadable frames"),
        nullable("control_type", INT32, "type number of a control record"),
        required("record_type", TEXT, "name as Kafka's tools print it, or UNKNOWN(n)"),
        nullable("record_version", INT32, "version of the record's schema; null for control records"),
        nullable("record", TEXT, "its fields as JSON, redacted; null where it cannot be decoded"),
        required("value_bytes", INT32, "length of its value; 0 where the value is null"),
        nullable("value_hash", TEXT, "keyed hash of a value that cannot be decoded"),
        required("is_redacted", BOOL, "a secret inside was overwritten by its fingerprint"),
        PLAN_COLUMN,
    ),
)

DECODE_ERRORS: Final = Table(
    "decode_errors",
    "bronze",
    "one finding about bytes that could not be read or trusted",
    ("cluster_id", "root", "path", "file_name", "position", "reason", "plan"),
    "for ever",
    "What was wrong with which bytes, and what Kafka itself would do there. Nothing unreadable is dropped in silence.",
    (
        _CLUSTER_ID,
        *_NODE,
        *_CAPTURE,
        nullable("file_name", TEXT, "relative to path; null where the finding is about the folder"),
        required("position", INT64, "byte position in the file"),
        required("length_bytes", INT64, "how many bytes the finding is about"),
        nullable("base_offset", INT64, "baseOffset of the batch as stored; a record's offset where it is about one"),
        choice("reason", tuple(Reason), "what is wrong with the bytes"),
        required("detail", TEXT, "what exactly, never with bytes of a record"),
        required("kafka_verdict", TEXT, "what Kafka would do there"),
        nullable("value_hash", TEXT, "keyed hash of the bytes, so that equal damage is recognised"),
        PLAN_COLUMN,
    ),
)

ARCHIVE: Final = Table(
    "archive",
    "bronze",
    "a run of consecutive batches of one leader epoch, about 256 KiB of them",
    ("cluster_id", "source", "leader_epoch", "from_offset", "first_crc"),
    "for ever",
    "The log itself: each distinct batch once, secrets overwritten, CRCs renewed; a snapshot where there is a gap.",
    (
        _CLUSTER_ID,
        required("source", TEXT, "log, or the id of the snapshot from which the log goes on"),
        required("leader_epoch", INT32, "the branch, as one leader writes an epoch; leader_epochs.canonical marks it"),
        required("from_offset", INT64, "baseOffset of the first batch; inside a snapshot offsets run from 0"),
        required("to_offset", INT64, "after the last batch"),
        required("first_crc", INT64, "original CRC of the first batch: it distinguishes two leaders of one epoch"),
        required("last_crc", INT64, "original CRC of the last batch"),
        required("base_timestamp_ms", INT64, "baseTimestamp of the first batch"),
        required("max_timestamp_ms", INT64, "largest maxTimestamp"),
        required("batch_count", INT32, "batches in this run"),
        required("record_count", INT64, "records that they declare"),
        required("size_bytes", INT64, "bytes of content"),
        required("content", pa.binary(), "the batches as a segment holds them"),
        required("changed_batches", CHANGED_BATCHES, "batches with other bytes than the original, and its CRC"),
        required("unknown_records", UNKNOWN_RECORDS, "records for which a NoOp, or zeros, stands in content"),
        PLAN_COLUMN,
    ),
)

PLANS: Final = Table(
    "plans",
    "bronze",
    "one event of one plan: a row a cluster where it opens, a row a cluster and a row a data file where it is staged, "
    "a row a cluster for each attempt to read it, at some plans one as a checkpoint, one row where it closes",
    ("plan", "event", "place", "cluster_id", "cluster_number", "table_name", "data_file"),
    "for ever",
    "What each run planned to read, what it read and whether it was closed. Views show plans that are closed as done.",
    (
        required("plan", INT64, "number of the plan, 1 for the first"),
        choice("event", ("opened", "attempt", "staged", "abandoned", "checkpoint", "closed")),
        required("at_ms", INT64, "when"),
        required("at", TIMESTAMP, "at_ms for people"),
        nullable("cluster_number", INT32, "number of the cluster in this plan; null where the row is not about one"),
        nullable("cluster_name", TEXT, "name in fleet.yaml"),
        nullable("cluster_id", TEXT, "cluster id as planned"),
        nullable("cluster_plan", TEXT, "opened: the exact ranges to read, as JSON (kraft_audit.capture.plan)"),
        nullable("redaction_key_id", TEXT, "opened: which key makes the fingerprints, as a hash of a constant"),
        choice(
            "outcome",
            ("read", "failed", "unchanged", "abandoned"),
            "staged: failed, and nothing of the cluster (or of a path of it) is committed; unchanged: nothing is new; "
            "closed: abandoned, and nothing of the plan is committed",
            is_nullable=True,
        ),
        nullable("failure", TEXT, "staged: why the cluster, or a path of it, failed; opened: as planning found it"),
        nullable("state", TEXT, "for the next plan, as JSON: what changes (opened, staged), all of it (checkpoint)"),
        nullable("table_name", TEXT, "staged: the table that a data file belongs to"),
        nullable("data_file", TEXT, "staged: path, size, row count and statistics of the file, as JSON"),
        nullable(
            "summary",
            TEXT,
            "staged: rows and damage of the cluster; closed: of the plan; attempt: its deadline; as JSON",
        ),
        nullable("place", INT64, "closed: the place in the order of closing, null is the number; attempt: which one"),
    ),
)

BRONZE: Final = tables_by_name(CAPTURES, NODE_CARDS, PLANS, FILES, BATCHES, RECORDS, ARCHIVE, DECODE_ERRORS)
