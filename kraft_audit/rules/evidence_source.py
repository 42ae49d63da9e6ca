"""Reads again what stands behind findings: the records as redacted JSON, and the raw headers of their batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from kraft_audit.replay.analyze import analyze
from kraft_audit.replay.cluster import OpenStorage
from kraft_audit.replay.emit import TableRows
from kraft_audit.replay.plan import ClusterPlan
from kraft_audit.replay.survey import UNREAD, unread_by_now
from kraft_audit.rules.evidence import HEADER_BYTES, ClusterEvidence, header_rows, records_behind, wanted_offsets
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import Finding
from kraft_codec.errors import CodecError, InputError
from kraft_codec.random_access import Storage, join
from kraft_codec.redaction import Redactor
from kraft_codec.tables import DECODE_ERRORS, RECORDS


def gather(
    plan: ClusterPlan,
    history: ClusterHistory,
    findings: Sequence[Finding],
    *,
    open_storage: OpenStorage,
    redactor: Redactor,
) -> ClusterEvidence:
    """What a pack holds of one cluster. A header that cannot be read any more has its reason instead of bytes.

    Raises ChangedError where records cannot be read any more that the findings stand on.
    """
    offsets = wanted_offsets(findings)
    records: list[dict[str, Any]] = []
    if offsets:
        tables = frozenset({RECORDS.name, DECODE_ERRORS.name})
        rows = analyze(plan, tables, open_storage=open_storage, redactor=redactor)
        records = list(records_behind(_records(rows, history), offsets))
    headers = list(_headers(header_rows(history, offsets), open_storage))
    return ClusterEvidence(history, findings, records, headers)


def _records(rows: Iterable[TableRows], history: ClusterHistory) -> Iterator[pa.RecordBatch]:
    """The records; raises ChangedError where a file was read for the history and is not for them."""
    unread = {_file_of(row) for row in history.rows(DECODE_ERRORS.name) if row["reason"] in UNREAD}
    for name, batch in rows:
        if name == RECORDS.name:
            yield batch
            continue
        for row in batch.to_pylist():
            if row["reason"] in UNREAD and _file_of(row) not in unread:
                raise unread_by_now(_file_of(row), row["reason"], row["detail"], row["position"] or 0)


def _file_of(row: Mapping[str, Any]) -> tuple[str, str, str | None]:
    return row["root"], row["path"], row["file_name"]


def _headers(rows: Sequence[Mapping[str, Any]], open_storage: OpenStorage) -> Iterator[dict[str, Any]]:
    """Each row with `header`: the 61 bytes before the records, as hexadecimal digits; they hold no secret."""
    with ExitStack() as stack:
        storages: dict[str, Storage] = {}
        for row in rows:
            told: dict[str, Any] = dict(row)
            try:
                if row["root"] not in storages:
                    storages[row["root"]] = stack.enter_context(open_storage(row["root"]))
                path = join(row["path"], row["file_name"])
                told["header"] = _bytes_at(storages[row["root"]], path, row["position"])
            except (CodecError, InputError) as error:
                told["header"] = None
                told["header_unread"] = str(error)
            yield told


def _bytes_at(storage: Storage, path: str, position: int) -> str:
    file = storage.open(path)
    try:
        return bytes(file.read_at(position, HEADER_BYTES)).hex()
    finally:
        file.close()
