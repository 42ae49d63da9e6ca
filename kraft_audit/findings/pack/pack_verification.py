"""Verifies an evidence pack by itself, and compares it with an earlier pack of its cluster.

Every file is compared with the manifest, the manifest with its signature and with what is expected. A manifest that
was renewed after a change agrees with its files: only what somebody wrote down elsewhere, its SHA-256 or the public
key, shows such a change.

What is committed never changes. So a block of committed batches that two packs have is the same in both: the same
identities (offsets, epochs, CRCs), and on each disk the same bytes. Bytes that differ under the same identities were
altered so that their CRC still fits, be it on all disks alike. A disk whose log ends before what it held has lost it.
What the later pack has no block of is not compared: Kafka deleted it, or the disks that held it were not captured.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraft_audit.capture.log_parts import uncovered
from kraft_audit.findings.pack.batch_chain import OffsetSpan
from kraft_audit.findings.pack.evidence_pack import CAPTURES_FILE, CHAIN, MANIFEST, PACK_FORMAT, SIGNATURE
from kraft_audit.findings.pack.signed_statement import NoStatementError, SignedStatement, read_statement
from kraft_audit.rules.columns.captures import replica_end, replica_name
from kraft_audit.text.readable import offset_span

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MEMBER_BYTES_MAX: Final = 1 << 30
ALL_BYTES_MAX: Final = 1 << 32
_CHUNK: Final = 1 << 20
_KEPT: Final = (MANIFEST, SIGNATURE)


PackRow = dict[str, Any]
PackedDisk = tuple[int | None, str]
"""Node id and directory id."""


@dataclass(frozen=True, slots=True)
class PackChain:
    """What a pack has of one cluster: the rows of its chain of batches, and those of its captures."""

    cluster_id: str
    rows: Sequence[PackRow]
    captures: Sequence[PackRow]


@dataclass(frozen=True, slots=True)
class PackVerdict:
    """What `verify_pack` found: `problems` is empty where every file is as the manifest says.

    `is_readable` is False for what is no pack at all. `signed_by` are the ids of the keys that a statement in the pack
    names; `is_signature_valid` is None where no key was given to check it with.
    """

    manifest_sha256: str | None
    file_count: int
    problems: tuple[str, ...]
    is_readable: bool = True
    signed_by: tuple[str, ...] = ()
    is_signature_valid: bool | None = None

    @property
    def is_whole(self) -> bool:
        return not self.problems


def verify_pack(path: Path, *, expected: str | None = None, key: Ed25519PublicKey | None = None) -> PackVerdict:
    """Compares every file of a pack with its manifest. Reads no more than the limits, whatever the zip claims.

    `expected` is the SHA-256 that the manifest must have, and `key` the public key that must have signed it.
    """
    try:
        with zipfile.ZipFile(path) as pack:
            return _verdict(pack, expected, key)
    except _NOT_A_PACK as error:
        return PackVerdict(None, 0, (f"cannot be read as an evidence pack: {_refusal(error)}",), is_readable=False)


def pack_chains(path: Path) -> list[PackChain]:
    """The chains of batches in a pack that `verify_pack` found whole, one of each cluster."""
    with zipfile.ZipFile(path) as pack:
        clusters = json.loads(_read(pack, pack.getinfo(MANIFEST))[1])["clusters"]
        chains = []
        for info in pack.infolist():
            folder, _, name = info.filename.partition("/")
            if name == CHAIN:
                cluster_id = str(clusters[int(folder.partition("-")[0])])
                captures = _rows(pack, pack.getinfo(f"{folder}/{CAPTURES_FILE}.jsonl"))
                chains.append(PackChain(cluster_id, _rows(pack, info), captures))
        return chains


def _rows(pack: zipfile.ZipFile, info: zipfile.ZipInfo) -> list[PackRow]:
    return [json.loads(line) for line in _read(pack, info, keeps=True)[1].splitlines()]


_NOT_A_PACK: Final = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    # zipfile says RuntimeError of encrypted members, and NotImplementedError, one of its kind, of unknown compression
    *(ValueError, KeyError, TypeError, AttributeError, RuntimeError),
)


class _TooLargeError(ValueError):
    """A file that is too large to be evidence: nothing more of the pack is read."""


def _refusal(error: Exception) -> str:
    """Why a file is no pack, in words that need no Python."""
    if isinstance(error, _TooLargeError):
        return str(error)
    if isinstance(error, KeyError):
        return f"no {MANIFEST} that lists its files"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "no zip, or a damaged one"


def _verdict(pack: zipfile.ZipFile, expected: str | None, key: Ed25519PublicKey | None) -> PackVerdict:
    infos = pack.infolist()
    names = [info.filename for info in infos]
    problems = [f"{name}: more than once" for name in sorted({name for name in names if names.count(name) > 1})]
    if sum(info.file_size for info in infos) > ALL_BYTES_MAX:
        return PackVerdict(None, len(infos), (*problems, "larger than any pack"))
    digest, content = _read(pack, pack.getinfo(MANIFEST))
    manifest = json.loads(content)
    if manifest["format"] != PACK_FORMAT:
        problems.append(f"{MANIFEST}: format {manifest['format']!r}, expected {PACK_FORMAT!r}")
    if expected is not None and digest != expected.lower():
        problems.append(f"{MANIFEST}: its SHA-256 is {digest}, expected {expected.lower()}")
    statement, signature_problems = _signature(pack, names, digest, key)
    problems += signature_problems
    listed: dict[str, Any] = manifest["files"]
    for name in sorted(listed.keys() - set(names)):
        problems.append(f"{name}: missing")
    others = [info for info in infos if info.filename not in _KEPT]
    for info in others:
        if info.filename not in listed:
            problems.append(f"{info.filename}: not in the manifest")
        elif (problem := _difference(pack, info, listed[info.filename]["sha256"])) is not None:
            problems.append(f"{info.filename}: {problem}")
    return PackVerdict(
        digest,
        len(others),
        tuple(problems),
        signed_by=() if statement is None else statement.key_ids,
        is_signature_valid=None if key is None else not signature_problems,
    )


def _signature(
    pack: zipfile.ZipFile, names: list[str], digest: str, key: Ed25519PublicKey | None
) -> tuple[SignedStatement | None, list[str]]:
    """The statement in a pack, and what is wrong with it: without a key, only whether it is about this manifest."""
    if SIGNATURE not in names:
        return None, [] if key is None else [f"{SIGNATURE}: missing: the pack is not signed"]
    try:
        statement = read_statement(_read(pack, pack.getinfo(SIGNATURE))[1])
    except NoStatementError as problem:
        return None, [f"{SIGNATURE}: {problem}"]
    problems = []
    if statement.manifest_sha256 != digest:
        problems.append(
            f"{SIGNATURE}: states the SHA-256 {statement.manifest_sha256} of {MANIFEST}, which has {digest}"
        )
    if key is not None and not statement.is_signed_by(key):
        problems.append(f"{SIGNATURE}: not signed by this key")
    return statement, problems


def _difference(pack: zipfile.ZipFile, info: zipfile.ZipInfo, expected: str) -> str | None:
    try:
        return None if _read(pack, info)[0] == expected else "SHA-256 differs"
    except _TooLargeError:
        raise
    except _NOT_A_PACK:
        return "damaged"


def _read(pack: zipfile.ZipFile, info: zipfile.ZipInfo, *, keeps: bool = False) -> tuple[str, bytes]:
    """The SHA-256 of a member, and its content where it is the manifest or the signature, or `keeps` says so."""
    digest = hashlib.sha256()
    content = bytearray()
    size = 0
    with pack.open(info) as member:
        while chunk := member.read(_CHUNK):
            size += len(chunk)
            if size > MEMBER_BYTES_MAX:
                raise _TooLargeError(f"{info.filename} is larger than any file of a pack")
            digest.update(chunk)
            if keeps or info.filename in _KEPT:
                content += chunk
    return digest.hexdigest(), bytes(content)


@dataclass(frozen=True, slots=True)
class PackComparison:
    """What became of the committed batches that an earlier pack has of a cluster.

    `equal` counts its blocks that are as they were, and `to_offset` is the end of the last of them; None where none is.
    `not_compared` are the offsets that no block of the later pack covers, merged, ascending. `reason` says why nothing
    could be compared, where a whole cluster could not.
    """

    cluster_id: str
    equal: int = 0
    to_offset: int | None = None
    not_compared: tuple[OffsetSpan, ...] = ()
    contradictions: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def is_decided(self) -> bool:
        """Whether everything was compared that the earlier pack proves committed."""
        return self.to_offset is not None and not self.not_compared


def earlier_spans(chains: Iterable[PackChain], cluster_id: str) -> set[OffsetSpan]:
    """The blocks of a pack's clusters of this id: a later pack says of each of them what it would be now."""
    return {span for chain in chains if chain.cluster_id == cluster_id for span in _by_span(chain.rows)}


def compare_packs(earlier: Sequence[PackChain], later: Iterable[PackChain]) -> list[PackComparison]:
    """Each cluster of the later pack against the chain of that id in the earlier one: of several the one that fits.

    A cluster that only one of the packs has is not compared.
    """
    compared = []
    matched: set[int] = set()
    for after in later:
        candidates = {
            number: _compared(before, after)
            for number, before in enumerate(earlier)
            if before.cluster_id == after.cluster_id
        }
        if not candidates:
            compared.append(PackComparison(after.cluster_id, reason="the earlier pack does not have this cluster"))
            continue
        best = max(candidates, key=lambda number: (candidates[number].equal, -len(candidates[number].contradictions)))
        matched.add(best)
        compared.append(candidates[best])
    for number, before in enumerate(earlier):
        if number not in matched and _committed(before.rows):
            compared.append(PackComparison(before.cluster_id, reason="this pack does not have this cluster"))
    return compared


def _compared(earlier: PackChain, later: PackChain) -> PackComparison:
    """Block by block of the earlier pack. A disk that is new in the later one may hold what any disk held before."""
    rows_by_span, committed = _by_span(later.rows), _committed(earlier.rows)
    held: dict[OffsetSpan, set[str]] = defaultdict(set)
    own: dict[tuple[PackedDisk, OffsetSpan], str] = {}
    for span, rows in _by_span(earlier.rows).items():
        for row in rows:
            if row["bytes_block"] is not None:
                held[span].add(row["bytes_block"])
                own[_disk(row), span] = row["bytes_block"]
    lost = list(_lost(earlier, later))
    equal: list[OffsetSpan] = []
    different: list[OffsetSpan] = [span for span, _ in lost]
    contradictions = [f"{offset_span(*span)}: {problem}" for span, problem in lost]
    for span, identity in sorted(committed.items()):
        problems = []
        is_compared = False
        for row in rows_by_span.get(span, ()):
            block = row["bytes_block"]
            is_compared = is_compared or block is not None or not held[span]
            if row["identity_block"] != identity:
                problems.append(f"{_holder(row)} has other committed batches than before")
            elif block is not None and held[span] and block not in {own.get((_disk(row), span), block)} & held[span]:
                problems.append(f"{_holder(row)} has other bytes than before, under the same CRCs")
        contradictions += [f"{offset_span(*span)}: {problem}" for problem in problems]
        if problems:
            different.append(span)
        elif is_compared:
            equal.append(span)
    compared = sorted([*equal, *different])
    return PackComparison(
        earlier.cluster_id,
        len(equal),
        max((to_offset for _, to_offset in equal), default=None),
        tuple(part for span in _merged(committed) for part in uncovered(*span, compared)),
        tuple(contradictions),
    )


def _lost(earlier: PackChain, later: PackChain) -> Iterator[tuple[OffsetSpan, str]]:
    """The disks of both packs whose log now ends before the end of the committed batches that they held before."""
    newest: dict[PackedDisk, PackRow] = {}
    for capture in sorted(later.captures, key=lambda row: (row["capture_number"], row["root"], row["path"])):
        newest[_disk(capture)] = capture
    for disk, (start, end) in sorted(_held_by_disks(earlier.rows).items()):
        now = newest.get(disk)
        if now is not None and now["accepted"] and now["log_end_offset"] is not None and replica_end(now) < end:
            span = (max(start, replica_end(now)), end)
            is_damaged = now["bytes_unread"] or now["bytes_quarantined"]
            problem = "has damaged bytes in place of" if is_damaged else "lacks"
            yield span, f"{replica_name(now)} {problem} committed batches that it held before"


def _held_by_disks(rows: Iterable[PackRow]) -> dict[PackedDisk, OffsetSpan]:
    """From where to where each disk of a known node holds committed batches."""
    held: dict[PackedDisk, OffsetSpan] = {}
    for row in rows:
        if "from_offset" in row and row["node_id"] is not None:
            start, end = held.get(_disk(row), (row["from_offset"], 0))
            held[_disk(row)] = (min(start, row["from_offset"]), max(end, row["to_offset"]))
    return held


def _merged(spans: Iterable[OffsetSpan]) -> Iterator[OffsetSpan]:
    merged: list[OffsetSpan] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    yield from merged


def _by_span(rows: Iterable[PackRow]) -> dict[OffsetSpan, list[PackRow]]:
    rows_by_span: dict[OffsetSpan, list[PackRow]] = defaultdict(list)
    for row in rows:
        if "from_offset" in row:
            rows_by_span[row["from_offset"], row["to_offset"]].append(row)
    return rows_by_span


def _committed(rows: Iterable[PackRow]) -> dict[OffsetSpan, str]:
    """The identities that were committed, by span. A disk's blocks have others where its log begins later."""
    whole: dict[OffsetSpan, str] = {}
    of_disks: dict[OffsetSpan, str] = {}
    for row in rows:
        if "from_offset" in row:
            span = (row["from_offset"], row["to_offset"])
            (whole if row["path"] is None else of_disks).setdefault(span, row["identity_block"])
    return {**of_disks, **whole}


def _disk(row: PackRow) -> PackedDisk:
    return (row["node_id"], row["directory_id"] or "")


def _holder(row: PackRow) -> str:
    return "the cluster" if row["path"] is None else replica_name(row)
