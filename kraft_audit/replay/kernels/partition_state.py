"""One partition's state: created by a PartitionRecord, merged with a PartitionChangeRecord, written out as a row.

PartitionRegistration (constructor, merge, defaultToMigrating) and getTopicEffectiveMinIsr of Kafka 4.3.0.
"""

from __future__ import annotations

from kraft_audit.replay.kernels import codes, layout
from kraft_audit.replay.kernels.causes import cause_of, election_after, election_of, expect_elr
from kraft_audit.replay.kernels.codes import Cause
from kraft_audit.replay.kernels.memory_rows import (
    cell,
    element,
    length_of_list,
    output_row,
    partition_row,
    record_lists,
    set_cell,
    set_list,
    set_pair,
    set_slot,
    slot,
    start_of_list,
    state_lists,
    topic_row,
)
from kraft_codec.kernels import memory
from kraft_codec.kernels.memory import inlined, shared

_HASH_FACTOR = 0x9E3779B97F4A7C1
"""A positive odd number near 2^63 / phi: spreads keys over the table's high bits."""


@inlined
def _first_place_of(block: int, topic: int, partition: int) -> int:
    mixed = ((topic << 32) | (partition & 0xFFFFFFFF)) * _HASH_FACTOR
    return (mixed ^ (mixed >> 29)) & slot(block, layout.SLOT_MASK)


@inlined
def prefetch_place(block: int, record: int) -> None:
    """Prefetches where the hash table holds the partition of a record to come, and its topic's row."""
    topic = cell(record, layout.INPUT_TOPIC)
    memory.prefetch_int32(block, layout.SLOTS_AT, _first_place_of(block, topic, cell(record, layout.INPUT_PARTITION)))
    memory.prefetch(topic_row(block, topic))


@inlined
def prefetch_state(block: int, record: int) -> None:
    """Prefetches the state that a record to come will change, where it is of the partition that its topic met last."""
    last = cell(topic_row(block, cell(record, layout.INPUT_TOPIC)), layout.LAST_PARTITION)
    row = partition_row(block, max(last, 0))
    memory.prefetch(row)
    memory.prefetch(row + layout.PARTITION_BYTES - 4)


@inlined
def _place_of(block: int, topic: int, partition: int) -> int:
    """The place in the hash table that holds a partition's index, or the free one (-1) where it belongs."""
    slots = slot(block, layout.SLOTS_AT)
    mask = slot(block, layout.SLOT_MASK)
    place = _first_place_of(block, topic, partition)
    while True:
        index = cell(slots, place)
        if index < 0:
            return place
        row = partition_row(block, index)
        if cell(row, layout.TOPIC) == topic and cell(row, layout.PARTITION) == partition:
            return place
        place = (place + 1) & mask


@shared
def rehash(block: int) -> int:
    """Files every partition in the (larger, empty) hash table of the block."""
    for index in range(slot(block, layout.PARTITION_COUNT)):
        row = partition_row(block, index)
        memory.put_int32(
            block, layout.SLOTS_AT, _place_of(block, cell(row, layout.TOPIC), cell(row, layout.PARTITION)), index
        )
    return 0


@inlined
def effective_min_isr(block: int, topic: int, index: int, lists: int) -> int:
    """min.insync.replicas of the topic or the default, capped by the replicas of partition 0.

    `lists` are those that the partition `index` has or is about to get.
    """
    row = topic_row(block, topic)
    value = cell(row, layout.TOPIC_MIN_ISR)
    if value < 0:
        value = slot(block, layout.DEFAULT_MIN_ISR)
    first = cell(row, layout.PARTITION_0)
    if first >= 0:
        lists_of_first = lists if first == index else state_lists(partition_row(block, first))
        return min(value, length_of_list(lists_of_first, layout.REPLICAS))
    return value


@inlined
def copy_state(to: int, source: int) -> None:
    """By words, as `set_pair` writes them: a wider read would wait until what was just written has left the core."""
    for word in range(layout.PARTITION_CELLS // 2):
        memory.set_int64_at(to, word, memory.int64_at(source, word))


@inlined
def next_output(block: int) -> int:
    """Where the next output row goes."""
    return output_row(block, slot(block, layout.OUTPUT_COUNT))


@shared
def _has_one_holder(block: int, lists: int) -> bool:
    """Whether ISR and ELR together are one replica, however often it is listed."""
    in_sync = length_of_list(lists, layout.ISR)
    eligible = length_of_list(lists, layout.ELR)
    if in_sync + eligible == 0:
        return False
    first = element(block, lists, layout.ISR, 0) if in_sync > 0 else element(block, lists, layout.ELR, 0)
    for at in range(in_sync):
        if element(block, lists, layout.ISR, at) != first:
            return False
    for at in range(eligible):  # noqa: SIM110 (no generator in a kernel)
        if element(block, lists, layout.ELR, at) != first:
            return False
    return True


_is_last_replica = inlined(codes.is_last_replica)
_is_offline = inlined(codes.is_offline)
_is_under_min_isr = inlined(codes.is_under_min_isr)


@shared
def exposure_of(block: int, row: int) -> int:
    """The bits of what exposes the partition whose state stands at a row."""
    exists = cell(row, layout.EXISTS)
    if exists == 0:
        return 0
    lists = state_lists(row)
    has_one_holder = length_of_list(lists, layout.REPLICAS) > 1 and _has_one_holder(block, lists)
    bits: int = (
        codes.LAST_REPLICA * _is_last_replica(exists, length_of_list(lists, layout.REPLICAS), has_one_holder)
        + codes.OFFLINE * _is_offline(exists, cell(row, layout.LEADER))
        + codes.UNDER_MIN_ISR
        * _is_under_min_isr(exists, length_of_list(lists, layout.ISR), cell(row, layout.EFFECTIVE_MIN_ISR))
    )
    return bits


@shared
def expose_output(block: int) -> int:
    """Writes what exposes the partitions of the output rows, of which nothing is known before."""
    for number in range(slot(block, layout.OUTPUT_COUNT)):
        row = output_row(block, number)
        set_cell(row, layout.EXPOSURE, exposure_of(block, row))
    return layout.DONE


@inlined
def finish_output(block: int, output: int, event: int, cause: int, broker: int, election: int) -> None:
    """Completes a row whose state stands there; below EMIT_FROM_OFFSET the next row takes its place."""
    before = codes.EXPOSED_BEFORE * (cell(output, layout.EXPOSURE) % codes.EXPOSED_BEFORE)
    set_pair(output, layout.NEXT_OF_TOPIC, cell(output, layout.NEXT_OF_TOPIC), before + exposure_of(block, output))
    set_pair(output, layout.EVENT, event, cause)
    set_pair(output, layout.CAUSE_BROKER, broker, election)
    set_pair(output, layout.EXPECTED_ELR, 0, -1)
    if memory.column_int64(block, layout.OFFSETS_AT, event) >= slot(block, layout.EMIT_FROM_OFFSET):
        set_slot(block, layout.OUTPUT_COUNT, slot(block, layout.OUTPUT_COUNT) + 1)
        values = 0
        for number in range(layout.LIST_COUNT):
            length = length_of_list(state_lists(output), number)
            set_slot(block, layout.OUTPUT_LENGTHS + number, slot(block, layout.OUTPUT_LENGTHS + number) + length)
            values += length
        set_slot(block, layout.OUTPUT_VALUES, slot(block, layout.OUTPUT_VALUES) + values)


@shared
def emit(block: int, index: int, event: int, cause: int) -> int:
    """A row of a partition's state as it is, where neither a broker nor an election caused it."""
    output = next_output(block)
    copy_state(output, partition_row(block, index))
    finish_output(block, output, event, cause, -1, codes.NO_ELECTION)
    set_cell(partition_row(block, index), layout.EXPOSURE, cell(output, layout.EXPOSURE))
    return output


@inlined
def _default_to_migrating(block: int, row: int) -> None:
    """Directories that are none, or all MIGRATING, become MIGRATING once a replica (defaultToMigrating)."""
    lists = state_lists(row)
    directories = start_of_list(block, lists, layout.DIRECTORIES)
    for at in range(length_of_list(lists, layout.DIRECTORIES)):
        if cell(directories, at) != 0:
            return
    count = length_of_list(lists, layout.REPLICAS)
    if count == length_of_list(lists, layout.DIRECTORIES):
        return
    used = slot(block, layout.ARENA_USED)
    for at in range(count):
        memory.put_int32(block, layout.ARENA_AT, used + at, 0)
    set_list(row, layout.DIRECTORIES, used, count)
    set_slot(block, layout.ARENA_USED, used + count)


@shared
def create(block: int, event: int, record: int) -> int:
    """PartitionRecord; returns the partition."""
    topic = cell(record, layout.INPUT_TOPIC)
    partition = cell(record, layout.INPUT_PARTITION)
    place = _place_of(block, topic, partition)
    index = memory.column_int32(block, layout.SLOTS_AT, place)
    cause = Cause.CREATED
    if index < 0:
        index = slot(block, layout.PARTITION_COUNT)
        set_slot(block, layout.PARTITION_COUNT, index + 1)
        memory.put_int32(block, layout.SLOTS_AT, place, index)
        row = partition_row(block, index)
        set_pair(row, layout.TOPIC, topic, partition)
        set_pair(row, layout.NEXT_OF_TOPIC, cell(topic_row(block, topic), layout.FIRST_PARTITION), 0)
        set_cell(topic_row(block, topic), layout.FIRST_PARTITION, index)
        if partition == 0:
            set_cell(topic_row(block, topic), layout.PARTITION_0, index)
    else:
        row = partition_row(block, index)
        cause = Cause.REPLACED if cell(row, layout.EXISTS) else Cause.CREATED
    set_cell(topic_row(block, topic), layout.LAST_PARTITION, index)
    set_pair(row, layout.LEADER, cell(record, layout.LEADER), cell(record, layout.RECOVERY_STATE))
    set_pair(row, layout.LEADER_EPOCH, cell(record, layout.LEADER_EPOCH), cell(record, layout.PARTITION_EPOCH))
    given_lists = record_lists(record)
    for number in range(layout.LIST_COUNT):
        length = length_of_list(given_lists, number)
        set_list(row, number, cell(given_lists, 2 * number), length if length > 0 else 0)
    _default_to_migrating(block, row)
    set_pair(row, layout.EXISTS, 1, effective_min_isr(block, topic, index, state_lists(row)))
    emit(block, index, event, cause)
    return index


@inlined
def _merge(block: int, index: int, old: int, new: int, record: int) -> None:
    """PartitionRegistration.merge: what is null stays, any leader bumps the leader epoch, every change the epoch."""
    for number in range(layout.LIST_COUNT):
        # Both cells of a list at once: the length is the upper half, so that of a null list makes the whole negative.
        given = memory.int64_at(record_lists(record), number)
        memory.set_int64_at(
            state_lists(new), number, given if given >= 0 else memory.int64_at(state_lists(old), number)
        )
    _default_to_migrating(block, new)
    leader = cell(record, layout.LEADER)
    is_elected = leader != -2
    recovery_state = cell(record, layout.RECOVERY_STATE)
    set_pair(
        new,
        layout.LEADER,
        leader if is_elected else cell(old, layout.LEADER),
        recovery_state if recovery_state != -1 else cell(old, layout.RECOVERY_STATE),
    )
    set_pair(
        new,
        layout.LEADER_EPOCH,
        cell(old, layout.LEADER_EPOCH) + (1 if is_elected else 0),
        cell(old, layout.PARTITION_EPOCH) + 1,
    )
    set_pair(new, layout.EXISTS, 1, effective_min_isr(block, cell(old, layout.TOPIC), index, state_lists(new)))
    set_pair(new, layout.TOPIC, cell(old, layout.TOPIC), cell(old, layout.PARTITION))
    set_pair(new, layout.NEXT_OF_TOPIC, cell(old, layout.NEXT_OF_TOPIC), cell(old, layout.EXPOSURE))


@shared
def _has_long_list(old: int, new: int) -> bool:
    longest = 0
    for number in range(layout.LIST_COUNT):
        longest = max(longest, length_of_list(state_lists(old), number), length_of_list(state_lists(new), number))
    return longest > layout.LONG_LIST


@inlined
def _known(block: int, topic: int, partition: int) -> int:
    """The partition of that topic and number, -1 where there is none. Most records are of the partition met last."""
    last = cell(topic_row(block, topic), layout.LAST_PARTITION)
    if last >= 0 and cell(partition_row(block, last), layout.PARTITION) == partition:
        return last
    index = memory.column_int32(block, layout.SLOTS_AT, _place_of(block, topic, partition))
    if index >= 0:
        set_cell(topic_row(block, topic), layout.LAST_PARTITION, index)
    return index


@inlined
def _put_cause(block: int, event: int, old: int, new: int, record: int) -> None:
    """Completes the output row `new` of a change by its cause, its election, and the ELR that the rules give."""
    set_slot(block, layout.FOUND_BROKER, -1)
    election = election_of(block, old, new, record)
    cause = cause_of(block, event, old, new, record, election)
    election = election_after(block, old, new, election, cause)
    finish_output(block, new, event, cause, slot(block, layout.FOUND_BROKER), election)
    if slot(block, layout.ELR_LEVEL) > 0:
        expect_elr(block, old, new, election, cause)
        given_lists = record_lists(record)
        assigns = (
            length_of_list(given_lists, layout.DIRECTORIES) >= 0 and length_of_list(given_lists, layout.REPLICAS) < 0
        )
        if assigns and slot(block, layout.DIRECTORY_WIPES_ELR) > 0:
            set_cell(new, layout.EXPECTED_ELR + 1, 0)


@shared
def change(block: int, event: int, record: int) -> int:
    """PartitionChangeRecord; returns the partition, or -1 where it is not known."""
    index = _known(block, cell(record, layout.INPUT_TOPIC), cell(record, layout.INPUT_PARTITION))
    if index < 0 or cell(partition_row(block, index), layout.EXISTS) == 0:
        return -1
    old = partition_row(block, index)
    new = next_output(block)
    _merge(block, index, old, new, record)
    if slot(block, layout.LONGEST_LIST) > layout.LONG_LIST and _has_long_list(old, new):
        finish_output(block, new, event, Cause.OTHER, -1, codes.NO_ELECTION)
    else:
        _put_cause(block, event, old, new, record)
    copy_state(old, new)
    return index
