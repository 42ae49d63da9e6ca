"""A log that changes while it is read is never copied as a splice; what cannot be read is never called absent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft_capture import log_pass
from kraft_capture.batch_frames import BatchMark, frame_batches
from kraft_capture.errors import LogChangedError
from kraft_capture.log_pass import LogPass, PassReading
from tests.builders.live_log import LiveLog, LogBatch, refuse_to_open, whole_batches

BATCH_COUNT = 12
BATCH_BYTES = 70


def read(log: LiveLog, known: BatchMark | None = None) -> PassReading:
    return LogPass(str(log.folder), known, set(), lambda: None, 1 << 20).read()


def batches_of(reading: PassReading) -> list[LogBatch]:
    return [batch for piece in reading.pieces if piece.mark for batch in whole_batches(piece.data or b"")]


@pytest.fixture
def log(tmp_path: Path) -> LiveLog:
    log = LiveLog(tmp_path / "node")
    log.append(BATCH_COUNT // 2)
    log.roll()
    log.append(BATCH_COUNT // 2)
    return log


@pytest.fixture
def between_reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
    """Does something before the n-th batch is read, for the first time; each read takes one batch."""

    def arrange(number: int, act: Callable[[], None]) -> None:
        count = 0
        real = os.pread

        def pread(descriptor: int, size: int, position: int) -> bytes:
            nonlocal count
            if count == number:
                act()
            count += 1
            return real(descriptor, size, position)

        monkeypatch.setattr(log_pass, "PIECE_BYTES", BATCH_BYTES + 5)
        monkeypatch.setattr(os, "pread", pread)

    return arrange


def test_what_a_rescue_declares_is_copied_too(log: LiveLog) -> None:
    declared = b'{"declared": "rescue"}'
    (log.folder / "rescue.json").write_bytes(declared)
    entry = read(log).entry("rescue.json")
    assert entry is not None
    assert (entry.state, entry.content) == ("sent", declared)
    assert read(LiveLog(log.folder.with_name("without"))).entry("rescue.json") is None


def truncate_and_regrow(log: LiveLog, count: int) -> None:
    """Other batches of the same sizes and the next epoch stand where the last ones stood."""
    log.truncate(count)
    if log.starts[-1] != 6:
        log.starts.append(6)
        log.segments.append([])
    log.append(count)


@pytest.mark.parametrize("lost", [1, 6])
@pytest.mark.parametrize("number", range(2 * BATCH_COUNT))
def test_a_log_that_is_truncated_between_two_reads_is_no_splice(
    log: LiveLog, between_reads: Callable[[int, Callable[[], None]], None], number: int, lost: int
) -> None:
    between_reads(number, lambda: truncate_and_regrow(log, lost))
    try:
        reading = read(log)
    except LogChangedError:
        return
    assert batches_of(reading) in log.states


def test_one_reading_alone_would_be_a_splice(
    log: LiveLog, between_reads: Callable[[int, Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the second reading: valid CRCs, adjoining offsets, rising epochs, and no log that ever was."""
    monkeypatch.setattr(LogPass, "_read_again", lambda self, reading: None)
    between_reads(BATCH_COUNT - 2, lambda: truncate_and_regrow(log, 6))
    found = batches_of(read(log))
    assert [batch.base_offset for batch in found] == list(range(BATCH_COUNT))
    assert found not in log.states


@pytest.mark.parametrize("number", range(BATCH_COUNT))
def test_what_is_appended_meanwhile_is_left_for_the_next_pass(
    log: LiveLog, between_reads: Callable[[int, Callable[[], None]], None], number: int
) -> None:
    between_reads(number, log.append)
    assert batches_of(read(log)) == log.states[-2]


def test_a_segment_that_grew_since_it_was_listed_has_its_size_when_it_was_opened(
    log: LiveLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = log_pass.list_entries
    monkeypatch.setattr(log_pass, "list_entries", lambda folder: (real(folder), log.append(3))[0])
    reading = read(log)
    copied = sum(piece.size for piece in reading.pieces if piece.path.endswith("06.log"))
    entry = reading.entry("__cluster_metadata-0/00000000000000000006.log")
    assert entry is not None
    assert entry.size == copied == sum(len(batch.data) for batch in log.segments[1])


def test_another_batch_in_the_place_of_the_last_one_parts_the_log(log: LiveLog) -> None:
    mark = read(log).pieces[-1].mark
    log.append()
    assert batches_of(read(log, mark)) == log.batches[-1:]
    log.truncate(2)
    log.append(5)
    assert read(log, mark).parted == "parted"


def test_segments_that_were_removed_part_it_too(log: LiveLog) -> None:
    mark = read(log).pieces[-1].mark
    log.append()
    log.roll()
    log.append()
    assert read(log, mark).parted is None
    log.clean(2)
    assert read(log, mark).parted == "segment gone"


def test_new_snapshots_come_before_quorum_state(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.snapshot()
    opened: list[str] = []
    real = log_pass.open_read_only
    monkeypatch.setattr(
        "kraft_capture.log_dirs.open_read_only", lambda folder, path: opened.append(path) or real(folder, path)
    )
    monkeypatch.setattr(log_pass, "open_read_only", lambda folder, path: opened.append(path) or real(folder, path))
    read(log)
    names = [path.rpartition("/")[2] for path in opened]
    order = [names.index(name) for name in names if name.endswith((".log", ".checkpoint"))]
    assert max(order) < names.index("leader-epoch-checkpoint") < names.index("quorum-state")
    assert names[-2:] == ["quorum-state", "meta.properties"]


def test_what_is_unreadable_is_not_absent(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.snapshot()
    refuse_to_open(monkeypatch, ".checkpoint", "quorum-state")
    states = {entry.name: (entry.state, entry.errno) for entry in read(log).entries}
    assert states["quorum-state"] == ("unreadable", "EACCES")
    assert {states[name] for name in states if name.endswith(".checkpoint")} == {("unreadable", "EACCES")}
    assert states["meta.properties"] == ("sent", None)


def test_damage_before_another_segment_is_a_gap_and_is_located(log: LiveLog) -> None:
    path = log.log_dir / "00000000000000000000.log"
    damaged = bytearray(path.read_bytes())
    good = frame_batches(memoryview(damaged), 0, 0).last_at
    damaged[good + 70] ^= 1
    path.write_bytes(damaged)
    reading = read(log)
    assert [(place[0][-8:], place[1]) for place in reading.damage] == [("0000.log", good)]
    assert reading.gaps == [(5, 6)]
    assert [batch.base_offset for batch in batches_of(reading)] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]


def test_the_same_bytes_are_hashed_as_they_are(log: LiveLog) -> None:
    whole = b"".join(path.read_bytes() for path in sorted(log.log_dir.glob("*.log")))
    pieces = [piece for piece in read(log).pieces if piece.mark]
    assert b"".join(piece.data or b"" for piece in pieces) == whole
    assert all(hashlib.sha256(piece.data or b"").hexdigest() == piece.sha256 for piece in pieces)


@pytest.mark.parametrize("name", ["00000000000000000006.log", "quorum-state"])
def test_a_link_is_recorded_and_not_followed(log: LiveLog, name: str, tmp_path: Path) -> None:
    path = log.log_dir / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    entry = read(log).entry(f"__cluster_metadata-0/{name}")
    assert entry is not None
    assert (entry.kind, entry.target, entry.state) == ("link", str(tmp_path / "elsewhere"), "listed")
    assert entry.content is None
