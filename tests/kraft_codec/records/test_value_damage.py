"""Values that do not fit their schema, unknown records, odd control records: the reason and the byte."""

from __future__ import annotations

import pytest

from kraft_codec.errors import Reason
from kraft_codec.records.record import write_control_key, write_metadata_value
from tests.builders.short_batches import NO_OP, START, TOPIC, batch_of, decoded, error_of


def value_error(value: bytes) -> tuple[Reason, int]:
    """As `error_of`, the position counted from the value's first byte."""
    batch = batch_of(NO_OP, value)
    reason, position = error_of(batch)
    return reason, position - (len(batch) - len(value) - 1)  # after the value stands the header count


PARTITION_V0 = write_metadata_value("PartitionRecord", 0, {"replicas": [1, 2]})


@pytest.mark.parametrize(
    ("value", "reason", "position"),
    [
        (b"", Reason.BAD_RECORD, 0),
        (b"\x01", Reason.BAD_RECORD, 1),
        (b"\x01\x02", Reason.BAD_RECORD, 2),
        (b"\x01\x02\x80", Reason.BAD_RECORD, 2),
        (b"\x80\x80\x80\x80\x80", Reason.BAD_VARINT, 0),
        (b"\x01\x80\x80\x80\x80\x80", Reason.BAD_VARINT, 1),
        (b"\x01\x7f\x80\x80\x80\x80\x80", Reason.BAD_VARINT, 2),  # an unknown type, but its version cannot be read
        (TOPIC[:-1], Reason.BAD_RECORD, len(TOPIC) - 1),  # the tag count is missing
        (TOPIC[:-2], Reason.BAD_RECORD, 10),  # the uuid starts there
        (TOPIC + b"\x00", Reason.BAD_RECORD, len(TOPIC)),
        (b"\x01\x02\x00\x00", Reason.BAD_RECORD, 3),  # a null name
        (b"\x01\x02\x00\xff\xff\xff\xff\x0f" + bytes(20), Reason.BAD_RECORD, 3),  # length -2: null as well
        (b"\x01\x02\x00\x80\x80\x80\x80\x08" + bytes(20), Reason.BAD_RECORD, 3),  # length 2^31 - 1 by wrapping
        (b"\x01\x02\x00\x7f" + bytes(20), Reason.BAD_RECORD, 3),
        (b"\x01\x02\x00\x81\x80\x02" + bytes(0x8000 + 17), Reason.BAD_RECORD, 3),  # 32,768 bytes of text
        (b"\x01\x02\x00\x03\xc3\x28" + bytes(17), Reason.BAD_STRING, 4),
        (b"\x01\x02\x00\x04\xed\xa0\x80" + bytes(17), Reason.BAD_STRING, 4),  # a surrogate
        (PARTITION_V0[:23] + b"\x00" + PARTITION_V0[24:], Reason.BAD_RECORD, 23),  # null replicas
        (PARTITION_V0[:23] + b"\x7f" + PARTITION_V0[24:], Reason.BAD_RECORD, 23),  # 126 replicas
        (PARTITION_V0[:23] + b"\x19" + PARTITION_V0[24:], Reason.BAD_RECORD, 48),  # 24 replicas: the seventh is cut
        (NO_OP[:-1] + b"\x01", Reason.BAD_RECORD, 4),  # a tagged field, but no tag
        (NO_OP[:-1] + b"\x01\x05", Reason.BAD_RECORD, 5),
        (NO_OP[:-1] + b"\x01\x05\x03ab", Reason.BAD_RECORD, 5),
        (NO_OP[:-1] + b"\x01\x05\xff\xff\xff\xff\x0f", Reason.BAD_RECORD, 5),  # -1 bytes
        (NO_OP[:-1] + b"\xff\xff\xff\xff\x07" + b"\x05\x00", Reason.BAD_RECORD, 10),  # 2^31 - 1 tagged fields
        (PARTITION_V0[:-1] + b"\x01\x01\x01\x01", Reason.BAD_RECORD, len(PARTITION_V0)),  # tag 1 is of version 2
    ],
)
def test_a_value_that_its_schema_does_not_fit_damages_the_batch_at_that_byte(
    value: bytes, reason: Reason, position: int
) -> None:
    assert value_error(value) == (reason, position)


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        (NO_OP[:-1] + b"\xff\xff\xff\xff\x0f", {}),  # -1 tagged fields are none
        (NO_OP[:-1] + b"\x80\x00", {}),  # a longer varint than needed
        (
            NO_OP[:-1] + b"\x03\x09\x01a\x05\x00\x09\x01b",
            {"_unknownTaggedFields": ((9, b"a"), (5, b""), (9, b"b"))},
        ),
        (b"\x01\x17\x00\x02\x00\x7f\x02x\x00\x00\x02y", {"name": "y"}),  # sizes of a known tag: ignored; the last wins
    ],
)
def test_what_kafka_reads_in_its_own_way_is_read_so(value: bytes, fields: dict[str, object]) -> None:
    (found,) = decoded(batch_of(value))
    assert found.fields == fields


@pytest.mark.parametrize(
    ("value", "reason", "type_number", "version"),
    [
        (b"\x00", Reason.UNKNOWN_FRAME_VERSION, None, None),
        (b"\x02\x02\x00", Reason.UNKNOWN_FRAME_VERSION, None, None),
        (b"\x01\x06\x00rest", Reason.UNKNOWN_RECORD_TYPE, 6, 0),
        (b"\x01\xe8\x07\x03", Reason.UNKNOWN_RECORD_TYPE, 1000, 3),
        (b"\x01\x02\x01rest", Reason.UNKNOWN_RECORD_VERSION, 2, 1),
        (b"\x01\x05\x03", Reason.UNKNOWN_RECORD_VERSION, 5, 3),
    ],
)
def test_an_unknown_record_is_undecodable_alone(
    value: bytes, reason: Reason, type_number: int | None, version: int | None
) -> None:
    first, unknown, after = decoded(batch_of(NO_OP, value, TOPIC))
    assert first.undecodable is None
    assert after.fields is not None
    assert unknown.undecodable is not None
    assert (unknown.undecodable.reason, unknown.undecodable.position) == (reason, unknown.raw.value_position)
    assert (unknown.type_number, unknown.version, unknown.fields) == (type_number, version, None)
    assert unknown.raw.value == value


NEWEST_VERSIONS = {0: 4, 3: 2, 5: 2, 17: 3}  # of the others: 0
API_KEYS = {0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 14, 15, *range(17, 30)}


def test_every_api_key_and_version_is_known_or_said_to_be_unknown() -> None:
    known = {(key, version) for key in API_KEYS for version in range(NEWEST_VERSIONS.get(key, 0) + 1)}
    for api_key in range(256):
        for version in range(9):
            frame = bytes([1, *([api_key] if api_key < 0x80 else [api_key & 0x7F | 0x80, 1]), version])
            batch = batch_of(frame + bytes(300))
            if (api_key, version) in known:
                assert error_of(batch)[0] is Reason.BAD_RECORD  # so many zeros are no record of any type
                continue
            (found,) = decoded(batch)
            assert found.undecodable is not None
            is_type_known = api_key in API_KEYS
            expected = Reason.UNKNOWN_RECORD_VERSION if is_type_known else Reason.UNKNOWN_RECORD_TYPE
            assert found.undecodable.reason is expected


LEADER_CHANGE = bytes.fromhex("000000000001010100")


def control_batch(key: bytes | None, value: bytes | None) -> bytes:
    return batch_of(value, is_control=True, key=key)


@pytest.mark.parametrize("key", [b"\x00\x00\x00\x02", b"\x00\x07\x00\x02", b"\x00\x00\x00\x02more"])
def test_a_control_key_of_a_later_version_or_length_is_read_as_version_0(key: bytes) -> None:
    (found,) = decoded(control_batch(key, LEADER_CHANGE))
    assert (found.type_number, found.fields) == (
        2,
        {"version": 0, "leaderId": 1, "voters": [], "grantingVoters": []},
    )


def test_bytes_after_a_control_value_and_its_own_version_are_not_looked_at() -> None:
    (found,) = decoded(control_batch(write_control_key(2), b"\x00\x09" + LEADER_CHANGE[2:] + b"more"))
    assert found.fields is not None
    assert (found.version, found.fields["version"]) == (0, 9)


@pytest.mark.parametrize(
    ("key", "value", "position"),
    [
        (None, LEADER_CHANGE, 61),
        (b"", LEADER_CHANGE, 66),
        (b"\x00\x00\x02", LEADER_CHANGE, 66),
        (b"\xff\xff\x00\x02", LEADER_CHANGE, 66),
        (b"\x00\x00\x00\x02", None, 61),
        (b"\x00\x00\x00\x02", b"", 71),
        (b"\x00\x00\x00\x02", LEADER_CHANGE[:-1], 71 + 8),
    ],
)
def test_a_control_record_that_cannot_be_read_damages_the_batch(
    key: bytes | None, value: bytes | None, position: int
) -> None:
    assert error_of(control_batch(key, value)) == (Reason.BAD_RECORD, position)


@pytest.mark.parametrize("number", [-1, 0, 1, 7, 32767])
def test_an_unknown_control_type_is_undecodable_alone_whatever_its_value(number: int) -> None:
    for value in (None, b"", b"anything"):
        (found,) = decoded(control_batch(write_control_key(number), value))
        assert found.undecodable is not None
        assert found.undecodable.reason is Reason.UNKNOWN_CONTROL_TYPE
        assert (found.undecodable.position, found.type_number) == (START + 66, number)
