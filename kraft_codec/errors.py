"""Damage is data: why bytes could not be read, where, and what Kafka itself does there (`kafka_verdict`).

A controller opens its log as after an unclean stop every time: it scans all segments, cuts the log at the first batch
whose size or CRC is wrong, and builds the indexes again. It reads record bodies only when it replays them. Sources of
the verdicts: KafkaRaftLog.createLog and recoverSnapshots, LogLoader.recoverLog, RecordsSnapshotReader,
FileQuorumStateStore, MetaPropertiesEnsemble (3.9 to 4.4).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from kraft_codec.file_names import FileKind


class Reason(enum.StrEnum):
    """What was wrong with which bytes: the `reason` column of `decode_errors`."""

    TORN_TAIL = "TORN_TAIL"
    ZERO_TAIL = "ZERO_TAIL"
    BAD_LENGTH = "BAD_LENGTH"
    BAD_MAGIC = "BAD_MAGIC"
    BAD_CRC = "BAD_CRC"
    BAD_VARINT = "BAD_VARINT"
    BAD_RECORD = "BAD_RECORD"
    BAD_STRING = "BAD_STRING"
    BAD_COMPRESSION = "BAD_COMPRESSION"
    DECOMP_LIMIT = "DECOMP_LIMIT"
    UNKNOWN_FRAME_VERSION = "UNKNOWN_FRAME_VERSION"
    UNKNOWN_RECORD_TYPE = "UNKNOWN_RECORD_TYPE"
    UNKNOWN_RECORD_VERSION = "UNKNOWN_RECORD_VERSION"
    UNKNOWN_CONTROL_TYPE = "UNKNOWN_CONTROL_TYPE"
    GAP = "GAP"
    OVERLAP = "OVERLAP"
    EPOCH_WENT_BACK = "EPOCH_WENT_BACK"
    SNAPSHOT_INCOMPLETE = "SNAPSHOT_INCOMPLETE"
    SNAPSHOT_MISSING = "SNAPSHOT_MISSING"
    SNAPSHOT_UNFINISHED = "SNAPSHOT_UNFINISHED"
    CLUSTER_MISMATCH = "CLUSTER_MISMATCH"
    BAD_FILE = "BAD_FILE"
    UNREADABLE = "UNREADABLE"
    CHANGED_DURING_READ = "CHANGED_DURING_READ"
    HOSTILE_NAME = "HOSTILE_NAME"
    LIMIT = "LIMIT"


@dataclass(frozen=True, slots=True)
class Damage:
    """One finding about bytes: where they are in the file `path`, and why.

    `detail` is for people and never holds bytes of a record, which may be secret.
    """

    path: str
    position: int
    length_bytes: int
    reason: Reason
    detail: str


class CodecError(Exception):
    """A value that cannot be decoded or encoded.

    `position` is absolute in the buffer (or file) that was read; `reason` says what kind of damage it is.
    """

    def __init__(self, reason: Reason, position: int, detail: str) -> None:
        super().__init__(f"{reason} at {position}: {detail}")
        self.reason = reason
        self.position = position
        self.detail = detail


class InputError(Exception):
    """A path that cannot be read at all: one line that names it, exit code 3."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path
        self.detail = detail


class ChoiceError(InputError):
    """What was asked for by name is not among what a path holds: one line that names what is, exit code 2."""


class MissingPackageError(Exception):
    """Something needs packages that are not installed: one line that says what to install, exit code 2.

    `extra` is the extra of kraft-audit that brings them.
    """

    def __init__(self, problem: str, extra: str) -> None:
        super().__init__(f"{problem}: pip install 'kraft-audit[{extra}]'")
        self.extra = extra


_CUT: Final = "cuts the log here at the next start, with a WARN line only, and deletes the segments after it"
STOPS_AT_REPLAY: Final = (
    "keeps the batch, as its CRC is right, and stops with a fatal fault when a node replays the record"
)
READS_AS_VERSION_2: Final = "reads the batch as version 2: the CRC does not cover this byte"
_NOT_NOTICED: Final = "does not notice: batches are not compared with their neighbours"
_REBUILDS: Final = "ignores it and rebuilds it from the segment at every start"
_DELETES: Final = "deletes it at the next start"
_REFUSES_TO_START: Final = "refuses to start"
_LOADS_SILENTLY: Final = "loads the snapshot as far as it goes and does not say that its end is missing"
_REFUSES_SNAPSHOT: Final = "fails to load the snapshot, and the node with it"
DECOMPRESSES_ALL: Final = "decompresses it however large it grows: the limit is this tool's"
_NOT_KAFKAS_RULE: Final = "has no such rule: it is a limit of this tool"
_NOT_KAFKAS_FILE: Final = "does not read such files: it is the copy that is damaged"

_BATCH_IS_BROKEN: Final = (
    Reason.TORN_TAIL,
    Reason.ZERO_TAIL,
    Reason.BAD_LENGTH,
    Reason.BAD_MAGIC,
    Reason.BAD_CRC,
)
_BODY_IS_BROKEN: Final = (
    Reason.BAD_VARINT,
    Reason.BAD_RECORD,
    Reason.BAD_STRING,
    Reason.BAD_COMPRESSION,
    Reason.UNKNOWN_FRAME_VERSION,
    Reason.UNKNOWN_RECORD_TYPE,
    Reason.UNKNOWN_RECORD_VERSION,
    Reason.UNKNOWN_CONTROL_TYPE,
)
_NEIGHBOURS_DISAGREE: Final = (Reason.GAP, Reason.OVERLAP, Reason.EPOCH_WENT_BACK)
_SNAPSHOT_KINDS: Final = (FileKind.SNAPSHOT, FileKind.BOOTSTRAP_SNAPSHOT)

_BY_REASON: Final[dict[Reason, str]] = {
    **dict.fromkeys(_BATCH_IS_BROKEN, _CUT),
    **dict.fromkeys(_BODY_IS_BROKEN, STOPS_AT_REPLAY),
    **dict.fromkeys(_NEIGHBOURS_DISAGREE, _NOT_NOTICED),
    Reason.DECOMP_LIMIT: DECOMPRESSES_ALL,
    Reason.SNAPSHOT_INCOMPLETE: _LOADS_SILENTLY,
    Reason.SNAPSHOT_MISSING: "refuses to start: a log that does not begin at 0 needs a snapshot at or above its start",
    Reason.SNAPSHOT_UNFINISHED: _DELETES,
    Reason.CLUSTER_MISMATCH: "refuses requests of a node with another cluster id, and to start on disks that disagree",
    Reason.BAD_FILE: _REFUSES_TO_START,
    Reason.UNREADABLE: "refuses to start if it may not read it either",
    Reason.CHANGED_DURING_READ: "is running: it appends to its files, cuts and deletes them while others read",
    Reason.HOSTILE_NAME: "never writes such a name, and ignores it",
    Reason.LIMIT: _NOT_KAFKAS_RULE,
}

_BY_REASON_AND_KIND: Final[dict[tuple[Reason, FileKind], str]] = {
    **{(reason, kind): _REFUSES_SNAPSHOT for reason in _BATCH_IS_BROKEN for kind in _SNAPSHOT_KINDS},
    **{(reason, kind): _REFUSES_SNAPSHOT for reason in _BODY_IS_BROKEN for kind in _SNAPSHOT_KINDS},
    **{(Reason.TORN_TAIL, kind): _LOADS_SILENTLY for kind in _SNAPSHOT_KINDS},
    (Reason.BAD_FILE, FileKind.SEGMENT): "goes by the name and never compares it with the batches in the file",
    (Reason.BAD_FILE, FileKind.SNAPSHOT): _REFUSES_SNAPSHOT,
    (Reason.BAD_FILE, FileKind.OFFSET_INDEX): _REBUILDS,
    (Reason.BAD_FILE, FileKind.TIME_INDEX): _REBUILDS,
    (Reason.BAD_FILE, FileKind.PRODUCER_STATE): "deletes it and rebuilds it from the log",
    (Reason.BAD_CRC, FileKind.PRODUCER_STATE): "deletes it and rebuilds it from the log",
    (Reason.BAD_FILE, FileKind.CLEAN_SHUTDOWN): 'reads it as "no previous broker epoch": an unclean stop',
    (Reason.BAD_FILE, FileKind.OFFSET_CHECKPOINT): "takes the broker's log dir offline, or scans all of its data logs",
    (Reason.BAD_FILE, FileKind.DELETED): _DELETES,
    (Reason.BAD_FILE, FileKind.TEMPORARY): _DELETES,
}


def kafka_verdict(reason: Reason, kind: FileKind | None) -> str:
    """What Kafka does there, to be read after its name: "Kafka cuts the log here at the next start, …".

    `kind` is None for what is no file of a node dir (a directory, an archive).
    """
    if kind is None and reason is Reason.BAD_FILE:
        return _NOT_KAFKAS_FILE
    if kind is not None and (verdict := _BY_REASON_AND_KIND.get((reason, kind))):
        return verdict
    return _BY_REASON[reason]
