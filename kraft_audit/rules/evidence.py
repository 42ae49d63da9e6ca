"""The evidence pack: what was found and what it rests on, in one zip that anybody can check years later.

It holds findings, captures, damage, the records and batch headers behind the findings, and a manifest with the SHA-256
of every file, and of every file that was read for it. Secrets are fingerprints as everywhere. One history, made into a
pack at one time, gives the same bytes. Two packs of one input under one key differ by when they were made, and by when
each captured file was read, alone.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import platform
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kraft_audit.rules.canonical import log_batches
from kraft_audit.rules.exports import check_document
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import Finding, Status
from kraft_audit.whole_file import whole_file

MANIFEST: Final = "manifest.json"
FORMAT: Final = "kraft-audit evidence 1"
RECORDS_MAX: Final = 50_000
MEMBER_BYTES_MAX: Final = 1 << 30
ALL_BYTES_MAX: Final = 1 << 32
HEADER_BYTES: Final = 61
_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)
_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ClusterEvidence:
    """What one cluster adds to a pack: records and headers as `wanted_offsets` and `header_rows` name them.

    `sources` are the files that it was read from, each with its SHA-256.
    """

    history: ClusterHistory
    findings: Sequence[Finding]
    records: Sequence[Mapping[str, Any]] = ()
    headers: Sequence[Mapping[str, Any]] = ()
    sources: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class PackVerdict:
    """What `verify_pack` found: `problems` is empty where every file is as the manifest says.

    `is_readable` is False for what is no pack at all.
    """

    manifest_sha256: str | None
    file_count: int
    problems: tuple[str, ...]
    is_readable: bool = True

    @property
    def is_whole(self) -> bool:
        return not self.problems


def wanted_offsets(findings: Iterable[Finding]) -> list[int]:
    """Offsets of the records behind what was raised or is undecided, ascending; at most RECORDS_MAX of them."""
    offsets: set[int] = set()
    for finding in findings:
        if finding.status is Status.CLEAR:
            continue
        told = [fact.offset for fact in finding.evidence]
        offsets.update(o for o in (finding.from_offset, finding.to_offset, *told) if o is not None and o >= 0)
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
    rows = np.sort(batches.row[inside])[:RECORDS_MAX]
    found: list[dict[str, Any]] = history.table("batches").take(pa.array(rows)).to_pylist()
    return found


def write_pack(
    out: Path,
    clusters: Sequence[ClusterEvidence],
    *,
    tool_version: str,
    made_at_ms: int,
    archive: Mapping[str, Any] | None = None,
) -> str:
    """Writes the zip; returns the SHA-256 of its manifest, which is worth writing down elsewhere.

    `archive` is the file that everything was read from, with its hash, where it was one.
    """
    members = dict(_members(clusters))
    manifest = {
        "format": FORMAT,
        "tool": "kraft-audit",
        "tool_version": tool_version,
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "made_at_ms": made_at_ms,
        "clusters": [cluster.history.cluster_id for cluster in clusters],
        "redacted": True,
        "sources": [*([archive] if archive is not None else []), *(one for own in clusters for one in own.sources)],
        "files": {
            name: {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
            for name, content in sorted(members.items())
        },
    }
    text = _json(manifest)
    with whole_file(out) as unfinished, zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in [(MANIFEST, text), *sorted(members.items())]:
            pack.writestr(zipfile.ZipInfo(name, _ZIP_TIME), content, zipfile.ZIP_DEFLATED)
    return hashlib.sha256(text).hexdigest()


def _members(clusters: Sequence[ClusterEvidence]) -> Iterator[tuple[str, bytes]]:
    for number, cluster in enumerate(clusters):
        folder = f"{number:03d}-{''.join(c if c.isalnum() or c in '-_' else '_' for c in cluster.history.cluster_id)}"
        yield f"{folder}/findings.json", _json(check_document(cluster.findings, show_all=True))
        for name in ("captures", "watermarks", "voter_sets", "leader_epochs", "decode_errors"):
            yield f"{folder}/{name}.jsonl", _lines(cluster.history.rows(name))
        yield f"{folder}/records.jsonl", _lines(cluster.records)
        yield f"{folder}/headers.jsonl", _lines(cluster.headers)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, default=str, ensure_ascii=False) + "\n").encode()


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row, sort_keys=True, default=str, ensure_ascii=False) + "\n" for row in rows).encode()


def verify_pack(path: Path) -> PackVerdict:
    """Compares every file of a pack with its manifest. Reads no more than the limits, whatever the zip claims."""
    try:
        with zipfile.ZipFile(path) as pack:
            return _verdict(pack)
    except _NOT_A_PACK as error:
        return PackVerdict(None, 0, (f"cannot be read as an evidence pack: {_refusal(error)}",), is_readable=False)


_NOT_A_PACK: Final = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    # zipfile says RuntimeError of encrypted members, and NotImplementedError, one of its kind, of unknown compression
    *(ValueError, KeyError, TypeError, AttributeError, RuntimeError),
)


class _TooLargeError(ValueError):
    """A file that nobody packed as evidence: nothing more of it, or of the others, is read."""


def _refusal(error: Exception) -> str:
    """Why a file is no pack, in words that need no Python."""
    if isinstance(error, _TooLargeError):
        return str(error)
    if isinstance(error, KeyError):
        return f"no {MANIFEST} that lists its files"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "no zip, or a damaged one"


def _verdict(pack: zipfile.ZipFile) -> PackVerdict:
    infos = pack.infolist()
    names = [info.filename for info in infos]
    problems = [f"{name}: more than once" for name in sorted({name for name in names if names.count(name) > 1})]
    if sum(info.file_size for info in infos) > ALL_BYTES_MAX:
        return PackVerdict(None, len(infos), (*problems, "larger than any pack"))
    digest, content = _read(pack, pack.getinfo(MANIFEST))
    manifest = json.loads(content)
    if manifest["format"] != FORMAT:
        problems.append(f"{MANIFEST}: format {manifest['format']!r}, expected {FORMAT!r}")
    told: dict[str, Any] = manifest["files"]
    for name in sorted(told.keys() - set(names)):
        problems.append(f"{name}: missing")
    for info in infos:
        if info.filename == MANIFEST:
            continue
        if info.filename not in told:
            problems.append(f"{info.filename}: not in the manifest")
        elif (problem := _difference(pack, info, told[info.filename]["sha256"])) is not None:
            problems.append(f"{info.filename}: {problem}")
    return PackVerdict(digest, len(infos) - 1, tuple(problems))


def _difference(pack: zipfile.ZipFile, info: zipfile.ZipInfo, expected: str) -> str | None:
    try:
        return None if _read(pack, info)[0] == expected else "SHA-256 differs"
    except _TooLargeError:
        raise
    except _NOT_A_PACK:
        return "damaged"


def _read(pack: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[str, bytes]:
    """The SHA-256 of a member, and its content where it is the manifest."""
    digest = hashlib.sha256()
    kept = bytearray()
    size = 0
    with pack.open(info) as member:
        while chunk := member.read(_CHUNK):
            size += len(chunk)
            if size > MEMBER_BYTES_MAX:
                raise _TooLargeError(f"{info.filename} is larger than any file of a pack")
            digest.update(chunk)
            if info.filename == MANIFEST:
                kept += chunk
    return digest.hexdigest(), bytes(kept)
