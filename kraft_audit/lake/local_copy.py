"""A table of an object store, read from this machine: each of its data files is fetched once, whatever is asked of it.

Data files never change under their names, so that the copy of a version has what the version before had.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from kraft_audit.lake.data_files import file_statistics, table_folder
from kraft_audit.lake.joined_files import is_plain

COPIED_BYTES_MAX: Final = 16 << 20
"""A larger table is read where it is: a query then fetches the columns and row groups that it needs."""
FETCHED_AT_ONCE: Final = 16


class LocalCopy:
    """The newest version of one table of a lake that was asked for. The copy goes when this object goes."""

    def __init__(self, lake_uri: str, table: str) -> None:
        self._place = lake_uri, table
        self._folder = tempfile.TemporaryDirectory(prefix="kraft-audit-")
        self._copy: DeltaTable | None = None
        self._version = -1
        self._sizes: dict[str, int] = {}

    def of(self, opened: DeltaTable) -> DeltaTable:
        """The copy of this version of the table, or the table itself where that is large or needs Delta's reader."""
        if self._copy is not None and opened.version() == self._version:
            return self._copy
        if not is_plain(opened):
            return opened
        files = opened.get_add_actions(flatten=True)
        sizes = dict(zip(files.column("path").to_pylist(), files.column("size_bytes").to_pylist(), strict=True))
        if sum(sizes.values()) > COPIED_BYTES_MAX:
            return opened
        source = table_folder(*self._place, sizes)
        with ThreadPoolExecutor(FETCHED_AT_ONCE) as pool:
            new = list(pool.map(partial(self._fetched, source), sizes.keys() - self._sizes.keys()))
        gone = [RemoveAction(path, True, 0) for path in self._sizes.keys() - sizes.keys()]
        if self._copy is None:
            self._copy = DeltaTable.create(self._folder.name, opened.schema())
        if new or gone:
            self._copy.create_write_transaction([*new, *gone], "append", opened.schema())
            self._copy.update_incremental()
        self._version, self._sizes = opened.version(), sizes
        return self._copy

    def _fetched(self, source: pafs.FileSystem, path: str) -> AddAction:
        with source.open_input_file(path) as file:
            octets = file.read()
        place = Path(self._folder.name, path)
        place.write_bytes(octets)
        metadata = pq.read_metadata(place)
        statistics = file_statistics(metadata, metadata.schema.to_arrow_schema())
        return AddAction(path, len(octets), {}, 0, True, statistics)
