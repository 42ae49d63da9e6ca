"""Random runs that lose acknowledged records: how many do, why, and whether the truth names the right election."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kraft_engine.runs.harsh_run import HARSH_CLUSTERS, HarshRun
from kraft_engine.runs.simulate import simulate
from tests.builders.sure_holders import SureHolders

EVENT_COUNT = 10_000
SEEDS = 16


@cache
def played(seed: int, *, power_cuts: bool = True) -> HarshRun:
    run = HarshRun(seed, power_cuts=power_cuts)
    run.run(EVENT_COUNT)
    return run


def losses(run: HarshRun) -> list[dict[str, Any]]:
    return [fields for _, kind, fields in run.invariants.events if kind == "data_lost"]


def causes(run: HarshRun) -> Counter[str]:
    found: Counter[str] = Counter()
    for loss in losses(run):
        found.update(loss["causes"])
    return found


@pytest.mark.slow
def test_half_of_the_seeds_lose_records_to_power_cuts() -> None:
    """103 of the first 149 lost some, 96 of them records that were not flushed."""
    runs = [played(seed) for seed in range(SEEDS)]
    assert {run.machine.bootstrap.features["metadata.version"] for run in runs} == {
        level for level, _, _ in HARSH_CLUSTERS
    }
    assert sum(bool(causes(run)["unflushed"]) for run in runs) * 2 >= SEEDS
    assert sum(run.invariants.seen["min ISR lowered at one member"] for run in runs) > 0
    cuts = Counter(
        fields["power_cut"] for run in runs for _, kind, fields in run.invariants.events if kind == "broker_crash"
    )
    assert 0.4 < cuts[True] / cuts.total() < 0.75


@pytest.mark.slow
def test_kills_alone_lose_nothing_that_was_not_flushed() -> None:
    runs = [played(seed, power_cuts=False) for seed in range(SEEDS)]
    found: Counter[str] = Counter()
    for run in runs:
        found.update(causes(run))
        assert not any(fields["lost_records"] for _, kind, fields in run.invariants.events if kind == "broker_crash")
    assert found["unflushed"] == 0
    assert found["emptied"] + found["never held"] > 0


@pytest.mark.slow
def test_each_loss_names_an_election_of_a_broker_that_is_no_sure_holder() -> None:
    count = 0
    for seed in range(SEEDS):
        run = played(seed)
        events = SureHolders().read(run.invariants.ledger.batches).events
        for loss in losses(run):
            count += 1
            key = (loss["topic_id"], loss["partition"], loss["leader_epoch"])
            assert events[key].offset == loss["election_offset"], f"seed {seed}: {loss}"
    assert count > SEEDS


@pytest.mark.slow
def test_the_lost_ranges_hold_what_was_acknowledged() -> None:
    """Counted again from the `acknowledged` lines: by partition and value, those below the leader's common end."""
    for seed in range(SEEDS):
        run = played(seed)
        acknowledged: dict[tuple[bytes, int], list[tuple[int, int]]] = {}
        for _, kind, fields in run.invariants.events:
            if kind == "acknowledged":
                place = acknowledged.setdefault((fields["topic_id"], fields["partition"]), [])
                place.append((fields["offset"], fields["value"]))
            elif kind == "data_lost":
                span = range(fields["from_offset"], fields["to_offset"])
                assert sum(part["to_offset"] - part["from_offset"] for part in fields["ranges"]) == len(span)
                assert sum(part["acknowledged"] for part in fields["ranges"]) == fields["acknowledged"]
                assert all(part["leader_epoch"] < fields["leader_epoch"] for part in fields["ranges"])
                offsets = {offset for offset, _ in acknowledged.get((fields["topic_id"], fields["partition"]), ())}
                if fields["to_offset"] - fields["from_offset"] > 1:
                    assert fields["acknowledged"] <= len(offsets & set(span))
                for holder in fields["holders"]:
                    assert fields["from_offset"] < holder["to_offset"] <= fields["to_offset"]
                    assert holder["holds_all"] == (holder["to_offset"] == fields["to_offset"])


@pytest.mark.slow
def test_harsh_runs_heal() -> None:
    for seed in range(6):
        run = HarshRun(seed)
        run.run(EVENT_COUNT)
        assert run.heal(), seed


def test_captures_hold_the_brokers_checkpoints(tmp_path: Path) -> None:
    simulation = simulate("random-harsh", 2, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "truth.jsonl").read_text(encoding="utf-8").splitlines()]
    lost = [line for line in lines if line["kind"] == "data_lost"]
    assert lost
    assert {"election_offset", "election_ms", "leader_epoch", "holders", "ranges", "causes"} <= lost[0].keys()
    last = tmp_path / "run" / simulation.captures[-1]
    partition_dirs = [folder for folder in last.glob("node-*/topic-*") if folder.is_dir()]
    assert partition_dirs
    for folder in partition_dirs:
        assert {"leader-epoch-checkpoint", "partition.metadata"} <= {file.name for file in folder.iterdir()}
        assert (folder.parent / "replication-offset-checkpoint").exists()
