"""The partition state machine: events in log order go in, a row comes out for every state that a partition was in.

ReplicationControlManager.replay and TopicDelta of Kafka 4.3.0.
"""

from __future__ import annotations

from kraft_audit.replay.kernels import codes, layout
from kraft_audit.replay.kernels.codes import Cause
from kraft_audit.replay.kernels.memory_rows import (
    cell,
    input_row,
    length_of_list,
    partition_row,
    set_cell,
    set_list,
    set_slot,
    slot,
    start_of_list,
    state_lists,
    topic_row,
    values_from,
)
from kraft_audit.replay.kernels.operations import link_operations
from kraft_audit.replay.kernels.partition_state import (
    change,
    create,
    effective_min_isr,
    emit,
    prefetch_place,
    prefetch_state,
)
from kraft_codec.kernels import memory
from kraft_codec.kernels.memory import inlined, shared

_EVENTS_AHEAD = 8
"""How many events before its turn a record is prefetched."""


@inlined
def _is_full(block: int) -> bool:
    return (
        slot(block, layout.OUTPUT_COUNT) >= slot(block, layout.OUTPUT_CAPACITY)
        or slot(block, layout.OUTPUT_VALUES) >= layout.OUTPUT_VALUES_MAX
    )


@inlined
def _touch(block: int, index: int, event: int, kind: int, cause: int) -> None:
    """What an event that concerns many partitions does to one."""
    row = partition_row(block, index)
    if kind == layout.TOPIC_REMOVED_EVENT:
        if cell(row, layout.EXISTS):
            set_cell(row, layout.EXISTS, 0)
            emit(block, index, event, cause)
    elif kind == layout.CLEAR_ELR_EVENT:
        lists = state_lists(row)
        if cell(row, layout.EXISTS) and (
            length_of_list(lists, layout.ELR) > 0 or length_of_list(lists, layout.LAST_KNOWN_ELR) > 0
        ):
            set_list(row, layout.ELR, 0, 0)
            set_list(row, layout.LAST_KNOWN_ELR, 0, 0)
            set_cell(row, layout.PARTITION_EPOCH, cell(row, layout.PARTITION_EPOCH) + 1)
            emit(block, index, event, cause)
    elif cell(row, layout.EXISTS):
        effective = effective_min_isr(block, cell(row, layout.TOPIC), index, state_lists(row))
        if effective != cell(row, layout.EFFECTIVE_MIN_ISR):
            set_cell(row, layout.EFFECTIVE_MIN_ISR, effective)
            emit(block, index, event, cause)


@shared
def _touch_all(block: int, topic: int, event: int, kind: int, cause: int) -> int:
    """Goes through the partitions of a topic, or all where it is -1; when the output is full, CURSOR is the next."""
    index = 0 if topic < 0 else cell(topic_row(block, topic), layout.FIRST_PARTITION)
    if slot(block, layout.IS_RESUMED):
        index = slot(block, layout.CURSOR)
    while 0 <= index < slot(block, layout.PARTITION_COUNT):
        if _is_full(block):
            set_slot(block, layout.CURSOR, index)
            set_slot(block, layout.IS_RESUMED, 1)
            return layout.OUTPUT_FULL
        _touch(block, index, event, kind, cause)
        index = index + 1 if topic < 0 else cell(partition_row(block, index), layout.NEXT_OF_TOPIC)
    set_slot(block, layout.IS_RESUMED, 0)
    return layout.DONE


@inlined
def _has_room(block: int) -> int:
    """Whether output and arena hold what one record may write: migrating directories and an expected ELR."""
    if _is_full(block):
        return layout.OUTPUT_FULL
    if slot(block, layout.ARENA_USED) + 2 * layout.LONG_LIST + slot(block, layout.LONGEST_LIST) > slot(
        block, layout.ARENA_CAPACITY
    ):
        return layout.ARENA_FULL
    return layout.DONE


@shared
def _apply_record(block: int, event: int, kind: int, record: int) -> int:
    """A partition's own record, and then its siblings where the number of replicas of partition 0 changed."""
    topic = cell(record, layout.INPUT_TOPIC)
    if not slot(block, layout.IS_RESUMED):
        status = _has_room(block)
        if status != layout.DONE:
            return status
        first = cell(topic_row(block, topic), layout.PARTITION_0)
        before = length_of_list(state_lists(partition_row(block, first)), layout.REPLICAS) if first >= 0 else -1
        index = create(block, event, record) if kind == layout.PARTITION_EVENT else change(block, event, record)
        if index < 0:
            problems = slot(block, layout.PROBLEM_COUNT)
            memory.put_int32(block, layout.PROBLEMS_AT, 2 * problems, event)
            memory.put_int32(block, layout.PROBLEMS_AT, 2 * problems + 1, codes.UNKNOWN_PARTITION)
            set_slot(block, layout.PROBLEM_COUNT, problems + 1)
            return layout.DONE
        if index != cell(topic_row(block, topic), layout.PARTITION_0):
            return layout.DONE
        if length_of_list(state_lists(partition_row(block, index)), layout.REPLICAS) == before:
            return layout.DONE
    return _touch_all(block, topic, event, layout.TOPIC_MIN_ISR_EVENT, Cause.REPLICAS_OF_PARTITION_0)


@inlined
def _apply_rare(block: int, event: int, kind: int, first: int, second: int) -> int:
    if kind == layout.TOPIC_REMOVED_EVENT:
        return _touch_all(block, first, event, kind, Cause.TOPIC_REMOVED)
    if kind == layout.CLEAR_ELR_EVENT:
        return _touch_all(block, first, event, kind, Cause.ELR_CLEARED)
    if kind == layout.TOPIC_MIN_ISR_EVENT:
        set_cell(topic_row(block, first), layout.TOPIC_MIN_ISR, second)
        return _touch_all(block, first, event, kind, Cause.MIN_ISR_EDITED)
    if kind == layout.DEFAULT_MIN_ISR_EVENT:
        set_slot(block, layout.DEFAULT_MIN_ISR, second)
        return _touch_all(block, -1, event, kind, first)
    if kind == layout.ELR_FEATURE_EVENT:
        set_slot(block, layout.ELR_LEVEL, second)
    elif kind == layout.RULES_EVENT:
        set_slot(block, layout.DIRECTORY_WIPES_ELR, second)
    return layout.DONE


@inlined
def _record_of(block: int, event: int) -> int:
    """The input row of a partition's own record."""
    return input_row(slot(block, layout.INPUTS_AT), memory.column_int32(block, layout.FIRST_OPERANDS_AT, event))


@inlined
def _prefetch_ahead(block: int, event: int) -> None:
    """Prefetches what the events to come will read: it lies anywhere in tables that no near cache holds."""
    last = slot(block, layout.EVENT_COUNT) - 1
    later = min(event + _EVENTS_AHEAD, last)
    if memory.column_int32(block, layout.KINDS_AT, later) <= layout.CHANGE_EVENT:
        prefetch_place(block, _record_of(block, later))
    soon = min(event + _EVENTS_AHEAD // 2, last)
    if memory.column_int32(block, layout.KINDS_AT, soon) == layout.CHANGE_EVENT:
        prefetch_state(block, _record_of(block, soon))


@shared
def replay_events(block: int) -> int:
    """Applies the events from NEXT_EVENT on. DONE, or why it stopped: call again once there is room."""
    if slot(block, layout.NEXT_EVENT) == 0 and not slot(block, layout.IS_RESUMED):
        link_operations(block)
    while slot(block, layout.NEXT_EVENT) < slot(block, layout.EVENT_COUNT):
        event = slot(block, layout.NEXT_EVENT)
        _prefetch_ahead(block, event)
        kind = memory.column_int32(block, layout.KINDS_AT, event)
        if kind != layout.CHANGE_EVENT:
            set_slot(block, layout.IS_PROVEN, 0)
        if kind == layout.PARTITION_EVENT or kind == layout.CHANGE_EVENT:
            status = _apply_record(block, event, kind, _record_of(block, event))
        else:
            first = memory.column_int32(block, layout.FIRST_OPERANDS_AT, event)
            second = memory.column_int32(block, layout.SECOND_OPERANDS_AT, event)
            status = _apply_rare(block, event, kind, first, second)
        if status != layout.DONE:
            return status
        set_slot(block, layout.NEXT_EVENT, event + 1)
    return layout.DONE


@shared
def compact_arena(block: int, target: int) -> int:
    """Copies the lists of existing partitions into another arena; returns how many values it then holds."""
    used = 0
    for index in range(slot(block, layout.PARTITION_COUNT)):
        row = partition_row(block, index)
        for number in range(layout.LIST_COUNT):
            length = length_of_list(state_lists(row), number)
            if length > 0 and cell(row, layout.EXISTS):
                memory.copy_bytes(values_from(target, used), start_of_list(block, state_lists(row), number), 4 * length)
                set_list(row, number, used, length)
                used += length
            else:
                set_list(row, number, 0, 0)
    return used
