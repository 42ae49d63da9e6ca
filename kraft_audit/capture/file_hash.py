"""The SHA-256 of a file, read a piece at a time."""

from __future__ import annotations

import hashlib
from typing import Final

from kraft_codec.storage.random_access import RandomAccess

HASHED_AT_ONCE_BYTES: Final = 1 << 20


def sha256_of(file: RandomAccess, size_bytes: int) -> str:
    """Hexadecimal, of the first `size_bytes`. Raises CodecError where they cannot be read."""
    digest = hashlib.sha256()
    for position in range(0, size_bytes, HASHED_AT_ONCE_BYTES):
        digest.update(file.read_at(position, min(HASHED_AT_ONCE_BYTES, size_bytes - position)).tobytes())
    return digest.hexdigest()
