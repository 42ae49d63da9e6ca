"""Snapshots: each copy is checked, and one copy of each content is decoded.

A snapshot id (end offset, epoch) names one state of the cluster, whoever wrote it: nodes write their own, whose bytes
differ in timestamps only. Copies that say something else are versions, each decoded; what most disks hold comes first,
and is taken for the snapshot. The bootstrap files (`bootstrap.checkpoint`, and the
`0-0` checkpoint of a dynamic quorum) are what each node was formatted with: copies of different content are all kept.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from kraft_audit.capture.continuity import LogState
from kraft_audit.capture.decoded_records import ControlRecord, controls_of
from kraft_audit.capture.plan import FilePlan
from kraft_audit.capture.record_store import RecordStore, StoredBatches
from kraft_audit.capture.replica import Replica
from kraft_audit.capture.scanner import NO_BYTES, ChangedError, Chunk, FileTally, Scanner, ScanSettings
from kraft_codec.columns import index_records
from kraft_codec.columns.batches import kernel_crc32c
from kraft_codec.errors import CodecError, Reason
from kraft_codec.file_names import FileKind
from kraft_codec.kernels.codes import OK
from kraft_codec.records.batch import ATTRIBUTES_POSITION, CRC_POSITION, TIMES_POSITIONS
from kraft_codec.schemas import CONTROL_TYPES, Dialect
from kraft_codec.storage.random_access import join

HEADER: Final = "SNAPSHOT_HEADER"
FOOTER: Final = "SNAPSHOT_FOOTER"
BOOTSTRAP: Final = "bootstrap"
_REWRITTEN: Final = np.array([*range(CRC_POSITION, ATTRIBUTES_POSITION), *range(*TIMES_POSITIONS)])
"""The bytes of a batch header that differ between two nodes that write the same snapshot."""
_HASHED_BYTES: Final = 1 << 20
"""Content is distinguished by its first MiB and its length: bootstrap files have some hundred bytes."""


@dataclass(slots=True, eq=False)
class SnapshotCopy:
    """One copy of a snapshot in one replica. `is_known` where an earlier plan has read it and it has not changed.

    Of a copy that was read, `chunks` are its batches without their bytes. Of the one that is decoded, `stored` has the
    bytes of each chunk and `controls` are its control records. `unread` says why a copy could not be read to its end.
    `digest` is that of its bytes without the times at which they were written.
    """

    replica: Replica
    file: FilePlan
    source: str
    is_complete: bool = False
    chunks: list[Chunk] = field(default_factory=list)
    stored: list[StoredBatches] = field(default_factory=list)
    controls: list[ControlRecord] = field(default_factory=list)
    unread: ChangedError | None = None
    digest: bytes = b""

    @property
    def is_known(self) -> bool:
        return self.file.is_unchanged

    @property
    def end_offset(self) -> int:
        return self.file.base_offset or 0


@dataclass(slots=True, eq=False)
class Snapshot:
    """All copies of one snapshot, in the order of the replicas; `decoded` is the copy whose records are read.

    `versions` are complete copies, one of each content that was read: `decoded` is the first of them.
    """

    source: str
    end_offset: int
    copies: list[SnapshotCopy]
    decoded: SnapshotCopy | None = None
    versions: list[SnapshotCopy] = field(default_factory=list)

    def holders(self, version: SnapshotCopy) -> tuple[int, ...]:
        """The numbers of the replicas that hold what a version says."""
        return tuple(copy.replica.number for copy in self.copies if copy.is_complete and copy.digest == version.digest)

    def version_holders(self) -> list[tuple[bytes, tuple[int, ...]]]:
        """(digest, numbers of the replicas that hold it) of each version: the one that most disks hold comes first."""
        holders_of: dict[bytes, list[int]] = defaultdict(list)
        for copy in self.copies:
            if copy.is_complete and copy.digest:
                holders_of[copy.digest].append(copy.replica.number)
        disks = {copy.replica.number: copy.replica.plan.identity for copy in self.copies}
        ordered = sorted(holders_of.items(), key=lambda entry: -len({disks[number] for number in entry[1]}))
        return [(digest, tuple(numbers)) for digest, numbers in ordered]

    def order_versions(self) -> None:
        """Puts the version that most disks hold first; a disk that was captured often counts once."""
        if len(self.versions) > 1:
            disks = {copy.replica.number: copy.replica.plan.identity for copy in self.copies}
            self.versions.sort(key=lambda version: -len({disks[number] for number in self.holders(version)}))
            self.decoded = self.versions[0]


def find_snapshots(replicas: Sequence[Replica]) -> list[Snapshot]:
    """The snapshots of all replicas by (end offset, epoch); their files have been read to know their ids, no more."""
    groups: dict[tuple[int, int, str], list[SnapshotCopy]] = defaultdict(list)
    for replica in replicas:
        if not replica.is_accepted:
            continue
        for file in replica.files_of(FileKind.SNAPSHOT, FileKind.BOOTSTRAP_SNAPSHOT):
            source = _snapshot_source(replica, file)
            groups[(file.base_offset or 0, file.epoch or 0, source)].append(SnapshotCopy(replica, file, source))
    return [Snapshot(key[2], key[0], groups[key]) for key in sorted(groups)]


class SnapshotChecker:
    """Reads each copy of a snapshot once: counts its bytes, reports its damage, chooses the copy that is decoded.

    `store` takes the bytes of the chosen copy, None where they are not needed.
    """

    def __init__(self, settings: ScanSettings, known_sources: Sequence[str], store: RecordStore | None) -> None:
        self._settings = settings
        self._known_sources = known_sources
        self._store = store

    def check(self, snapshot: Snapshot) -> None:
        """Reads the copies that no earlier plan knows; a complete one of each content is decoded, else the first."""
        for copy in snapshot.copies:
            if copy.is_known:
                copy.is_complete = copy.replica.tallies[copy.file.name].damage_count == 0
            else:
                self._read(copy, snapshot)
            if copy.is_complete and copy.file.kind == FileKind.SNAPSHOT:
                copy.replica.snapshots.append((copy.end_offset, copy.file.epoch or 0))
        snapshot.order_versions()

    def _read(self, copy: SnapshotCopy, snapshot: Snapshot) -> None:
        is_candidate = snapshot.source not in self._known_sources
        self._scan(copy, is_candidate=is_candidate)
        if not is_candidate:
            return
        before = snapshot.decoded
        if copy.is_complete and not any(version.digest == copy.digest for version in snapshot.versions):
            snapshot.versions.append(copy)
            if before is not None and not before.is_complete:
                self.forget(before)
            snapshot.decoded = snapshot.versions[0]
        elif before is None:
            snapshot.decoded = copy
        else:
            self.forget(copy)

    def forget(self, copy: SnapshotCopy) -> None:
        """Lets go of a copy's bytes."""
        if self._store is not None:
            for stored in copy.stored:
                self._store.drop(stored)
            copy.stored = []

    def _scan(self, copy: SnapshotCopy, *, is_candidate: bool) -> None:
        replica, tally = copy.replica, copy.replica.tallies[copy.file.name]
        tally = replica.tallies[copy.file.name] = FileTally(tally.plan)
        scanner = Scanner(replica.storage, replica.damage, self._settings, LogState(0))
        first: frozenset[str] | None = None
        last: frozenset[str] = frozenset()
        epochs: set[int] = set()
        next_offset, is_gapless = 0, True
        content = hashlib.sha256()
        for chunk in scanner.scan(join(replica.plan.path, copy.file.name), tally):
            if not len(chunk):
                continue
            if first is None:
                first = _control_types(chunk, 0, replica.dialect)
            last = _control_types(chunk, len(chunk) - 1, replica.dialect)
            if len(epochs) < 2:
                epochs |= set(np.unique(chunk.leader_epoch)[:2].tolist())
            is_gapless &= bool(np.array_equal(chunk.base_offset, [next_offset, *(chunk.last_offset[:-1] + 1)]))
            next_offset = int(chunk.last_offset[-1]) + 1
            content.update(_without_times(chunk))
            copy.chunks.append(replace(chunk, buffer=NO_BYTES))
            if is_candidate:
                self._take(copy, chunk)
        copy.unread, copy.digest = scanner.unread, content.digest()
        missing = [name for name, types in ((HEADER, first or frozenset()), (FOOTER, last)) if name not in types]
        is_whole = tally.damage_count == 0
        if missing:
            detail = " and ".join(f"no {name.lower().replace('_', ' ')}" for name in missing)
            replica.damage.add(tally, Reason.SNAPSHOT_INCOMPLETE, detail, position=tally.scanned_to)
        if copy.file.kind == FileKind.SNAPSHOT:
            details = list(_name_contradictions(copy.file.epoch or 0, epochs, is_gapless=is_gapless))
            for detail in details:
                replica.damage.add(tally, Reason.BAD_FILE, detail)
            is_whole &= not details
        copy.is_complete = is_whole and not missing

    def _take(self, copy: SnapshotCopy, chunk: Chunk) -> None:
        rows = chunk.rows[chunk.index.is_control[chunk.rows]]
        if len(rows):
            index = index_records(chunk.buffer, chunk.index, rows, copy.replica.dialect)
            copy.controls += controls_of(index, copy.replica.dialect)
        if self._store is not None:
            copy.stored.append(self._store.add(copy.replica, chunk, chunk.rows)[0])


def _name_contradictions(named: int, epochs: set[int], *, is_gapless: bool) -> Iterator[str]:
    """What batches say against a snapshot's name: Kafka writes all of them in that epoch, from offset 0 on.

    (RecordsSnapshotWriter, RecordsBatchReader, 4.3.0.) The name is under no checksum.
    """
    if epochs - {named}:
        epochs_text = ", ".join(str(epoch) for epoch in sorted(epochs))
        yield f"its batches have epoch {epochs_text}, the name says {named}"
    if not is_gapless:
        yield "its batches do not follow each other from offset 0 on"


def _without_times(chunk: Chunk) -> bytes:
    """The bytes of a chunk's batches with their times, and the CRCs that cover these, overwritten."""
    starts = chunk.index.position[chunk.rows]
    end = int(starts[-1] + chunk.index.size_bytes[chunk.rows[-1]])
    content = chunk.buffer[int(starts[0]) : end].copy()
    content[(starts[:, None] - starts[0] + _REWRITTEN).ravel()] = 0
    return content.tobytes()


def _control_types(chunk: Chunk, place: int, dialect: Dialect) -> frozenset[str]:
    """The names of the control records in one batch."""
    row = chunk.rows[place : place + 1]
    if not chunk.index.is_control[row[0]]:
        return frozenset()
    index = index_records(chunk.buffer, chunk.index, row, dialect)
    numbers = index.api_key[(index.status == OK) & index.is_control]
    return frozenset(CONTROL_TYPES[dialect][number].name for number in numbers.tolist())


def _snapshot_source(replica: Replica, file: FilePlan) -> str:
    if file.kind == FileKind.BOOTSTRAP_SNAPSHOT:
        return f"{BOOTSTRAP}-{_content_crc(replica, file)}"
    source = f"{file.base_offset or 0:020d}-{file.epoch or 0:010d}"
    return source if file.base_offset else f"{source}-{_content_crc(replica, file)}"


def _content_crc(replica: Replica, file: FilePlan) -> str:
    try:
        with replica.storage.open(join(replica.plan.path, file.name), file.to_position) as opened:
            content = opened.read_at(0, min(opened.size_bytes, _HASHED_BYTES)).tobytes()
    except CodecError as error:
        replica.damage.add(replica.tallies[file.name], error.reason, error.detail, length_bytes=file.size_bytes)
        return "unreadable"
    return f"{kernel_crc32c(content + file.size_bytes.to_bytes(8, 'big')):08x}"
