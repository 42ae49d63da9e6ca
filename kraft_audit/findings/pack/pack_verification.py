"""Verifies an evidence pack by itself, and compares it with an earlier pack of its cluster.

Every file is compared with the manifest, the manifest with its signature and with what is expected. A manifest that
was renewed after a change agrees with its files: only what somebody wrote down elsewhere, its SHA-256 or the public
key, shows such a change.

What is committed never changes. So a block of committed batches that two packs have is the same in both: the same
identities (offsets, epochs, CRCs), and on each disk the same bytes. Bytes that differ under the same identities were
altered so that their CRC still fits, be it on all disks alike.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraft_audit.findings.pack.evidence_pack import CHAIN, MANIFEST, PACK_FORMAT, SIGNATURE
from kraft_audit.findings.pack.signed_statement import NoStatementError, SignedStatement, read_statement
from kraft_audit.rules.columns.captures import replica_name
from kraft_audit.text.readable import offset_span

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MEMBER_BYTES_MAX: Final = 1 << 30
ALL_BYTES_MAX: Final = 1 << 32
_CHUNK: Final = 1 << 20
_KEPT: Final = (MANIFEST, SIGNATURE)


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


def pack_chains(path: Path) -> list[tuple[str, list[dict[str, Any]]]]:
    """Of each cluster of a pack that `verify_pack` found whole: its id, and the rows of its chain of batches."""
    with zipfile.ZipFile(path) as pack:
        clusters = json.loads(_read(pack, pack.getinfo(MANIFEST))[1])["clusters"]
        chains = []
        for info in pack.infolist():
            if info.filename.endswith(f"/{CHAIN}"):
                number = int(info.filename.partition("-")[0])
                lines = _read(pack, info, keeps=True)[1].splitlines()
                chains.append((str(clusters[number]), [json.loads(line) for line in lines]))
        return chains


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


PackRow = Mapping[str, Any]
OffsetSpan = tuple[int, int]
Chains = Sequence[tuple[str, list[dict[str, Any]]]]


@dataclass(frozen=True, slots=True)
class PackComparison:
    """How many blocks of the earlier pack of a cluster are as they were, how many the later one does not have as such.

    `to_offset` is the end of the last block that is as it was; None where none is.
    """

    cluster_id: str
    equal: int
    not_compared: int
    to_offset: int | None
    contradictions: tuple[str, ...]


def block_ends(chains: Chains, cluster_id: str) -> set[int]:
    """The offsets at which the blocks of a pack's clusters of this id end: a later pack ends blocks there, too."""
    return {row["to_offset"] for id_, rows in chains if id_ == cluster_id for row in rows if "to_offset" in row}


def compare_packs(earlier: Chains, later: Chains) -> list[PackComparison]:
    """Each cluster of the later pack against the chain of that id in the earlier one: of several the one that fits."""
    compared = []
    for cluster_id, rows in later:
        each = [_compared(cluster_id, before, rows) for id_, before in earlier if id_ == cluster_id]
        nothing = PackComparison(cluster_id, 0, 0, None, ())
        compared.append(max(each, key=lambda fit: (fit.equal, -len(fit.contradictions)), default=nothing))
    return compared


def _compared(cluster_id: str, before: Sequence[PackRow], after: Sequence[PackRow]) -> PackComparison:
    """Block by block of the earlier pack. A disk that is new in the later one may hold what any disk held before."""
    later, committed = _by_span(after), _committed(before)
    held: dict[OffsetSpan, set[str]] = defaultdict(set)
    own: dict[tuple[Any, ...], str] = {}
    for span, rows in _by_span(before).items():
        for row in rows:
            if row["bytes_block"] is not None:
                held[span].add(row["bytes_block"])
                own[_disk(row), span] = row["bytes_block"]
    equal, to_offset = 0, None
    contradictions = []
    for span, identity in sorted(committed.items()):
        problems = []
        for row in later.get(span, ()):
            block = row["bytes_block"]
            if row["identity_block"] != identity:
                problems.append(f"{_holder(row)} has other committed batches than before")
            elif block is not None and held[span] and block not in {own.get((_disk(row), span), block)} & held[span]:
                problems.append(f"{_holder(row)} has other bytes than before, under the same CRCs")
        contradictions += [f"{offset_span(*span)}: {problem}" for problem in problems]
        if span in later and not problems:
            equal, to_offset = equal + 1, span[1]
    return PackComparison(
        cluster_id, equal, sum(span not in later for span in committed), to_offset, tuple(contradictions)
    )


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


def _disk(row: PackRow) -> tuple[Any, ...]:
    return (row["node_id"], row["directory_id"])


def _holder(row: PackRow) -> str:
    return "the cluster" if row["path"] is None else replica_name(row)
