"""A range of the archived canonical log as the files of a log dir, which Kafka's own tools read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kraft_audit.replay.archived import ArchivedCluster
from kraft_audit.replay.branches import BranchTree
from kraft_audit.replay.cluster import open_replicas, wall_clock_ms
from kraft_audit.replay.reconcile import Window, windows
from kraft_audit.replay.replica import Replica
from kraft_audit.replay.rounds import committed_intervals
from kraft_audit.replay.survey import survey
from kraft_codec.errors import InputError
from kraft_codec.file_names import METADATA_LOG_DIR, FileKind, segment_name
from kraft_codec.files import EpochEntry, format_leader_epoch_checkpoint
from kraft_codec.properties import format_meta_properties, meta_properties
from kraft_codec.random_access import join
from kraft_codec.redaction import Redactor

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
    path: tuple[int, ...]
    from_offset: int
    to_offset: int


def canonical_log(cluster: ArchivedCluster, redactor: Redactor) -> CanonicalLog:
    """The canonical log by all captures. Raises InputError where they contradict each other."""
    shape = survey(cluster.plan, open_storage=cluster.open_storage, redactor=redactor)
    intervals = committed_intervals(shape, cluster.plan)
    newest = next((one.interval for one in reversed(intervals) if one.interval.canonical), None)
    if newest is None or newest.canonical is None:
        why = (intervals[-1].interval.undecided if intervals else None) or "nothing was captured"
        raise InputError(cluster.storage.location, f"no canonical log to export: {why}")
    path = tuple(shape.path(newest.canonical.number))
    start = shape.branches[path[0]].from_offset if path else 0
    return CanonicalLog(cluster, path, start, newest.canonical.end[1])


def exported_batches(
    log: CanonicalLog, from_offset: int, to_offset: int, redactor: Redactor
) -> Iterator[ExportedBatch]:
    """The batches that hold any of the offsets [from_offset, to_offset), whole, in the order of the log."""
    plan = log.cluster.plan
    with ExitStack() as stack:
        replicas, _ = open_replicas(plan, stack, log.cluster.open_storage, redactor.keyed_hash, wall_clock_ms)
        readable = [replica for replica in replicas if replica.log is not None]
        tree = BranchTree(len(replicas))
        for window in windows(readable, lambda replica, chunk: None, _ignore):
            labels = tree.grow(window.batches, {part.replica.number: part.numbers for part in window.slices})
            wanted = np.isin(labels, np.array(log.path, np.int64)) & (window.batches.base_offset < to_offset)
            wanted &= window.batches.last_offset >= from_offset
            yield from _batches(window, wanted)


def _ignore(replica: Replica) -> None:
    """Only the log is exported."""


def _batches(window: Window, wanted: npt.NDArray[np.bool_]) -> Iterator[ExportedBatch]:
    slice_of, row_of = window.sources(wanted)
    for number in np.flatnonzero(slice_of >= 0).tolist():
        chunk, row = window.slices[int(slice_of[number])].chunk, int(row_of[number])
        start = int(chunk.index.position[row])
        content = chunk.buffer[start : start + int(chunk.index.size_bytes[row])].tobytes()
        batches = window.batches
        yield ExportedBatch(
            int(batches.base_offset[number]),
            int(batches.last_offset[number]),
            int(batches.leader_epoch[number]),
            content,
        )


FilePiece = tuple[str, bytes]


@dataclass(slots=True)
class Exported:
    """What was written: half-open offsets, batches, bytes of batches."""

    from_offset: int = 0
    to_offset: int = 0
    batch_count: int = 0
    size_bytes: int = 0


def exported_files(
    log: CanonicalLog, from_offset: int, to_offset: int, redactor: Redactor, done: Exported
) -> Iterator[FilePiece]:
    """(path, bytes) of the node dir, to be appended in this order; `done` counts what they hold.

    meta.properties names the cluster and no node, as version 0 may: nothing can be started from it by mistake.
    Snapshots are those that the archive keeps for this range: what the quorum was formatted with, what leads over a
    hole.
    """
    cluster_id = log.cluster.plan.cluster_id
    yield "meta.properties", format_meta_properties(meta_properties(version=0, cluster_id=cluster_id))
    name, size_bytes = "", 0
    epochs: list[EpochEntry] = []
    for batch in exported_batches(log, from_offset, to_offset, redactor):
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
    for key in sorted(holders, key=lambda one: (-holders[one], one)):
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
