"""A table of a history that is too large to be held: in a nameless temporary file, and read from there as it is.

Arrow reads the file where it is mapped, so that rules get the same table; what they do not look at takes no memory, and
the system lets go of the rest where others need it.
"""

from __future__ import annotations

import mmap
import tempfile

import pyarrow as pa


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
