"""The evidence pack: what was found and what it rests on, in one zip that anybody can check years later.

It holds findings, captures, damage, the records and batch headers that the findings rest on, and a manifest with the
SHA-256 of every file, and of every file that was read for it; a signed statement about the manifest where there was a
key (`pack_verification` checks both). Secrets are fingerprints as everywhere. One history, made
into a pack at one time, gives the same bytes. Two packs of one input under one key differ by when they were made, and
by when each captured file was read, alone.
"""

from __future__ import annotations

import hashlib
import json
import platform
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.replica import OpenStorage, opened_once
from kraft_audit.findings.finding_formats import check_document
from kraft_audit.findings.loss_rows import loss_rows
from kraft_audit.findings.pack.batch_chain import OffsetSpan, chain_of_cluster
from kraft_audit.findings.pack.custody import custody_rows
from kraft_audit.findings.pack.signed_statement import signed_statement
from kraft_audit.reading import ClusterReading
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.log_batches import log_batches, rows_of_held
from kraft_audit.rules.rule_model import Finding, Status
from kraft_audit.text.text_files import whole_file
from kraft_codec.errors import CodecError, InputError, Reason
from kraft_codec.file_names import printable
from kraft_codec.storage.opener import file_path
from kraft_codec.storage.random_access import RandomAccess, Storage, join

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MANIFEST: Final = "manifest.json"
SIGNATURE: Final = "manifest.dsse.json"
"""The signed statement about the manifest: the one file that the manifest cannot list."""
CHAIN: Final = "chain.jsonl"
CAPTURES_FILE: Final = "captures"
PACK_FORMAT: Final = "kraft-audit evidence 1"
RECORDS_MAX: Final = 50_000
HEADER_BYTES: Final = 61
HASHED_BYTES_MAX: Final = 16 << 30
"""No file of a metadata log dir is larger; one that claims to be is mostly sparse."""
_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ClusterEvidence:
    """What one cluster adds to a pack: records and headers as `wanted_offsets` and `header_rows` name them.

    `sources` are the files that it was read from, each with its SHA-256. `picture` is what happened, as an SVG. `chain`
    and `differences` are those of the committed batches (`batch_chain`). `custody`: how each copy came from its disk.
    `changes`: what admin requests changed, and who did it where an authorizer log says so.
    """

    history: ClusterHistory
    findings: Sequence[Finding]
    records: Sequence[Mapping[str, Any]] = ()
    headers: Sequence[Mapping[str, Any]] = ()
    sources: Sequence[Mapping[str, Any]] = ()
    picture: str | None = None
    chain: Sequence[Mapping[str, Any]] = ()
    differences: Sequence[Mapping[str, Any]] = ()
    custody: Sequence[Mapping[str, Any]] = ()
    changes: Sequence[Mapping[str, Any]] = ()


def gather(
    reading: ClusterReading,
    history: ClusterHistory,
    findings: Sequence[Finding],
    open_storage: OpenStorage,
    spans: Collection[OffsetSpan] = (),
) -> ClusterEvidence:
    """What a pack holds of one cluster: the records of the reading that the findings stand on, and headers of batches.

    A header that cannot be read any more has its reason instead of bytes. `spans`: the blocks of an earlier pack.
    """
    offsets = wanted_offsets(findings)
    records = []
    if offsets:
        records = list(records_behind(reading.log_records(offsets[0], offsets[-1] + 1), offsets))
    headers = list(_headers(header_rows(history, offsets), open_storage))
    chain, differences = chain_of_cluster(history, reading.plan, open_storage, spans)
    sources = tuple(sources_of(reading.plan, open_storage))
    custody = tuple(custody_rows(reading.plan, open_storage))
    return ClusterEvidence(
        history, findings, records, headers, sources, chain=chain, differences=differences, custody=custody
    )


def sources_of(plan: ClusterPlan, open_storage: OpenStorage) -> Iterator[dict[str, Any]]:
    """Each file that was read, with its SHA-256: of its first `size_bytes` bytes, as a live file may have grown since.

    One that cannot be read any more, or holds more than any file of a log dir, has its reason instead.
    """
    with opened_once(open_storage) as storage_of:
        for replica in sorted(plan.replicas, key=lambda replica: replica.sort_key):
            for file in replica.files:
                path = join(replica.path, file.name)
                source: dict[str, Any] = {"root": printable(replica.root), "path": printable(path), "sha256": None}
                try:
                    with storage_of(replica.root).open(path, file.size_bytes) as opened:
                        source |= {"size_bytes": opened.size_bytes, "sha256": _sha256(opened)}
                except (CodecError, InputError) as error:
                    source["unread"] = str(error)
                yield source


def archive_source(root: str) -> dict[str, Any] | None:
    """A whole archive, where it is a file of this machine; None for a folder and for a file elsewhere."""
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
    return file.sha256(file.size_bytes)


def _headers(rows: Sequence[Mapping[str, Any]], open_storage: OpenStorage) -> Iterator[dict[str, Any]]:
    """Each row with `header`: the 61 bytes before the records, as hexadecimal digits; they hold no secret."""
    with opened_once(open_storage) as storage_of:
        for row in rows:
            header: dict[str, Any] = dict(row)
            try:
                path = join(row["path"], row["file_name"])
                header["header"] = _bytes_at(storage_of(row["root"]), path, row["position"])
            except (CodecError, InputError) as error:
                header["header"] = None
                header["header_unread"] = str(error)
            yield header


def _bytes_at(storage: Storage, path: str, position: int) -> str:
    with storage.open(path) as file:
        return bytes(file.read_at(position, HEADER_BYTES)).hex()


def wanted_offsets(findings: Iterable[Finding]) -> list[int]:
    """Offsets of the records that raised and undecided findings rest on, ascending; at most RECORDS_MAX of them."""
    offsets: set[int] = set()
    for finding in findings:
        if finding.status is Status.CLEAR:
            continue
        offsets_of_facts = [fact.offset for fact in finding.evidence]
        offsets.update(
            o for o in (finding.from_offset, finding.to_offset, *offsets_of_facts) if o is not None and o >= 0
        )
    return sorted(offsets)[:RECORDS_MAX]


def records_behind(batches: Iterable[pa.RecordBatch], offsets: Sequence[int]) -> Iterator[dict[str, Any]]:
    """The rows of `records` (as `analyze` gives them) whose offsets are wanted; of the log, not of snapshots."""
    wanted = np.array(offsets, np.int64)
    for batch in batches:
        hits = np.isin(batch.column("offset").to_numpy(), wanted)
        if hits.any():
            yield from (row for row in batch.filter(pa.array(hits)).to_pylist() if row["source"] == "log")


def header_rows(history: ClusterHistory, offsets: Sequence[int]) -> list[dict[str, Any]]:
    """The rows of `batches` that hold the wanted offsets, in every replica: where their headers can be read."""
    batches = log_batches(history)
    wanted = np.array(offsets, np.int64)
    first = np.searchsorted(wanted, batches.base_offset)
    inside = (
        (first < len(wanted)) & (wanted[np.minimum(first, len(wanted) - 1)] <= batches.last_offset)
        if len(wanted)
        else None
    )
    if inside is None:
        return []
    held = batches.as_held(inside)
    order = np.lexsort((held.copy, held.row))[:RECORDS_MAX]
    return rows_of_held(history, held, order)


def write_pack(
    out: Path,
    clusters: Sequence[ClusterEvidence],
    *,
    tool_version: str,
    made_at_ms: int,
    more_sources: Sequence[Mapping[str, Any]] = (),
    key: Ed25519PrivateKey | None = None,
) -> str:
    """Writes the zip; returns the SHA-256 of its manifest, which is worth writing down elsewhere.

    `more_sources`: other files that were read, with their hashes, as the archive that holds all of them. With `key` a
    signed statement about the manifest lies in the zip, too.
    """
    members = dict(_members(clusters))
    manifest = {
        "format": PACK_FORMAT,
        "tool": "kraft-audit",
        "tool_version": tool_version,
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "made_at_ms": made_at_ms,
        "clusters": [cluster.history.cluster_id for cluster in clusters],
        "redacted": True,
        "sources": [
            *more_sources,
            *(source for cluster in clusters for source in cluster.sources),
        ],
        "files": {
            name: {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
            for name, content in sorted(members.items())
        },
    }
    text = _json(manifest)
    digest = hashlib.sha256(text).hexdigest()
    first = [(MANIFEST, text)]
    if key is not None:
        stated = {name: manifest[name] for name in ("tool", "tool_version", "made_at_ms", "clusters")}
        first.append((SIGNATURE, _json(signed_statement(MANIFEST, digest, stated, key))))
    with whole_file(out) as unfinished, zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in [*first, *sorted(members.items())]:
            pack.writestr(zipfile.ZipInfo(name, _ZIP_TIME), content, zipfile.ZIP_DEFLATED)
    return digest


def _members(clusters: Sequence[ClusterEvidence]) -> Iterator[tuple[str, bytes]]:
    for number, cluster in enumerate(clusters):
        folder = f"{number:03d}-{''.join(c if c.isalnum() or c in '-_' else '_' for c in cluster.history.cluster_id)}"
        yield f"{folder}/findings.json", _json(check_document(cluster.findings, show_all=True))
        for name in (CAPTURES_FILE, "watermarks", "voter_sets", "leader_epochs", "decode_errors"):
            yield f"{folder}/{name}.jsonl", _lines(cluster.history.rows(name))
        yield f"{folder}/losses.jsonl", _lines(loss_rows(cluster.history))
        yield f"{folder}/records.jsonl", _lines(cluster.records)
        yield f"{folder}/headers.jsonl", _lines(cluster.headers)
        yield f"{folder}/{CHAIN}", _lines(cluster.chain)
        yield f"{folder}/custody.jsonl", _lines(cluster.custody)
        yield f"{folder}/differences.jsonl", _lines(cluster.differences)
        yield f"{folder}/changes.jsonl", _lines(cluster.changes)
        if cluster.picture is not None:
            yield f"{folder}/picture.svg", cluster.picture.encode()


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, default=str, ensure_ascii=False) + "\n").encode()


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row, sort_keys=True, default=str, ensure_ascii=False) + "\n" for row in rows).encode()
