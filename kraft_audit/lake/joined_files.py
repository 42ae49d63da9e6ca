"""Small data files of a table joined into large ones, by the writer that staged them: each column keeps its encoding.

Delta's own OPTIMIZE writes every column in its library's default encoding, which made a maintained table 1.3 to 3.7
times as large as the same rows staged at once. Here files are read row group by row group and written again with
`parquet_options`; one transaction removes them and adds the new ones, and says that no row changed.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from kraft_audit.lake.data_files import TableWriter, table_folder
from kraft_audit.lake.lake import COMMIT_ATTEMPTS
from kraft_codec.errors import InputError

SORTED_BYTES: Final = 256 << 20
"""Rows are ordered in parts of so many bytes in memory: a year of small files does not fit into it."""
JOINED_GROUP_BYTES: Final = 64 << 20
"""A row group of joined rows, in memory: twice a staged one, as one table is written at a time. Fewer groups repeat
fewer dictionaries, so that what is cut elsewhere than when it was staged is not larger."""
ROWS_AT_ONCE: Final = 65_536
"""How many rows of a file are read, and then written, together."""
SMALL_BYTES: Final = 1 << 20
LIKE_FILES: Final = 4
"""This many files of similar size are joined into one."""
FILES_AT_ONCE: Final = 100
"""A run reads so many files of a group at most: an old lake is joined by several runs."""
_PLAIN_READER: Final = 1
"""Readers of this protocol version take every row of every file: no deletion vectors, no renamed columns."""


class FilesChangedError(InputError):
    """Another run joined, or deleted from, the files that were to be joined."""


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A data file of the newest version, with what its `remove` action says."""

    path: str
    size_bytes: int
    modified_ms: int


def is_plain(table: DeltaTable) -> bool:
    """Whether a file's rows are the table's rows, with no partition: then files can be read without Delta's reader."""
    return table.protocol().min_reader_version == _PLAIN_READER and not table.metadata().partition_columns


def small_files(table: DeltaTable, below_bytes: int) -> list[SmallFile]:
    """The table's files below a size, oldest first: rows stay in the order in which they came."""
    actions = pa.table(table.get_add_actions(flatten=True))
    columns = (actions.column(name).to_pylist() for name in ("path", "size_bytes", "modification_time"))
    files = [SmallFile(path, size, _milliseconds(modified)) for path, size, modified in zip(*columns, strict=True)]
    return sorted(
        (file for file in files if file.size_bytes < below_bytes), key=lambda file: (file.modified_ms, file.path)
    )


def files_of_like_size(table: DeltaTable) -> list[list[SmallFile]]:
    """Files below SMALL_BYTES in groups of sizes [4^k, 4^(k + 1)), if a group has LIKE_FILES or more."""
    by_size: dict[int, list[SmallFile]] = defaultdict(list)
    for file in small_files(table, SMALL_BYTES):
        by_size[int(math.log(max(1, file.size_bytes), LIKE_FILES))].append(file)
    return [files[:FILES_AT_ONCE] for _, files in sorted(by_size.items()) if len(files) >= LIKE_FILES]


def join_files(
    table: DeltaTable, lake_uri: str, name: str, files: Sequence[SmallFile], columns: Sequence[str] = ()
) -> None:
    """Write the rows of the files into new ones, ordered by `columns` where some are named, in one transaction.

    Raises what reading, writing and committing raise. The table is then as it was and no new file is left, unless the
    commit itself failed in an unknown way: it may have landed, so its files stay.
    """
    folder = table_folder(lake_uri, name, {file.path: file.size_bytes for file in files})
    schema = _schema_of(folder, files, pa.schema(table.schema().to_arrow()))
    writer = TableWriter(lake_uri, name, schema, f"joined-{table.version():08d}", JOINED_GROUP_BYTES)
    try:
        for rows in _parts(folder, files, schema, sorted_by=columns):
            for batch in rows.to_batches(max_chunksize=ROWS_AT_ONCE):
                writer.write(batch)
        written = writer.close()
    except BaseException:
        writer.abandon()
        raise
    now_ms = time.time_ns() // 1_000_000
    adds = [AddAction(file.path, file.size_bytes, {}, now_ms, False, file.statistics) for file in written]
    removes = [RemoveAction(file.path, False, now_ms, file.size_bytes, {}) for file in files]
    try:
        _commit(table, adds, removes)
    except InputError:
        writer.abandon()
        raise


def _commit(table: DeltaTable, adds: Sequence[AddAction], removes: Sequence[RemoveAction]) -> None:
    """Commit right after a version that has all the files, or not at all. Raises FilesChangedError, InputError.

    A store may take a commit and lose its answer; the next attempt then finds the new files there. Any other error than
    those two leaves open whether the commit landed.

    deltalake's own retries let a transaction pass that changes no row, also where another one has removed the files
    that it read: their rows would be there twice, or deleted ones again.
    """
    at_once = CommitProperties(max_commit_retries=0)
    added, removed = ({action.path for action in actions} for actions in (adds, removes))
    for attempt in range(COMMIT_ATTEMPTS + 1):
        present = set(pa.table(table.get_add_actions()).column("path").to_pylist())
        if added and added <= present:
            return
        if not removed <= present:
            raise FilesChangedError(table.table_uri, "another run changed files while they were joined: maintain again")
        if attempt == COMMIT_ATTEMPTS:
            break
        try:
            table.create_write_transaction([*adds, *removes], "append", table.schema(), commit_properties=at_once)
        except CommitFailedError:
            time.sleep(min(0.05 * 2**attempt, 2.0))
            table.update_incremental()
        else:
            return
    raise InputError(table.table_uri, f"{COMMIT_ATTEMPTS} attempts to commit joined files met other commits")


def _parts(
    folder: pafs.FileSystem, files: Sequence[SmallFile], schema: pa.Schema, sorted_by: Sequence[str]
) -> Iterator[pa.Table]:
    """The rows of all files in turn; parts of SORTED_BYTES, each in order, where `sorted_by` names columns."""
    if not sorted_by:
        yield from (rows for file in files for rows in _rows(folder, file, schema))
        return
    order = [(column, "ascending") for column in sorted_by]
    pending: list[pa.Table] = []
    for file in files:
        for rows in _rows(folder, file, schema):
            pending.append(rows)
            if sum(part.nbytes for part in pending) >= SORTED_BYTES:
                yield pa.concat_tables(pending).sort_by(order)
                pending = []
    if pending:
        yield pa.concat_tables(pending).sort_by(order)


def _rows(folder: pafs.FileSystem, file: SmallFile, schema: pa.Schema) -> Iterator[pa.Table]:
    """A file's rows, some thousand at a time, in the table's schema: columns that came later are null."""
    with folder.open_input_file(file.path) as source:
        parquet = pq.ParquetFile(source)
        for batch in parquet.iter_batches(batch_size=ROWS_AT_ONCE):
            rows = pa.Table.from_batches([batch])
            for field in schema:
                if field.name not in rows.schema.names:
                    rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
            yield rows.select(schema.names).cast(schema)


def _schema_of(folder: pafs.FileSystem, files: Sequence[SmallFile], declared: pa.Schema) -> pa.Schema:
    """The table's columns, their types as in the files where all agree: Delta declares what lists hold as nullable."""
    types: dict[str, set[pa.DataType]] = {field.name: set() for field in declared}
    for file in files:
        with folder.open_input_file(file.path) as source:
            for field in pq.read_schema(source):
                types.setdefault(field.name, set()).add(field.type)
    agreed = {field.name: _agreed(types[field.name], field.type) for field in declared}
    return pa.schema([pa.field(field.name, agreed[field.name], field.nullable) for field in declared])


def _agreed(written: set[pa.DataType], declared: pa.DataType) -> pa.DataType:
    only = next(iter(written)) if len(written) == 1 else declared
    return only if _nullable(only) == _nullable(declared) else declared


def _nullable(type_: pa.DataType) -> str:
    """The type as text, whatever may be null in it."""
    return str(type_).replace(" not null", "")


def _milliseconds(modified: object) -> int:
    """A modification time as milliseconds: deltalake gives a moment or a number."""
    return modified if isinstance(modified, int) else int(modified.timestamp() * 1000)  # type: ignore[attr-defined]
