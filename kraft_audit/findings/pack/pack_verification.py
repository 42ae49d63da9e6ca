"""Verifies an evidence pack: every file against its manifest, the manifest against its signature and what is expected.

A manifest that was renewed after a change agrees with its files. Only what somebody wrote down elsewhere, its SHA-256
or the public key, shows such a change.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraft_audit.findings.pack.evidence_pack import CHAIN, FORMAT, MANIFEST, SIGNATURE
from kraft_audit.findings.pack.signed_statement import NoStatementError, SignedStatement, read_statement

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
    if manifest["format"] != FORMAT:
        problems.append(f"{MANIFEST}: format {manifest['format']!r}, expected {FORMAT!r}")
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
