"""A million random varints, of every length that can be and some that cannot, as the reference reads each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from kraft_codec import columns
from kraft_codec.errors import CodecError, Reason
from kraft_codec.kernels.codes import REASONS
from kraft_codec.records import varint
from kraft_codec.records.batch import write_batch

RECORD_AT = 61
FILLER_BYTES = 16
Bytes = npt.NDArray[np.uint8]
Read = Callable[[bytes, int, int], tuple[int, int]]


@dataclass(frozen=True)
class Place:
    """Where a varint of some length stands in the one record of a batch, and which column shows its value.

    `before` and `after` are the record's bytes around it, after its length; an unknown record type lets the bytes
    after a version be anything. `is_cut` where the value ends inside the varint.
    """

    column: str
    read: Read
    length: int
    before: bytes
    after: bytes
    is_cut: bool = False

    def batches(self, random: Bytes) -> Bytes:
        """A batch a row of random bytes, which become the varint."""
        varints = random | np.uint8(0x80)
        if not self.is_cut:
            varints[:, -1] &= 0x7F
        body_bytes = len(self.before) + self.length + len(self.after)
        batch = bytearray(write_batch(base_offset=0, leader_epoch=1, timestamp_ms=0, records=[]))
        batch += bytes([2 * body_bytes]) + self.before + bytes(self.length) + self.after
        batch[8:12], batch[57:61] = (len(batch) - 12).to_bytes(4, "big"), (1).to_bytes(4, "big")
        rows = np.tile(np.frombuffer(batch, np.uint8), (len(random), 1))
        rows[:, self.at : self.at + self.length] = varints
        return rows

    @property
    def at(self) -> int:
        return RECORD_AT + 1 + len(self.before)


def value(content: bytes) -> bytes:
    """A null key, a value, no headers."""
    return b"\x01" + bytes([2 * len(content)]) + content + b"\x00"


def places() -> list[Place]:
    """Timestamp delta, offset delta and record version, each of every length up to two bytes too many."""
    unknown = b"\x01\x7e\x00"
    timestamps = [Place("timestamp_ms", varint.read_varlong, n, b"\0", b"\0" + value(unknown)) for n in range(1, 13)]
    offsets = [Place("offset", varint.read_varint, n, b"\0\0", value(unknown)) for n in range(1, 8)]
    versions, cut = [], []
    for n in range(1, 8):
        whole = value(unknown[:2] + bytes(n + FILLER_BYTES))
        start = b"\0\0\0" + whole[:4]
        versions.append(Place("version", varint.read_unsigned_varint, n, start, whole[4 + n :]))
    for n in range(1, 5):
        whole = value(unknown[:2] + bytes(n))
        start = b"\0\0\0" + whole[:4]
        cut.append(Place("version", varint.read_unsigned_varint, n, start, whole[4 + n :], is_cut=True))
    return [*timestamps, *offsets, *versions, *cut]


def expected(place: Place, batch: bytes, position: int) -> tuple[Reason | None, int]:
    """The reference: (None, the value) or (reason, the error's position)."""
    end = place.at + place.length if place.is_cut else len(batch)
    try:
        return None, place.read(batch, place.at, end)[0]
    except CodecError as error:
        return error.reason, position + error.position


@pytest.mark.parametrize("cases", [50_000, pytest.param(1_000_000, marks=pytest.mark.ci)])
def test_random_varints_are_read_as_the_reference_reads_them(cases: int) -> None:
    chance = np.random.default_rng(cases)
    count = -(-cases // len(places()))
    seen: dict[Reason | None, int] = {}
    for place in places():
        batches = place.batches(chance.integers(0, 256, (count, place.length), np.uint8))
        index = columns.index_batches(batches.reshape(-1))
        found = columns.index_records(batches.reshape(-1), index, rows=np.arange(count))
        size = batches.shape[1]
        assert index.position.tolist() == list(range(0, count * size, size))
        reported = np.where(found.batch_status == 0, 0, found.batch_status_position)
        reported[found.batch_row] = getattr(found, place.column)
        reasons = [REASONS[status] for status in found.batch_status.tolist()]
        wanted = [expected(place, row.tobytes(), number * size) for number, row in enumerate(batches)]
        assert list(zip(reasons, reported.tolist(), strict=True)) == wanted, place
        for reason in set(reasons):
            seen[reason] = seen.get(reason, 0) + reasons.count(reason)
    assert sum(seen.values()) >= cases
    assert seen == {None: 20 * count, Reason.BAD_VARINT: 6 * count, Reason.BAD_RECORD: 4 * count}
