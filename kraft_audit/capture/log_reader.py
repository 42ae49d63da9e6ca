"""One replica's log: the order of its segments, where reading begins, and its batches by chunks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from kraft_audit.capture.continuity import LogState, run_begins
from kraft_audit.capture.plan import BatchKey, FilePlan, ReplicaPlan
from kraft_audit.capture.scanner import Chunk, DamageLog, FileTally, Scanner, ScanSettings, header_at, neighbour
from kraft_codec.errors import Reason
from kraft_codec.file_names import FileKind
from kraft_codec.files.discovery import FileEntry, ReplicaDir
from kraft_codec.files.logdir import segments as ordered_segments
from kraft_codec.records.batch import BatchHeader
from kraft_codec.storage.random_access import Storage, join

EPOCH_STARTS_MAX: Final = 100_000
FAR: Final = "object_store"


class LogReader:
    """Reads the log of one replica by chunks: after the last batch that the ledger knows, if it still stands there.

    `first_offset` is where its log begins, `reads_from_offset` where this reading does: below it nothing is known to be
    there or gone. Both are None where there is no segment. `last_crc` and `last_timestamp_ms` are those of the last
    known batch. `segments` are in order.
    """

    def __init__(
        self,
        plan: ReplicaPlan,
        storage: Storage,
        damage: DamageLog,
        tallies: dict[str, FileTally],
        settings: ScanSettings,
        torn: str | None = None,
        *,
        is_rest_torn: bool = False,
    ) -> None:
        """`torn`: why nothing of the log is read.

        `is_rest_torn`: what earlier plans read of it still counts as read, so that a sound copy is read from there on.
        """
        self.plan = plan
        self.storage = storage
        self._settings = settings
        by_path = {join(plan.path, name): tally for name, tally in tallies.items()}
        known = _read_in_order(plan, by_path) if torn is None else frozenset()
        ordered, damages = ordered_segments(storage, replica_dir(plan), known)
        self.segments = _all_in_order([by_path[segment.file.path] for segment in ordered], by_path)
        self.first_offset = self.segments[0].plan.base_offset if self.segments else None
        self.last_timestamp_ms: int | None = None
        self.last_crc: int | None = None
        self.epoch_starts: list[tuple[int, int]] = []
        """(epoch, first offset of it) of the epochs that this reading saw begin, at most EPOCH_STARTS_MAX."""
        self._read_before: set[str] = set()
        self.torn = torn
        self._is_rest_torn = is_rest_torn
        state = self._resumed_state() if torn is None else None
        self.is_resumed = state is not None
        if state is None and known:
            ordered, damages = ordered_segments(storage, replica_dir(plan))
            self.segments = _all_in_order([by_path[segment.file.path] for segment in ordered], by_path)
            self.first_offset = self.segments[0].plan.base_offset if self.segments else None
        if state is None and is_rest_torn:
            state = LogState(self.first_offset)
        if state is None:
            self.segments = [FileTally(tally.plan) for tally in self.segments]
            tallies.update((tally.plan.name, tally) for tally in self.segments)
            for problem in damages:
                if problem.reason is Reason.BAD_FILE:
                    tally = tallies[by_path[problem.path].plan.name]
                    damage.add(
                        tally,
                        problem.reason,
                        problem.detail,
                        position=problem.position,
                        length_bytes=problem.length_bytes,
                    )
            if ordered and ordered[0].is_confirmed and by_path[ordered[0].file.path].plan is self.segments[0].plan:
                self.first_offset = ordered[0].first_offset
            state = LogState(self.first_offset)
        self.reads_from_offset = state.next_offset
        self.scanner = Scanner(storage, damage, settings, state)
        self._read_epoch = state.epoch if self.is_resumed else None

    @property
    def end_offset(self) -> int | None:
        """The offset after the last batch kept so far; of an empty log its base offset, of an unread one None."""
        if self.is_unread:
            return None
        next_offset = self.scanner.state.next_offset
        return self.first_offset if next_offset is None else next_offset

    @property
    def last_epoch(self) -> int | None:
        """The epoch of the last batch kept so far."""
        return None if self.last_crc is None else self.scanner.state.epoch

    @property
    def reachable_end_offset(self) -> int | None:
        """Where the log ends for Kafka: before the first damage that makes it cut the log."""
        cut = self.scanner.reachable_end_offset
        return self.end_offset if cut is None else cut

    @property
    def is_unread(self) -> bool:
        """Whether bytes could not be read, and no batch was: what the log holds is not known."""
        return self.scanner.is_lossy and self.last_crc is None

    @property
    def new_segments(self) -> list[FileTally]:
        """The segments with bytes that no earlier plan has read."""
        return [tally for tally in self.segments if tally.plan.name not in self._read_before]

    def chunks(self) -> Iterator[Chunk]:
        """The accepted batches of all segments, in order."""
        if self.torn is not None:
            for tally in self.segments:
                if not _is_fully_read(tally):
                    self.scanner.leave_unread(tally, self.torn)
                    tally.is_left_aside = self._is_rest_torn
            return
        has_read = self.is_resumed
        for number, tally in enumerate(self.segments):
            if tally.plan.name in self._read_before:
                continue
            following = None
            if number + 1 < len(self.segments):
                following = neighbour(self._header(self.segments[number + 1]))
            for chunk in self.scanner.scan(join(self.plan.path, tally.plan.name), tally, following):
                if len(chunk):
                    if not has_read:
                        self.first_offset = int(chunk.base_offset[0])
                        has_read = True
                    self.last_timestamp_ms = int(chunk.index.max_timestamp_ms[chunk.rows[-1]])
                    self.last_crc = int(chunk.crc[-1])
                    self._add_epochs(chunk)
                yield chunk
        # A log's reader outlives its reading, a chunk's bytes for each replica would too.
        self.scanner.forget()

    def _add_epochs(self, chunk: Chunk) -> None:
        epoch = chunk.leader_epoch
        starts = np.flatnonzero(run_begins(epoch, self._read_epoch))
        self._read_epoch = int(epoch[-1])
        room = EPOCH_STARTS_MAX - len(self.epoch_starts)
        self.epoch_starts += [(int(epoch[row]), int(chunk.base_offset[row])) for row in starts[:room].tolist()]

    def _resumed_state(self) -> LogState | None:
        """The state after the last known batch; None where the log no longer matches the ledger."""
        known = [(number, tally, tally.last_batch) for number, tally in enumerate(self.segments) if tally.last_batch]
        if not known:
            return None
        *earlier, (number, last, key) = known
        if any(tally.plan.earlier is None for tally in self.segments[:number]):
            return None
        first_offset = self.first_offset or 0
        if any(
            (gone.base_offset or 0) >= first_offset for gone in self.plan.gone_files if gone.kind == FileKind.SEGMENT
        ):
            return None
        if not all(_is_fully_read(tally) for _, tally, _ in earlier):
            return None
        # An object that is neither newer nor longer is the same; each look at one is a request.
        is_far = self.plan.medium == FAR
        if not all((is_far and tally.plan.is_unchanged) or self._known_header(tally, at) for _, tally, at in earlier):
            return None
        header = self._known_header(last, key)
        if header is None:
            return None
        self._read_before = {tally.plan.name for _, tally, _ in known if _is_fully_read(tally)}
        self.last_timestamp_ms, self.last_crc = header.max_timestamp_ms, key.crc
        is_gap_explained = key.position + header.size_bytes != last.scanned_to
        return LogState(key.last_offset + 1, key.leader_epoch, is_gap_explained)

    def _known_header(self, tally: FileTally, key: BatchKey) -> BatchHeader | None:
        """The header at the ledger's last batch of a file; None where another batch, or none, stands there now."""
        if tally.plan.size_bytes < tally.scanned_to:
            return None
        header = self._header(tally, key.position)
        if header is None:
            return None
        current = BatchKey(key.position, header.base_offset, header.last_offset, header.leader_epoch, header.crc)
        return header if current == key else None

    def _header(self, tally: FileTally, position: int = 0) -> BatchHeader | None:
        return header_at(self.storage, join(self.plan.path, tally.plan.name), position, tally.plan.to_position)


def replica_dir(plan: ReplicaPlan) -> ReplicaDir:
    """The planned files in the form that the codec's functions take."""
    return ReplicaDir(plan.capture, plan.path, plan.log_dir, tuple(_file_entry(plan, file) for file in plan.files))


def _file_entry(plan: ReplicaPlan, file: FilePlan) -> FileEntry:
    name = file.name.rpartition("/")[2]
    path = join(plan.path, file.name)
    return FileEntry(name, path, FileKind(file.kind), file.base_offset, file.epoch, file.size_bytes, file.mtime_ms)


def _all_in_order(readable: list[FileTally], by_path: dict[str, FileTally]) -> list[FileTally]:
    """All segments in order. One that cannot be opened stands in its place by name; reading it reports the damage."""
    segments = list(readable)
    placed = {tally.plan.name for tally in readable}
    base_offsets = sorted(tally.plan.base_offset or 0 for tally in readable)
    for tally in by_path.values():
        if tally.kind is FileKind.SEGMENT and tally.plan.name not in placed:
            place = bisect_left(base_offsets, tally.plan.base_offset or 0)
            base_offsets.insert(place, tally.plan.base_offset or 0)
            segments.insert(place, tally)
    return segments


def _read_in_order(plan: ReplicaPlan, by_path: Mapping[str, FileTally]) -> frozenset[str]:
    """Segments in an object store whose batches earlier plans read, where these follow each other as their names do.

    Whether they do is asked of their first bytes otherwise, which is a request each.
    """
    if plan.medium != FAR:
        return frozenset()
    read = [(tally.plan.base_offset or 0, path, tally.last_batch) for path, tally in by_path.items() if _is_read(tally)]
    read.sort(key=lambda each: each[0])
    starts = [start for start, _, _ in read]
    ends = [key.last_offset + 1 for _, _, key in read if key is not None]
    are_apart = all(start < end for start, end in zip(starts, ends, strict=True))
    are_apart &= all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    return frozenset(path for _, path, _ in read) if are_apart else frozenset()


def _is_read(tally: FileTally) -> bool:
    return tally.kind is FileKind.SEGMENT and tally.last_batch is not None


def _is_fully_read(tally: FileTally) -> bool:
    """Whether earlier plans read the whole file."""
    return tally.plan.is_unchanged or tally.scanned_to == tally.plan.size_bytes
