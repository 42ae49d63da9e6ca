"""The partition state machine: events in log order in, one output row for every state that a partition was in.

ReplicationControlManager.replay and TopicDelta of Kafka 4.3.0.
"""

from __future__ import annotations

from kraft_audit.replay.causes import (
    ELR_CLEARED,
    MIN_ISR_EDITED,
    REPLICAS_OF_PARTITION_0,
    TOPIC_REMOVED,
    UNKNOWN_PARTITION,
)
from kraft_audit.replay.kernels.causes_kernel import (
    link_operations,
)
from kraft_audit.replay.kernels.layout import (
    ARENA_AT,
    ARENA_CAPACITY,
    ARENA_FULL,
    ARENA_USED,
    CHANGE_EVENT,
    CLEAR_ELR_EVENT,
    CURSOR,
    DEFAULT_MIN_ISR,
    DEFAULT_MIN_ISR_EVENT,
    DIRECTORY_WIPES_ELR,
    DONE,
    EFFECTIVE_MIN_ISR,
    ELR,
    ELR_FEATURE_EVENT,
    ELR_LEVEL,
    EVENT_COUNT,
    EXISTS,
    FIRST_OPERANDS_AT,
    FIRST_PARTITION,
    INPUT_BYTES,
    INPUT_TOPIC,
    INPUTS_AT,
    IS_RESUMED,
    KINDS_AT,
    LAST_KNOWN_ELR,
    LIST_COUNT,
    LISTS,
    LONG_LIST,
    LONGEST_LIST,
    NEXT_EVENT,
    NEXT_OF_TOPIC,
    OUTPUT_CAPACITY,
    OUTPUT_COUNT,
    OUTPUT_FULL,
    OUTPUT_VALUES,
    OUTPUT_VALUES_MAX,
    PARTITION_0,
    PARTITION_COUNT,
    PARTITION_EPOCH,
    PARTITION_EVENT,
    PROBLEM_COUNT,
    PROBLEMS_AT,
    REPLICAS,
    RULES_EVENT,
    SECOND_OPERANDS_AT,
    TOPIC,
    TOPIC_MIN_ISR,
    TOPIC_MIN_ISR_EVENT,
    TOPIC_REMOVED_EVENT,
)
from kraft_audit.replay.kernels.memory_rows import (
    cell,
    length_of_list,
    set_cell,
    set_slot,
    slot,
)
from kraft_audit.replay.kernels.partition_state import (
    change,
    create,
    effective_min_isr,
    emit,
    expect_place,
    expect_state,
    partition_row,
    set_list,
    topic_row,
)
from kraft_codec.kernels.memory import (
    copy_bytes,
    inlined,
    load_int32,
    shared,
    store_int32,
)

_AHEAD = 8
"""Records that come so many events later are looked at already."""


@inlined
def _is_full(block: int) -> bool:
    return slot(block, OUTPUT_COUNT) >= slot(block, OUTPUT_CAPACITY) or slot(block, OUTPUT_VALUES) >= OUTPUT_VALUES_MAX


@inlined
def _refresh(block: int, index: int, event: int, cause: int) -> None:
    """Emits a partition whose effective min ISR is another now."""
    row = partition_row(block, index)
    if cell(row, EXISTS):
        effective = effective_min_isr(block, cell(row, TOPIC), index, row + 4 * LISTS)
        if effective != cell(row, EFFECTIVE_MIN_ISR):
            set_cell(row, EFFECTIVE_MIN_ISR, effective)
            emit(block, index, event, cause)


@inlined
def _touch(block: int, index: int, event: int, kind: int, cause: int) -> None:
    """What an event that concerns many partitions does to one."""
    row = partition_row(block, index)
    if kind == TOPIC_REMOVED_EVENT:
        if cell(row, EXISTS):
            set_cell(row, EXISTS, 0)
            emit(block, index, event, cause)
    elif kind == CLEAR_ELR_EVENT:
        lists = row + 4 * LISTS
        if cell(row, EXISTS) and (length_of_list(lists, ELR) > 0 or length_of_list(lists, LAST_KNOWN_ELR) > 0):
            set_list(row, ELR, 0, 0)
            set_list(row, LAST_KNOWN_ELR, 0, 0)
            set_cell(row, PARTITION_EPOCH, cell(row, PARTITION_EPOCH) + 1)
            emit(block, index, event, cause)
    else:
        _refresh(block, index, event, cause)


@shared
def _touch_topic(block: int, topic: int, event: int, kind: int, cause: int) -> int:
    """Goes through a topic's partitions; stops when the output is full, with CURSOR at the next one."""
    index = slot(block, CURSOR) if slot(block, IS_RESUMED) else cell(topic_row(block, topic), FIRST_PARTITION)
    while index >= 0:
        if _is_full(block):
            set_slot(block, CURSOR, index)
            set_slot(block, IS_RESUMED, 1)
            return OUTPUT_FULL
        _touch(block, index, event, kind, cause)
        index = cell(partition_row(block, index), NEXT_OF_TOPIC)
    set_slot(block, IS_RESUMED, 0)
    return DONE


@shared
def _touch_all(block: int, event: int, kind: int, cause: int) -> int:
    index = slot(block, CURSOR) if slot(block, IS_RESUMED) else 0
    while index < slot(block, PARTITION_COUNT):
        if _is_full(block):
            set_slot(block, CURSOR, index)
            set_slot(block, IS_RESUMED, 1)
            return OUTPUT_FULL
        _touch(block, index, event, kind, cause)
        index += 1
    set_slot(block, IS_RESUMED, 0)
    return DONE


@inlined
def _has_room(block: int) -> int:
    """Whether output and arena hold what one record may write: migrating directories and an expected ELR."""
    if _is_full(block):
        return OUTPUT_FULL
    if slot(block, ARENA_USED) + 2 * LONG_LIST + slot(block, LONGEST_LIST) > slot(block, ARENA_CAPACITY):
        return ARENA_FULL
    return DONE


@shared
def _apply_record(block: int, event: int, kind: int, record: int) -> int:
    """A partition's own record, and then its siblings where partition 0 got another number of replicas."""
    topic = cell(record, INPUT_TOPIC)
    if not slot(block, IS_RESUMED):
        status = _has_room(block)
        if status != DONE:
            return status
        first = cell(topic_row(block, topic), PARTITION_0)
        before = length_of_list(partition_row(block, first) + 4 * LISTS, REPLICAS) if first >= 0 else -1
        index = create(block, event, record) if kind == PARTITION_EVENT else change(block, event, record)
        if index < 0:
            problems = slot(block, PROBLEM_COUNT)
            store_int32(slot(block, PROBLEMS_AT) + 8 * problems, event)
            store_int32(slot(block, PROBLEMS_AT) + 8 * problems + 4, UNKNOWN_PARTITION)
            set_slot(block, PROBLEM_COUNT, problems + 1)
            return DONE
        if index != cell(topic_row(block, topic), PARTITION_0):
            return DONE
        if length_of_list(partition_row(block, index) + 4 * LISTS, REPLICAS) == before:
            return DONE
    return _touch_topic(block, topic, event, TOPIC_MIN_ISR_EVENT, REPLICAS_OF_PARTITION_0)


@inlined
def _apply_rare(block: int, event: int, kind: int, first: int, second: int) -> int:
    if kind == TOPIC_REMOVED_EVENT:
        return _touch_topic(block, first, event, kind, TOPIC_REMOVED)
    if kind == CLEAR_ELR_EVENT:
        if first < 0:
            return _touch_all(block, event, kind, ELR_CLEARED)
        return _touch_topic(block, first, event, kind, ELR_CLEARED)
    if kind == TOPIC_MIN_ISR_EVENT:
        set_cell(topic_row(block, first), TOPIC_MIN_ISR, second)
        return _touch_topic(block, first, event, kind, MIN_ISR_EDITED)
    if kind == DEFAULT_MIN_ISR_EVENT:
        set_slot(block, DEFAULT_MIN_ISR, second)
        return _touch_all(block, event, kind, first)
    if kind == ELR_FEATURE_EVENT:
        set_slot(block, ELR_LEVEL, second)
    elif kind == RULES_EVENT:
        set_slot(block, DIRECTORY_WIPES_ELR, second)
    return DONE


@inlined
def _record_of(block: int, event: int) -> int:
    """The input row of a partition's own record."""
    return slot(block, INPUTS_AT) + INPUT_BYTES * load_int32(slot(block, FIRST_OPERANDS_AT) + 4 * event)


@inlined
def _expect(block: int, event: int) -> None:
    """Asks for what the events to come will read: it lies anywhere in tables that no near cache holds."""
    last = slot(block, EVENT_COUNT) - 1
    later = min(event + _AHEAD, last)
    if load_int32(slot(block, KINDS_AT) + 4 * later) <= CHANGE_EVENT:
        expect_place(block, _record_of(block, later))
    soon = min(event + _AHEAD // 2, last)
    if load_int32(slot(block, KINDS_AT) + 4 * soon) == CHANGE_EVENT:
        expect_state(block, _record_of(block, soon))


@shared
def replay_events(block: int) -> int:
    """Applies the events from NEXT_EVENT on. DONE, or why it stopped: call again once there is room."""
    if slot(block, NEXT_EVENT) == 0 and not slot(block, IS_RESUMED):
        link_operations(block)
    while slot(block, NEXT_EVENT) < slot(block, EVENT_COUNT):
        event = slot(block, NEXT_EVENT)
        _expect(block, event)
        kind = load_int32(slot(block, KINDS_AT) + 4 * event)
        if kind == PARTITION_EVENT or kind == CHANGE_EVENT:  # noqa: SIM109 (a tuple costs the compiler more)
            status = _apply_record(block, event, kind, _record_of(block, event))
        else:
            first = load_int32(slot(block, FIRST_OPERANDS_AT) + 4 * event)
            second = load_int32(slot(block, SECOND_OPERANDS_AT) + 4 * event)
            status = _apply_rare(block, event, kind, first, second)
        if status != DONE:
            return status
        set_slot(block, NEXT_EVENT, event + 1)
    return DONE


@shared
def compact_arena(block: int, target: int) -> int:
    """Copies the lists of existing partitions into another arena; returns how many values it then holds."""
    used = 0
    for index in range(slot(block, PARTITION_COUNT)):
        row = partition_row(block, index)
        for number in range(LIST_COUNT):
            length = length_of_list(row + 4 * LISTS, number)
            if length > 0 and cell(row, EXISTS):
                start = cell(row, LISTS + 2 * number)
                copy_bytes(target + 4 * used, slot(block, ARENA_AT) + 4 * start, 4 * length)
                set_list(row, number, used, length)
                used += length
            else:
                set_list(row, number, 0, 0)
    return used
