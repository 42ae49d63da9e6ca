"""Where the tagged fields of a struct stand: noted in slots, so that their values can be read in any order.

A known tag's value is passed by its schema and not by the size that stands before it, as Kafka's generated readers do;
of a tag that comes twice the last is noted.
"""

from __future__ import annotations

from kraft_codec.kernels.codes import OK
from kraft_codec.kernels.memory import inlined, load_int32, store_int64
from kraft_codec.kernels.varints import unsigned_varint
from kraft_codec.kernels.walk import skip_array, walk

TAG_ENTRY_BYTES = 16
"""Of each tag: slot + 1 (0 is unknown), width of a fixed value, width of an array's elements, walk program."""


@inlined
def find_tags(
    base: int,
    position: int,
    end: int,
    instruction: int,
    program: int,
    slots: int,
    walk_program: int,
    frames: int,
    marks: int,
) -> int:
    """Fills the struct's slots (below 0 is absent); returns the position behind its tagged fields, -1 if broken.

    Arguments of the op: first slot, slot count, table size, distance of the table.
    """
    first_slot = slots + 8 * load_int32(instruction + 4)
    for slot in range(load_int32(instruction + 8)):
        store_int64(first_slot + 8 * slot, -1)
    count, at = unsigned_varint(base, position, end)
    if at < 0:
        return -1
    for _ in range(count):
        tag, after = unsigned_varint(base, at, end)
        if after < 0:
            return -1
        size_bytes, after = unsigned_varint(base, after, end)
        if after < 0:
            return -1
        entry = program
        slot = 0
        if 0 <= tag < load_int32(instruction + 12):
            entry = program + load_int32(instruction + 16) + TAG_ENTRY_BYTES * tag
            slot = load_int32(entry)
        if slot == 0:
            if size_bytes < 0 or size_bytes > end - after:
                return -1
            at = after + size_bytes
            continue
        store_int64(slots + 8 * (slot - 1), after)
        status = OK
        if load_int32(entry + 4) > 0:
            at = after + load_int32(entry + 4)
        elif load_int32(entry + 8) > 0:
            status, at = skip_array(base, after, end, load_int32(entry + 8), 1)
        else:
            status, at = walk(base, after, end, load_int32(entry + 12), walk_program, frames, marks)
        if status != OK or at > end:
            return -1
    return at
