"""A generation: what was read, sent and acknowledged of one log that only grew, and the manifest that says so."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import secrets
from dataclasses import asdict, dataclass, field
from typing import Any

from kraft_capture.batch_frames import BatchMark
from kraft_capture.log_dirs import SEGMENT_NAME, Entry, Replica, entry_json
from kraft_capture.log_pass import Piece

FORMAT = "kraft-capture/1"
PASSES_KEPT = 60
HELD_AFTER_MS = 10_000
GAPS_KEPT = 1000
DISKS_KEPT = 168
DISKS_APART_MS = 3_600_000
Range = tuple[int, int, str]
"""Position, bytes, SHA-256."""


@dataclass
class PassNote:
    """What a manifest keeps of a pass; `boottime_ms` orders the passes of one boot."""

    at_ms: int
    boottime_ms: int
    boot_id: str
    end_offset: int | None
    last_epoch: int | None
    leader_epoch: int | None
    leader_id: int | None
    log_not_before_ms: int | None
    state_not_before_ms: int | None


@dataclass
class Pending:
    """A manifest whose objects are all acknowledged; `was_tried`: it was sent, and no answer came.

    Its bytes stay as they are until they are acknowledged: another compressor would give others.
    """

    seq: int
    content_base64: str
    was_tried: bool = False

    @property
    def content(self) -> bytes:
        """What is stored."""
        return base64.b64decode(self.content_base64)


@dataclass
class DiskCopy:
    """An acknowledged object: the small files of the broker's disks as they were at `at_ms`."""

    name: str
    at_ms: int
    size: int
    sha256: str


@dataclass
class Generation:
    """See docs/capture-format.md. `seen` is the last batch that was read, `sent` the last that the store has, `passed`
    the last that need not be read again: it was sent, or is gone.

    `ranges` are the acknowledged objects of each path; `unsent` follow them. `seq` and `sha256` are those of the last
    acknowledged manifest; 0 and None before the first.
    """

    name: str
    parent: dict[str, Any]
    started_ms: int
    seq: int = 0
    sha256: str | None = None
    pending: Pending | None = None
    ranges: dict[str, list[Range]] = field(default_factory=dict)
    unsent: list[Piece] = field(default_factory=list)
    seen: BatchMark | None = None
    sent: BatchMark | None = None
    passed: BatchMark | None = None
    start_offsets: dict[str, int] = field(default_factory=dict)
    disks: list[DiskCopy] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    passes: list[PassNote] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    damage: list[tuple[str, int, str]] = field(default_factory=list)
    held_end_offset: int | None = None
    held_by: str | None = None
    lock: str = "unknown"
    unstable_passes: int = 0

    @classmethod
    def start(cls, parent: dict[str, Any], now_ms: int) -> Generation:
        """An empty one with a random name."""
        return cls(secrets.token_hex(16), parent, now_ms)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were read and that the store does not have."""
        return sum(piece.size for piece in self.unsent)

    @property
    def memory_bytes(self) -> int:
        """Bytes that lie in memory until they are sent."""
        return sum(len(piece.data) for piece in self.unsent if piece.data is not None)

    def as_parent(self, why: str) -> dict[str, Any]:
        """How the next generation refers to this one; null names where no manifest of it was acknowledged."""
        last = self.passes[-1] if self.passes else None
        return {
            "why": why,
            "generation": self.name if self.seq else None,
            "seq": self.seq or None,
            "sha256": self.sha256,
            "boot_id": last.boot_id if last else None,
            "end_offset": self.seen.end_offset if self.seen else None,
            "held_end_offset": self.held_end_offset,
        }

    def note_pass(self, note: PassNote, *, is_durable: bool) -> None:
        """Takes the pass that was just made, and what it shows to be held."""
        self.passes = [*self.passes[-(PASSES_KEPT - 1) :], note]
        held, by = self.held_end_offset, self.held_by
        for earlier in self.passes[:-1]:
            is_old = earlier.boot_id == note.boot_id != "" and note.boottime_ms - earlier.boottime_ms >= HELD_AFTER_MS
            if is_old and earlier.end_offset is not None and earlier.end_offset > (held if held is not None else -1):
                held, by = earlier.end_offset, "found again"
        if is_durable and note.end_offset is not None and note.end_offset > (held if held is not None else -1):
            held, by = note.end_offset, "fdatasync"
        self.held_end_offset, self.held_by = held, by

    def add_gaps(self, gaps: list[tuple[int, int]]) -> None:
        """Offsets that can no longer be copied; ranges that adjoin become one."""
        for from_offset, to_offset in gaps:
            if self.gaps and self.gaps[-1][1] == from_offset:
                self.gaps[-1] = (self.gaps[-1][0], to_offset)
            else:
                self.gaps.append((from_offset, to_offset))
        self.gaps = self.gaps[-GAPS_KEPT:]

    def acknowledge_object(self, pieces: list[Piece], sha256: str) -> None:
        """The store has these adjoining pieces, the first that are unsent, as one object."""
        path, size = pieces[0].path, sum(piece.size for piece in pieces)
        self.ranges.setdefault(path, []).append((pieces[0].position, size, sha256))
        if pieces[0].mark is not None:
            self.start_offsets.setdefault(path, pieces[0].from_offset)
        self.sent = pieces[-1].mark or self.sent
        self.passed = pieces[-1].mark or self.passed
        sent = {id(piece) for piece in pieces}
        self.unsent = [piece for piece in self.unsent if id(piece) not in sent]

    def acknowledge_disks(self, copy: DiskCopy) -> None:
        """The store has this copy of the broker's disks. The newest stays, and of older ones one for each hour."""
        if len(self.disks) > 1 and self.disks[-1].at_ms - self.disks[-2].at_ms < DISKS_APART_MS:
            self.disks.pop()
        self.disks = [*self.disks[-(DISKS_KEPT - 1) :], copy]

    def acknowledge_manifest(self) -> None:
        """The store has the pending manifest."""
        if self.pending is not None:
            self.seq, self.sha256 = self.pending.seq, hashlib.sha256(self.pending.content).hexdigest()
            self.pending = None
            self.unstable_passes = 0
            if not self.entries:
                return  # written before a restart: the next pass says what is live
            live = {entry.path for entry in self.entries if entry.state != "vanished"}
            live |= {piece.path for piece in self.unsent}
            self.ranges = {path: ranges for path, ranges in self.ranges.items() if path in live}
            self.start_offsets = {path: offset for path, offset in self.start_offsets.items() if path in live}

    def next_manifest(self, replica: Replica, copier: dict[str, Any], host: str, reason: str) -> Pending:
        """The next manifest; every object that it names must be in the store."""
        body = {
            "format": FORMAT,
            "generation": self.name,
            "seq": self.seq + 1,
            "previous_sha256": self.sha256,
            "parent": self.parent,
            "reason": reason,
            "replica": {
                "cluster_id": replica.cluster_id,
                "node_id": replica.node_id,
                "directory_id": replica.directory_id,
                "host": host,
                "log_dir": replica.log_dir,
            },
            "copier": copier,
            "at_ms": self.passes[-1].at_ms if self.passes else self.started_ms,
            "lock": self.lock,
            "log": self._log_json(),
            "entries": self._entries_json(),
            **self._passes_json(),
            "unstable_passes": self.unstable_passes,
        }
        text = json.dumps(body, separators=(",", ":"), sort_keys=True, ensure_ascii=True)
        content = gzip.compress(text.encode(), mtime=0)
        return Pending(self.seq + 1, base64.b64encode(content).decode("ascii"))

    def _log_json(self) -> dict[str, Any]:
        segments = [e.path for e in self.entries if SEGMENT_NAME.fullmatch(e.name) and self.ranges.get(e.path)]
        starts = [self.start_offsets[path] for path in segments if path in self.start_offsets]
        mark = self.sent
        start = min(starts) if starts else None
        held = None
        if mark is not None and self.held_end_offset is not None:
            held = min(self.held_end_offset, mark.end_offset)  # more may be held than was sent
        return {
            "start_offset": start,
            "end_offset": mark.end_offset if mark else None,
            "last_epoch": mark.epoch if mark else None,
            "held_end_offset": held,
            "held_by": self.held_by if held is not None else None,
            "last_batch": mark and {"base_offset": mark.base_offset, "bytes": mark.size, "sha256": mark.sha256},
            "gaps": [[low, high] for low, high in self.gaps if start is None or high > start],
            "damage": [{"path": path, "position": at, "reason": why} for path, at, why in self.damage],
        }

    def _entries_json(self) -> list[dict[str, Any]]:
        rows = [self._entry_json(entry) for entry in self.entries] + [_disks_json(copy) for copy in self.disks]
        return sorted(rows, key=lambda row: str(row["path"]))

    def _entry_json(self, entry: Entry) -> dict[str, Any]:
        row = entry_json(entry)
        ranges = self.ranges.get(entry.path)
        if ranges or (entry.state == "sent" and entry.content is None):
            ranges = ranges or []  # a segment without a whole batch
            row["state"] = "sent" if entry.state == "listed" else entry.state
            row["ranges"] = [list(each) for each in ranges]
            row["copied_bytes"] = sum(size for _, size, _ in ranges)
        if entry.content is not None:
            row["copied_bytes"] = len(entry.content)
            try:
                row["text"] = entry.content.decode("utf-8")
            except UnicodeDecodeError:
                row["base64"] = base64.b64encode(entry.content).decode("ascii")
        return row

    def _passes_json(self) -> dict[str, Any]:
        boots = list(dict.fromkeys(note.boot_id for note in self.passes))
        rows = [asdict(note) for note in self.passes]
        names = [name for name in PassNote.__dataclass_fields__ if name != "boot_id"]
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in names}
        columns["boot"] = [boots.index(note.boot_id) for note in self.passes]
        return {"passes": columns, "boots": boots}


def _disks_json(copy: DiskCopy) -> dict[str, Any]:
    """An entry for a file that the copier made: no inode, no mode."""
    row = {"path": copy.name, "type": "file", "bytes": copy.size, "mtime_ms": copy.at_ms, "state": "sent"}
    return {**row, "copied_bytes": copy.size, "ranges": [[0, copy.size, copy.sha256]]}
