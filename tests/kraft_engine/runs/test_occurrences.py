"""Every kind of event, record, fault and election occurs in random runs: what never happens is never tested."""

from __future__ import annotations

import os

import pytest

from kraft_engine.brokers.image import METADATA_VERSION
from kraft_engine.runs.occurrences import EXPECTED, RUN_CLASSES, observe, occurrences
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.runs.upgrades import UpgradeRun

SEED_COUNT = int(os.environ.get("KRAFT_SEEDS", "45"))


@pytest.mark.ci
def test_nothing_is_left_out() -> None:
    """Within four hundred runs, some forty-five of each kind."""
    found = observe(SEED_COUNT, until=EXPECTED)
    assert [kind for kind in EXPECTED if not found[kind]] == []


def test_what_occurs_is_counted() -> None:
    run = RandomRun(1)
    run.run(2_000)
    found = occurrences(run)
    assert found["Leader"] == len(run.invariants.elections)
    assert found["record: LEADER_CHANGE v0"] <= found["Leader"]
    assert not found[f"{METADATA_VERSION} 30"]
    assert len(RUN_CLASSES) * 45 >= 400


@pytest.mark.slow
def test_static_quorums_become_dynamic_and_change_their_voters() -> None:
    upgraded = changed = 0
    for seed in range(20):
        run = UpgradeRun(seed)
        run.run(5_000)
        records = [name for batch in run.invariants.ledger.batches for name, _, _ in batch.records]
        upgraded += records.count("KRAFT_VERSION") > 0
        changed += records.count("KRAFT_VOTERS") > 1
    assert upgraded >= 5
    assert changed
