"""Every length and count that a schema has, in every version, replaced by claims that no bytes back."""

from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from kraft_codec import columns
from kraft_codec.errors import CodecError
from kraft_codec.records.batch import crc32c, read_header, write_batch
from kraft_codec.records.record import decode_records, write_control_key
from kraft_codec.records.varint import write_unsigned_varint, write_varint
from kraft_codec.schemas import CONTROL_TYPES, METADATA_RECORDS, Dialect, Field, Type

EXTRA_BYTES_MAX = 1 << 20
UNKNOWN_TAG = 99
CONTROLS = tuple(CONTROL_TYPES[Dialect.KIP853].values())
SIZES = {Type.BOOL: 1, Type.INT8: 1, Type.INT16: 2, Type.UINT16: 2, Type.INT32: 4, Type.UINT32: 4, Type.UUID: 16}


def unsigned(value: int) -> bytes:
    out = bytearray()
    write_unsigned_varint(out, value)
    return bytes(out)


# As an int: six that are too many, three below zero or beyond 32 bits, three of more than five bytes.
CLAIMS = [
    unsigned(claim)
    for claim in (
        (1 << 15) + 1, 1 << 16, 1 << 20, 1 << 24, (1 << 31) - 2, (1 << 31) - 1,
        1 << 31, (1 << 32) - 1, (1 << 35) - 1,
        1 << 35, 1 << 63, (1 << 64) - 1,
    )
]  # fmt: skip
assert len(CLAIMS) == 12


@dataclass
class Body:
    """A message's bytes with every field present: texts of two bytes, lists of two elements, an unknown tag.

    `claims` are the places of one-byte lengths and counts; `ignored` those of sizes of known tags, which are not used.
    """

    content: bytearray = field(default_factory=bytearray)
    claims: list[int] = field(default_factory=list)
    ignored: list[int] = field(default_factory=list)

    def claim(self, length: int) -> None:
        self.claims.append(len(self.content))
        self.content.append(length)

    def struct(self, fields: tuple[Field, ...], version: int) -> None:
        present = [member for member in fields if version in member.versions]
        for member in present:
            if member.tag is None:
                self.field(member, version)
        tagged = sorted((member for member in present if member.tag is not None), key=lambda member: member.tag or 0)
        self.claim(len(tagged) + 1)
        for member in tagged:
            self.content.append(member.tag or 0)
            self.ignored.append(len(self.content))
            self.content.append(0)
            self.field(member, version)
        self.content.append(UNKNOWN_TAG)
        self.claim(2)
        self.content += b"xy"

    def field(self, member: Field, version: int) -> None:
        if member.array:
            self.claim(3)
        for _ in range(2 if member.array else 1):
            if member.type is Type.STRUCT:
                self.struct(member.fields, version)
            elif member.type in (Type.STRING, Type.BYTES):
                self.claim(3)
                self.content += b"ab"
            else:
                self.content += bytes(SIZES.get(member.type, 8))

    def with_claim(self, at: int, claim: bytes) -> bytes:
        return bytes(self.content[:at] + claim + self.content[at + 1 :])


def bodies() -> dict[str, tuple[bytes | None, Body]]:
    """Of every message and version: the key, where it is a control record, and the value."""
    found: dict[str, tuple[bytes | None, Body]] = {}
    for message in METADATA_RECORDS:
        for version in range(message.versions.first, message.versions.last + 1):
            body = Body(bytearray([1, message.number, version]))
            body.struct(message.fields, version)
            found[f"{message.name}-v{version}"] = None, body
    for control in CONTROLS:
        body = Body()
        body.struct(control.message.fields, control.version)
        found[control.name] = write_control_key(control.number), body
    return found


BODIES = bodies()


def batch_of(key: bytes | None, value: bytes) -> bytes:
    records = [(key, value)]
    return write_batch(base_offset=0, leader_epoch=1, timestamp_ms=1, records=records, is_control=key is not None)


@pytest.mark.parametrize("name", BODIES)
def test_a_length_or_count_that_no_bytes_back_is_refused_in_its_place(name: str, agree) -> None:
    key, body = BODIES[name]
    whole = agree(batch_of(key, bytes(body.content)))
    assert (whole.records, whole.undecodable, whole.quarantined) == (1, 0, ())
    too_many = [batch_of(key, body.with_claim(at, claim)) for at in body.claims for claim in CLAIMS[:6]]
    assert len(agree(b"".join(too_many)).quarantined) == len(too_many)
    odd = [batch_of(key, body.with_claim(at, claim)) for at in body.claims for claim in CLAIMS[6:9]]
    assert agree(b"".join(odd)).batches == len(odd)
    places = body.claims + body.ignored
    overlong = [batch_of(key, body.with_claim(at, claim)) for at in places for claim in CLAIMS[9:]]
    assert agree(b"".join(overlong)).quarantined == ("BAD_VARINT",) * len(overlong)
    ignored = [batch_of(key, body.with_claim(at, claim)) for at in body.ignored for claim in CLAIMS[:9]]
    assert agree(b"".join(ignored)).quarantined == ()


FRAMES = ("record", "key", "value", "headers", "header key", "header value")


def framed(claimed: str, claim: bytes) -> bytes:
    """A batch of one record with a key, a value and a header, of which one length or count is a claim."""
    body = b"\0\0\0"
    for name, content in zip(FRAMES[1:], (b"k", b"\x01\x14\x00\x00", b"", b"h", b"v"), strict=True):
        body += (claim if name == claimed else bytes([2 * max(1, len(content))])) + content
    record = (claim if claimed == "record" else bytes([2 * len(body)])) + body
    return with_count(record, 1)


def with_count(records: bytes, count: int) -> bytes:
    checked = struct.pack(">hiqqqhii", 0, 0, 5, 5, -1, -1, -1, count) + records
    return struct.pack(">qiibI", 0, len(checked) + 9, 1, 2, crc32c(checked)) + checked


def zigzag(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_that_claims_what_is_not_there_is_refused(name: str, agree) -> None:
    assert agree(framed("", b"")).quarantined == ()
    counts = [zigzag(count) for count in (2, 1 << 15, 1 << 20, (1 << 31) - 1, -(1 << 31), -2, *range(40, 43))]
    if name == "record":
        counts = [count for count in counts if count != zigzag(2)] + [zigzag(1 << 16)]
    batches = [framed(name, claim) for claim in [*counts, *CLAIMS[9:]]]
    assert len(batches) == 12
    seen = agree(b"".join(batches))
    assert len(seen.quarantined) == 12
    assert seen.quarantined[-3:] == ("BAD_VARINT",) * 3


@pytest.mark.slow
def test_no_claim_costs_memory() -> None:
    """Less than a mebibyte, whichever decoder reads whichever claims."""
    places = [(key, body, at) for key, body in BODIES.values() for at in body.claims + body.ignored]
    logs = [[batch_of(key, body.with_claim(at, claim)) for claim in CLAIMS] for key, body, at in places]
    logs += [[framed(name, claim) for claim in CLAIMS] for name in FRAMES]
    logs.append([with_count(bytes(70), count) for count in (-(1 << 31), -1, 11, 1 << 16, 1 << 20, (1 << 31) - 1)])
    for key, body in BODIES.values():  # loads what it needs once
        decode_by_both([batch_of(key, bytes(body.content))])
    tracemalloc.start()
    try:
        # What a claim costs, it costs each time; a table of the interpreter's own may grow under any one of them.
        worst_bytes = max(min(peak_of_decoding_bytes(batches) for _ in range(2)) for batches in logs)
    finally:
        tracemalloc.stop()
    assert 0 < worst_bytes < EXTRA_BYTES_MAX


def peak_of_decoding_bytes(batches: list[bytes]) -> int:
    tracemalloc.reset_peak()
    before_bytes, _ = tracemalloc.get_traced_memory()
    decode_by_both(batches)
    return tracemalloc.get_traced_memory()[1] - before_bytes


def decode_by_both(batches: list[bytes]) -> None:
    log = b"".join(batches)
    records = columns.index_records(log, columns.index_batches(log))
    columns.json_text(records)
    for message in records.messages():
        columns.typed_columns(records, message)
    for batch in batches:
        with suppress(CodecError):
            decode_records(batch, read_header(batch, 0))
