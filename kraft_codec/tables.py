"""The bronze tables: name, grain, key, retention, and the meaning of every column, in one place.

Spark schemas, Parquet files, the data source, the command's JSON keys and the documentation derive from these. Columns
are snake_case of Kafka's own names; times are int64 milliseconds since the epoch (`_ms`), with a UTC timestamp beside
where people read them. `build_batch` makes every RecordBatch, so that order, types and nullability always
match: Spark refuses a batch that differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kraft_codec.contract import (
    CHANGED_BATCHES,
    EPOCH_CHECKPOINT,
    NODE_IDS,
    TIMESTAMP,
    UNKNOWN_RECORDS,
    Table,
    is_,
    may,
)

MAX_BATCH_ROWS: Final = 65_000

_CLUSTER_ID: Final = is_(
    "cluster_id",
    pa.string(),
    "cluster.id of the replicas' meta.properties; where none tells it, the declared one, else empty",
)
_NODE: Final = (
    may("node_id", pa.int32(), "node.id of meta.properties; null where that file is missing or unreadable"),
    may("directory_id", pa.string(), "directory.id of meta.properties, 22 characters; null before Kafka 3.7"),
)
_CAPTURE: Final = (
    is_("captured_at_ms", pa.int64(), "when this content was first read, as the plan fixed it"),
    is_("captured_at", TIMESTAMP, "captured_at_ms for people"),
    is_("capture", pa.string(), "folder of the node dirs, relative to the given path; empty where there is one"),
    is_("capture_number", pa.int32(), "order of the captures that one plan reads, 0 the oldest"),
    is_("root", pa.string(), "the path or URI that was given, unprintable characters escaped"),
    is_("path", pa.string(), "the replica's folder below root, empty where root is it; unprintable characters escaped"),
)
_PLAN: Final = is_("plan", pa.int64(), "the plan that wrote this row; 0 where there is no ledger")
_BYTES: Final = (
    is_("bytes_seen", pa.int64(), "planned size: always decoded + quarantined + unread"),
    is_("bytes_decoded", pa.int64(), "bytes of whole batches (or a whole text file) that are valid"),
    is_("bytes_quarantined", pa.int64(), "bytes of batches that were found and refused"),
    is_("bytes_unread", pa.int64(), "bytes that belong to no batch that could be found, or that were not asked for"),
)

CAPTURES: Final = Table(
    "captures",
    "bronze",
    "one replica as it was read at one time",
    ("cluster_id", "node_id", "directory_id", "captured_at_ms", "root", "path"),
    "for ever",
    "What a controller's disk said of itself: who it is, whom it voted for, where its log begins and ends.",
    (
        _CLUSTER_ID,
        *_NODE,
        *_CAPTURE,
        is_("medium", pa.string(), "directory, archive (one moment per node dir) or object_store"),
        is_("accepted", pa.bool_(), "false where it belongs to another cluster: nothing else of it was used"),
        may("meta_version", pa.int32(), "version of meta.properties"),
        may("meta_cluster_id", pa.string(), "cluster.id of this replica's own meta.properties"),
        may("data_version", pa.int32(), "data_version of quorum-state; null where the file is missing or unreadable"),
        may("leader_id", pa.int32(), "leaderId of quorum-state, -1 unknown"),
        may("leader_epoch", pa.int32(), "leaderEpoch of quorum-state: the persisted epoch"),
        may("voted_id", pa.int32(), "votedId of quorum-state, -1 none; a leader stores -1"),
        may("voted_directory_id", pa.string(), "votedDirectoryId of quorum-state version 1"),
        may("current_voters", NODE_IDS, "currentVoters of quorum-state version 0; often empty under kraft.version 1"),
        may("log_start_offset", pa.int64(), "first offset of the log; null where no batch could be read"),
        may("log_end_offset", pa.int64(), "after the last valid batch; of an empty log its segment's base offset"),
        may("last_epoch", pa.int32(), "partitionLeaderEpoch of the last valid batch"),
        may("last_crc", pa.int64(), "CRC-32C of the last valid batch"),
        may("last_timestamp_ms", pa.int64(), "maxTimestamp of the last valid batch"),
        may("reachable_end_offset", pa.int64(), "where Kafka itself would cut this log at its next start"),
        may("snapshot_end_offset", pa.int64(), "end offset (exclusive) of the newest complete snapshot"),
        may("snapshot_epoch", pa.int32(), "epoch of the newest complete snapshot"),
        is_("snapshot_count", pa.int32(), "complete snapshots, bootstrap files not counted"),
        may("leader_epoch_checkpoint", EPOCH_CHECKPOINT, "entries of the file leader-epoch-checkpoint"),
        is_("batch_count", pa.int64(), "valid batches in the log"),
        is_("record_count", pa.int64(), "records in valid batches of the log"),
        *_BYTES,
        is_("damage_count", pa.int32(), "rows of decode_errors that this reading of this replica wrote"),
        is_("read_from_ms", pa.int64(), "when reading this replica's log began"),
        is_("read_to_ms", pa.int64(), "when its quorum-state had been read, which is after its log"),
        _PLAN,
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
        is_("file_name", pa.string(), "relative to path, unprintable characters escaped"),
        is_("kind", pa.string(), "a FileKind: segment, snapshot, bootstrap_snapshot, quorum_state, meta_properties, …"),
        may("base_offset", pa.int64(), "the offset in the file's name"),
        may("epoch", pa.int32(), "the epoch in a snapshot's name"),
        is_("present", pa.bool_(), "false where an earlier plan knew the file and it is gone"),
        is_("size_bytes", pa.int64(), "size when the plan was made"),
        is_("mtime_ms", pa.int64(), "modification time when the plan was made"),
        is_("scanned_to", pa.int64(), "position after the last batch that needs no second look"),
        may("last_position", pa.int64(), "position of the last valid batch"),
        may("last_base_offset", pa.int64(), "baseOffset of the last valid batch"),
        may("last_offset", pa.int64(), "last offset of the last valid batch"),
        may("last_leader_epoch", pa.int32(), "partitionLeaderEpoch of the last valid batch"),
        may("last_crc", pa.int64(), "CRC-32C of the last valid batch"),
        is_("batch_count", pa.int64(), "valid batches, counted from the start of the file"),
        is_("record_count", pa.int64(), "records in valid batches, counted from the start of the file"),
        is_("damage_count", pa.int32(), "rows of decode_errors about this file, counted from the start of the file"),
        *_BYTES,
        _PLAN,
    ),
)

BATCHES: Final = Table(
    "batches",
    "bronze",
    "one batch in one replica, appended once; a later capture that no longer has it adds a row with status truncated",
    (
        *("cluster_id", "node_id", "directory_id", "root", "path", "source"),
        *("base_offset", "last_offset", "leader_epoch", "crc", "status", "plan"),
    ),
    "for ever",
    "Every batch header of every replica. Equal (base_offset, last_offset, leader_epoch, crc) means equal bytes.",
    (
        _CLUSTER_ID,
        *_NODE,
        *_CAPTURE,
        is_("source", pa.string(), "log, or the id of the snapshot that holds the batch"),
        is_("base_offset", pa.int64(), "baseOffset; inside a snapshot offsets run from 0"),
        is_("last_offset", pa.int64(), "baseOffset + lastOffsetDelta"),
        is_("leader_epoch", pa.int32(), "partitionLeaderEpoch: the epoch of the leader that wrote the batch"),
        is_("crc", pa.int64(), "CRC-32C as stored, unsigned"),
        is_("magic", pa.int8(), "as stored; the CRC does not cover it"),
        is_("attributes", pa.int16(), "bit 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon"),
        is_("is_control", pa.bool_(), "control batch (leader change, voters, snapshot header …)"),
        is_("codec", pa.string(), "none, gzip, snappy, lz4, zstd or unknown; KRaft writes none"),
        is_("base_timestamp_ms", pa.int64(), "baseTimestamp"),
        is_("max_timestamp_ms", pa.int64(), "maxTimestamp"),
        is_("producer_id", pa.int64(), "producerId, -1 in a metadata log"),
        is_("producer_epoch", pa.int16(), "producerEpoch, -1 in a metadata log"),
        is_("base_sequence", pa.int32(), "baseSequence, -1 in a metadata log"),
        is_("record_count", pa.int32(), "records that the header declares"),
        may("noop_count", pa.int32(), "NoOp records inside, which are not rows of records; null where not decoded"),
        is_("file_name", pa.string(), "relative to path"),
        is_("position", pa.int64(), "byte position in the file"),
        is_("size_bytes", pa.int64(), "whole batch with its 12 leading bytes"),
        is_("valid", pa.bool_(), "framing, CRC, offsets and body are right, so its records are rows of records"),
        may("reason", pa.string(), "why it is not valid; decode_errors says more"),
        is_("status", pa.string(), "present, or truncated: a later capture of this replica no longer has it"),
        _PLAN,
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
        is_("source", pa.string(), "log, or the id of the snapshot: <end offset>-<epoch>, bootstrap-<hash>"),
        is_("offset", pa.int64(), "offset of the record; inside a snapshot offsets run from 0"),
        is_("leader_epoch", pa.int32(), "partitionLeaderEpoch of its batch"),
        is_("batch_crc", pa.int64(), "CRC of its batch: tells two leaders of one epoch apart"),
        is_("timestamp_ms", pa.int64(), "the record's own timestamp"),
        is_("is_control", pa.bool_(), "control record"),
        may("api_key", pa.int32(), "type number of a metadata record; null for control records and unreadable frames"),
        may("control_type", pa.int32(), "type number of a control record"),
        is_("record_type", pa.string(), "name as Kafka's tools print it, or UNKNOWN(n)"),
        may("record_version", pa.int32(), "version of the record's schema; null for control records"),
        may("record", pa.string(), "its fields as JSON, redacted; null where it cannot be decoded"),
        is_("value_bytes", pa.int32(), "length of its value; 0 where the value is null"),
        may("value_hash", pa.string(), "keyed hash of a value that cannot be decoded"),
        is_("is_redacted", pa.bool_(), "a secret inside was overwritten by its fingerprint"),
        _PLAN,
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
        may("file_name", pa.string(), "relative to path; null where the finding is about the folder"),
        is_("position", pa.int64(), "byte position in the file"),
        is_("length_bytes", pa.int64(), "how many bytes the finding is about"),
        may("base_offset", pa.int64(), "baseOffset of the batch as stored; a record's offset where it is about one"),
        is_("reason", pa.string(), "one of the reasons in kraft_codec.errors"),
        is_("detail", pa.string(), "what exactly, never with bytes of a record"),
        is_("kafka_verdict", pa.string(), "what Kafka would do there"),
        may("value_hash", pa.string(), "keyed hash of the bytes, so that equal damage is recognised"),
        _PLAN,
    ),
)

ARCHIVE: Final = Table(
    "archive",
    "bronze",
    "a run of batches of one leader epoch, one behind the other, about 256 KiB of them",
    ("cluster_id", "source", "leader_epoch", "from_offset", "first_crc"),
    "for ever",
    "The log itself: each distinct batch once, secrets overwritten, CRCs renewed; a snapshot where there is a hole.",
    (
        _CLUSTER_ID,
        is_("source", pa.string(), "log, or the id of the snapshot from which the log goes on"),
        is_(
            "leader_epoch",
            pa.int32(),
            "the branch: one leader writes an epoch, so parted logs differ in it; leader_epochs.canonical marks it",
        ),
        is_("from_offset", pa.int64(), "baseOffset of the first batch; inside a snapshot offsets run from 0"),
        is_("to_offset", pa.int64(), "after the last batch"),
        is_("first_crc", pa.int64(), "original CRC of the first batch: tells two leaders of one epoch apart"),
        is_("last_crc", pa.int64(), "original CRC of the last batch"),
        is_("base_timestamp_ms", pa.int64(), "baseTimestamp of the first batch"),
        is_("max_timestamp_ms", pa.int64(), "largest maxTimestamp"),
        is_("batch_count", pa.int32(), "batches in this run"),
        is_("record_count", pa.int64(), "records that they declare"),
        is_("size_bytes", pa.int64(), "bytes of content"),
        is_("content", pa.binary(), "the batches as a segment holds them"),
        is_("changed_batches", CHANGED_BATCHES, "batches that are not the original bytes, and the CRC that those had"),
        is_(
            "unknown_records",
            UNKNOWN_RECORDS,
            "records of which only this is kept: a NoOp, or zeros, stands for them",
        ),
        _PLAN,
    ),
)

PLANS: Final = Table(
    "plans",
    "bronze",
    "one event of one plan: a row a cluster where it opens, a row a cluster and a row a data file where it is staged, "
    "at some plans a row a cluster as a checkpoint, one row where it closes",
    ("plan", "event", "cluster_id", "cluster_number", "table_name", "data_file"),
    "for ever",
    "What each run planned to read, what came of it and whether it was closed. Views show closed plans only.",
    (
        is_("plan", pa.int64(), "number of the plan, 1 for the first"),
        is_("event", pa.string(), "opened, staged, checkpoint or closed"),
        is_("at_ms", pa.int64(), "when"),
        is_("at", TIMESTAMP, "at_ms for people"),
        may("cluster_number", pa.int32(), "number of the cluster in this plan; null where the row is not about one"),
        may("cluster_name", pa.string(), "name in fleet.yaml"),
        may("cluster_id", pa.string(), "cluster id as planned"),
        may("cluster_plan", pa.string(), "opened: the exact ranges to read, as JSON (kraft_audit.replay.plan)"),
        may("redaction_key_id", pa.string(), "opened: which key makes the fingerprints, as a hash of a constant"),
        may(
            "outcome",
            pa.string(),
            "staged: read; failed, and nothing of the cluster (or of a path of it) is committed; unchanged: read again",
        ),
        may("failure", pa.string(), "staged: why the cluster, or a path of it, failed; opened: as planning met it"),
        may(
            "state",
            pa.string(),
            "for the next plan, as JSON: what changes (opened, staged), all of it (checkpoint)",
        ),
        may("table_name", pa.string(), "staged: the table that a data file belongs to"),
        may("data_file", pa.string(), "staged: path, size, row count and statistics of the file, as JSON"),
        may("summary", pa.string(), "staged: rows and damage of the cluster; closed: of the plan; as JSON"),
    ),
)

BRONZE: Final[tuple[Table, ...]] = (CAPTURES, PLANS, FILES, BATCHES, RECORDS, ARCHIVE, DECODE_ERRORS)
TABLES: Final[dict[str, Table]] = {table.name: table for table in BRONZE}


def build_batch(table: Table | str, columns: Mapping[str, Any], row_count: int) -> pa.RecordBatch:
    """Makes a batch of exactly the table's columns in its order.

    A column's value is an Arrow array, a numpy array, a sequence of `row_count` values, or one value for all rows.
    Raises ValueError where a column is missing, unknown, of another length, or null where it must not be.
    """
    contract = TABLES[table] if isinstance(table, str) else table
    unknown = columns.keys() - set(contract.column_names)
    if unknown:
        raise ValueError(f"table {contract.name} has no columns {sorted(unknown)}")
    arrays = []
    for column in contract.columns:
        if column.name not in columns:
            raise ValueError(f"table {contract.name} needs column {column.name}")
        array = _to_array(columns[column.name], column.type, row_count)
        if len(array) != row_count:
            raise ValueError(f"column {contract.name}.{column.name} has {len(array)} rows, expected {row_count}")
        if not column.nullable and array.null_count:
            raise ValueError(f"column {contract.name}.{column.name} must not be null")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=contract.schema)


def build_rows(table: Table | str, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Makes a batch from a few rows, for the small tables."""
    contract = TABLES[table] if isinstance(table, str) else table
    return build_batch(contract, {name: [row[name] for row in rows] for name in contract.column_names}, len(rows))


def slices(batch: pa.RecordBatch, max_rows: int = MAX_BATCH_ROWS) -> Iterable[pa.RecordBatch]:
    """Cuts a batch, without copying, into batches of at most `max_rows` rows."""
    for start in range(0, batch.num_rows, max_rows):
        yield batch.slice(start, max_rows)


def _to_array(value: Any, type_: pa.DataType, row_count: int) -> pa.Array:
    if isinstance(value, pa.Array):
        return value if value.type == type_ else value.cast(type_)
    if isinstance(value, np.ndarray | list | tuple):
        return pa.array(value, type_)
    if value is None:
        return pa.nulls(row_count, type_)
    return pa.repeat(pa.scalar(value, type_), row_count)
