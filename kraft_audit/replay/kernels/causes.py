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
    set_slot,
    slot,
    state_lists,
)
from kraft_codec.kernels.memory import inlined, shared


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
    if election != codes.UNCLEAN or cause % codes.LEFT_OPEN != Cause.UNCLEAN_SHUTDOWN:
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
def _is_removal(block: int, old: int, new: int, broker: int) -> bool:
    """Whether a change is written as one that takes the broker out: the other members stay as they were listed.

    Or the elected leader is alone in the ISR, or the last member stays in it. What a leader asks for may be in any
    order.
    """
    old_lists = state_lists(old)
    new_lists = state_lists(new)
    count = length_of_list(new_lists, layout.ISR)
    if cell(old, layout.LEADER) != cell(new, layout.LEADER) and count == 1:
        return True
    place = 0
    for at in range(length_of_list(old_lists, layout.ISR)):
        member = element(block, old_lists, layout.ISR, at)
        if member != broker:
            if place >= count or element(block, new_lists, layout.ISR, place) != member:
                return False
            place += 1
    return place == count


@inlined
def _may_be_asked_for(block: int, old: int, new: int) -> bool:
    """Whether a leader may have asked for the new ISR: it stays in it itself (validateAlterPartitionData)."""
    leader = cell(old, layout.LEADER)
    return leader >= 0 and is_in(block, state_lists(new), layout.ISR, leader)


@inlined
def _removed_by(block: int, marker: int, is_in_new_elr: bool) -> int:
    if marker == layout.FENCE_MARKER:
        return Cause.FENCED
    if marker == layout.UNREGISTER_MARKER:
        return Cause.UNREGISTERED
    if marker == layout.LOG_DIRS_MARKER:
        return Cause.DIRECTORY_FAILED
    is_unclean = slot(block, layout.ELR_LEVEL) > 0 and not is_in_new_elr
    return Cause.UNCLEAN_SHUTDOWN if is_unclean else Cause.REGISTERED


@shared
def _cause_of_loss(block: int, old: int, new: int, marker: int, broker: int) -> int:
    """The cause of a change by which the broker of the marker after it lost its place.

    The broker's leader may have asked for the same a moment before: then the cause is open. Not from the first change
    on that no leader can ask for: the rest of the run is of that operation too.
    """
    new_lists = state_lists(new)
    cause = _removed_by(block, marker, is_in(block, new_lists, layout.ELR, broker))
    # What a leader asks for leaves the replica in the ELR while the ISR is below the minimum.
    is_below = length_of_list(new_lists, layout.ISR) < cell(old, layout.EFFECTIVE_MIN_ISR)
    if not _may_be_asked_for(block, old, new) or (cause == Cause.UNCLEAN_SHUTDOWN and is_below):
        set_slot(block, layout.IS_PROVEN, 1)
    return cause if slot(block, layout.IS_PROVEN) != 0 else cause + codes.LEFT_OPEN * codes.OR_ISR_SHRUNK


@shared
def _cause_of_clean_up(block: int, event: int, old: int, new: int, record: int, election: int) -> int:
    """UNCLEAN_SHUTDOWN where the registration after a change took its broker out of the ELR; -1 where it did not."""
    old_lists = state_lists(old)
    new_lists = state_lists(new)
    broker = context_cell(block, event, layout.CONTEXT_BROKER_AFTER)
    is_led = cell(old, layout.LEADER) >= 0
    # A leader that adds a replica to the ISR may empty the ELR just before the broker comes back.
    joined = cell(record, layout.LEADER) == -2 and missing(block, new_lists, layout.ISR, old_lists, layout.ISR)[0] > 0
    if is_in(block, new_lists, layout.ELR, broker) or joined or (is_led and cell(record, layout.LEADER) != -2):
        return -1
    if not is_in(block, old_lists, layout.ELR, broker):
        return Cause.UNCLEAN_SHUTDOWN if _repeats(block, old, new, record) else -1
    if election == codes.UNCLEAN or election == codes.BY_LAST_KNOWN:
        # An unclean election empties the ELR as well, by a request or as another broker was unfenced.
        is_after_unfencing = context_cell(block, event, layout.CONTEXT_MARKER_BEFORE) == layout.UNFENCE_MARKER
        way = codes.OR_ELECTED_ANYHOW if is_after_unfencing else codes.OR_UNCLEAN_ELECTION
        return Cause.UNCLEAN_SHUTDOWN + (0 if slot(block, layout.IS_PROVEN) != 0 else codes.LEFT_OPEN * way)
    if length_of_list(new_lists, layout.ISR) < cell(old, layout.EFFECTIVE_MIN_ISR):
        set_slot(block, layout.IS_PROVEN, 1)
    return Cause.UNCLEAN_SHUTDOWN


@inlined
def _cause_by_marker(block: int, event: int, old: int, new: int, record: int, election: int) -> int:
    """The broker event of whose operation this change is a part, or may be one; -1 where there is none."""
    marker_before = context_cell(block, event, layout.CONTEXT_MARKER_BEFORE)
    broker_before = context_cell(block, event, layout.CONTEXT_BROKER_BEFORE)
    # A shutdown comes first, and takes the broker out of every ISR: what follows it finds nothing left to change.
    if marker_before == layout.SHUTDOWN_MARKER and _loses(block, old, new, broker_before):
        set_slot(block, layout.FOUND_BROKER, broker_before)
        return Cause.CONTROLLED_SHUTDOWN
    marker = context_cell(block, event, layout.CONTEXT_MARKER_AFTER)
    broker = context_cell(block, event, layout.CONTEXT_BROKER_AFTER)
    if marker >= layout.FENCE_MARKER and marker <= layout.LOG_DIRS_MARKER:
        set_slot(block, layout.FOUND_BROKER, broker)
        if _loses(block, old, new, broker):
            if _is_removal(block, old, new, broker):
                return _cause_of_loss(block, old, new, marker, broker)
        elif marker == layout.REGISTER_MARKER:
            cause = _cause_of_clean_up(block, event, old, new, record, election)
            if cause >= 0:
                return cause
    if marker_before == layout.UNFENCE_MARKER and cell(old, layout.LEADER) == -1 and cell(new, layout.LEADER) >= 0:
        # It elects wherever a clean leader or the last known one is back: nothing later can do that without a record
        # between them. An unclean election may also be asked for.
        if election == codes.UNCLEAN:
            set_slot(block, layout.FOUND_BROKER, -1)
            return Cause.UNFENCED + codes.LEFT_OPEN * codes.OR_UNCLEAN_ELECTION
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
    """The cause of a change, or what may be; the broker whose event it was stands in FOUND_BROKER, -1 for none."""
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
    if length_of_list(given_lists, layout.DIRECTORIES) >= 0:
        return Cause.DIRECTORY_ASSIGNED
    cause = _cause_by_marker(block, event, old, new, record, election)
    if cause >= 0:
        return cause
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
        unclean = slot(block, layout.FOUND_BROKER) if cause % codes.LEFT_OPEN == Cause.UNCLEAN_SHUTDOWN else -1
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
