"""The fleet's logs are made in columns: the codec and the image agree that they are logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft_codec.batch import Batch, read_batches, read_records
from kraft_codec.record import read_metadata_value
from kraft_engine.fleet import simulate_fleet
from kraft_engine.image import Image
from kraft_engine.simulate import tree_hash


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
