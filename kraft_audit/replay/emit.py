"""Turns what reading a cluster finds into rows of the bronze tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.replay.continuity import Rows
from kraft_audit.replay.damage import DamageRow, replica_columns
from kraft_audit.replay.decode import DecodedBatches, Records, reason_of
from kraft_audit.replay.plan import ClusterPlan, ReplicaPlan, Selection
from kraft_audit.replay.presence import Identity, KnownWindow, News, Presence
from kraft_audit.replay.reconcile import Slice, Window
from kraft_audit.replay.replica import Replica
from kraft_audit.replay.rows import LOG, TRUNCATED, batches_batch, damage_batch, reasons_of, value_hash
from kraft_audit.replay.scanner import Chunk, ValueHash
from kraft_codec.errors import Reason
from kraft_codec.kernels.codes import OK
from kraft_codec.tables import BATCHES, DECODE_ERRORS
from kraft_codec.verdicts import kafka_verdict

REFUSED_REMEMBERED: Final = 100_000
"""Refused batches are told once a replica, not once a capture, as far as this many are remembered."""
_SKIPS: Final = "skips control records of types that it does not know"
TableRows = tuple[str, pa.RecordBatch]


class Emitter:
    """Makes the rows of one plan, of the tables and replicas that are wanted."""

    def __init__(
        self,
        plan: ClusterPlan,
        replicas: Sequence[Replica],
        tables: frozenset[str],
        selection: Selection,
        keyed_hash: ValueHash,
    ) -> None:
        self.plan = plan
        self.replicas = replicas
        self.tables = tables
        self.selection = selection
        self.keyed_hash = keyed_hash
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
            nobody = ReplicaPlan(damage.root, damage.path, "", 0, self.plan.captured_at_ms, None, None, None, files=())
            shared = replica_columns(self.plan.cluster_id, nobody, self.plan.number)
            yield DECODE_ERRORS.name, damage_batch([row], shared)

    def damages(self) -> Iterator[TableRows]:
        """The damage noted since the last call, replica by replica."""
        for replica, shared in zip(self.replicas, self.shared, strict=True):
            rows = replica.damage.drain()
            if rows and self.is_selected(replica) and DECODE_ERRORS.name in self.tables:
                yield DECODE_ERRORS.name, damage_batch(rows, shared)

    def take_refused(self, replica: Replica, chunk: Chunk, source: str = LOG) -> None:
        """Keeps the batches of a chunk that framing or continuity refused, for `refused`."""
        if not chunk.refused or BATCHES.name not in self.tables or not self.is_selected(replica):
            return
        rows, reasons = [], []
        for finding in chunk.refused:
            for row in range(finding.row, finding.row + finding.row_count):
                if self._is_new(replica, chunk, row):
                    rows.append(row)
                    reasons.append(str(finding.reason))
        if rows:
            self._refused.append(
                self._batches(
                    replica,
                    chunk,
                    np.array(rows, np.int64),
                    source=source,
                    valid=np.zeros(len(rows), bool),
                    reasons=pa.array(reasons, pa.string()),
                    noop_count=np.full(len(rows), -1, np.int64),
                )
            )

    def refused(self) -> Iterator[TableRows]:
        """Rows of `batches` for what was refused since the last call."""
        taken, self._refused = self._refused, []
        yield from ((BATCHES.name, batch) for batch in taken)

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
        if BATCHES.name not in self.tables:
            return
        for news in presence.news(window, known):
            if self.is_selected(news.replica):
                yield from ((BATCHES.name, batch) for batch in self._news(news, decoded) if batch.num_rows)

    def _news(self, news: News, decoded: DecodedBatches) -> Iterator[pa.RecordBatch]:
        for part, numbers in news.truncated:
            rows = part.rows[np.searchsorted(part.numbers, numbers)]
            yield self._distinct(news.replica, part, rows, numbers, decoded, TRUNCATED)
        if news.truncated_known is not None:
            yield self._truncated_known(news.replica, news.truncated_known)
        if news.part is not None and len(news.places):
            rows, numbers = news.part.rows[news.places], news.part.numbers[news.places]
            yield self._distinct(news.replica, news.part, rows, numbers, decoded)

    def _distinct(
        self,
        replica: Replica,
        part: Slice,
        rows: Rows,
        numbers: Rows,
        decoded: DecodedBatches,
        status: str | None = None,
    ) -> pa.RecordBatch:
        valid, reasons = reasons_of(decoded, numbers)
        return self._batches(
            replica,
            part.chunk,
            rows,
            source=LOG,
            valid=valid,
            reasons=reasons,
            noop_count=decoded.noop_count[numbers],
            **({} if status is None else {"status": status}),
        )

    def copy_batches(
        self, replica: Replica, chunk: Chunk, source: str, decoded: DecodedBatches | None
    ) -> pa.RecordBatch:
        """Rows of `batches` for a chunk of a snapshot; `decoded` is None for a copy that is only checked."""
        count = len(chunk)
        if decoded is None:
            decoded = DecodedBatches.unknown(count)
        valid, reasons = reasons_of(decoded, np.arange(count))
        return self._batches(
            replica, chunk, chunk.rows, source=source, valid=valid, reasons=reasons, noop_count=decoded.noop_count
        )

    def _batches(
        self,
        replica: Replica,
        chunk: Chunk,
        rows: Rows,
        *,
        source: str,
        valid: npt.NDArray[np.bool_],
        reasons: pa.Array,
        noop_count: Rows,
        **more: Any,
    ) -> pa.RecordBatch:
        return batches_batch(
            chunk.index,
            rows,
            self.shared[replica.number],
            source=source,
            file_name=chunk.tally.plan.name,
            file_position=chunk.file_position,
            valid=valid,
            reasons=reasons,
            noop_count=noop_count,
            **more,
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
