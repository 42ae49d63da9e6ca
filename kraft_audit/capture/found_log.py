"""One replica's log as far as it must be known to find its history: its first batches, snapshots, voters, addresses.

A batch's key (offsets, epoch, CRC, timestamp) stands for its bytes: it holds the time of the append in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np

from kraft_audit.capture.declared_rescue import read_rescue
from kraft_audit.capture.file_beginnings import read_beginning
from kraft_audit.capture.log_reader import replica_dir
from kraft_audit.capture.plan import ReplicaPlan
from kraft_audit.capture.scanner import CHUNK_BYTES_MAX, header_at
from kraft_audit.text.readable import is_local
from kraft_codec.columns import index_batches
from kraft_codec.errors import CodecError
from kraft_codec.file_names import FileKind
from kraft_codec.files.discovery import FileEntry
from kraft_codec.files.logdir import read_leader_epochs, read_quorum_state, segments
from kraft_codec.records.batch import Batch, BatchHeader, read_batches
from kraft_codec.records.record import decode_records
from kraft_codec.schemas import ZERO_UUID, Dialect
from kraft_codec.storage.random_access import Storage
from kraft_codec.text.java_text import uuid_text

HEADERS_CHUNK_BYTES: Final = 4 << 20
BEGINNING_BYTES: Final = 1 << 20
"""How much of a log's beginning is searched for voter sets: they are written first."""

BatchStamp: TypeAlias = tuple[int, int, int, int, int]
"""A batch: base offset, last offset, leader epoch, CRC, newest timestamp."""
SnapshotStamp: TypeAlias = tuple[int, int, int]
"""A snapshot: end offset, epoch, timestamp of the last record in it."""
VoterKey: TypeAlias = tuple[int, str | None]
"""A voter: node id and directory id."""
Address: TypeAlias = tuple[int, str, int]
"""Where a controller listens: node id, host, port."""


class FoundLog:
    """One replica's log as far as it must be known to find its history."""

    def __init__(self, plan: ReplicaPlan, storage: Storage, dialect: Dialect) -> None:
        self.plan = plan
        self._storage = storage
        self._dialect = dialect
        self._directory = replica_dir(plan)

    def is_of(self, cluster_id: str) -> bool:
        """Whether its meta.properties names this cluster, or none."""
        return self.plan.cluster_id in (None, "", cluster_id)

    @cached_property
    def _segments(self) -> list[FileEntry]:
        return [segment.file for segment in segments(self._storage, self._directory)[0]]

    @cached_property
    def _first_headers(self) -> dict[str, BatchHeader]:
        """The header of each segment's first batch, by path, in the order of the log."""
        headers = ((file.path, header_at(self._storage, file.path)) for file in self._segments)
        return {path: header for path, header in headers if header is not None}

    @cached_property
    def first_batches(self) -> frozenset[BatchStamp]:
        """The first batch of each segment whose CRC holds; of a huge one the CRC is not asked."""
        return frozenset(
            _key(header)
            for path, header in self._first_headers.items()
            if header.size_bytes > CHUNK_BYTES_MAX
            or read_beginning(self._storage, path, header.size_bytes).header is not None
        )

    @cached_property
    def batches(self) -> frozenset[BatchStamp]:
        """All batches whose CRC holds."""
        return frozenset(key for file in self._segments for key in self._keys(file))

    @cached_property
    def from_ms(self) -> int | None:
        first = next(iter(self._first_headers.values()), None)
        return None if first is None else first.base_timestamp_ms

    @property
    def first(self) -> BatchStamp | None:
        """The log's first batch."""
        first = next(iter(self._first_headers.values()), None)
        return None if first is None else _key(first)

    @cached_property
    def snapshots(self) -> list[SnapshotStamp]:
        """Its snapshots, those of formatting left out."""
        stamps = []
        for file in self._directory.of_kind(FileKind.SNAPSHOT):
            header = next(iter(self._read(file)), None)
            if header is None or not file.base_offset or file.epoch is None:
                continue
            for fields in _fields(header[1], header[0], self._dialect):
                if "lastContainedLogTimestamp" in fields:
                    stamps.append((file.base_offset, file.epoch, fields["lastContainedLogTimestamp"]))
        return stamps

    @property
    def last(self) -> BatchStamp | None:
        return max(self.batches, default=None)

    @cached_property
    def rescue(self) -> str | None:
        """What its rescue.json declares, where it has one."""
        for file in self.plan.files:
            if file.kind == FileKind.RESCUE_DECLARATION:
                declared, _ = read_rescue(self._storage, self.plan, file)
                return None if declared is None else declared.to_json()
        return None

    @cached_property
    def voters(self) -> frozenset[VoterKey]:
        """Every voter that its voter sets name: Voters records, also of snapshots, quorum-state of kraft.version 0."""
        named: set[VoterKey] = set()
        state, _ = read_quorum_state(self._storage, self._directory)
        if state is not None:
            named |= {(voter_id, None) for voter_id in state.current_voters or ()}
        snapshots = self._directory.of_kind(FileKind.SNAPSHOT)
        for header, buffer in [*self._beginning, *(pair for file in snapshots for pair in self._read(file))]:
            if header.is_control:
                named |= _voters_of(buffer, header, self._dialect)
        return frozenset(named)

    @cached_property
    def has_testimony(self) -> bool:
        """Whether a dir without a batch shows all the same that a log was there: it names epochs, or has snapshots."""
        return bool(self.snapshots) or bool(read_leader_epochs(self._storage, self._directory))

    @cached_property
    def configured(self) -> frozenset[int]:
        """The voters that its quorum-state names at kraft.version 0."""
        state, _ = read_quorum_state(self._storage, self._directory)
        return frozenset() if state is None else frozenset(state.current_voters or ())

    @property
    def is_started(self) -> bool:
        """Whether its node ever ran with it: formatting leaves no quorum-state."""
        return bool(self._directory.of_kind(FileKind.QUORUM_STATE))

    @cached_property
    def addresses(self) -> frozenset[Address]:
        """Where its controllers listen, as they registered themselves or stand among the voters; loopback left out."""
        newest = sorted(self._directory.of_kind(FileKind.SNAPSHOT), key=lambda file: (file.base_offset, file.epoch))[
            -1:
        ]
        addresses: set[Address] = set()
        for header, buffer in [*self._beginning, *(pair for file in newest for pair in self._read(file))]:
            for fields in _fields(buffer, header, self._dialect):
                if "controllerId" in fields:
                    addresses |= _addresses(fields["controllerId"], fields.get("endPoints"))
                for voter in fields.get("voters") or ():
                    addresses |= _addresses(voter["voterId"], voter.get("endpoints"))
        return frozenset(addresses)

    @cached_property
    def _beginning(self) -> list[tuple[BatchHeader, bytes]]:
        return [pair for file in self._segments[:1] for pair in self._read(file)]

    def _read(self, file: FileEntry) -> Iterator[tuple[BatchHeader, bytes]]:
        """The sound batches at a file's beginning, each with the buffer that its position counts in."""
        try:
            with self._storage.open(file.path) as opened:
                buffer = bytes(opened.read_at(0, min(BEGINNING_BYTES, opened.size_bytes)).data)
        except CodecError:
            return
        for batch in read_batches(buffer):
            if isinstance(batch, Batch) and batch.damage is None:
                yield batch.header, buffer

    def _keys(self, file: FileEntry) -> Iterator[BatchStamp]:
        position = 0
        try:
            with self._storage.open(file.path) as opened:
                while position < opened.size_bytes:
                    length = min(HEADERS_CHUNK_BYTES, opened.size_bytes - position)
                    index = index_batches(opened.read_at(position, length).data, is_last=False)
                    sound = np.flatnonzero(index.status == 0)
                    columns = (index.base_offset, index.last_offset, index.leader_epoch, index.crc)
                    yield from zip(
                        *(column[sound].tolist() for column in (*columns, index.max_timestamp_ms)), strict=True
                    )
                    if index.consumed_bytes == 0:
                        return
                    position += index.consumed_bytes
        except CodecError:
            return


def _key(header: BatchHeader) -> BatchStamp:
    return (header.base_offset, header.last_offset, header.leader_epoch, header.crc, header.max_timestamp_ms)


def _voters_of(buffer: bytes, header: BatchHeader, dialect: Dialect) -> set[VoterKey]:
    """The voters that the control records of a batch name: Voters, and LeaderChange of a static quorum."""
    named: set[VoterKey] = set()
    for fields in _fields(buffer, header, dialect):
        for voter in fields.get("voters") or ():
            directory_id = voter.get("voterDirectoryId", ZERO_UUID)
            named.add((voter["voterId"], None if directory_id == ZERO_UUID else uuid_text(directory_id)))
    return named


def _addresses(node_id: int, endpoints: Sequence[Mapping[str, Any]] | None) -> set[Address]:
    """The addresses by which other machines reach a node: those of the machine itself are everybody's."""
    return {
        (node_id, point["host"], point["port"])
        for point in endpoints or ()
        if point["host"] and not is_local(point["host"])
    }


def _fields(buffer: bytes, header: BatchHeader, dialect: Dialect) -> list[Mapping[str, Any]]:
    """The fields of a batch's records; none where it cannot be decoded."""
    try:
        return [record.fields or {} for record in decode_records(buffer, header, dialect)]
    except CodecError:
        return []


def named_voters(plan: ReplicaPlan, storage: Storage, dialect: Dialect) -> frozenset[int]:
    """The node ids that the voter sets of a replica name."""
    return frozenset(voter_id for voter_id, _ in FoundLog(plan, storage, dialect).voters)
