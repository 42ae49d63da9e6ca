"""One pass over a log dir: new bytes of the log, read twice and compared; then snapshots; quorum-state last.

A log that is truncated and written again while it is read can give a splice of two logs, with valid CRCs and adjoining
offsets. So the last batch of the pass before and all new bytes are read twice: a splice would have to be the same both
times, and a truncated tail does not come back under the same epoch.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import Callable

from kraft_capture.batch_frames import UNFINISHED, BatchMark, Frames, frame_batches
from kraft_capture.errors import InputUnreadableError, LogChangedError
from kraft_capture.log_dirs import (
    INLINE_BYTES_MAX,
    METADATA_DIR,
    RESCUE_NAME,
    SEGMENT_NAME,
    SNAPSHOT_NAME,
    Entry,
    errno_name,
    list_entries,
    open_read_only,
    opened,
)

PIECE_BYTES = 8 << 20
_INLINE_FIRST = ("leader-epoch-checkpoint", "partition.metadata")


@dataclass
class Piece:
    """Bytes of a file that were read and not sent yet; `data` is None where they must be read again.

    `mark` is the last batch in it, None for a snapshot; offsets are those of a segment's batches.
    """

    path: str
    position: int
    size: int
    sha256: str
    data: bytes | None
    mark: BatchMark | None = None
    from_offset: int = 0


@dataclass
class PassReading:
    """What a pass found.

    `parted` says why the log is not the one that was read before: then nothing else counts. `damage` are places of
    (path, position, reason) after which a segment was not read; `tail` is the same of the segment that is being
    written, which a writer may yet complete. `not_before_ms` are bounds by the store's clock.
    """

    entries: list[Entry]
    pieces: list[Piece] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    damage: list[tuple[str, int, str]] = field(default_factory=list)
    tail: tuple[str, int, str] | None = None
    parted: str | None = None
    has_control: bool = False
    is_durable: bool = False
    log_not_before_ms: int | None = None
    state_not_before_ms: int | None = None

    def entry(self, path: str) -> Entry | None:
        """The entry of this path."""
        return next((entry for entry in self.entries if entry.path == path), None)


@dataclass
class _OpenSegment:
    entry: Entry
    descriptor: int
    size: int


class LogPass:
    """Reads a log dir once; `now_ms` gives the lower bound of the store's clock, `room_bytes` is what memory may hold.

    `known` is the last batch of the pass before, `known_snapshots` are paths that were read before.
    """

    def __init__(
        self,
        log_dir: str,
        known: BatchMark | None,
        known_snapshots: set[str],
        now_ms: Callable[[], int | None],
        room_bytes: int,
        *,
        durable: bool = False,
    ) -> None:
        self._log_dir = log_dir
        self._known = known
        self._known_snapshots = known_snapshots
        self._now_ms = now_ms
        self._room_bytes = room_bytes
        self._durable = durable
        self._open: list[_OpenSegment] = []

    def read(self) -> PassReading:
        """Raises LogChangedError where the log changed meanwhile, InputUnreadableError where it cannot be listed."""
        not_before_ms = self._now_ms()
        reading = PassReading(list_entries(self._log_dir), log_not_before_ms=not_before_ms)
        try:
            self._read_log(reading)
        except OSError as error:
            raise InputUnreadableError(f"{self._log_dir}/{METADATA_DIR}: {error.strerror}") from None
        finally:
            for segment in self._open:
                os.close(segment.descriptor)
            self._open.clear()
        if reading.parted is None:
            for entry in reading.entries:
                if SNAPSHOT_NAME.fullmatch(entry.name) and entry.path not in self._known_snapshots:
                    self._read_snapshot(reading, entry)
            self._read_small_files(reading)
        return reading

    def _read_log(self, reading: PassReading) -> None:
        segments = [e for e in reading.entries if SEGMENT_NAME.fullmatch(e.name) and e.kind == "file"]
        start = self._first_to_read(segments, reading)
        if reading.parted is not None:
            return
        for entry in segments[start:]:
            self._open_segment(entry)
        if not self._open or (self._known is not None and self._open[0].entry.name != self._known.segment):
            return  # unreadable: neither gone nor parted
        if not self._still_there():
            reading.parted = "parted"
            return
        self._read_segments(reading)
        self._read_again(reading)
        if self._durable:
            for segment in self._open:
                os.fdatasync(segment.descriptor)
            reading.is_durable = True
        for segment in self._open:
            if segment.entry.state == "listed":
                segment.entry.state = "sent"

    def _first_to_read(self, segments: list[Entry], reading: PassReading) -> int:
        """The index of the segment that holds the last known batch."""
        if self._known is None:
            return 0
        names = [entry.name for entry in segments]
        if self._known.segment in names:
            return names.index(self._known.segment)
        is_behind = bool(names) and int(names[0][:20]) >= self._known.end_offset
        reading.parted = "segment gone" if is_behind else "parted"
        return 0

    def _open_segment(self, entry: Entry) -> None:
        try:
            descriptor = open_read_only(self._log_dir, entry.path)
        except FileNotFoundError:
            entry.state = "vanished"
            if self._open or self._known is not None:
                # Retention takes from the front, and what was known stands there.
                raise LogChangedError(f"{entry.path} went away") from None
            return
        except OSError as error:
            entry.state, entry.errno = "unreadable", errno_name(error)
            return
        status = os.fstat(descriptor)
        self._open.append(_OpenSegment(entry, descriptor, status.st_size))
        if (status.st_ino, status.st_dev) != (entry.inode, entry.device) or status.st_size < entry.size:
            raise LogChangedError(f"{entry.path} was replaced")
        entry.size = status.st_size  # it may have grown since it was listed

    def _still_there(self) -> bool:
        """Whether the last known batch stands where it stood."""
        if self._known is None:
            return True
        data = os.pread(self._open[0].descriptor, self._known.size, self._known.position)
        return hashlib.sha256(data).hexdigest() == self._known.sha256

    def _read_segments(self, reading: PassReading) -> None:
        """Every segment from its known end on, in whole batches; from damage to the next segment there is a gap."""
        next_offset, epoch, position = None, 0, 0
        if self._known is not None:
            next_offset, epoch = self._known.end_offset, self._known.epoch
            position = self._known.position + self._known.size
        for index, segment in enumerate(self._open):
            base_offset = int(segment.entry.name[:20])
            if position == 0 and next_offset is not None and base_offset > next_offset:
                reading.gaps.append((next_offset, base_offset))
                next_offset = base_offset
            next_offset, epoch, stop = self._read_segment(segment, position, next_offset, epoch, reading)
            position = 0
            if stop is not None and index < len(self._open) - 1:
                reading.damage.append(stop)
            elif stop is not None and stop[2] != UNFINISHED:
                reading.tail = stop

    def _read_segment(
        self, segment: _OpenSegment, position: int, next_offset: int | None, epoch: int, reading: PassReading
    ) -> tuple[int | None, int, tuple[str, int, str] | None]:
        """(the offset that follows, the last epoch, where and why the reading stopped before the end or None)."""
        path = segment.entry.path
        wanted = PIECE_BYTES
        while position < segment.size:
            try:
                data = _read_fully(segment.descriptor, position, min(wanted, segment.size - position))
            except OSError as error:
                segment.entry.state, segment.entry.errno = "unreadable", errno_name(error)
                return next_offset, epoch, (path, position, f"unreadable ({errno_name(error)})")
            frames = frame_batches(memoryview(data), next_offset, epoch)
            if frames.size:
                self._add_piece(segment, position, data[: frames.size], frames, reading)
                reading.has_control = reading.has_control or frames.has_control
                next_offset, epoch = frames.end_offset, frames.last_epoch
                position += frames.size
                wanted = PIECE_BYTES
            if frames.stopped == UNFINISHED and position + max(frames.wanted, 1) <= segment.size:
                wanted = max(PIECE_BYTES, frames.wanted)
                continue
            if frames.stopped is not None:
                return next_offset, epoch, (path, position, frames.stopped)
        return next_offset, epoch, None

    def _add_piece(
        self, segment: _OpenSegment, position: int, data: bytes, frames: Frames, reading: PassReading
    ) -> None:
        last = data[frames.last_at : frames.last_at + frames.last_size]
        mark = BatchMark(
            segment.entry.name,
            position + frames.last_at,
            frames.last_size,
            hashlib.sha256(last).hexdigest(),
            frames.last_base_offset,
            frames.end_offset,
            frames.last_epoch,
        )
        piece = self._piece(segment.entry.path, position, data)
        piece.mark, piece.from_offset = mark, frames.first_offset
        reading.pieces.append(piece)

    def _piece(self, path: str, position: int, data: bytes) -> Piece:
        held = data if len(data) <= self._room_bytes else None
        self._room_bytes -= len(data) if held is not None else 0
        return Piece(path, position, len(data), hashlib.sha256(data).hexdigest(), held)

    def _read_again(self, reading: PassReading) -> None:
        """The known batch and every new piece once more; raises LogChangedError where anything differs."""
        if not self._still_there():
            raise LogChangedError("the log was truncated while it was read")
        by_path = {segment.entry.path: segment for segment in self._open}
        for piece in reading.pieces:
            data = os.pread(by_path[piece.path].descriptor, piece.size, piece.position)
            if hashlib.sha256(data).hexdigest() != piece.sha256:
                raise LogChangedError(f"{piece.path} changed at {piece.position} while it was read")
        last = self._open[-1]
        try:
            now = os.lstat(os.path.join(self._log_dir, last.entry.path))
        except OSError:
            raise LogChangedError(f"{last.entry.path} went away while it was read") from None
        if now.st_ino != last.entry.inode or now.st_size < last.size:
            raise LogChangedError(f"{last.entry.path} was replaced or truncated while it was read")

    def _read_snapshot(self, reading: PassReading, entry: Entry) -> None:
        """A snapshot is complete when it gets its name, and never changes after."""
        if entry.kind != "file" or entry.state != "listed":
            return
        pieces: list[Piece] = []
        try:
            with opened(self._log_dir, entry.path) as descriptor:
                size = entry.size = os.fstat(descriptor).st_size
                for position in range(0, size, PIECE_BYTES):
                    data = _read_fully(descriptor, position, min(PIECE_BYTES, size - position))
                    pieces.append(self._piece(entry.path, position, data))
        except FileNotFoundError:
            entry.state = "vanished"
        except OSError as error:
            entry.state, entry.errno = "unreadable", errno_name(error)
        except LogChangedError:
            entry.state, entry.errno = "unreadable", "EIO"
        else:
            entry.state = "sent"
            reading.pieces += pieces

    def _read_small_files(self, reading: PassReading) -> None:
        for name in _INLINE_FIRST:
            self._read_inline(reading.entry(f"{METADATA_DIR}/{name}"))
        self._read_inline(reading.entry("bootstrap.checkpoint"))
        self._read_inline(reading.entry(".kafka_cleanshutdown"))
        self._read_inline(reading.entry(RESCUE_NAME))
        reading.state_not_before_ms = self._now_ms()
        self._read_inline(reading.entry(f"{METADATA_DIR}/quorum-state"))
        self._read_inline(reading.entry("meta.properties"))

    def _read_inline(self, entry: Entry | None) -> None:
        if entry is None or entry.kind != "file" or entry.state != "listed":
            return
        try:
            with opened(self._log_dir, entry.path) as descriptor:
                content = os.read(descriptor, INLINE_BYTES_MAX + 1)
        except FileNotFoundError:
            entry.state = "vanished"
        except OSError as error:
            entry.state, entry.errno = "unreadable", errno_name(error)
        else:
            if len(content) > INLINE_BYTES_MAX:
                entry.state, entry.errno = "unreadable", "EFBIG"
            else:
                entry.state, entry.content, entry.size = "sent", content, len(content)


def _read_fully(descriptor: int, position: int, size: int) -> bytes:
    parts = []
    while size:
        part = os.pread(descriptor, size, position)
        if not part:
            raise LogChangedError(f"a file ends at {position}, before the size that it had")
        parts.append(part)
        position += len(part)
        size -= len(part)
    return b"".join(parts)


def read_piece_again(log_dir: str, piece: Piece) -> bytes | None:
    """The bytes of a piece that memory does not hold; None where the file no longer has them."""
    try:
        with opened(log_dir, piece.path) as descriptor:
            data = os.pread(descriptor, piece.size, piece.position)
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest() == piece.sha256 else None
