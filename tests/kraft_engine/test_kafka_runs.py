"""Random runs of whole clusters: ISR, ELR, elections and acknowledged data, with and without each rule."""

from __future__ import annotations

import os

import pytest

from kraft_engine.kafka_run import KafkaRun

SEED_COUNT = int(os.environ.get("KRAFT_SEEDS", "25"))
EVENT_COUNT = 10_000


@pytest.mark.slow
def test_random_clusters_lose_nothing_that_was_acknowledged() -> None:
    acknowledged = partitions = elections = 0
    for seed in range(SEED_COUNT):
        run = KafkaRun(seed)
        run.run(EVENT_COUNT)
        acknowledged += run.partition_invariants.acknowledged_count
        partitions += len(run.partition_invariants.committed)
        elections += len(run.partition_invariants.leaders)
    assert acknowledged > 300 * SEED_COUNT
    assert partitions > 4 * SEED_COUNT
    assert elections > partitions


@pytest.mark.slow
def test_more_power_cuts_than_min_isr_lose_data_and_say_so() -> None:
    lost = 0
    for seed in range(max(SEED_COUNT, 30)):
        run = KafkaRun(seed, beyond_model=True)
        run.run(EVENT_COUNT)
        lost += run.partition_invariants.lost_count
        told = sum(event[2]["to_offset"] - event[2]["from_offset"] for event in run.invariants.events
                   if event[1] == "data_lost")  # fmt: skip
        assert told == run.partition_invariants.lost_count
    assert lost
