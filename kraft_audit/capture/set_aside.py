"""The end of a log that was set aside: what its disk holds if the copy is the disk.

A torn copy is a reason to copy again, and no excuse: where its bytes are the disk's, Kafka elects by them. Nothing
rests on them, and they are compared with the canonical log all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kraft_audit.capture.continuity import next_batch
from kraft_audit.capture.plan import Identity, ReplicaPlan, replica_identity
from kraft_audit.capture.scanner import FileTally
from kraft_codec.columns import index_batches
from kraft_codec.errors import CodecError
from kraft_codec.kernels.codes import OK
from kraft_codec.storage.random_access import Storage

COMPARED_BYTES: Final = 4 << 20
"""Logs part near their ends; what a task hands on stays small."""


@dataclass(frozen=True, slots=True)
class SetAsideBatch:
    """A batch with a valid CRC, which covers neither its base offset nor its epoch."""

    base_offset: int
    last_offset: int
    epoch: int
    crc: int


@dataclass(frozen=True, slots=True)
class SetAsideLog:
    """The newest batches of a log that was set aside, in the order of the file. `reason`: how its files disagree."""

    node_id: int | None
    directory_id: str | None
    root: str
    path: str
    reason: str
    batches: tuple[SetAsideBatch, ...]

    @property
    def identity(self) -> Identity:
        return replica_identity(self.node_id, self.directory_id, self.root, self.path)


def set_aside_log(
    plan: ReplicaPlan, reason: str, segments: Sequence[tuple[str, FileTally]], storage: Storage
) -> SetAsideLog:
    """The end of a replica's log by its (path, segment)s, in order."""
    batches = _newest_batches(segments, storage)
    return SetAsideLog(plan.node_id, plan.directory_id, plan.root, plan.path, reason, batches)


def _newest_batches(segments: Sequence[tuple[str, FileTally]], storage: Storage) -> tuple[SetAsideBatch, ...]:
    """The batches in the last COMPARED_BYTES of a log's newest segment; none where it cannot be read."""
    if not segments:
        return ()
    path, tally = segments[-1]
    try:
        with storage.open(path, tally.plan.to_position) as file:
            begin: int | None = max(0, file.size_bytes - COMPARED_BYTES)
            if begin:
                begin = next_batch(
                    file, begin, at_least_offset=tally.plan.base_offset or 0, search_bytes=COMPARED_BYTES
                )
            if begin is None:
                return ()
            index = index_batches(file.read_at(begin, file.size_bytes - begin))
    except CodecError:
        return ()
    rows = np.flatnonzero(index.status == OK)
    columns = (index.base_offset, index.last_offset, index.leader_epoch, index.crc)
    return tuple(SetAsideBatch(*each) for each in zip(*(column[rows].tolist() for column in columns), strict=True))
