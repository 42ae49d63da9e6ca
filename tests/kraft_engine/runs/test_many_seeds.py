"""1,000 seeds of 5,000 events over the dialects: within the model nothing breaks, and each run has a leader when its
faults end, or none is possible. A minute of one core.
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
CHUNK = 25
KINDS: dict[str, tuple[type[RandomRun] | type[KafkaRun], int]] = {
    "raft": (RandomRun, 250),
    "storm": (ElectionStorm, 100),
    "upgrade": (UpgradeRun, 100),
    "kafka": (KafkaRun, 150),
    "wide": (WideRun, 150),
    "kip856": (Kip856Run, 125),
    "kip642": (Kip642Run, 125),
}
FIRST_SEED = int(os.environ.get("KRAFT_FIRST_SEED", "0"))


JOBS = [(name, start) for name, (_, count) in KINDS.items() for start in range(0, count, CHUNK)]


def test_there_are_a_thousand() -> None:
    assert sum(count for _, count in KINDS.values()) == CHUNK * len(JOBS) == 1_000


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
