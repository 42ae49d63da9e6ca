"""Damage is data: why bytes could not be read, where, and what Kafka itself would do there."""

from __future__ import annotations

import enum
from dataclasses import dataclass


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
