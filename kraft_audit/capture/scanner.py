"""One file of batches as chunks: read once, every batch judged, every byte accounted for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kraft_audit.capture.continuity import ContinuityProblem, LogState, Neighbour, check_continuity, next_batch
from kraft_audit.capture.plan import BatchKey, FilePlan
from kraft_audit.tables.number_arrays import Rows
from kraft_audit.text.watched_work import reading
from kraft_codec.columns import BatchIndex, ChunkStop, index_batches
from kraft_codec.errors import READS_AS_VERSION_2, CodecError, Reason, kafka_verdict
from kraft_codec.file_names import FileKind, printable
from kraft_codec.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, BatchHeader, read_header
from kraft_codec.storage.random_access import Buffer, FileChange, RandomAccess, Storage

CHUNK_BYTES_MAX: Final = 4 << 20
CHUNK_BYTES_MIN: Final = 256 << 10
CHUNKS_BYTES: Final = 40 << 20
ValueHash = Callable[[memoryview], str]


class ChangedError(CodecError):
    """A file is no longer what the plan says, and the caller wanted the planned bytes or nothing."""


def chunk_bytes(replica_count: int, at_most: int = CHUNK_BYTES_MAX) -> int:
    """How much of each replica is held at a time: memory stays the same however many are read in lock step."""
    return max(CHUNK_BYTES_MIN, min(at_most, CHUNKS_BYTES // max(1, replica_count)))


@dataclass(frozen=True, slots=True)
class DamageRow:
    """One row of `decode_errors` without the columns that all rows of the replica share."""

    file_name: str | None
    position: int
    length_bytes: int
    base_offset: int | None
    reason: Reason
    detail: str
    kafka_verdict: str
    value_hash: str | None = None


@dataclass(slots=True)
class FileTally:
    """The running counts of one file. Bytes that are neither decoded nor quarantined are unread."""

    plan: FilePlan
    scanned_to: int = 0
    last_batch: BatchKey | None = None
    batch_count: int = 0
    record_count: int = 0
    damage_count: int = 0
    bytes_decoded: int = 0
    bytes_quarantined: int = 0
    is_left_aside: bool = False
    """Its new bytes were not looked at, and are new to the next plan."""

    @classmethod
    def resumed(cls, plan: FilePlan) -> FileTally:
        """The counts as an earlier plan left them; zeros where no plan read the file."""
        earlier = plan.earlier
        if earlier is None:
            return cls(plan)
        decoded = earlier.size_bytes - earlier.bytes_quarantined - earlier.bytes_unread
        return cls(
            plan,
            earlier.scanned_to,
            earlier.last_batch,
            earlier.batch_count,
            earlier.record_count,
            earlier.damage_count,
            decoded,
            earlier.bytes_quarantined,
        )

    @property
    def kind(self) -> FileKind:
        return FileKind(self.plan.kind)

    @property
    def bytes_unread(self) -> int:
        return self.plan.size_bytes - self.bytes_decoded - self.bytes_quarantined


class DamageLog:
    """The damage of one replica in the order in which it was found, until `drain` takes the rows."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: list[DamageRow] = []

    def add(
        self,
        tally: FileTally | None,
        reason: Reason,
        detail: str,
        *,
        position: int = 0,
        length_bytes: int = 0,
        base_offset: int | None = None,
        value_hash: str | None = None,
        verdict: str | None = None,
    ) -> None:
        """Adds damage of a file, or of the replica's folder where `tally` is None.

        `verdict` says what Kafka does with such bytes, where that differs from the verdict of the reason and file kind.
        """
        self.count += 1
        kind = None
        if tally is not None:
            tally.damage_count += 1
            kind = tally.kind
        name = None if tally is None else printable(tally.plan.name)
        verdict = f"Kafka {verdict or kafka_verdict(reason, kind)}"
        self._rows.append(
            DamageRow(name, position, length_bytes, base_offset, reason, printable(detail), verdict, value_hash)
        )

    def drain(self) -> list[DamageRow]:
        """The rows added since the last call."""
        rows, self._rows = self._rows, []
        return rows


@dataclass(slots=True, eq=False)
class Chunk:
    """Some bytes of one file, private to their reader, and the batches in them that are accepted.

    `rows` are those batches' rows in `index`; the columns after it are theirs. `refused` are the others.
    `file_position` is where the buffer's first byte stands in the file. The buffer is filled again when the next chunk
    is taken: fresh memory for each would cost more than its CRC.
    """

    tally: FileTally
    buffer: Buffer
    file_position: int
    index: BatchIndex
    rows: Rows
    refused: Sequence[ContinuityProblem] = ()
    base_offset: Rows = field(init=False)
    last_offset: Rows = field(init=False)
    leader_epoch: Rows = field(init=False)
    crc: Rows = field(init=False)

    def __post_init__(self) -> None:
        self.base_offset = self.index.base_offset[self.rows]
        self.last_offset = self.index.last_offset[self.rows]
        self.leader_epoch = self.index.leader_epoch[self.rows].astype(np.int64)
        self.crc = self.index.crc[self.rows].astype(np.int64)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class ScanSettings:
    """How files are read. With `stop_on_change` bytes other than the planned ones raise ChangedError."""

    chunk_bytes: int
    value_hash: ValueHash
    stop_on_change: bool = False


class Scanner:
    """Reads files of one sequence of batches (a log's segments, or one snapshot), one after the other.

    `state` is where the sequence stands; `reachable_end_offset` where Kafka would cut it (None: nowhere); `is_lossy` is
    set once bytes could not be read at all, so that what lies there is not known to be gone; `unread` says why.
    """

    def __init__(self, storage: Storage, damage: DamageLog, settings: ScanSettings, state: LogState) -> None:
        self.storage = storage
        self.damage = damage
        self.settings = settings
        self.state = state
        self.reachable_end_offset: int | None = None
        self.is_lossy = False
        self.unread: ChangedError | None = None
        self._memory: Buffer = np.empty(0, np.uint8)

    def scan(self, path: str, tally: FileTally, following: Neighbour | None = None) -> Iterator[Chunk]:
        """The accepted batches from `tally.scanned_to` on; `following` is the header that the next file begins with."""
        try:
            with self.storage.open(path, tally.plan.to_position) as file:
                yield from self._chunks(file, tally, following)
                self._check_change(file, tally)
        except CodecError as error:
            self._unreadable(tally, error)

    def _chunks(self, file: RandomAccess, tally: FileTally, following: Neighbour | None) -> Iterator[Chunk]:
        position, wanted = tally.scanned_to, self.settings.chunk_bytes
        rest: Buffer = NO_BYTES
        while position < file.size_bytes:
            length = min(wanted, file.size_bytes - position)
            buffer = self._read(file, position, length, rest)
            index = index_batches(buffer, is_last=position + length == file.size_bytes)
            is_stopped = index.stop is not None and index.stop.reason is not None
            if not is_stopped and not len(index):
                wanted, rest = _batch_bytes(buffer), buffer.copy()
                continue
            wanted = self.settings.chunk_bytes
            end = position + index.consumed_bytes
            # The batch that the chunk cuts off is not read twice.
            rest = buffer[index.consumed_bytes :].copy()
            chunk = self._judged(tally, buffer, position, index, _header_after(file, end, rest) or following)
            tally.scanned_to = position = end
            yield chunk
            if is_stopped and index.stop is not None:
                next_position = self._next_batch(file, tally, index.stop)
                if next_position is None:
                    return
                tally.scanned_to, position, rest = next_position, next_position, NO_BYTES

    def _read(self, file: RandomAccess, position: int, length: int, rest: Buffer) -> Buffer:
        """Bytes from a position on; `rest` are the first of them."""
        if len(self._memory) < length:
            self._memory = np.empty(length, np.uint8)
        buffer = self._memory[:length]
        known = min(len(rest), length)
        buffer[:known] = rest[:known]
        if known < length:
            file.read_into(position + known, buffer[known:])
        reading(file.path, position, position + length, self.storage.location)
        return buffer

    def forget(self) -> None:
        """Lets the memory for bytes go, as soon as the chunks in it have gone too."""
        self._memory = np.empty(0, np.uint8)

    def _judged(
        self, tally: FileTally, buffer: Buffer, position: int, index: BatchIndex, after: Neighbour | None
    ) -> Chunk:
        end_offset = self.state.next_offset
        rows, findings = check_continuity(index, self.state, after)
        refused = [finding for finding in findings if finding.is_refused]
        chunk = Chunk(tally, buffer, position, index, rows, refused)
        for finding in findings:
            self._note(chunk, finding, end_offset)
        decoded = int(index.size_bytes[rows].sum())
        tally.bytes_decoded += decoded
        tally.bytes_quarantined += int(index.size_bytes.sum()) - decoded
        tally.batch_count += len(rows)
        tally.record_count += int(np.maximum(index.record_count[rows], 0).sum())
        if len(rows):
            tally.last_batch = BatchKey(
                position + int(index.position[rows[-1]]),
                int(chunk.base_offset[-1]),
                int(chunk.last_offset[-1]),
                int(chunk.leader_epoch[-1]),
                int(chunk.crc[-1]),
            )
        return chunk

    def _note(self, chunk: Chunk, finding: ContinuityProblem, end_offset: int | None) -> None:
        index, first, end = chunk.index, finding.row, finding.row + finding.row_count
        start = int(index.position[first])
        length = int(index.size_bytes[first:end].sum())
        magic = int(index.magic[first])
        is_read_by_kafka = finding.reason is Reason.BAD_MAGIC and magic > MAGIC
        if finding.reason in (Reason.BAD_CRC, Reason.BAD_MAGIC) and not is_read_by_kafka:
            accepted_before = int(np.searchsorted(chunk.rows, first))
            self._cut(int(chunk.last_offset[accepted_before - 1]) + 1 if accepted_before else end_offset)
        detail = finding.detail if finding.row_count == 1 else f"{finding.detail}; so it is for the batches after it"
        if finding.reason is Reason.BAD_MAGIC:
            detail = f"the magic byte is {magic}"
        hashed = chunk.buffer[start : start + length].data
        self.damage.add(
            chunk.tally,
            finding.reason,
            detail,
            position=chunk.file_position + start,
            length_bytes=length,
            base_offset=int(index.base_offset[first]),
            value_hash=self.settings.value_hash(hashed) if finding.is_refused else None,
            verdict=READS_AS_VERSION_2 if is_read_by_kafka else None,
        )

    def _next_batch(self, file: RandomAccess, tally: FileTally, stop: ChunkStop) -> int | None:
        """Reports bytes that are no batch, and finds where batches go on after them."""
        position, reason = tally.scanned_to, stop.reason or Reason.BAD_LENGTH
        next_position = next_batch(file, position + 1, at_least_offset=self.state.next_offset or 0)
        length = (file.size_bytes if next_position is None else next_position) - position
        detail = _STOPS[reason]
        if next_position is not None:
            detail += f"; whole batches go on at position {next_position}"
        self.damage.add(tally, reason, detail, position=position, length_bytes=length)
        self._cut(self.state.next_offset)
        self.state.is_gap_explained = True
        return next_position

    def _cut(self, end_offset: int | None) -> None:
        if self.reachable_end_offset is None:
            self.reachable_end_offset = end_offset

    def _check_change(self, file: RandomAccess, tally: FileTally) -> None:
        """A file that was cut or rewritten while it was read may have given bytes of two moments."""
        change = file.change()
        if change in (FileChange.NONE, FileChange.GREW):
            return
        if self.settings.stop_on_change and change is not FileChange.VANISHED:
            raise ChangedError(Reason.CHANGED_DURING_READ, 0, f"{tally.plan.name} {change} while it was read")
        detail = f"the file {change} while it was read"
        self.damage.add(tally, Reason.CHANGED_DURING_READ, detail)
        self.unread = ChangedError(Reason.CHANGED_DURING_READ, 0, detail)

    def _unreadable(self, tally: FileTally, error: CodecError) -> None:
        if isinstance(error, ChangedError):
            raise error
        if self.settings.stop_on_change and error.reason is Reason.CHANGED_DURING_READ:
            raise ChangedError(error.reason, error.position, f"{tally.plan.name}: {error.detail}") from None
        self._take_unread(tally, error)

    def leave_unread(self, tally: FileTally, why: str) -> None:
        """Reports what is not read of a file, because its bytes may be of several moments."""
        self._take_unread(tally, CodecError(Reason.CHANGED_DURING_READ, 0, why))

    def _take_unread(self, tally: FileTally, error: CodecError) -> None:
        position = tally.scanned_to
        length = tally.plan.size_bytes - position
        self.damage.add(tally, error.reason, error.detail, position=position, length_bytes=length)
        self.unread = ChangedError(error.reason, position, error.detail)
        self.state.is_gap_explained = True
        self.is_lossy = True


NO_BYTES: Final[Buffer] = np.zeros(0, np.uint8)
_STOPS: Final = {
    Reason.TORN_TAIL: "a batch is cut off",
    Reason.ZERO_TAIL: "zeros where a batch should start",
    Reason.BAD_LENGTH: "a batch length that no batch has",
}


def _batch_bytes(buffer: Buffer) -> int:
    """How much to read for the one batch that a chunk does not hold; framing has bounded it."""
    return int.from_bytes(buffer[8:12].tobytes(), "big", signed=True) + LOG_OVERHEAD_BYTES


def _header_after(file: RandomAccess, position: int, rest: Buffer) -> Neighbour | None:
    """The header after the batches at hand, where the file has one; `rest` are the bytes there that are at hand."""
    if position + HEADER_BYTES > file.size_bytes:
        return None
    if len(rest) >= HEADER_BYTES:
        return neighbour(read_header(rest.data, 0))
    return neighbour(read_header(file.read_at(position, HEADER_BYTES).data, 0))


def neighbour(header: BatchHeader | None) -> Neighbour | None:
    """What a header says of offset and epoch, where it looks like one."""
    if header is None or header.magic != MAGIC or header.size_bytes < HEADER_BYTES or header.base_offset < 0:
        return None
    return Neighbour(header.base_offset, header.leader_epoch)


def header_at(
    storage: Storage, path: str, position: int = 0, planned_size_bytes: int | None = None
) -> BatchHeader | None:
    """The batch header at a position, unchecked; None where there are too few bytes or they cannot be read."""
    try:
        with storage.open(path, planned_size_bytes) as file:
            if position + HEADER_BYTES > file.size_bytes:
                return None
            return read_header(file.read_at(position, HEADER_BYTES).data, 0)
    except CodecError:
        return None
