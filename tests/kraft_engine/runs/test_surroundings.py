"""What a cluster writes beside its incidents: registrations, NoOpRecords, snapshots, segments, endpoints."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kraft_codec.records.batch import Batch, read_batches
from kraft_codec.records.record import decode_records
from kraft_engine.runs.scenario_stage import Stage
from kraft_engine.runs.surroundings import Habits
from kraft_engine.world.world import MS


def staged(folder: Path, **habits: Any) -> Stage:
    stage = Stage(5, folder, habits=Habits(**habits))
    stage.controllers(1, 2, 3)
    return stage


def batches(path: Path) -> list[Batch]:
    return [found for found in read_batches(path.read_bytes()) if isinstance(found, Batch)]


def records(path: Path, name: str) -> list[dict[str, Any]]:
    octets = path.read_bytes()
    decoded = [record for batch in batches(path) for record in decode_records(octets, batch.header)]
    return [record.fields or {} for record in decoded if record.message is not None and record.message.name == name]


def metadata_dir(stage: Stage, capture: str, node_id: int) -> Path:
    return stage.capture(capture, node_id) / f"node-{node_id}" / "__cluster_metadata-0"


def test_a_controller_registers_at_each_start_under_a_new_incarnation(tmp_path: Path) -> None:
    stage = staged(tmp_path)
    stage.run_ms(3_000)
    for _ in range(2):
        stage.crash(2)
        stage.start(2)
        stage.run_ms(6_000)
    log = metadata_dir(stage, "after", 3) / f"{0:020d}.log"
    incarnations = [
        (fields["controllerId"], fields["incarnationId"]) for fields in records(log, "RegisterControllerRecord")
    ]
    assert sorted(node_id for node_id, _ in incarnations) == [1, 2, 2, 2, 3]
    assert len(set(incarnations)) == 5


@pytest.mark.parametrize("interval_ms", [500, 1_000])
def test_an_idle_controller_writes_a_noop_at_each_interval(tmp_path: Path, interval_ms: int) -> None:
    stage = staged(tmp_path, idle_interval_us=interval_ms * MS)
    stage.run_ms(20_000)
    log = metadata_dir(stage, "idle", 1) / f"{0:020d}.log"
    octets = log.read_bytes()
    times = [
        batch.header.max_timestamp_ms for batch in batches(log)
        if [record.message.name for record in decode_records(octets, batch.header) if record.message] == ["NoOpRecord"]
    ]  # fmt: skip
    assert len(times) >= 15_000 // interval_ms
    assert all(abs(late - early - interval_ms) <= 250 for early, late in pairwise(times))


def test_each_node_makes_snapshots_by_the_bytes_that_it_has_read(tmp_path: Path) -> None:
    stage = staged(tmp_path, snapshot_bytes=2_000)
    stage.run_ms(40_000)
    for node_id in (1, 2, 3):
        folder = metadata_dir(stage, "bytes", node_id)
        ends = sorted(int(path.name[:20]) for path in folder.glob("*.checkpoint"))
        assert len(ends) > 2  # the one of formatting among them
        found = batches(folder / f"{0:020d}.log")
        for begin, end in pairwise(ends):
            read = sum(batch.header.size_bytes for batch in found if begin <= batch.header.base_offset < end)
            assert 2_000 <= read < 2_000 + 1_000


def test_a_node_makes_a_snapshot_when_enough_time_has_passed(tmp_path: Path) -> None:
    stage = staged(tmp_path, snapshot_interval_us=10_000 * MS)
    stage.run_ms(35_000)
    snapshots = stage.node(2).log.snapshots
    assert len(snapshots) == 3
    assert all(9_500 < late.made_ms - early.made_ms < 11_000 for early, late in pairwise(snapshots))


def test_segments_are_as_large_as_their_bytes_say(tmp_path: Path) -> None:
    stage = staged(tmp_path, segment_bytes=2_000)
    stage.run_ms(60_000)
    folder = metadata_dir(stage, "segments", 2)
    segments = sorted(folder.glob("*.log"))
    assert len(segments) > 2
    for segment, following in pairwise(segments):
        size_bytes, next_bytes = segment.stat().st_size, batches(following)[0].header.size_bytes
        assert size_bytes <= 2_000 < size_bytes + next_bytes


def test_voters_with_two_listeners_name_both_once_they_have_led_or_followed(tmp_path: Path) -> None:
    """`kafka-storage format` knows one endpoint a voter; each voter sends the rest itself (UpdateRaftVoter)."""
    stage = staged(tmp_path, further_listeners=(("CONTROLLER_SSL", 9094),))
    stage.run_ms(8_000)
    folder = metadata_dir(stage, "listeners", 1)
    (formatted,) = records(folder / f"{0:020d}-{0:010d}.checkpoint", "VotersRecord")
    assert [len(voter["endpoints"]) for voter in formatted["voters"]] == [1, 1, 1]
    first, *_, last = records(folder / f"{0:020d}.log", "VotersRecord")
    leader = stage.leader().id
    assert [voter["voterId"] for voter in first["voters"] if len(voter["endpoints"]) == 2] == [leader]
    assert [len(voter["endpoints"]) for voter in last["voters"]] == [2, 2, 2]
    (registered, *_) = records(folder / f"{0:020d}.log", "RegisterControllerRecord")
    assert [(entry["name"], entry["port"], entry["securityProtocol"]) for entry in registered["endPoints"]] == [
        ("CONTROLLER", 9093, 0), ("CONTROLLER_SSL", 9094, 1),
    ]  # fmt: skip


def test_the_snapshots_of_formatting_hold_the_same_voters_and_differ_in_bytes(tmp_path: Path) -> None:
    stage = staged(tmp_path)
    paths = [metadata_dir(stage, "formatted", node_id) / f"{0:020d}-{0:010d}.checkpoint" for node_id in (1, 2, 3)]
    assert len({path.read_bytes() for path in paths}) == 3
    assert all(records(path, "VotersRecord") == records(paths[0], "VotersRecord") for path in paths)
