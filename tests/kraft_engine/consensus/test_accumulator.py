"""A leader merges data within its linger into one batch, splits large ones, and writes control batches at once."""

from __future__ import annotations

from kraft_engine.consensus.leader import append, leader_change
from kraft_engine.consensus.log_batches import Record
from kraft_engine.consensus.raft import RaftNode
from kraft_engine.runs.kafka_run import KafkaRun
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.world.world import MS

NOTHING: Record = ("NoOpRecord", 0, {})


def leader_of(linger_ms: int) -> tuple[RandomRun, RaftNode]:
    run = RandomRun(3, static=True)
    run.cluster.settings.append_linger_us = linger_ms * MS
    run.faults.are_over = True
    return run, run.cluster.run_until_leader()


def sizes(node: RaftNode, start: int) -> list[int]:
    return [len(batch.records) for batch in node.log.batches if batch.base_offset >= start and not batch.is_control]


def test_what_is_appended_within_the_linger_is_one_batch_of_its_first_moment() -> None:
    run, node = leader_of(25)
    start, opened_ms = node.log.end_offset, run.world.wall_ms(node.skew_ms)
    for count in (1, 2, 3):
        append(node, (NOTHING,) * count, is_control=False)
    assert node.log.end_offset == start
    assert node.leader is not None
    assert node.leader.next_offset == start + 6
    run.world.run(until_us=run.world.now_us + 26 * MS)
    assert sizes(node, start) == [6]
    assert node.log.batches[-1].timestamp_ms == opened_ms


def test_without_linger_every_append_is_a_batch() -> None:
    _, node = leader_of(0)
    start = node.log.end_offset
    for count in (1, 2, 3):
        append(node, (NOTHING,) * count, is_control=False)
    assert sizes(node, start) == [1, 2, 3]


def test_a_full_batch_is_written_and_the_next_is_begun() -> None:
    _, node = leader_of(25)
    node.settings.max_batch_bytes = 400
    start = node.log.end_offset
    for _ in range(5):
        append(node, (NOTHING,), is_control=False)
    assert sizes(node, start) == [3]


def test_a_control_batch_goes_after_what_waits() -> None:
    _, node = leader_of(25)
    start = node.log.end_offset
    append(node, (NOTHING,), is_control=False)
    assert node.leader is not None
    append(node, (leader_change(node, node.leader),), is_control=True)
    assert [batch.is_control for batch in node.log.batches if batch.base_offset >= start] == [False, True]


def test_random_clusters_have_batches_of_several_operations_and_operations_of_several_batches() -> None:
    split = merged = 0
    for seed in range(12):
        run = KafkaRun(seed)
        run.run(4_000)
        for batch in run.invariants.ledger.batches:
            names = [name for name, _, _ in batch.records]
            merged += sum(name.startswith("BrokerRegistrationChange") for name in names) > 1
        split += run.cluster.settings.max_batch_records == 5
    assert merged
    assert split
