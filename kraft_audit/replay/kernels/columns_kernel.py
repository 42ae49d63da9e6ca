"""Decoded columns into the rows that the partition kernel reads, and its output rows into Arrow's buffers.

Each goes through its rows once and touches every byte once. What is written has room for what the output's lists and
texts hold, and for SLACK_BYTES more.
"""

from __future__ import annotations

from kraft_audit.replay.causes import NO_ELECTION
from kraft_audit.replay.kernels.layout import (
    ARENA_AT,
    CAUSE,
    CAUSE_BROKER,
    CHANGE_EVENT,
    DIRECTORIES,
    EFFECTIVE_MIN_ISR,
    ELECTION,
    EVENT,
    EXISTS,
    EXPECTED_ELR,
    FROM_DIRECTORIES,
    FROM_EPOCHS,
    FROM_OFFSETS,
    FROM_TEXTS,
    FROM_TIMES,
    FROM_TOPIC_IDS,
    IN_LEADER,
    IN_LEADER_EPOCH,
    IN_LISTS,
    IN_PARTITION,
    IN_PARTITION_EPOCH,
    IN_RECOVERY_STATE,
    IN_TOPIC,
    INPUT_BYTES,
    INPUT_LISTS,
    INPUT_PARTITION,
    INPUT_TOPIC,
    ISR,
    LEADER,
    LEADER_EPOCH,
    LIST_COUNT,
    LISTS,
    MERGE_COUNT,
    MERGE_CREATED,
    MERGE_EPOCHS,
    MERGE_OFFSETS,
    MERGE_RARE,
    MERGE_RARE_COUNT,
    MERGE_TIMES,
    MERGED_EPOCHS,
    MERGED_FIRST,
    MERGED_KINDS,
    MERGED_OFFSETS,
    MERGED_SECOND,
    MERGED_TIMES,
    OUT_BROKER,
    OUT_CAN_ADVANCE,
    OUT_CAUSE,
    OUT_DIRECTORY_TEXT,
    OUT_ELECTION,
    OUT_EXISTS,
    OUT_FROM_EPOCH,
    OUT_FROM_OFFSET,
    OUT_HAS_BROKER,
    OUT_HAS_ELECTION,
    OUT_HAS_EXPECTED_ELR,
    OUT_LEADER,
    OUT_LEADER_EPOCH,
    OUT_LISTS,
    OUT_MIN_ISR,
    OUT_PARTITION,
    OUT_PARTITION_EPOCH,
    OUT_RECOVERY_STATE,
    OUT_TIMESTAMP,
    OUT_TOPIC,
    OUT_TOPIC_ID,
    OUTPUT_AT,
    OUTPUT_BYTES,
    OUTPUT_COUNT,
    OUTPUT_LENGTHS,
    PARTITION,
    PARTITION_EPOCH,
    PARTITION_EVENT,
    PLACE_BYTES,
    RARE_BYTES,
    RECOVERY_STATE,
    SHORT_LIST,
    SLACK_BYTES,
    TOPIC,
    UUID_STRIDE,
)
from kraft_audit.replay.kernels.memory_rows import cell, length_of_list, set_cell, slot
from kraft_codec.kernels.memory import (
    copy_bytes,
    inlined,
    load_int8,
    load_int32,
    load_int64,
    load_uint8,
    shared,
    store_int8,
    store_int32,
    store_int64,
)

_UUID_CHARACTERS = 22
_ROWS_AT_ONCE = 192


@inlined
def _fill_input_list(columns: int, number: int, record: int, row: int) -> int:
    """Where in the arena one list of one record stands; its length, -1 for a null list."""
    table = columns + 8 * (IN_LISTS + 4 * number)
    offsets = load_int64(table) + 4 * row
    start = load_int32(offsets)
    length = load_int32(offsets + 4) - start
    validity = load_int64(table + 8)
    if validity != 0:
        bit = load_int64(table + 16) + row
        is_valid = (load_uint8(validity + (bit >> 3)) >> (bit & 7)) & 1
        length = length if is_valid else -1
    set_cell(record, INPUT_LISTS + 2 * number, start + load_int64(table + 24))
    set_cell(record, INPUT_LISTS + 2 * number + 1, length)
    return length


@shared
def fill_inputs(columns: int, count: int, rows: int) -> int:
    """The records of one type as input rows; the values of their lists are in the arena already.

    Returns the length of the longest list.
    """
    longest = 0
    leader_epochs = slot(columns, IN_LEADER_EPOCH)
    partition_epochs = slot(columns, IN_PARTITION_EPOCH)
    for row in range(count):
        record = rows + INPUT_BYTES * row
        set_cell(record, LEADER, load_int32(slot(columns, IN_LEADER) + 4 * row))
        set_cell(record, RECOVERY_STATE, load_int8(slot(columns, IN_RECOVERY_STATE) + row))
        set_cell(record, LEADER_EPOCH, load_int32(leader_epochs + 4 * row) if leader_epochs != 0 else 0)
        set_cell(record, PARTITION_EPOCH, load_int32(partition_epochs + 4 * row) if partition_epochs != 0 else 0)
        set_cell(record, INPUT_TOPIC, load_int32(slot(columns, IN_TOPIC) + 4 * row))
        set_cell(record, INPUT_PARTITION, load_int32(slot(columns, IN_PARTITION) + 4 * row))
        for number in range(LIST_COUNT):
            longest = max(longest, _fill_input_list(columns, number, record, row))
    return longest


@inlined
def _put_event(table: int, at: int, offset: int, epoch: int, time: int) -> int:
    store_int64(slot(table, MERGED_OFFSETS) + 8 * at, offset)
    store_int32(slot(table, MERGED_EPOCHS) + 4 * at, epoch)
    store_int64(slot(table, MERGED_TIMES) + 8 * at, time)
    return at


@inlined
def _put_meaning(table: int, at: int, kind: int, first: int, second: int) -> int:
    store_int32(slot(table, MERGED_KINDS) + 4 * at, kind)
    store_int32(slot(table, MERGED_FIRST) + 4 * at, first)
    store_int32(slot(table, MERGED_SECOND) + 4 * at, second)
    return at


@shared
def merge_events(table: int) -> int:
    """Merges PartitionRecords, PartitionChangeRecords and rare events, each ascending by offset; returns how many."""
    offsets = slot(table, MERGE_OFFSETS)
    end_of_created = slot(table, MERGE_CREATED)
    end = slot(table, MERGE_COUNT)
    rare_end = slot(table, MERGE_RARE_COUNT)
    created = 0
    changed = end_of_created
    rare = 0
    at = 0
    while created < end_of_created or changed < end or rare < rare_end:
        row = -1
        if created < end_of_created:
            row = created
        if changed < end and (row < 0 or load_int64(offsets + 8 * changed) < load_int64(offsets + 8 * row)):
            row = changed
        source = slot(table, MERGE_RARE) + RARE_BYTES * rare
        if rare < rare_end and (row < 0 or load_int64(source) < load_int64(offsets + 8 * row)):
            _put_event(table, at, load_int64(source), load_int64(source + 8), load_int64(source + 16))
            _put_meaning(table, at, load_int64(source + 24), load_int64(source + 32), load_int64(source + 40))
            rare += 1
        else:
            epoch = load_int32(slot(table, MERGE_EPOCHS) + 4 * row)
            _put_event(table, at, load_int64(offsets + 8 * row), epoch, load_int64(slot(table, MERGE_TIMES) + 8 * row))
            if row < end_of_created:
                _put_meaning(table, at, PARTITION_EVENT, row, 0)
                created += 1
            else:
                _put_meaning(table, at, CHANGE_EVENT, row, 0)
                changed += 1
        at += 1
    return at


@inlined
def _put_words(target: int, source: int) -> int:
    """Copies three words: a text, and what the next one overwrites."""
    store_int64(target, load_int64(source))
    store_int64(target + 8, load_int64(source + 8))
    store_int64(target + 16, load_int64(source + 16))
    return target


@inlined
def _put_texts(output: int, row: int, end: int, number: int, columns: int, column: int, texts: int) -> None:
    """Writes the texts of some rows behind those of the rows before; a cell says which of `texts` (places, characters).

    `output`: the first of the rows.
    """
    offsets = slot(columns, column)
    characters = slot(columns, column + 1)
    places = slot(texts, 0)
    sources = slot(texts, 1)
    written = load_int32(offsets + 4 * row)
    while row < end:
        key = cell(output, number)
        if number == RECOVERY_STATE:
            key = 1 if key != 0 else 0
        place = places + PLACE_BYTES * key
        length = load_int64(place + 8)
        source = sources + load_int64(place)
        _put_words(characters + written, source)
        if length > SLACK_BYTES:
            copy_bytes(characters + written, source, length)
        written += length
        row += 1
        store_int32(offsets + 4 * row, written)
        output += OUTPUT_BYTES


@inlined
def _put_lists(arena: int, output: int, row: int, end: int, number: int, columns: int, column: int) -> None:
    """Writes the lists of some rows behind those of the rows before; they are a cell's and the next one's."""
    offsets = slot(columns, column)
    values = slot(columns, column + 1)
    written = load_int32(offsets + 4 * row)
    while row < end:
        length = cell(output, number + 1)
        if length > 0:
            target = values + 4 * written
            source = arena + 4 * cell(output, number)
            store_int64(target, load_int64(source))
            store_int64(target + 8, load_int64(source + 8))
            if length > SHORT_LIST:
                copy_bytes(target, source, 4 * length)
            written += length
        row += 1
        store_int32(offsets + 4 * row, written)
        output += OUTPUT_BYTES


@inlined
def _put_no_lists(row: int, end: int, columns: int, column: int) -> None:
    """Ends the lists of some rows where they begin, in a column that has no value at all."""
    offsets = slot(columns, column)
    for at in range(row, end):
        store_int32(offsets + 4 * (at + 1), 0)


@inlined
def _put_directories(columns: int, row: int, end: int, directories: int) -> None:
    """Writes the texts of the directories of some rows, whose numbers stand in the column of that list."""
    column = OUT_LISTS + 2 * DIRECTORIES
    values = slot(columns, column + 1)
    texts = slot(columns, OUT_DIRECTORY_TEXT)
    for at in range(load_int32(slot(columns, column) + 4 * row), load_int32(slot(columns, column) + 4 * end)):
        _put_words(texts + _UUID_CHARACTERS * at, directories + UUID_STRIDE * load_int32(values + 4 * at))


@inlined
def _put_numbers(columns: int, sources: int, output: int, row: int) -> int:
    event = cell(output, EVENT)
    store_int64(slot(columns, OUT_FROM_OFFSET) + 8 * row, load_int64(slot(sources, FROM_OFFSETS) + 8 * event))
    store_int32(slot(columns, OUT_FROM_EPOCH) + 4 * row, load_int32(slot(sources, FROM_EPOCHS) + 4 * event))
    store_int64(slot(columns, OUT_TIMESTAMP) + 8 * row, load_int64(slot(sources, FROM_TIMES) + 8 * event))
    store_int32(slot(columns, OUT_PARTITION) + 4 * row, cell(output, PARTITION))
    store_int32(slot(columns, OUT_LEADER) + 4 * row, cell(output, LEADER))
    store_int32(slot(columns, OUT_LEADER_EPOCH) + 4 * row, cell(output, LEADER_EPOCH))
    store_int32(slot(columns, OUT_PARTITION_EPOCH) + 4 * row, cell(output, PARTITION_EPOCH))
    minimum = cell(output, EFFECTIVE_MIN_ISR)
    store_int32(slot(columns, OUT_MIN_ISR) + 4 * row, minimum)
    broker = cell(output, CAUSE_BROKER)
    store_int32(slot(columns, OUT_BROKER) + 4 * row, broker)
    exists = 1 if cell(output, EXISTS) != 0 else 0
    # A write with acks=all can be committed: enough replicas in sync, and a leader among them.
    in_sync = length_of_list(output + 4 * LISTS, ISR)
    can_advance = exists if in_sync >= minimum and cell(output, LEADER) >= 0 else 0
    store_int8(slot(columns, OUT_EXISTS) + row, exists)
    store_int8(slot(columns, OUT_CAN_ADVANCE) + row, can_advance)
    store_int8(slot(columns, OUT_HAS_BROKER) + row, 1 if broker >= 0 else 0)
    store_int8(slot(columns, OUT_HAS_ELECTION) + row, 1 if cell(output, ELECTION) != NO_ELECTION else 0)
    store_int8(slot(columns, OUT_HAS_EXPECTED_ELR) + row, 1 if cell(output, EXPECTED_ELR + 1) >= 0 else 0)
    return event


@shared
def _fill_rows(block: int, sources: int, columns: int, row: int, end: int) -> None:
    """Numbers row by row, whatever varies in length column by column: so its end stays in a register."""
    output = slot(block, OUTPUT_AT) + OUTPUT_BYTES * row
    topic_ids = slot(sources, FROM_TOPIC_IDS)
    for at in range(row, end):
        source = output + OUTPUT_BYTES * (at - row)
        _put_numbers(columns, sources, source, at)
        topic_id = topic_ids + UUID_STRIDE * cell(source, TOPIC)
        _put_words(slot(columns, OUT_TOPIC_ID) + _UUID_CHARACTERS * at, topic_id)
    texts = sources + 8 * FROM_TEXTS
    _put_texts(output, row, end, TOPIC, columns, OUT_TOPIC, texts)
    _put_texts(output, row, end, CAUSE, columns, OUT_CAUSE, texts + 16)
    _put_texts(output, row, end, ELECTION, columns, OUT_ELECTION, texts + 32)
    _put_texts(output, row, end, RECOVERY_STATE, columns, OUT_RECOVERY_STATE, texts + 48)
    arena = slot(block, ARENA_AT)
    for number in range(LIST_COUNT + 1):
        if slot(block, OUTPUT_LENGTHS + number) == 0:
            _put_no_lists(row, end, columns, OUT_LISTS + 2 * number)
        else:
            place = LISTS + 2 * number if number < LIST_COUNT else EXPECTED_ELR
            _put_lists(arena, output, row, end, place, columns, OUT_LISTS + 2 * number)
    _put_directories(columns, row, end, slot(sources, FROM_DIRECTORIES))


@shared
def fill_output(block: int, sources: int, columns: int) -> int:
    """Writes the output rows into the columns; the first offset of every text and list is there already.

    As many rows at a time as stay in the nearest cache.
    """
    count = slot(block, OUTPUT_COUNT)
    row = 0
    while row < count:
        end = min(count, row + _ROWS_AT_ONCE)
        _fill_rows(block, sources, columns, row, end)
        row = end
    return count
