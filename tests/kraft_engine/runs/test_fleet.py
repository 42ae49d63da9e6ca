"""The fleet's logs are made in columns: the codec and the image agree that they are logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kraft_codec.records.batch import Batch, read_batches, read_records
from kraft_codec.records.record import read_metadata_value
from kraft_codec.schemas import Dialect
from kraft_engine.brokers.image import Image
from kraft_engine.runs.fleet_logs import simulate_fleet
from kraft_engine.runs.fleet_topics import topic_batches, topic_records
from kraft_engine.runs.simulate import tree_hash
from kraft_engine.world.encoding import records_octets
from kraft_engine.world.world import EPOCH_MS


def test_a_fleet_is_read_back_as_it_was_meant(tmp_path: Path) -> None:
    fleet = simulate_fleet(tmp_path / "fleet", clusters=2, partitions=120, changes=1_000)
    lines = [json.loads(line) for line in (tmp_path / "fleet" / "truth.jsonl").read_text().splitlines()]
    assert len(lines) == fleet.cluster_count == 2
    for line in lines:
        logs = sorted((tmp_path / "fleet" / line["cluster"]).glob("node-*/__cluster_metadata-0/*.log"))
        assert len({log.read_bytes() for log in logs}) == 1
        octets = logs[0].read_bytes()
        image, expected = Image(), 0
        for batch in read_batches(octets):
            assert isinstance(batch, Batch)
            assert batch.damage is None
            assert batch.header.base_offset == expected
            expected = batch.header.last_offset + 1
            for record in read_records(octets, batch.header):
                if not batch.header.is_control and record.value is not None:
                    found = read_metadata_value(record.value)
                    image.replay(found.message.name, dict(found.fields))
        assert expected == line["committed_offset"]
        partitions = image.all_partitions()
        assert len(partitions) == line["partitions"]
        assert sum(partition.partition_epoch for partition in partitions) == line["partition_epochs_sum"]
        assert all(partition.isr == [11, 12, 13] for partition in partitions)


def test_a_fleet_depends_on_its_seed_alone(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        simulate_fleet(tmp_path / name, clusters=1, partitions=60, changes=256, seed=seed, replicas=1)
    assert tree_hash(tmp_path / "a") == tree_hash(tmp_path / "b") != tree_hash(tmp_path / "c")


def test_an_empty_fleet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="clusters 0"):
        simulate_fleet(tmp_path, clusters=0, partitions=1, changes=1)


def vars_of(partition: Any) -> dict[str, Any]:
    return {name: getattr(partition, name) for name in type(partition).__slots__}


def test_an_aged_fleet_begins_at_a_snapshot_of_what_is_gone(tmp_path: Path) -> None:
    simulate_fleet(tmp_path, clusters=1, partitions=120, changes=256, voters=5, is_aged=True, snapshot_pairs=2)
    (line,) = [json.loads(line) for line in (tmp_path / "truth.jsonl").read_text().splitlines()]
    folder = tmp_path / "cluster-0" / "node-5" / "__cluster_metadata-0"
    assert len(list(tmp_path.glob("cluster-0/node-*"))) == 5
    snapshot, newest = sorted(folder.glob("*.checkpoint"))
    image = Image()
    start = int(snapshot.name.partition("-")[0])
    for octets, expected in ((snapshot.read_bytes(), 0), ((folder / f"{start:020d}.log").read_bytes(), start)):
        for batch in read_batches(octets):
            assert isinstance(batch, Batch)
            assert batch.damage is None
            assert batch.header.base_offset == expected
            expected = batch.header.last_offset + 1  # each file counts on from its start
            for record in read_records(octets, batch.header):
                if not batch.header.is_control and record.value is not None:
                    found = read_metadata_value(record.value)
                    image.replay(found.message.name, dict(found.fields))
    assert expected == line["committed_offset"]
    assert sum(partition.partition_epoch for partition in image.all_partitions()) == line["partition_epochs_sum"] == 256
    assert len(image.all_partitions()) == 120
    again = Image()
    octets = newest.read_bytes()
    for batch in read_batches(octets):
        assert isinstance(batch, Batch)
        for record in read_records(octets, batch.header):
            if not batch.header.is_control and record.value is not None:
                found = read_metadata_value(record.value)
                again.replay(found.message.name, dict(found.fields))
    assert [vars_of(partition) for partition in again.all_partitions()] == [
        vars_of(partition) for partition in image.all_partitions()
    ]


def test_topics_from_a_template_are_those_that_the_codec_writes() -> None:
    ids = [bytes([number]) * 16 for number in range(1, 4)]
    epochs = np.arange(150).reshape(3, 50)
    written = [
        records_octets(
            topic_records(number, topic_id, epochs[number].tolist()),
            7 + 51 * number, 1, EPOCH_MS, False, Dialect.KIP853,
        )
        for number, topic_id in enumerate(ids)
    ]  # fmt: skip
    assert topic_batches(ids, 7, EPOCH_MS, epochs) == written


def test_an_aged_fleet_grows_by_more_changes(tmp_path: Path) -> None:
    for name, changes in (("before", 512), ("after", 1024)):
        simulate_fleet(
            tmp_path / name, clusters=1, partitions=70, changes=changes, replicas=1, is_aged=True, snapshot_pairs=3
        )
    folders = [tmp_path / name / "cluster-0" / "node-1" / "__cluster_metadata-0" for name in ("before", "after")]
    (before,), (after,) = (list(folder.glob("*.log")) for folder in folders)
    assert before.name == after.name
    assert after.read_bytes().startswith(before.read_bytes())
    old, new = ({path.name: path.read_bytes() for path in folder.glob("*.checkpoint")} for folder in folders)
    assert len(old) == 2
    assert len(new) == 3
    assert old.items() <= new.items()
