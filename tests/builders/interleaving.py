"""Runs on one lake in threads, of which one moves at a time: a seed says who, at every look at a table and every write.

A run gives its turn back before it looks at a table's log and before it writes; between the two any other run may have
done anything. Some runs die there, as by kill -9: they never get another turn.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kraft_audit.lake.delta import DeltaLake

WAIT_S = 60


class Killed(BaseException):
    """Ends a run where it stands: no handler of errors stops it."""


@dataclass(eq=False)
class Actor:
    """One run: its thread waits until it is its turn."""

    name: int
    work: Callable[[Actor], Any]
    dies_at: int | None = None
    turns: int = 0
    is_done: bool = False
    was_killed: bool = False
    result: Any = None
    problem: BaseException | None = None
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    back: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def turn(self) -> None:
        """Called by the run: gives the turn back and waits for the next one."""
        self.back.release()
        self._wait()

    def _wait(self) -> None:
        assert self.go.acquire(timeout=WAIT_S), "no actor gives this run a turn"
        self.turns += 1
        if self.turns == self.dies_at:
            raise Killed

    def main(self) -> None:
        try:
            self._wait()
            self.result = self.work(self)
        except Killed:
            self.was_killed = True
        except BaseException as problem:
            self.problem = problem
        finally:
            self.is_done = True
            self.back.release()


class TurnLake(DeltaLake):
    """A lake at which a run gives its turn back before each look at a table and each write."""

    def __init__(self, uri: str, actor: Actor) -> None:
        super().__init__(uri)
        self._actor = actor

    def exists(self, table: str) -> bool:
        self._actor.turn()
        return super().exists(table)

    def latest(self, table: str) -> Any:
        self._actor.turn()
        return super().latest(table)

    @contextlib.contextmanager
    def writing(self, table: str, what: str = "cannot be written") -> Iterator[None]:
        self._actor.turn()
        with super().writing(table, what):
            yield


def interleave(actors: list[Actor], chance: random.Random) -> None:
    """Gives turns until every run has ended. Some seeds change at each turn, some let one run do much at once."""
    stays = chance.choice([0.0, 0.3, 0.7, 0.95])
    threads = [threading.Thread(target=actor.main, daemon=True) for actor in actors]
    for thread in threads:
        thread.start()
    current = actors[0]
    while alive := [actor for actor in actors if not actor.is_done]:
        if current.is_done or chance.random() >= stays:
            current = chance.choice(alive)
        current.go.release()
        assert current.back.acquire(timeout=WAIT_S), f"run {current.name} does not come back"
    for thread in threads:
        thread.join(WAIT_S)
