"""Killed at every step that changes a disk, cut off at every request, started again: nothing lost, nothing twice."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft_capture.errors import CaptureError, StoreUnavailableError
from kraft_capture.log_dirs import identify
from kraft_capture.replica_copier import ReplicaCopier
from kraft_capture.stores import FolderStore, Put
from tests.builders.live_log import LiveLog, StoreWitness


class KilledError(BaseException):
    """The process ends here: nothing after it runs."""


class Steps:
    """Counts what changes a disk below a folder, and kills before the n-th."""

    NAMES = ("open", "link", "fsync", "unlink", "mkdir", "rename", "replace")

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.killed_at: int | None = None
        self.is_dead = False
        self.folder = str(folder)
        for name in self.NAMES:
            monkeypatch.setattr(os, name, self.counted(getattr(os, name), name))

    def counted(self, real: Callable[..., object], name: str) -> Callable[..., object]:
        def call(*arguments: object, **more: object) -> object:
            is_ours = name == "fsync" or str(arguments[0]).startswith(self.folder)
            if not is_ours or (name == "open" and not int(str(arguments[1])) & os.O_CREAT):
                return real(*arguments, **more)
            if self.is_dead:
                raise KilledError  # what `finally` would do is not done either
            if self.count == self.killed_at:
                self.is_dead = True
                raise KilledError
            self.count += 1
            return None if name == "fsync" else real(*arguments, **more)

        return call


def play(log: LiveLog, folder: Path, store: FolderStore) -> ReplicaCopier:
    """Copies a log that grows, rolls, is truncated while bytes are unsent, and grows again."""
    (folder / "state").mkdir(exist_ok=True, parents=True)
    copier = ReplicaCopier(identify(str(log.folder)), store, "store", folder / "state")
    acts: list[Callable[[], None]] = [
        lambda: log.append(2),
        log.snapshot,
        lambda: None,
        lambda: (log.roll(), log.append(2), None)[-1],
        lambda: (log.truncate(2), log.append(3), None)[-1],
    ]
    for number, act in enumerate(acts):
        if len(log.states) <= number + 1:
            act()
        copier.look()
        if number != 3:
            copier.ship("interval")
    return copier


def finish(log: LiveLog, folder: Path) -> None:
    """Starts again, as after a crash, and checks the whole store."""
    store = FolderStore(folder / "store")
    (folder / "state").mkdir(exist_ok=True, parents=True)
    copier = ReplicaCopier(identify(str(log.folder)), store, "store", folder / "state")
    copier.look()
    copier.ship("interval")
    assert copier.is_acknowledged
    witness = StoreWitness(folder / "store" / copier.replica.key)
    witness.check()
    generation = witness.generations[copier.current.name]
    assert witness.log(generation, generation.manifests[max(generation.manifests)]) == log.batches
    named = {
        sha256
        for stored in witness.generations.values()
        for manifest in stored.manifests.values()
        for entry in manifest["entries"]
        for _, _, sha256 in entry.get("ranges", [])
    }
    assert named


def new_log(folder: Path) -> LiveLog:
    log = LiveLog(folder / "node")
    log.append(1)
    return log


@pytest.mark.slow
def test_killed_before_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        steps = Steps(tmp_path / "whole" / "copy", patched)
        play(
            new_log(tmp_path / "whole"), tmp_path / "whole" / "copy", FolderStore(tmp_path / "whole" / "copy" / "store")
        )
        total = steps.count
    assert total > 60
    for number in range(total):
        folder = tmp_path / str(number)
        log = new_log(folder)
        with monkeypatch.context() as patched:
            steps = Steps(folder / "copy", patched)
            steps.killed_at = number
            with pytest.raises(KilledError):
                play(log, folder / "copy", FolderStore(folder / "copy" / "store"))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", lambda descriptor: None)
            finish(log, folder / "copy")


class CutStore(FolderStore):
    """Breaks the n-th request, before it or after it."""

    def __init__(self, folder: Path, number: int, *, is_done: bool) -> None:
        super().__init__(folder)
        self.left = number
        self.is_done = is_done

    def put(self, key: str, data: bytes) -> Put:
        self.left -= 1
        if self.left == -1 and not self.is_done:
            raise StoreUnavailableError("no answer")
        answer = super().put(key, data)
        if self.left == -1:
            raise StoreUnavailableError("no answer")
        return answer


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_cut_off_at_every_request(
    is_done: bool, is_restarted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest whose answer was lost is the same manifest when it is sent again, by this process or the next one."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    number, was_cut = 0, True
    while was_cut:
        folder = tmp_path / str(number)
        log = new_log(folder)
        store = CutStore(folder / "copy" / "store", number, is_done=is_done)
        try:
            play(log, folder / "copy", store)
            was_cut = False
        except CaptureError:
            if not is_restarted:
                log_rest = play(log, folder / "copy", store)
                assert log_rest.is_acknowledged
        finish(log, folder / "copy")
        witness = StoreWitness(next((folder / "copy" / "store").glob("*/*")))
        assert len(witness.generations) <= 3, "the log parted once, and nothing else did"
        number += 1
    assert number > 8


def test_the_witness_sees_what_is_missing(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    play(log, tmp_path / "copy", FolderStore(tmp_path / "copy" / "store"))
    replica = next((tmp_path / "copy" / "store").glob("*/*"))
    for pattern in ("objects/*", "*.json.gz"):
        path = max(replica.glob(f"*/{pattern}"))
        content = path.read_bytes()
        path.unlink()
        if pattern == "objects/*":
            with pytest.raises(FileNotFoundError):
                StoreWitness(replica).check()
        path.write_bytes(content[:-1] + b"x")
        with pytest.raises((AssertionError, ValueError, OSError)):
            StoreWitness(replica).check()
        path.write_bytes(content)
    StoreWitness(replica).check()
