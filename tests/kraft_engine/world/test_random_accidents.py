"""Accidents of disks in random runs: all of them happen, and what the truth says is lost no disk holds."""

from __future__ import annotations

from collections import Counter

import pytest

from kraft_engine.consensus.log_batches import Batch
from kraft_engine.consensus.raft import RaftNode
from kraft_engine.consensus.replica_log import Snapshot, SnapshotId
from kraft_engine.runs.kafka_run import KafkaRun
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.runs.wide_run import WideBeyondRun
from kraft_engine.world.random_accidents import ACCIDENTS

SEEDS = [seed for seed in range(218) if seed % 7 in (0, 6)]


class SnapshotContents:
    """By snapshot, the batches that stood in its log below its end when it was made, or in that log's snapshots."""

    def __init__(self, run: RandomRun | KafkaRun) -> None:
        self.of: dict[Snapshot, set[Batch]] = {}
        self._made = run.invariants.snapshot_made
        run.invariants.snapshot_made = self.snapshot_made  # type: ignore[method-assign]

    def snapshot_made(self, node: RaftNode, snapshot_id: SnapshotId) -> None:
        self._made(node, snapshot_id)
        log = node.log
        held = {batch for batch in log.batches if batch.end_offset <= snapshot_id[0]}
        self.of[log.snapshots[-1]] = held.union(*(self.of[made] for made in log.snapshots[:-1]))


def bases_held(run: RandomRun | KafkaRun, snapshots: SnapshotContents) -> set[int]:
    """The committed batches, by base offset, in a log or in a snapshot that a process can start from."""
    held: set[Batch] = set()
    for process in run.cluster.processes:
        log = process.disk.log
        held = held.union(log.batches, *(snapshots.of[made] for made in log.snapshots if log.is_connected))
    return {batch.base_offset for batch in run.invariants.ledger.batches if batch in held}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [RandomRun, KafkaRun], ids=lambda kind: kind.__name__)
def test_every_accident_happens_and_losses_are_those_that_the_disks_show(
    kind: type[RandomRun] | type[KafkaRun],
) -> None:
    seen: Counter[str] = Counter()
    lost_runs = 0
    for seed in SEEDS:
        run = kind(seed, beyond_model=True)
        snapshots = SnapshotContents(run)
        run.run(5_000)
        assert run.accidents is not None
        run.accidents.note_losses()
        seen += run.invariants.seen
        lines = [fields for _, kind, fields in run.invariants.events if kind == "committed_lost"]
        missing = {batch.base_offset for batch in run.invariants.ledger.batches} - bases_held(run, snapshots)
        reported = {base for line in lines for base in missing if line["from_offset"] <= base < line["to_offset"]}
        assert missing == reported, seed
        assert not lines or run.invariants.beyond_model, seed
        lost_runs += bool(missing)
    assert [kind for kind in ACCIDENTS if not seen[f"damage: {kind}"]] == []
    assert 0 < lost_runs < len(SEEDS) // 2


@pytest.mark.parametrize("kind", [RandomRun, KafkaRun], ids=lambda kind: kind.__name__)
def test_the_same_seed_has_the_same_accidents(kind: type[RandomRun] | type[KafkaRun]) -> None:
    first, second = (kind(6, beyond_model=True) for _ in range(2))
    for run in (first, second):
        run.run(5_000)
    assert first.invariants.events == second.invariants.events
    assert any(kind == "damage" for _, kind, _ in first.invariants.events)


def test_a_broker_goes_on_past_a_record_that_it_cannot_apply() -> None:
    """The only voter's disk was wiped, and brokers kept what its new log does not explain (MetadataLoader)."""
    run = KafkaRun(48, beyond_model=True)
    run.run(10_000)
    assert "wiped disk, same directory id" in run.invariants.beyond_model
    assert any(not entry.is_whole for entry in run.machine.images.values())


def test_a_controller_halts_at_a_record_that_it_cannot_apply() -> None:
    """A batch was altered: the registration that later records are about is gone (QuorumController.handleCommit)."""
    run = KafkaRun(84, beyond_model=True)
    run.run(10_000)
    assert "altered batch" in run.invariants.beyond_model
    assert run.invariants.seen["controller: halted by a record"]


def contents(run: RandomRun | KafkaRun) -> dict[int, dict[int, tuple[object, ...]]]:
    """By node and base offset, what a batch says."""
    return {
        process.id: {
            batch.base_offset: (batch.epoch, batch.timestamp_ms, batch.records) for batch in process.disk.log.batches
        }
        for process in run.cluster.processes
    }


@pytest.mark.parametrize("kind", [RandomRun, KafkaRun], ids=lambda kind: kind.__name__)
def test_the_truth_names_who_holds_an_altered_batch_as_it_was(kind: type[RandomRun] | type[KafkaRun]) -> None:
    run = kind(6, beyond_model=True)
    held: list[int] = []
    run.run(2_000)
    for _ in range(8):
        run.run(200)
        assert run.accidents is not None
        process = max(run.cluster.processes, key=lambda process: process.disk.log.end_offset)
        before = contents(run)
        run.accidents._change("altered batch", process, ACCIDENTS["altered batch"])
        line = next(fields for _, name, fields in reversed(run.invariants.events) if name == "damage")
        at = line["from_offset"]
        was = before[process.id][at]
        assert line["held_by"] == [
            node for node, batches in contents(run).items() if batches.get(at) == was and node != process.id
        ]
        held += line["held_by"]
    assert held


def test_wide_runs_have_no_accidents() -> None:
    """Their seeds keep what they mean."""
    assert WideBeyondRun(6).accidents is None
