"""The names of the files of a node dir and its metadata log dir, and how any name is shown safely.

Sources: `LogFileUtils`, `Snapshots`, `KafkaRaftLog`, `BootstrapDirectory`, `MetaPropertiesEnsemble` (3.9 to 4.4).
"""

from __future__ import annotations

import enum
import re
import unicodedata
from dataclasses import dataclass
from typing import Final

METADATA_LOG_DIR: Final = "__cluster_metadata-0"
META_PROPERTIES_NAME: Final = "meta.properties"
QUORUM_STATE_NAME: Final = "quorum-state"
MAX_OFFSET: Final = 2**63 - 1
MAX_EPOCH: Final = 2**31 - 1


class FileKind(enum.StrEnum):
    """What a file is by its name. The kinds from META_PROPERTIES on live in the node dir, the others in the log dir."""

    SEGMENT = "segment"
    OFFSET_INDEX = "offset_index"
    TIME_INDEX = "time_index"
    PRODUCER_STATE = "producer_state"
    SNAPSHOT = "snapshot"
    SNAPSHOT_UNFINISHED = "snapshot_unfinished"
    DELETED = "deleted"
    TEMPORARY = "temporary"
    QUORUM_STATE = "quorum_state"
    LEADER_EPOCH_CHECKPOINT = "leader_epoch_checkpoint"
    PARTITION_METADATA = "partition_metadata"
    META_PROPERTIES = "meta_properties"
    BOOTSTRAP_SNAPSHOT = "bootstrap_snapshot"
    CLEAN_SHUTDOWN = "clean_shutdown"
    OFFSET_CHECKPOINT = "offset_checkpoint"
    RESCUE_DECLARATION = "rescue_declaration"
    BROKER_DISKS = "broker_disks"
    CONFIGURATION = "configuration"
    CAPTURE_NOTE = "capture_note"


NODE_KINDS: Final = frozenset(
    {
        *(FileKind.META_PROPERTIES, FileKind.BOOTSTRAP_SNAPSHOT, FileKind.CLEAN_SHUTDOWN, FileKind.OFFSET_CHECKPOINT),
        *(FileKind.RESCUE_DECLARATION, FileKind.BROKER_DISKS, FileKind.CONFIGURATION, FileKind.CAPTURE_NOTE),
    }
)
RESCUE_DECLARATION_NAME: Final = "rescue.json"
"""No file of Kafka's: `kraft-audit rescue` leaves it in a node dir that it wrote."""
CAPTURE_NOTE_NAME: Final = "kraft-capture.json"
"""No file of Kafka's: kraft-capture leaves it in a node dir of its archives."""
CONFIGURATION_NAMES: Final = ("controller.properties", "broker.properties", "server.properties")
"""A node's configuration. Kafka reads it from elsewhere: it is beside or above a node dir where somebody copied it."""
OPERATOR_CONFIGURATION_NAMES: Final = ("kafka.properties", "kraft.properties", "strimzi.properties")
"""A node's configuration in the containers of Confluent for Kubernetes and Strimzi."""

_WHOLE_NAMES: Final = {
    QUORUM_STATE_NAME: FileKind.QUORUM_STATE,
    "quorum-state.tmp": FileKind.TEMPORARY,
    "leader-epoch-checkpoint": FileKind.LEADER_EPOCH_CHECKPOINT,
    "leader-epoch-checkpoint.tmp": FileKind.TEMPORARY,
    "partition.metadata": FileKind.PARTITION_METADATA,
    "partition.metadata.tmp": FileKind.TEMPORARY,
    META_PROPERTIES_NAME: FileKind.META_PROPERTIES,
    "bootstrap.checkpoint": FileKind.BOOTSTRAP_SNAPSHOT,
    ".kafka_cleanshutdown": FileKind.CLEAN_SHUTDOWN,
    "recovery-point-offset-checkpoint": FileKind.OFFSET_CHECKPOINT,
    "log-start-offset-checkpoint": FileKind.OFFSET_CHECKPOINT,
    "replication-offset-checkpoint": FileKind.OFFSET_CHECKPOINT,
    "cleaner-offset-checkpoint": FileKind.OFFSET_CHECKPOINT,
    RESCUE_DECLARATION_NAME: FileKind.RESCUE_DECLARATION,
    CAPTURE_NOTE_NAME: FileKind.CAPTURE_NOTE,
    **dict.fromkeys((*CONFIGURATION_NAMES, *OPERATOR_CONFIGURATION_NAMES), FileKind.CONFIGURATION),
}
_SUFFIXES: Final = {
    ".log": FileKind.SEGMENT,
    ".index": FileKind.OFFSET_INDEX,
    ".timeindex": FileKind.TIME_INDEX,
    ".txnindex": FileKind.TEMPORARY,
    ".snapshot": FileKind.PRODUCER_STATE,
}
_LOG_FILE: Final = re.compile(r"([0-9]{20})(\.(?:log|index|timeindex|txnindex|snapshot))(\.(?:deleted|cleaned|swap))?")
_SNAPSHOT_FILE: Final = re.compile(r"([0-9]{20})-([0-9]{10})(-[0-9]{1,20})?\.checkpoint(\.(?:part|deleted))?")
_BROKER_DISKS_FILE: Final = re.compile(r"broker-disks-[0-9]{13}\.jsonl\.gz")
"""No file of Kafka's: kraft-capture leaves it beside meta.properties; the number is when it read the disks."""
_POD_CONFIGURATION: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,240}-[0-9]{1,10}\.cfg")
"""Strimzi's report.sh names the configuration of a pod after the pod, whose name ends with the node's id."""
_INDEX_NAME: Final = re.compile(r"\.(?:time|txn)?index(?:\.|\Z)")
_PARTITION_DIR: Final = re.compile(r".+-[0-9]+(?:\.[0-9a-f]{32}-(?:delete|future|stray))?")


@dataclass(frozen=True, slots=True)
class FileName:
    """A name that belongs to a node dir: `base_offset` of a log file, (`base_offset`, `epoch`) of a snapshot.

    A snapshot's `base_offset` is its end offset: exclusive, the offset of the first record that it does not contain.
    """

    name: str
    kind: FileKind
    base_offset: int | None = None
    epoch: int | None = None


def parse_file_name(name: str) -> FileName | None:
    """What a file is by its name; None where the name belongs to no node dir.

    As Kafka writes them, offsets have 20 digits and epochs 10; a value beyond int64 or int32 is no such name.
    """
    if kind := _WHOLE_NAMES.get(name):
        return FileName(name, kind)
    if match := _LOG_FILE.fullmatch(name):
        kind = _SUFFIXES[match[2]]
        if match[3]:
            kind = FileKind.DELETED if match[3] == ".deleted" else FileKind.TEMPORARY
        return _in_range(FileName(name, kind, int(match[1])))
    if match := _SNAPSHOT_FILE.fullmatch(name):
        if match[4] == ".part":
            kind = FileKind.SNAPSHOT_UNFINISHED
        elif match[3]:
            return None
        else:
            kind = FileKind.DELETED if match[4] else FileKind.SNAPSHOT
        return _in_range(FileName(name, kind, int(match[1]), int(match[2])))
    if _BROKER_DISKS_FILE.fullmatch(name):
        return FileName(name, FileKind.BROKER_DISKS)
    if _POD_CONFIGURATION.fullmatch(name):
        return FileName(name, FileKind.CONFIGURATION)
    return None


def segment_name(base_offset: int) -> str:
    """`00000000000000000042.log`."""
    return f"{_offset_text(base_offset)}.log"


def offset_index_name(base_offset: int) -> str:
    """`00000000000000000042.index`."""
    return f"{_offset_text(base_offset)}.index"


def time_index_name(base_offset: int) -> str:
    """`00000000000000000042.timeindex`."""
    return f"{_offset_text(base_offset)}.timeindex"


def producer_state_name(offset: int) -> str:
    """`00000000000000000042.snapshot`: the producers' state as of the end of the log below `offset`."""
    return f"{_offset_text(offset)}.snapshot"


def snapshot_name(end_offset: int, epoch: int) -> str:
    """`00000000000000000042-0000000003.checkpoint`: (end offset, exclusive; epoch of the record before it)."""
    if not 0 <= epoch <= MAX_EPOCH:
        raise ValueError(f"epoch {epoch}: expected 0 to {MAX_EPOCH}")
    return f"{_offset_text(end_offset)}-{epoch:010d}.checkpoint"


def is_partition_dir(name: str) -> bool:
    """True where a broker could hold a topic partition under this name (`orders-3`), other than the metadata log."""
    return name != METADATA_LOG_DIR and _PARTITION_DIR.fullmatch(name) is not None


def is_index_name(name: str) -> bool:
    """True for index files, deleted ones too: mostly preallocated zeros, which an archive packs 1000:1."""
    return _INDEX_NAME.search(name) is not None


def is_hostile(name: str) -> bool:
    """True for a name that could forge a line or hide what it is: control and bidi characters, bytes not UTF-8."""
    if name.isascii():
        return not name.isprintable()
    return any(unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in name)


def printable(path: str) -> str:
    r"""The path on one line: hostile characters become `\n`, `\x1b`, `\u202e`, `\xff` (a byte that is not UTF-8)."""
    if not is_hostile(path):
        return path
    return "".join(_escaped(character) if is_hostile(character) else character for character in path)


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how os.fsdecode carries a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return ascii(character)[1:-1]


def _offset_text(offset: int) -> str:
    if not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"offset {offset}: expected 0 to {MAX_OFFSET}")
    return f"{offset:020d}"


def _in_range(name: FileName) -> FileName | None:
    if (name.base_offset or 0) > MAX_OFFSET or (name.epoch or 0) > MAX_EPOCH:
        return None
    return name
