"""2,000 seeds of 5,000 events over the dialects: within the model nothing breaks. Two processes, two minutes."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from kraft_engine.chronicle import InvariantViolationError
from kraft_engine.drafts import Kip642Run, Kip856Run
from kraft_engine.image import ReplayError
from kraft_engine.kafka_run import KafkaRun
from kraft_engine.schedule import RandomRun

pytestmark = pytest.mark.ci

EVENT_COUNT = 5_000
CHUNK = 50
KINDS: dict[str, tuple[type[RandomRun] | type[KafkaRun], int]] = {
    "raft": (RandomRun, 800),
    "kafka": (KafkaRun, 500),
    "kip856": (Kip856Run, 350),
    "kip642": (Kip642Run, 350),
}
FIRST_SEED = int(os.environ.get("KRAFT_FIRST_SEED", "0"))


def violations(name: str, first_seed: int, count: int) -> tuple[int, list[str]]:
    """How many events ran, and what broke."""
    events, broken = 0, []
    for seed in range(first_seed, first_seed + count):
        run = KINDS[name][0](seed)
        try:
            events += run.run(EVENT_COUNT)
        except (InvariantViolationError, ReplayError) as error:
            broken.append(f"{name} seed {seed}: {str(error).splitlines()[0]}")
    return events, broken


def test_two_thousand_seeds_break_nothing() -> None:
    jobs = [
        (name, FIRST_SEED + start, min(CHUNK, count - start))
        for name, (_, count) in KINDS.items()
        for start in range(0, count, CHUNK)
    ]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(violations, *zip(*jobs, strict=True)))
    assert [line for _, broken in found for line in broken] == []
    assert sum(count for _, count in KINDS.values()) == 2_000
    assert sum(events for events, _ in found) > 0.99 * 2_000 * EVENT_COUNT
