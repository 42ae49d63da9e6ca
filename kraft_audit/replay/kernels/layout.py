"""The memory that the partition kernels share with their caller: slots of the control block, columns of its tables.

All table cells are int32. A list is a pair of cells, start and length, into the arena of int32 values; a length of -1
in an input row is a null list. Directories are numbers of interned ids, 0 for MIGRATING.
"""

from __future__ import annotations

# Lists, in the order of their cells.
REPLICAS = 0
ISR = 1
ELR = 2
LAST_KNOWN_ELR = 3
ADDING_REPLICAS = 4
REMOVING_REPLICAS = 5
DIRECTORIES = 6
LIST_COUNT = 7

# Cells of a partition's row and of an output row.
LEADER = 0
RECOVERY_STATE = 1
LEADER_EPOCH = 2
PARTITION_EPOCH = 3
EXISTS = 4
EFFECTIVE_MIN_ISR = 5
TOPIC = 6
PARTITION = 7
NEXT_OF_TOPIC = 8
LISTS = 10
PARTITION_CELLS = LISTS + 2 * LIST_COUNT
PARTITION_BYTES = 4 * PARTITION_CELLS

# Further cells of an output row.
EVENT = PARTITION_CELLS
CAUSE = PARTITION_CELLS + 1
CAUSE_BROKER = PARTITION_CELLS + 2
ELECTION = PARTITION_CELLS + 3
EXPECTED_ELR = PARTITION_CELLS + 4
OUTPUT_CELLS = PARTITION_CELLS + 8
OUTPUT_BYTES = 4 * OUTPUT_CELLS

# Cells of an input row: PartitionRecord or PartitionChangeRecord. Leader, recovery state and epochs as in a partition.
INPUT_TOPIC = 4
INPUT_PARTITION = 5
INPUT_LISTS = 6
INPUT_CELLS = INPUT_LISTS + 2 * LIST_COUNT
INPUT_BYTES = 4 * INPUT_CELLS

# Cells of a topic's row.
FIRST_PARTITION = 0
PARTITION_0 = 1
TOPIC_MIN_ISR = 2
TOPIC_CELLS = 4
TOPIC_BYTES = 4 * TOPIC_CELLS

# Kinds of events, and what their operands a and b are.
PARTITION_EVENT = 0  # input row
CHANGE_EVENT = 1  # input row
TOPIC_REMOVED_EVENT = 2  # topic
CLEAR_ELR_EVENT = 3  # topic or -1 for all
TOPIC_MIN_ISR_EVENT = 4  # topic, value or -1
DEFAULT_MIN_ISR_EVENT = 5  # cause, value
ELR_FEATURE_EVENT = 6  # -, level
RULES_EVENT = 7  # -, 1 where a directory assignment wipes the ELR
MARKER_EVENT = 8  # marker, broker

# Markers: what a broker record says of the changes before (the first four) or after it.
NO_MARKER = 0
FENCE_MARKER = 1
REGISTER_MARKER = 2
UNREGISTER_MARKER = 3
LOG_DIRS_MARKER = 4
UNFENCE_MARKER = 5
SHUTDOWN_MARKER = 6

CONTEXT_BYTES = 16
"""An event's context: marker before it, its broker, marker after it, its broker."""
OPERATION_GAP_MS = 100
"""Changes of one operation that does not fit one batch are appended within moments."""
LONG_LIST = 4_096
"""No real replica list is longer; for such a record neither cause nor expected ELR is looked for."""

# Slots of the control block: tables (addresses), then counters.
(
    PARTITIONS_AT,
    TOPICS_AT,
    KEYS_AT,
    VALUES_AT,
    ARENA_AT,
    INPUTS_AT,
    OUTPUT_AT,
    PROBLEMS_AT,
    OFFSETS_AT,
    TIMES_AT,
    KINDS_AT,
    FIRST_OPERANDS_AT,
    SECOND_OPERANDS_AT,
    CONTEXTS_AT,
    SCRATCH_AT,
    PARTITION_COUNT,
    KEY_MASK,
    ARENA_USED,
    ARENA_CAPACITY,
    OUTPUT_COUNT,
    OUTPUT_CAPACITY,
    PROBLEM_COUNT,
    EVENT_COUNT,
    NEXT_EVENT,
    IS_RESUMED,
    CURSOR,
    DEFAULT_MIN_ISR,
    ELR_LEVEL,
    DIRECTORY_WIPES_ELR,
    EMIT_FROM_OFFSET,
    FOUND_BROKER,
    LONGEST_LIST,
    LAST_OFFSET,
    LAST_TIME,
    LAST_MARKER,
    LAST_BROKER,
    SLOT_COUNT,
) = range(37)

# What the replay kernel returns.
DONE = 0
OUTPUT_FULL = 1
ARENA_FULL = 2
