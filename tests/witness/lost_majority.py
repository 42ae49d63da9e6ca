"""A quorum of the engine that lost its majority: which disks are left, and what was committed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from kraft_engine.brokers.controller_admin import create_topic
from kraft_engine.consensus.log_batches import Batch
from kraft_engine.runs.scenario_stage import Stage

EARLY = "early"
"""The capture of all nodes that may come before the loss."""


class LostMajority:
    """Some controllers of a quorum are left, and maybe a broker; all others are gone with their disks.

    `was_read`: all were captured once while they ran, as a lake may have done.
    """

    def __init__(self, seed: int, out: Path, *, was_read: bool = False) -> None:
        chance = random.Random(seed)  # noqa: S311
        self.out = out
        self.stage = Stage(seed, out)
        self.ids = list(range(1, chance.choice([3, 3, 5]) + 1))
        self.stage.controllers(*self.ids, static=chance.random() < 0.4)
        self.stage.brokers(11)
        self.early: dict[int, dict[int, Batch]] = {}
        for number in range(chance.randint(1, 4)):
            if was_read and number < 2:
                self._read()
            self.stage.heal()
            leader = self.stage.leader().id
            self._create(f"t{number}")
            drawn = chance.random()
            if drawn < 0.7:
                followers = [node for node in self.ids if node != leader]
                self.stage.isolate(leader if drawn < 0.3 else chance.choice(followers))
            self.stage.run_ms(chance.choice([0, 10, 200, 3_000, 8_000]))
        for controller in [leader.id for leader in self.stage.leaders()]:
            if controller == self.stage.leader().id:
                self._create("last")
                self.stage.run_ms(chance.choice([0, 0, 5, 20]))
        for node in self.ids:
            self.stage.crash(node)
        self.left = sorted(chance.sample(self.ids, chance.randint(1, len(self.ids) // 2)))
        copied = [*self.left, *([11] if chance.random() < 0.4 else [])]
        self.gone = [node for node in self.ids if node not in self.left]
        self.committed = list(self.stage.invariants.ledger.batches)
        self.stage.capture("left", *copied)

    def _create(self, name: str) -> None:
        """A topic, unless the broker is fenced just then."""
        topic_id = self.stage.world.chance.uuid()
        create_topic(self.stage.controller(), name, [[11]], topic_id=topic_id)

    def _read(self) -> None:
        """The newest capture before the loss."""
        shutil.rmtree(self.out / EARLY, ignore_errors=True)
        self.stage.capture(EARLY)
        disks = {process.id: process.disk for process in self.stage.cluster.processes}
        self.early = {node: {batch.base_offset: batch for batch in disk.log.batches} for node, disk in disks.items()}

    def missing(self, node: int, *, is_early: bool = False) -> list[int]:
        """The base offsets of the committed batches that a disk lacks, or lacked when all were captured."""
        log = self.stage.disk(node).log
        held = self.early[node] if is_early else {batch.base_offset: batch for batch in log.batches}
        return [
            batch.base_offset
            for batch in self.committed
            if batch.base_offset >= log.start_offset and held.get(batch.base_offset) is not batch
        ]
