"""What was written of lost records, and the manifest that says it: events, bounds, holders, counts, hashes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from kraft_audit.recovery.private_files import WrittenFile
from kraft_audit.recovery.salvage.held_logs import HeldLog, SalvageableLoss
from kraft_audit.recovery.salvage.salvaged_records import RecordSet
from kraft_codec.file_names import printable

FORMAT: Final = "kraft-audit salvage 1"
SALVAGE_MANIFEST: Final = "manifest.json"


@dataclass(slots=True)
class SourceLog:
    """One captured log that was read, with what of it was written, and where its bytes are."""

    broker_id: int
    directory_id: str | None
    path: str
    log_end_offset: int | None
    leader_epoch: int | None
    raw_file: str | None = None
    batch_count: int = 0
    record_count: int = 0


@dataclass(slots=True)
class DamagedBytes:
    """Bytes that were written as they lay on the disk and could not be decoded: where they were, where they are, why.

    `is_covered`: another disk had the batch undamaged.
    """

    broker_id: int
    file: str
    position: int
    size_bytes: int
    raw_file: str | None
    raw_position: int | None
    reason: str
    detail: str
    base_offset: int | None
    leader_epoch: int | None
    is_covered: bool = False


@dataclass(slots=True)
class SalvagedPartition:
    """What was written of one partition; `folder` is None where no captured disk holds any of it.

    `producers`: (producer id, epoch) → records. `ranges` and `record_counts` are by the leader epoch of the loss.
    """

    folder: str | None
    losses: Sequence[SalvageableLoss]
    sources: list[SourceLog] = field(default_factory=list)
    damaged: list[DamagedBytes] = field(default_factory=list)
    files: list[WrittenFile] = field(default_factory=list)
    producers: dict[tuple[int, int], int] = field(default_factory=dict)
    ranges: dict[int, RecordSet] = field(default_factory=dict)
    record_counts: dict[int, int] = field(default_factory=dict)
    marker_count: int = 0
    aborted_count: int = 0
    line_count: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    command: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is damaged that no other disk had undamaged."""
        return all(each.is_covered for each in self.damaged)

    @property
    def record_count(self) -> int:
        return sum(self.record_counts.values())

    @property
    def producer_ids(self) -> list[int]:
        return sorted({producer_id for producer_id, _ in self.producers})


@dataclass(frozen=True, slots=True)
class Salvage:
    """What was written below `out`."""

    out: str
    partitions: tuple[SalvagedPartition, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all that disks were said to hold could be read."""
        losses = (loss for partition in self.partitions for loss in partition.losses)
        return all(partition.is_whole for partition in self.partitions) and not any(each.missing for each in losses)


def nothing_held(losses: Sequence[SalvageableLoss]) -> SalvagedPartition:
    """A partition before anything is written of it."""
    epochs = [each.loss.event.leader_epoch for each in losses]
    ranges = {epoch: RecordSet() for epoch in epochs}
    return SalvagedPartition(None, losses, ranges=ranges, record_counts=dict.fromkeys(epochs, 0))


def manifest(salvaged: Salvage, about: dict[str, Any]) -> dict[str, Any]:
    """The manifest. `about` is what it says of the cluster, and of where it was read."""
    return {
        "format": FORMAT,
        "written_ms": time.time_ns() // 1_000_000,
        **about,
        "is_whole": salvaged.is_whole,
        "partitions": [_partition(each) for each in salvaged.partitions],
    }


def _partition(each: SalvagedPartition) -> dict[str, Any]:
    event = each.losses[0].loss.event
    by_id: dict[int, dict[str, Any]] = {}
    for (producer_id, epoch), count in sorted(each.producers.items()):
        entry = by_id.setdefault(producer_id, {"producer_id": producer_id, "producer_epochs": [], "record_count": 0})
        entry["producer_epochs"].append(epoch)
        entry["record_count"] += count
    return {
        "folder": each.folder,
        **{name: getattr(event, name) for name in ("topic", "topic_id", "partition")},
        "record_count": each.record_count,
        "marker_count": each.marker_count,
        "aborted_count": each.aborted_count,
        "producers": list(by_id.values()),
        "losses": [_loss(loss, each) for loss in each.losses],
        "sources": [asdict(source) for source in each.sources],
        "damaged": [asdict(damaged) for damaged in each.damaged],
        "files": [asdict(file) for file in each.files],
        "producer_input": {"line_count": each.line_count, "left_out": each.left_out, "command": each.command},
    }


def _loss(each: SalvageableLoss, partition: SalvagedPartition) -> dict[str, Any]:
    return {
        **loss_document(each),
        "record_count": partition.record_counts[each.loss.event.leader_epoch],
        "ranges": partition.ranges[each.loss.event.leader_epoch].ranges,
    }


def loss_document(each: SalvageableLoss) -> dict[str, Any]:
    """What is said of a loss to programs: the event, its grade and bounds, who holds it and what was captured."""
    event = each.loss.event
    names = ("topic", "topic_id", "partition", "leader_epoch", "offset", "timestamp_ms", "leader_id")
    return {
        **{name: getattr(event, name) for name in names},
        "label": event.label.value,
        "grade": each.loss.grade.value,
        "from_offset": each.from_offset,
        "to_offset": each.to_offset,
        "bound": each.basis,
        "is_exact": each.is_exact,
        "size_bytes": each.size_bytes,
        "holders": [_holder(held) for held in each.held],
        "missing": [each.missing_text(held) for held in each.missing],
    }


def _holder(held: HeldLog) -> dict[str, Any]:
    return {
        "broker_id": held.holder.broker_id,
        "directory_id": held.holder.directory_id or None,
        "is_witness": held.holder.is_witness,
        "state": held.holder.now.value,
        "copy": held.state.value,
        "size_bytes": held.size_bytes,
        "path": None if held.path is None else printable(held.path),
    }
