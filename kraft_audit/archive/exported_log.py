"""A range of the archived canonical log as the files of a log dir, which Kafka's own tools read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kraft_audit.archive.archived_captures import ArchivedCluster
from kraft_audit.quorum.rounds import proven_rounds
from kraft_audit.reading import ClusterReading
from kraft_codec.errors import InputError
from kraft_codec.file_names import METADATA_LOG_DIR, FileKind, segment_name
from kraft_codec.files.properties import format_meta_properties, meta_properties
from kraft_codec.files.state_files import EpochEntry, format_leader_epoch_checkpoint
from kraft_codec.storage.random_access import join

SEGMENT_BYTES: Final = 1 << 30
"""Where a segment ends: Kafka's own metadata.log.segment.bytes."""


@dataclass(frozen=True, slots=True)
class ExportedBatch:
    """One batch of the canonical log."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    content: bytes


@dataclass(frozen=True, slots=True)
class CanonicalLog:
    """Which branch of an archived cluster is the canonical log, and which offsets the archive has of it."""

    cluster: ArchivedCluster
    reading: ClusterReading
    path: tuple[int, ...]
    from_offset: int
    to_offset: int


def canonical_log(cluster: ArchivedCluster, reading: ClusterReading) -> CanonicalLog:
    """The canonical log by all captures. Raises InputError where they contradict each other."""
    survey = reading.survey
    rounds = proven_rounds(survey, cluster.plan)
    newest = next((captured.interval for captured in reversed(rounds) if captured.interval.canonical), None)
    if newest is None or newest.canonical is None:
        why = (rounds[-1].interval.undecided if rounds else None) or "nothing was captured"
        raise InputError(cluster.storage.location, f"no canonical log to export: {why}")
    path = tuple(survey.path(newest.canonical.number))
    start = survey.branches[path[0]].from_offset if path else 0
    return CanonicalLog(cluster, reading, path, start, newest.canonical.end[1])


def exported_batches(log: CanonicalLog, from_offset: int, to_offset: int) -> Iterator[ExportedBatch]:
    """The batches that hold any of the offsets [from_offset, to_offset), whole, in the order of the log."""
    for chunk, rows in log.reading.log_batches(log.path, from_offset, to_offset):
        index = chunk.index
        for row in rows.tolist():
            start = int(index.position[row])
            content = chunk.buffer[start : start + int(index.size_bytes[row])].tobytes()
            yield ExportedBatch(
                int(index.base_offset[row]), int(index.last_offset[row]), int(index.leader_epoch[row]), content
            )


FilePiece = tuple[str, bytes]


@dataclass(slots=True)
class Exported:
    """What was written: half-open offsets, batches, bytes of batches."""

    from_offset: int = 0
    to_offset: int = 0
    batch_count: int = 0
    size_bytes: int = 0


def exported_files(log: CanonicalLog, from_offset: int, to_offset: int, done: Exported) -> Iterator[FilePiece]:
    """(path, bytes) of the node dir, to be appended in this order; `done` counts what they hold.

    meta.properties names the cluster and no node, as version 0 may: nothing can be started from it by mistake.
    Snapshots are those that the archive keeps for this range: what the quorum was formatted with, and what
    the log goes on from after a gap.
    """
    cluster_id = log.cluster.plan.cluster_id
    yield "meta.properties", format_meta_properties(meta_properties(version=0, cluster_id=cluster_id))
    name, size_bytes = "", 0
    epochs: list[EpochEntry] = []
    for batch in exported_batches(log, from_offset, to_offset):
        if not name or size_bytes + len(batch.content) > SEGMENT_BYTES:
            name, size_bytes = join(METADATA_LOG_DIR, segment_name(batch.base_offset)), 0
        if not epochs or epochs[-1].epoch != batch.leader_epoch:
            epochs.append(EpochEntry(batch.leader_epoch, batch.base_offset))
        if not done.batch_count:
            done.from_offset = batch.base_offset
        done.to_offset = batch.last_offset + 1
        done.batch_count += 1
        done.size_bytes += len(batch.content)
        size_bytes += len(batch.content)
        yield name, batch.content
    if not done.batch_count:
        detail = f"the archive has offsets {log.from_offset} to {log.to_offset} of cluster {cluster_id}"
        raise InputError(log.cluster.storage.location, f"nothing between {from_offset} and {to_offset}: {detail}")
    yield join(METADATA_LOG_DIR, "leader-epoch-checkpoint"), format_leader_epoch_checkpoint(tuple(epochs))
    for snapshot in _snapshots(log, done):
        yield from snapshot


def _snapshots(log: CanonicalLog, done: Exported) -> Iterator[Iterator[FilePiece]]:
    """The kept snapshots that end in the range; of the 0-0 checkpoints the one that most nodes have."""
    holders: Counter[str] = Counter()
    places: dict[str, tuple[str, str]] = {}
    for replica in log.cluster.plan.replicas:
        for file in replica.files:
            if file.kind == FileKind.SNAPSHOT:
                path = join(replica.path, file.name)
                key = f"{file.base_offset or 0:020d} {file.size_bytes} {file.name}"
                holders[key] += 1
                places.setdefault(key, (file.name, path))
    best: dict[str, str] = {}
    for key in sorted(holders, key=lambda name: (-holders[name], name)):
        best.setdefault(places[key][0], key)
    for name, key in sorted(best.items()):
        end_offset = int(key[:20])
        if (end_offset == 0 and done.from_offset == 0) or done.from_offset < end_offset <= done.to_offset:
            yield _whole(log, name, places[key][1])


def _whole(log: CanonicalLog, name: str, path: str) -> Iterator[FilePiece]:
    step = 8 << 20
    with log.cluster.storage.open(path) as file:
        for position in range(0, file.size_bytes, step):
            yield name, file.read_at(position, min(step, file.size_bytes - position)).tobytes()
