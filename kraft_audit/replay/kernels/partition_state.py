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
    CAUSE_BROKER,
    DEFAULT_MIN_ISR,
    DIRECTORIES,
    DIRECTORY_WIPES_ELR,
    DONE,
    EFFECTIVE_MIN_ISR,
    ELR,
    ELR_LEVEL,
    EMIT_FROM_OFFSET,
    EVENT,
    EXISTS,
    EXPECTED_ELR,
    EXPOSED_BEFORE,
    EXPOSURE,
    FIRST_PARTITION,
    FOUND_BROKER,
    INPUT_LISTS,
    INPUT_PARTITION,
    INPUT_TOPIC,
    ISR,
    LAST_PARTITION,
    LAST_REPLICA,
    LEADER,
    LEADER_EPOCH,
    LIST_COUNT,
    LISTS,
    LONG_LIST,
    LONGEST_LIST,
    NEXT_OF_TOPIC,
    OFFLINE,
    OFFSETS_AT,
    OUTPUT_AT,
    OUTPUT_BYTES,
    OUTPUT_COUNT,
    OUTPUT_LENGTHS,
    OUTPUT_VALUES,
    PARTITION,
    PARTITION_0,
    PARTITION_BYTES,
    PARTITION_COUNT,
    PARTITION_EPOCH,
    PARTITIONS_AT,
    RECOVERY_STATE,
    REPLICAS,
    SLOT_MASK,
    SLOTS_AT,
    TOPIC,
    TOPIC_BYTES,
    TOPIC_MIN_ISR,
    TOPICS_AT,
    UNDER_MIN_ISR,
)
from kraft_audit.replay.kernels.memory_rows import (
    cell,
    element,
    length_of_list,
    set_cell,
    set_pair,
    set_slot,
    slot,
)
from kraft_codec.kernels.memory import (
    inlined,
    load_int32,
    load_int64,
    prefetch,
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
def _first_place_of(block: int, topic: int, partition: int) -> int:
    mixed = ((topic << 32) | (partition & 0xFFFFFFFF)) * _HASH_FACTOR
    return (mixed ^ (mixed >> 29)) & slot(block, SLOT_MASK)


@inlined
def expect_place(block: int, record: int) -> None:
    """Asks for where the hash table holds the partition of a record to come, and for its topic's row."""
    topic = cell(record, INPUT_TOPIC)
    prefetch(slot(block, SLOTS_AT) + 4 * _first_place_of(block, topic, cell(record, INPUT_PARTITION)))
    prefetch(topic_row(block, topic))


@inlined
def expect_state(block: int, record: int) -> None:
    """Asks for the state that a record to come will change, where it is of the partition that its topic met last."""
    last = cell(topic_row(block, cell(record, INPUT_TOPIC)), LAST_PARTITION)
    row = partition_row(block, max(last, 0))
    prefetch(row)
    prefetch(row + PARTITION_BYTES - 4)


@inlined
def _place_of(block: int, topic: int, partition: int) -> int:
    """Where the hash table holds a partition's index, or the free place (-1) where it belongs."""
    slots = slot(block, SLOTS_AT)
    mask = slot(block, SLOT_MASK)
    position = _first_place_of(block, topic, partition)
    while True:
        index = load_int32(slots + 4 * position)
        if index < 0:
            return slots + 4 * position
        row = partition_row(block, index)
        if cell(row, TOPIC) == topic and cell(row, PARTITION) == partition:
            return slots + 4 * position
        position = (position + 1) & mask


@shared
def rehash(block: int) -> int:
    """Files every partition in the (larger, empty) hash table of the block."""
    for index in range(slot(block, PARTITION_COUNT)):
        row = partition_row(block, index)
        store_int32(_place_of(block, cell(row, TOPIC), cell(row, PARTITION)), index)
    return 0


@inlined
def effective_min_isr(block: int, topic: int, index: int, lists: int) -> int:
    """min.insync.replicas of the topic or the default, capped by the replicas of partition 0.

    `lists` are those that the partition `index` has or is about to get.
    """
    row = topic_row(block, topic)
    value = cell(row, TOPIC_MIN_ISR)
    if value < 0:
        value = slot(block, DEFAULT_MIN_ISR)
    first = cell(row, PARTITION_0)
    if first >= 0:
        lists_of_first = lists if first == index else partition_row(block, first) + 4 * LISTS
        return min(value, length_of_list(lists_of_first, REPLICAS))
    return value


@inlined
def copy_state(to: int, source: int) -> None:
    """By words, as `set_pair` writes them: a wider read would wait until what was just written has left the core."""
    for word in range(PARTITION_BYTES // 8):
        store_int64(to + 8 * word, load_int64(source + 8 * word))


@inlined
def next_output(block: int) -> int:
    """Where the next output row goes."""
    return slot(block, OUTPUT_AT) + OUTPUT_BYTES * slot(block, OUTPUT_COUNT)


@shared
def _holds_one(block: int, lists: int) -> bool:
    """Whether ISR and ELR together are one replica, however often it is listed."""
    in_sync = length_of_list(lists, ISR)
    eligible = length_of_list(lists, ELR)
    if in_sync + eligible == 0:
        return False
    first = element(block, lists, ISR, 0) if in_sync > 0 else element(block, lists, ELR, 0)
    for at in range(in_sync):
        if element(block, lists, ISR, at) != first:
            return False
    for at in range(eligible):  # noqa: SIM110 (no generator in a kernel)
        if element(block, lists, ELR, at) != first:
            return False
    return True


@shared
def exposure_of(block: int, row: int) -> int:
    """What exposes the partition whose state stands at a row."""
    if cell(row, EXISTS) == 0:
        return 0
    lists = row + 4 * LISTS
    found = 0
    if length_of_list(lists, REPLICAS) > 1 and _holds_one(block, lists):
        found += LAST_REPLICA
    if cell(row, LEADER) == -1:
        found += OFFLINE
    if length_of_list(lists, ISR) < cell(row, EFFECTIVE_MIN_ISR):
        found += UNDER_MIN_ISR
    return found


@shared
def expose_output(block: int) -> int:
    """What exposes the partitions of the output rows, of which nothing is known before."""
    for at in range(slot(block, OUTPUT_COUNT)):
        row = slot(block, OUTPUT_AT) + OUTPUT_BYTES * at
        set_cell(row, EXPOSURE, exposure_of(block, row))
    return DONE


@inlined
def finish_output(block: int, output: int, event: int, cause: int, broker: int, election: int) -> None:
    """Completes a row whose state stands there; below EMIT_FROM_OFFSET the next row takes its place."""
    before = EXPOSED_BEFORE * (cell(output, EXPOSURE) % EXPOSED_BEFORE)
    set_pair(output, NEXT_OF_TOPIC, cell(output, NEXT_OF_TOPIC), before + exposure_of(block, output))
    set_pair(output, EVENT, event, cause)
    set_pair(output, CAUSE_BROKER, broker, election)
    set_pair(output, EXPECTED_ELR, 0, -1)
    if load_int64(slot(block, OFFSETS_AT) + 8 * event) >= slot(block, EMIT_FROM_OFFSET):
        set_slot(block, OUTPUT_COUNT, slot(block, OUTPUT_COUNT) + 1)
        values = 0
        for number in range(LIST_COUNT):
            length = length_of_list(output + 4 * LISTS, number)
            set_slot(block, OUTPUT_LENGTHS + number, slot(block, OUTPUT_LENGTHS + number) + length)
            values += length
        set_slot(block, OUTPUT_VALUES, slot(block, OUTPUT_VALUES) + values)


@shared
def emit(block: int, index: int, event: int, cause: int) -> int:
    """A row of a partition's state as it is, for what has neither a broker nor an election behind it."""
    output = next_output(block)
    copy_state(output, partition_row(block, index))
    finish_output(block, output, event, cause, -1, NO_ELECTION)
    set_cell(partition_row(block, index), EXPOSURE, cell(output, EXPOSURE))
    return output


@inlined
def set_list(row: int, number: int, start: int, length: int) -> None:
    set_pair(row, LISTS + 2 * number, start, length)


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
    place = _place_of(block, topic, partition)
    index = load_int32(place)
    cause = CREATED
    if index < 0:
        index = slot(block, PARTITION_COUNT)
        set_slot(block, PARTITION_COUNT, index + 1)
        store_int32(place, index)
        row = partition_row(block, index)
        set_pair(row, TOPIC, topic, partition)
        set_pair(row, NEXT_OF_TOPIC, cell(topic_row(block, topic), FIRST_PARTITION), 0)
        set_cell(topic_row(block, topic), FIRST_PARTITION, index)
        if partition == 0:
            set_cell(topic_row(block, topic), PARTITION_0, index)
    else:
        row = partition_row(block, index)
        cause = REPLACED if cell(row, EXISTS) else CREATED
    set_cell(topic_row(block, topic), LAST_PARTITION, index)
    set_pair(row, LEADER, cell(record, LEADER), cell(record, RECOVERY_STATE))
    set_pair(row, LEADER_EPOCH, cell(record, LEADER_EPOCH), cell(record, PARTITION_EPOCH))
    for number in range(LIST_COUNT):
        length = length_of_list(record + 4 * INPUT_LISTS, number)
        set_list(row, number, cell(record, INPUT_LISTS + 2 * number), length if length > 0 else 0)
    _default_to_migrating(block, row)
    set_pair(row, EXISTS, 1, effective_min_isr(block, topic, index, row + 4 * LISTS))
    emit(block, index, event, cause)
    return index


@inlined
def _merge(block: int, index: int, old: int, new: int, record: int) -> None:
    """PartitionRegistration.merge: what is null stays, any leader bumps the leader epoch, every change the epoch."""
    for number in range(LIST_COUNT):
        # Both cells of a list at once: the length is the upper half, so that of a null list makes the whole negative.
        given = load_int64(record + 4 * (INPUT_LISTS + 2 * number))
        kept = load_int64(old + 4 * (LISTS + 2 * number))
        store_int64(new + 4 * (LISTS + 2 * number), given if given >= 0 else kept)
    _default_to_migrating(block, new)
    leader = cell(record, LEADER)
    is_elected = leader != -2
    recovery_state = cell(record, RECOVERY_STATE)
    set_pair(
        new,
        LEADER,
        leader if is_elected else cell(old, LEADER),
        recovery_state if recovery_state != -1 else cell(old, RECOVERY_STATE),
    )
    set_pair(new, LEADER_EPOCH, cell(old, LEADER_EPOCH) + (1 if is_elected else 0), cell(old, PARTITION_EPOCH) + 1)
    set_pair(new, EXISTS, 1, effective_min_isr(block, cell(old, TOPIC), index, new + 4 * LISTS))
    set_pair(new, TOPIC, cell(old, TOPIC), cell(old, PARTITION))
    set_pair(new, NEXT_OF_TOPIC, cell(old, NEXT_OF_TOPIC), cell(old, EXPOSURE))


@shared
def _has_long_list(old: int, new: int) -> bool:
    longest = 0
    for number in range(LIST_COUNT):
        longest = max(longest, length_of_list(old + 4 * LISTS, number), length_of_list(new + 4 * LISTS, number))
    return longest > LONG_LIST


@inlined
def _known(block: int, topic: int, partition: int) -> int:
    """The partition of that topic and number, -1 where there is none. Most records are of the one met last."""
    last = cell(topic_row(block, topic), LAST_PARTITION)
    if last >= 0 and cell(partition_row(block, last), PARTITION) == partition:
        return last
    index = load_int32(_place_of(block, topic, partition))
    if index >= 0:
        set_cell(topic_row(block, topic), LAST_PARTITION, index)
    return index


@inlined
def _put_cause(block: int, event: int, old: int, new: int, record: int) -> None:
    """Completes the output row `new` of a change by its cause, its election, and the ELR that the rules give."""
    set_slot(block, FOUND_BROKER, -1)
    election = election_of(block, old, new, record)
    cause = cause_of(block, event, old, new, record, election)
    election = election_after(block, old, new, election, cause)
    finish_output(block, new, event, cause, slot(block, FOUND_BROKER), election)
    if slot(block, ELR_LEVEL) > 0:
        expect_elr(block, old, new, election, cause, new + 4 * EXPECTED_ELR)
        record_lists = record + 4 * INPUT_LISTS
        assigns = length_of_list(record_lists, DIRECTORIES) >= 0 and length_of_list(record_lists, REPLICAS) < 0
        if assigns and slot(block, DIRECTORY_WIPES_ELR) > 0:
            set_cell(new, EXPECTED_ELR + 1, 0)


@shared
def change(block: int, event: int, record: int) -> int:
    """PartitionChangeRecord; returns the partition, or -1 where it is not known."""
    index = _known(block, cell(record, INPUT_TOPIC), cell(record, INPUT_PARTITION))
    if index < 0 or cell(partition_row(block, index), EXISTS) == 0:
        return -1
    old = partition_row(block, index)
    new = next_output(block)
    _merge(block, index, old, new, record)
    if slot(block, LONGEST_LIST) > LONG_LIST and _has_long_list(old, new):
        finish_output(block, new, event, OTHER, -1, NO_ELECTION)
    else:
        _put_cause(block, event, old, new, record)
    copy_state(old, new)
    return index
