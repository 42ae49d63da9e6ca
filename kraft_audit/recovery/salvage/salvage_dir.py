"""Writes what captured disks hold of lost records: lines of JSON, the batches as they lay on the disk, a manifest.

A folder for each partition. No (leader epoch, offset) is written twice, whichever disks hold it. manifest.json comes
last: a folder without one was not finished. What was read is never written to.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kraft_audit.losses.replica_disks import ReplicaLog
from kraft_audit.recovery.private_files import FOLDER_MODE, PrivateFile, WrittenFile, make_folder, write_private
from kraft_audit.recovery.restore.restore_kit import INTERNAL_TOPICS
from kraft_audit.recovery.salvage.held_batches import HeldBatch, aborted_transactions, held_batches, pieces
from kraft_audit.recovery.salvage.held_logs import SalvageableLoss, by_partition
from kraft_audit.recovery.salvage.manifest import (
    SALVAGE_MANIFEST,
    DamagedBytes,
    Salvage,
    SalvagedPartition,
    SourceLog,
    manifest,
    nothing_held,
)
from kraft_audit.recovery.salvage.producer_input import producer_command, write_producer_input
from kraft_audit.recovery.salvage.salvaged_records import (
    Marker,
    RecordSet,
    json_line,
    markers_of,
    record_line,
    records_of,
)
from kraft_audit.text.text_files import sync
from kraft_codec.errors import CodecError
from kraft_codec.file_names import printable, segment_name
from kraft_codec.records.batch import NO_PRODUCER, BatchHeader, RawRecord
from kraft_codec.storage.random_access import Storage

DECODED_RECORDS, MARKERS, ABORTED, PRODUCER_INPUT = (
    "records.jsonl",
    "markers.jsonl",
    "aborted.jsonl",
    "producer-input.txt",
)
_Claims = Sequence[tuple[SalvageableLoss, int]]
"""The losses whose records a log holds, by leader epoch, with the offset from which on."""
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,240}")


def salvage(
    storage: Storage, found: Sequence[SalvageableLoss], out: Path, about: dict[str, Any], bootstrap_server: str
) -> Salvage:
    """Writes the folder. Raises OSError.

    Args:
        out: a new or empty folder.
        about: what the manifest says of the cluster, and of where it was read.
        bootstrap_server: what the printed commands name.
    """
    make_folder(out)
    out.chmod(FOLDER_MODE)
    taken: set[str] = set()
    partitions = []
    for losses in by_partition(found):
        if not any(True for each in losses for _ in each.logs):
            partitions.append(nothing_held(losses))
            continue
        folder = _folder_name(losses[0], taken)
        taken.add(folder)
        partitions.append(_PartitionWriter(storage, losses, out, folder).written(bootstrap_server))
    salvaged = Salvage(str(out), tuple(partitions))
    write_private(out, SALVAGE_MANIFEST, [json.dumps(manifest(salvaged, about), indent=1).encode() + b"\n"])
    sync(out)
    return salvaged


def _folder_name(loss: SalvageableLoss, taken: set[str]) -> str:
    """`orders-0`; by the topic's id where that name is taken, or is no name that Kafka allows."""
    event = loss.loss.event
    name = f"{event.topic}-{event.partition}"
    if _TOPIC.fullmatch(event.topic) and name not in taken and name != SALVAGE_MANIFEST:
        return name
    return f"{hashlib.sha256(event.topic_id.encode()).hexdigest()[:16]}-{event.partition}"


class _PartitionWriter:
    """Writes the records of one partition from all disks that hold some, the surest first."""

    def __init__(self, storage: Storage, losses: Sequence[SalvageableLoss], out: Path, folder: str) -> None:
        self.storage, self.losses, self.out, self.folder = storage, losses, out, folder
        self.salvaged = replace(nothing_held(losses), folder=folder)
        self.markers: list[Marker] = []
        self.aborted: dict[tuple[int, int, int], None] = {}
        self._written = RecordSet()
        self._raw_batches: set[tuple[int, int, int]] = set()

    def written(self, bootstrap_server: str) -> SalvagedPartition:
        with ExitStack() as stack:
            names = (DECODED_RECORDS, MARKERS, ABORTED)
            files = [stack.enter_context(PrivateFile(self.out, f"{self.folder}/{name}")) for name in names]
            self.records_file, self.markers_file, aborted_file = files
            for log, losses in self._sources():
                self._read(log, losses)
            for producer_id, first, last in self.aborted:
                line = {"producer_id": producer_id, "first_offset": first, "last_offset": last}
                aborted_file.write(json_line(line))
            self.salvaged.files += [file.close() for file in files]
        self.salvaged.marker_count, self.salvaged.aborted_count = len(self.markers), len(self.aborted)
        self._cover_damage()
        self._write_producer_input(bootstrap_server)
        sync(self.out / self.folder)
        return self.salvaged

    def _cover_damage(self) -> None:
        """Marks damage that does not matter: of batches that another disk had, and of all where one disk is whole."""
        salvaged = self.salvaged
        damaged_paths = {each.file.rpartition("/")[0] for each in salvaged.damaged}
        whole_paths = {
            printable(each.log.path)
            for loss in self.losses
            for held in loss.held
            if held.is_whole
            for each in held.logs
        }
        has_whole = bool(whole_paths - damaged_paths)
        for each in salvaged.damaged:
            epoch, offset = each.leader_epoch, each.base_offset
            is_held = epoch is not None and offset is not None and (epoch, offset) in self._written
            each.is_covered = has_whole or is_held

    def _write_producer_input(self, bootstrap_server: str) -> None:
        topic, salvaged = self.losses[0].loss.event.topic, self.salvaged
        if not salvaged.record_count or topic in INTERNAL_TOPICS:
            return
        records = self.out / self.folder / DECODED_RECORDS
        name = f"{self.folder}/{PRODUCER_INPUT}"
        written, salvaged.line_count, salvaged.left_out = write_producer_input(
            self.out, name, records, self.markers, self.aborted
        )
        salvaged.files.append(written)
        if salvaged.line_count:
            salvaged.command = producer_command(topic, bootstrap_server, str(self.out / name))

    def _sources(self) -> Iterator[tuple[ReplicaLog, _Claims]]:
        """Every log once, with the losses whose records it holds, and from which offset on."""
        for log in dict.fromkeys(held.log for each in self.losses for held in each.logs):
            yield log, [(each, held.from_offset) for each in self.losses for held in each.logs if held.log == log]

    def _read(self, log: ReplicaLog, claims: _Claims) -> None:
        first = min(from_offset for _, from_offset in claims)
        source = SourceLog(log.broker_id, log.directory_id, printable(log.path), log.log_end_offset, log.leader_epoch)
        with ExitStack() as stack:
            raw = _RawFile(self.out, self._raw_name(log.broker_id, first), stack)
            try:
                for batch in held_batches(self.storage, log.path, first):
                    self._take(batch, log, claims, source, raw)
                for each in aborted_transactions(self.storage, log.path, first):
                    self.aborted[each.producer_id, each.first_offset, each.last_offset] = None
            except CodecError as problem:  # the file was cut or vanished meanwhile
                self._note(log, None, problem.position, 0, None, None, problem)
            if (written := raw.closed()) is not None:
                source.raw_file = written.name
                self.salvaged.files.append(written)
        self.salvaged.sources.append(source)

    def _raw_name(self, broker_id: int, first: int) -> str:
        """A name that kafka-dump-log takes for a segment."""
        earlier = sum(source.broker_id == broker_id for source in self.salvaged.sources)
        folder = f"broker-{broker_id}" if not earlier else f"broker-{broker_id}.{earlier + 1}"
        return f"{self.folder}/{folder}/{segment_name(first)}"

    def _take(
        self,
        batch: HeldBatch,
        log: ReplicaLog,
        claims: _Claims,
        source: SourceLog,
        raw: _RawFile,
    ) -> None:
        header = batch.header
        if batch.damage is not None or header is None:
            position = raw.position
            for piece in pieces(self.storage, log.path, batch):
                raw.write(piece)
            problem = CodecError(batch.damage, batch.position, batch.detail) if batch.damage else None
            self._note(log, batch, batch.position, batch.size_bytes, raw.name, position, problem)
            return
        try:
            records = records_of(batch.octets, header)
            markers = list(markers_of(header, records)) if header.is_control else []
        except CodecError as problem:
            place = (header.leader_epoch, header.base_offset, header.crc)
            if _claimed_by(claims, header.leader_epoch, header.last_offset) and place not in self._raw_batches:
                self._raw_batches.add(place)
                position = raw.write(batch.octets)
                self._note(log, batch, batch.position, batch.size_bytes, raw.name, position, problem)
            return
        wanted = [
            (record, loss)
            for record in records
            if (loss := _claimed_by(claims, header.leader_epoch, record.offset)) is not None
            and (header.leader_epoch, record.offset) not in self._written
        ]
        if not wanted:
            return
        raw.write(batch.octets)
        source.batch_count += 1
        offsets = {record.offset for record, _ in wanted}
        for marker in markers:
            if marker.offset in offsets:
                self.markers.append(marker)
                self.markers_file.write(marker.line)
        for record, loss in wanted:
            self._written.add(header.leader_epoch, record.offset)
            if not header.is_control:
                self._write(header, record, loss)
                source.record_count += 1

    def _write(self, header: BatchHeader, record: RawRecord, loss: SalvageableLoss) -> None:
        salvaged, event_epoch = self.salvaged, loss.loss.event.leader_epoch
        self.records_file.write(record_line(header, record))
        salvaged.record_counts[event_epoch] += 1
        salvaged.ranges[event_epoch].add(header.leader_epoch, record.offset)
        if header.producer_id != NO_PRODUCER:
            producer = (header.producer_id, header.producer_epoch)
            salvaged.producers[producer] = salvaged.producers.get(producer, 0) + 1

    def _note(
        self,
        log: ReplicaLog,
        batch: HeldBatch | None,
        position: int,
        size_bytes: int,
        raw_file: str | None,
        raw_position: int | None,
        problem: CodecError | None,
    ) -> None:
        header = None if batch is None else batch.header
        name = log.path if batch is None else f"{log.path}/{batch.file}"
        self.salvaged.damaged.append(
            DamagedBytes(
                log.broker_id,
                printable(name),
                position,
                size_bytes,
                raw_file,
                raw_position,
                "" if problem is None else problem.reason.value,
                "" if problem is None else problem.detail,
                None if header is None else header.base_offset,
                None if header is None else header.leader_epoch,
            )
        )


class _RawFile:
    """The batches of one disk as they lay on it; made with its first bytes."""

    def __init__(self, out: Path, name: str, stack: ExitStack) -> None:
        self.out, self.name, self._stack = out, name, stack
        self._file: PrivateFile | None = None

    @property
    def position(self) -> int:
        return 0 if self._file is None else self._file.size_bytes

    def write(self, content: bytes) -> int:
        if self._file is None:
            self._file = self._stack.enter_context(PrivateFile(self.out, self.name))
        return self._file.write(content)

    def closed(self) -> WrittenFile | None:
        if self._file is None:
            return None
        written = self._file.close()
        sync((self.out / self.name).parent)
        return written


def _claimed_by(claims: _Claims, leader_epoch: int, offset: int) -> SalvageableLoss | None:
    """The first loss that a record belongs to; None where it belongs to none."""
    return next(
        (each for each, first in claims if leader_epoch < each.loss.event.leader_epoch and offset >= first), None
    )
