"""Which changes may be one controller operation with the broker record that stands before or after them."""

from __future__ import annotations

from kraft_audit.replay.kernels import layout
from kraft_audit.replay.kernels.memory_rows import (
    cell,
    input_row,
    is_in,
    length_of_list,
    record_lists,
    set_context_cell,
    set_slot,
    slot,
)
from kraft_codec.kernels import memory
from kraft_codec.kernels.memory import inlined, shared


@inlined
def _is_next(block: int, event: int) -> bool:
    """Whether an event's record directly follows the one before it, in what may be one operation.

    An operation stands in one batch, or in several where all but the last are full.
    """
    last_offset = slot(block, layout.LAST_OFFSET)
    last_batch = slot(block, layout.LAST_BATCH)
    if event > 0:
        last_offset = memory.column_int64(block, layout.OFFSETS_AT, event - 1)
        last_batch = memory.column_int64(block, layout.BATCHES_AT, event - 1)
    records = memory.column_int64(block, layout.BATCHES_AT, event) - last_batch
    return memory.column_int64(block, layout.OFFSETS_AT, event) - last_offset == 1 and (
        records == 0 or records >= layout.FULL_BATCH_RECORDS
    )


@inlined
def _may_remove(block: int, event: int, broker: int) -> bool:
    """Whether an operation that takes a broker out of its partitions may have written a change.

    It gives no replicas and no directories, never ends a recovery, and never writes an ISR that holds the broker
    (ReplicationControlManager.generateLeaderAndIsrUpdates).
    """
    record = input_row(slot(block, layout.INPUTS_AT), memory.column_int32(block, layout.FIRST_OPERANDS_AT, event))
    lists = record_lists(record)
    is_assignment = (
        length_of_list(lists, layout.REPLICAS) >= 0
        or length_of_list(lists, layout.ADDING_REPLICAS) >= 0
        or length_of_list(lists, layout.REMOVING_REPLICAS) >= 0
        or length_of_list(lists, layout.DIRECTORIES) >= 0
    )
    return (
        not is_assignment and cell(record, layout.RECOVERY_STATE) != 0 and not is_in(block, lists, layout.ISR, broker)
    )


@shared
def _mark(block: int, event: int, step: int, place: int, marker: int, broker: int) -> int:
    """Gives a broker marker to the changes from `event` on, forward or (step -1) backward, while the operation lasts.

    `place` is the cell of their contexts; the next one gets the broker. Returns the first event that does not get it.
    """
    later = 0 if step > 0 else 1
    while 0 <= event < slot(block, layout.EVENT_COUNT):
        if memory.column_int32(block, layout.KINDS_AT, event) != layout.CHANGE_EVENT or not _is_next(
            block, event + later
        ):
            break
        if later == 1 and not _may_remove(block, event, broker):
            break
        set_context_cell(block, event, place, marker)
        set_context_cell(block, event, place + 1, broker)
        event += step
    return event


@shared
def link_operations(block: int) -> int:
    """Gives every change the broker markers around it, across changes only; one before may be carried over.

    The contexts hold NO_MARKER everywhere before.
    """
    count = slot(block, layout.EVENT_COUNT)
    marker = slot(block, layout.LAST_MARKER)
    if (
        marker != layout.NO_MARKER
        and _mark(block, 0, 1, layout.CONTEXT_MARKER_BEFORE, marker, slot(block, layout.LAST_BROKER)) < count
    ):
        marker = layout.NO_MARKER
    for event in range(count):
        if memory.column_int32(block, layout.KINDS_AT, event) == layout.MARKER_EVENT:
            marker = memory.column_int32(block, layout.FIRST_OPERANDS_AT, event)
            broker = memory.column_int32(block, layout.SECOND_OPERANDS_AT, event)
            _mark(block, event - 1, -1, layout.CONTEXT_MARKER_AFTER, marker, broker)
            if _mark(block, event + 1, 1, layout.CONTEXT_MARKER_BEFORE, marker, broker) < count:
                marker = layout.NO_MARKER
            set_slot(block, layout.LAST_BROKER, broker)
    set_slot(block, layout.LAST_MARKER, marker)
    set_slot(block, layout.LAST_OFFSET, memory.column_int64(block, layout.OFFSETS_AT, count - 1))
    set_slot(block, layout.LAST_BATCH, memory.column_int64(block, layout.BATCHES_AT, count - 1))
    return 0
