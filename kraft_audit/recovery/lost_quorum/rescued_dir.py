"""A node dir that begins with a snapshot of a rescued state: one voter and an empty log.

The voter stands in the snapshot, with kraft.version 1. Where software or metadata.version know no kraft.version 1 it
stands in no record, and controller.quorum.voters names it. The snapshot ends above every offset, and in an epoch above
every epoch, that the lost quorum can have reached: replicas of it that return fetch the snapshot instead of keeping
what they have (KafkaRaftClient, Kafka 3.7 to 4.3).
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kraft_audit.quorum.voter_history import Endpoint
from kraft_audit.recovery.private_files import write_private
from kraft_audit.text.text_files import sync
from kraft_codec.file_names import METADATA_LOG_DIR
from kraft_codec.files.properties import format_meta_properties, meta_properties
from kraft_codec.files.state_files import (
    METADATA_TOPIC_ID,
    EpochEntry,
    PartitionMetadata,
    QuorumState,
    format_leader_epoch_checkpoint,
    format_partition_metadata,
    format_quorum_state,
)
from kraft_codec.records.batch import write_batch
from kraft_codec.records.record import write_control_key, write_control_value
from kraft_codec.schemas import CONTROL_TYPE_BY_NAME, Dialect
from kraft_codec.text.java_text import uuid_bytes

BATCH_BYTES: Final = 1 << 20
KRAFT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class RescuedNode:
    """Who a rescued dir is for: the only voter, and where it listens; `is_static`: its config names it, no record.

    The first endpoint is that of the listener that the node itself uses.
    """

    cluster_id: str
    node_id: int
    directory_id: str
    endpoints: tuple[Endpoint, ...]
    is_static: bool = False


def new_directory_id() -> str:
    """A random directory id as Kafka makes them: never one that begins with a dash (Uuid.randomUuid)."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode("ascii")
        if not text.startswith("-"):
            return text


def snapshot_bytes(
    values: Iterable[bytes], *, node: RescuedNode, epoch: int, timestamp_ms: int
) -> Iterator[tuple[bytes, int]]:
    """The batches of the snapshot, each with its number of records: header and voters, the state, footer.

    Offsets inside count from 0 (RecordsSnapshotWriter, Kafka 4.3).
    """
    head = [_control("SNAPSHOT_HEADER", lastContainedLogTimestamp=timestamp_ms)]
    if not node.is_static:
        head += [_control("KRAFT_VERSION", kRaftVersion=KRAFT_VERSION), _control("KRAFT_VOTERS", voters=[_voter(node)])]
    offset = 0

    def batch(records: list[tuple[bytes | None, bytes | None]], *, is_control: bool) -> tuple[bytes, int]:
        nonlocal offset
        written = write_batch(
            base_offset=offset, leader_epoch=epoch, timestamp_ms=timestamp_ms, records=records, is_control=is_control
        )
        offset += len(records)
        return written, len(records)

    yield batch(list(head), is_control=True)
    held: list[tuple[bytes | None, bytes | None]] = []
    size_bytes = 0
    for value in values:
        if held and size_bytes + len(value) > BATCH_BYTES:
            yield batch(held, is_control=False)
            held, size_bytes = [], 0
        held.append((None, value))
        size_bytes += len(value)
    if held:
        yield batch(held, is_control=False)
    yield batch([_control("SNAPSHOT_FOOTER")], is_control=True)


def _voter(node: RescuedNode) -> dict[str, object]:
    return {
        "voterId": node.node_id,
        "voterDirectoryId": uuid_bytes(node.directory_id),
        "endpoints": [{"name": each.name, "host": each.host, "port": each.port} for each in node.endpoints],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": KRAFT_VERSION},
    }


def _control(name: str, **fields: object) -> tuple[bytes, bytes]:
    control = CONTROL_TYPE_BY_NAME[Dialect.KIP853][name]
    return write_control_key(control.number), write_control_value(control, {"version": 0, **fields})


def write_node_dir(
    out: Path, node: RescuedNode, values: Iterable[bytes], *, offset: int, epoch: int, timestamp_ms: int
) -> dict[str, str]:
    """Writes the dir, and returns the SHA-256 of each file by its name. `out` is a new or empty folder.

    Raises OSError. What was written is on the disk when it returns.
    """
    log_dir = out / METADATA_LOG_DIR
    log_dir.mkdir(parents=True)
    batches = (written for written, _ in snapshot_bytes(values, node=node, epoch=epoch, timestamp_ms=timestamp_ms))
    meta = meta_properties(cluster_id=node.cluster_id, node_id=node.node_id, directory_id=node.directory_id)
    # Kafka below 3.9 refuses other voters here than its config names, and reads no version 1 (FileBasedStateStore).
    state = (
        QuorumState(0, -1, epoch, -1, current_voters=(node.node_id,))
        if node.is_static
        else QuorumState(1, -1, epoch, -1)
    )
    files: dict[str, Iterable[bytes]] = {
        "meta.properties": [format_meta_properties(meta)],
        f"{METADATA_LOG_DIR}/{offset:020d}-{epoch:010d}.checkpoint": batches,
        f"{METADATA_LOG_DIR}/{offset:020d}.log": [],
        f"{METADATA_LOG_DIR}/leader-epoch-checkpoint": [format_leader_epoch_checkpoint((EpochEntry(epoch, offset),))],
        f"{METADATA_LOG_DIR}/partition.metadata": [format_partition_metadata(PartitionMetadata(0, METADATA_TOPIC_ID))],
        f"{METADATA_LOG_DIR}/quorum-state": [format_quorum_state(state)],
    }
    hashes = {name: write_private(out, name, parts).sha256 for name, parts in files.items()}
    for folder in (log_dir, out):
        sync(folder)
    return hashes
