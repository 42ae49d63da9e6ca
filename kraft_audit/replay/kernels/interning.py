"""Numbers for uuids: each distinct one gets the next number."""

from __future__ import annotations

from kraft_audit.replay.kernels.layout import UUID_STRIDE
from kraft_codec.kernels.memory import (
    inlined,
    load_int32,
    load_int64,
    load_uint8,
    shared,
    store_int8,
    store_int32,
    store_int64,
)

_HASH_FACTOR = 0x9E3779B97F4A7C1


@inlined
def _place_of(high: int, low: int, ids: int, slots: int, mask: int) -> int:
    """Where the hash table holds the number of an id, or the free place where it belongs."""
    mixed = (high ^ (low * _HASH_FACTOR)) * _HASH_FACTOR
    position = (mixed ^ (mixed >> 29)) & mask
    while True:
        number = load_int32(slots + 4 * position)
        if number < 0:
            return position
        if load_int64(ids + 16 * number) == high and load_int64(ids + 16 * number + 8) == low:
            return position
        position = (position + 1) & mask


@shared
def intern_ids(values: int, count: int, numbers: int, ids: int, known: int, slots: int, mask: int) -> int:
    """Writes the number of each of `count` uuids at `values`; returns how many are known then.

    `ids`: the known uuids by number, with room for `count` more; `slots`: int32 hash table of numbers, -1 where free.
    """
    for at in range(count):
        high = load_int64(values + 16 * at)
        low = load_int64(values + 16 * at + 8)
        position = _place_of(high, low, ids, slots, mask)
        number = load_int32(slots + 4 * position)
        if number < 0:
            number = known
            store_int64(ids + 16 * number, high)
            store_int64(ids + 16 * number + 8, low)
            store_int32(slots + 4 * position, number)
            known += 1
        store_int32(numbers + 4 * at, number)
    return known


@shared
def rehash_ids(ids: int, known: int, slots: int, mask: int) -> int:
    """Files all known ids in a new, empty table."""
    for number in range(known):
        high = load_int64(ids + 16 * number)
        low = load_int64(ids + 16 * number + 8)
        store_int32(slots + 4 * _place_of(high, low, ids, slots, mask), number)
    return known


@inlined
def _put_character(target: int, alphabet: int, six_bits: int) -> int:
    store_int8(target, load_uint8(alphabet + six_bits))
    return target


@shared
def uuid_texts(ids: int, start: int, end: int, texts: int, alphabet: int) -> int:
    """Writes the 22 characters of the ids from number `start` to `end`, UUID_STRIDE apart (Uuid.toString)."""
    for number in range(start, end):
        source = ids + 16 * number
        target = texts + UUID_STRIDE * number
        for group in range(5):
            first = load_uint8(source + 3 * group)
            second = load_uint8(source + 3 * group + 1)
            third = load_uint8(source + 3 * group + 2)
            _put_character(target + 4 * group, alphabet, first >> 2)
            _put_character(target + 4 * group + 1, alphabet, ((first & 3) << 4) | (second >> 4))
            _put_character(target + 4 * group + 2, alphabet, ((second & 15) << 2) | (third >> 6))
            _put_character(target + 4 * group + 3, alphabet, third & 63)
        last = load_uint8(source + 15)
        _put_character(target + 20, alphabet, last >> 2)
        _put_character(target + 21, alphabet, (last & 3) << 4)
    return end
