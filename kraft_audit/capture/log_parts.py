"""Parts of a cluster's log, so that several tasks can read one cluster: `batches` and `records` by ranges of offsets.

Whether a batch belongs to the log depends on all batches before it: its offset and epoch have to follow theirs. So a
task frames the log of every replica from the beginning to the end of its part, which is quick, and decodes its part
alone. A snapshot belongs to the part that holds the last offset before its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kraft_audit.capture.continuity import offset_near
from kraft_audit.capture.plan import ClusterPlan, FilePlan, ReplicaPlan
from kraft_audit.tables.bronze import BATCHES, RECORDS
from kraft_codec.errors import CodecError
from kraft_codec.file_names import FileKind
from kraft_codec.storage.random_access import Storage, join

FRAMED: Final = 0.1
"""What framing a byte costs, of framing and decoding it (measured: 0.06 for `records`, 0.13 for `batches`)."""
FRAMED_LOGS_MAX: Final = 12
"""Each part frames every replica: beyond so many logs in all, further tasks take processors and save no time."""
MEDIUM_READ_IN_PARTS: Final = "directory"


@dataclass(frozen=True, slots=True)
class LogPart:
    """The batches of a log that begin in [from_offset, to_offset); None is no bound. Spark pickles it."""

    from_offset: int | None = None
    to_offset: int | None = None

    def holds(self, offset: int) -> bool:
        """Whether a batch that begins at the offset is in this part."""
        return not self.is_after(offset) and not self.ends_at(offset)

    def is_after(self, offset: int) -> bool:
        """Whether this part begins after the offset."""
        return self.from_offset is not None and offset < self.from_offset

    def ends_at(self, offset: int) -> bool:
        """Whether this part ends at the offset or before it."""
        return self.to_offset is not None and offset >= self.to_offset

    def holds_snapshot(self, end_offset: int) -> bool:
        """Whether the snapshot with this end offset, exclusive, is in this part."""
        return (self.from_offset is None or end_offset > self.from_offset) and (
            self.to_offset is None or end_offset <= self.to_offset
        )

    @property
    def cuts(self) -> tuple[int, ...]:
        return tuple(offset for offset in (self.from_offset, self.to_offset) if offset is not None)


WHOLE_LOG: Final = LogPart()


def uncovered(from_offset: int, to_offset: int, covered: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The offsets in [from_offset, to_offset) that none of the spans covers, as [from, to)."""
    left = []
    for start, end in sorted(covered):
        if start > from_offset:
            left.append((from_offset, min(start, to_offset)))
        from_offset = max(from_offset, end)
        if from_offset >= to_offset:
            break
    left.append((from_offset, to_offset))
    return [(start, end) for start, end in left if start < end]


def can_be_split(plan: ClusterPlan, table: str) -> bool:
    """Whether the rows of a table depend on a part of the log, and reading what comes before a part is cheap.

    Where one disk was captured twice, a row of `batches` says what the later capture no longer has, and the captures'
    order has to be proven by the whole log. Each task would unpack an archive, and fetch what is before its part.
    """
    if not plan.is_whole or any(replica.medium != MEDIUM_READ_IN_PARTS for replica in plan.replicas):
        return False
    if table == BATCHES.name:
        captures = {replica.capture_number for replica in plan.replicas}
        return len(captures) <= 1 and len({replica.identity for replica in plan.replicas}) == len(plan.replicas)
    return table == RECORDS.name


def log_parts(plan: ClusterPlan, count: int, storage_of: Callable[[str], Storage]) -> list[LogPart]:
    """At most so many parts that take about equally long, which together are the whole log.

    Args:
        plan: what to read, of which `can_be_split` is true.
        count: the most parts; there are fewer where several replicas would be framed for each.
        storage_of: gives the open storage of a replica's root.

    Returns:
        The parts in the order of the log; one part where no batch is found at which to cut.
    """
    count = min(count, max(1, FRAMED_LOGS_MAX // max(1, len(plan.replicas))))
    replica = max(plan.replicas, key=lambda each: sum(file.size_bytes for file in _segments(each)), default=None)
    cuts = [] if replica is None else sorted(set(_cuts(replica, count, storage_of(replica.root))))
    bounds = [None, *cuts, None]
    return [LogPart(*bounds[place : place + 2]) for place in range(len(bounds) - 1)]


def _segments(replica: ReplicaPlan) -> list[FilePlan]:
    segments = [file for file in replica.files if file.kind == FileKind.SEGMENT]
    return sorted(segments, key=lambda file: (file.base_offset or 0, file.name))


def _cuts(replica: ReplicaPlan, count: int, storage: Storage) -> list[int]:
    """Offsets of batches at which parts cost the same. Any offset is a right cut: a wrong one costs balance alone.

    A part that ends at the share x of the log frames that share, so later parts decode less.
    """
    segments = _segments(replica)
    total = sum(file.size_bytes for file in segments)
    left = 1 - FRAMED
    wanted = [int(total * (1 - left**number) / (1 - left**count)) for number in range(1, count)]
    cuts: list[int] = []
    begin = 0
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        inside = [position - begin for position in wanted if begin <= position < begin + segment.size_bytes]
        begin += segment.size_bytes
        if not inside:
            continue
        try:
            with storage.open(join(replica.path, segment.name), segment.to_position) as file:
                for position in inside:
                    offset = offset_near(file, position, at_least_offset=segment.base_offset or 0)
                    if offset is None and following is not None:
                        offset = following.base_offset
                    cuts += [] if offset is None else [offset]
        except CodecError:
            continue  # the tasks report it
    return cuts
