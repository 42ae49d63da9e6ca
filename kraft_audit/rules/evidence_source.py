"""Reads again what stands behind findings: the records as redacted JSON, and the raw headers of their batches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from kraft_audit.replay.analyze import analyze
from kraft_audit.replay.cluster import OpenStorage
from kraft_audit.replay.emit import TableRows
from kraft_audit.replay.plan import ClusterPlan
from kraft_audit.replay.survey import UNREAD, unread_by_now
from kraft_audit.rules.evidence import HEADER_BYTES, ClusterEvidence, header_rows, records_behind, wanted_offsets
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import Finding
from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.file_names import printable
from kraft_codec.file_uris import file_path
from kraft_codec.random_access import RandomAccess, Storage, join
from kraft_codec.redaction import Redactor
from kraft_codec.tables import DECODE_ERRORS, RECORDS

HASHED_AT_ONCE: Final = 1 << 20
HASHED_BYTES_MAX: Final = 16 << 30
"""No file of a metadata log dir is larger; one that claims to be is mostly a hole."""


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
    return ClusterEvidence(history, findings, records, headers, tuple(sources_of(plan, open_storage)))


def sources_of(plan: ClusterPlan, open_storage: OpenStorage) -> Iterator[dict[str, Any]]:
    """Each file that was read, with its SHA-256: of its first `size_bytes` bytes, as a live file may have grown since.

    One that cannot be read any more, or holds more than any file of a log dir, has its reason instead.
    """
    with ExitStack() as stack:
        storages: dict[str, Storage] = {}
        for replica in sorted(plan.replicas, key=lambda one: one.sort_key):
            for file in replica.files:
                path = join(replica.path, file.name)
                told: dict[str, Any] = {"root": printable(replica.root), "path": printable(path), "sha256": None}
                try:
                    if replica.root not in storages:
                        storages[replica.root] = stack.enter_context(open_storage(replica.root))
                    with storages[replica.root].open(path, file.size_bytes) as opened:
                        told |= {"size_bytes": opened.size_bytes, "sha256": _sha256(opened)}
                except (CodecError, InputError) as error:
                    told["unread"] = str(error)
                yield told


def archive_source(root: str) -> dict[str, Any] | None:
    """An archive itself, whole, where it is a file of this machine; None for a folder and for what lies elsewhere."""
    file = Path(file_path(root) or root)
    try:
        if not file.is_file():
            return None
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256")
            size_bytes = opened.tell()
    except OSError as error:
        return {"root": printable(root), "path": "", "sha256": None, "unread": error.strerror or str(error)}
    return {"root": printable(root), "path": "", "size_bytes": size_bytes, "sha256": digest.hexdigest()}


def _sha256(file: RandomAccess) -> str:
    if file.size_bytes > HASHED_BYTES_MAX:
        raise CodecError(Reason.LIMIT, 0, f"{file.size_bytes} bytes, expected at most {HASHED_BYTES_MAX}")
    digest = hashlib.sha256()
    for position in range(0, file.size_bytes, HASHED_AT_ONCE):
        digest.update(file.read_at(position, min(HASHED_AT_ONCE, file.size_bytes - position)).tobytes())
    return digest.hexdigest()


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
