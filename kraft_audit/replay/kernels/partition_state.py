"""One partition's state: created by a PartitionRecord, merged with a PartitionChangeRecord, written out as a row.

PartitionRegistration (constructor, merge, defaultToMigrating) and getTopicEffectiveMinIsr of Kafka 4.3.0.
"""

from __future__ import annotations

from kraft_audit.replay.causes import (
    CREATED,
    NO_ELECTION,
    OTHER,
    REPLACED,
)
from kraft_audit.replay.kernels.causes_kernel import (
    cause_of,
    election_after,
    election_of,
    expect_elr,
)
from kraft_audit.replay.kernels.layout import (
    ARENA_AT,
    ARENA_USED,
    CAUSE,
    CAUSE_BROKER,
    DEFAULT_MIN_ISR,
    DIRECTORIES,
    DIRECTORY_WIPES_ELR,
    EFFECTIVE_MIN_ISR,
    ELECTION,
    ELR_LEVEL,
    EMIT_FROM_OFFSET,
    EVENT,
    EXISTS,
    EXPECTED_ELR,
    FIRST_PARTITION,
    FOUND_BROKER,
    INPUT_LISTS,
    INPUT_PARTITION,
    INPUT_TOPIC,
    KEY_MASK,
    KEYS_AT,
    LEADER,
    LEADER_EPOCH,
    LIST_COUNT,
    LISTS,
    LONG_LIST,
    NEXT_OF_TOPIC,
    OFFSETS_AT,
    OUTPUT_AT,
    OUTPUT_BYTES,
    OUTPUT_COUNT,
    OUTPUT_VALUES,
    PARTITION,
    PARTITION_0,
    PARTITION_BYTES,
    PARTITION_COUNT,
    PARTITION_EPOCH,
    PARTITIONS_AT,
    RECOVERY_STATE,
    REPLICAS,
    SCRATCH_AT,
    TOPIC,
    TOPIC_BYTES,
    TOPIC_MIN_ISR,
    TOPICS_AT,
    VALUES_AT,
)
from kraft_audit.replay.kernels.memory_rows import (
    cell,
    length_of_list,
    set_cell,
    set_slot,
    slot,
)
from kraft_codec.kernels.memory import (
    copy_bytes,
    inlined,
    load_int32,
    load_int64,
    shared,
    store_int32,
    store_int64,
)

_HASH_FACTOR = 0x9E3779B97F4A7C1
"""A positive odd number near 2^63 / phi: spreads keys over the table's high bits."""


@inlined
def partition_row(block: int, index: int) -> int:
    return slot(block, PARTITIONS_AT) + PARTITION_BYTES * index


@inlined
def topic_row(block: int, topic: int) -> int:
    return slot(block, TOPICS_AT) + TOPIC_BYTES * topic


@inlined
def _hash_position(key: int, mask: int) -> int:
    mixed = key * _HASH_FACTOR
    return (mixed ^ (mixed >> 29)) & mask


@inlined
def _find(block: int, key: int) -> int:
    """Where a key stands in the hash table, or the free place where it belongs."""
    keys = slot(block, KEYS_AT)
    mask = slot(block, KEY_MASK)
    position = _hash_position(key, mask)
    while True:
        found = load_int64(keys + 8 * position)
        if found in (key, -1):
            return position
        position = (position + 1) & mask


@shared
def rehash(block: int) -> int:
    """Files every partition in the (larger, empty) hash table of the block."""
    for index in range(slot(block, PARTITION_COUNT)):
        row = partition_row(block, index)
        key = (cell(row, TOPIC) << 32) | (cell(row, PARTITION) & 0xFFFFFFFF)
        position = _find(block, key)
        store_int64(slot(block, KEYS_AT) + 8 * position, key)
        store_int32(slot(block, VALUES_AT) + 4 * position, index)
    return 0


@inlined
def effective_min_isr(block: int, topic: int) -> int:
    """min.insync.replicas of the topic or the default, capped by the replicas of partition 0."""
    row = topic_row(block, topic)
    value = cell(row, TOPIC_MIN_ISR)
    if value < 0:
        value = slot(block, DEFAULT_MIN_ISR)
    first = cell(row, PARTITION_0)
    if first >= 0:
        count = length_of_list(partition_row(block, first) + 4 * LISTS, REPLICAS)
        if count < value:
            return count
    return value


@inlined
def emit(block: int, index: int, event: int, cause: int, broker: int, election: int) -> int:
    """Writes an output row and returns its address; below EMIT_FROM_OFFSET the next row takes its place."""
    count = slot(block, OUTPUT_COUNT)
    output = slot(block, OUTPUT_AT) + OUTPUT_BYTES * count
    copy_bytes(output, partition_row(block, index), PARTITION_BYTES)
    set_cell(output, EVENT, event)
    set_cell(output, CAUSE, cause)
    set_cell(output, CAUSE_BROKER, broker)
    set_cell(output, ELECTION, election)
    set_cell(output, EXPECTED_ELR, 0)
    set_cell(output, EXPECTED_ELR + 1, -1)
    if load_int64(slot(block, OFFSETS_AT) + 8 * event) >= slot(block, EMIT_FROM_OFFSET):
        set_slot(block, OUTPUT_COUNT, count + 1)
        values = slot(block, OUTPUT_VALUES)
        for number in range(LIST_COUNT):
            values += length_of_list(output + 4 * LISTS, number)
        set_slot(block, OUTPUT_VALUES, values)
    return output


@inlined
def set_list(row: int, number: int, start: int, length: int) -> None:
    set_cell(row, LISTS + 2 * number, start)
    set_cell(row, LISTS + 2 * number + 1, length)


@inlined
def _default_to_migrating(block: int, row: int) -> None:
    """Directories that are none, or all MIGRATING, become MIGRATING once a replica (defaultToMigrating)."""
    lists = row + 4 * LISTS
    start = slot(block, ARENA_AT) + 4 * load_int32(lists + 8 * DIRECTORIES)
    for at in range(length_of_list(lists, DIRECTORIES)):
        if load_int32(start + 4 * at) != 0:
            return
    count = length_of_list(lists, REPLICAS)
    if count == length_of_list(lists, DIRECTORIES):
        return
    used = slot(block, ARENA_USED)
    for at in range(count):
        store_int32(slot(block, ARENA_AT) + 4 * (used + at), 0)
    set_list(row, DIRECTORIES, used, count)
    set_slot(block, ARENA_USED, used + count)


@shared
def create(block: int, event: int, record: int) -> int:
    """PartitionRecord; returns the partition."""
    topic = cell(record, INPUT_TOPIC)
    partition = cell(record, INPUT_PARTITION)
    key = (topic << 32) | (partition & 0xFFFFFFFF)
    position = _find(block, key)
    cause = CREATED
    if load_int64(slot(block, KEYS_AT) + 8 * position) == -1:
        index = slot(block, PARTITION_COUNT)
        set_slot(block, PARTITION_COUNT, index + 1)
        store_int64(slot(block, KEYS_AT) + 8 * position, key)
        store_int32(slot(block, VALUES_AT) + 4 * position, index)
        row = partition_row(block, index)
        set_cell(row, TOPIC, topic)
        set_cell(row, PARTITION, partition)
        set_cell(row, NEXT_OF_TOPIC, cell(topic_row(block, topic), FIRST_PARTITION))
        set_cell(topic_row(block, topic), FIRST_PARTITION, index)
        if partition == 0:
            set_cell(topic_row(block, topic), PARTITION_0, index)
    else:
        index = load_int32(slot(block, VALUES_AT) + 4 * position)
        row = partition_row(block, index)
        cause = REPLACED if cell(row, EXISTS) else CREATED
    for number in (LEADER, RECOVERY_STATE, LEADER_EPOCH, PARTITION_EPOCH):
        set_cell(row, number, cell(record, number))
    set_cell(row, EXISTS, 1)
    for number in range(LIST_COUNT):
        length = length_of_list(record + 4 * INPUT_LISTS, number)
        set_list(row, number, cell(record, INPUT_LISTS + 2 * number), length if length > 0 else 0)
    _default_to_migrating(block, row)
    set_cell(row, EFFECTIVE_MIN_ISR, effective_min_isr(block, topic))
    emit(block, index, event, cause, -1, NO_ELECTION)
    return index


@inlined
def _merge(block: int, row: int, record: int) -> None:
    """PartitionRegistration.merge: what is null stays, any leader bumps the leader epoch, every change the epoch."""
    for number in range(LIST_COUNT):
        length = length_of_list(record + 4 * INPUT_LISTS, number)
        if length >= 0:
            set_list(row, number, cell(record, INPUT_LISTS + 2 * number), length)
    _default_to_migrating(block, row)
    if cell(record, LEADER) != -2:
        set_cell(row, LEADER, cell(record, LEADER))
        set_cell(row, LEADER_EPOCH, cell(row, LEADER_EPOCH) + 1)
    if cell(record, RECOVERY_STATE) != -1:
        set_cell(row, RECOVERY_STATE, cell(record, RECOVERY_STATE))
    set_cell(row, PARTITION_EPOCH, cell(row, PARTITION_EPOCH) + 1)


@shared
def change(block: int, event: int, record: int) -> int:
    """PartitionChangeRecord; returns the partition, or -1 where it is not known."""
    key = (cell(record, INPUT_TOPIC) << 32) | (cell(record, INPUT_PARTITION) & 0xFFFFFFFF)
    position = _find(block, key)
    if load_int64(slot(block, KEYS_AT) + 8 * position) == -1:
        return -1
    index = load_int32(slot(block, VALUES_AT) + 4 * position)
    row = partition_row(block, index)
    if cell(row, EXISTS) == 0:
        return -1
    old = slot(block, SCRATCH_AT)
    copy_bytes(old, row, PARTITION_BYTES)
    _merge(block, row, record)
    set_cell(row, EFFECTIVE_MIN_ISR, effective_min_isr(block, cell(row, TOPIC)))
    longest = 0
    for number in range(LIST_COUNT):
        longest = max(longest, length_of_list(old + 4 * LISTS, number), length_of_list(row + 4 * LISTS, number))
    if longest > LONG_LIST:
        emit(block, index, event, OTHER, -1, NO_ELECTION)
        return index
    set_slot(block, FOUND_BROKER, -1)
    election = election_of(block, old, row, record)
    cause = cause_of(block, event, old, row, record, election)
    election = election_after(block, old, row, election, cause)
    output = emit(block, index, event, cause, slot(block, FOUND_BROKER), election)
    if slot(block, ELR_LEVEL) > 0:
        expect_elr(block, old, row, election, cause, output + 4 * EXPECTED_ELR)
        record_lists = record + 4 * INPUT_LISTS
        assigns = length_of_list(record_lists, DIRECTORIES) >= 0 and length_of_list(record_lists, REPLICAS) < 0
        if assigns and slot(block, DIRECTORY_WIPES_ELR) > 0:
            set_cell(output, EXPECTED_ELR + 1, 0)
    return index
