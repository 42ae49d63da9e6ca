"""Random lives of a log and of its copier: appended, rolled, truncated, cleaned; killed, cut off, its state lost.

Whatever happens, what the store holds is what once stood in the log, whole and chained, and at the end all of it.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from kraft_capture import log_pass, replica_copier
from kraft_capture.errors import CaptureError, StoreUnavailableError
from kraft_capture.log_dirs import identify
from kraft_capture.replica_copier import ReplicaCopier
from kraft_capture.stores import FolderStore, Put
from tests.builders.live_log import LiveLog, LogBatch, StoreWitness

LOG_STEPS = ("append", "append", "append", "roll", "truncate", "clean", "snapshot", "state")
COPIER_STEPS = ("look",) * 8 + ("ship",) * 5 + ("kill", "kill", "cut", "cut", "heal", "heal", "lose state")


class UnsteadyStore(FolderStore):
    """A folder behind a network that breaks before a request or before its answer."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        super().__init__(folder)
        self.chance = chance
        self.broken = 0.0

    def put(self, key: str, data: bytes) -> Put:
        if self.chance.random() < self.broken / 2:
            raise StoreUnavailableError("no answer")
        answer = super().put(key, data)
        if self.chance.random() < self.broken / 2:
            raise StoreUnavailableError("no answer, and yet it was done")
        return answer


class Life:
    """A log, its copier, and what they went through."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311
        self.log = LiveLog(folder / "node")
        self.log.append(3)
        self.folder = folder
        self.store = UnsteadyStore(folder / "store", self.chance)
        self.copier = self.new_copier()
        self.seen: list[list[LogBatch]] = []
        self.may_lose = False

    def new_copier(self) -> ReplicaCopier:
        (self.folder / "state").mkdir(exist_ok=True)
        return ReplicaCopier(identify(str(self.log.folder)), self.store, "store", self.folder / "state")

    def step(self) -> None:
        name = self.chance.choice(LOG_STEPS if self.chance.random() < 0.5 else COPIER_STEPS)
        getattr(self, name.replace(" ", "_"))()

    def append(self) -> None:
        self.log.append(self.chance.randint(1, 5))

    def roll(self) -> None:
        self.log.roll()

    def truncate(self) -> None:
        self.log.truncate(self.chance.randint(1, 6))
        self.log.append(self.chance.randint(1, 6))
        self.log.write_state(leader=self.chance.randint(1, 3))

    def clean(self) -> None:
        self.log.clean(1)

    def snapshot(self) -> None:
        self.log.snapshot()

    def state(self) -> None:
        self.log.write_state(leader=self.chance.randint(1, 3))

    def look(self) -> None:
        assert self.copier.look(), self.copier.problems
        self.seen.append(self.log.batches)

    def ship(self) -> None:
        try:
            self.copier.ship("interval")
        except CaptureError:
            return
        if self.copier.current.entries:
            assert self.copier.is_acknowledged

    def kill(self) -> None:
        self.copier = self.new_copier()

    def lose_state(self) -> None:
        shutil.rmtree(self.folder / "state")
        self.kill()

    def cut(self) -> None:
        self.store.broken = 0.8

    def heal(self) -> None:
        self.store.broken = 0.0


def live(folder: Path, seed: int, steps: int = 60) -> tuple[Life, StoreWitness]:
    life = Life(folder, seed)
    for _ in range(steps):
        life.step()
    life.heal()
    life.look()
    life.ship()
    return life, StoreWitness(folder / "store" / life.copier.replica.key)


def assert_true_copy(life: Life, witness: StoreWitness) -> None:
    witness.check()
    generation = witness.generations[life.copier.current.name]
    newest = generation.manifests[max(generation.manifests)]
    copied = witness.log(generation, newest)
    assert [batch for batch in life.log.removed + life.log.batches if batch in copied] == copied
    assert set(copied) >= set(life.log.batches), "all that is on the disk"
    for stored in witness.generations.values():
        for manifest in stored.manifests.values():
            batches = witness.log(stored, manifest)
            assert any(is_part(batches, state) for state in life.log.states), manifest["reason"]


def is_part(batches: list[LogBatch], state: list[LogBatch]) -> bool:
    """Whether all of them stood in the log at one time, but for segments that were removed at its start."""
    return set(batches) <= set(state)


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.parametrize("seed", range(6))
def test_a_store_holds_what_stood_in_the_log(seed: int, tmp_path: Path) -> None:
    assert_true_copy(*live(tmp_path, seed))


@pytest.mark.parametrize("seed", range(100, 106))
def test_bytes_that_do_not_fit_into_memory_are_read_again(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Kafka removed meanwhile is a gap; what it truncated was never sent, and is in no manifest."""
    monkeypatch.setattr(replica_copier, "MEMORY_BYTES", 300)
    monkeypatch.setattr(replica_copier, "PIECE_BYTES", 200)
    monkeypatch.setattr(log_pass, "PIECE_BYTES", 200)
    assert_true_copy(*live(tmp_path, seed))


@pytest.mark.slow
def test_many_lives(tmp_path: Path) -> None:
    reasons: Counter[str] = Counter()
    for seed in range(1000, 1030):
        life, witness = live(tmp_path / str(seed), seed)
        assert_true_copy(life, witness)
        for generation in witness.generations.values():
            for manifest in generation.manifests.values():
                reasons[manifest["parent"]["why"]] += 1
                reasons["vanished"] += any(
                    entry["state"] == "vanished" and "ranges" in entry for entry in manifest["entries"]
                )
    assert min(reasons[why] for why in ("no state", "parted", "segment gone", "vanished")) > 0, reasons
