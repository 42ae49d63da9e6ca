"""Accidents of disks leave sound bytes: what is lost or changed is what each says, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_codec.records.batch import Batch, read_batches
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.world.disk_accidents import (
    alter_batch,
    backup,
    copy_partition_dir,
    cut_front,
    lose_quorum_state,
    restore,
)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(3, tmp_path, metadata_version=21)
    stage.controllers(1, 2, 3)
    stage.brokers(11)
    for name in ("a", "b", "c"):
        stage.topic(name, [11])
    stage.settle()
    return stage


def test_a_node_without_quorum_state_has_forgotten_its_epoch_and_votes(stage: Stage) -> None:
    follower = next(node_id for node_id in (1, 2, 3) if node_id != stage.leader().id)
    stage.disk_accident("quorum-state lost", follower, change=lose_quorum_state)
    folder = stage.capture("after", follower) / f"node-{follower}" / "__cluster_metadata-0"
    assert not (folder / "quorum-state").exists()
    assert stage.disk(follower).log.end_offset > 0
    stage.start(follower)
    stage.settle()
    assert stage.node(follower).epoch == stage.leader().epoch


def test_an_altered_batch_has_a_right_checksum_and_other_records(stage: Stage) -> None:
    follower = next(node_id for node_id in (1, 2, 3) if node_id != stage.leader().id)
    log = stage.disk(follower).log
    batch = next(batch for batch in log.batches if any(name == "TopicRecord" for name, _, _ in batch.records))
    before = [whole.records for whole in log.batches]
    stage.disk_accident("altered batch", follower, change=lambda disk: alter_batch(disk, batch.base_offset))
    after = [whole.records for whole in log.batches]
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 1
    assert stage.leader().log.batch_at(batch.base_offset) is batch
    octets = (
        stage.capture("after", follower) / f"node-{follower}" / "__cluster_metadata-0" / f"{0:020d}.log"
    ).read_bytes()
    assert all(isinstance(read, Batch) and read.damage is None for read in read_batches(octets))


def test_a_disk_restored_from_a_backup_lacks_what_came_since(stage: Stage) -> None:
    follower = next(node_id for node_id in (1, 2, 3) if node_id != stage.leader().id)
    copy = backup(stage.disk(follower))
    end = copy.log.end_offset
    stage.topic("later", [11])
    stage.settle()
    stage.disk_accident("restored from a backup", follower, change=lambda disk: restore(disk, copy))
    assert stage.disk(follower).log.end_offset == end < stage.leader().log.end_offset
    stage.start(follower)
    stage.settle()
    assert copy.log.end_offset == end


def test_a_clone_has_the_directory_id_too_and_a_copied_log_has_not(stage: Stage) -> None:
    first, second = (node_id for node_id in (1, 2, 3) if node_id != stage.leader().id)
    own = stage.disk(second).directory
    source = backup(stage.disk(first))
    stage.disk_accident("copied log dir", second, change=lambda disk: copy_partition_dir(disk, source))
    assert stage.disk(second).directory == own
    stage.disk_accident("cloned machine", second, change=lambda disk: restore(disk, source))
    assert stage.disk(second).directory == stage.disk(first).directory


def test_a_log_cut_at_the_front_begins_later_without_a_snapshot(stage: Stage) -> None:
    follower = next(node_id for node_id in (1, 2, 3) if node_id != stage.leader().id)
    end = stage.disk(follower).log.end_offset
    stage.disk_accident("cut at the front", follower, change=lambda disk: cut_front(disk, end // 2))
    log = stage.disk(follower).log
    assert log.start_offset >= end // 2
    assert log.end_offset == end
    assert log.epoch_starts[0][1] == log.start_offset
    folder = stage.capture("after", follower) / f"node-{follower}" / "__cluster_metadata-0"
    assert [path.name for path in folder.glob("*.log")] == [f"{log.start_offset:020d}.log"]


def test_a_majority_wiped_at_once_forgets_what_was_committed(stage: Stage) -> None:
    committed = stage.invariants.ledger.committed_offset
    stage.disk_accident("wiped disk, same directory id", 1, 2, change=lambda disk: disk.wipe_log())
    stage.crash(3)
    stage.start(1)
    stage.start(2)
    stage.until(lambda: stage.cluster.leader() is not None, "a leader among the wiped")
    assert stage.leader().log.end_offset < committed
