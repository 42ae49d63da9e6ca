"""Which membership protocol wrote a log, as its control records show.

The drafts KIP-642 and KIP-856 never shipped, and their control records reuse type numbers of Kafka's. A record decides
where exactly one dialect decodes its value without a byte left over. A log and a snapshot begin with control records:
of each segment only the first batch is looked at, of the first segment and of a snapshot one kilobyte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from kraft_audit.capture.file_beginnings import Beginning, read_beginning
from kraft_codec.errors import CodecError
from kraft_codec.file_names import FileKind
from kraft_codec.files.discovery import FileEntry
from kraft_codec.kernels.codes import OK
from kraft_codec.records.batch import RawRecord, read_header, read_records
from kraft_codec.records.message import read_message
from kraft_codec.records.record import read_control_key
from kraft_codec.schemas import CONTROL_TYPES, Dialect
from kraft_codec.storage.random_access import Storage

CONTROL_RECORDS_MAX: Final = 64
"""Kafka writes at most three control records in a batch. A batch that claims more than this decides nothing."""
UNPACKED_BYTES_MAX: Final = 1 << 20
DECIDING_TYPES: Final = frozenset({2, 3, 5, 6})
"""Type 4 ends a snapshot in two dialects and begins it in the third: too few bytes to tell."""


def found_dialects(storage: Storage, files: Sequence[FileEntry], beginnings: Iterable[Beginning]) -> frozenset[Dialect]:
    """The dialects for which the control records of one replica speak: `beginnings` are those of its segments.

    Where these hold none, the newest snapshot is asked, which stands for what was deleted of the log.
    """
    found = frozenset[Dialect]().union(*map(_dialects_in, beginnings))
    snapshots = [file for file in files if file.kind is FileKind.SNAPSHOT]
    if found or not snapshots:
        return found
    newest = max(snapshots, key=lambda file: (file.base_offset or 0, file.epoch or 0))
    return _dialects_in(read_beginning(storage, newest.path, controls_only=True))


def decided(found: Iterable[frozenset[Dialect]]) -> str:
    """The dialect of a log by what its files show: Kafka's own where they show nothing, empty where they disagree."""
    dialects = frozenset[Dialect]().union(*found) or {Dialect.KIP853}
    return next(iter(dialects)) if len(dialects) == 1 else ""


def _dialects_in(beginning: Beginning) -> frozenset[Dialect]:
    """The dialects for which the control records at a file's beginning speak."""
    index = beginning.batches
    rows = np.flatnonzero(index.is_control & (index.status == OK))
    ends = index.position + index.size_bytes
    return frozenset[Dialect]().union(
        *(_dialects_of(beginning.buffer[index.position[row] : ends[row]]) for row in rows)
    )


@lru_cache(maxsize=256)
def _dialects_of(batch: bytes) -> frozenset[Dialect]:
    """What one batch says. Replicas hold the same batches: each is decoded once."""
    try:
        header = read_header(batch, 0)
        if header.record_count > CONTROL_RECORDS_MAX:
            return frozenset()
        readers = [
            [dialect for dialect in Dialect if _is_whole(record, dialect)]
            for record in read_records(batch, header, limit_bytes=UNPACKED_BYTES_MAX)
        ]
    except CodecError:
        return frozenset()  # the reading reports it
    return frozenset(found[0] for found in readers if len(found) == 1)


def _is_whole(record: RawRecord, dialect: Dialect) -> bool:
    """Whether a dialect decodes the record's value to its last byte."""
    number = read_control_key(record.key, record.key_position)
    control_type = CONTROL_TYPES[dialect].get(number)
    if number not in DECIDING_TYPES or control_type is None or record.value is None:
        return False
    message, version, length = control_type.message, control_type.version, len(record.value)
    try:
        return read_message(message, version, record.value, 0, length)[1] == length
    except CodecError:
        return False
