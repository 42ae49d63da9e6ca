"""What `simulate` writes: the same bytes for the same seed, and bytes that the codec reads back as they were meant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraft_codec.files.indexes import parse_offset_index, parse_time_index
from kraft_codec.files.properties import parse_meta_properties
from kraft_codec.files.state_files import parse_leader_epoch_checkpoint, parse_quorum_state
from kraft_codec.records.batch import Batch, read_batches, read_records
from kraft_codec.records.record import read_control_key, read_metadata_value
from kraft_engine.runs.simulate import scenario_names, simulate, tree_hash
from kraft_engine.scenarios.scenario import load


def hash_in_another_process(scenario: str, seed: int, out: Path, hash_seed: str) -> str:
    code = (
        "import sys; from pathlib import Path; from kraft_engine.runs.simulate import simulate, tree_hash;"
        "out = Path(sys.argv[3]); simulate(sys.argv[1], int(sys.argv[2]), out); print(tree_hash(out))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, scenario, str(seed), str(out)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    return run.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["random", "random-raft", "last-replica-standing"])
def test_a_seed_gives_the_same_tree_in_any_process(scenario: str, tmp_path: Path) -> None:
    first = hash_in_another_process(scenario, 3, tmp_path / "a", "0")
    second = hash_in_another_process(scenario, 3, tmp_path / "elsewhere" / "b", "4711")
    simulate(scenario, 3, tmp_path / "c")
    assert first == second == tree_hash(tmp_path / "c")
    simulate(scenario, 4, tmp_path / "d")
    assert tree_hash(tmp_path / "d") != first


def check_partition_dir(folder: Path) -> int:
    """Every batch of a dir is valid, follows the one before, and decodes; returns how many records it has."""
    count = 0
    expected: int | None = None
    for path in sorted(folder.glob("*.log")):
        octets = path.read_bytes()
        base = int(path.name[:20])
        assert expected in (None, base)
        expected = base
        positions = {}
        for batch in read_batches(octets):
            if not isinstance(batch, Batch):
                assert batch.reason is not None
                continue
            assert batch.damage is None
            header = batch.header
            assert header.base_offset == expected
            expected = header.last_offset + 1
            positions[header.last_offset - base] = header.position
            for record in read_records(octets, header):
                count += 1
                if header.is_control:
                    assert read_control_key(record.key) in range(2, 7)
                else:
                    assert record.value is not None
                    read_metadata_value(record.value)
        index = parse_offset_index(path.with_suffix(".index").read_bytes())
        for offset, position in zip(index.relative_offsets.tolist(), index.positions.tolist(), strict=True):
            assert positions[offset] == position
        parse_time_index(path.with_suffix(".timeindex").read_bytes())
    for path in folder.glob("*.checkpoint"):
        octets = path.read_bytes()
        batches = [batch for batch in read_batches(octets) if isinstance(batch, Batch)]
        assert read_control_key(next(iter(read_records(octets, batches[0].header))).key) == 3
        assert read_control_key(next(iter(read_records(octets, batches[-1].header))).key) == 4
    if (folder / "quorum-state").exists():
        parse_quorum_state((folder / "quorum-state").read_bytes())
    parse_leader_epoch_checkpoint((folder / "leader-epoch-checkpoint").read_bytes())
    return count


@pytest.mark.parametrize("scenario", ["random", "random-raft"])
def test_the_codec_reads_what_random_runs_write(scenario: str, tmp_path: Path) -> None:
    simulation = simulate(scenario, 11, tmp_path / "run")
    folders = sorted((tmp_path / "run").glob("*/node-*"))
    assert len(folders) >= 4 * len(simulation.captures) - 4
    total = sum(check_partition_dir(folder / "__cluster_metadata-0") for folder in folders)
    assert total > 100
    for folder in folders:
        meta = parse_meta_properties((folder / "meta.properties").read_bytes())
        assert meta.node_id == int(folder.name.removeprefix("node-"))


def test_the_truth_says_what_was_captured(tmp_path: Path) -> None:
    simulate("last-known-leader", 1, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "truth.jsonl").read_text().splitlines()]
    assert lines[0]["kind"] == "run"
    assert lines[-1]["kind"] == "end"
    captures = [line for line in lines if line["kind"] == "capture"]
    assert [line["capture"] for line in captures] == lines[0]["captures"]
    for line in captures:
        assert line["high_watermark"] <= line["committed_offset"]
    states = [line for line in lines if line["kind"] == "partition"]
    assert any(state["leader"] == -1 and state["elr"] for state in states)
    assert any(state["leader_recovery_state"] == 1 for state in states)
    assert states[-1]["leader_recovery_state"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("scenario", sorted(load()))
def test_every_scenario_plays(scenario: str, tmp_path: Path) -> None:
    simulation = simulate(scenario, 1, tmp_path / "run")
    assert simulation.captures
    for capture in simulation.captures:
        folders = list((tmp_path / "run" / capture).iterdir())
        assert any((folder / "__cluster_metadata-0" / "partition.metadata").exists() for folder in folders)
        assert all((folder / "meta.properties").exists() for folder in folders)


def test_an_unknown_scenario_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no scenario is called 'nowhere'"):
        simulate("nowhere", 1, tmp_path / "run")
    assert "random" in scenario_names()


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ValueError, match="is not empty"):
        simulate("random", 1, tmp_path)
