"""The numbers that kernels and their callers share: reasons, op codes, layouts of tables in memory."""

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

BATCH_OVERHEAD_BYTES: Final = 12
BATCH_HEADER_BYTES: Final = 61
HEADER_UP_TO_MAGIC_BYTES: Final = 17
BATCH_LENGTH_MAX: Final = 64 * 1024 * 1024
OFFSET_MAX: Final = (1 << 63) - 1
CRC_COVERED_FROM: Final = 21
STRING_BYTES_MAX: Final = 0x7FFF
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, key length, value length, header count: one byte each."""

MARKS_BYTES: Final = 512
SLOTS_BYTES: Final = 2048
FRAMES_BYTES: Final = 2048
SCRATCH_BYTES: Final = MARKS_BYTES + SLOTS_BYTES + FRAMES_BYTES
"""Scratch memory of a kernel: what a walk notes, a slot a tagged field, 32 bytes a level of nesting."""
FIELD_MARKS: Final = 32
"""A walk's notes are: unknown tagged fields met, room for their places, where to note them, whose they are (a number
that is noted along); then, from here on, the places where fields begin."""

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

TAG_UNKNOWN: Final = 0
TAG_NOT_IN_VERSION: Final = 1
TAG_OF_FIXED: Final = 2
TAG_OF_LIST: Final = 3
TAG_OF_PROGRAM: Final = 4
TAG_ENTRY_BYTES: Final = 16

# Ops that write JSON text. Each of the first has its key's text as arguments 1 (distance) and 2 (length).
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

# Ops that every program which looks at values shares: where the tagged fields of a struct stand.
FIND_TAGS: Final = 70
TAGS_END: Final = 71

# What makes a tagged field one that JSON leaves out.
IS_BYTES: Final = 0
IS_BOOL: Final = 1
IS_ZERO_FLOAT: Final = 2
IS_NULL: Final = 3
IS_EMPTY: Final = 4

# Where the constants of the text kernel stand in their blob (see `tables.text_constants`).
DIGIT_PAIRS: Final = 0
BASE64_DIGITS: Final = 256
BASE64_URL_PAIRS: Final = 512

BROKEN: Final = -18
"""A kernel's stop: bytes that were checked once are no longer what they were. Nothing was read beyond them."""

# Ops that put values into Arrow buffers. Arguments: column, then the op's own; 6 says that the column may lag behind
# (its field may be missing from records), 7 the distance of a default's bytes, read as if they stood in the record.
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

DEFAULT_BYTES: Final = 32
"""How far a default may be read."""

COLUMN_BYTES: Final = 32
"""A column in the kernel's table is int64: address of values, of offsets, of validity; how many offsets are filled."""
