"""Decoded columns into the rows that the partition kernel reads, uuids into numbers, output rows into Arrow's buffers.

Each goes through its rows once and touches every byte once. What is written has room for what the output's lists and
texts hold, and for SLACK_BYTES more.
"""

from __future__ import annotations

from kraft_audit.replay.kernels import codes, layout
from kraft_audit.replay.kernels.memory_rows import (
    cell,
    input_row,
    length_of_list,
    output_row,
    rare_event,
    set_cell,
    slot,
    state_lists,
    values_from,
)
from kraft_codec.kernels import memory
from kraft_codec.kernels.memory import inlined, shared

_UUID_BYTES = 16
_UUID_CHARACTERS = 22
_HASH_FACTOR = 0x9E3779B97F4A7C1
_ROWS_AT_ONCE = 192


@inlined
def _place_of(high: int, low: int, ids: int, slots: int, mask: int) -> int:
    """Where the hash table holds the number of an id, or the free place where it belongs."""
    mixed = (high ^ (low * _HASH_FACTOR)) * _HASH_FACTOR
    position = (mixed ^ (mixed >> 29)) & mask
    while True:
        number = memory.int32_at(slots, position)
        if number < 0:
            return position
        if memory.int64_at(ids, 2 * number) == high and memory.int64_at(ids, 2 * number + 1) == low:
            return position
        position = (position + 1) & mask


@shared
def intern_ids(values: int, count: int, numbers: int, ids: int, known: int, slots: int, mask: int) -> int:
    """Writes the number of each of `count` uuids at `values`; returns how many are known then.

    `ids`: the known uuids by number, with room for `count` more; `slots`: int32 hash table of numbers, -1 where free.
    """
    for at in range(count):
        high = memory.int64_at(values, 2 * at)
        low = memory.int64_at(values, 2 * at + 1)
        position = _place_of(high, low, ids, slots, mask)
        number = memory.int32_at(slots, position)
        if number < 0:
            number = known
            memory.set_int64_at(ids, 2 * number, high)
            memory.set_int64_at(ids, 2 * number + 1, low)
            memory.set_int32_at(slots, position, number)
            known += 1
        memory.set_int32_at(numbers, at, number)
    return known


@shared
def rehash_ids(ids: int, known: int, slots: int, mask: int) -> int:
    """Files all known ids in a new, empty table."""
    for number in range(known):
        high = memory.int64_at(ids, 2 * number)
        low = memory.int64_at(ids, 2 * number + 1)
        memory.set_int32_at(slots, _place_of(high, low, ids, slots, mask), number)
    return known


@inlined
def _put_character(text: int, place: int, alphabet: int, six_bits: int) -> int:
    return memory.set_int8_at(text, place, memory.uint8_at(alphabet, six_bits))


@shared
def uuid_texts(ids: int, start: int, end: int, texts: int, alphabet: int) -> int:
    """Writes the 22 characters of the ids from number `start` to `end`, UUID_STRIDE apart (Uuid.toString)."""
    for number in range(start, end):
        first_byte = _UUID_BYTES * number
        target = texts + layout.UUID_STRIDE * number
        for group in range(5):
            first = memory.uint8_at(ids, first_byte + 3 * group)
            second = memory.uint8_at(ids, first_byte + 3 * group + 1)
            third = memory.uint8_at(ids, first_byte + 3 * group + 2)
            _put_character(target, 4 * group, alphabet, first >> 2)
            _put_character(target, 4 * group + 1, alphabet, ((first & 3) << 4) | (second >> 4))
            _put_character(target, 4 * group + 2, alphabet, ((second & 15) << 2) | (third >> 6))
            _put_character(target, 4 * group + 3, alphabet, third & 63)
        last = memory.uint8_at(ids, first_byte + 15)
        _put_character(target, 20, alphabet, last >> 2)
        _put_character(target, 21, alphabet, (last & 3) << 4)
    return end


@inlined
def _fill_input_list(columns: int, number: int, record: int, row: int) -> int:
    """Where in the arena one list of one record stands; its length, -1 for a null list."""
    place = layout.IN_LISTS + layout.IN_LIST_SLOTS * number
    start = memory.column_int32(columns, place + layout.IN_LIST_OFFSETS, row)
    length = memory.column_int32(columns, place + layout.IN_LIST_OFFSETS, row + 1) - start
    if slot(columns, place + layout.IN_LIST_VALIDITY) != 0:
        bit = slot(columns, place + layout.IN_LIST_FIRST_BIT) + row
        is_valid = (memory.column_uint8(columns, place + layout.IN_LIST_VALIDITY, bit >> 3) >> (bit & 7)) & 1
        length = length if is_valid else -1
    set_cell(record, layout.INPUT_LISTS + 2 * number, start + slot(columns, place + layout.IN_LIST_ARENA_SHIFT))
    set_cell(record, layout.INPUT_LISTS + 2 * number + 1, length)
    return length


@shared
def fill_inputs(columns: int, count: int, rows: int) -> int:
    """The records of one type as input rows; the values of their lists are in the arena already.

    Returns the length of the longest list.
    """
    longest = 0
    has_leader_epochs = slot(columns, layout.IN_LEADER_EPOCH) != 0
    has_partition_epochs = slot(columns, layout.IN_PARTITION_EPOCH) != 0
    for row in range(count):
        record = input_row(rows, row)
        set_cell(record, layout.LEADER, memory.column_int32(columns, layout.IN_LEADER, row))
        set_cell(record, layout.RECOVERY_STATE, memory.column_int8(columns, layout.IN_RECOVERY_STATE, row))
        set_cell(
            record,
            layout.LEADER_EPOCH,
            memory.column_int32(columns, layout.IN_LEADER_EPOCH, row) if has_leader_epochs else 0,
        )
        set_cell(
            record,
            layout.PARTITION_EPOCH,
            memory.column_int32(columns, layout.IN_PARTITION_EPOCH, row) if has_partition_epochs else 0,
        )
        set_cell(record, layout.INPUT_TOPIC, memory.column_int32(columns, layout.IN_TOPIC, row))
        set_cell(record, layout.INPUT_PARTITION, memory.column_int32(columns, layout.IN_PARTITION, row))
        for number in range(layout.LIST_COUNT):
            longest = max(longest, _fill_input_list(columns, number, record, row))
    return longest


@inlined
def _put_event(table: int, at: int, offset: int, epoch: int, time: int, batch: int) -> int:
    memory.put_int64(table, layout.MERGED_OFFSETS, at, offset)
    memory.put_int64(table, layout.MERGED_BATCHES, at, batch)
    memory.put_int32(table, layout.MERGED_EPOCHS, at, epoch)
    memory.put_int64(table, layout.MERGED_TIMES, at, time)
    return at


@inlined
def _put_meaning(table: int, at: int, kind: int, first: int, second: int) -> int:
    memory.put_int32(table, layout.MERGED_KINDS, at, kind)
    memory.put_int32(table, layout.MERGED_FIRST, at, first)
    memory.put_int32(table, layout.MERGED_SECOND, at, second)
    return at


@shared
def merge_events(table: int) -> int:
    """Merges PartitionRecords, PartitionChangeRecords and rare events, each ascending by offset; returns how many."""
    offsets = slot(table, layout.MERGE_OFFSETS)
    end_of_created = slot(table, layout.MERGE_CREATED)
    end = slot(table, layout.MERGE_COUNT)
    rare_end = slot(table, layout.MERGE_RARE_COUNT)
    created = 0
    changed = end_of_created
    rare = 0
    at = 0
    while created < end_of_created or changed < end or rare < rare_end:
        row = -1
        if created < end_of_created:
            row = created
        if changed < end and (row < 0 or memory.int64_at(offsets, changed) < memory.int64_at(offsets, row)):
            row = changed
        event = rare_event(table, rare)
        if rare < rare_end and (row < 0 or slot(event, layout.RARE_OFFSET) < memory.int64_at(offsets, row)):
            _put_event(
                table,
                at,
                slot(event, layout.RARE_OFFSET),
                slot(event, layout.RARE_EPOCH),
                slot(event, layout.RARE_TIME),
                slot(event, layout.RARE_BATCH),
            )
            _put_meaning(
                table,
                at,
                slot(event, layout.RARE_KIND),
                slot(event, layout.RARE_FIRST),
                slot(event, layout.RARE_SECOND),
            )
            rare += 1
        else:
            epoch = memory.column_int32(table, layout.MERGE_EPOCHS, row)
            _put_event(
                table,
                at,
                memory.int64_at(offsets, row),
                epoch,
                memory.column_int64(table, layout.MERGE_TIMES, row),
                memory.column_int64(table, layout.MERGE_BATCHES, row),
            )
            if row < end_of_created:
                _put_meaning(table, at, layout.PARTITION_EVENT, row, 0)
                created += 1
            else:
                _put_meaning(table, at, layout.CHANGE_EVENT, row, 0)
                changed += 1
        at += 1
    return at


@inlined
def _put_words(target: int, source: int) -> int:
    """Copies three words: a text, and what the next one overwrites."""
    memory.set_int64_at(target, 0, memory.int64_at(source, 0))
    memory.set_int64_at(target, 1, memory.int64_at(source, 1))
    return memory.set_int64_at(target, 2, memory.int64_at(source, 2))


@inlined
def _put_texts(output: int, row: int, end: int, number: int, columns: int, column: int, sources: int) -> None:
    """Writes the texts of rows after those of the rows before; the cell `number` of each says which text it is.

    `output`: the first of the rows.
    """
    offsets = slot(columns, column)
    characters = slot(columns, column + 1)
    places = slot(sources, layout.FROM_TEXTS + column - layout.OUT_TOPIC)
    texts = slot(sources, layout.FROM_TEXTS + column - layout.OUT_TOPIC + 1)
    written = memory.int32_at(offsets, row)
    while row < end:
        key = cell(output, number)
        if number == layout.RECOVERY_STATE:
            key = 1 if key != 0 else 0
        length = memory.int64_at(places, 2 * key + 1)
        source = texts + memory.int64_at(places, 2 * key)
        _put_words(characters + written, source)
        if length > layout.SLACK_BYTES:
            memory.copy_bytes(characters + written, source, length)
        written += length
        row += 1
        memory.set_int32_at(offsets, row, written)
        output += layout.OUTPUT_BYTES


@inlined
def _put_lists(arena: int, output: int, row: int, end: int, number: int, columns: int, column: int) -> None:
    """Writes the lists of rows after those of the rows before; a cell and the next say where each stands."""
    offsets = slot(columns, column)
    values = slot(columns, column + 1)
    written = memory.int32_at(offsets, row)
    while row < end:
        length = cell(output, number + 1)
        if length > 0:
            target = values_from(values, written)
            source = values_from(arena, cell(output, number))
            memory.set_int64_at(target, 0, memory.int64_at(source, 0))
            memory.set_int64_at(target, 1, memory.int64_at(source, 1))
            if length > layout.SHORT_LIST:
                memory.copy_bytes(target, source, 4 * length)
            written += length
        row += 1
        memory.set_int32_at(offsets, row, written)
        output += layout.OUTPUT_BYTES


@inlined
def _put_no_lists(row: int, end: int, columns: int, column: int) -> None:
    """Ends the lists of rows where they begin, in a column without any value."""
    offsets = slot(columns, column)
    for at in range(row, end):
        memory.set_int32_at(offsets, at + 1, 0)


@inlined
def _put_directories(columns: int, row: int, end: int, directories: int) -> None:
    """Writes the texts of the directories of rows, whose numbers stand in the column of that list."""
    column = layout.OUT_LISTS + 2 * layout.DIRECTORIES
    values = slot(columns, column + 1)
    texts = slot(columns, layout.OUT_DIRECTORY_TEXT)
    for at in range(memory.column_int32(columns, column, row), memory.column_int32(columns, column, end)):
        _put_words(texts + _UUID_CHARACTERS * at, directories + layout.UUID_STRIDE * cell(values, at))


@inlined
def _put_numbers(columns: int, sources: int, output: int, row: int) -> int:
    event = cell(output, layout.EVENT)
    memory.put_int64(columns, layout.OUT_FROM_OFFSET, row, memory.column_int64(sources, layout.FROM_OFFSETS, event))
    memory.put_int32(columns, layout.OUT_FROM_EPOCH, row, memory.column_int32(sources, layout.FROM_EPOCHS, event))
    memory.put_int64(columns, layout.OUT_TIMESTAMP, row, memory.column_int64(sources, layout.FROM_TIMES, event))
    memory.put_int32(columns, layout.OUT_PARTITION, row, cell(output, layout.PARTITION))
    memory.put_int32(columns, layout.OUT_LEADER, row, cell(output, layout.LEADER))
    memory.put_int32(columns, layout.OUT_LEADER_EPOCH, row, cell(output, layout.LEADER_EPOCH))
    memory.put_int32(columns, layout.OUT_PARTITION_EPOCH, row, cell(output, layout.PARTITION_EPOCH))
    minimum = cell(output, layout.EFFECTIVE_MIN_ISR)
    memory.put_int32(columns, layout.OUT_MIN_ISR, row, minimum)
    broker = cell(output, layout.CAUSE_BROKER)
    memory.put_int32(columns, layout.OUT_BROKER, row, broker)
    exists = 1 if cell(output, layout.EXISTS) != 0 else 0
    # A write with acks=all can be committed: enough replicas in sync, and a leader among them.
    in_sync = length_of_list(state_lists(output), layout.ISR)
    can_advance = exists if in_sync >= minimum and cell(output, layout.LEADER) >= 0 else 0
    memory.put_int8(columns, layout.OUT_EXISTS, row, exists)
    memory.put_int8(columns, layout.OUT_CAN_ADVANCE, row, can_advance)
    memory.put_int8(columns, layout.OUT_HAS_BROKER, row, 1 if broker >= 0 else 0)
    memory.put_int8(
        columns, layout.OUT_HAS_ELECTION, row, 1 if cell(output, layout.ELECTION) != codes.NO_ELECTION else 0
    )
    memory.put_int8(columns, layout.OUT_HAS_EXPECTED_ELR, row, 1 if cell(output, layout.EXPECTED_ELR + 1) >= 0 else 0)
    cause = cell(output, layout.CAUSE)
    memory.put_int8(columns, layout.OUT_OPEN_CAUSE, row, cause if cause >= codes.LEFT_OPEN else 0)
    return event


@shared
def _fill_rows(block: int, sources: int, columns: int, row: int, end: int) -> None:
    """Numbers row by row, what varies in length column by column: so its end stays in a register."""
    output = output_row(block, row)
    topic_ids = slot(sources, layout.FROM_TOPIC_IDS)
    for at in range(row, end):
        source = output_row(block, at)
        _put_numbers(columns, sources, source, at)
        topic_id = topic_ids + layout.UUID_STRIDE * cell(source, layout.TOPIC)
        _put_words(slot(columns, layout.OUT_TOPIC_ID) + _UUID_CHARACTERS * at, topic_id)
    _put_texts(output, row, end, layout.TOPIC, columns, layout.OUT_TOPIC, sources)
    _put_texts(output, row, end, layout.CAUSE, columns, layout.OUT_CAUSE, sources)
    _put_texts(output, row, end, layout.ELECTION, columns, layout.OUT_ELECTION, sources)
    _put_texts(output, row, end, layout.RECOVERY_STATE, columns, layout.OUT_RECOVERY_STATE, sources)
    arena = slot(block, layout.ARENA_AT)
    for number in range(layout.LIST_COUNT + 1):
        if slot(block, layout.OUTPUT_LENGTHS + number) == 0:
            _put_no_lists(row, end, columns, layout.OUT_LISTS + 2 * number)
        else:
            place = layout.LISTS + 2 * number if number < layout.LIST_COUNT else layout.EXPECTED_ELR
            _put_lists(arena, output, row, end, place, columns, layout.OUT_LISTS + 2 * number)
    _put_directories(columns, row, end, slot(sources, layout.FROM_DIRECTORIES))


@shared
def fill_output(block: int, sources: int, columns: int) -> int:
    """Writes the output rows into the columns; the first offset of every text and list is there already.

    As many rows at a time as stay in the nearest cache.
    """
    count = slot(block, layout.OUTPUT_COUNT)
    row = 0
    while row < count:
        end = min(count, row + _ROWS_AT_ONCE)
        _fill_rows(block, sources, columns, row, end)
        row = end
    return count
