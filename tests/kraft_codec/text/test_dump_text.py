"""The text of kafka-dump-log: for every captured file that the tool dumped, and for values that no cluster writes."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import pytest

from kraft_codec.errors import CodecError, Reason
from kraft_codec.records.batch import crc32c, write_batch
from kraft_codec.records.compression import Codec
from kraft_codec.records.message import UNKNOWN_TAGGED_FIELDS
from kraft_codec.records.record import write_control_key, write_metadata_value
from kraft_codec.records.redaction import Redactor
from kraft_codec.text.dump_text import BytesSource, dump_lines

LOG = "__cluster_metadata-0/00000000000000000000.log"
# The tool's release did not know this record type: it printed an error in its line.
UNKNOWN_TO_THE_TOOL = "UnsupportedVersionException: Unknown metadata id 29"
# Where the tool threw in the middle of a line.
THREW = "offset: 3111java.lang.IllegalArgumentException"


def dumped(data: bytes, path: str = LOG, redactor: Redactor | None = None) -> tuple[list[str], CodecError | None]:
    """The lines, and the error that ended them."""
    lines = dump_lines(BytesSource(data), path, redactor=redactor)
    found: list[str] = []
    while True:
        try:
            found.append(next(lines))
        except StopIteration:
            return found, None
        except CodecError as error:
            return found, error


def compare(scenario: Path, seen: set[str]) -> tuple[int, int, int]:
    """How many files and lines were compared, and how many lines the tool's release could not decode."""
    file_count = line_count = undecoded_count = 0
    index = json.loads((scenario / "oracle-files" / "index.json").read_text())
    for relative, key in index.items():
        witness = scenario / "oracle-files" / f"{key}.dump.txt.gz"
        if key in seen or not witness.exists():
            continue
        seen.add(key)
        expected = gzip.decompress(witness.read_bytes()).decode().removesuffix("\n").split("\n")
        lines, error = dumped((scenario / relative).read_bytes(), expected[0].removeprefix("Dumping "))
        if error is not None:
            assert expected[len(lines)].startswith(THREW), relative
            expected = expected[: len(lines)]
        assert len(lines) == len(expected), relative
        for ours, theirs in zip(lines, expected, strict=True):
            if theirs.endswith(UNKNOWN_TO_THE_TOOL):
                assert '"type":"UNREGISTER_CONTROLLER_RECORD"' in ours
                undecoded_count += 1
            else:
                assert ours == theirs
        file_count += 1
        line_count += len(lines)
    return file_count, line_count, undecoded_count


def compare_all(scenarios: list[Path]) -> tuple[int, int, int]:
    seen: set[str] = set()
    files, lines, undecoded = zip(*(compare(scenario, seen) for scenario in scenarios), strict=True)
    return sum(files), sum(lines), sum(undecoded)


@pytest.mark.parametrize(
    ("root", "at_least"),
    [pytest.param("small_corpus", 20, marks=pytest.mark.slow), pytest.param("corpus", 240, marks=pytest.mark.ci)],
)
def test_every_dump_is_the_tools(
    root: str, at_least: int, scenarios: list[Path], request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [scenario for scenario in scenarios if scenario.parent == request.getfixturevalue(root)]
    files, lines, undecoded = compare_all(chosen)
    assert files >= at_least
    with capsys.disabled():
        print(f"\n{root}: {files} dumps, {lines} lines as the tool's, {undecoded} of a type newer than it")  # noqa: T201


TOPIC = write_metadata_value("TopicRecord", 0, {"name": "orders"})
CONTROLLER = write_metadata_value("RegisterControllerRecord", 0, {"endPoints": [{"name": "C", "host": "h", "port": 9}]})


def batch_of(value: bytes | None, *, is_control: bool = False, key: bytes | None = None) -> bytes:
    return write_batch(base_offset=0, leader_epoch=1, timestamp_ms=5, records=[(key, value)], is_control=is_control)


def shown(value: bytes | None, **options: bytes | bool | None) -> str:
    """What stands after a record's metadata."""
    lines, error = dumped(batch_of(value, **options))  # type: ignore[arg-type]
    assert error is None
    return lines[3].partition("headerKeys: []")[2]


# What kafka-dump-log 4.3.1 printed for these values.
PAYLOADS = [
    (None, "Error at 0, skipping. Error while reading frame version"),
    (b"", "Error at 0, skipping. Error while reading frame version"),
    (b"\x01", "Error at 0, skipping. Error while reading type"),
    (b"\x01\x02", "Error at 0, skipping. Error while reading version"),
    (
        b"\x00\x02\x00",
        "Error at 0, skipping. Could not deserialize metadata record with frame version 0. Note that upgrades from the "
        "preview release of KRaft in 2.8 to newer versions are not supported.",
    ),
    (
        b"\x02\x02\x00",
        "Error at 0, skipping. Could not deserialize metadata record due to unknown frame version 2(only frame version "
        "1 is supported)",
    ),
    (b"\x80\x80\x04\x02\x00", "Error at 0, skipping. Value for frame version was too large."),
    (
        b"\x01\x06\x00",
        "Error at 0, skipping. org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id 6",
    ),
    (TOPIC[:-1], "Error at 0, skipping. Failed to deserialize record with type 2"),
    (TOPIC + b"ab", "Error at 0, skipping. Found 2 byte(s) of garbage after 2"),
    # A version above the newest is read as the newest, unless a nested reader has to refuse it.
    (
        TOPIC[:2] + b"\x09" + TOPIC[3:],
        '{"type":"TOPIC_RECORD","version":9,"data":{"name":"orders","topicId":"AAAAAAAAAAAAAAAAAAAAAA"}}',
    ),
    (CONTROLLER[:2] + b"\x09" + CONTROLLER[3:], "Error at 0, skipping. Failed to deserialize record with type 27"),
    (
        b"\x01\x02\x00\x05\xed\xa0\x80\xff" + bytes(17),
        '{"type":"TOPIC_RECORD","version":0,"data":{"name":"��","topicId":"AAAAAAAAAAAAAAAAAAAAAA"}}',
    ),
]


@pytest.mark.parametrize(("value", "payload"), PAYLOADS)
def test_values_that_no_cluster_writes_print_as_the_tool_prints_them(value: bytes | None, payload: str) -> None:
    assert shown(value) == f" payload: {payload}"


LEADER_CHANGE_SAYING_1 = bytes.fromhex("0001000000030200000003000100")

# As above, printed by kafka-dump-log 4.3.1.
CONTROLS = [
    (0, bytes.fromhex("000000000007"), " endTxnMarker: ABORT coordinatorEpoch: 7"),
    (1, bytes.fromhex("000100000007ffff"), " endTxnMarker: COMMIT coordinatorEpoch: 7"),
    (
        2,
        LEADER_CHANGE_SAYING_1,
        ' LeaderChange: {"version":1,"leaderId":3,"voters":[{"voterId":3,"voterDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA"}],'
        '"grantingVoters":[]}',
    ),
    (4, bytes.fromhex("ffff00"), ' SnapshotFooter {"version":-1}'),
    (7, b"", " controlType: UNKNOWN(7)"),
    (-1, b"", " controlType: UNKNOWN(-1)"),
]


@pytest.mark.parametrize(("number", "value", "text"), CONTROLS)
def test_control_records_print_as_the_tool_prints_them(number: int, value: bytes, text: str) -> None:
    assert shown(value, is_control=True, key=write_control_key(number)) == text


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("00000000000000000841.log", "Log starting offset: 841"),
        ("bootstrap.checkpoint", "KRaft bootstrap snapshot"),
        ("00000000000000000841-0000000004.checkpoint", "Snapshot end offset: 841, epoch: 4"),
        ("00000000000000000841.log.deleted", "Ignoring unknown file a/00000000000000000841.log.deleted"),
        ("quorum-state", "Ignoring unknown file a/quorum-state"),
    ],
)
def test_a_file_is_taken_for_what_its_name_says(name: str, title: str) -> None:
    assert dumped(b"", f"a/{name}") == ([f"Dumping a/{name}", title], None)


def test_a_jump_of_offsets_is_printed_at_the_end_once_for_each_offset_before_it() -> None:
    lines, _ = dumped(batch_of(TOPIC) + batch_of(TOPIC) + batch_of(TOPIC)[:7] + b"\x09" + batch_of(TOPIC)[8:])
    assert lines[-2:] == [f"Non-consecutive offsets in {LOG}", "  0 is followed by 9"]


@pytest.mark.parametrize("length", [-1, 0, 13])
def test_a_length_below_any_record_ends_the_dump_with_the_exception(length: int) -> None:
    tail = bytes(8) + length.to_bytes(4, "big", signed=True) + bytes(6)
    lines, error = dumped(batch_of(TOPIC) + tail)
    assert error is None
    assert lines[-1] == (
        "org.apache.kafka.common.errors.CorruptRecordException: "
        f"Found record size {length} smaller than minimum record overhead (14) in file {LOG}."
    )


def test_a_tail_of_17_bytes_counts_as_invalid_bytes() -> None:
    assert dumped(batch_of(TOPIC) + bytes(17))[0][-1] == "Found 17 invalid bytes at the end of 00000000000000000000.log"


def test_a_record_is_not_printed_where_the_tools_iterator_throws_before_it() -> None:
    two = write_batch(base_offset=0, leader_epoch=1, timestamp_ms=5, records=[(None, TOPIC), (None, TOPIC)])
    lines, error = dumped(two[:60] + b"\x01" + two[61:])  # a count of 1: bytes are left after the record
    assert error is not None
    assert (error.reason, len(lines)) == (Reason.BAD_RECORD, 3)
    lines, error = dumped(two[:60] + b"\x03" + two[61:])  # a count of 3: the third is missing
    assert error is not None
    assert (error.reason, error.position, len(lines)) == (Reason.BAD_RECORD, len(two), 5)


@pytest.mark.parametrize("codec", Codec)
def test_compressed_batches_are_dumped_by_their_records(codec: Codec) -> None:
    batch = write_batch(base_offset=0, leader_epoch=1, timestamp_ms=5, records=[(None, TOPIC)], codec=codec)
    lines, error = dumped(batch)
    assert error is None
    assert f" compresscodec: {codec.name.lower()} " in lines[2]
    assert '"name":"orders"' in lines[3]


class CountedSource(BytesSource):
    """Notes the largest read."""

    largest_bytes = 0

    def read_at(self, position: int, length: int, /) -> memoryview:
        type(self).largest_bytes = max(self.largest_bytes, length)
        return super().read_at(position, length)


def test_a_log_is_read_in_pieces_and_its_first_lines_come_first() -> None:
    source = CountedSource(batch_of(TOPIC) * 40_000)
    lines = dump_lines(source, LOG)
    for _ in range(5):
        next(lines)
    assert CountedSource.largest_bytes <= 1024 * 1024 < source.size_bytes


def test_a_redacted_dump_holds_no_secret_but_says_what_it_holds() -> None:
    redactor = Redactor(b"0123456789abcdef")
    config = {"resourceType": 4, "resourceName": "1", "name": "sasl.jaas.config", "value": "canary-" * 5}
    values = [
        write_metadata_value("ConfigRecord", 0, config),
        write_metadata_value("ConfigRecord", 0, config | {"name": "log.retention.ms", "value": "777"}),
        write_metadata_value("RemoveDelegationTokenRecord", 0, {"tokenId": "canary-token"}),
        write_metadata_value("RemoveDelegationTokenRecord", 0, {"tokenId": "canary-token"}) + b"canary",
        write_metadata_value("NoOpRecord", 0, {UNKNOWN_TAGGED_FIELDS: ((3, b"canary"),)}),
        b"\x01\x7f\x00canary",
        b"\x01\x02\x09canary",
    ]
    batch = write_batch(base_offset=0, leader_epoch=1, timestamp_ms=5, records=[(None, value) for value in values])
    plain, redacted = dumped(batch)[0], dumped(batch, redactor=redactor)[0]
    assert "canary" in "".join(plain)
    assert "canary" not in "".join(redacted)
    assert redacted[2] == plain[2]  # CRC and all
    assert '"value":"redacted:' in redacted[3]
    assert redacted[4] == plain[4]
    broken = f"BAD_RECORD: {len(values[3])} bytes, keyed hash {redactor.keyed_hash(values[3])}"
    assert redacted[6].partition("skipping. ")[2] == broken
    assert redacted[8].partition("skipping. ")[2].startswith("UNKNOWN_RECORD_TYPE: 9 bytes, keyed hash ")
    assert redacted[9].partition("skipping. ")[2].startswith("UNKNOWN_RECORD_VERSION: 9 bytes, keyed hash ")


def test_header_keys_are_printed_and_redacted_too() -> None:
    body = b"\x00\x00\x00\x01\x01\x04\x02k\x01\x0ccanary\x01"  # a record of no value, with headers k and canary
    body = bytes([2 * len(body)]) + body
    checked = struct.pack(">hiqqqhii", 0, 0, 5, 5, -1, -1, -1, 1) + body
    batch = struct.pack(">qiibI", 0, len(checked) + 9, 1, 2, crc32c(checked)) + checked
    assert "headerKeys: [k,canary]" in dumped(batch)[0][3]
    redactor = Redactor(b"0123456789abcdef")
    hashes = f"{redactor.keyed_hash(b'k')},{redactor.keyed_hash(b'canary')}"
    assert f"headerKeys: [{hashes}]" in dumped(batch, redactor=redactor)[0][3]


def with_crc(batch: bytes | bytearray) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def test_a_batch_that_is_cut_ends_the_dump_with_what_is_left() -> None:
    """The tool counts what stands after the last whole batch."""
    batch = batch_of(TOPIC)
    for cut in range(20, len(batch)):
        lines, error = dumped(batch + batch[:cut])
        assert error is None
        assert lines[-1] == f"Found {cut} invalid bytes at the end of 00000000000000000000.log"
        assert len(lines) == 5


@pytest.mark.parametrize("magic", [0, 1])
def test_the_formats_before_record_batches_are_refused(magic: int) -> None:
    batch = bytearray(batch_of(TOPIC))
    batch[16] = magic
    lines, error = dumped(bytes(batch))
    assert error is not None
    assert (error.reason, error.position, len(lines)) == (Reason.BAD_MAGIC, 0, 2)


def test_a_batch_shorter_than_its_header_and_one_above_64_mib() -> None:
    short = bytearray(batch_of(TOPIC))
    short[8:12] = (30).to_bytes(4, "big")
    _, error = dumped(bytes(short))
    assert error is not None
    assert error.reason is Reason.BAD_LENGTH
    huge = bytearray(70 << 20)
    huge[:61] = batch_of(TOPIC)[:61]
    huge[8:12] = (len(huge) - 12).to_bytes(4, "big")
    _, error = dumped(bytes(huge))
    assert error is not None
    assert error.reason is Reason.LIMIT


def test_a_batch_without_a_record() -> None:
    lines, error = dumped(write_batch(base_offset=0, leader_epoch=1, timestamp_ms=5, records=[]))
    assert error is None
    assert len(lines) == 3


@pytest.mark.parametrize(("base", "expected"), [(7, [7, 8]), (2**31 - 1, [2**31 - 1, 0])])
def test_sequences_count_on_and_wrap_at_the_largest_int(base: int, expected: list[int]) -> None:
    """DefaultRecordBatch.incrementSequence: after 2147483647 comes 0."""
    batch = bytearray(
        write_batch(base_offset=0, leader_epoch=1, timestamp_ms=5, records=[(None, TOPIC), (None, TOPIC)])
    )
    struct.pack_into(">i", batch, 53, base)
    lines, error = dumped(with_crc(batch))
    assert error is None
    assert f"baseSequence: {base} lastSequence: {expected[1]} " in lines[2]
    assert [f" sequence: {number} " in line for number, line in zip(expected, lines[3:], strict=True)] == [True, True]


@pytest.mark.parametrize(
    ("number", "value"), [(2, None), (0, None), (0, b"\0\0\0\0\0"), (1, bytes.fromhex("ffff00000007"))]
)
def test_control_records_at_which_the_tool_throws(number: int, value: bytes | None) -> None:
    lines, error = dumped(batch_of(value, is_control=True, key=write_control_key(number)))
    assert error is not None
    assert (error.reason, len(lines)) == (Reason.BAD_RECORD, 3)
