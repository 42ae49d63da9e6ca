"""The key of a lake's fingerprints: one per lake, stored outside it, readable only by its owner."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from kraft_audit.capture.plan import ClusterPlan
    from kraft_codec.records.redaction import Redactor

KEY_BYTES: Final = 32
KEY_VARIABLE: Final = "KRAFT_AUDIT_REDACTION_KEY_FILE"
"""The variable of the environment that names the key file for everything but a run over a fleet."""


def load_key(file: Path, *, may_create: bool) -> bytes:
    """The key in `file`, 64 hexadecimal digits; if it is missing and `may_create`, a new key. Raises InputError."""
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


def declared_key() -> bytes | None:
    """The key of the file that the environment names, None where it names none.

    Raises InputError where the file holds no key, or others may read it.
    """
    declared = os.environ.get(KEY_VARIABLE)
    if not declared:
        return None
    problem = key_file_problem(Path(declared))
    if problem is not None:
        raise InputError(declared, problem)
    return load_key(Path(declared), may_create=False)


def key_file_problem(file: Path) -> str | None:
    """Why a key file cannot be trusted to be secret; None where it can, or where the file does not exist."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return None
    if stat.S_IMODE(mode) & 0o077:
        return f"others may read the redaction key (mode {stat.S_IMODE(mode):04o}): chmod 600 it"
    return None


def key_id(key: bytes) -> str:
    """A hash that identifies the key without revealing it."""
    return hashlib.blake2b(b"kraft-audit redaction key", key=key, digest_size=8).hexdigest()


def _create(file: Path) -> None:
    """Create the key file whole or not at all, never over another: two first runs at once must end with one key."""
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


def redactor_of(plan: ClusterPlan, key: str) -> Redactor:
    """What redacts the secrets of a plan's cluster by a key in hexadecimal, and goes on from where the plan before
    stopped."""
    from kraft_codec.records.redaction import Redactor  # the command's help needs the names above alone

    state = json.loads(plan.redaction_state) if plan.redaction_state else {}
    return Redactor(bytes.fromhex(key), state)
