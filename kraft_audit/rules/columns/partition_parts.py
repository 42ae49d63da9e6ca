"""The history of partitions where it is too large to be held: on disk, and read back a share of the topics at a time.

A partition's rows, and all partitions of its topic, are in one part, so that a rule about partitions or topics finds in
the parts what it would find in the whole.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.tables.silver import PARTITION_CHANGES
from kraft_audit.tables.topic_shares import PART_COUNT, topic_numbers


class TableOnDisk:
    """Rows of one table in the order in which they are added; the file is gone with this object and its tables.

    The rows are redacted already, as all that is Arrow. Raises OSError where the temporary folder cannot hold them.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as this object
        # A stream may replace its dictionaries: each batch has its own.
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), schema)

    def add(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def table(self) -> pa.Table:
        """All rows so far, in the chunks in which they came."""
        self._file.flush()
        mapped = mmap.mmap(self._file.fileno(), 0, prot=mmap.PROT_READ)
        stream = pa.ipc.open_stream(pa.BufferReader(pa.py_buffer(mapped)))
        return stream.read_all()


SHARE_BYTES_MAX: Final = 8 << 20
"""A larger part is judged a share of its topics at a time: while rules run, its rows take ten times the memory."""
PENDING_BYTES_MAX: Final = 8 << 20
"""Rows are gathered up to this size before they are sorted into parts: each piece adds Arrow's framing to its rows."""
UNREAD_COLUMNS: Final = (
    "cluster_id",
    "from_epoch",
    "high_watermark_can_advance",
    "plan",
)
"""Columns that no rule reads. Parts omit them."""
PARTS_SCHEMA: Final = PARTITION_CHANGES.schema.empty_table().drop_columns(UNREAD_COLUMNS).schema


class PartitionParts:
    """Rows of `partition_changes` with the columns of PARTS_SCHEMA, in a nameless file that is gone with this object.

    The rows are redacted already, as all that is Arrow. Raises OSError where the temporary folder cannot hold them.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as this object
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writer = pa.ipc.new_file(pa.PythonFile(self._file, "w"), PARTS_SCHEMA, options=options)
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._pieces: dict[int, list[int]] = defaultdict(list)
        self._piece_count = 0
        self._is_complete = False
        self.last_offset = -1
        """The largest offset of a row."""

    def add(self, batch: pa.RecordBatch) -> None:
        selected = batch.select(PARTS_SCHEMA.names)
        if batch.num_rows:
            self.last_offset = max(self.last_offset, pc.max(batch.column("from_offset")).as_py())
        self._pending.append(selected)
        self._pending_bytes += selected.nbytes
        if self._pending_bytes >= PENDING_BYTES_MAX:
            self._sort_pending()

    def tables(self) -> Iterator[pa.Table]:
        """The parts that have rows, each in the order of the log. Nothing may be added any more."""
        if not self._is_complete:
            self._sort_pending()
            self._writer.close()
            self._file.flush()
            self._is_complete = True
        if not self._pieces:
            return
        # The reader closes its file, and `tables` may be called again: it gets a handle of its own.
        own = os.fdopen(os.dup(self._file.fileno()), "rb")
        reader = pa.ipc.open_file(pa.PythonFile(own, "r"))
        for part in sorted(self._pieces):
            batches = [reader.get_batch(number) for number in self._pieces[part]]
            for share in _shares(pa.Table.from_batches(batches, PARTS_SCHEMA)):
                yield share
                # The rules' temporaries were many and small: without this the allocator keeps them.
                pa.default_memory_pool().release_unused()

    def _sort_pending(self) -> None:
        if not self._pending:
            return
        table = pa.Table.from_batches(self._pending).combine_chunks()
        self._pending, self._pending_bytes = [], 0
        part = topic_numbers(table.column("topic_id").combine_chunks()) % PART_COUNT
        table = table.take(pa.array(np.argsort(part, kind="stable"))).combine_chunks()
        ends = np.cumsum(np.bincount(part, minlength=PART_COUNT))
        start = 0
        for number, end in enumerate(ends.tolist()):
            if end > start:
                for batch in table.slice(start, end - start).to_batches():
                    self._writer.write_batch(batch)
                    self._pieces[number].append(self._piece_count)
                    self._piece_count += 1
            start = end


def _shares(table: pa.Table) -> Iterator[pa.Table]:
    """A large part by shares of its topics."""
    count = -(-table.nbytes // SHARE_BYTES_MAX)
    if count < 2:
        yield table
        return
    # Topics of one part agree in the remainder: what is left of their number differs.
    share = topic_numbers(table.column("topic_id").combine_chunks()) // PART_COUNT % count
    for number in np.unique(share).tolist():
        yield table.take(pa.array(np.flatnonzero(share == number)))
