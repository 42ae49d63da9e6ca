"""A broker's data dirs say what its replicas held: the files are read back by the codec, and compared with the engine's
own state.
"""

from __future__ import annotations

from pathlib import Path

from kraft_codec.files.discovery import discover
from kraft_codec.files.properties import parse_meta_properties
from kraft_codec.files.state_files import (
    parse_leader_epoch_checkpoint,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from kraft_codec.records.batch import Batch, read_batches, read_records
from kraft_codec.storage.local import LocalStorage
from kraft_codec.text.java_text import uuid_text
from kraft_engine.brokers.controller_admin import assign_directory
from kraft_engine.runs.scenario_stage import Stage


def records_of(log: Path) -> list[tuple[int, int]]:
    """(leader epoch, value) of every record of a segment."""
    octets = log.read_bytes()
    found = []
    for batch in read_batches(octets):
        assert isinstance(batch, Batch)
        assert batch.damage is None
        for record in read_records(octets, batch.header):
            assert record.value is not None
            found.append((batch.header.leader_epoch, int(record.value)))
    return found


def watermarks(folder: Path, name: str = "replication-offset-checkpoint") -> dict[tuple[str, int], int]:
    entries = parse_offset_checkpoint((folder / name).read_bytes())
    return {(entry.topic, entry.partition): entry.offset for entry in entries}


def test_data_dirs_hold_what_the_replicas_held(tmp_path: Path) -> None:
    stage = Stage(3, tmp_path)
    stage.controllers(1)
    stage.brokers(11, 12)
    orders = stage.topic("orders", [11, 12], [12, 11], configs={"min.insync.replicas": "1"})
    stage.produce(orders, 20)
    stage.kill_broker(11)
    stage.produce(orders, 20)
    stage.produce(orders, 5, index=1)
    held = [stage.machine.broker_by_id[broker].replicas[(orders, 0)] for broker in (11, 12)]
    expected = [list(zip(replica.epochs, replica.values, strict=True)) for replica in held]
    stage.capture("now")
    for broker_id, records in zip((11, 12), expected, strict=True):
        folder = tmp_path / "now" / f"node-{broker_id}"
        partition = folder / "orders-0"
        assert records_of(partition / f"{0:020}.log") == records
        epochs = parse_leader_epoch_checkpoint((partition / "leader-epoch-checkpoint").read_bytes())
        assert [(entry.epoch, entry.start_offset) for entry in epochs] == [
            (epoch, next(at for at, (found, _) in enumerate(records) if found == epoch))
            for epoch in sorted({epoch for epoch, _ in records})
        ]
        metadata = parse_partition_metadata((partition / "partition.metadata").read_bytes())
        assert metadata.topic_id == uuid_text(orders)
        assert watermarks(folder)[("orders", 0)] <= 20
    # The survivor went on in a new epoch; the dead one ends before it.
    assert expected[1][: len(expected[0])] == expected[0]
    assert expected[1][-1][0] > expected[0][-1][0]


def test_a_clean_stop_leaves_checkpoints_at_the_end(tmp_path: Path) -> None:
    stage = Stage(4, tmp_path)
    stage.controllers(1)
    stage.brokers(11, 12)
    orders = stage.topic("orders", [11, 12])
    stage.produce(orders, 12)
    stage.run_ms(1_000)
    end = stage.machine.broker_by_id[12].replicas[(orders, 0)].end_offset
    stage.stop_broker(12)
    folder = stage.capture("stopped") / "node-12"
    assert end
    assert watermarks(folder)[("orders", 0)] == end
    assert watermarks(folder, "recovery-point-offset-checkpoint")[("orders", 0)] == end


def test_every_log_dir_is_written_under_its_own_id(tmp_path: Path) -> None:
    stage = Stage(5, tmp_path)
    stage.controllers(1)
    (broker, _) = stage.brokers(11, 12, log_dirs=2)
    stage.topic("orders", [11, 12])
    capture = stage.capture("both")
    folders = [capture / "node-11", capture / "node-11-dir-2"]
    found = [parse_meta_properties((folder / "meta.properties").read_bytes()) for folder in folders]
    assert [meta.directory_id for meta in found] == [uuid_text(directory) for directory in broker.log_dirs]
    # The second dir is no replica of the metadata log.
    discovered = discover(LocalStorage(str(capture)))
    assert len(discovered.replicas) == 3
    assert len(discovered.further_log_dirs) == 2
    broker.offline_dirs.append(broker.log_dirs[1])
    assert not (stage.capture("offline") / "node-11-dir-2").exists()


def test_a_replica_whose_log_dir_is_offline_does_not_come_back_to_the_isr(tmp_path: Path) -> None:
    """Kafka 4.3.1 creates no log for it in another dir (Partition.createLogInAssignedDirectoryId)."""
    stage = Stage(5, tmp_path)
    stage.controllers(1)
    (_, follower) = stage.brokers(11, 12, log_dirs=2)
    stage.topic("orders", [11, 12])
    stage.run_ms(3_000)
    (partition,) = stage.controller().image.all_partitions()
    directory = follower.log_dirs[1]
    assign_directory(stage.controller(), 12, partition.topic_id, partition.index, directory)
    stage.run_ms(1_000)
    assert sorted(partition.isr) == [11, 12]
    follower.offline_dirs.append(directory)
    stage.run_ms(10_000)
    (partition,) = stage.controller().image.all_partitions()
    assert partition.isr == [11]
