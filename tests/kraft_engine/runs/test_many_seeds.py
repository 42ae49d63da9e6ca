"""2,000 seeds of 5,000 events over the dialects: within the model nothing breaks, and each run has a leader when its
faults end, or none is possible. Two minutes of one core.
"""

from __future__ import annotations

import os

import pytest

from kraft_engine.brokers.image import ReplayError
from kraft_engine.drafts import Kip642Run, Kip856Run
from kraft_engine.runs.chronicle import InvariantViolationError
from kraft_engine.runs.kafka_run import KafkaRun
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.runs.storms import ElectionStorm
from kraft_engine.runs.upgrades import UpgradeRun
from kraft_engine.runs.wide_run import WideRun
from tests.builders.electable import heal_or_prove_leaderless

pytestmark = pytest.mark.ci

EVENT_COUNT = 5_000
CHUNK = 50
KINDS: dict[str, tuple[type[RandomRun] | type[KafkaRun], int]] = {
    "raft": (RandomRun, 500),
    "storm": (ElectionStorm, 200),
    "upgrade": (UpgradeRun, 200),
    "kafka": (KafkaRun, 300),
    "wide": (WideRun, 300),
    "kip856": (Kip856Run, 250),
    "kip642": (Kip642Run, 250),
}
FIRST_SEED = int(os.environ.get("KRAFT_FIRST_SEED", "0"))


JOBS = [(name, start) for name, (_, count) in KINDS.items() for start in range(0, count, CHUNK)]


def test_there_are_two_thousand() -> None:
    assert sum(count for _, count in KINDS.values()) == CHUNK * len(JOBS) == 2_000


@pytest.mark.parametrize(("name", "start"), JOBS, ids=lambda value: str(value))
def test_nothing_breaks(name: str, start: int) -> None:
    broken, events = [], 0
    for seed in range(FIRST_SEED + start, FIRST_SEED + start + CHUNK):
        run = KINDS[name][0](seed)
        try:
            events += run.run(EVENT_COUNT)
            heal_or_prove_leaderless(run)
        except (InvariantViolationError, ReplayError) as error:
            broken.append(f"{name} seed {seed}: {str(error).splitlines()[0]}")
    assert broken == []
    assert events == CHUNK * EVENT_COUNT
