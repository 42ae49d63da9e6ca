"""Which event a change record belongs to, how its leader was chosen, and which ELR the shipped rules give."""

from __future__ import annotations

from kraft_audit.replay.causes import (
    BY_ELR,
    BY_ISR,
    BY_LAST_KNOWN,
    BY_PREFERENCE,
    CONTROLLED_SHUTDOWN,
    DIRECTORY_ASSIGNED,
    DIRECTORY_FAILED,
    ELR_CHANGED,
    FENCED,
    ISR_CHANGED,
    ISR_EXPANDED,
    ISR_SHRUNK,
    LEADER_ELECTION,
    LEADER_EPOCH_BUMPED,
    LEADER_LOST,
    LEADERLESS,
    NO_ELECTION,
    OTHER,
    PREFERRED_ELECTION,
    REASSIGNMENT_CANCELLED,
    REASSIGNMENT_CHANGED,
    REASSIGNMENT_COMPLETED,
    REASSIGNMENT_STARTED,
    RECOVERED,
    REGISTERED,
    SAME_LEADER,
    UNCLEAN,
    UNCLEAN_ELECTION,
    UNCLEAN_SHUTDOWN,
    UNFENCED,
    UNREGISTERED,
)
from kraft_audit.replay.kernels.layout import (
    ADDING_REPLICAS,
    ARENA_AT,
    ARENA_USED,
    CHANGE_EVENT,
    CONTEXT_BYTES,
    CONTEXTS_AT,
    DIRECTORIES,
    EFFECTIVE_MIN_ISR,
    ELR,
    ELR_LEVEL,
    EVENT_COUNT,
    FENCE_MARKER,
    FIRST_OPERANDS_AT,
    FOUND_BROKER,
    INPUT_LISTS,
    ISR,
    KINDS_AT,
    LAST_BROKER,
    LAST_KNOWN_ELR,
    LAST_MARKER,
    LAST_OFFSET,
    LAST_TIME,
    LEADER,
    LIST_COUNT,
    LISTS,
    LOG_DIRS_MARKER,
    MARKER_EVENT,
    NO_MARKER,
    OFFSETS_AT,
    OPERATION_GAP_MS,
    OUTPUT_LENGTHS,
    RECOVERY_STATE,
    REGISTER_MARKER,
    REMOVING_REPLICAS,
    REPLICAS,
    SECOND_OPERANDS_AT,
    SHUTDOWN_MARKER,
    TIMES_AT,
    UNFENCE_MARKER,
    UNREGISTER_MARKER,
)
from kraft_audit.replay.kernels.memory_rows import (
    cell,
    element,
    is_in,
    length_of_list,
    missing,
    set_cell,
    set_slot,
    slot,
)
from kraft_codec.kernels.memory import inlined, load_int32, load_int64, shared, store_int32


@inlined
def _is_next(block: int, event: int) -> bool:
    """Whether an event's record directly follows the one before it, in what may be one operation."""
    offsets = slot(block, OFFSETS_AT) + 8 * event
    times = slot(block, TIMES_AT) + 8 * event
    last_offset = load_int64(offsets - 8) if event > 0 else slot(block, LAST_OFFSET)
    last_time = load_int64(times - 8) if event > 0 else slot(block, LAST_TIME)
    return load_int64(offsets) - last_offset == 1 and abs(load_int64(times) - last_time) <= OPERATION_GAP_MS


@shared
def _mark(block: int, event: int, step: int, place: int, marker: int, broker: int) -> int:
    """Gives a broker marker to the changes from `event` on, forward or (step -1) backward, while the operation lasts.

    `place` is where in their contexts. Returns the first event that does not get it.
    """
    kinds = slot(block, KINDS_AT)
    contexts = slot(block, CONTEXTS_AT) + place
    later = 0 if step > 0 else 1
    while 0 <= event < slot(block, EVENT_COUNT):
        if load_int32(kinds + 4 * event) != CHANGE_EVENT or not _is_next(block, event + later):
            break
        store_int32(contexts + CONTEXT_BYTES * event, marker)
        store_int32(contexts + CONTEXT_BYTES * event + 4, broker)
        event += step
    return event


@shared
def link_operations(block: int) -> int:
    """Gives every change the broker markers around it, across changes only; one before may be carried over.

    The contexts hold NO_MARKER everywhere before.
    """
    count = slot(block, EVENT_COUNT)
    marker = slot(block, LAST_MARKER)
    if marker != NO_MARKER and _mark(block, 0, 1, 0, marker, slot(block, LAST_BROKER)) < count:
        marker = NO_MARKER
    for event in range(count):
        if load_int32(slot(block, KINDS_AT) + 4 * event) == MARKER_EVENT:
            marker = load_int32(slot(block, FIRST_OPERANDS_AT) + 4 * event)
            broker = load_int32(slot(block, SECOND_OPERANDS_AT) + 4 * event)
            _mark(block, event - 1, -1, 8, marker, broker)
            if _mark(block, event + 1, 1, 0, marker, broker) < count:
                marker = NO_MARKER
            set_slot(block, LAST_BROKER, broker)
    set_slot(block, LAST_MARKER, marker)
    set_slot(block, LAST_OFFSET, load_int64(slot(block, OFFSETS_AT) + 8 * (count - 1)))
    set_slot(block, LAST_TIME, load_int64(slot(block, TIMES_AT) + 8 * (count - 1)))
    return 0


@inlined
def _is_last_known(block: int, old_lists: int, leader: int) -> bool:
    return length_of_list(old_lists, LAST_KNOWN_ELR) == 1 and is_in(block, old_lists, LAST_KNOWN_ELR, leader)


@inlined
def _unclean_election_of(block: int, old_lists: int, leader: int) -> int:
    """The last known leader leads where nobody else is in ISR or ELR; itself it may have left them by this record."""
    others = length_of_list(old_lists, ISR) + length_of_list(old_lists, ELR)
    others -= is_in(block, old_lists, ISR, leader) + is_in(block, old_lists, ELR, leader)
    return BY_LAST_KNOWN if others == 0 and _is_last_known(block, old_lists, leader) else UNCLEAN


@shared
def election_of(block: int, old: int, new: int, record: int) -> int:
    """How the leader field of a change came about (PartitionChangeBuilder.electLeader 4.3.0, told backwards)."""
    if cell(record, LEADER) == -2:
        return NO_ELECTION
    before = cell(old, LEADER)
    leader = cell(new, LEADER)
    if leader < 0:
        return LEADERLESS
    if leader == before:
        return SAME_LEADER
    old_lists = old + 4 * LISTS
    recovering = cell(new, RECOVERY_STATE) == 1
    is_alone = length_of_list(new + 4 * LISTS, ISR) == 1 and is_in(block, new + 4 * LISTS, ISR, leader)
    if recovering and is_alone and cell(old, RECOVERY_STATE) != 1:
        # Kafka says itself that this one may lack records, whatever its place was before the record.
        return _unclean_election_of(block, old_lists, leader)
    if is_in(block, old_lists, ISR, leader):
        prefers = (
            length_of_list(new + 4 * LISTS, REPLICAS) > 0 and element(block, new + 4 * LISTS, REPLICAS, 0) == leader
        )
        moved_only = length_of_list(record + 4 * INPUT_LISTS, ISR) < 0 and before >= 0
        return BY_PREFERENCE if prefers and moved_only else BY_ISR
    if is_in(block, old_lists, ELR, leader):
        return BY_ELR
    if not (recovering and is_alone):
        return BY_ISR
    return _unclean_election_of(block, old_lists, leader)


@shared
def election_after(block: int, old: int, new: int, election: int, cause: int) -> int:
    """The election once its cause is known: where the last other member leaves the ELR by coming back uncleanly, the
    same record elects the last known leader."""
    if election != UNCLEAN or cause != UNCLEAN_SHUTDOWN:
        return election
    old_lists = old + 4 * LISTS
    broker = slot(block, FOUND_BROKER)
    others = length_of_list(old_lists, ISR) + length_of_list(old_lists, ELR)
    others -= is_in(block, old_lists, ISR, broker) + is_in(block, old_lists, ELR, broker)
    return BY_LAST_KNOWN if others == 0 and _is_last_known(block, old_lists, cell(new, LEADER)) else UNCLEAN


@inlined
def _loses(block: int, old: int, new: int, broker: int) -> bool:
    """Whether a change takes a broker out of the ISR, or, where the last member must stay in it, its leadership."""
    if is_in(block, old + 4 * LISTS, ISR, broker) and not is_in(block, new + 4 * LISTS, ISR, broker):
        return True
    return cell(old, LEADER) == broker and cell(new, LEADER) == -1


@inlined
def _repeats(block: int, old: int, new: int, record: int) -> bool:
    """Whether a change writes an ELR that the partition has already.

    Such is the second record that 4.3.1 writes of a partition in the clean-up of one registration.
    """
    if length_of_list(record + 4 * INPUT_LISTS, ELR) < 0 or cell(record, LEADER) != -2:
        return False
    for number in (ISR, ELR):
        if length_of_list(old + 4 * LISTS, number) != length_of_list(new + 4 * LISTS, number):
            return False
        if missing(block, old + 4 * LISTS, number, new + 4 * LISTS, number)[0] > 0:
            return False
    return True


@inlined
def _cause_by_marker(block: int, event: int, old: int, new: int, record: int) -> int:
    """The broker event of whose operation this change is a part, or -1."""
    context = slot(block, CONTEXTS_AT) + CONTEXT_BYTES * event
    broker = load_int32(context + 4)
    set_slot(block, FOUND_BROKER, broker)
    # A shutdown comes first: the fencing that soon follows it finds nothing left to change.
    if load_int32(context) == SHUTDOWN_MARKER and _loses(block, old, new, broker):
        return CONTROLLED_SHUTDOWN
    marker = load_int32(context + 8)
    broker = load_int32(context + 12)
    if marker >= FENCE_MARKER and marker <= LOG_DIRS_MARKER:
        set_slot(block, FOUND_BROKER, broker)
        in_new_elr = is_in(block, new + 4 * LISTS, ELR, broker)
        if _loses(block, old, new, broker):
            if marker == FENCE_MARKER:
                return FENCED
            if marker == UNREGISTER_MARKER:
                return UNREGISTERED
            if marker == LOG_DIRS_MARKER:
                return DIRECTORY_FAILED
            return UNCLEAN_SHUTDOWN if slot(block, ELR_LEVEL) > 0 and not in_new_elr else REGISTERED
        was_eligible = is_in(block, old + 4 * LISTS, ELR, broker)
        # A leader that brings somebody into the ISR may empty the ELR just before the broker comes back.
        joined = cell(record, LEADER) == -2 and missing(block, new + 4 * LISTS, ISR, old + 4 * LISTS, ISR)[0] > 0
        is_clean_up = not in_new_elr and not joined
        if marker == REGISTER_MARKER and is_clean_up and (was_eligible or _repeats(block, old, new, record)):
            return UNCLEAN_SHUTDOWN
    if load_int32(context) == UNFENCE_MARKER and cell(old, LEADER) == -1 and cell(new, LEADER) >= 0:
        set_slot(block, FOUND_BROKER, load_int32(context + 4))
        return UNFENCED
    set_slot(block, FOUND_BROKER, -1)
    return -1


@inlined
def _is_moving(lists: int) -> bool:
    return length_of_list(lists, ADDING_REPLICAS) + length_of_list(lists, REMOVING_REPLICAS) > 0


@inlined
def _cause_by_reassignment(block: int, old: int, new: int) -> int:
    old_lists = old + 4 * LISTS
    new_lists = new + 4 * LISTS
    adding = length_of_list(old_lists, ADDING_REPLICAS)
    was_moving = _is_moving(old_lists)
    if _is_moving(new_lists):
        return REASSIGNMENT_CHANGED if was_moving else REASSIGNMENT_STARTED
    if not was_moving:
        return REASSIGNMENT_COMPLETED
    # Back to the replicas as they were before; with any others a further reassignment took its place, and is done.
    as_many = length_of_list(new_lists, REPLICAS) == length_of_list(old_lists, REPLICAS) - adding
    none_added = missing(block, old_lists, ADDING_REPLICAS, new_lists, REPLICAS)[0] == adding
    went_back = as_many and none_added and missing(block, new_lists, REPLICAS, old_lists, REPLICAS)[0] == 0
    return REASSIGNMENT_CANCELLED if went_back else REASSIGNMENT_COMPLETED


@inlined
def _cause_by_leader(election: int) -> int:
    if election == LEADERLESS:
        return LEADER_LOST
    if election == SAME_LEADER:
        return LEADER_EPOCH_BUMPED
    if election == BY_PREFERENCE:
        return PREFERRED_ELECTION
    if election == UNCLEAN or election == BY_LAST_KNOWN:  # noqa: SIM109 (a tuple costs the compiler more)
        return UNCLEAN_ELECTION
    return LEADER_ELECTION


@shared
def cause_of(block: int, event: int, old: int, new: int, record: int, election: int) -> int:
    """The cause of a change; the broker whose event it was stands in FOUND_BROKER, -1 for none."""
    record_lists = record + 4 * INPUT_LISTS
    old_lists = old + 4 * LISTS
    new_lists = new + 4 * LISTS
    sets_replicas = (
        length_of_list(record_lists, REPLICAS) >= 0
        or length_of_list(record_lists, ADDING_REPLICAS) >= 0
        or length_of_list(record_lists, REMOVING_REPLICAS) >= 0
    )
    if sets_replicas:
        # Never on the way of a broker's operation: a reassignment is completed once enough replicas are in sync
        # (PartitionReassignmentReplicas.maybeCompleteReassignment), and to lose one makes that no truer.
        set_slot(block, FOUND_BROKER, -1)
        return _cause_by_reassignment(block, old, new)
    cause = _cause_by_marker(block, event, old, new, record)
    if cause >= 0:
        return cause
    if length_of_list(record_lists, DIRECTORIES) >= 0:
        return DIRECTORY_ASSIGNED
    if cell(old, LEADER) == -1 and cell(new, LEADER) >= 0:
        return _cause_by_leader(election)
    lost, who_left = missing(block, old_lists, ISR, new_lists, ISR)
    gained, who_came = missing(block, new_lists, ISR, old_lists, ISR)
    # Which of these it is nobody can guess, so they are chosen from and not branched to.
    broker = who_left if (lost == 1) & (gained == 0) else -1
    set_slot(block, FOUND_BROKER, who_came if (gained == 1) & (lost == 0) else broker)
    if lost + gained > 0:
        if election == UNCLEAN:
            return UNCLEAN_ELECTION
        return ISR_CHANGED if (lost > 0) & (gained > 0) else (ISR_SHRUNK if lost > 0 else ISR_EXPANDED)
    if election != NO_ELECTION:
        return _cause_by_leader(election)
    if cell(old, RECOVERY_STATE) == 1 and cell(new, RECOVERY_STATE) == 0:
        return RECOVERED
    if length_of_list(record_lists, ELR) >= 0 or length_of_list(record_lists, LAST_KNOWN_ELR) >= 0:
        return ELR_CHANGED
    return OTHER


@inlined
def _add_sorted(arena: int, start: int, count: int, value: int) -> int:
    """Puts a value into an ascending list at the arena's end, once; the new length."""
    at = count
    while at > 0 and load_int32(arena + 4 * (start + at - 1)) > value:
        at -= 1
    if at > 0 and load_int32(arena + 4 * (start + at - 1)) == value:
        return count
    for move in range(count - at):
        position = arena + 4 * (start + count - move)
        store_int32(position, load_int32(position - 4))
    store_int32(arena + 4 * (start + at), value)
    return count + 1


@shared
def expect_elr(block: int, old: int, new: int, election: int, cause: int, target: int) -> None:
    """Writes the ELR that PartitionChangeBuilder 4.3.0 gives (its target ELR, less an elected member), ascending.

    `target`: where the two cells of the list go. The target ISR is that of the record, and empty before a member of the
    ELR is elected.
    """
    arena = slot(block, ARENA_AT)
    start = slot(block, ARENA_USED)
    old_lists = old + 4 * LISTS
    new_lists = new + 4 * LISTS
    in_sync = 0 if election == BY_ELR else length_of_list(new_lists, ISR)
    count = 0
    # An unclean election leaves nobody eligible, a full ISR needs nobody.
    is_clean = election != UNCLEAN and election != BY_LAST_KNOWN
    if is_clean and in_sync < cell(old, EFFECTIVE_MIN_ISR):
        unclean = slot(block, FOUND_BROKER) if cause == UNCLEAN_SHUTDOWN else -1
        for number in (ELR, ISR):
            for at in range(length_of_list(old_lists, number)):
                broker = element(block, old_lists, number, at)
                if broker != unclean and not is_in(block, new_lists, ISR, broker):
                    count = _add_sorted(arena, start, count, broker)
    set_cell(target, 0, start)
    set_cell(target, 1, count)
    set_slot(block, ARENA_USED, start + count)
    set_slot(block, OUTPUT_LENGTHS + LIST_COUNT, slot(block, OUTPUT_LENGTHS + LIST_COUNT) + count)
