"""The batches of a partition's folder as they lie on a disk, from an offset on, damaged ones too.

A broker would cut the log at the first damage. What lies behind it can still be read where the segment's offset index,
or the length of a batch whose CRC differs, says where the next batch begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kraft_audit.losses.log_ends import PREFIX, segments_of
from kraft_codec.errors import CodecError, Reason
from kraft_codec.file_names import offset_index_name
from kraft_codec.files.indexes import MAX_INDEX_BYTES, AbortedTransaction, parse_offset_index, parse_transaction_index
from kraft_codec.records.batch import BATCH_LENGTH_MAX, LOG_OVERHEAD_BYTES, Batch, BatchHeader, Stop, read_batches
from kraft_codec.storage.random_access import RandomAccess, Storage, join

PIECE_BYTES: Final = 1 << 20
WINDOW_BYTES: Final = BATCH_LENGTH_MAX + LOG_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class HeldBatch:
    """Bytes of a segment: a batch, or with `damage` a batch or a stretch of bytes that cannot be trusted.

    `header.position` counts within `octets`. Of a stretch without batches `header` is None and `octets` is empty:
    `pieces` reads it.
    """

    file: str
    position: int
    size_bytes: int
    header: BatchHeader | None
    octets: bytes = b""
    damage: Reason | None = None
    detail: str = ""


def held_bytes(storage: Storage, folder: str, from_offset: int) -> int:
    """About how many bytes hold the records from an offset on, by segment sizes and offset indexes."""
    try:
        segments = _segments_from(storage, folder, from_offset)
        total = 0
        for base_offset, name in segments:
            with storage.open(join(folder, name)) as file:
                total += file.size_bytes - _start(storage, folder, base_offset, from_offset, file.size_bytes)
    except CodecError:
        return 0
    return total


def held_batches(storage: Storage, folder: str, from_offset: int) -> Iterator[HeldBatch]:
    """Every batch that may hold records from an offset on, in the order of the segments. Raises CodecError.

    Damage before the first batch that reaches the offset is left out.
    """
    for base_offset, name in _segments_from(storage, folder, from_offset):
        damaged: list[HeldBatch] = []
        with storage.open(join(folder, name)) as file:
            start = _start(storage, folder, base_offset, from_offset, file.size_bytes)
            for batch in _in_segment(file, name, start, _indexed(storage, folder, base_offset)):
                if batch.damage is not None:
                    damaged.append(batch)
                    continue
                if batch.header is None or batch.header.last_offset < from_offset:
                    damaged.clear()
                    continue
                yield from damaged
                damaged.clear()
                yield batch
        yield from damaged


def pieces(storage: Storage, folder: str, batch: HeldBatch) -> Iterator[bytes]:
    """The bytes of a batch, a piece at a time. Raises CodecError."""
    if batch.octets:
        yield batch.octets
        return
    with storage.open(join(folder, batch.file)) as file:
        for position in range(batch.position, batch.position + batch.size_bytes, PIECE_BYTES):
            length = min(PIECE_BYTES, batch.position + batch.size_bytes - position)
            yield file.read_at(position, length).tobytes()


def aborted_transactions(storage: Storage, folder: str, from_offset: int) -> Iterator[AbortedTransaction]:
    """What the `.txnindex` files of a folder say was aborted from an offset on; one that is damaged says nothing."""
    for base_offset, _ in _segments_from(storage, folder, from_offset):
        try:
            content = storage.read_small(join(folder, f"{base_offset:020d}.txnindex"), MAX_INDEX_BYTES)
            entries = parse_transaction_index(content)
        except CodecError:
            continue
        yield from (entry for entry in entries if entry.last_offset >= from_offset)


def _segments_from(storage: Storage, folder: str, from_offset: int) -> list[tuple[int, str]]:
    segments = segments_of(storage, folder)
    first = max((place for place, (base, _) in enumerate(segments) if base <= from_offset), default=0)
    return segments[first:]


def _indexed(storage: Storage, folder: str, base_offset: int) -> list[tuple[int, int]]:
    """(offset, position) of each entry of a segment's offset index; none where it cannot be read."""
    try:
        index = parse_offset_index(storage.read_small(join(folder, offset_index_name(base_offset)), MAX_INDEX_BYTES))
    except CodecError:
        return []
    offsets = index.relative_offsets.astype(np.int64) + base_offset
    return list(zip(offsets.tolist(), index.positions.tolist(), strict=True))


def _start(storage: Storage, folder: str, base_offset: int, from_offset: int, size_bytes: int) -> int:
    """Where to begin in a segment: at a batch that begins at or before the offset, as far as the index knows."""
    indexed = _indexed(storage, folder, base_offset) if base_offset < from_offset else []
    before = [position for offset, position in indexed if offset < from_offset and position < size_bytes]
    if not before:
        return 0
    with storage.open(join(folder, f"{base_offset:020d}.log")) as file:
        return before[-1] if isinstance(_item(file, before[-1]), Batch) else 0


def _in_segment(file: RandomAccess, name: str, start: int, indexed: list[tuple[int, int]]) -> Iterator[HeldBatch]:
    position = start
    while position < file.size_bytes:
        item = _item(file, position)
        if isinstance(item, Batch):
            header = item.header
            octets = file.read_at(position, header.size_bytes).tobytes()
            held = HeldBatch(name, position, header.size_bytes, header, octets)
            if item.damage is not None:
                held = replace(held, damage=item.damage, detail="its length leads to what follows")
            yield held
            position += header.size_bytes
            continue
        following = next((place for _, place in indexed if place > position and _is_batch(file, place)), None)
        end = file.size_bytes if following is None else following
        if not _is_zero(file, position, end):
            detail = item.detail if following is None else f"{item.detail}; the offset index leads to what follows"
            yield HeldBatch(name, position, end - position, None, b"", item.reason, detail)
        position = end


def _item(file: RandomAccess, position: int) -> Batch | Stop:
    """The batch at a position, or why there is none. No more is read than the batch."""
    remaining = file.size_bytes - position
    size_bytes = min(remaining, WINDOW_BYTES)
    if remaining >= PREFIX.size:
        _, length = PREFIX.unpack(file.read_at(position, PREFIX.size).tobytes())
        if length >= 0 and length + LOG_OVERHEAD_BYTES <= remaining and length <= BATCH_LENGTH_MAX:
            size_bytes = max(length + LOG_OVERHEAD_BYTES, min(remaining, 1 << 10))
        else:
            size_bytes = min(remaining, 1 << 10)
    item = next(read_batches(file.read_at(position, size_bytes).data))
    if isinstance(item, Stop) and item.reason is Reason.TORN_TAIL and size_bytes < remaining:
        return replace(item, detail=f"a batch that is longer than the {remaining} bytes that are left")
    return item


def _is_batch(file: RandomAccess, position: int) -> bool:
    if position >= file.size_bytes:
        return False
    item = _item(file, position)
    return isinstance(item, Batch) and item.damage is None


def _is_zero(file: RandomAccess, position: int, end: int) -> bool:
    return not any(
        np.any(file.read_at(place, min(PIECE_BYTES, end - place))) for place in range(position, end, PIECE_BYTES)
    )
