"""Mutated batches by the million: what the columnar decoder may never do, and what the reference says of a share.

A seed takes batches of a real log (every record type, every version), makes copies of each with a few bytes changed,
inserted or removed, and decodes all copies in one call, their wrong CRCs overlooked so that the body is reached. Three
things must hold. What kernels read and what they fill ends where a forbidden page begins, so that an access beyond it
ends the process, and what stands before it is looked at afterwards. A batch's verdict, rows and values do not depend on
what stands around it: the same copies in another order, with other bytes between them, give the same. And for a share
of the copies the readable reference gives the same rows, reason and position, and the same values: the JSON text and
every typed column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kraft_codec import columns
from kraft_codec.errors import CodecError
from kraft_codec.kernels.codes import REASONS
from kraft_codec.records.batch import HEADER_BYTES, Batch, read_batches, read_header
from kraft_codec.records.record import DecodedRecord, decode_records
from tests.builders.guarded_memory import Guards, guarded_outputs
from tests.fuzz.values import Expected, Values, same_values, values_as_reference, values_of

Bytes = npt.NDArray[np.uint8]
TELLING = np.array([0, 1, 2, 0x7F, 0x80, 0xFF, 0xC0, 0xED, 0x0F, 0x3F], np.uint8)
MUTATE_FROM = 57
"""Of a batch's header only the record count is changed: the rest decides where batches stand, not what is in them."""
PART_BYTES = 16 << 20
"""What is decoded at a time: the copies' numbers and places take some thirty times as much."""
REAL_BYTES_MAX = 1000
COMPARED_COLUMNS = ("offset", "timestamp_ms", "status", "api_key", "version", "key_length", "value_length", "kind")


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """What a seed did: decodings (two of each copy), copies that the reference read too, and how each ended.

    `values` are the records of those copies whose text and columns were compared, `guards` pieces of guarded memory.
    """

    executions: int
    compared: int
    values: int
    guards: int
    records: int
    quarantined: int


def uncompressed_batches(log: bytes) -> list[bytes]:
    """The sound batches of a log, one record type each in the crafted one."""
    return [
        log[found.header.position :][: found.header.size_bytes]
        for found in read_batches(log)
        if isinstance(found, Batch) and found.damage is None and not found.header.attributes & 7
    ]


def sample_batches(small_corpus: Path) -> list[bytes]:
    """What is mutated: every record type and version as Kafka's serializers wrote them, mostly with empty lists; and
    filled as real clusters have them, the smallest real batch of each mix of record types.
    """
    crafted = small_corpus / "crafted" / "all-records-all-versions"
    mixes: dict[tuple[int, ...], bytes] = {}
    for path in sorted(small_corpus.rglob("__cluster_metadata-0/*.log")):
        for batch in uncompressed_batches(path.read_bytes()):
            if len(batch) <= REAL_BYTES_MAX and crafted not in path.parents:
                found = columns.index_records(batch, columns.index_batches(batch))
                mix = tuple(np.unique(found.kind).tolist())
                mixes[mix] = min(mixes.get(mix, batch), batch, key=len)
    log = crafted / "__cluster_metadata-0" / "00000000000000000000.log"
    return uncompressed_batches(log.read_bytes()) + [batch for _, batch in sorted(mixes.items())]


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


def decoded(
    copies: Bytes, order: npt.NDArray[np.int64], between: bytes, guards: Guards
) -> tuple[columns.RecordIndex, Values]:
    """All copies in that order, each followed by other bytes that are a batch too."""
    filler = np.broadcast_to(np.frombuffer(between, np.uint8), (len(order), len(between)))
    body = np.concatenate([copies[order], filler], axis=1).reshape(-1)
    buffer = guards.memory(len(body) - len(between))
    buffer[:] = body[: len(buffer)]
    batches = columns.index_batches(buffer)
    step = 2 if between else 1
    found = columns.index_records(buffer, batches, rows=np.arange(0, len(batches), step))
    values = values_of(found)
    guards.check()
    return found, values


def verdicts(found: columns.RecordIndex, copies: int, step: int) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """Reason and position in the batch of each copy."""
    assert len(found.batch_status) == copies, "every copy is framed as one batch"
    starts = found.batches.position[::step]
    return found.batch_status, np.where(found.batch_status != 0, found.batch_status_position - starts, 0)


def fuzz_batch(batch: bytes, content: bytes, count: int, compared: int, chance: np.random.Generator) -> Fuzzed:
    """Mutates one batch `count` times; AssertionError names what differs."""
    copies = mutants(batch, count, chance)
    order = chance.permutation(count)
    with guarded_outputs() as guards:
        first, values = decoded(copies, np.arange(count), b"", guards)
        second, values_again = decoded(copies, order, content, guards)
    status, position = verdicts(first, count, 1)
    status_again, position_again = verdicts(second, count, 2)
    assert np.array_equal(status[order], status_again), "a verdict depends on the neighbours"
    assert np.array_equal(position[order], position_again), "a position depends on the neighbours"
    by_copy = _same_rows(first, second, order)
    assert same_values(values, values_again, by_copy, second.kind), "a value depends on the neighbours"
    expected = [
        value
        for number in np.sort(chance.choice(count, min(compared, count), replace=False)).tolist()
        for value in _as_reference(copies[number].tobytes(), first, number, len(batch))
    ]
    return Fuzzed(
        executions=2 * count,
        compared=min(compared, count),
        values=values_as_reference(first, values, expected),
        guards=guards.given,
        records=len(first),
        quarantined=int((status != 0).sum()),
    )


def _same_rows(
    first: columns.RecordIndex, second: columns.RecordIndex, order: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The rows of `second` in the order of the copies, once they were found to be those of `first`."""
    by_copy = np.argsort(order[second.batch_row // 2], kind="stable")
    assert np.array_equal(first.batch_row, order[second.batch_row // 2][by_copy])
    for name in COMPARED_COLUMNS:
        assert np.array_equal(getattr(first, name), getattr(second, name)[by_copy]), f"{name} depends on the neighbours"
    return by_copy


def _as_reference(copy: bytes, found: columns.RecordIndex, number: int, size: int) -> list[Expected]:
    """The rows of a copy as the reference reads them: none where it refuses the batch."""
    status, position = int(found.batch_status[number]), int(found.batch_status_position[number]) - number * size
    expected = _reference(copy)
    if isinstance(expected, CodecError):
        assert (REASONS[status], position) == (expected.reason, expected.position), (expected, copy.hex())
        return []
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
    header = read_header(copy, 0)
    return [Expected(low + number, record, header, copy) for number, record in enumerate(expected)]


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
        fuzz_batch(batch, second, count, share, chance)
        for batch, second, copies, references in _shares(batches, executions, compared)
        for count, share in _parts(copies, references, len(batch) + len(second))
    ]
    return Fuzzed(*(sum(getattr(part, field.name) for part in done) for field in fields(Fuzzed)))


def _shares(batches: Sequence[bytes], executions: int, compared: int) -> Iterator[tuple[bytes, bytes, int, int]]:
    """Of each batch: what stands between its copies, how many those are, how many the reference reads."""
    fitting = [batch for batch in batches if len(batch) > HEADER_BYTES]
    for number, batch in enumerate(fitting):
        second = batches[(number + 1) % len(batches)]
        yield batch, second, -(-executions // (2 * len(fitting))), -(-compared // len(fitting))


def _parts(copies: int, references: int, copy_bytes: int) -> Iterator[tuple[int, int]]:
    """So many copies at a time that they take little memory, whatever the size of one."""
    most = max(1, PART_BYTES // copy_bytes)
    for start in range(0, copies, most):
        end = min(start + most, copies)
        yield end - start, references * end // copies - references * start // copies
