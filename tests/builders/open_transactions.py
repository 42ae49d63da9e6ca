"""Disks of a simulated cluster with a transaction that lasts for hours."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kraft_codec.file_names import snapshot_name
from kraft_codec.files.state_files import EpochEntry, format_leader_epoch_checkpoint, parse_leader_epoch_checkpoint
from kraft_codec.records.batch import Batch, read_batches, write_batch
from kraft_codec.records.record import write_metadata_value
from tests.builders.hourly_disks import HourlyDisks, snapshot_end

CHECKPOINT = "leader-epoch-checkpoint"


@dataclass
class DisksInATransaction(HourlyDisks):
    """A transaction begins and ends at shares of the longest log; what follows a mark has offsets one higher.

    Kafka makes no snapshot of what is in a transaction.
    """

    begins: float = 0.3
    ends: float = 0.8
    end_record: str = "EndTransactionRecord"

    def __post_init__(self) -> None:
        super().__post_init__()
        logs = [super(DisksInATransaction, self).batches(node) for each in self.captures for node in each.iterdir()]
        longest = [base_offset for base_offset, _ in max(logs, key=len)]
        self.marks = tuple(longest[int(len(longest) * share)] for share in (self.begins, self.ends))

    def moved(self, offset: int) -> int:
        """Where what was at an offset is now."""
        return offset + sum(offset >= mark for mark in self.marks)

    def small_files(self, source: Path) -> Iterator[tuple[Path, bytes]]:
        for place, content in super().small_files(source):
            end = snapshot_end(place)
            if place.name == CHECKPOINT:
                entries = parse_leader_epoch_checkpoint(content)
                moved = tuple(EpochEntry(each.epoch, self.moved(each.start_offset)) for each in entries)
                yield place, format_leader_epoch_checkpoint(moved)
            elif end is None or end <= self.marks[0]:
                yield place, content
            elif end > self.marks[1]:
                epoch = int(place.name.split("-")[1].split(".")[0])
                yield place.with_name(snapshot_name(self.moved(end - 1) + 1, epoch)), content

    def batches(self, source: Path) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        names = ("BeginTransactionRecord", self.end_record)
        fields = ({"name": "an import"}, {} if names[1].startswith("End") else {"reason": "it failed"})
        for base_offset, content in super().batches(source):
            for mark, name, values in zip(self.marks, names, fields, strict=True):
                if base_offset == mark and found:
                    found.append(_mark_after(found[-1][1], name, values))
            found.append((self.moved(base_offset), struct.pack(">q", self.moved(base_offset)) + content[8:]))
        return found


def _mark_after(content: bytes, name: str, values: dict[str, str]) -> tuple[int, bytes]:
    (last,) = (batch.header for batch in read_batches(content) if isinstance(batch, Batch))
    mark = write_batch(
        base_offset=last.last_offset + 1,
        leader_epoch=last.leader_epoch,
        timestamp_ms=last.max_timestamp_ms,
        records=[(None, write_metadata_value(name, 0, values))],
    )
    return last.last_offset + 1, mark
