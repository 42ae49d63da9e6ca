"""The small text files of a log dir, read and written: quorum-state, checkpoints, partition.metadata, clean shutdown.

`parse_x(bytes) -> X` raises CodecError with the position of what is wrong; `format_x(X) -> bytes` gives Kafka's exact
bytes. Where Kafka's own reader is lenient (text after the last entry, an empty checkpoint), so are these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeGuard, TypeVar

from kraft_codec.errors import CodecError, Reason
from kraft_codec.schemas import ZERO_UUID, Dialect, Field, Type
from kraft_codec.schemas.model import array, int32, int64, message, string, uuid
from kraft_codec.text.java_text import uuid_bytes, uuid_text

MAX_JSON_BYTES: Final = 1 << 20
MAX_CHECKPOINT_BYTES: Final = 64 << 20
METADATA_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"

_VOTER = (int32("VoterId", "0"),)

QUORUM_STATE: Final = message(
    -1,
    "QuorumStateData",
    "0-1",
    string("ClusterId", "0"),
    int32("LeaderId", default=-1),
    int32("LeaderEpoch", default=-1),
    int32("VotedId", default=-1),
    uuid("VotedDirectoryId", "1+"),
    int64("AppliedOffset", "0"),
    array("CurrentVoters", _VOTER, "0", nullable="0"),
)

# KIP-856's text keeps ClusterId and AppliedOffset in version 1, and names the voted replica's UUID `VotedUuid`.
QUORUM_STATE_KIP856: Final = message(
    -1,
    "QuorumStateData",
    "0-1",
    string("ClusterId"),
    int32("LeaderId", default=-1),
    int32("LeaderEpoch", default=-1),
    int32("VotedId", default=-1),
    uuid("VotedUuid", "1+", nullable="1+", default=None),
    int64("AppliedOffset"),
    array("CurrentVoters", _VOTER, "0", nullable="0"),
)

_FIELDS: Final = {
    is_draft: {
        version: tuple(field for field in schema.fields if version in field.versions)
        for version in range(schema.versions.first, schema.versions.last + 1)
    }
    for is_draft, schema in ((False, QUORUM_STATE), (True, QUORUM_STATE_KIP856))
}
"""The fields of each version, by whether the file is that of KIP-856's text."""
_INTEGER_TEXT: Final = re.compile(r"[+-]?[0-9]{1,19}")
_BITS: Final = {Type.INT32: 32, Type.INT64: 64}
_EntryT = TypeVar("_EntryT")


@dataclass(frozen=True, slots=True)
class QuorumState:
    """What a node has promised: its epoch, the leader it knows, its vote (FileQuorumStateStore, ElectionState).

    -1 is an unknown leader or no vote; `voted_directory_id` is the zero uuid where no directory was voted for, and None
    in version 0, which cannot say it (and in KIP-856's version 1, where it is nullable). As shipped, `cluster_id` is
    always "" and `applied_offset` 0; version 1 has neither, nor `current_voters`.
    """

    data_version: int
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: str | None = None
    cluster_id: str = ""
    applied_offset: int = 0
    current_voters: tuple[int, ...] | None = ()


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """One line of leader-epoch-checkpoint: the first offset of a leader epoch."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """One line of an offset checkpoint: a topic partition and its offset."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """`partition.metadata`: the topic id of a log."""

    version: int
    topic_id: str


@dataclass(frozen=True, slots=True)
class CleanShutdown:
    """`.kafka_cleanshutdown`: the broker epoch at a clean stop; None where an older release wrote an empty file."""

    version: int | None
    broker_epoch: int | None


def parse_quorum_state(data: bytes) -> QuorumState:
    """Reads `quorum-state`. As Kafka does, only the first line counts and unknown fields are left aside.

    KIP-856 names the vote's UUID `votedUuid`, which no other layout does.
    """
    line = re.split(rb"\r\n|\r|\n", data, maxsplit=1)[0]
    fields = _parse_json_object(line)
    is_draft = "votedUuid" in fields and "votedDirectoryId" not in fields
    schema = QUORUM_STATE_KIP856 if is_draft else QUORUM_STATE
    version, known = fields.get("data_version"), _FIELDS[is_draft]
    if not _is_integer(version) or version not in known:
        raise CodecError(
            Reason.BAD_FILE, 0, f"data_version: expected {schema.versions.first} to {schema.versions.last}"
        )
    values: dict[str, Any] = {}
    for field in known[version]:
        if field.json_name not in fields:
            raise CodecError(Reason.BAD_FILE, len(line), f"{field.json_name} is missing in version {version}")
        values[field.json_name] = _json_value(field, fields[field.json_name], line)
    directory = values.get("votedDirectoryId", values.get("votedUuid"))
    voters = values.get("currentVoters", ())
    return QuorumState(
        data_version=version,
        leader_id=values["leaderId"],
        leader_epoch=values["leaderEpoch"],
        voted_id=values["votedId"],
        voted_directory_id=None if directory is None else uuid_text(directory),
        cluster_id=values.get("clusterId", ""),
        applied_offset=values.get("appliedOffset", 0),
        current_voters=voters,
    )


def format_quorum_state(state: QuorumState, dialect: Dialect = Dialect.KIP853) -> bytes:
    """One line of compact JSON without a newline, its keys in schema order, then data_version."""
    schema = QUORUM_STATE_KIP856 if dialect is Dialect.KIP856 else QUORUM_STATE
    if state.data_version not in schema.versions:
        raise ValueError(
            f"data_version {state.data_version}: expected {schema.versions.first} to {schema.versions.last}"
        )
    voters = state.current_voters
    directory = state.voted_directory_id
    values = {
        "clusterId": state.cluster_id,
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": uuid_text(ZERO_UUID) if directory is None else directory,
        "votedUuid": directory,
        "appliedOffset": state.applied_offset,
        "currentVoters": None if voters is None else [{"voterId": voter} for voter in voters],
    }
    names = [field.json_name for field in schema.fields if state.data_version in field.versions]
    return _compact_json({name: values[name] for name in names} | {"data_version": state.data_version})


def parse_leader_epoch_checkpoint(data: bytes) -> tuple[EpochEntry, ...]:
    """Reads `leader-epoch-checkpoint` (LeaderEpochCheckpointFile): entries in file order, none in an empty file."""
    return _parse_checkpoint(
        data, 2, lambda words: EpochEntry(_java_integer(words[0], 32), _java_integer(words[1], 64))
    )


def format_leader_epoch_checkpoint(entries: tuple[EpochEntry, ...]) -> bytes:
    """Version 0, the number of entries, then one `<epoch> <start offset>` a line."""
    return _format_checkpoint([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def parse_offset_checkpoint(data: bytes) -> tuple[OffsetEntry, ...]:
    """Reads a recovery-point, log-start, replication or cleaner checkpoint; an empty file was never written to."""
    return _parse_checkpoint(
        data, 3, lambda words: OffsetEntry(words[0], _java_integer(words[1], 32), _java_integer(words[2], 64))
    )


def format_offset_checkpoint(entries: tuple[OffsetEntry, ...]) -> bytes:
    """Version 0, the number of entries, then one `<topic> <partition> <offset>` a line (OffsetCheckpointFile)."""
    return _format_checkpoint([f"{entry.topic} {entry.partition} {entry.offset}" for entry in entries])


def parse_partition_metadata(data: bytes) -> PartitionMetadata:
    """Reads `partition.metadata` (PartitionMetadataFile): version 0 and a topic id that is not zero."""
    if len(data) > MAX_JSON_BYTES:
        raise CodecError(Reason.LIMIT, 0, f"{len(data)} bytes, expected at most {MAX_JSON_BYTES}")
    lines = _lines(data)
    values: list[str] = []
    for index, name in enumerate(("version", "topic_id")):
        position, text = lines[index] if index < len(lines) else (len(data), "")
        parts = text.split(": ")
        if len(parts) != 2 or parts[0] != name:
            raise CodecError(Reason.BAD_FILE, position, f"expected '{name}: <value>'")
        values.append(parts[1])
    if values[0] != "0":
        raise CodecError(Reason.BAD_FILE, 0, "version is not 0")
    try:
        is_zero = uuid_bytes(values[1]) == ZERO_UUID
    except ValueError:
        raise CodecError(Reason.BAD_FILE, lines[1][0], "topic_id is not a uuid") from None
    if is_zero:
        raise CodecError(Reason.BAD_FILE, lines[1][0], "topic_id is the zero uuid")
    return PartitionMetadata(0, values[1])


def format_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """Two lines without a newline at the end."""
    return f"version: {metadata.version}\ntopic_id: {metadata.topic_id}".encode()


def parse_clean_shutdown(data: bytes) -> CleanShutdown:
    """Reads `.kafka_cleanshutdown` (CleanShutdownFileHandler); Kafka takes bad content as "no previous epoch"."""
    if not data:
        return CleanShutdown(None, None)
    fields = _parse_json_object(data)
    version, epoch = fields.get("version"), fields.get("brokerEpoch")
    if not _is_integer(version) or version != 0:
        raise CodecError(Reason.BAD_FILE, 0, "version is not 0")
    if not _is_integer(epoch) or not -(2**63) <= epoch < 2**63:
        raise CodecError(Reason.BAD_FILE, 0, "brokerEpoch is not an int64")
    return CleanShutdown(version, epoch)


def format_clean_shutdown(shutdown: CleanShutdown) -> bytes:
    """Compact JSON without a newline; nothing at all where there is no version, as older releases wrote it."""
    if shutdown.version is None:
        return b""
    return _compact_json({"version": shutdown.version, "brokerEpoch": shutdown.broker_epoch})


def parse_capture_note(data: bytes) -> int:
    """When kraft-capture had read a node dir, as `kraft-capture.json` in its archives says."""
    time_ms = _parse_json_object(data).get("read_to_ms")
    if not _is_integer(time_ms):
        raise CodecError(Reason.BAD_FILE, 0, "read_to_ms is not an integer")
    return time_ms


def _compact_json(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def _parse_json_object(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_JSON_BYTES:
        raise CodecError(Reason.LIMIT, 0, f"{len(data)} bytes, expected at most {MAX_JSON_BYTES}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CodecError(Reason.BAD_FILE, error.start, "not UTF-8") from None
    try:
        fields = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise CodecError(Reason.BAD_FILE, len(text[: error.pos].encode()), f"not JSON: {error.msg}") from None
    except (ValueError, RecursionError):  # NaN, a number of thousands of digits, thousands of brackets
        raise CodecError(Reason.BAD_FILE, 0, "not JSON that Kafka writes") from None
    if not isinstance(fields, dict):
        raise CodecError(Reason.BAD_FILE, 0, "not a JSON object")
    return fields


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _json_value(field: Field, value: Any, line: bytes) -> Any:
    """The value of one field of quorum-state: int, str, uuid bytes, or the ids of an array of voters."""
    position = max(line.find(f'"{field.json_name}"'.encode()), 0)
    if value is None and field.nullable is not None:
        return None
    if field.array:
        if not isinstance(value, list) or not all(isinstance(element, dict) for element in value):
            raise CodecError(Reason.BAD_FILE, position, f"{field.json_name} is not an array of objects")
        (inner,) = field.fields
        return tuple(_json_value(inner, element.get(inner.json_name), line) for element in value)
    if field.type in _BITS:
        bound = 1 << (_BITS[field.type] - 1)
        if not _is_integer(value) or not -bound <= value < bound:
            raise CodecError(Reason.BAD_FILE, position, f"{field.json_name} is not an {field.type}")
        return value
    if not isinstance(value, str) or any(0xD800 <= ord(character) <= 0xDFFF for character in value):
        raise CodecError(Reason.BAD_FILE, position, f"{field.json_name} is not a string")
    if field.type is not Type.UUID:
        return value
    try:
        return uuid_bytes(value)
    except ValueError:
        raise CodecError(Reason.BAD_FILE, position, f"{field.json_name} is not a uuid") from None


def _lines(data: bytes) -> list[tuple[int, str]]:
    r"""(position, text) of each line; as in Java a line ends at \n, \r or \r\n, and bytes not UTF-8 are replaced."""
    lines: list[tuple[int, str]] = []
    position = 0
    for raw in re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", data):
        lines.append((position, raw.rstrip(b"\r\n").decode(errors="replace")))
        position += len(raw)
    return lines


def _java_integer(text: str, bits: int) -> int:
    if _INTEGER_TEXT.fullmatch(text) is None or not -(1 << (bits - 1)) <= int(text) < 1 << (bits - 1):
        raise ValueError(f"not an int{bits}")
    return int(text)


def _parse_checkpoint(data: bytes, word_count: int, read: Callable[[list[str]], _EntryT]) -> tuple[_EntryT, ...]:
    """CheckpointFile.CheckpointReadBuffer: version 0, a count, that many lines, nothing more."""
    if len(data) > MAX_CHECKPOINT_BYTES:
        raise CodecError(Reason.LIMIT, 0, f"{len(data)} bytes, expected at most {MAX_CHECKPOINT_BYTES}")
    if not data:
        return ()
    lines = _lines(data)
    header: list[int] = []
    for index, name in enumerate(("version", "number of entries")):
        position, text = lines[index] if index < len(lines) else (len(data), "")
        try:
            header.append(_java_integer(text, 32))
        except ValueError:
            raise CodecError(Reason.BAD_FILE, position, f"{name} is not an int32") from None
    if header[0] != 0:
        raise CodecError(Reason.BAD_FILE, 0, f"version {header[0]}: expected 0")
    entries: list[_EntryT] = []
    for position, text in lines[2:]:
        words = text.split()
        try:
            if len(words) != word_count:
                raise ValueError(f"{len(words)} words, expected {word_count}")
            entries.append(read(words))
        except ValueError as error:
            raise CodecError(Reason.BAD_FILE, position, f"entry {len(entries)}: {error}") from None
    if len(entries) != header[1]:
        raise CodecError(Reason.BAD_FILE, lines[1][0], f"{header[1]} entries announced, {len(entries)} found")
    return tuple(entries)


def _format_checkpoint(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()
