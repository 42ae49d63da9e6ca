"""One disk's own copy of the metadata log, read batch by batch as it lies there, secrets included.

What is read goes into a rescued snapshot and nowhere else: no table, no message and no error shows a value of it.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kraft_audit.archive.archived_captures import ArchivedStorage
from kraft_audit.capture.plan import FilePlan, ReplicaPlan
from kraft_audit.recovery.lost_quorum.rescued_records import StateRecords, UnknownStateError
from kraft_codec.errors import CodecError
from kraft_codec.file_names import FileKind
from kraft_codec.records.batch import Batch, BatchHeader, read_batches
from kraft_codec.records.record import DecodedRecord, decode_records
from kraft_codec.storage.random_access import Storage, join

NEVER_MS: Final = 0


@dataclass(frozen=True, slots=True)
class CutState:
    """The state of a log at a cut: its records, where the cut is (exclusive), and when its last batch was appended."""

    records: StateRecords
    end_offset: int
    timestamp_ms: int


def state_at_cut(storage: Storage, replica: ReplicaPlan, end_offset: int, to_offset: int | None = None) -> CutState:
    """The state of one disk's log below `end_offset`, its end; with `to_offset` at the end of an operation there.

    An operation ends with its batch, or with its transaction. Where the newest snapshot is damaged, an older one is
    read, and at last the log alone. Raises UnknownStateError where no state can be built.
    """
    limit = end_offset if to_offset is None else min(end_offset, to_offset + 1)
    cut = _operation_end(storage, replica, limit) if to_offset is not None else limit
    problems: list[UnknownStateError] = []
    for snapshot in (*_snapshots_below(replica, cut), None):
        try:
            return _state_from(storage, replica, snapshot, cut)
        except UnknownStateError as problem:
            problems.append(problem)
    raise max(problems, key=lambda problem: -1 if problem.offset is None else problem.offset)


def _state_from(storage: Storage, replica: ReplicaPlan, snapshot: FilePlan | None, cut: int) -> CutState:
    """The state at a cut, from a snapshot and the log after it; None: from the log alone."""
    state, timestamp_ms, position = StateRecords(), NEVER_MS, 0
    if snapshot is not None:
        position = snapshot.base_offset or 0
        changed = _changed_offsets(storage, replica, snapshot)
        try:
            for header, records in _read(storage, replica, snapshot):
                if not header.is_control:
                    state.add(records, is_redacted=header.base_offset in changed)
        except UnknownStateError as problem:
            # Its offsets are places in the snapshot, and say nothing of the log.
            raise UnknownStateError(str(problem)) from None
    changed = _changed_offsets(storage, replica, *_segments(replica))
    for header, records in _log(storage, replica, position, cut):
        if header.base_offset > position:
            text = f"{replica.path}: no record of offsets {position} to {header.base_offset - 1}"
            raise UnknownStateError(text, position)
        if not header.is_control:
            wanted = (record for record in records if record.raw.offset >= position)
            state.add(wanted, is_redacted=header.base_offset in changed)
        position, timestamp_ms = header.last_offset + 1, header.max_timestamp_ms
    if position != cut:
        text = f"{replica.path}: its own log ends at {position}, before the cut at {cut}"
        raise UnknownStateError(text, position)
    return CutState(state, cut, timestamp_ms)


def _operation_end(storage: Storage, replica: ReplicaPlan, limit: int) -> int:
    """The end of the last batch below `limit` after which no transaction is open."""
    ended, is_open = 0, False
    for header, records in _log(storage, replica, 0, limit):
        for record in () if header.is_control else records:
            name = None if record.message is None else record.message.name
            is_open = name == "BeginTransactionRecord" or (
                is_open and name not in ("EndTransactionRecord", "AbortTransactionRecord")
            )
        ended = ended if is_open else header.last_offset + 1
    if not ended:
        raise UnknownStateError(f"{replica.path}: no operation ends before offset {limit} in its log")
    return ended


def _snapshots_below(replica: ReplicaPlan, cut: int) -> list[FilePlan]:
    """The snapshots that end at a cut or below it, the newest first."""
    own = [file for file in replica.files if file.kind == FileKind.SNAPSHOT and 0 < (file.base_offset or 0) <= cut]
    return sorted(own, key=lambda file: (file.base_offset or 0, file.epoch or 0), reverse=True)


def _log(
    storage: Storage, replica: ReplicaPlan, from_offset: int, to_offset: int
) -> Iterator[tuple[BatchHeader, list[DecodedRecord]]]:
    """The batches that hold offsets from `from_offset` on and end below `to_offset`."""
    for file in _segments(replica):
        yield from _read(storage, replica, file, from_offset, to_offset)


def _segments(replica: ReplicaPlan) -> list[FilePlan]:
    segments = [file for file in replica.files if file.kind == FileKind.SEGMENT]
    return sorted(segments, key=lambda file: file.base_offset or 0)


def _changed_offsets(storage: Storage, replica: ReplicaPlan, *files: FilePlan) -> frozenset[int]:
    """The base offsets of batches that hold fingerprints in place of secrets: a lake's, never a disk's."""
    if not isinstance(storage, ArchivedStorage):
        return frozenset()
    return frozenset().union(*(storage.changed_offsets(join(replica.path, file.name)) for file in files))


def _read(
    storage: Storage, replica: ReplicaPlan, file: FilePlan, from_offset: int = 0, to_offset: int | None = None
) -> Iterator[tuple[BatchHeader, list[DecodedRecord]]]:
    """Raises UnknownStateError at a batch that is damaged or cannot be decoded; a torn tail just ends the file."""
    try:
        with storage.open(join(replica.path, file.name), file.to_position) as opened:
            content = opened.read_at(0, min(opened.size_bytes, file.to_position)).tobytes()
    except CodecError as problem:
        raise UnknownStateError(f"{replica.path}/{file.name}: {problem.detail}") from None
    for batch in read_batches(content):
        if not isinstance(batch, Batch):
            return
        header = batch.header
        is_below = to_offset is None or header.last_offset < to_offset
        if header.last_offset < from_offset or not is_below:
            continue
        where = f"{replica.path}/{file.name}: the batch at offset {header.base_offset}"
        if batch.damage is not None:
            raise UnknownStateError(f"{where} is damaged ({batch.damage})", header.base_offset)
        try:
            yield header, decode_records(content, header)
        except CodecError as problem:
            raise UnknownStateError(f"{where} cannot be decoded ({problem.reason})", header.base_offset) from None


@dataclass(frozen=True, slots=True)
class DryRun:
    """Whether a rescue can build a state from a copy: `problem` says why not, `to_offset` up to where it can."""

    problem: str | None = None
    to_offset: int | None = None


def dry_run(storage: Storage, replica: ReplicaPlan, end_offset: int) -> DryRun:
    """Builds the state of a copy as a rescue would, and writes nothing."""
    try:
        cut = state_at_cut(storage, replica, end_offset)
    except UnknownStateError as error:
        problem, limit = str(error), error.offset
    else:
        if not cut.records.is_in_transaction:
            return DryRun()
        problem, limit = "a metadata transaction is open at its end", cut.end_offset
    if not limit:
        return DryRun(problem)
    try:
        cut = state_at_cut(storage, replica, end_offset, limit - 1)
    except UnknownStateError:
        return DryRun(problem)
    return DryRun(problem, cut.end_offset - 1)


def lock_holder(node_dir: str) -> int | None:
    """The process that holds `.lock` in a node dir of this machine; None where none does, or it cannot be known."""
    if sys.platform != "linux":
        return None  # elsewhere the layout of struct flock differs
    import fcntl

    layout = "hhqqi4x"
    try:
        with open(f"{node_dir}/.lock", "rb") as file:  # noqa: PTH123
            asked = struct.pack(layout, fcntl.F_WRLCK, 0, 0, 0, 0)
            kind, _, _, _, holder = struct.unpack(layout, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return None
    return None if kind == fcntl.F_UNLCK else int(holder)
