"""The key of a lake's fingerprints: one per lake, kept outside it, readable by its owner alone."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path
from typing import Final

from kraft_codec.errors import InputError

KEY_BYTES: Final = 32


def load_key(file: Path, *, may_create: bool) -> bytes:
    """The key in `file`, 64 hexadecimal digits; a new one where there is none and `may_create`. Raises InputError."""
    if may_create and not file.exists():
        _create(file)
    try:
        text = file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise InputError(str(file), "no redaction key, and the lake was begun with one: bring it back") from None
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "not a redaction key"
        raise InputError(
            str(file), f"{reason}: expected a redaction key of {2 * KEY_BYTES} hexadecimal digits"
        ) from None
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise InputError(str(file), f"expected a redaction key of {2 * KEY_BYTES} hexadecimal digits")
    return key


def key_id(key: bytes) -> str:
    """Tells keys apart without telling the key."""
    return hashlib.blake2b(b"kraft-audit redaction key", key=key, digest_size=8).hexdigest()


def _create(file: Path) -> None:
    """Whole or not at all, and never over another: two first runs at once must end with one key."""
    unfinished = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as sink:
            sink.write(secrets.token_hex(KEY_BYTES) + "\n")
            sink.flush()
            os.fsync(sink.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(unfinished, file)
    except OSError as problem:
        raise InputError(str(file), f"no redaction key can be made here: {problem.strerror}") from None
    finally:
        unfinished.unlink(missing_ok=True)
