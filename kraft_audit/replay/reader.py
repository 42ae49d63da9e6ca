"""One replica's log: its segments in order, from where an earlier plan left off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from kraft_audit.replay.continuity import Neighbour
from kraft_audit.replay.damage import DamageLog, FileTally
from kraft_audit.replay.plan import ReplicaPlan
from kraft_audit.replay.scanner import Chunk, Scanner, ScanSettings, neighbour
from kraft_audit.replay.segments import first_header, starting_point
from kraft_codec.random_access import Storage, join

EPOCH_STARTS_MAX: Final = 100_000


class LogReader:
    """Reads the log of one replica by chunks.

    `first_offset` is where its log begins, `reads_from_offset` where this reading does: below it nothing is known to be
    there or gone. Both are None where there is no segment. `last_crc` and `last_timestamp_ms` are those of the last
    batch that was kept.
    """

    def __init__(
        self,
        plan: ReplicaPlan,
        storage: Storage,
        damage: DamageLog,
        tallies: dict[str, FileTally],
        settings: ScanSettings,
    ) -> None:
        self.plan = plan
        self.storage = storage
        start = starting_point(plan, storage, tallies, damage)
        self.segments = start.segments
        self.is_resumed = start.is_resumed
        self.first_offset = start.first_offset
        self.reads_from_offset = start.state.next_offset if start.is_resumed else start.first_offset
        self.last_timestamp_ms = start.last_timestamp_ms
        self.last_crc = start.last_crc
        self.scanner = Scanner(storage, damage, settings, start.state)
        self.epoch_starts: list[tuple[int, int]] = []
        """(epoch, first offset of it) of the epochs that this reading saw begin, at most EPOCH_STARTS_MAX."""
        self._read_epoch = start.state.epoch if start.is_resumed else None

    @property
    def end_offset(self) -> int | None:
        """The offset after the last batch kept so far; of a log without one, its base offset."""
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

    def chunks(self) -> Iterator[Chunk]:
        """The kept batches of all segments, in order."""
        has_read = self.is_resumed
        for number, segment in enumerate(self.segments):
            if segment.is_done:
                continue
            path = join(self.plan.path, segment.tally.plan.name)
            for chunk in self.scanner.scan(path, segment.tally, self._first_of(number + 1)):
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
        starts = np.flatnonzero(np.concatenate(([epoch[0] != self._read_epoch], epoch[1:] != epoch[:-1])))
        self._read_epoch = int(epoch[-1])
        room = EPOCH_STARTS_MAX - len(self.epoch_starts)
        self.epoch_starts += [(int(epoch[row]), int(chunk.base_offset[row])) for row in starts[:room].tolist()]

    def _first_of(self, number: int) -> Neighbour | None:
        """The first header of a segment, where there is such a segment."""
        if number >= len(self.segments):
            return None
        return neighbour(first_header(self.plan, self.storage, self.segments[number].tally))
