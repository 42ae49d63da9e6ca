"""KIP-966's T0 to T4 loses acknowledged records from every replica, whatever the seed; with ELR nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_engine.scenarios.scenario import load

QUICK_SEEDS, SEEDS = 12, 200


@pytest.mark.parametrize("seed", range(QUICK_SEEDS))
def test_acknowledged_records_are_gone_from_every_replica(seed: int, tmp_path: Path) -> None:
    loses_acknowledged_records(seed, tmp_path)


@pytest.mark.ci
def test_they_are_gone_for_two_hundred_seeds(tmp_path: Path) -> None:
    for seed in range(QUICK_SEEDS, SEEDS):
        loses_acknowledged_records(seed, tmp_path / str(seed))


def loses_acknowledged_records(seed: int, tmp_path: Path) -> None:
    stage = load()["last-replica-standing"].play(seed, tmp_path / "run")
    acknowledged = {event[2]["value"] for event in stage.invariants.events if event[1] == "acknowledged"}
    held = {
        value
        for broker in stage.machine.brokers.values()
        for replica in broker.replicas.values()
        for value in replica.values
    }
    assert stage.partitions.lost_count >= len(acknowledged - held) >= 5
    lost = [event[2] for event in stage.invariants.events if event[1] == "data_lost"]
    assert [event["leader"] for event in lost] == [13]
    assert not lost[0]["unclean"]


@pytest.mark.parametrize("seed", range(4))
def test_with_elr_the_same_cuts_lose_nothing(seed: int, tmp_path: Path) -> None:
    stage = load()["last-replica-standing-elr"].play(seed, tmp_path / "run")
    assert stage.partitions.lost_count == 0
