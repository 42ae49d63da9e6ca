"""What the metadata log is made of: bytes and records by type, cause, topic, broker and hour.

Every byte of the canonical log is counted once in each of the five ways, so each sums to the bytes of its batches. A
record costs its value and an equal share of what its batch holds besides values: header, framing and keys. What a
batch does not say, such as the topic of a registration, is counted under "none".
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.replay.state_machines import TOPIC_RESOURCE
from kraft_audit.rules.cluster_history import ClusterHistory, once_per_history
from kraft_audit.rules.columns.log_batches import CanonicalBatches, canonical_log
from kraft_audit.tables.silver import PARTITION_CHANGES, SNAPSHOT, STATE_TABLES
from kraft_audit.text.readable import HOUR_MS, is_time, moment_of

NONE: Final = "none"
NO_OP_TYPE: Final = "NO_OP_RECORD"
IDLE: Final = "idle"
"""The cause of NoOp records, which an active controller appends while nothing happens."""
FIELDS: Final = {
    "topic_id": r'"topicId":"(?P<found>[^"]*)"',
    "broker_id": r'"brokerId":(?P<found>\d+)',
    "resource": rf'"resourceType":{TOPIC_RESOURCE},"resourceName":"(?P<found>(?:[^"\\]|\\.)*)"',
}
NumberColumn = npt.NDArray[np.int64]


class CostBy(enum.StrEnum):
    """The ways in which bytes are counted."""

    TYPE = "type"
    CAUSE = "cause"
    TOPIC = "topic"
    BROKER = "broker"
    HOUR = "hour"


@dataclass(frozen=True, slots=True)
class CostRow:
    """What one type, cause, topic, broker or hour takes of the log; `share` is of all bytes, 0 to 1."""

    by: CostBy
    name: str
    size_bytes: int
    record_count: int
    share: float


@dataclass(frozen=True, slots=True)
class LogCost:
    """The canonical log's bytes and records, its first and last append time, and each way of counting, most first."""

    size_bytes: int
    record_count: int
    from_ms: int | None
    to_ms: int | None
    rows: tuple[CostRow, ...]


@dataclass(slots=True)
class _Names:
    """Numbers for names, in the order in which they came."""

    known: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        return self.known.setdefault(name, len(self.known))

    def numbers(self, names: Iterable[str | None]) -> list[int]:
        return [self.number(NONE if name is None else name) for name in names]


def log_cost(history: ClusterHistory, records: Iterable[pa.RecordBatch]) -> LogCost:
    """Counts the canonical log. `records` are rows of the table `records` of the log, on any branch."""
    log = canonical_log(history)
    names = {by: _Names() for by in (CostBy.TYPE, CostBy.CAUSE, CostBy.TOPIC, CostBy.BROKER)}
    parts = [part for batch in records if (part := _counted(history, log, batch, names)) is not None]
    place, value_bytes, *codes = _joined(parts, 2 + len(names))
    rows_in = np.bincount(place, minlength=len(log.row)).astype(np.int64)
    no_ops = np.maximum(log.record_count - rows_in, 0)
    values_in = np.bincount(place, value_bytes, minlength=len(log.row)).astype(np.int64)
    count = np.maximum(rows_in + no_ops, 1)
    each, rest = np.divmod(log.size_bytes - values_in, count)
    # What does not divide goes to a batch's first records, a byte each.
    number_in_batch = np.arange(len(place)) - (np.cumsum(rows_in) - rows_in)[place]
    size = value_bytes + each[place] + (number_in_batch < rest[place])
    total = int(log.size_bytes.sum())
    no_op_bytes = total - int(size.sum())
    idle = {CostBy.TYPE: NO_OP_TYPE, CostBy.CAUSE: IDLE}
    rows: list[CostRow] = []
    for (by, known), code in zip(names.items(), codes, strict=True):
        code = np.append(code, known.number(idle.get(by, NONE)))
        sizes = np.bincount(code, np.append(size, no_op_bytes))
        counts = np.bincount(code, np.append(np.ones(len(size)), no_ops.sum()))
        rows += _rows(by, list(known.known), sizes, counts, total)
    rows += _hours(log, total)
    times = log.timestamp_ms[(log.timestamp_ms > 0)]
    first, last = (int(times.min()), int(times.max())) if len(times) else (None, None)
    return LogCost(total, int(log.record_count.sum()), first, last, tuple(rows))


def _counted(
    history: ClusterHistory, log: CanonicalBatches, batch: pa.RecordBatch, names: Mapping[CostBy, _Names]
) -> tuple[NumberColumn, ...] | None:
    """(batch, bytes of the value, type, cause, topic, broker) of the records on the canonical log, as numbers."""
    offset = batch.column("offset").to_numpy()
    place = np.searchsorted(log.base_offset, offset, side="right") - 1
    held = np.maximum(place, 0)
    is_canonical = (
        (place >= 0) & (offset <= log.last_offset[held]) & (batch.column("batch_crc").to_numpy() == log.crc[held])
    )
    is_canonical &= pc.equal(batch.column("source"), "log").to_numpy(zero_copy_only=False)
    if not is_canonical.any():
        return None
    rows = batch.filter(pa.array(is_canonical))
    offset, types = rows.column("offset").to_numpy(), rows.column("record_type").to_pylist()
    text = {name: _extracted(rows.column("record"), pattern) for name, pattern in FIELDS.items()}
    topics = _topic_names(history)
    causes, brokers = _causes(history)
    topic = [
        resource if resource is not None else None if id_ is None else topics.get(id_, id_)
        for id_, resource in zip(text["topic_id"], text["resource"], strict=True)
    ]
    at = offset.tolist()
    broker = [
        f"broker {broker_id}" if broker_id is not None else brokers.get(here)
        for here, broker_id in zip(at, text["broker_id"], strict=True)
    ]
    cause = [causes.get(here, type_) for here, type_ in zip(at, types, strict=True)]
    coded = {CostBy.TYPE: types, CostBy.CAUSE: cause, CostBy.TOPIC: topic, CostBy.BROKER: broker}
    return (
        place[is_canonical].astype(np.int64),
        rows.column("value_bytes").to_numpy().astype(np.int64),
        *(np.asarray(names[by].numbers(coded[by]), np.int64) for by in names),
    )


def _extracted(column: pa.Array, pattern: str) -> list[str | None]:
    texts: list[str | None] = pc.struct_field(pc.extract_regex(column, pattern), "found").to_pylist()
    return texts


def _joined(parts: Sequence[tuple[NumberColumn, ...]], width: int) -> list[NumberColumn]:
    """The columns of all parts, by batch: a batch's records may have come apart."""
    if not parts:
        return [np.zeros(0, np.int64)] * width
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return [column[order] for column in columns]


@once_per_history
def _topic_names(history: ClusterHistory) -> dict[str, str]:
    return {row["topic_id"]: row["topic"] for row in history.rows("topic_changes")}


@once_per_history
def _causes(history: ClusterHistory) -> tuple[dict[int, str], dict[int, str]]:
    """Why the record at an offset was written, and whose event it was, where a replayed table says so."""
    causes: dict[int, str] = {}
    brokers: dict[int, str] = {}
    for table in STATE_TABLES.values():
        for row in history.rows(table.name) if table is not PARTITION_CHANGES else ():
            if row["cause"] != SNAPSHOT:
                causes[row["from_offset"]] = f"{table.subject_noun} {row['cause'].replace('_', ' ')}"
    changes = history.table(PARTITION_CHANGES.name).select(["from_offset", "cause", "cause_broker_id"])
    for row in changes.filter(pc.is_valid(changes["cause"])).to_pylist():
        if row["cause"] != SNAPSHOT:
            cause = f"{PARTITION_CHANGES.subject_noun} {row['cause'].replace('_', ' ')}"
            causes.setdefault(row["from_offset"], cause)
            if row["cause_broker_id"] is not None:
                brokers.setdefault(row["from_offset"], f"broker {row['cause_broker_id']}")
    return causes, brokers


def _rows(
    by: CostBy, names: Sequence[str], sizes: npt.NDArray[Any], counts: npt.NDArray[Any], total: int
) -> list[CostRow]:
    rows = [
        CostRow(by, name, round(size), round(count), size / max(1, total))
        for name, size, count in zip(names, sizes.tolist(), counts.tolist(), strict=True)
        if size
    ]
    return sorted(rows, key=lambda row: (-row.size_bytes, row.name))


def _hours(log: CanonicalBatches, total: int) -> list[CostRow]:
    """By the hour of each batch's append time, in time."""
    hours, code = np.unique(log.timestamp_ms // HOUR_MS, return_inverse=True)
    sizes, counts = np.bincount(code, log.size_bytes), np.bincount(code, log.record_count)
    rows = zip(hours.tolist(), sizes.tolist(), counts.tolist(), strict=True)
    return [
        CostRow(CostBy.HOUR, _hour(hour * HOUR_MS), round(size), round(count), size / max(1, total))
        for hour, size, count in rows
    ]


def _hour(time_ms: int) -> str:
    moment = moment_of(time_ms) if is_time(time_ms) else None
    return f"{time_ms} ms" if moment is None else f"{moment:%Y-%m-%d %H:00}"
