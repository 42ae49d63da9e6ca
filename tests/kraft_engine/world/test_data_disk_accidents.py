"""Flushing, power cuts and log dirs of brokers: what is left on the disk, and what the metadata log says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft_codec.files.state_files import parse_leader_epoch_checkpoint
from kraft_engine.runs.scenario_stage import Stage

NEVER_MS = 1 << 40


def two_brokers(stage: Stage, *, log_dirs: int = 1) -> bytes:
    stage.controllers(1)
    stage.brokers(11, 12, log_dirs=log_dirs)
    stage.partitions.allow_data_loss("accidents of brokers' disks")
    return stage.topic("orders", [11, 12])


def since(stage: Stage, offset: int) -> list[tuple[int, str, dict[str, Any]]]:
    return [
        (batch.base_offset + index, name, fields)
        for batch in stage.leader().log.batches
        if not batch.is_control
        for index, (name, _, fields) in enumerate(batch.records)
        if batch.base_offset + index >= offset
    ]


@pytest.mark.parametrize(("power_cut", "left"), [(True, 10), (False, 15)])
def test_a_power_cut_takes_what_was_not_flushed_and_a_kill_nothing(tmp_path: Path, power_cut: bool, left: int) -> None:
    stage = Stage(3, tmp_path, follows_losses=True)
    orders = two_brokers(stage)
    stage.run_ms(300)
    stage.flush_every(NEVER_MS, 11, 12)
    assert stage.produce(orders, 10) == 10
    stage.flush(11)
    assert stage.produce(orders, 5) == 5
    stage.kill_broker(11, power_cut=power_cut)
    assert stage.machine.broker_by_id[11].replicas[orders, 0].end_offset == left
    assert stage.machine.broker_by_id[12].replicas[orders, 0].end_offset == 15


def test_a_broker_flushes_as_often_as_it_is_told(tmp_path: Path) -> None:
    stage = Stage(3, tmp_path, follows_losses=True)
    orders = two_brokers(stage)
    stage.flush_every(1_000, 11)
    stage.flush_every(NEVER_MS, 12)
    stage.produce(orders, 10)
    stage.run_ms(1_500)
    ends = [stage.machine.broker_by_id[broker].replicas[orders, 0] for broker in (11, 12)]
    assert [replica.synced_end for replica in ends] == [ends[0].end_offset, 0]


def test_a_replaced_dir_is_reported_before_its_broker_is_unfenced(tmp_path: Path) -> None:
    """As real 4.3.1 wrote it: the registration without the old dir, the new dirs of partitions, then the unfencing."""
    stage = Stage(5, tmp_path, follows_losses=True)
    orders = two_brokers(stage, log_dirs=2)
    broker = stage.machine.broker_by_id[12]
    stage.until(lambda: stage.partition(orders).directory_of(12) in broker.log_dirs, "the dir reported")
    stage.produce(orders, 10)
    old = stage.partition(orders).directory_of(12)
    number = broker.log_dirs.index(old)
    stage.stop_broker(12)
    with pytest.raises(ValueError, match="broker 11 runs"):
        stage.data_disks.replace(stage.machine.broker_by_id[11], 0)
    begin = stage.leader().log.end_offset
    stage.data_disks.replace(broker, number)
    assert broker.log_dirs[number] != old
    assert (orders, 0) not in broker.replicas
    stage.start_broker(12)
    stage.until_isr(orders, 11, 12)
    steps = []
    for _, name, fields in since(stage, begin):
        if name == "RegisterBrokerRecord":
            assert sorted(fields["logDirs"]) == sorted(broker.log_dirs)
            steps.append("registered")
        elif name == "PartitionChangeRecord" and "directories" in fields:
            assert fields["directories"][1] in broker.log_dirs
            steps.append("reported")
        elif name == "BrokerRegistrationChangeRecord" and fields.get("fenced") == -1:
            steps.append("unfenced")
    assert steps == ["registered", "reported", "unfenced"]
    assert broker.replicas[orders, 0].values == stage.machine.broker_by_id[11].replicas[orders, 0].values


def test_an_emptied_dir_leaves_no_trace_in_the_metadata(tmp_path: Path) -> None:
    stage = Stage(5, tmp_path, follows_losses=True)
    orders = two_brokers(stage)
    stage.produce(orders, 10)
    broker = stage.machine.broker_by_id[12]
    stage.stop_broker(12)
    begin = stage.leader().log.end_offset
    stage.data_disks.empty(broker, 0)
    stage.start_broker(12)
    stage.until_isr(orders, 11, 12)
    registered = [fields for _, name, fields in since(stage, begin) if name == "RegisterBrokerRecord"]
    assert [fields["logDirs"] for fields in registered] == [broker.log_dirs]
    assert not any("directories" in fields for _, name, fields in since(stage, begin) if name.startswith("Partition"))


def test_a_quiet_leader_has_its_epoch_in_the_checkpoint(tmp_path: Path) -> None:
    """LeaderEpochFileCache.assign at the election, not at the first record."""
    stage = Stage(7, tmp_path, follows_losses=True)
    orders = two_brokers(stage)
    stage.produce(orders, 10)
    stage.kill_broker(11, power_cut=False)
    stage.run_ms(200)
    end = stage.machine.broker_by_id[12].replicas[orders, 0].end_offset
    folder = stage.capture("quiet") / "node-12" / "orders-0"
    entries = parse_leader_epoch_checkpoint((folder / "leader-epoch-checkpoint").read_bytes())
    assert [(entry.epoch, entry.start_offset) for entry in entries] == [(0, 0), (1, end)]


@pytest.mark.parametrize(("release", "level", "moves"), [("3.6.2", 14, True), ("3.9.2", 21, False)])
def test_before_3_7_the_watermark_moves_below_min_isr(tmp_path: Path, release: str, level: int, moves: bool) -> None:
    """KAFKA-15583."""
    stage = Stage(9, tmp_path, release=release, metadata_version=level)
    stage.controllers(1, static=True)
    stage.brokers(11, 12)
    orders = stage.topic("orders", [11, 12], configs={"min.insync.replicas": "2"})
    stage.produce(orders, 10)
    stage.kill_broker(12, power_cut=False)
    stage.until_isr(orders, 11)
    stage.run_ms(300)
    replica = stage.machine.broker_by_id[11].replicas[orders, 0]
    before = replica.high_watermark
    assert stage.produce(orders, 5, acks_all=False) == 5
    assert stage.produce(orders, 5) == 0
    assert replica.high_watermark == before + (5 if moves else 0)
