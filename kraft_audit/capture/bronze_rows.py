"""Rows of the bronze tables: what reading a cluster finds, as `captures`, `files`, `batches`, `records` and more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kraft_audit.capture.decoded_records import NOT_DECODED, DecodedBatches, Records, reason_of, value_hash
from kraft_audit.capture.log_facts import LogFacts
from kraft_audit.capture.plan import ClusterPlan, Identity, ReplicaPlan, Selection
from kraft_audit.capture.presence import PRESENT, KnownWindow, Presence, PresenceChange
from kraft_audit.capture.reconcile import Slice, Window
from kraft_audit.capture.replica import Replica, replica_columns
from kraft_audit.capture.scanner import Chunk, DamageRow, FileTally, ValueHash
from kraft_audit.tables.bronze import BATCHES, CAPTURES, DECODE_ERRORS, FILES, TRUNCATED
from kraft_audit.tables.contract import build_batch, build_rows
from kraft_audit.tables.number_arrays import Rows
from kraft_codec.errors import Reason, kafka_verdict
from kraft_codec.file_names import FileKind, printable
from kraft_codec.kernels.codes import OK
from kraft_codec.records.compression import Codec

LOG_SOURCE: Final = "log"
REFUSED_REMEMBERED: Final = 100_000
"""A refused batch has one row for each replica, not for each capture, as far as this many are remembered."""
TableRows = tuple[str, pa.RecordBatch]
_SKIPS: Final = "skips control records of types that it does not know"
_CODECS: Final = pa.array([*(codec.name.lower() for codec in Codec), *["unknown"] * (8 - len(Codec))])


class BronzeRows:
    """Makes the rows of one plan, of the tables and replicas that are wanted; `facts` learn who holds which batch."""

    def __init__(
        self,
        plan: ClusterPlan,
        replicas: Sequence[Replica],
        tables: frozenset[str],
        selection: Selection,
        keyed_hash: ValueHash,
        facts: LogFacts | None = None,
    ) -> None:
        self.plan = plan
        self.replicas = replicas
        self.tables = tables
        self.selection = selection
        self.keyed_hash = keyed_hash
        self.facts = facts
        self.shared = [replica.source_columns() for replica in replicas]
        self._refused: list[pa.RecordBatch] = []
        self._refused_seen: set[tuple[Identity, str, int, int]] = set()

    def is_selected(self, replica: Replica) -> bool:
        """Whether rows about this replica are wanted."""
        return self.selection.node_ids is None or replica.plan.node_id in self.selection.node_ids

    def planned_damages(self) -> Iterator[TableRows]:
        """What the plan itself could not list."""
        if DECODE_ERRORS.name not in self.tables or not self.plan.damages or self.selection.node_ids is not None:
            return
        for damage in self.plan.damages:
            reason = Reason(damage.reason)
            verdict = f"Kafka {kafka_verdict(reason, None)}"
            row = DamageRow(None, damage.position, damage.length_bytes, None, reason, damage.detail, verdict)
            unknown_replica = ReplicaPlan(
                damage.root, damage.path, "", 0, self.plan.captured_at_ms, None, None, None, files=()
            )
            shared = replica_columns(self.plan.cluster_id, unknown_replica, self.plan.number)
            yield DECODE_ERRORS.name, damage_batch([row], shared)

    def damages(self) -> Iterator[TableRows]:
        """The damage noted since the last call, replica by replica."""
        for replica, shared in zip(self.replicas, self.shared, strict=True):
            rows = replica.damage.drain()
            if rows and self.is_selected(replica) and DECODE_ERRORS.name in self.tables:
                yield DECODE_ERRORS.name, damage_batch(rows, shared)

    def take_refused(self, replica: Replica, chunk: Chunk, source: str = LOG_SOURCE) -> None:
        """Keeps the batches of a chunk that framing or continuity refused, for `refused`."""
        if not chunk.refused or not self._needs_batches or not self.is_selected(replica):
            return
        refusals = [
            (row, str(finding.reason))
            for finding in chunk.refused
            for row in range(finding.row, finding.row + finding.row_count)
            if self._is_new(replica, chunk, row)
        ]
        if refusals:
            rows, reasons = zip(*refusals, strict=True)
            counts = np.full(len(rows), NOT_DECODED, np.int64)
            self._refused.append(self._batches(replica, chunk, np.array(rows), source, pa.array(reasons), counts))

    def refused(self) -> Iterator[TableRows]:
        """Rows of `batches` for what was refused since the last call."""
        taken, self._refused = self._refused, []
        yield from self._given(taken)

    def undecodable(self, replica: Replica, records: Records) -> None:
        """Notes records that alone cannot be decoded, once for each distinct batch."""
        index = records.index
        for row in np.flatnonzero(index.status != OK).tolist():
            number, version = int(index.api_key[row]), int(index.version[row])
            kind = "control type" if index.is_control[row] else "api key"
            detail = f"{kind} {number}, version {version}" if number >= 0 else "a frame version that is not 1"
            replica.damage.add(
                records.chunk.tally,
                records.reason(row),
                detail,
                position=records.file_position(row),
                length_bytes=max(int(index.value_length[row]), 0),
                base_offset=int(index.offset[row]),
                value_hash=value_hash(index, row, self.keyed_hash),
                verdict=_SKIPS if records.reason(row) is Reason.UNKNOWN_CONTROL_TYPE else None,
            )

    def unsound(self, slices: Sequence[Slice], decoded: DecodedBatches) -> None:
        """Refuses batches whose CRC is right and whose content is not, in every replica that holds them."""
        unsound = np.flatnonzero(decoded.status != OK)
        if not len(unsound):
            return
        for part in slices:
            for place in np.flatnonzero(np.isin(part.numbers, unsound)).tolist():
                number = int(part.numbers[place])
                self.refuse(part.replica, part.chunk, int(part.rows[place]), decoded, number)

    def refuse(self, replica: Replica, chunk: Chunk, row: int, decoded: DecodedBatches, number: int) -> None:
        """Moves one batch from decoded to quarantined, and says why."""
        index, tally = chunk.index, chunk.tally
        start, size = int(index.position[row]), int(index.size_bytes[row])
        tally.bytes_decoded -= size
        tally.bytes_quarantined += size
        tally.batch_count -= 1
        tally.record_count -= max(int(index.record_count[row]), 0)
        error_at = chunk.file_position + start + int(decoded.error_in_batch[number])
        replica.damage.add(
            tally,
            reason_of(int(decoded.status[number])),
            f"the CRC is right, the content is not: byte {error_at} of the file",
            position=chunk.file_position + start,
            length_bytes=size,
            base_offset=int(index.base_offset[row]),
            value_hash=self.keyed_hash(chunk.buffer[start : start + size].data),
        )

    def batches(
        self, window: Window | None, known: KnownWindow | None, presence: Presence, decoded: DecodedBatches
    ) -> Iterator[TableRows]:
        """Rows of `batches` for what a window brings and takes."""
        if not self._needs_batches:
            return
        if self.facts is not None and window is not None:
            self.facts.begin_window(len(window.batches))
        for changes in presence.changes(window, known):
            if self.is_selected(changes.replica):
                yield from self._given(self._truncated(changes, decoded))
                yield from self._present(changes, decoded)

    @property
    def _needs_batches(self) -> bool:
        return self.facts is not None or BATCHES.name in self.tables

    def _given(self, batches: Iterable[pa.RecordBatch]) -> Iterator[TableRows]:
        """Rows of `batches` that stand for themselves, for whoever needs them."""
        for batch in batches:
            if self.facts is not None:
                self.facts.add_rows(batch)
            if BATCHES.name in self.tables and batch.num_rows:
                yield BATCHES.name, batch

    def _truncated(self, changes: PresenceChange, decoded: DecodedBatches) -> Iterator[pa.RecordBatch]:
        replica = changes.replica
        for part, numbers in changes.truncated:
            rows = part.rows[np.searchsorted(part.numbers, numbers)]
            yield self._judged(replica, part.chunk, rows, LOG_SOURCE, decoded, numbers, TRUNCATED)
        if changes.truncated_known is not None:
            yield self._truncated_known(replica, changes.truncated_known)

    def _present(self, changes: PresenceChange, decoded: DecodedBatches) -> Iterator[TableRows]:
        """Rows of the batches that a replica has now; of those that another one has as well the facts need none."""
        replica, held = changes.replica, changes.part
        if held is None or not len(changes.places):
            return
        chunk, rows, numbers = held.chunk, held.rows[changes.places], held.numbers[changes.places]

        def rows_at(part: slice) -> pa.RecordBatch:
            return self._judged(replica, chunk, rows[part], LOG_SOURCE, decoded, numbers[part])

        if BATCHES.name in self.tables:
            whole = rows_at(slice(None))
            yield BATCHES.name, whole

            def rows_at(part: slice) -> pa.RecordBatch:
                return whole.slice(part.start, part.stop - part.start)

        if self.facts is not None:
            positions = chunk.index.position[rows].astype(np.int64) + chunk.file_position
            of_disk = {**self.shared[replica.number], "file_name": printable(chunk.tally.plan.name)}
            self.facts.add(numbers, positions, decoded.status[numbers] == OK, of_disk, rows_at)

    def copy_batches(self, replica: Replica, chunk: Chunk, source: str, decoded: DecodedBatches) -> Iterator[TableRows]:
        """Rows of `batches` for a chunk of a snapshot."""
        if self._needs_batches and self.is_selected(replica):
            yield from self._given([self._judged(replica, chunk, chunk.rows, source, decoded, np.arange(len(chunk)))])

    def _judged(
        self,
        replica: Replica,
        chunk: Chunk,
        rows: Rows,
        source: str,
        decoded: DecodedBatches,
        numbers: Rows,
        status: str = PRESENT,
    ) -> pa.RecordBatch:
        """Rows of `batches` for the batches at `rows`, which go by `numbers` in what decoding said of them."""
        codes = decoded.status[numbers]
        reasons = pa.nulls(len(numbers), pa.string())
        if codes.any():
            reasons = pa.array([None if code == OK else str(reason_of(code)) for code in codes.tolist()], pa.string())
        return self._batches(replica, chunk, rows, source, reasons, decoded.noop_count[numbers], status)

    def _batches(
        self,
        replica: Replica,
        chunk: Chunk,
        rows: Rows,
        source: str,
        reasons: pa.Array,
        noop_count: Rows,
        status: str = PRESENT,
    ) -> pa.RecordBatch:
        index = chunk.index
        return build_batch(
            BATCHES,
            {
                **self.shared[replica.number],
                "source": source,
                "base_offset": index.base_offset[rows],
                "last_offset": index.last_offset[rows],
                "leader_epoch": index.leader_epoch[rows],
                "crc": index.crc[rows].astype(np.int64),
                "magic": index.magic[rows],
                "attributes": index.attributes[rows],
                "is_control": index.is_control[rows],
                "codec": _CODECS.take(pa.array(index.codec[rows])),
                "base_timestamp_ms": index.base_timestamp_ms[rows],
                "max_timestamp_ms": index.max_timestamp_ms[rows],
                "producer_id": index.producer_id[rows],
                "producer_epoch": index.producer_epoch[rows],
                "base_sequence": index.base_sequence[rows],
                "record_count": index.record_count[rows],
                "noop_count": pa.array(noop_count, pa.int32(), mask=noop_count == NOT_DECODED),
                "file_name": printable(chunk.tally.plan.name),
                "position": index.position[rows] + chunk.file_position,
                "size_bytes": index.size_bytes[rows],
                "valid": reasons.is_null(),
                "reason": reasons,
                "status": status,
            },
            len(rows),
        )

    def _truncated_known(self, replica: Replica, known: pa.Table) -> pa.RecordBatch:
        """The rows of an earlier plan again, now with status truncated and this capture's columns."""
        now = {**self.shared[replica.number], "status": TRUNCATED}
        columns = [
            pa.repeat(pa.scalar(now[column.name], column.type), known.num_rows)
            if column.name in now
            else known.column(column.name).combine_chunks().cast(column.type)
            for column in BATCHES.columns
        ]
        return pa.RecordBatch.from_arrays(columns, schema=BATCHES.schema)

    def _is_new(self, replica: Replica, chunk: Chunk, row: int) -> bool:
        index = chunk.index
        position = chunk.file_position + int(index.position[row])
        key = (replica.plan.identity, chunk.tally.plan.name, position, int(index.crc[row]))
        if key in self._refused_seen:
            return False
        if len(self._refused_seen) < REFUSED_REMEMBERED:
            self._refused_seen.add(key)
        return True


def damage_batch(rows: Sequence[DamageRow], shared: dict[str, Any]) -> pa.RecordBatch:
    """Rows of `decode_errors` of one replica; `shared` are the columns of the replica."""
    own = {column.name: [getattr(row, column.name) for row in rows] for column in fields(DamageRow)}
    return build_batch(DECODE_ERRORS, {**shared, **own}, len(rows))


def captures_batch(replicas: Sequence[Replica]) -> pa.RecordBatch:
    """One row of `captures` for each replica."""
    return build_rows(CAPTURES, [_capture_row(replica) for replica in replicas])


def _capture_row(replica: Replica) -> dict[str, Any]:
    tallies = list(replica.tallies.values())
    segments = [tally for tally in tallies if tally.kind is FileKind.SEGMENT]
    log = replica.log
    snapshot_end_offset, snapshot_epoch = replica.snapshots[-1] if replica.snapshots else (None, None)
    epochs = replica.leader_epochs
    return {
        **replica.source_columns(),
        "medium": replica.plan.medium,
        "accepted": replica.is_accepted,
        "meta_version": replica.meta.version if replica.meta else None,
        "meta_cluster_id": replica.meta.cluster_id if replica.meta else None,
        **_quorum_state_columns(replica),
        "log_start_offset": log.first_offset if log else None,
        "log_end_offset": log.end_offset if log else None,
        "last_epoch": log.last_epoch if log else None,
        "last_crc": log.last_crc if log else None,
        "last_timestamp_ms": log.last_timestamp_ms if log else None,
        "reachable_end_offset": log.reachable_end_offset if log else None,
        "snapshot_end_offset": snapshot_end_offset,
        "snapshot_epoch": snapshot_epoch,
        "snapshot_count": len(replica.snapshots),
        "leader_epoch_checkpoint": None
        if epochs is None
        else [{"epoch": entry.epoch, "start_offset": entry.start_offset} for entry in epochs],
        "producer_state_offset": replica.plan.producer_state_offset,
        "deleted_snapshot_end_offset": replica.plan.deleted_snapshot_end,
        "index_trimmed": replica.plan.is_index_trimmed,
        "clean_shutdown": any(tally.kind is FileKind.CLEAN_SHUTDOWN for tally in tallies),
        "further_directory_ids": list(replica.plan.further_directory_ids),
        "held_end_offset": replica.plan.held_end_offset,
        "configuration": replica.plan.configuration or None,
        "rescue": None if replica.rescue is None else replica.rescue.to_json(),
        "doubt": replica.doubt,
        "batch_count": sum(tally.batch_count for tally in segments),
        "record_count": sum(tally.record_count for tally in segments),
        "bytes_seen": sum(tally.plan.size_bytes for tally in tallies),
        "bytes_decoded": sum(tally.bytes_decoded for tally in tallies),
        "bytes_quarantined": sum(tally.bytes_quarantined for tally in tallies),
        "bytes_unread": sum(tally.bytes_unread for tally in tallies),
        "damage_count": replica.damage.count,
        "read_from_ms": replica.read_from_ms,
        "read_to_ms": replica.read_to_ms,
    }


def _quorum_state_columns(replica: Replica) -> dict[str, Any]:
    state = replica.quorum_state
    voters = state.current_voters if state and state.data_version == 0 else None
    return {
        "data_version": state.data_version if state else None,
        "leader_id": state.leader_id if state else None,
        "leader_epoch": state.leader_epoch if state else None,
        "quorum_state_ms": replica.quorum_state_ms if state else None,
        "voted_id": state.voted_id if state else None,
        "voted_directory_id": state.voted_directory_id if state else None,
        "current_voters": None if voters is None else list(voters),
    }


def files_batch(replicas: Sequence[Replica]) -> pa.RecordBatch:
    """One row of `files` for each planned file, and for each that an earlier plan read and that is gone.

    What was left aside has none: the next plan takes it as it was read last, or as new.
    """
    rows = []
    for replica in replicas:
        shared = replica.source_columns()
        tallies = [tally for tally in replica.tallies.values() if not tally.is_left_aside]
        rows += [_file_row(shared, tally, is_present=True) for tally in tallies]
        rows += [_file_row(shared, FileTally.resumed(file), is_present=False) for file in replica.plan.gone_files]
    return build_rows(FILES, rows)


def _file_row(shared: dict[str, Any], tally: FileTally, *, is_present: bool) -> dict[str, Any]:
    last = tally.last_batch
    return {
        **shared,
        "file_name": printable(tally.plan.name),
        "kind": str(tally.plan.kind),
        "base_offset": tally.plan.base_offset,
        "epoch": tally.plan.epoch,
        "present": is_present,
        "size_bytes": tally.plan.size_bytes,
        "mtime_ms": tally.plan.mtime_ms,
        "scanned_to": tally.scanned_to,
        "last_position": last.position if last else None,
        "last_base_offset": last.base_offset if last else None,
        "last_offset": last.last_offset if last else None,
        "last_leader_epoch": last.leader_epoch if last else None,
        "last_crc": last.crc if last else None,
        "batch_count": tally.batch_count,
        "record_count": tally.record_count,
        "damage_count": tally.damage_count,
        "bytes_seen": tally.plan.size_bytes,
        "bytes_decoded": tally.bytes_decoded,
        "bytes_quarantined": tally.bytes_quarantined,
        "bytes_unread": tally.bytes_unread,
    }
