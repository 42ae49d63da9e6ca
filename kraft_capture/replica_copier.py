"""Copies one replica: looks at its log dir, decides when to ship, and sends objects before the manifest of them."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from kraft_capture import __version__
from kraft_capture.broker_disks import DiskReading, ReadDisks
from kraft_capture.capture_state import CaptureState
from kraft_capture.clocks import boot_id, boottime_ms, wall_ms
from kraft_capture.configuration import configuration_entry
from kraft_capture.errors import InputUnreadableError, LogChangedError
from kraft_capture.generation import DiskCopy, Generation, PassNote
from kraft_capture.log_dirs import METADATA_DIR, Entry, Replica, identify, probe_lock
from kraft_capture.log_pass import PIECE_BYTES, LogPass, PassReading, Piece, read_piece_again
from kraft_capture.stores import EXISTS, Store

MEMORY_BYTES = 64 << 20
"""What is read and not sent stays in memory up to here, so that no truncation takes it; the rest is read again."""
TRIES_OF_A_PASS = 3
GENERATION_MS_MAX = 30 * 86_400_000
CHANGES_APART_S = 60.0
INSTANCE = secrets.token_hex(8)
_QUORUM_STATE = f"{METADATA_DIR}/quorum-state"
Log = Callable[[str], None]


@dataclass(frozen=True)
class Schedule:
    """When to ship what was seen: every so often, at so many bytes, soon after a change of epoch, leader or voters."""

    ship_every_s: float = 900.0
    ship_bytes: int = 8 << 20
    changes_apart_s: float = CHANGES_APART_S
    generation_ms_max: int = GENERATION_MS_MAX


class ReplicaCopier:
    """State of one replica's copy; `look` and `ship` are called in turn, by one thread."""

    def __init__(
        self,
        replica: Replica,
        store: Store,
        destination: str,
        state_folder: Path,
        *,
        schedule: Schedule | None = None,
        durable: bool = False,
        read_disks: ReadDisks = lambda replica: None,
        configuration: str | None = None,
        log: Log = lambda line: None,
    ) -> None:
        self.replica = replica
        self.schedule = schedule or Schedule()
        self.sent_bytes = 0
        self.pass_count = {"read": 0, "unstable": 0, "unreadable": 0}
        self.acknowledged_ms: int | None = None
        self.problems: list[str] = []
        self._store = store
        self._durable = durable
        self._read_disks = read_disks
        self._configuration = configuration
        self._unsent_disks: DiskReading | None = None
        self._log = log
        self._state = CaptureState(state_folder, replica.key, destination)
        self._suspect: tuple[str, int, str] | None = None
        self._changed = False
        self._last_ship_s = self._last_change_ship_s = self._last_disks_s = float("-inf")
        stored = self._state.load()
        self.closing: list[Generation] = []
        if stored is None:
            self.current = Generation.start(_no_parent("no state"), wall_ms())
            self._save()
            self._log(f"{replica.key}: generation {self.current.name} ({self.current.parent['why']})")
        else:
            self.current, self.closing, clock = stored
            store.clock.restore(clock)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were read and are not in the store."""
        return sum(generation.unsent_bytes for generation in [*self.closing, self.current])

    @property
    def is_acknowledged(self) -> bool:
        """Whether all that was read is named by a manifest that the store has."""
        has_pending = any(each.pending for each in [*self.closing, self.current])
        return not (self.closing or self.unsent_bytes or has_pending or self.current.seq == 0)

    def look(self) -> bool:
        """One pass. False where the log could not be read, or did not come to rest; `problems` says why."""
        self.problems = []
        if wall_ms() - self.current.started_ms > self.schedule.generation_ms_max and self.current.seq:
            self._start_generation("age")
        for _ in range(TRIES_OF_A_PASS):
            try:
                reading = self._read()
                if reading.parted is not None:
                    self._start_generation(reading.parted)
                    reading = self._read()
                if reading.parted is None:
                    self._take(reading)
                    self.pass_count["read"] += 1
                    return not self.problems
            except LogChangedError:
                time.sleep(0.05)
            except InputUnreadableError as error:
                self.problems.append(str(error))
                self.pass_count["unreadable"] += 1
                return False
        self.current.unstable_passes += 1
        self.pass_count["unstable"] += 1
        self.problems.append(f"{self.replica.log_dir}: unstable: the log changed in {TRIES_OF_A_PASS} readings")
        return False

    def ship_reason(self) -> str | None:
        """Why it is time to ship; None while it is not."""
        now_s = time.monotonic()
        if self.current.seq == 0:
            return "first"
        if self.closing or self.current.pending is not None:
            return "interval"
        if self.current.unsent_bytes >= self.schedule.ship_bytes:
            return "size"
        if self._changed and now_s - self._last_change_ship_s >= self.schedule.changes_apart_s:
            return "change"
        return "interval" if now_s - self._last_ship_s >= self.schedule.ship_every_s else None

    def ship(self, reason: str) -> None:
        """Sends what is unsent, then the manifest. Raises StoreUnavailableError, StoreRefusedError: call it again."""
        while self.closing:
            closed = self.closing[0]
            if closed.pending is not None or closed.unsent:
                self._ship_generation(closed, "parted")
            if not closed.unsent and closed.pending is None:
                self.closing.pop(0)
                following = self.closing[0] if self.closing else self.current
                if following.seq == 0 and following.pending is None:
                    following.parent = closed.as_parent(following.parent["why"])
                self._save()
        if self.current.pending is not None:
            self._ship_generation(self.current, reason)
        self._ship_generation(self.current, reason)
        self._last_ship_s = time.monotonic()
        if reason == "change":
            self._last_change_ship_s = self._last_ship_s
        elif reason == "first":
            # A share of the interval by replica, so that a fleet that starts together does not ship together.
            share = int.from_bytes(hashlib.sha256(self.replica.key.encode()).digest()[:4], "big") / (1 << 32)
            self._last_ship_s -= share * self.schedule.ship_every_s
        self._changed = False
        self.acknowledged_ms = wall_ms()

    def _read(self) -> PassReading:
        if identify(self.replica.log_dir).key != self.replica.key:
            raise InputUnreadableError(f"{self.replica.log_dir}: its meta.properties now names another replica")
        current = self.current
        current.lock = probe_lock(self.replica.log_dir)
        known_snapshots = {*current.ranges, *(piece.path for piece in current.unsent)}
        room_bytes = MEMORY_BYTES - sum(each.memory_bytes for each in [*self.closing, current])
        clock = self._store.clock.not_before_ms
        reading = LogPass(
            self.replica.log_dir, current.seen, known_snapshots, clock, room_bytes, durable=self._durable
        ).read()
        if (entry := configuration_entry(self._configuration, self.replica)) is not None:
            reading.entries.append(entry)
        return reading

    def _take(self, reading: PassReading) -> None:
        """Adds a stable pass to the generation."""
        current = self.current
        leader_before = current.passes[-1] if current.passes else None
        listed = {entry.path for entry in reading.entries}
        going = {piece.path for piece in current.unsent} - listed
        gone = [entry for entry in current.entries if entry.path in going]
        for entry in gone:
            entry.state = "vanished"
        current.entries = sorted([*reading.entries, *gone], key=lambda entry: entry.path)
        current.unsent += reading.pieces
        marks = [piece.mark for piece in reading.pieces if piece.mark is not None]
        current.seen = marks[-1] if marks else current.seen
        current.add_gaps(reading.gaps)
        self._note_damage(reading)
        note = self._note(reading)
        current.note_pass(note, is_durable=reading.is_durable)
        if leader_before is not None and (note.leader_epoch, note.leader_id) != (
            leader_before.leader_epoch,
            leader_before.leader_id,
        ):
            self._changed = True
        self._changed = self._changed or reading.has_control
        for entry in reading.entries:
            if entry.state == "unreadable":
                self.problems.append(f"{self.replica.log_dir}/{entry.path}: unreadable ({entry.errno})")
        self.problems += [f"{path}: {why} at {at}: nothing after it is read" for path, at, why in current.damage]

    def _note_damage(self, reading: PassReading) -> None:
        """What stands before another segment is damage at once; at the log's end, when two passes found it so."""
        places = list(reading.damage)
        if reading.tail is not None and reading.tail == self._suspect:
            places.append(reading.tail)
        self._suspect = reading.tail
        known = {place[:2] for place in self.current.damage}
        self.current.damage += [place for place in places if place[:2] not in known]

    def _note(self, reading: PassReading) -> PassNote:
        seen = self.current.seen
        epoch, leader = _leader(reading.entry(_QUORUM_STATE))
        return PassNote(
            at_ms=wall_ms(),
            boottime_ms=boottime_ms(),
            boot_id=boot_id(),
            end_offset=seen.end_offset if seen else None,
            last_epoch=seen.epoch if seen else None,
            leader_epoch=epoch,
            leader_id=leader,
            log_not_before_ms=reading.log_not_before_ms,
            state_not_before_ms=reading.state_not_before_ms,
        )

    def _start_generation(self, why: str) -> None:
        """Closes the current one; what it has not sent goes with it only where the log has lost it."""
        closed = self.current
        self._log(f"{self.replica.key}: generation {closed.name} ends: {why}")
        if why in ("parted", "segment gone"):
            self._keep_lost(closed)
        else:
            closed.unsent = []  # the next generation reads them again
        is_empty = not (closed.seq or closed.unsent or closed.pending)
        parent = closed.parent if is_empty else closed.as_parent(why)
        self.current = Generation.start(parent, wall_ms())
        if closed.unsent or closed.pending is not None:
            self.closing.append(closed)
        self._changed = True
        self._suspect = None
        self._last_disks_s = float("-inf")
        self._save()

    def _keep_lost(self, closed: Generation) -> None:
        """Of bytes that are not in memory, those that are still there; what follows a missing piece is lost with it."""
        for index, piece in enumerate(closed.unsent):
            if piece.data is None:
                piece.data = read_piece_again(self.replica.log_dir, piece)
            if piece.data is None:
                del closed.unsent[index:]
                break
        marks = [piece.mark for piece in closed.unsent if piece.mark is not None]
        closed.seen = marks[-1] if marks else closed.sent

    def _ship_generation(self, generation: Generation, reason: str) -> None:
        if generation.pending is None and not generation.entries:
            return  # nothing was read since the start
        if generation.pending is None:
            self._send_objects(generation)
            if generation is self.current:
                self._send_disks(generation, reason)
            if reason == "first" and generation.seq:
                reason = "interval"
            host = socket.gethostname()
            generation.pending = generation.next_manifest(self.replica, self._copier_json(), host, reason)
            self._save()
        pending = generation.pending
        key = f"{self.replica.key}/{generation.name}/{pending.seq:012d}.json.gz"
        was_tried, pending.was_tried = pending.was_tried, True
        put = self._store.put(key, pending.content)
        if put.outcome == EXISTS and put.tries == 1 and not was_tried:
            # Not ours: a copy of this state folder is at work, and the number is gone.
            generation.pending = None
            self._log(f"{key} exists, written by another copier")
            if generation is self.current:
                self._start_generation("taken")
                self.look()
                self._ship_generation(self.current, "first")
            else:
                generation.unsent = []
            return
        self.sent_bytes += len(pending.content)
        generation.acknowledge_manifest()
        self._save()

    def _send_disks(self, generation: Generation, reason: str) -> None:
        """The small files of the broker's disks, as often as a quiet log is shipped, and at the end."""
        now_s = time.monotonic()
        if self._unsent_disks is None:
            is_late = now_s - self._last_disks_s >= self.schedule.ship_every_s
            if not (is_late or reason in ("once", "stop")):
                return
            self._last_disks_s = now_s
            self._unsent_disks = self._read_disks(self.replica)
        reading = self._unsent_disks
        if reading is None:
            return
        digest = hashlib.sha256(reading.content).hexdigest()
        self._store.put(f"{self.replica.key}/{generation.name}/objects/{digest}", reading.content)
        self.sent_bytes += len(reading.content)
        generation.acknowledge_disks(DiskCopy(reading.name, reading.at_ms, len(reading.content), digest))
        self._unsent_disks = None

    def _send_objects(self, generation: Generation) -> None:
        while generation.unsent:
            pieces = _next_object(generation.unsent)
            parts = [self._bytes_of(piece) for piece in pieces]
            readable = parts.index(None) if None in parts else len(parts)
            if readable == 0:
                self._drop_file(generation, pieces[0])
                continue
            pieces, data = pieces[:readable], b"".join(part for part in parts[:readable] if part is not None)
            digest = hashlib.sha256(data).hexdigest()
            self._store.put(f"{self.replica.key}/{generation.name}/objects/{digest}", data)
            self.sent_bytes += len(data)
            generation.acknowledge_object(pieces, digest)
            if generation.unsent and pieces[-1].mark is not None:
                self._save()  # not in the middle of a snapshot, which would look complete

    def _drop_file(self, generation: Generation, piece: Piece) -> None:
        """Bytes that neither memory nor disk has any more: nothing of that file can be sent from there on."""
        if piece.mark is not None and os.path.lexists(os.path.join(self.replica.log_dir, piece.path)):
            raise LogChangedError(f"{piece.path}: not the bytes that were read")
        lost = [each for each in generation.unsent if each.path == piece.path]
        generation.add_gaps(_offsets(lost))
        generation.passed = lost[-1].mark or generation.passed
        generation.unsent = [each for each in generation.unsent if each.path != piece.path]
        if piece.mark is None:
            generation.ranges.pop(piece.path, None)

    def _bytes_of(self, piece: Piece) -> bytes | None:
        return piece.data if piece.data is not None else read_piece_again(self.replica.log_dir, piece)

    def _copier_json(self) -> dict[str, Any]:
        return {"version": __version__, "instance": INSTANCE, "boot_id": boot_id()}

    def _save(self) -> None:
        self._state.save(self.current, self.closing, self._store.clock.to_json())


def _no_parent(why: str) -> dict[str, Any]:
    names = ("generation", "seq", "sha256", "boot_id", "end_offset", "held_end_offset")
    return {"why": why, **dict.fromkeys(names)}


def _next_object(unsent: list[Piece]) -> list[Piece]:
    """The first pieces of one file that adjoin, about 8 MiB of them."""
    pieces = [unsent[0]]
    size = unsent[0].size
    for piece in unsent[1:]:
        last = pieces[-1]
        if piece.path != last.path or piece.position != last.position + last.size or size + piece.size > PIECE_BYTES:
            break
        pieces.append(piece)
        size += piece.size
    return pieces


def _offsets(pieces: list[Piece]) -> list[tuple[int, int]]:
    return [(piece.from_offset, piece.mark.end_offset) for piece in pieces if piece.mark is not None]


def _leader(entry: Entry | None) -> tuple[int | None, int | None]:
    """(epoch, leader) of quorum-state; None where it was not read or is not JSON."""
    try:
        state = json.loads(entry.content or b"") if entry is not None else {}
        return int(state["leaderEpoch"]), int(state["leaderId"])
    except (ValueError, KeyError, TypeError):
        return None, None
