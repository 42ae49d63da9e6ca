"""Reads a large cluster as one of several tasks, and joins what they left for the last of them.

What a task leaves stands beside the manifests of the plan. Columns are Parquet: what is read back is checked. The
folder is forgotten once the plan is staged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from kraft_audit.capture.plan import ClusterPlan, KnownBatches
from kraft_audit.findings.analysis import Continuation, versions_of
from kraft_audit.findings.kept_state import KeptState
from kraft_audit.findings.shares import FIRST, PartsFound, ShareFound, joined
from kraft_audit.lake.data_files import name_of_history, named_when_whole, write_octets
from kraft_audit.lake.redaction_key import redactor_of
from kraft_audit.lake.staging.archive_reading import history_rows, of_history
from kraft_audit.lake.staging.stage import ReadingEnd
from kraft_audit.lake.staging.stage_parts import staging_folder
from kraft_audit.reading import ReadingSettings
from kraft_audit.rules.carried.carried_rows import facts_of, history_from
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.partition_parts import TableOnDisk
from kraft_audit.tables import STAGED_AS
from kraft_audit.tables.gold import HISTORIES
from kraft_audit.tables.kept_parts import KeptPartsError, pack, unpack
from kraft_codec.errors import InputError
from kraft_codec.storage.opener import StoragePool

TABLE_IN_MEMORY_BYTES_MAX: Final = 32 << 20
"""A larger table of the history is put on disk when it is read back."""
_AT_END, _SETTLED, _FACTS, _STATE, _TABLES = "at_end", "settled", "facts", "state", "tables"


class ShareFiles:
    """The files of one cluster of a plan."""

    def __init__(self, data_uri: str, plan: ClusterPlan) -> None:
        self._plan = plan
        self._data_uri = data_uri
        self._folder = staging_folder(data_uri, plan.number)
        self._name = name_of_history(plan.key)

    def write(self, share: int, share_found: ShareFound) -> None:
        """Leaves what a task found. Raises OSError."""
        parts = {_AT_END: share_found.at_end.to_bytes()}
        if share_found.settled is not None:
            parts[_SETTLED] = share_found.settled.to_bytes()
        if share_found.history is not None:
            names = sorted(share_found.history.tables)
            for name in names:
                self._write_table(name, share_found.history.tables[name])
            parts |= {_FACTS: facts_of(share_found.history), _TABLES: json.dumps(names).encode()}
        if share_found.state is not None:
            parts[_STATE] = share_found.state.to_bytes()
        with self._named(f"{share}.found") as name:
            write_octets(self._folder, name, pack(parts))

    def read(self) -> list[ShareFound]:
        """What all tasks found. Raises KeptPartsError."""
        shares = []
        for share in range(self._plan.shares):
            parts = unpack(self._read(f"{share}.found"))
            each = ShareFound(PartsFound.from_bytes(parts[_AT_END]))
            each.settled = PartsFound.from_bytes(parts[_SETTLED]) if _SETTLED in parts else None
            if share == FIRST:
                each.history = self._history(parts)
                if _STATE in parts:
                    each.state = KeptState.from_bytes(parts[_STATE], versions_of(self._plan))
            shares.append(each)
        return shares

    def _history(self, parts: dict[str, bytes]) -> ClusterHistory:
        tables = {name: self._read_table(name) for name in json.loads(parts[_TABLES])}
        return history_from(parts[_FACTS], replace(self._plan, share=None), tables)

    def _write_table(self, table: str, rows: pa.Table) -> None:
        with (
            self._named(f"{table}.parquet") as name,
            self._folder.open_output_stream(name, buffer_size=1 << 16) as sink,
            pq.ParquetWriter(sink, rows.schema, compression="lz4") as writer,
        ):
            for batch in rows.to_batches():
                writer.write_batch(batch)

    def _read_table(self, table: str) -> pa.Table:
        try:
            with self._folder.open_input_file(f"{self._name}.{table}.parquet") as source:
                file = pq.ParquetFile(source)
                if source.size() <= TABLE_IN_MEMORY_BYTES_MAX:
                    return file.read()
                on_disk = TableOnDisk(file.schema_arrow)
                for batch in file.iter_batches():
                    on_disk.add(batch)
                return on_disk.table()
        except (OSError, pa.ArrowException) as error:
            raise KeptPartsError(f"{table} of a share cannot be read: {error}") from None

    def _read(self, name: str) -> bytes:
        try:
            with self._folder.open_input_file(f"{self._name}.{name}") as source:
                content: bytes = source.read()
        except (OSError, pa.ArrowException) as error:
            raise KeptPartsError(f"what a share found cannot be read: {error}") from None
        return content

    def _named(self, name: str) -> AbstractContextManager[str]:
        return named_when_whole(self._data_uri, self._folder, f"{self._name}.{name}")


class ShareReading:
    """One share of a cluster: its rows, and for the last task what was found."""

    def __init__(self, plan: ClusterPlan, share: int, key: str, known: KnownBatches, lake_uri: str) -> None:
        self._plan = plan
        self._share = share
        self._redactor = redactor_of(plan, key)
        self._known = known
        self._files = ShareFiles(lake_uri, plan)
        self._share_found = ShareFound()

    def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._share == FIRST and (self._plan.aliases or self._plan.merged):
            yield HISTORIES.name, history_rows(self._plan)
        with StoragePool() as pool:
            settings = ReadingSettings(pool.open, self._redactor, known=self._known, stop_on_change=True)
            for name, batch in self._share_found.analyze(self._plan, settings):
                yield STAGED_AS.get(name, name), of_history(batch, self._plan)

    def end(self) -> ReadingEnd:
        redaction_state = json.dumps(self._redactor.short_values(), separators=(",", ":"))
        self._files.write(self._share, self._share_found)
        return ReadingEnd(redaction_state if self._share == FIRST else self._plan.redaction_state)


class JoinReading:
    """What is left of a cluster when all shares were read: no byte of its logs."""

    def __init__(self, plan: ClusterPlan, lake_uri: str) -> None:
        self._plan = plan
        self._files = ShareFiles(lake_uri, plan)
        self._continuation = Continuation()

    def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        try:
            shares = self._files.read()
        except KeptPartsError as error:
            raise InputError(self._plan.name, str(error)) from None
        history, state = shares[FIRST].history, shares[FIRST].state
        if history is None:
            raise InputError(self._plan.name, "the first share left no history")
        for name, batch in joined(self._plan, history, state, shares, self._continuation):
            yield STAGED_AS.get(name, name), of_history(batch, self._plan)

    def end(self) -> ReadingEnd:
        state = self._continuation.next_state
        return ReadingEnd(self._plan.redaction_state, None if state is None else state.to_bytes())
