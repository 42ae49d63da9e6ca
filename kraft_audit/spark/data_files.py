"""Parquet data files in the folders of a lake's tables; one that no transaction names is invisible to every reader."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from kraft_audit.settings import is_uri
from kraft_audit.spark.statistics import file_statistics

# One row group is buffered a table and writer; all tables of a task together stay under the second figure.
ROW_GROUP_BYTES: Final = 32 << 20
BUFFERED_BYTES: Final = 48 << 20
# A larger file is not more efficient to scan, and a reader's smallest unit of work.
FILE_BYTES: Final = 512 << 20
# Text that seldom repeats: a dictionary of it costs time and is thrown away, its bounds prune nothing.
FREE_TEXT: Final = frozenset(
    {"record", "value_hash", "detail", "cluster_plan", "state", "data_file", "summary", "content"}
)
# Ascending with the rows: as differences a hundredth of the bytes in a quarter of the time (`benchmarks.writing`).
ASCENDING: Final = frozenset({"offset", "base_offset", "last_offset", "from_offset", "to_offset", "position"})
# Few values, and often: as are the broker ids of every list of replicas.
REPEATED: Final = frozenset({"plan", "partition", "partition_epoch", "leader", "cause_broker_id", "value_bytes"})


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file in a table's folder that is, or is to be, part of the table.

    `path` is relative to the table's folder; `statistics` is the Delta protocol's JSON text (numRecords, minValues, …).
    """

    table: str
    path: str
    size_bytes: int
    row_count: int
    statistics: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def table_folder(lake_uri: str, table: str) -> pafs.FileSystem:
    """The table's folder as a file system. Credentials come from the usual places of the store."""
    uri = f"{lake_uri}/{table}"
    if not is_uri(uri):
        Path(uri).mkdir(parents=True, exist_ok=True)
        return pafs.SubTreeFileSystem(uri, pafs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler  # the committer's own client: same endpoints, same credentials

    return pafs.PyFileSystem(DeltaStorageHandler(uri))


class TableWriter:
    """Writes the rows of one table into data files; rows of many clusters may share one."""

    def __init__(self, lake_uri: str, table: str, schema: pa.Schema, label: str) -> None:
        self.table = table
        self._lake_uri = lake_uri
        self._schema = schema
        self._label = label
        self._folder = table_folder(lake_uri, table)
        self._pending: list[pa.RecordBatch] = []
        self.pending_bytes = 0
        self._open: tuple[str, Any, pq.ParquetWriter] | None = None
        self._written: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        self._pending.append(batch)
        self.pending_bytes += batch.nbytes
        if self.pending_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered as one row group."""
        if not self._pending:
            return
        rows = pa.Table.from_batches(self._pending, self._schema)
        self._pending, self.pending_bytes = [], 0
        if self._open is None:
            name = f"{self._label}-{uuid.uuid4().hex}.zstd.parquet"
            sink = self._folder.open_output_stream(name)
            self._open = (name, sink, pq.ParquetWriter(sink, self._schema, **parquet_options(self._schema)))
        _, sink, writer = self._open
        writer.write_table(rows, row_group_size=rows.num_rows)
        if sink.tell() >= FILE_BYTES:
            self._finish_file()

    def close(self) -> list[DataFile]:
        """Finish; the data files that were written, none where there were no rows."""
        self.flush()
        self._finish_file()
        return self._written

    def abandon(self) -> None:
        """Forget all rows and delete the files: no transaction will name them."""
        self._pending, self.pending_bytes = [], 0
        names = [file.path for file in self._written]
        if self._open is not None:
            name, sink, writer = self._open
            self._open = None
            names.append(name)
            # Whatever the store says, the cluster has failed already, and an orphan is only unused space.
            with contextlib.suppress(OSError, pa.ArrowException):
                writer.close()
                sink.close()
        for name in names:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._folder.delete_file(name)
        self._written = []

    def _finish_file(self) -> None:
        if self._open is None:
            return
        name, sink, writer = self._open
        self._open = None
        writer.close()
        sink.close()
        self._written.append(finished_file(self._lake_uri, self.table, self._folder, name, self._schema))


def finished_file(lake_uri: str, table: str, folder: pafs.FileSystem, name: str, schema: pa.Schema) -> DataFile:
    """What a transaction must say of a file just written, from its own footer; a local one is on the disk then."""
    if not is_uri(lake_uri):
        _sync(Path(lake_uri) / table / name)
    with folder.open_input_file(name) as source:
        metadata = pq.read_metadata(source)
        size_bytes = source.size()
    return DataFile(table, name, size_bytes, metadata.num_rows, file_statistics(metadata, schema))


def write_rows(lake_uri: str, table: str, rows: pa.Table, label: str) -> DataFile:
    """A few rows as one data file, even if there are none."""
    folder = table_folder(lake_uri, table)
    name = f"{label}-{uuid.uuid4().hex}.zstd.parquet"
    options = parquet_options(rows.schema)
    with folder.open_output_stream(name) as sink, pq.ParquetWriter(sink, rows.schema, **options) as writer:
        writer.write_table(rows)
    return finished_file(lake_uri, table, folder, name, rows.schema)


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """How data files are written: compressed, with the encoding that each column's kind of value is best kept in.

    Each choice was measured column by column, on logs of Kafka and simulated ones: `python -m benchmarks.writing`.
    """
    numbers = {field.name for field in schema if pa.types.is_integer(field.type)}
    return {
        "compression": "zstd",
        "use_dictionary": [path for path in _repeating_leaves(schema) if path not in FREE_TEXT],
        "column_encoding": dict.fromkeys(sorted(numbers & ASCENDING), "DELTA_BINARY_PACKED"),
        "write_statistics": [field.name for field in schema if field.name not in FREE_TEXT],
        "store_schema": False,  # Delta's schema is the one that counts
    }


def _repeating_leaves(schema: pa.Schema) -> Iterator[str]:
    """Column paths, as Parquet writes them, of texts, of numbers in lists, and of numbers that repeat."""
    for field in schema:
        if pa.types.is_nested(field.type) or pa.types.is_string(field.type) or field.name in REPEATED:
            yield from _leaves(field.name, field.type)


def _leaves(path: str, type_: pa.DataType) -> Iterator[str]:
    if pa.types.is_list(type_):
        yield from _leaves(f"{path}.list.element", type_.value_type)
    elif pa.types.is_struct(type_):
        for child in type_:
            yield from _leaves(f"{path}.{child.name}", child.type)
    elif pa.types.is_string(type_) or pa.types.is_integer(type_):
        yield path


def _sync(path: Path) -> None:
    """Bring a data file to the disk before a transaction names it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
