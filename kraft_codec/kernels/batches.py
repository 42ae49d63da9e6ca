"""The kernel of `columns.index_batches`: where each batch stands, what its header says, whether its CRC is right.

The CRC is CRC-32C (Castagnoli): by the processor's own instruction, or by tables, eight bytes at a time. The tables are
built by `library`, which also decides.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft_codec.file_names import MAX_OFFSET
from kraft_codec.kernels.codes import (
    BAD_CRC,
    BAD_LENGTH,
    BAD_MAGIC,
    BATCH_ATTRIBUTES,
    BATCH_BASE_OFFSET,
    BATCH_BASE_SEQUENCE,
    BATCH_BASE_TIMESTAMP_MS,
    BATCH_CRC,
    BATCH_CRC_OK,
    BATCH_LAST_OFFSET_DELTA,
    BATCH_LEADER_EPOCH,
    BATCH_MAGIC,
    BATCH_MAX_TIMESTAMP_MS,
    BATCH_POSITION,
    BATCH_PRODUCER_EPOCH,
    BATCH_PRODUCER_ID,
    BATCH_RECORD_COUNT,
    BATCH_SIZE_BYTES,
    BATCH_STATUS,
    CRC_LANE_BYTES,
    NEED_MORE,
    OK,
    TORN_TAIL,
    ZERO_TAIL,
)
from kraft_codec.kernels.memory import (
    batch_attributes,
    batch_base_offset,
    batch_base_sequence,
    batch_base_timestamp_ms,
    batch_crc,
    batch_last_offset_delta,
    batch_leader_epoch,
    batch_length,
    batch_magic,
    batch_max_timestamp_ms,
    batch_producer_epoch,
    batch_producer_id,
    batch_record_count,
    crc32_eight_bytes,
    crc32_one_byte,
    inlined,
    load_int64,
    load_uint8,
    load_uint32,
    put_int8,
    put_int16,
    put_int32,
    put_int64,
    set_int64_at,
    uint32_at,
)
from kraft_codec.records.batch import (
    ATTRIBUTES_POSITION,
    BATCH_LENGTH_MAX,
    HEADER_BYTES,
    HEADER_UP_TO_MAGIC_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
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
    if remaining < HEADER_BYTES and not is_last:
        return NEED_MORE
    # Nearly every offset begins with zeros: all eight bytes are compared at once.
    may_be_zeros = remaining < 8 or load_int64(base + position) == 0
    if may_be_zeros and _starts_with_zeros(base, position, min(remaining, HEADER_BYTES)):
        return ZERO_TAIL
    if remaining <= HEADER_UP_TO_MAGIC_BYTES:
        return TORN_TAIL
    length = batch_length(base + position)
    if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or length > BATCH_LENGTH_MAX:
        return BAD_LENGTH
    if length + LOG_OVERHEAD_BYTES > remaining:
        return TORN_TAIL if is_last else NEED_MORE
    return OK


@inlined
def _continues(batch: int, previous: int) -> bool:
    """Whether a batch's offsets are possible and follow those of the previous batch (0: none), in no older epoch.

    The offsets of the previous batch are possible, so the difference of the two does not overflow.
    """
    base_offset = batch_base_offset(batch)
    last_offset_delta = batch_last_offset_delta(batch)
    if base_offset < 0 or last_offset_delta < 0 or base_offset > MAX_OFFSET - last_offset_delta:
        return False
    if previous == 0:
        return True
    if base_offset - batch_base_offset(previous) != batch_last_offset_delta(previous) + 1:
        return False
    return batch_leader_epoch(batch) >= batch_leader_epoch(previous)


@inlined
def _put_header(base: int, position: int, size_bytes: int, row: int, columns: int) -> None:
    batch = base + position
    put_int64(columns, BATCH_POSITION, row, position)
    put_int64(columns, BATCH_BASE_OFFSET, row, batch_base_offset(batch))
    put_int32(columns, BATCH_SIZE_BYTES, row, size_bytes)
    put_int32(columns, BATCH_LEADER_EPOCH, row, batch_leader_epoch(batch))
    put_int8(columns, BATCH_MAGIC, row, batch_magic(batch))
    put_int32(columns, BATCH_CRC, row, batch_crc(batch))
    put_int16(columns, BATCH_ATTRIBUTES, row, batch_attributes(batch))
    put_int32(columns, BATCH_LAST_OFFSET_DELTA, row, batch_last_offset_delta(batch))
    put_int64(columns, BATCH_BASE_TIMESTAMP_MS, row, batch_base_timestamp_ms(batch))
    put_int64(columns, BATCH_MAX_TIMESTAMP_MS, row, batch_max_timestamp_ms(batch))
    put_int64(columns, BATCH_PRODUCER_ID, row, batch_producer_id(batch))
    put_int16(columns, BATCH_PRODUCER_EPOCH, row, batch_producer_epoch(batch))
    put_int32(columns, BATCH_BASE_SEQUENCE, row, batch_base_sequence(batch))
    put_int32(columns, BATCH_RECORD_COUNT, row, batch_record_count(batch))


def index_batches_with(crc32c: Callable[[int, int, int], int]) -> Callable[..., int]:
    """The kernel, computing CRCs by one of the two functions below."""

    def index_batches(
        base: int, position: int, end: int, is_last: int, columns: int, crc_tables: int, state: int
    ) -> int:
        """Fills a row of `columns` per batch; returns why it stopped.

        There must be room for (end - position) / 61 rows. `state` gets three int64: the row count, where the walk
        stopped, and 1 where the batches are continuous (`columns.batches.BatchIndex`), else 0.
        """
        row = 0
        stop = OK
        is_continuous = 1
        previous = 0
        while position < end:
            stop = _stop_at(base, position, end, is_last)
            if stop != OK:
                break
            batch = base + position
            size_bytes = batch_length(batch) + LOG_OVERHEAD_BYTES
            _put_header(base, position, size_bytes, row, columns)
            crc = crc32c(batch + ATTRIBUTES_POSITION, size_bytes - ATTRIBUTES_POSITION, crc_tables)
            is_crc_ok = crc == batch_crc(batch)
            put_int8(columns, BATCH_CRC_OK, row, 1 if is_crc_ok else 0)
            status = OK if is_crc_ok else BAD_CRC
            if batch_magic(batch) != MAGIC:
                status = BAD_MAGIC
            put_int8(columns, BATCH_STATUS, row, status)
            if status != OK or (is_continuous and not _continues(batch, previous)):
                is_continuous = 0
            previous = batch
            row += 1
            position += size_bytes
        set_int64_at(state, 0, row)
        set_int64_at(state, 1, position)
        set_int64_at(state, 2, is_continuous)
        return stop

    return index_batches


@inlined
def _table_entry(tables: int, number: int, value: int) -> int:
    """The entry of a value's low byte in one of the tables, which have 256 uint32 each."""
    return uint32_at(tables, 256 * number + (value & 0xFF))


@inlined
def _shifted(crc: int, tables: int) -> int:
    """The CRC after CRC_LANE_BYTES further zero bytes: four lookups instead of CRC_LANE_BYTES steps."""
    return (
        _table_entry(tables, 0, crc)
        ^ _table_entry(tables, 1, crc >> 8)
        ^ _table_entry(tables, 2, crc >> 16)
        ^ _table_entry(tables, 3, crc >> 24)
    )


@inlined
def crc32c_by_instruction(address: int, size_bytes: int, tables: int) -> int:
    """`tables`: four tables of 256 uint32 that append CRC_LANE_BYTES zero bytes to a CRC."""
    crc = 0xFFFFFFFF
    end = address + size_bytes
    while address + 3 * CRC_LANE_BYTES <= end:
        second = 0
        third = 0
        lane_end = address + CRC_LANE_BYTES
        while address < lane_end:
            crc = crc32_eight_bytes(crc, load_int64(address))
            second = crc32_eight_bytes(second, load_int64(address + CRC_LANE_BYTES))
            third = crc32_eight_bytes(third, load_int64(address + 2 * CRC_LANE_BYTES))
            address += 8
        crc = _shifted(_shifted(crc, tables) ^ second, tables) ^ third
        address += 2 * CRC_LANE_BYTES
    while address + 8 <= end:
        crc = crc32_eight_bytes(crc, load_int64(address))
        address += 8
    while address < end:
        crc = crc32_one_byte(crc, load_uint8(address))
        address += 1
    return crc ^ 0xFFFFFFFF


@inlined
def crc32c_by_tables(address: int, size_bytes: int, tables: int) -> int:
    """`tables`: eight tables of 256 uint32, table k for a byte that k further bytes follow (slicing by eight)."""
    crc = 0xFFFFFFFF
    end = address + size_bytes
    while address + 8 <= end:
        low = crc ^ load_uint32(address)
        high = load_uint32(address + 4)
        crc = (
            _table_entry(tables, 7, low)
            ^ _table_entry(tables, 6, low >> 8)
            ^ _table_entry(tables, 5, low >> 16)
            ^ _table_entry(tables, 4, low >> 24)
            ^ _table_entry(tables, 3, high)
            ^ _table_entry(tables, 2, high >> 8)
            ^ _table_entry(tables, 1, high >> 16)
            ^ _table_entry(tables, 0, high >> 24)
        )
        address += 8
    while address < end:
        crc = (crc >> 8) ^ _table_entry(tables, 0, crc ^ load_uint8(address))
        address += 1
    return crc ^ 0xFFFFFFFF
