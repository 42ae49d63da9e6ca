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

NEED_MORE: Final = -1
"""A kernel's stop: the chunk ends inside a batch and is not the last."""
NO_SPACE: Final = -2
"""A kernel's stop: the output buffer may not hold the next row; call again from there with a larger one."""

BATCH_OVERHEAD_BYTES: Final = 12
BATCH_HEADER_BYTES: Final = 61
HEADER_UP_TO_MAGIC_BYTES: Final = 17
BATCH_LENGTH_MAX: Final = 64 * 1024 * 1024
CRC_COVERED_FROM: Final = 21
STRING_BYTES_MAX: Final = 0x7FFF
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, key length, value length, header count: one byte each."""

OP_COLUMNS: Final = 8
"""A program is rows of this many int32: the op code, then its arguments."""
OP_BYTES: Final = 4 * OP_COLUMNS

# Ops of every program: where the bytes go on.
END: Final = 0
JUMP: Final = 1

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
