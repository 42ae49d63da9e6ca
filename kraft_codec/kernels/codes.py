"""The numbers that kernels and their callers share: statuses, ops and their arguments, the order of tables in memory.

An address in a name (`_AT`) of a program's argument is a distance in bytes from the program's start.
"""

from __future__ import annotations

from typing import Final

from kraft_codec.errors import Reason

REASONS: Final[tuple[Reason | None, ...]] = (None, *Reason)
"""A status in a column is a position in this tuple: 0 is no damage."""


def status_of(reason: Reason) -> int:
    """The status number of a reason."""
    return REASONS.index(reason)


OK: Final = 0
TORN_TAIL: Final = status_of(Reason.TORN_TAIL)
ZERO_TAIL: Final = status_of(Reason.ZERO_TAIL)
BAD_LENGTH: Final = status_of(Reason.BAD_LENGTH)
BAD_MAGIC: Final = status_of(Reason.BAD_MAGIC)
BAD_CRC: Final = status_of(Reason.BAD_CRC)
BAD_VARINT: Final = status_of(Reason.BAD_VARINT)
BAD_RECORD: Final = status_of(Reason.BAD_RECORD)
BAD_COMPRESSION: Final = status_of(Reason.BAD_COMPRESSION)
BAD_STRING: Final = status_of(Reason.BAD_STRING)
UNKNOWN_FRAME_VERSION: Final = status_of(Reason.UNKNOWN_FRAME_VERSION)
UNKNOWN_RECORD_TYPE: Final = status_of(Reason.UNKNOWN_RECORD_TYPE)
UNKNOWN_RECORD_VERSION: Final = status_of(Reason.UNKNOWN_RECORD_VERSION)
UNKNOWN_CONTROL_TYPE: Final = status_of(Reason.UNKNOWN_CONTROL_TYPE)

NEED_MORE: Final = -16
"""A kernel's stop: the chunk ends inside a batch and is not the last."""
NO_SPACE: Final = -17
"""A kernel's stop: the output buffer may not hold the next row; call again from there with a larger one."""

CRC_LANE_BYTES: Final = 256
"""The CRC instruction gives a result every cycle but each takes three: long ranges go through it in three lanes."""

MARKS_BYTES: Final = 512
SLOTS_BYTES: Final = 2048
FRAMES_BYTES: Final = 2048
SCRATCH_BYTES: Final = MARKS_BYTES + SLOTS_BYTES + FRAMES_BYTES
"""Scratch memory of a kernel: what a walk notes, a slot a tagged field, a frame a level of nesting."""

# Marks, int64: unknown tagged fields that were met, room for their places, where those are noted, a number noted with
# each (the record's row). The positions where fields begin follow.
UNKNOWN_TAG_COUNT: Final = 0
UNKNOWN_TAG_ROOM: Final = 1
UNKNOWN_TAGS_AT: Final = 2
MARKED_ROW: Final = 3
FIRST_FIELD_MARK: Final = 4
UNKNOWN_TAG_CELLS: Final = 3
"""Of an unknown tagged field: the number noted with it, position and size of its value."""

# A frame, int64: what a loop over elements or tagged fields goes on with. A walk's has the first two cells only.
FRAME_REMAINING: Final = 0
FRAME_ROW: Final = 1
FRAME_START: Final = 2
WALK_FRAME_BYTES: Final = 16
FRAME_BYTES: Final = 32

# Columns that `index_batches` fills, in the order of `columns.batches.BatchIndex`.
(
    BATCH_POSITION,
    BATCH_BASE_OFFSET,
    BATCH_SIZE_BYTES,
    BATCH_LEADER_EPOCH,
    BATCH_MAGIC,
    BATCH_CRC,
    BATCH_ATTRIBUTES,
    BATCH_LAST_OFFSET_DELTA,
    BATCH_BASE_TIMESTAMP_MS,
    BATCH_MAX_TIMESTAMP_MS,
    BATCH_PRODUCER_ID,
    BATCH_PRODUCER_EPOCH,
    BATCH_BASE_SEQUENCE,
    BATCH_RECORD_COUNT,
    BATCH_CRC_OK,
    BATCH_STATUS,
) = range(16)

# Columns that `index_records` fills, in the order of `columns.records.RECORD_COLUMNS`.
(
    RECORD_BATCH_ROW,
    RECORD_OFFSET,
    RECORD_TIMESTAMP_MS,
    RECORD_IS_CONTROL,
    RECORD_STATUS,
    RECORD_API_KEY,
    RECORD_VERSION,
    RECORD_KEY_POSITION,
    RECORD_KEY_LENGTH,
    RECORD_VALUE_POSITION,
    RECORD_VALUE_LENGTH,
    RECORD_BODY_POSITION,
    RECORD_UNKNOWN_TAG_COUNT,
    RECORD_KIND,
) = range(14)

# Columns that `mark_fields` reads.
MARK_BODY_POSITION, MARK_VALUE_POSITION, MARK_VALUE_LENGTH = range(3)

# Columns that `write_json` reads.
(
    JSON_STATUS,
    JSON_IS_CONTROL,
    JSON_API_KEY,
    JSON_VERSION,
    JSON_BODY_POSITION,
    JSON_VALUE_POSITION,
    JSON_VALUE_LENGTH,
) = range(7)

# Columns that `fill_columns` reads: of records, then of their batches; and what it writes beside the fields.
(
    TYPED_VERSION,
    TYPED_BODY_POSITION,
    TYPED_VALUE_POSITION,
    TYPED_VALUE_LENGTH,
    TYPED_OFFSET,
    TYPED_TIMESTAMP_MS,
    TYPED_BATCH_ROW,
    TYPED_UNKNOWN_TAG_COUNT,
    TYPED_LEADER_EPOCH,
    TYPED_BASE_OFFSET,
) = range(10)
(
    ENVELOPE_OFFSET,
    ENVELOPE_LEADER_EPOCH,
    ENVELOPE_TIMESTAMP_MS,
    ENVELOPE_BASE_OFFSET,
    ENVELOPE_VERSION,
    ENVELOPE_UNKNOWN_TAG_COUNT,
) = range(6)

# A column of fields in the table of `fill_columns`, int64: addresses (0: none), and how many offsets are filled.
COLUMN_VALUES_AT, COLUMN_OFFSETS_AT, COLUMN_VALIDITY_AT, COLUMN_FILLED = range(4)
COLUMN_BYTES: Final = 32

# The table of floats, int64: how many were met, room for bits, addresses of the bits, of the texts (0: none yet) and of
# their ends.
FLOATS_MET, FLOATS_ROOM, FLOATS_BITS_AT, FLOATS_TEXTS_AT, FLOATS_ENDS_AT = range(5)

# The directory of programs, int32. An entry a type (TYPES_PER_KIND + type for control records) has first version, last
# version (below 0: unknown type) and where in the directory the starts of its programs stand, one a version.
TYPES_PER_KIND: Final = 256
DIRECTORY_FIRST_VERSION, DIRECTORY_LAST_VERSION, DIRECTORY_STARTS = range(3)
DIRECTORY_CELLS: Final = 3

OP_COLUMNS: Final = 8
"""A program is rows of this many int32: the op code, then its arguments."""
OP_BYTES: Final = 4 * OP_COLUMNS

# Ops of every program: where the bytes go on.
END: Final = 0

# Ops of the walk that checks a body.
SKIP: Final = 10
SKIP_TEXT: Final = 11
SKIP_BYTES: Final = 12
SKIP_ARRAY: Final = 13
LOOP: Final = 14
NEXT: Final = 15
TAGS: Final = 16
NEXT_TAG: Final = 17
MARK: Final = 18

# Arguments of those ops.
SKIP_WIDTH, SKIP_WIDTHS_AT = 1, 2
SKIP_NULLABLE = 1  # of a text or bytes
ARRAY_WIDTH, ARRAY_NULLABLE, ARRAY_COUNT = 1, 2, 3
LOOP_NULLABLE, LOOP_END_ROW = 1, 2
TAGS_END_ROW, TAGS_SIZE, TAGS_TABLE_AT = 1, 2, 3
MARK_NUMBER = 1

# A known tag in the table of a walk, and what its first cell says.
TAG_KIND, TAG_WIDTH, TAG_NULLABLE, TAG_PROGRAM_ROW = range(4)
TAG_ENTRY_BYTES: Final = 16

TAG_UNKNOWN: Final = 0
TAG_NOT_IN_VERSION: Final = 1
TAG_OF_FIXED: Final = 2
TAG_OF_LIST: Final = 3
TAG_OF_PROGRAM: Final = 4

# Ops that write JSON text. Those up to TEXT_STRUCT and TEXT_BEGIN write the text of a key first.
TEXT_BOOL: Final = 40
TEXT_INT8: Final = 41
TEXT_INT16: Final = 42
TEXT_UINT16: Final = 43
TEXT_INT32: Final = 44
TEXT_UINT32: Final = 45
TEXT_INT64: Final = 46
TEXT_FLOAT64: Final = 47
TEXT_UUID: Final = 48
TEXT_STRING: Final = 49
TEXT_BYTES: Final = 50
TEXT_ARRAY: Final = 51
TEXT_LOOP: Final = 52
TEXT_STRUCT: Final = 53
TEXT_NEXT: Final = 54
TEXT_STRUCT_END: Final = 55
TEXT_TAGGED: Final = 56
TEXT_HOLE: Final = 57
TEXT_ROTATE: Final = 58
TEXT_BEGIN: Final = 59

# Arguments of those ops.
KEY_AT, KEY_BYTES = 1, 2
ELEMENT_KIND, ELEMENT_WIDTH, ELEMENT_TEXT_BYTES_MAX = 3, 4, 5
TEXT_LOOP_END_ROW = 3
TAGGED_SLOT, TAGGED_END_ROW, TAGGED_TEST, TAGGED_WIDTH, TAGGED_DEFAULT_AT, TAGGED_TEXT_SLOT = range(1, 7)
HOLE_SLOT, HOLE_TEXT_SLOT = 1, 2

# Ops that every program which looks at values shares: where the tagged fields of a struct stand.
FIND_TAGS: Final = 70
TAGS_END: Final = 71

# Arguments of those ops, and a known tag in the table of FIND_TAGS: its slot + 1 (0: unknown), the width of a fixed
# value, the width of an array's elements, and else the row of the walk over its value.
FIND_FIRST_SLOT, FIND_SLOT_COUNT, FIND_SIZE, FIND_TABLE_AT = range(1, 5)
TAGS_END_SLOT = 1
FIND_SLOT, FIND_WIDTH, FIND_ELEMENT_WIDTH, FIND_PROGRAM_ROW = range(4)

# What makes a tagged field one that JSON leaves out.
IS_BYTES: Final = 0
IS_BOOL: Final = 1
IS_ZERO_FLOAT: Final = 2
IS_NULL: Final = 3
IS_EMPTY: Final = 4

# Where the constants of the text kernel stand in their blob (see `text_programs.text_constants`).
DIGIT_PAIRS: Final = 0
BASE64_DIGITS: Final = 256
BASE64_URL_PAIRS: Final = 512

BROKEN: Final = -18
"""A kernel's stop: bytes that were checked once are no longer what they were. Nothing was read after them."""

# Ops that put values into Arrow buffers.
PUT_INT8: Final = 80
PUT_BOOL: Final = 81
PUT_INT16: Final = 82
PUT_UINT16: Final = 83
PUT_INT32: Final = 84
PUT_UINT32: Final = 85
PUT_INT64: Final = 86
PUT_UUID: Final = 87
PUT_LIST: Final = 88
PUT_TAGS: Final = 89
PUT_NEXT_TAG: Final = 90
PUT_TEXT: Final = 91
PUT_LOOP: Final = 92
PUT_NEXT: Final = 93

# Arguments of those ops. PUT_MAY_LAG says that the field may be missing from records, so that its column may lag
# after the row; a default is read as if it stood in the record. PUT_TAGS has those of TAGS.
PUT_COLUMN = 1
PUT_ELEMENT_COLUMN, PUT_ELEMENT_KIND, PUT_ELEMENT_WIDTH = 2, 3, 4
PUT_LOOP_END_ROW = 2
PUT_MAY_LAG = 6
PUT_DEFAULT_AT = 7

DEFAULT_BYTES: Final = 32
"""How far a default may be read."""
