"""Mutated batches by the million: what the columnar decoder may never do, and what the reference says of a share.

A seed takes batches of a real log (every record type, every version), makes copies of each with a few bytes changed,
inserted or removed, and decodes all copies in one call, their wrong CRCs overlooked so that the body is reached. Three
things must hold. Buffers end where a forbidden page begins, so a read beyond them ends the process. A batch's verdict
and rows do not depend on what stands around it: the same copies in another order, with other bytes between them, give
the same. And for a share of the copies the readable reference gives the same rows, reason and position.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kraft_codec import columns
from kraft_codec.batch import HEADER_BYTES, Batch, read_batches, read_header
from kraft_codec.decode import DecodedRecord, decode_records
from kraft_codec.errors import CodecError
from kraft_codec.kernels.codes import REASONS

Bytes = npt.NDArray[np.uint8]
TELLING = np.array([0, 1, 2, 0x7F, 0x80, 0xFF, 0xC0, 0xED, 0x0F, 0x3F], np.uint8)
MUTATE_FROM = 57
"""Of a batch's header only the record count is changed: the rest decides where batches stand, not what is in them."""
PART_BYTES = 16 << 20
"""What is decoded at a time: the copies' numbers and places take some thirty times as much."""
COMPARED_COLUMNS = ("offset", "timestamp_ms", "status", "api_key", "version", "key_length", "value_length", "kind")

PROTECT = ctypes.CDLL(None, use_errno=True).mprotect
PROTECT.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """What a seed did: decodings (two of each copy), copies that the reference read too, and how each ended."""

    executions: int
    compared: int
    records: int
    quarantined: int


def uncompressed_batches(log: bytes) -> list[bytes]:
    """The sound batches of a log, one record type each in the crafted one."""
    return [
        log[found.header.position :][: found.header.size_bytes]
        for found in read_batches(log)
        if isinstance(found, Batch) and found.damage is None and not found.header.attributes & 7
    ]


def guarded(size: int) -> Bytes:
    """Fresh memory that ends flush against a page that may not be touched, and begins behind another."""
    page = mmap.PAGESIZE
    room = -(-size // page) * page
    memory = mmap.mmap(-1, room + 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert PROTECT(start, page, 0) == 0
    assert PROTECT(start + page + room, page, 0) == 0
    whole = np.frombuffer(memory, np.uint8)
    return whole[page + room - size : page + room]


def mutants(batch: bytes, count: int, chance: np.random.Generator) -> Bytes:
    """`count` copies of a batch, all of its size: (count, size) bytes."""
    size = len(batch)
    copies = np.tile(np.frombuffer(batch, np.uint8), (count, 1))
    rows = np.arange(count)
    for step in range(4):
        wanted = rows if step == 0 else rows[chance.random(count) < 0.4]
        at = chance.integers(MUTATE_FROM, size, len(wanted))
        flipped = copies[wanted, at] ^ (1 << chance.integers(0, 8, len(wanted))).astype(np.uint8)
        telling = TELLING[chance.integers(0, len(TELLING), len(wanted))]
        copies[wanted, at] = np.where(chance.random(len(wanted)) < 0.4, flipped, telling)
    moved = rows[chance.random(count) < 0.25]
    at = chance.integers(MUTATE_FROM, size, (len(moved), 1))
    by = chance.choice([-1, 1], (len(moved), 1))
    places = np.arange(size)
    source = np.where(places >= at, places + by, places).clip(0, size - 1)
    copies[moved] = np.take_along_axis(copies[moved], source, axis=1)
    return copies


def decoded(copies: Bytes, order: npt.NDArray[np.int64], between: bytes) -> tuple[columns.RecordIndex, Bytes]:
    """All copies in that order, each followed by other bytes that are a batch too."""
    filler = np.broadcast_to(np.frombuffer(between, np.uint8), (len(order), len(between)))
    body = np.concatenate([copies[order], filler], axis=1).reshape(-1)
    buffer = guarded(len(body) - len(between))
    buffer[:] = body[: len(buffer)]
    batches = columns.index_batches(buffer)
    step = 2 if between else 1
    return columns.index_records(buffer, batches, rows=np.arange(0, len(batches), step)), buffer


def verdicts(found: columns.RecordIndex, copies: int, step: int) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """Reason and position in the batch of each copy."""
    assert len(found.batch_status) == copies, "every copy is framed as one batch"
    starts = found.batches.position[::step]
    return found.batch_status, np.where(found.batch_status != 0, found.batch_status_position - starts, 0)


def fuzz_batch(batch: bytes, other: bytes, count: int, compared: int, chance: np.random.Generator) -> Fuzzed:
    """Mutates one batch `count` times; AssertionError names what differs."""
    copies = mutants(batch, count, chance)
    first, _ = decoded(copies, np.arange(count), b"")
    order = chance.permutation(count)
    second, _ = decoded(copies, order, other)
    status, position = verdicts(first, count, 1)
    status_again, position_again = verdicts(second, count, 2)
    assert np.array_equal(status[order], status_again), "a verdict depends on the neighbours"
    assert np.array_equal(position[order], position_again), "a position depends on the neighbours"
    _same_rows(first, second, order)
    for number in chance.choice(count, min(compared, count), replace=False).tolist():
        _as_reference(copies[number].tobytes(), first, number, len(batch))
    return Fuzzed(2 * count, min(compared, count), len(first), int((status != 0).sum()))


def _same_rows(first: columns.RecordIndex, second: columns.RecordIndex, order: npt.NDArray[np.int64]) -> None:
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    by_copy = np.argsort(order[second.batch_row // 2], kind="stable")
    assert np.array_equal(first.batch_row, order[second.batch_row // 2][by_copy])
    for name in COMPARED_COLUMNS:
        assert np.array_equal(getattr(first, name), getattr(second, name)[by_copy]), f"{name} depends on the neighbours"


def _as_reference(copy: bytes, found: columns.RecordIndex, number: int, size: int) -> None:
    status, position = int(found.batch_status[number]), int(found.batch_status_position[number]) - number * size
    expected = _reference(copy)
    if isinstance(expected, CodecError):
        assert (REASONS[status], position) == (expected.reason, expected.position), (expected, copy.hex())
        return
    assert status == 0, (REASONS[status], position, copy.hex())
    low, high = np.searchsorted(found.batch_row, [number, number + 1]).tolist()
    assert high - low == len(expected), copy.hex()
    for row, record in zip(range(low, high), expected, strict=True):
        reason = None if record.undecodable is None else record.undecodable.reason
        assert (REASONS[int(found.status[row])], int(found.offset[row])) == (reason, record.raw.offset), copy.hex()
        if reason is None:
            assert (int(found.api_key[row]), int(found.version[row])) == (record.type_number, record.version), (
                copy.hex()
            )


def _reference(copy: bytes) -> list[DecodedRecord] | CodecError:
    try:
        return decode_records(copy, read_header(copy, 0))
    except CodecError as error:
        # Another one, without the frames that this went through: they would hold all copies for long.
        return CodecError(error.reason, error.position, error.detail)


def fuzz(batches: Sequence[bytes], seed: int, *, executions: int, compared: int) -> Fuzzed:
    """At least `executions` decodings of mutated copies over all batches in turn; the reference reads `compared`."""
    chance = np.random.default_rng(seed)
    done = [
        fuzz_batch(batch, other, count, share, chance)
        for batch, other, copies, references in _shares(batches, executions, compared)
        for count, share in _parts(copies, references, len(batch) + len(other))
    ]
    return Fuzzed(
        sum(one.executions for one in done),
        sum(one.compared for one in done),
        sum(one.records for one in done),
        sum(one.quarantined for one in done),
    )


def _shares(batches: Sequence[bytes], executions: int, compared: int) -> Iterator[tuple[bytes, bytes, int, int]]:
    """Of each batch: what stands between its copies, how many those are, how many the reference reads."""
    fitting = [batch for batch in batches if len(batch) > HEADER_BYTES]
    for number, batch in enumerate(fitting):
        other = batches[(number + 1) % len(batches)]
        yield batch, other, -(-executions // (2 * len(fitting))), -(-compared // len(fitting))


def _parts(copies: int, references: int, copy_bytes: int) -> Iterator[tuple[int, int]]:
    """So many copies at a time that they take little memory, whatever the size of one."""
    most = max(1, PART_BYTES // copy_bytes)
    for start in range(0, copies, most):
        end = min(start + most, copies)
        yield end - start, references * end // copies - references * start // copies
