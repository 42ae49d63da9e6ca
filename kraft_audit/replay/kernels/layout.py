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
EXPOSURE = 9  # what exposes it, and times EXPOSED_BEFORE what did before the event
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
LAST_PARTITION = 3  # the row of the one that was met last
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

# Cells of an event's context: the broker marker before it, the one after it, and their brokers.
CONTEXT_MARKER_BEFORE = 0
CONTEXT_BROKER_BEFORE = 1
CONTEXT_MARKER_AFTER = 2
CONTEXT_BROKER_AFTER = 3
CONTEXT_CELLS = 4
FULL_BATCH_RECORDS = 10_000
"""Of an operation that needs several batches all but the last have so many records or more (QuorumController)."""
LONG_LIST = 4_096
"""No real replica list is longer; for such a record neither cause nor expected ELR is looked for."""

# Slots of the control block: tables (addresses), then counters.
(
    PARTITIONS_AT,
    TOPICS_AT,
    SLOTS_AT,
    ARENA_AT,
    INPUTS_AT,
    OUTPUT_AT,
    PROBLEMS_AT,
    OFFSETS_AT,
    BATCHES_AT,
    KINDS_AT,
    FIRST_OPERANDS_AT,
    SECOND_OPERANDS_AT,
    CONTEXTS_AT,
    PARTITION_COUNT,
    SLOT_MASK,
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
    LAST_BATCH,
    LAST_MARKER,
    LAST_BROKER,
    OUTPUT_VALUES,
    IS_PROVEN,
) = range(36)
OUTPUT_LENGTHS = 36  # of the output's lists in all, and of the expected ELRs
SLOT_COUNT = OUTPUT_LENGTHS + LIST_COUNT + 1

OUTPUT_VALUES_MAX = 1 << 24
"""A batch of rows ends early where its lists hold more values than this: a record may repeat an absurd list."""

# Columns of the rows that come out, as addresses in one table: numbers, flags of a byte, then texts and lists.
(
    OUT_FROM_OFFSET,
    OUT_FROM_EPOCH,
    OUT_TIMESTAMP,
    OUT_PARTITION,
    OUT_LEADER,
    OUT_LEADER_EPOCH,
    OUT_PARTITION_EPOCH,
    OUT_MIN_ISR,
    OUT_BROKER,
    OUT_EXISTS,
    OUT_CAN_ADVANCE,
    OUT_HAS_BROKER,
    OUT_HAS_ELECTION,
    OUT_HAS_EXPECTED_ELR,
    OUT_TOPIC_ID,
    OUT_DIRECTORY_TEXT,
    OUT_OPEN_CAUSE,
) = range(17)
OUT_FLAGS = (OUT_EXISTS, OUT_CAN_ADVANCE, OUT_HAS_BROKER, OUT_HAS_ELECTION, OUT_HAS_EXPECTED_ELR, OUT_OPEN_CAUSE)
# Each text is two addresses of the output (offsets, characters), and two of where it is found (places, characters).
OUT_TOPIC = 17
OUT_CAUSE = 19
OUT_ELECTION = 21
OUT_RECOVERY_STATE = 23
OUT_TEXTS = (OUT_TOPIC, OUT_CAUSE, OUT_ELECTION, OUT_RECOVERY_STATE)
OUT_LISTS = 25  # the lists of a partition, then the expected ELR: offsets, values
OUT_LIST_COUNT = LIST_COUNT + 1
OUT_COLUMNS = OUT_LISTS + 2 * OUT_LIST_COUNT

# What the texts are copied from, as addresses in one table: places and characters, in the order of OUT_TEXTS.
FROM_TEXTS = 0
FROM_TOPIC_IDS = 8
FROM_DIRECTORIES = 9
FROM_OFFSETS = 10
FROM_EPOCHS = 11
FROM_TIMES = 12
UUID_STRIDE = 24
"""The characters of a uuid, and two zeros: copied as three words, of which the next one's overwrite the zeros."""
SLACK_BYTES = 24
"""Room after texts and lists, where they are read and where they are written: short ones, which nearly all are, are
copied as so many bytes whatever their length is."""
SHORT_LIST = 4
"""Nearly all lists hold no more values."""

# One batch of decoded records, as addresses in one table; a list is offsets, validity (0: all valid), its first bit,
# and what an offset lies before its values' place in the arena. An address of 0 is a column that the type lacks.
(
    IN_LEADER,
    IN_RECOVERY_STATE,
    IN_LEADER_EPOCH,
    IN_PARTITION_EPOCH,
    IN_TOPIC,
    IN_PARTITION,
) = range(6)
IN_LISTS = 6
IN_LIST_OFFSETS, IN_LIST_VALIDITY, IN_LIST_FIRST_BIT, IN_LIST_ARENA_SHIFT = range(4)
IN_LIST_SLOTS = 4
IN_COLUMNS = IN_LISTS + IN_LIST_SLOTS * LIST_COUNT

# The order of a window's events: inputs of the merge, then its outputs, as addresses and counts in one table.
(
    MERGE_OFFSETS,
    MERGE_EPOCHS,
    MERGE_TIMES,
    MERGE_BATCHES,
    MERGE_CREATED,
    MERGE_COUNT,
    MERGE_RARE,
    MERGE_RARE_COUNT,
    MERGED_OFFSETS,
    MERGED_EPOCHS,
    MERGED_TIMES,
    MERGED_BATCHES,
    MERGED_KINDS,
    MERGED_FIRST,
    MERGED_SECOND,
    MERGE_SLOTS,
) = range(16)
# An event other than a partition's own record, int64.
RARE_OFFSET, RARE_EPOCH, RARE_TIME, RARE_BATCH, RARE_KIND, RARE_FIRST, RARE_SECOND = range(7)
RARE_BYTES = 56

# What the replay kernel returns.
DONE = 0
OUTPUT_FULL = 1
ARENA_FULL = 2
