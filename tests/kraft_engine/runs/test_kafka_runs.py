"""Random runs of whole clusters: ISR, ELR, elections and acknowledged data, with and without each rule."""

from __future__ import annotations

import os

import pytest

from kraft_engine.runs.kafka_run import KafkaRun

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
        reported = sum(event[2]["to_offset"] - event[2]["from_offset"] for event in run.invariants.events
                   if event[1] == "data_lost")  # fmt: skip
        assert reported == run.partition_invariants.lost_count
    assert lost


# By metadata.version, from 3.3-IV0 to 4.4-IV2: what MetadataVersion says of these records (4.2 of Kafka's facts).
RECORD_VERSIONS = {
    4: (0, 0), 6: (0, 0), 7: (0, 1), 8: (0, 2), 14: (0, 2), 16: (0, 2), 17: (1, 3), 21: (1, 3), 22: (1, 3), 23: (2, 3),
    25: (2, 3), 29: (2, 3), 30: (2, 4), 33: (2, 4),
}  # fmt: skip


@pytest.mark.parametrize("level", RECORD_VERSIONS)
def test_records_have_the_versions_of_their_level(level: int) -> None:
    run = KafkaRun(3, metadata_version=level, release="4.4.0" if level > 30 else "4.3.1")
    found: dict[str, set[int]] = {}
    while run.world.event_count < 4_000 and "PartitionRecord" not in found:
        run.run(250)
        for batch in run.invariants.ledger.batches:
            for name, version, fields in batch.records:
                if name == "FeatureLevelRecord" and fields["name"] == "metadata.version":
                    assert fields["featureLevel"] == level
                found.setdefault(name, set()).add(version)
    partition, registration = RECORD_VERSIONS[level]
    assert found["PartitionRecord"] == {partition}
    assert found["RegisterBrokerRecord"] == {registration}
    assert ("UnfenceBrokerRecord" in found) == (level < 6)
    assert ("BrokerRegistrationChangeRecord" in found) == (level >= 6)
    assert ("BeginTransactionRecord" in found) == (level >= 13)
    assert ("RegisterControllerRecord" in found) == (level >= 15)
