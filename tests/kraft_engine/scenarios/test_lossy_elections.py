"""Stories about lost records: which records, by which election, who held them, and what became of the copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.runs.simulate import tree_hash
from kraft_engine.scenarios.scenario import load
from tests.builders.sure_holders import SureHolders

SEED = 1
# story: partition, from, to, leader, its leader epoch, whether unclean, causes, holders by state
LOSSES: dict[str, tuple[int, int, int, int, int, bool, dict[str, int], dict[int, str]]] = {
    "loss-holders-down": (0, 9, 18, 11, 4, True, {"never held": 9}, {12: "down", 13: "down"}),
    "loss-holders-stopped": (0, 9, 18, 11, 4, True, {"never held": 9}, {12: "stopped", 13: "stopped"}),
    "loss-holders-came-back": (0, 9, 18, 11, 4, True, {"never held": 9}, {12: "stopped", 13: "stopped"}),
    "loss-last-known-leader": (0, 9, 19, 13, 4, True, {"unflushed": 10}, {}),
    "loss-came-back-alone": (0, 9, 18, 13, 4, False, {"unflushed": 9}, {12: "running"}),
    "loss-disk-replaced": (0, 0, 10, 12, 2, True, {"emptied": 10}, {}),
    "loss-disk-emptied": (0, 0, 9, 12, 2, True, {"emptied": 9}, {}),
    "loss-stale-eligible": (1, 0, 9, 12, 2, False, {"deleted": 9}, {11: "down"}),
    "loss-min-isr-lowered": (0, 9, 19, 12, 4, True, {"never held": 10}, {13: "down"}),
}
NOTHING_LOST = ("reassigned-and-elected", "sole-replica-restarted", "moved-between-dirs", "eligible-elected")


def played(name: str, seed: int, out: Path) -> Stage:
    return load()[name].play(seed, out / "run")


def events(stage: Stage, kind: str) -> list[dict[str, Any]]:
    return [fields for _, found, fields in stage.invariants.events if found == kind]


@pytest.mark.parametrize("name", LOSSES)
def test_the_truth_of_a_loss(name: str, tmp_path: Path) -> None:
    stage = played(name, SEED, tmp_path)
    index, begin, end, leader, leader_epoch, unclean, causes, holders = LOSSES[name]
    (loss,) = events(stage, "data_lost")
    assert (loss["partition"], loss["from_offset"], loss["to_offset"]) == (index, begin, end)
    assert (loss["leader"], loss["leader_epoch"], loss["unclean"]) == (leader, leader_epoch, unclean)
    assert loss["acknowledged"] == end - begin
    assert loss["causes"] == causes
    assert {holder["broker"]: holder["state"] for holder in loss["holders"]} == holders
    assert all(holder["holds_all"] for holder in loss["holders"])


@pytest.mark.parametrize("seed", [SEED, 2, 3])
@pytest.mark.parametrize("name", LOSSES)
def test_the_record_that_lost_them_elects_no_sure_holder(name: str, seed: int, tmp_path: Path) -> None:
    """Counted again: from the committed metadata log, and from the acknowledged values that the leader lacks."""
    stage = played(name, seed, tmp_path)
    (loss,) = events(stage, "data_lost")
    key = (loss["topic_id"], loss["partition"])
    found = SureHolders().read(stage.invariants.ledger.batches).events
    assert found[(*key, loss["leader_epoch"])].offset == loss["election_offset"]
    leader = stage.machine.broker_by_id[loss["leader"]].replicas[key]
    of_partition = [ack for ack in events(stage, "acknowledged") if (ack["topic_id"], ack["partition"]) == key]
    lacking = sorted(ack["offset"] for ack in of_partition if ack["value"] not in leader.values)
    assert lacking == list(range(loss["from_offset"], loss["to_offset"]))


@pytest.mark.parametrize("name", NOTHING_LOST)
def test_nothing_is_lost(name: str, tmp_path: Path) -> None:
    stage = played(name, SEED, tmp_path)
    assert not stage.partitions.data_beyond_model
    assert stage.partitions.lost_count == 0
    assert not SureHolders().read(stage.invariants.ledger.batches).events
    for partition in stage.controller().image.all_partitions():
        key = (partition.topic_id, partition.index)
        leader = stage.machine.broker_by_id[partition.leader].replicas[key]
        assert {ack["value"] for ack in events(stage, "acknowledged") if ack["topic_id"] == key[0]} <= set(
            leader.values
        )


def test_an_election_and_a_reassignment_are_one_record(tmp_path: Path) -> None:
    stage = played("reassigned-and-elected", SEED, tmp_path)
    changes = [
        fields
        for batch in stage.invariants.ledger.batches
        for name, _, fields in batch.records
        if name == "PartitionChangeRecord" and fields.get("leader") == 12
    ]
    assert [(fields["isr"], fields["replicas"]) for fields in changes] == [([12], [12])]


def test_copies_end_when_their_brokers_come_back(tmp_path: Path) -> None:
    stage = played("loss-holders-came-back", SEED, tmp_path)
    gone = events(stage, "copy_gone")
    assert [(copy["broker"], copy["copies_left"]) for copy in gone] == [(12, 1), (13, 0)]
    times = [time_us for time_us, kind, _ in stage.invariants.events if kind in ("data_lost", "copy_gone")]
    starts = [
        time_us for time_us, kind, fields in stage.invariants.events
        if kind == "fault" and fields["what"] == "broker starts" and fields["broker"] in (12, 13)
    ]  # fmt: skip
    assert times[0] < starts[0] < times[1] < starts[1] < times[2]
    (loss,) = events(stage, "data_lost")
    survivors = [stage.machine.broker_by_id[broker].replicas[loss["topic_id"], 0].values for broker in (11, 12, 13)]
    assert survivors[0] == survivors[1] == survivors[2]


@pytest.mark.parametrize("name", ["loss-came-back-alone", "loss-disk-replaced"])
def test_a_story_gives_the_same_bytes_again(name: str, tmp_path: Path) -> None:
    played(name, SEED, tmp_path / "a")
    played(name, SEED, tmp_path / "b")
    assert tree_hash(tmp_path / "a") == tree_hash(tmp_path / "b")
