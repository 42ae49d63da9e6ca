"""Which event a change record belongs to, how its leader was chosen, and which ELR the shipped rules give."""

from __future__ import annotations

from kraft_audit.replay.kernels import codes, layout
from kraft_audit.replay.kernels.codes import Cause
from kraft_audit.replay.kernels.memory_rows import (
    arena_values,
    cell,
    context_cell,
    element,
    is_in,
    length_of_list,
    missing,
    record_lists,
    set_cell,
    set_context_cell,
    set_slot,
    slot,
    state_lists,
)
from kraft_codec.kernels import memory
from kraft_codec.kernels.memory import inlined, shared


@inlined
def _is_next(block: int, event: int) -> bool:
    """Whether an event's record directly follows the one before it, in what may be one operation."""
    last_offset = (
        memory.column_int64(block, layout.OFFSETS_AT, event - 1) if event > 0 else slot(block, layout.LAST_OFFSET)
    )
    last_time = memory.column_int64(block, layout.TIMES_AT, event - 1) if event > 0 else slot(block, layout.LAST_TIME)
    elapsed_ms = abs(memory.column_int64(block, layout.TIMES_AT, event) - last_time)
    return (
        memory.column_int64(block, layout.OFFSETS_AT, event) - last_offset == 1
        and elapsed_ms <= layout.OPERATION_GAP_MS
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
    set_slot(block, layout.LAST_TIME, memory.column_int64(block, layout.TIMES_AT, count - 1))
    return 0


@inlined
def _is_last_known(block: int, old_lists: int, leader: int) -> bool:
    return length_of_list(old_lists, layout.LAST_KNOWN_ELR) == 1 and is_in(
        block, old_lists, layout.LAST_KNOWN_ELR, leader
    )


@inlined
def _unclean_election_of(block: int, old_lists: int, leader: int) -> int:
    """BY_LAST_KNOWN where the last known leader leads and ISR and ELR hold no other replica, else UNCLEAN.

    The leader itself may have left ISR and ELR by this record.
    """
    others = length_of_list(old_lists, layout.ISR) + length_of_list(old_lists, layout.ELR)
    others -= is_in(block, old_lists, layout.ISR, leader) + is_in(block, old_lists, layout.ELR, leader)
    return codes.BY_LAST_KNOWN if others == 0 and _is_last_known(block, old_lists, leader) else codes.UNCLEAN


@shared
def election_of(block: int, old: int, new: int, record: int) -> int:
    """How the leader field of a change came about (the inverse of PartitionChangeBuilder.electLeader 4.3.0)."""
    if cell(record, layout.LEADER) == -2:
        return codes.NO_ELECTION
    before = cell(old, layout.LEADER)
    leader = cell(new, layout.LEADER)
    if leader < 0:
        return codes.LEADERLESS
    if leader == before:
        return codes.SAME_LEADER
    old_lists = state_lists(old)
    recovering = cell(new, layout.RECOVERY_STATE) == 1
    is_alone = length_of_list(state_lists(new), layout.ISR) == 1 and is_in(block, state_lists(new), layout.ISR, leader)
    if recovering and is_alone and cell(old, layout.RECOVERY_STATE) != 1:
        # Kafka itself says that this replica may lack records, whatever its place was before the record.
        return _unclean_election_of(block, old_lists, leader)
    if is_in(block, old_lists, layout.ISR, leader):
        prefers = (
            length_of_list(state_lists(new), layout.REPLICAS) > 0
            and element(block, state_lists(new), layout.REPLICAS, 0) == leader
        )
        moved_only = length_of_list(record_lists(record), layout.ISR) < 0 and before >= 0
        return codes.BY_PREFERENCE if prefers and moved_only else codes.BY_ISR
    if is_in(block, old_lists, layout.ELR, leader):
        return codes.BY_ELR
    if not (recovering and is_alone):
        return codes.BY_ISR
    return _unclean_election_of(block, old_lists, leader)


@shared
def election_after(block: int, old: int, new: int, election: int, cause: int) -> int:
    """The election once its cause is known: where the last other member leaves the ELR by coming back uncleanly, the
    same record elects the last known leader."""
    if election != codes.UNCLEAN or cause != Cause.UNCLEAN_SHUTDOWN:
        return election
    old_lists = state_lists(old)
    broker = slot(block, layout.FOUND_BROKER)
    others = length_of_list(old_lists, layout.ISR) + length_of_list(old_lists, layout.ELR)
    others -= is_in(block, old_lists, layout.ISR, broker) + is_in(block, old_lists, layout.ELR, broker)
    return (
        codes.BY_LAST_KNOWN
        if others == 0 and _is_last_known(block, old_lists, cell(new, layout.LEADER))
        else codes.UNCLEAN
    )


@inlined
def _loses(block: int, old: int, new: int, broker: int) -> bool:
    """Whether a change takes a broker out of the ISR, or, where the last member must stay in it, its leadership."""
    if is_in(block, state_lists(old), layout.ISR, broker) and not is_in(block, state_lists(new), layout.ISR, broker):
        return True
    return cell(old, layout.LEADER) == broker and cell(new, layout.LEADER) == -1


@inlined
def _repeats(block: int, old: int, new: int, record: int) -> bool:
    """Whether a change writes an ELR that the partition has already.

    Such is the second record that 4.3.1 writes of a partition in the clean-up of one registration.
    """
    if length_of_list(record_lists(record), layout.ELR) < 0 or cell(record, layout.LEADER) != -2:
        return False
    for number in (layout.ISR, layout.ELR):
        if length_of_list(state_lists(old), number) != length_of_list(state_lists(new), number):
            return False
        if missing(block, state_lists(old), number, state_lists(new), number)[0] > 0:
            return False
    return True


@inlined
def _cause_by_marker(block: int, event: int, old: int, new: int, record: int) -> int:
    """The broker event of whose operation this change is a part, or -1."""
    marker_before = context_cell(block, event, layout.CONTEXT_MARKER_BEFORE)
    broker_before = context_cell(block, event, layout.CONTEXT_BROKER_BEFORE)
    set_slot(block, layout.FOUND_BROKER, broker_before)
    # A shutdown comes first: the fencing that soon follows it finds nothing left to change.
    if marker_before == layout.SHUTDOWN_MARKER and _loses(block, old, new, broker_before):
        return Cause.CONTROLLED_SHUTDOWN
    marker = context_cell(block, event, layout.CONTEXT_MARKER_AFTER)
    broker = context_cell(block, event, layout.CONTEXT_BROKER_AFTER)
    if marker >= layout.FENCE_MARKER and marker <= layout.LOG_DIRS_MARKER:
        set_slot(block, layout.FOUND_BROKER, broker)
        in_new_elr = is_in(block, state_lists(new), layout.ELR, broker)
        if _loses(block, old, new, broker):
            if marker == layout.FENCE_MARKER:
                return Cause.FENCED
            if marker == layout.UNREGISTER_MARKER:
                return Cause.UNREGISTERED
            if marker == layout.LOG_DIRS_MARKER:
                return Cause.DIRECTORY_FAILED
            return Cause.UNCLEAN_SHUTDOWN if slot(block, layout.ELR_LEVEL) > 0 and not in_new_elr else Cause.REGISTERED
        was_eligible = is_in(block, state_lists(old), layout.ELR, broker)
        # A leader that adds a replica to the ISR may empty the ELR just before the broker comes back.
        joined = (
            cell(record, layout.LEADER) == -2
            and missing(block, state_lists(new), layout.ISR, state_lists(old), layout.ISR)[0] > 0
        )
        is_clean_up = not in_new_elr and not joined
        if marker == layout.REGISTER_MARKER and is_clean_up and (was_eligible or _repeats(block, old, new, record)):
            return Cause.UNCLEAN_SHUTDOWN
    if marker_before == layout.UNFENCE_MARKER and cell(old, layout.LEADER) == -1 and cell(new, layout.LEADER) >= 0:
        set_slot(block, layout.FOUND_BROKER, broker_before)
        return Cause.UNFENCED
    set_slot(block, layout.FOUND_BROKER, -1)
    return -1


@inlined
def _is_moving(lists: int) -> bool:
    return length_of_list(lists, layout.ADDING_REPLICAS) + length_of_list(lists, layout.REMOVING_REPLICAS) > 0


@inlined
def _cause_by_reassignment(block: int, old: int, new: int) -> int:
    old_lists = state_lists(old)
    new_lists = state_lists(new)
    adding = length_of_list(old_lists, layout.ADDING_REPLICAS)
    was_moving = _is_moving(old_lists)
    if _is_moving(new_lists):
        return Cause.REASSIGNMENT_CHANGED if was_moving else Cause.REASSIGNMENT_STARTED
    if not was_moving:
        return Cause.REASSIGNMENT_COMPLETED
    # Back to the replicas from before the reassignment: cancelled. Any others: a later one replaced it and is done.
    as_many = length_of_list(new_lists, layout.REPLICAS) == length_of_list(old_lists, layout.REPLICAS) - adding
    none_added = missing(block, old_lists, layout.ADDING_REPLICAS, new_lists, layout.REPLICAS)[0] == adding
    went_back = (
        as_many and none_added and missing(block, new_lists, layout.REPLICAS, old_lists, layout.REPLICAS)[0] == 0
    )
    return Cause.REASSIGNMENT_CANCELLED if went_back else Cause.REASSIGNMENT_COMPLETED


@inlined
def _cause_by_leader(election: int) -> int:
    if election == codes.LEADERLESS:
        return Cause.LEADER_LOST
    if election == codes.SAME_LEADER:
        return Cause.LEADER_EPOCH_BUMPED
    if election == codes.BY_PREFERENCE:
        return Cause.PREFERRED_ELECTION
    if election == codes.UNCLEAN or election == codes.BY_LAST_KNOWN:
        return Cause.UNCLEAN_ELECTION
    return Cause.LEADER_ELECTION


@shared
def cause_of(block: int, event: int, old: int, new: int, record: int, election: int) -> int:
    """The cause of a change; the broker whose event it was stands in FOUND_BROKER, -1 for none."""
    given_lists = record_lists(record)
    old_lists = state_lists(old)
    new_lists = state_lists(new)
    sets_replicas = (
        length_of_list(given_lists, layout.REPLICAS) >= 0
        or length_of_list(given_lists, layout.ADDING_REPLICAS) >= 0
        or length_of_list(given_lists, layout.REMOVING_REPLICAS) >= 0
    )
    if sets_replicas:
        # Never a part of a broker's operation: a reassignment completes once enough replicas are in sync
        # (PartitionReassignmentReplicas.maybeCompleteReassignment), and the loss of a replica does not help that.
        set_slot(block, layout.FOUND_BROKER, -1)
        return _cause_by_reassignment(block, old, new)
    cause = _cause_by_marker(block, event, old, new, record)
    if cause >= 0:
        return cause
    if length_of_list(given_lists, layout.DIRECTORIES) >= 0:
        return Cause.DIRECTORY_ASSIGNED
    if cell(old, layout.LEADER) == -1 and cell(new, layout.LEADER) >= 0:
        return _cause_by_leader(election)
    lost, who_left = missing(block, old_lists, layout.ISR, new_lists, layout.ISR)
    gained, who_came = missing(block, new_lists, layout.ISR, old_lists, layout.ISR)
    # No branch predictor guesses which of these it is, so the values are selected without branches.
    broker = who_left if (lost == 1) & (gained == 0) else -1
    set_slot(block, layout.FOUND_BROKER, who_came if (gained == 1) & (lost == 0) else broker)
    if lost + gained > 0:
        if election == codes.UNCLEAN:
            return Cause.UNCLEAN_ELECTION
        return (
            Cause.ISR_CHANGED if (lost > 0) & (gained > 0) else (Cause.ISR_SHRUNK if lost > 0 else Cause.ISR_EXPANDED)
        )
    if election != codes.NO_ELECTION:
        return _cause_by_leader(election)
    if cell(old, layout.RECOVERY_STATE) == 1 and cell(new, layout.RECOVERY_STATE) == 0:
        return Cause.RECOVERED
    if length_of_list(given_lists, layout.ELR) >= 0 or length_of_list(given_lists, layout.LAST_KNOWN_ELR) >= 0:
        return Cause.ELR_CHANGED
    return Cause.OTHER


@inlined
def _add_sorted(values: int, count: int, value: int) -> int:
    """Puts a value into an ascending list, once; returns the new length."""
    at = count
    while at > 0 and cell(values, at - 1) > value:
        at -= 1
    if at > 0 and cell(values, at - 1) == value:
        return count
    for move in range(count - at):
        set_cell(values, count - move, cell(values, count - move - 1))
    set_cell(values, at, value)
    return count + 1


@shared
def expect_elr(block: int, old: int, new: int, election: int, cause: int) -> None:
    """Writes the ELR that PartitionChangeBuilder 4.3.0 gives (its target ELR, less an elected member), ascending.

    The target ISR is that of the record, and empty before a member of the ELR is elected.
    """
    start = slot(block, layout.ARENA_USED)
    values = arena_values(block, start)
    old_lists = state_lists(old)
    new_lists = state_lists(new)
    in_sync = 0 if election == codes.BY_ELR else length_of_list(new_lists, layout.ISR)
    count = 0
    # An unclean election leaves no replica eligible, and beside a full ISR none needs to be.
    is_clean = election != codes.UNCLEAN and election != codes.BY_LAST_KNOWN
    if is_clean and in_sync < cell(old, layout.EFFECTIVE_MIN_ISR):
        unclean = slot(block, layout.FOUND_BROKER) if cause == Cause.UNCLEAN_SHUTDOWN else -1
        for number in (layout.ELR, layout.ISR):
            for at in range(length_of_list(old_lists, number)):
                broker = element(block, old_lists, number, at)
                if broker != unclean and not is_in(block, new_lists, layout.ISR, broker):
                    count = _add_sorted(values, count, broker)
    set_cell(new, layout.EXPECTED_ELR, start)
    set_cell(new, layout.EXPECTED_ELR + 1, count)
    set_slot(block, layout.ARENA_USED, start + count)
    set_slot(
        block, layout.OUTPUT_LENGTHS + layout.LIST_COUNT, slot(block, layout.OUTPUT_LENGTHS + layout.LIST_COUNT) + count
    )
