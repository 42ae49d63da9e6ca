"""Engine batches and snapshots as the bytes that Kafka writes, through the codec's schemas."""

from __future__ import annotations

from kraft_codec.records.batch import write_batch
from kraft_codec.records.record import write_control_key, write_control_value, write_metadata_value
from kraft_codec.schemas import CONTROL_TYPE_BY_NAME, Dialect
from kraft_engine.brokers.image import Image
from kraft_engine.brokers.image_records import snapshot_records
from kraft_engine.consensus.log_batches import Batch, Record
from kraft_engine.consensus.replica_log import Snapshot

SNAPSHOT_BATCH_RECORDS = 1024
LATER_RECORD = "LaterRecord"
"""A record of a release to come: a scenario gives its bytes, `octets`, as they stand in the log."""


def batch_octets(batch: Batch, dialect: Dialect) -> bytes:
    """The bytes of a log batch, made once."""
    if batch.encoded is None:
        batch.encoded = records_octets(
            batch.records, batch.base_offset, batch.epoch, batch.timestamp_ms, batch.is_control, dialect
        )
    return batch.encoded


def records_octets(
    records: tuple[Record, ...] | list[Record],
    base_offset: int,
    epoch: int,
    timestamp_ms: int,
    is_control: bool,
    dialect: Dialect,
) -> bytes:
    pairs: list[tuple[bytes | None, bytes | None]] = []
    for name, version, fields in records:
        if is_control:
            control = CONTROL_TYPE_BY_NAME[dialect][name]
            pairs.append((write_control_key(control.number), write_control_value(control, fields)))
        else:
            octets = fields["octets"] if name == LATER_RECORD else write_metadata_value(name, version, fields)
            pairs.append((None, octets))
    return write_batch(
        base_offset=base_offset, leader_epoch=epoch, timestamp_ms=timestamp_ms, records=pairs, is_control=is_control
    )


def snapshot_octets(snapshot: Snapshot, dialect: Dialect) -> bytes:
    """Header batch (with kraft.version and voters from version 1 on), data batches, footer batch."""
    head: list[Record] = [
        ("SNAPSHOT_HEADER", 0, {"version": 0, "lastContainedLogTimestamp": snapshot.last_timestamp_ms})
    ]
    head += _membership(snapshot, dialect)
    body = snapshot_records(snapshot.image) if isinstance(snapshot.image, Image) else []
    return _plain_snapshot(head, body, snapshot.id[1], snapshot.made_ms, dialect)


def bootstrap_octets(records: list[Record], made_ms: int, dialect: Dialect = Dialect.KIP853) -> bytes:
    """bootstrap.checkpoint: header of time 0, one data batch, footer."""
    head: list[Record] = [("SNAPSHOT_HEADER", 0, {"version": 0, "lastContainedLogTimestamp": 0})]
    return _plain_snapshot(head, records, 0, made_ms, dialect)


def _membership(snapshot: Snapshot, dialect: Dialect) -> list[Record]:
    voters = snapshot.voters
    if voters is None:
        return []
    if dialect is Dialect.KIP856:
        return [("ADD_VOTER", 0, {"version": 0, "voterId": key[0], "voterUuid": key[1]}) for key in voters.keys]
    if dialect is Dialect.KIP642:
        return [("VOTER_ASSIGNMENT", 0, assignment_fields("", voters.ids, voters.target))]
    if snapshot.kraft_version < 1:
        return []
    return [
        ("KRAFT_VERSION", 0, {"version": 0, "kRaftVersion": snapshot.kraft_version}),
        ("KRAFT_VOTERS", 0, voters.fields()),
    ]


def assignment_fields(cluster_id: str, current: tuple[int, ...], target: frozenset[int] | None) -> dict[str, object]:
    """A VoterAssignmentMessage's fields (KIP-642)."""
    return {
        "clusterId": cluster_id,
        "currentVoters": [{"voterId": id} for id in current],  # noqa: A001
        "targetVoters": None if target is None else [{"voterId": id} for id in sorted(target)],  # noqa: A001
    }


def _plain_snapshot(head: list[Record], body: list[Record], epoch: int, made_ms: int, dialect: Dialect) -> bytes:
    parts = [records_octets(head, 0, epoch, made_ms, True, dialect)]
    offset = len(head)
    for start in range(0, len(body), SNAPSHOT_BATCH_RECORDS):
        chunk = body[start : start + SNAPSHOT_BATCH_RECORDS]
        parts.append(records_octets(chunk, offset, epoch, made_ms, False, dialect))
        offset += len(chunk)
    footer: list[Record] = [("SNAPSHOT_FOOTER", 0, {"version": 0})]
    parts.append(records_octets(footer, offset, epoch, made_ms, True, dialect))
    return b"".join(parts)
