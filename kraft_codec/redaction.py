"""Secrets become keyed fingerprints before anything leaves the codec: changes show, values do not.

What is secret: the fields marked so in the schemas (SCRAM salts and keys, delegation token ids, config values), except
the values of configs on the allow-list (`kraft_codec.config_allow_list`); and unknown tagged fields of data records,
whose meaning nobody here knows. They are overwritten in place, same length, in the private buffer that was read, after
its CRC was checked.

The forms (n bytes, keyed BLAKE2b under the lake's key, so that no one without it can guess a value and compare):

- text of 25 bytes or more: `redacted:` and up to 43 characters of the hash, then `*`; 8 to 24 bytes: `*` and characters
  of the hash;
- bytes of 8 or more: the hash itself, stretched or cut to n;
- fewer than 8 bytes, where a hash could be guessed by trying: `*`, and at the end a number in 0-9A-Za-z (one character
  for 1 or 2 bytes, two for more) that counts the distinct values which this subject has had. The same value of the same
  subject has the same number again; the numbers start over after 62 or 3,844 values.

So the same value has the same form in the log and in a snapshot; for short ones as long as `short_values` is carried.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraft_codec.config_allow_list import is_public_config
from kraft_codec.message_reader import SecretSpan
from kraft_codec.record import MetadataRecord, read_metadata_value
from kraft_codec.schemas import METADATA_BY_NAME, Field, Type

KEY_BYTES_MIN: Final = 16
SHORT_BYTES_BELOW: Final = 8
_PREFIX: Final = b"redacted:"
_PREFIXED_BYTES_FROM: Final = 25  # leaves 16 characters, 96 bits, of the hash
_COUNT_DIGITS: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_MASK: Final = b"*"
_PURPOSE: Final = b"kraft-audit"

UNKNOWN_FIELD_SUBJECT: Final = "unknown tagged field"


class Redactor:
    """Turns the secrets of one cluster into fingerprints.

    `key` is the lake's (16 bytes at least); `short_values` is what an earlier Redactor of this cluster gave by
    `short_values()`: per subject the keyed hashes of its short values, in the order in which they were first seen.
    """

    def __init__(self, key: bytes, short_values: Mapping[str, Sequence[str]] | None = None) -> None:
        if len(key) < KEY_BYTES_MIN:
            raise ValueError(f"a redaction key of {len(key)} bytes: expected {KEY_BYTES_MIN} at least")
        self._key = hashlib.blake2b(key, digest_size=32, person=_PURPOSE).digest()
        self._short_values: dict[str, dict[str, int]] = {
            subject: {hashed: number for number, hashed in enumerate(hashes)}
            for subject, hashes in (short_values or {}).items()
        }

    def short_values(self) -> dict[str, list[str]]:
        """The state that a later Redactor of the same cluster needs; it holds keyed hashes, no values."""
        return {subject: list(numbers) for subject, numbers in sorted(self._short_values.items())}

    def keyed_hash(self, value: bytes | bytearray | memoryview) -> str:
        """What may be said of bytes that cannot be decoded, besides their length: 32 hex digits."""
        return self._digest(value)[:16].hex()

    def fingerprint(self, value: bytes | bytearray | memoryview, *, is_text: bool, subject: str) -> bytes:
        """As many bytes as `value` has; ASCII where it is text. `subject` tells whose short values are counted."""
        length = len(value)
        if length < SHORT_BYTES_BELOW:
            return self._short_fingerprint(value, subject)
        digest = self._digest(value)
        if not is_text:
            return _stretched(digest, length)
        characters = base64.urlsafe_b64encode(digest).rstrip(b"=")
        prefix = _PREFIX if length >= _PREFIXED_BYTES_FROM else _MASK
        return (prefix + characters)[:length].ljust(length, _MASK)

    def overwrite(
        self, buffer: bytearray | memoryview, position: int, length_bytes: int, *, is_text: bool, subject: str
    ) -> None:
        """Puts the fingerprint in the place of buffer[position : position + length_bytes]."""
        end = position + length_bytes
        secret = bytes(buffer[position:end])
        buffer[position:end] = self.fingerprint(secret, is_text=is_text, subject=subject)

    def _digest(self, value: bytes | bytearray | memoryview) -> bytes:
        return hashlib.blake2b(value, digest_size=32, key=self._key, person=_PURPOSE).digest()

    def _short_fingerprint(self, value: bytes | bytearray | memoryview, subject: str) -> bytes:
        length = len(value)
        if length == 0:
            return b""
        numbers = self._short_values.setdefault(subject, {})
        number = numbers.setdefault(self.keyed_hash(value), len(numbers))
        high, low = divmod(number, len(_COUNT_DIGITS))
        digits = _COUNT_DIGITS[low : low + 1]
        if length > 2:
            high %= len(_COUNT_DIGITS)
            digits = _COUNT_DIGITS[high : high + 1] + digits
        return digits.rjust(length, _MASK)


def secret_subject(message_name: str, field: Field | None, fields: Mapping[str, Any]) -> str:
    """Whose secret it is, without saying it: the key under which short values are counted.

    A delegation token is known by its secret id alone, so all of them are one subject, and the record that removes a
    token shows the same form as the one that made it.
    """
    if field is None:
        return UNKNOWN_FIELD_SUBJECT
    if message_name == "ConfigRecord":
        return f"config {fields['resourceType']} {fields['resourceName']} {fields['name']}"
    if message_name == "UserScramCredentialRecord":
        return f"scram {fields['mechanism']} {field.json_name} {fields['name']}"
    return field.json_name


def is_secret(message_name: str, field: Field | None, fields: Mapping[str, Any]) -> bool:
    """Whether the value of a field so marked must go: all but allow-listed configs."""
    is_config = message_name == "ConfigRecord" and field is not None
    return not (is_config and is_public_config(fields["resourceType"], fields["name"]))


def secrets_of(record: MetadataRecord, spans: Sequence[SecretSpan]) -> list[tuple[SecretSpan, str]]:
    """Those of a record's spans that must go, each with its subject."""
    name, fields = record.message.name, record.fields
    return [(span, secret_subject(name, span.field, fields)) for span in spans if is_secret(name, span.field, fields)]


def redact_value(redactor: Redactor, value: bytearray) -> MetadataRecord:
    """Overwrites the secrets of one data record's value, and decodes what is left.

    Raises CodecError as `read_metadata_value`; the value has not been touched then, and must not leave.
    """
    spans: list[SecretSpan] = []
    record = read_metadata_value(value, secrets=spans)
    secrets = secrets_of(record, spans)
    for span, subject in secrets:
        is_text = span.field is not None and span.field.type is Type.STRING
        redactor.overwrite(value, span.position, span.length_bytes, is_text=is_text, subject=subject)
    return read_metadata_value(value) if secrets else record


def messages_with_secrets() -> frozenset[int]:
    """The apiKeys of the records that have a field marked as secret."""
    return frozenset(m.number for m in METADATA_BY_NAME.values() if any(field.secret for field in m.fields))


def _stretched(digest: bytes, length: int) -> bytes:
    if length <= len(digest):
        return digest[:length]
    return hashlib.shake_256(digest).digest(length)
