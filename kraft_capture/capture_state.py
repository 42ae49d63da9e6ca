"""What the copier remembers between runs, in a folder of its own: never on the input.

A file for each replica, replaced by rename; bytes of a log that was truncated before they were sent lie beside it.
A state that is lost or damaged costs a new generation, nothing else.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from kraft_capture.batch_frames import BatchMark
from kraft_capture.errors import UsageError
from kraft_capture.generation import DiskCopy, Generation, PassNote, Pending
from kraft_capture.log_dirs import Entry
from kraft_capture.log_pass import Piece
from kraft_capture.stores import sync_folder

_VERSION = 1
_PLAIN = ("name", "parent", "started_ms", "seq", "sha256", "start_offsets", "held_end_offset", "held_by", "lock")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the state folder for this process, made where it is missing; raises UsageError where another one has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"state folder {folder}: {error.strerror}") from None
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"state folder {folder}: another kraft-capture uses it") from None
        yield
    finally:
        os.close(descriptor)


class CaptureState:
    """The stored state of one replica in a store."""

    def __init__(self, folder: Path, replica_key: str, destination: str) -> None:
        # Another destination has none of the objects: it is another copy.
        digest = hashlib.sha256(f"{destination}\n{replica_key}".encode()).hexdigest()[:16]
        self._folder = folder
        self._stem = f"{re.sub(r'[^A-Za-z0-9_-]', '_', replica_key)}-{digest}"
        self._path = folder / f"{self._stem}.json"

    def load(self) -> tuple[Generation, list[Generation], dict[str, Any]] | None:
        """(the generation, closed ones with bytes to send, the store's clock); None where nothing usable is stored."""
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
            if stored["version"] != _VERSION:
                return None
            closing = [_generation(each) for each in stored["closing"]]
            for generation in closing:
                self._load_pieces(generation)
            return _generation(stored["current"]), closing, stored["clock"]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, current: Generation, closing: list[Generation], clock: dict[str, Any]) -> None:
        """Replaces what is stored; pieces of closed generations alone, as those of the current one are in the log."""
        for generation in closing:
            for piece in generation.unsent:
                self._save_piece(piece)
        body = {
            "version": _VERSION,
            "current": _stored(current, with_unsent=False),
            "closing": [_stored(each, with_unsent=True) for each in closing],
            "clock": clock,
        }
        _replace(self._path, json.dumps(body, separators=(",", ":")).encode())
        wanted = {self._piece_path(piece) for generation in closing for piece in generation.unsent}
        for path in self._folder.glob(f"{self._stem}-*.bytes"):
            if path not in wanted:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _piece_path(self, piece: Piece) -> Path:
        return self._folder / f"{self._stem}-{piece.sha256}.bytes"

    def _save_piece(self, piece: Piece) -> None:
        path = self._piece_path(piece)
        if piece.data is not None and not path.exists():
            _replace(path, piece.data)

    def _load_pieces(self, generation: Generation) -> None:
        """Reads the bytes of a closed generation; without a piece, it and what followed it cannot be sent."""
        for index, piece in enumerate(generation.unsent):
            try:
                piece.data = self._piece_path(piece).read_bytes()
            except OSError:
                piece.data = None
            if piece.data is None or hashlib.sha256(piece.data).hexdigest() != piece.sha256:
                del generation.unsent[index:]
                return


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def _stored(generation: Generation, *, with_unsent: bool) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(generation, name) for name in _PLAIN}
    row["pending"] = generation.pending and asdict(generation.pending)
    row["ranges"] = generation.ranges
    row["sent"] = generation.sent and asdict(generation.sent)
    row["passed"] = generation.passed and asdict(generation.passed)
    end_offset = generation.passed.end_offset if generation.passed else None
    # A pass that saw more than was sent proves nothing about what a new process reads again.
    shown = [n for n in generation.passes if with_unsent or n.end_offset is None or n.end_offset <= (end_offset or 0)]
    row["passes"] = [asdict(note) for note in shown]
    row["gaps"], row["damage"] = generation.gaps, generation.damage
    row["disks"] = [asdict(copy) for copy in generation.disks]
    row["seen"] = row["passed"]
    row["entries"], row["unsent"] = [], []
    if with_unsent:
        row["seen"] = generation.seen and asdict(generation.seen)
        row["entries"] = [_stored_entry(entry) for entry in generation.entries]
        row["unsent"] = [{**asdict(piece), "data": None} for piece in generation.unsent]
    return row


def _stored_entry(entry: Entry) -> dict[str, Any]:
    content = None if entry.content is None else base64.b64encode(entry.content).decode("ascii")
    return {**asdict(entry), "content": content}


def _generation(row: dict[str, Any]) -> Generation:
    generation = Generation(**{name: row[name] for name in _PLAIN})
    generation.pending = Pending(**row["pending"]) if row["pending"] else None
    if generation.pending is not None:
        generation.pending.was_tried = True  # it may have been on its way when the process ended
    generation.ranges = {path: [(at, size, sha) for at, size, sha in each] for path, each in row["ranges"].items()}
    generation.seen, generation.sent = _mark(row["seen"]), _mark(row["sent"])
    generation.passed = _mark(row["passed"])
    generation.passes = [PassNote(**note) for note in row["passes"]]
    generation.gaps = [(low, high) for low, high in row["gaps"]]
    generation.disks = [DiskCopy(**copy) for copy in row["disks"]]
    generation.damage = [(path, at, why) for path, at, why in row["damage"]]
    generation.entries = [
        Entry(**{**entry, "content": None if entry["content"] is None else base64.b64decode(entry["content"])})
        for entry in row["entries"]
    ]
    known = {each.name for each in fields(Piece)}
    for piece in row["unsent"]:
        stored = {name: value for name, value in piece.items() if name in known}
        generation.unsent.append(Piece(**{**stored, "mark": _mark(piece["mark"])}))
    return generation


def _mark(row: dict[str, Any] | None) -> BatchMark | None:
    return None if row is None else BatchMark(**row)
