"""A signed statement about the manifest of an evidence pack: DSSE 1.0 around an in-toto statement, by Ed25519.

Ed25519 gives the same signature for the same bytes, so that a pack made again of the same evidence is the same to the
byte. The package cryptography (the extra `sign`) is imported only where a key is used. A statement can be read without.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraft_codec.errors import ChoiceError, InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://kraft-audit.invalid/evidence/v1"
KEY_BYTES_MAX: Final = 1 << 16


class NoStatementError(ValueError):
    """Bytes that are no envelope of a statement about a manifest."""


@dataclass(frozen=True, slots=True)
class SignedStatement:
    """A statement as it was signed: the SHA-256 of the manifest, and the ids of the keys that signed it."""

    manifest_sha256: str
    predicate: Mapping[str, Any]
    payload: bytes
    signatures: tuple[tuple[str, bytes], ...]

    @property
    def key_ids(self) -> tuple[str, ...]:
        return tuple(key_id for key_id, _ in self.signatures)

    def is_signed_by(self, key: Ed25519PublicKey) -> bool:
        """Whether any signature is this key's; the key id is a hint and decides nothing."""
        from cryptography.exceptions import InvalidSignature

        signed = encoded(self.payload)
        for _, signature in self.signatures:
            try:
                key.verify(signature, signed)
            except InvalidSignature:
                continue
            return True
        return False


def signed_statement(
    name: str, manifest_sha256: str, predicate: Mapping[str, Any], key: Ed25519PrivateKey
) -> dict[str, Any]:
    """The envelope of a statement about one file, as JSON."""
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": manifest_sha256}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": dict(predicate),
    }
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    signature = {"keyid": key_id_of(key.public_key()), "sig": _base64(key.sign(encoded(payload)))}
    return {"payload": _base64(payload), "payloadType": PAYLOAD_TYPE, "signatures": [signature]}


def read_statement(content: bytes) -> SignedStatement:
    """The statement in an envelope, its signatures not checked yet. Raises NoStatementError."""
    try:
        envelope = json.loads(content)
        if envelope["payloadType"] != PAYLOAD_TYPE:
            raise NoStatementError(f"payload type {envelope['payloadType']!r}, expected {PAYLOAD_TYPE!r}")
        payload = base64.b64decode(envelope["payload"], validate=True)
        signatures = tuple(
            (str(each.get("keyid", "")), base64.b64decode(each["sig"], validate=True))
            for each in envelope["signatures"]
        )
        statement = json.loads(payload)
        if (statement["_type"], statement["predicateType"]) != (STATEMENT_TYPE, PREDICATE_TYPE):
            raise NoStatementError(f"a statement of another type, expected {PREDICATE_TYPE}")
        (subject,) = statement["subject"]
        return SignedStatement(str(subject["digest"]["sha256"]), dict(statement["predicate"]), payload, signatures)
    except NoStatementError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, RecursionError):
        raise NoStatementError("no DSSE envelope of a statement about a manifest") from None


def encoded(payload: bytes) -> bytes:
    """What is signed: the pre-authentication encoding of DSSE 1.0."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def key_id_of(key: Ed25519PublicKey) -> str:
    """SHA-256 of the public key as DER (SubjectPublicKeyInfo), hexadecimal."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def read_private_key(file: Path) -> Ed25519PrivateKey:
    """A key to sign with. Raises ChoiceError, InputError; no message holds a byte of the file."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = _loaded(file, partial(load_pem_private_key, password=None))
    if not isinstance(key, Ed25519PrivateKey):
        raise ChoiceError(str(file), "expected an Ed25519 private key as PEM, without a password")
    return key


def read_public_key(file: Path) -> Ed25519PublicKey:
    """A key to verify with. Raises ChoiceError, InputError."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = _loaded(file, load_pem_public_key)
    if not isinstance(key, Ed25519PublicKey):
        raise ChoiceError(str(file), "expected an Ed25519 public key as PEM")
    return key


def _loaded(file: Path, load: Callable[[bytes], object]) -> object | None:
    """The key in a file; None where it holds none that can be loaded. Raises InputError."""
    from cryptography.exceptions import UnsupportedAlgorithm

    content = _content(file)
    try:
        return load(content)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(KEY_BYTES_MAX)
    except OSError as error:
        raise InputError(str(file), f"cannot be read: {error.strerror or error}") from None


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
