"""Rows of `records`, `batches` and `decode_errors` from what was read, column by column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kraft_audit.replay.continuity import Rows
from kraft_audit.replay.damage import DamageRow
from kraft_audit.replay.decode import NO_OP, NOT_DECODED, DecodedBatches, Records, reason_of
from kraft_audit.replay.plan import Selection
from kraft_codec.columns import RecordIndex, json_text
from kraft_codec.columns_batches import BatchIndex
from kraft_codec.compression import Codec
from kraft_codec.file_names import printable
from kraft_codec.kernels.codes import OK
from kraft_codec.schemas import CONTROL_TYPES
from kraft_codec.tables import BATCHES, DECODE_ERRORS, RECORDS, build_batch

LOG: Final = "log"
PRESENT: Final = "present"
TRUNCATED: Final = "truncated"
Masks = npt.NDArray[np.bool_]
_CODECS: Final = pa.array([*(codec.name.lower() for codec in Codec), *["unknown"] * (8 - len(Codec))])


def records_batch(
    records: Records,
    source: str,
    selection: Selection,
    keyed_hash: Callable[[memoryview], str],
    *,
    cluster_id: str,
    plan: int,
) -> pa.RecordBatch:
    """Rows of `records` for all but NoOps, as far as the selection wants them."""
    index = records.index
    kept = np.flatnonzero(_wanted(records, selection))
    types = type_names(index)
    is_metadata = ~index.is_control & (index.api_key >= 0)
    api_key = pa.array(index.api_key, mask=~is_metadata)
    control_type = pa.array(index.api_key, mask=~index.is_control | (index.api_key < 0))
    version = pa.array(index.version, mask=index.is_control | (index.version < 0))
    rows = pa.array(kept)
    batch = build_batch(
        RECORDS,
        {
            "cluster_id": cluster_id,
            "source": source,
            "offset": index.offset,
            "leader_epoch": records.leader_epoch,
            "batch_crc": records.batch_crc,
            "timestamp_ms": index.timestamp_ms,
            "is_control": index.is_control,
            "api_key": api_key,
            "control_type": control_type,
            "record_type": types,
            "record_version": version,
            "record": json_text(index),
            "value_bytes": np.maximum(index.value_length, 0),
            "value_hash": _value_hashes(index, keyed_hash),
            "is_redacted": records.is_redacted,
            "plan": plan,
        },
        len(index),
    )
    return batch if len(kept) == len(index) else batch.take(rows)


def _wanted(records: Records, selection: Selection) -> Masks:
    index = records.index
    wanted: Masks = ~((index.api_key == NO_OP) & ~index.is_control & (index.status == OK))
    if selection.from_offset is not None:
        wanted &= index.offset >= selection.from_offset
    if selection.to_offset is not None:
        wanted &= index.offset < selection.to_offset
    if selection.record_types is not None:
        names = type_names(index).to_numpy(zero_copy_only=False)
        wanted &= np.isin(names, np.array(selection.record_types, object))
    return wanted


def type_names(index: RecordIndex) -> pa.StringArray:
    """Each record's type as Kafka's tools print it; UNKNOWN(n) where the codec has no such type."""
    codes, place = np.unique(index.api_key.astype(np.int64) * 2 + index.is_control, return_inverse=True)
    names = [_type_name(index, code // 2, is_control=bool(code % 2)) for code in codes.tolist()]
    return pa.array(names, pa.string()).take(pa.array(place))


def _type_name(index: RecordIndex, number: int, *, is_control: bool) -> str:
    if number < 0:
        return "UNKNOWN"
    if is_control:
        control_type = CONTROL_TYPES[index.dialect].get(number)
        return control_type.name if control_type else f"UNKNOWN({number})"
    message = index.message(is_control=False, api_key=number)
    return message.type_name if message else f"UNKNOWN({number})"


def _value_hashes(index: RecordIndex, keyed_hash: Callable[[memoryview], str]) -> pa.Array:
    undecodable = np.flatnonzero(index.status != OK)
    if not len(undecodable):
        return pa.nulls(len(index), pa.string())
    hashes: list[str | None] = [None] * len(index)
    for row in undecodable.tolist():
        hashes[row] = value_hash(index, row, keyed_hash)
    return pa.array(hashes, pa.string())


def value_hash(index: RecordIndex, row: int, keyed_hash: Callable[[memoryview], str]) -> str:
    """The keyed hash of one record's value."""
    position, length = int(index.value_position[row]), max(int(index.value_length[row]), 0)
    return keyed_hash(index.buffer[position : position + length].data)


def batches_batch(
    index: BatchIndex,
    rows: Rows,
    shared: dict[str, Any],
    *,
    source: str,
    file_name: str,
    file_position: int,
    valid: Masks,
    reasons: pa.Array,
    noop_count: Rows,
    status: str = PRESENT,
) -> pa.RecordBatch:
    """Rows of `batches` for some rows of an index."""
    attributes = index.attributes[rows]
    return build_batch(
        BATCHES,
        {
            **shared,
            "source": source,
            "base_offset": index.base_offset[rows],
            "last_offset": index.last_offset[rows],
            "leader_epoch": index.leader_epoch[rows],
            "crc": index.crc[rows].astype(np.int64),
            "magic": index.magic[rows],
            "attributes": attributes,
            "is_control": index.is_control[rows],
            "codec": _CODECS.take(pa.array(index.codec[rows])),
            "base_timestamp_ms": index.base_timestamp_ms[rows],
            "max_timestamp_ms": index.max_timestamp_ms[rows],
            "producer_id": index.producer_id[rows],
            "producer_epoch": index.producer_epoch[rows],
            "base_sequence": index.base_sequence[rows],
            "record_count": index.record_count[rows],
            "noop_count": pa.array(noop_count, pa.int32(), mask=noop_count == NOT_DECODED),
            "file_name": printable(file_name),
            "position": index.position[rows] + file_position,
            "size_bytes": index.size_bytes[rows],
            "valid": valid,
            "reason": reasons,
            "status": status,
        },
        len(rows),
    )


def reasons_of(decoded: DecodedBatches, numbers: Rows) -> tuple[Masks, pa.Array]:
    """(valid, reason) of distinct batches by what decoding said."""
    status = decoded.status[numbers]
    valid: Masks = status == OK
    if valid.all():
        return valid, pa.nulls(len(numbers), pa.string())
    return valid, pa.array([None if one == OK else str(reason_of(one)) for one in status.tolist()], pa.string())


def damage_batch(rows: Sequence[DamageRow], shared: dict[str, Any]) -> pa.RecordBatch:
    """Rows of `decode_errors` about one replica; `shared` are its columns."""
    return build_batch(
        DECODE_ERRORS,
        {
            **shared,
            "file_name": [row.file_name for row in rows],
            "position": [row.position for row in rows],
            "length_bytes": [row.length_bytes for row in rows],
            "base_offset": [row.base_offset for row in rows],
            "reason": [str(row.reason) for row in rows],
            "detail": [row.detail for row in rows],
            "kafka_verdict": [row.kafka_verdict for row in rows],
            "value_hash": [row.value_hash for row in rows],
        },
        len(rows),
    )
