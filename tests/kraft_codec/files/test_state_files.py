"""Small text files of a log dir: what Kafka wrote comes back byte for byte, what it refuses is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_codec.errors import CodecError, Reason
from kraft_codec.files import state_files
from kraft_codec.files.state_files import (
    CleanShutdown,
    EpochEntry,
    OffsetEntry,
    PartitionMetadata,
    QuorumState,
    format_clean_shutdown,
    format_leader_epoch_checkpoint,
    format_offset_checkpoint,
    format_partition_metadata,
    format_quorum_state,
    parse_capture_note,
    parse_clean_shutdown,
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
    parse_partition_metadata,
    parse_quorum_state,
)
from kraft_codec.schemas import Dialect
from kraft_codec.text.java_text import uuid_text


def refused_at(parse: Callable[[bytes], Any], data: bytes) -> int | None:
    """The position that a parser names; None where it reads the bytes. Any other error fails the test."""
    try:
        parse(data)
    except CodecError as error:
        return error.position
    return None


ZERO = "AAAAAAAAAAAAAAAAAAAAAA"
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UUIDS = st.binary(min_size=16, max_size=16).map(uuid_text)


@pytest.mark.parametrize(
    ("pattern", "parse", "format_", "least_count"),
    [
        ("__cluster_metadata-0/quorum-state", parse_quorum_state, format_quorum_state, 20),
        (
            "__cluster_metadata-0/leader-epoch-checkpoint",
            parse_leader_epoch_checkpoint,
            format_leader_epoch_checkpoint,
            20,
        ),
        ("__cluster_metadata-0/partition.metadata", parse_partition_metadata, format_partition_metadata, 20),
        ("*-offset-checkpoint", parse_offset_checkpoint, format_offset_checkpoint, 20),
        (".kafka_cleanshutdown*", parse_clean_shutdown, format_clean_shutdown, 1),
    ],
)
def test_what_kafka_wrote_is_written_back(
    scenarios: list[Path],
    pattern: str,
    parse: Callable[[bytes], Any],
    format_: Callable[[Any], bytes],
    least_count: int,
) -> None:
    count = 0
    for scenario in scenarios:
        for path in scenario.glob(f"*/node-*/{pattern}"):
            data = path.read_bytes()
            value = parse(data)
            # A checkpoint that Kafka made and never wrote to is empty; written, it would say so in two lines.
            assert format_(value) == data or (data == b"" and value == ()), path
            count += 1
    assert count >= least_count


def test_both_versions_of_quorum_state_are_as_documented() -> None:
    version0 = QuorumState(0, 3, 6, -1, current_voters=(1, 2, 3))
    text0 = (
        b'{"clusterId":"","leaderId":3,"leaderEpoch":6,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":3}],"data_version":0}'
    )
    version1 = QuorumState(1, -1, 8, 2, "Nok0oA7ZsX8FJygWwGlp3A")
    text1 = b'{"leaderId":-1,"leaderEpoch":8,"votedId":2,"votedDirectoryId":"Nok0oA7ZsX8FJygWwGlp3A","data_version":1}'
    for value, text in ((version0, text0), (version1, text1)):
        assert format_quorum_state(value) == text
        assert parse_quorum_state(text) == value


def test_kip856_keeps_its_own_version_1() -> None:
    text = (
        b'{"clusterId":"c","leaderId":1,"leaderEpoch":2,"votedId":3,"votedUuid":"Nok0oA7ZsX8FJygWwGlp3A",'
        b'"appliedOffset":4,"data_version":1}'
    )
    state = QuorumState(1, 1, 2, 3, "Nok0oA7ZsX8FJygWwGlp3A", "c", 4)
    assert parse_quorum_state(text) == state
    assert format_quorum_state(state, Dialect.KIP856) == text
    no_owner = QuorumState(1, -1, 2, -1, None)
    assert b'"votedUuid":null' in format_quorum_state(no_owner, Dialect.KIP856)
    assert parse_quorum_state(format_quorum_state(no_owner, Dialect.KIP856)) == no_owner
    with pytest.raises(CodecError, match="votedDirectoryId is missing"):
        parse_quorum_state(text.replace(b"votedUuid", b"votedUUID"))


@given(INT32, INT32, INT32, UUIDS)
def test_quorum_state_1_comes_back(leader_id: int, leader_epoch: int, voted_id: int, directory: str) -> None:
    state = QuorumState(1, leader_id, leader_epoch, voted_id, directory)
    assert parse_quorum_state(format_quorum_state(state)) == state


@given(st.text(st.characters(exclude_categories=["Cs"])), INT64, st.none() | st.lists(INT32).map(tuple))
def test_quorum_state_0_comes_back(cluster_id: str, offset: int, voters: tuple[int, ...] | None) -> None:
    state = QuorumState(0, 1, 2, 3, None, cluster_id, offset, voters)
    assert parse_quorum_state(format_quorum_state(state)) == state


def test_only_the_first_line_counts_and_unknown_fields_are_left_aside() -> None:
    state = QuorumState(1, 1, 2, 3, ZERO)
    text = format_quorum_state(state)
    assert parse_quorum_state(text + b"\nrubbish") == state
    assert parse_quorum_state(text.replace(b"{", b'{"later":[1,{}],', 1)) == state


@pytest.mark.parametrize(
    ("data", "position", "detail"),
    [
        (b"", 0, "not JSON"),
        (b"\n{}", 0, "not JSON"),
        (b"[]", 0, "not a JSON object"),
        (b"{}", 0, "data_version"),
        (b'{"data_version":2}', 0, "data_version: expected 0 to 1"),
        (b'{"data_version":true}', 0, "data_version"),
        (b'{"data_version":"1"}', 0, "data_version"),
        (b'{"data_version":1}', 18, "leaderId is missing"),
        (b'{"data_version":1,"leaderId":2147483648}', 18, "leaderId is not an int32"),
        (b'{"data_version":1,"leaderId":1.5}', 18, "leaderId is not an int32"),
        (b'{"data_version":1,"leaderId":null}', 18, "leaderId is not an int32"),
        (
            b'{"data_version":1,"leaderId":1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":"short"}',
            59,
            "votedDirectoryId is not a uuid",
        ),
        (
            b'{"data_version":0,"clusterId":"\\ud800","leaderId":1,"leaderEpoch":1,"votedId":1}',
            18,
            "clusterId is not a string",
        ),
        (
            b'{"data_version":0,"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":1,"appliedOffset":0,'
            b'"currentVoters":[1]}',
            92,
            "currentVoters is not an array of objects",
        ),
        (b'{"data_version":NaN}', 0, "not JSON that Kafka writes"),
        (b'{"data_version":' + b"1" * 5000 + b"}", 0, "not JSON that Kafka writes"),
        (b"[" * 100_000, 0, "not JSON that Kafka writes"),
        ('{"ü":,}'.encode(), 6, "not JSON"),
        (b'{"a\xff":1}', 3, "not UTF-8"),
    ],
)
def test_bad_quorum_state_names_its_place(data: bytes, position: int, detail: str) -> None:
    with pytest.raises(CodecError, match=detail) as caught:
        parse_quorum_state(data)
    assert (caught.value.reason, caught.value.position) == (Reason.BAD_FILE, position)


def test_a_quorum_state_of_another_version_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="data_version 2: expected 0 to 1"):
        format_quorum_state(QuorumState(2, 1, 1, 1))


def test_leader_epochs() -> None:
    entries = (EpochEntry(3, 0), EpochEntry(5, 20), EpochEntry(2**31 - 1, 2**63 - 1))
    text = b"0\n3\n3 0\n5 20\n2147483647 9223372036854775807\n"
    assert format_leader_epoch_checkpoint(entries) == text
    assert parse_leader_epoch_checkpoint(text) == entries
    assert parse_leader_epoch_checkpoint(text.replace(b"\n", b"\r\n")) == entries
    assert parse_leader_epoch_checkpoint(text.rstrip(b"\n")) == entries
    assert format_leader_epoch_checkpoint(()) == b"0\n0\n"


@given(st.lists(st.tuples(st.from_regex(r"[a-zA-Z0-9._-]+", fullmatch=True), INT32, INT64), max_size=20))
def test_offset_checkpoints_come_back(rows: list[tuple[str, int, int]]) -> None:
    entries = tuple(OffsetEntry(*row) for row in rows)
    assert parse_offset_checkpoint(format_offset_checkpoint(entries)) == entries


@pytest.mark.parametrize(
    ("data", "position", "detail"),
    [
        (b"1\n0\n", 0, "version 1: expected 0"),
        (b"x\n0\n", 0, "version is not an int32"),
        (b"0", 1, "number of entries is not an int32"),
        (b"0\n\n", 2, "number of entries is not an int32"),
        (b"0\n99999999999999999999\n", 2, "number of entries is not an int32"),
        (b"0\n2\n1 0\n", 2, "2 entries announced, 1 found"),
        (b"0\n2147483647\n1 0\n", 2, "announced, 1 found"),
        (b"0\n0\n1 0\n", 2, "0 entries announced, 1 found"),
        (b"0\n1\n1\n", 4, "1 words, expected 2"),
        (b"0\n2\n1 0\n2 x\n", 8, "entry 1: not an int64"),
        (b"0\n1\n2147483648 0\n", 4, "entry 0: not an int32"),
        (b"0\n1\n\xff\xfe 0\n", 4, "entry 0: not an int32"),
        (b"\0" * 100, 0, "version is not an int32"),
    ],
)
def test_bad_checkpoints_name_their_place(data: bytes, position: int, detail: str) -> None:
    with pytest.raises(CodecError, match=detail) as caught:
        parse_leader_epoch_checkpoint(data)
    assert (caught.value.reason, caught.value.position) == (Reason.BAD_FILE, position)


@pytest.mark.parametrize(
    ("data", "position"),
    [
        (b"", 0),
        (b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", 0),
        (b"version 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", 0),
        (b"version: 0", 10),
        (b"version: 0\ntopic: AAAAAAAAAAAAAAAAAAAAAQ", 11),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 11),
        (b"version: 0\ntopic_id: nonsense", 11),
    ],
)
def test_bad_partition_metadata_names_its_place(data: bytes, position: int) -> None:
    with pytest.raises(CodecError) as caught:
        parse_partition_metadata(data)
    assert (caught.value.reason, caught.value.position) == (Reason.BAD_FILE, position)


def test_partition_metadata_of_the_metadata_topic() -> None:
    text = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert len(text) == 43
    assert format_partition_metadata(PartitionMetadata(0, state_files.METADATA_TOPIC_ID)) == text


def test_a_note_of_kraft_capture_says_when_it_had_read() -> None:
    assert parse_capture_note(b'{"version":"0.1.0",\n "read_from_ms":4,\n "read_to_ms":5}') == 5
    for data in (b"", b"[]", b"{}", b'{"read_to_ms":null}', b'{"read_to_ms":true}', b'{"read_to_ms":5.5}', b"\xff"):
        with pytest.raises(CodecError):
            parse_capture_note(data)


def test_clean_shutdown_of_old_and_new_releases() -> None:
    assert parse_clean_shutdown(b"") == CleanShutdown(None, None)
    assert format_clean_shutdown(CleanShutdown(None, None)) == b""
    assert parse_clean_shutdown(b'{"version":0,"brokerEpoch":555}') == CleanShutdown(0, 555)
    for data in (b"{}", b'{"version":1,"brokerEpoch":5}', b'{"version":0}', b'{"version":0,"brokerEpoch":9e99}', b"\0"):
        with pytest.raises(CodecError):
            parse_clean_shutdown(data)


@pytest.mark.parametrize(
    "parse",
    [
        parse_quorum_state,
        parse_leader_epoch_checkpoint,
        parse_offset_checkpoint,
        parse_partition_metadata,
        parse_clean_shutdown,
    ],
)
@given(data=st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_codec_error(parse: Callable[[bytes], Any], data: bytes) -> None:
    position = refused_at(parse, data)
    assert position is None or 0 <= position <= len(data)


@pytest.mark.parametrize(
    ("text", "parse"),
    [
        (b'{"leaderId":1,"leaderEpoch":2,"votedId":3,"votedDirectoryId":"%s","data_version":1}' % ZERO.encode(), "q"),
        (b"0\n2\n1 0\n2 17\n", "l"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", "p"),
    ],
)
def test_every_flip_and_every_cut_is_read_or_refused(text: bytes, parse: str) -> None:
    read = {"q": parse_quorum_state, "l": parse_leader_epoch_checkpoint, "p": parse_partition_metadata}[parse]
    damaged = [text[:length] for length in range(len(text))]
    for bit in range(8 * len(text)):
        flipped = bytearray(text)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))
    positions = [(refused_at(read, data), len(data)) for data in damaged]
    refused = [(position, length) for position, length in positions if position is not None]
    assert all(0 <= position <= length for position, length in refused)
    assert len(refused) > len(damaged) / 4


def test_files_beyond_all_measure_are_refused_unread() -> None:
    for parse, most in (
        (parse_quorum_state, state_files.MAX_JSON_BYTES),
        (parse_clean_shutdown, state_files.MAX_JSON_BYTES),
        (parse_partition_metadata, state_files.MAX_JSON_BYTES),
        (parse_leader_epoch_checkpoint, state_files.MAX_CHECKPOINT_BYTES),
    ):
        with pytest.raises(CodecError) as caught:
            parse(b" " * (most + 1))
        assert caught.value.reason is Reason.LIMIT
