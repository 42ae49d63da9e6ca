"""Records that wait until the transaction or the operation that they belong to is whole, and how they are kept.

A transaction may stay open for days. So what waits is kept in blocks by offset, and a block that an earlier plan kept
stays the bytes that it is until its records are wanted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa

from kraft_audit.capture.decoded_records import RecordColumns, batches_of, between
from kraft_audit.replay.partitions.window_events import CHANGE_RECORD, PARTITION_RECORD
from kraft_audit.tables.kept_parts import KeptPartsError, columns_from_bytes, columns_to_bytes
from kraft_codec.columns import typed_schema
from kraft_codec.schemas import CONTROL_TYPES, METADATA_RECORDS

WAITING_BLOCK_OFFSETS: Final = 1 << 13
_NO_OFFSET: Final = 1 << 63
PARTITION_RECORDS: Final = frozenset({PARTITION_RECORD, CHANGE_RECORD})
"""Of these there may be too many to copy them."""
_CONTROL_MESSAGES: Final = [control.message for types in CONTROL_TYPES.values() for control in types.values()]


class WaitingRecords:
    """Records in the order of the log, of windows that follow each other.

    `parts` are those that `parts()` gave. Raises KeptPartsError where a name is none of them.
    """

    def __init__(self, parts: Mapping[str, bytes] | None = None) -> None:
        self._windows: list[RecordColumns] = []
        self._blocks: dict[int, dict[str, bytes]] = defaultdict(dict)
        for part, content in (parts or {}).items():
            block, _, name = part.partition(".")
            if not block.isdigit():
                raise KeptPartsError(f"a part {part!r} is no block of records")
            self._blocks[int(block)][name] = content

    def append(self, records: RecordColumns) -> None:
        """Adds the records of the next window."""
        self._windows.append(records)

    def records(self) -> RecordColumns:
        """All of them. Raises KeptPartsError where a block cannot be read."""
        return joined_windows([*map(self._decoded, sorted(self._blocks)), *self._windows])

    def parts(self) -> dict[str, bytes]:
        """What is kept: `<block>.<message>` for each type of record in a block."""
        new, blocks = joined_windows(self._windows), dict(self._blocks)
        # A damaged offset may lie anywhere: not every number between two blocks has records.
        numbers = [np.unique(batch.column("offset").to_numpy() // WAITING_BLOCK_OFFSETS) for batch in new.values()]
        for block in sorted({number for each in numbers for number in each.tolist()}):
            end = (block + 1) * WAITING_BLOCK_OFFSETS
            own = between(new, block * WAITING_BLOCK_OFFSETS, end if end < _NO_OFFSET else None)
            earlier = [self._decoded(block)] if block in self._blocks else []
            whole = joined_windows([*earlier, own])
            blocks[block] = {name: columns_to_bytes(_in_one_piece(rows)) for name, rows in whole.items()}
        return {f"{block}.{name}": content for block, types in blocks.items() for name, content in types.items()}

    def _decoded(self, block: int) -> RecordColumns:
        return {name: _records(name, content) for name, content in self._blocks[block].items()}


def joined_windows(parts: Iterable[RecordColumns]) -> RecordColumns:
    """The records of windows that follow each other."""
    windows = list(parts)
    if len(windows) == 1:
        return windows[0]
    joined: dict[str, pa.RecordBatch | pa.Table] = {}
    for name in dict.fromkeys(name for window in windows for name in window):
        batches = [batch for window in windows for batch in batches_of(window, name)]
        if len(batches) == 1:
            joined[name] = batches[0]
        elif batches:
            join = pa.Table.from_batches if name in PARTITION_RECORDS else pa.concat_batches
            joined[name] = join(batches)
    return joined


def _in_one_piece(rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """The same rows give the same bytes, however many windows they came in."""
    return rows.combine_chunks() if isinstance(rows, pa.Table) else rows


def _records(name: str, content: bytes) -> pa.RecordBatch:
    """The records of a type; a control record's columns depend on the dialect."""
    for message in (*METADATA_RECORDS, *_CONTROL_MESSAGES):
        if message.name == name:
            with suppress(KeptPartsError):
                return columns_from_bytes(content, typed_schema(message))
    raise KeptPartsError(f"its records of type {name!r} cannot be read")
