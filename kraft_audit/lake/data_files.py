"""Parquet data files in the folders of a lake's tables, and the statistics that a transaction gives of them.

A file that no transaction names is invisible to every reader.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.text.text_files import sync

# Each writer buffers one row group; all tables of a task together stay under the second figure.
ROW_GROUP_BYTES: Final = 32 << 20
BUFFERED_BYTES: Final = 48 << 20
# A larger file is not more efficient to scan, and a reader's smallest unit of work.
FILE_BYTES: Final = 512 << 20
# Text that seldom repeats: a dictionary of it costs time and is discarded, and its bounds prune nothing.
FREE_TEXT: Final = frozenset(
    {"record", "value_hash", "detail", "cluster_plan", "state", "data_file", "summary", "content"}
)
# Ascending with the rows: stored as differences they take a hundredth of the bytes and a quarter of the time
# (`benchmarks.writing`).
ASCENDING: Final = frozenset({"offset", "base_offset", "last_offset", "from_offset", "to_offset", "position"})
# Few distinct values, as the broker ids in lists of replicas have.
REPEATED: Final = frozenset({"plan", "partition", "partition_epoch", "leader", "cause_broker_id", "value_bytes"})


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file in a table's folder that is part of the table, or will be.

    `path` is relative to the table's folder; `statistics` is the Delta protocol's JSON text (numRecords, minValues, …).
    """

    table: str
    path: str
    size_bytes: int
    row_count: int
    statistics: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def table_folder(lake_uri: str, table: str, sizes: Mapping[str, int] | None = None) -> pafs.FileSystem:
    """The table's folder as a file system. Credentials come from the store's usual places.

    A store is not asked for the size of a file that is in `sizes`.
    """
    uri = f"{lake_uri}/{table}"
    if not is_uri(uri):
        Path(uri).mkdir(parents=True, exist_ok=True)
        return pafs.SubTreeFileSystem(uri, pafs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler  # the committer's own client: same endpoints, same credentials

    return pafs.PyFileSystem(DeltaStorageHandler(uri, known_sizes=None if sizes is None else dict(sizes)))


def write_octets(folder: pafs.FileSystem, name: str, octets: bytes) -> None:
    """Write a whole file. Through a buffer: unbuffered, Arrow gives deltalake's stores a type that they refuse."""
    with folder.open_output_stream(name, buffer_size=1 << 16) as sink:
        sink.write(octets)


@contextlib.contextmanager
def named_when_whole(lake_uri: str, folder: pafs.FileSystem, name: str) -> Iterator[str]:
    """The name to write a file of a lake under. A store has a file whole or not at all; on a disk it gets its own name
    when the bytes are there."""
    written = name if is_uri(lake_uri) else f"{name}.{uuid.uuid4().hex}"
    yield written
    if written != name:
        folder.move(written, name)


def name_of_history(history: str) -> str:
    """What stands for a history in paths: its id comes from files that were read, so it is no part of one."""
    return hashlib.blake2b(history.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


class TableWriter:
    """Writes the rows of one table into data files; rows of many clusters may share a file.

    A row group takes `row_group_bytes` of rows in memory, ROW_GROUP_BYTES where that is not said.
    """

    def __init__(
        self, lake_uri: str, table: str, schema: pa.Schema, label: str, row_group_bytes: int | None = None
    ) -> None:
        self.table = table
        self._lake_uri = lake_uri
        self._schema = schema
        self._label = label
        self._row_group_bytes = row_group_bytes or ROW_GROUP_BYTES
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
        if self.pending_bytes >= self._row_group_bytes:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as one row group."""
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
        """Finish, and return the data files that were written: none if there were no rows."""
        self.flush()
        self._finish_file()
        return self._written

    def abandon(self) -> None:
        """Drop all rows and delete the files: no transaction will name them."""
        self._pending, self.pending_bytes = [], 0
        names = [file.path for file in self._written]
        if self._open is not None:
            name, sink, writer = self._open
            self._open = None
            names.append(name)
            # Ignore what the store raises: the cluster has failed already, and an orphan is only unused space.
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
        self._written.append(finished_file(self._lake_uri, self.table, name, sink, writer))


def finished_file(lake_uri: str, table: str, name: str, sink: pa.NativeFile, writer: pq.ParquetWriter) -> DataFile:
    """Ends a data file, and describes it by the footer that was written; a local one is synced to the disk."""
    writer.close()
    size_bytes = sink.tell()
    sink.close()
    if not is_uri(lake_uri):
        sync(Path(lake_uri) / table / name)  # before a transaction names it
    metadata = writer.writer.metadata
    return DataFile(table, name, size_bytes, metadata.num_rows, file_statistics(metadata, writer.schema))


def write_rows(lake_uri: str, table: str, rows: pa.Table, label: str) -> DataFile:
    """Write a few rows, or none, as one data file."""
    folder = table_folder(lake_uri, table)
    name = f"{label}-{uuid.uuid4().hex}.zstd.parquet"
    with folder.open_output_stream(name) as sink:
        writer = pq.ParquetWriter(sink, rows.schema, **parquet_options(rows.schema))
        writer.write_table(rows)
        return finished_file(lake_uri, table, name, sink, writer)


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """How data files are written: compressed, each column in the encoding that suits its kind of value.

    Each choice was measured column by column, on Kafka's logs and simulated ones: `python -m benchmarks.writing`.
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


# Longer text prunes nothing that its first characters do not. A maximum may lie above every value, never below one.
TEXT_CHARACTERS: Final = 32
STATISTICS_COLUMNS: Final = 32


def file_statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> str:
    """The `stats` of an add action: row count, and minimum, maximum and null count of the first flat columns."""
    minimum: dict[str, Any] = {}
    maximum: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for position, path in _flat_columns(metadata, schema):
        chunks = [metadata.row_group(group).column(position).statistics for group in range(metadata.num_row_groups)]
        if not chunks or any(chunk is None for chunk in chunks):
            continue
        if all(chunk.has_null_count for chunk in chunks):
            nulls[path] = sum(chunk.null_count for chunk in chunks)
        bounded = [chunk for chunk in chunks if chunk.has_min_max]
        all_null = [chunk for chunk in chunks if not chunk.has_min_max and chunk.num_values == 0]
        if bounded and len(bounded) + len(all_null) == len(chunks):
            low, high = min(chunk.min for chunk in bounded), max(chunk.max for chunk in bounded)
            _set_bounds(path, low, high, minimum, maximum)
    return json.dumps(
        {"numRecords": metadata.num_rows, "minValues": minimum, "maxValues": maximum, "nullCount": nulls},
        separators=(",", ":"),
    )


def _flat_columns(metadata: pq.FileMetaData, schema: pa.Schema) -> list[tuple[int, str]]:
    names = {field.name for field in schema if not pa.types.is_nested(field.type)}
    columns = [(position, metadata.schema.column(position).path) for position in range(metadata.num_columns)]
    return [(position, path) for position, path in columns if path in names][:STATISTICS_COLUMNS]


def _set_bounds(path: str, low: Any, high: Any, minimum: dict[str, Any], maximum: dict[str, Any]) -> None:
    """Set both bounds, except where JSON cannot hold them exactly: without bounds nothing is pruned wrongly."""
    match low:
        case bool():
            pass
        case int():
            minimum[path], maximum[path] = low, high
        case str():
            minimum[path] = low[:TEXT_CHARACTERS]
            longer = _longer_maximum(high)
            if longer is not None:
                maximum[path] = longer
        case datetime():
            # Milliseconds, as the protocol asks: rounded down for the minimum, up for the maximum.
            minimum[path] = _milliseconds(low, 0)
            maximum[path] = _milliseconds(high, 1 if high.microsecond % 1000 else 0)
        case _:
            pass


def _longer_maximum(text: str) -> str | None:
    """A short text that sorts at or after `text`: its first characters and the highest character there is."""
    if len(text) <= TEXT_CHARACTERS:
        return text
    if text[TEXT_CHARACTERS] == "\U0010ffff":
        return None
    return text[:TEXT_CHARACTERS] + "\U0010ffff"


def _milliseconds(moment: datetime, add_ms: int) -> str:
    moment = moment.astimezone(UTC)
    milliseconds = moment.microsecond // 1000 + add_ms
    if milliseconds == 1000:
        moment, milliseconds = datetime.fromtimestamp(int(moment.timestamp()) + 1, UTC), 0
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"
