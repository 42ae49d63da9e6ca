"""The kernel behind `index_batches`: where each batch stands, what its header says, whether its CRC is right."""

from __future__ import annotations

from collections.abc import Callable

from kraft_codec.kernels.codes import (
    BAD_CRC,
    BAD_LENGTH,
    BAD_MAGIC,
    BATCH_HEADER_BYTES,
    BATCH_LENGTH_MAX,
    BATCH_OVERHEAD_BYTES,
    CRC_COVERED_FROM,
    HEADER_UP_TO_MAGIC_BYTES,
    NEED_MORE,
    OFFSET_MAX,
    OK,
    TORN_TAIL,
    ZERO_TAIL,
)
from kraft_codec.kernels.memory import (
    inlined,
    load_int8,
    load_int16_big,
    load_int32_big,
    load_int64,
    load_int64_big,
    load_uint8,
    load_uint32_big,
    store_int8,
    store_int16,
    store_int32,
    store_int64,
)


@inlined
def _starts_with_zeros(base: int, position: int, size_bytes: int) -> bool:
    for at in range(position, position + size_bytes):  # noqa: SIM110 - compiled code has no generators
        if load_uint8(base + at) != 0:
            return False
    return True


@inlined
def _stop_at(base: int, position: int, end: int, is_last: int) -> int:
    """OK where a whole batch stands at `position`, else why the walk ends, in the order of `batch.read_batches`."""
    remaining = end - position
    if remaining < BATCH_HEADER_BYTES and not is_last:
        return NEED_MORE
    # Nearly every offset begins with zeros: all eight bytes are asked at once.
    may_be_zeros = remaining < 8 or load_int64(base + position) == 0
    if may_be_zeros and _starts_with_zeros(base, position, min(remaining, BATCH_HEADER_BYTES)):
        return ZERO_TAIL
    if remaining <= HEADER_UP_TO_MAGIC_BYTES:
        return TORN_TAIL
    batch_length = load_int32_big(base + position + 8)
    if batch_length < BATCH_HEADER_BYTES - BATCH_OVERHEAD_BYTES or batch_length > BATCH_LENGTH_MAX:
        return BAD_LENGTH
    if batch_length + BATCH_OVERHEAD_BYTES > remaining:
        return TORN_TAIL if is_last else NEED_MORE
    return OK


@inlined
def _fits(start: int, before: int) -> bool:
    """Whether a batch's offsets are possible, and go on where those of the one before (0: none) end, in no older epoch.

    Those of the one before are possible, so what lies between the two does not overflow.
    """
    base_offset = load_int64_big(start)
    last_offset_delta = load_int32_big(start + 23)
    if base_offset < 0 or last_offset_delta < 0 or base_offset > OFFSET_MAX - last_offset_delta:
        return False
    if before == 0:
        return True
    if base_offset - load_int64_big(before) != load_int32_big(before + 23) + 1:
        return False
    return load_int32_big(start + 12) >= load_int32_big(before + 12)


@inlined
def _store_header(base: int, position: int, size_bytes: int, row: int, columns: int) -> None:
    start = base + position
    store_int64(load_int64(columns) + 8 * row, position)
    store_int64(load_int64(columns + 8) + 8 * row, load_int64_big(start))
    store_int32(load_int64(columns + 16) + 4 * row, size_bytes)
    store_int32(load_int64(columns + 24) + 4 * row, load_int32_big(start + 12))
    store_int8(load_int64(columns + 32) + row, load_int8(start + 16))
    store_int32(load_int64(columns + 40) + 4 * row, load_uint32_big(start + 17))
    store_int16(load_int64(columns + 48) + 2 * row, load_int16_big(start + 21))
    store_int32(load_int64(columns + 56) + 4 * row, load_int32_big(start + 23))
    store_int64(load_int64(columns + 64) + 8 * row, load_int64_big(start + 27))
    store_int64(load_int64(columns + 72) + 8 * row, load_int64_big(start + 35))
    store_int64(load_int64(columns + 80) + 8 * row, load_int64_big(start + 43))
    store_int16(load_int64(columns + 88) + 2 * row, load_int16_big(start + 51))
    store_int32(load_int64(columns + 96) + 4 * row, load_int32_big(start + 53))
    store_int32(load_int64(columns + 104) + 4 * row, load_int32_big(start + 57))


def index_batches_with(crc32c: Callable[[int, int, int], int]) -> Callable[..., int]:
    """The kernel, with one of the two ways to compute a CRC."""

    def index_batches(
        base: int, position: int, end: int, is_last: int, columns: int, crc_tables: int, state: int
    ) -> int:
        """Fills a row of `columns` (addresses, see `columns.BATCH_COLUMNS`) per batch; returns why it stopped.

        There must be room for (end - position) / 61 rows. `state` gets the row count, where the walk stopped, and 1
        where the batches are continuous (`columns_batches.BatchIndex`), else 0.
        """
        row = 0
        stop = OK
        is_continuous = 1
        before = 0
        while position < end:
            stop = _stop_at(base, position, end, is_last)
            if stop != OK:
                break
            size_bytes = load_int32_big(base + position + 8) + BATCH_OVERHEAD_BYTES
            _store_header(base, position, size_bytes, row, columns)
            covered = base + position + CRC_COVERED_FROM
            crc_is_right = crc32c(covered, size_bytes - CRC_COVERED_FROM, crc_tables) == load_uint32_big(covered - 4)
            store_int8(load_int64(columns + 112) + row, 1 if crc_is_right else 0)
            status = OK if crc_is_right else BAD_CRC
            if load_int8(base + position + 16) != 2:
                status = BAD_MAGIC
            store_int8(load_int64(columns + 120) + row, status)
            if status != OK or (is_continuous and not _fits(base + position, before)):
                is_continuous = 0
            before = base + position
            row += 1
            position += size_bytes
        store_int64(state, row)
        store_int64(state + 8, position)
        store_int64(state + 16, is_continuous)
        return stop

    return index_batches
