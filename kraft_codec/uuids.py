"""Kafka's text form of a uuid: URL-safe base64 of its 16 bytes without padding (org.apache.kafka.common.Uuid)."""

from __future__ import annotations

import base64
import re
from typing import Final

UUID_BYTES: Final = 16
UUID_TEXT_CHARACTERS: Final = 22
_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")


def uuid_text(value: bytes) -> str:
    """The 22 characters that Kafka's tools print for 16 bytes, most significant half first."""
    if len(value) != UUID_BYTES:
        raise ValueError(f"a uuid of {len(value)} bytes: expected {UUID_BYTES}")
    return base64.urlsafe_b64encode(value)[:UUID_TEXT_CHARACTERS].decode("ascii")


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of a uuid's text. Stricter than Java's: just the text that `uuid_text` gives is accepted."""
    if _TEXT.fullmatch(text) is None:
        raise ValueError(f"uuid {text!r}: expected {UUID_TEXT_CHARACTERS} characters of A-Z a-z 0-9 - _")
    value = base64.urlsafe_b64decode(text + "==")
    if uuid_text(value) != text:
        raise ValueError(f"uuid {text!r}: its last character holds bits beyond the 16th byte")
    return value
