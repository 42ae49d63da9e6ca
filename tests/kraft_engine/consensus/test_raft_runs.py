"""Random runs of the quorum: nothing breaks within Raft's model, and every rule that is switched off is missed."""

from __future__ import annotations

import os

import pytest

from kraft_engine.consensus.log_batches import Batch
from kraft_engine.consensus.messages import VoteRequest, VoteResponse
from kraft_engine.runs.schedule import RandomRun
from kraft_engine.world.disks import Disk

SEED_COUNT = int(os.environ.get("KRAFT_SEEDS", "40"))
EVENT_COUNT = 5_000


@pytest.mark.slow
def test_random_runs_keep_every_invariant() -> None:
    committed = elections = truncations = voter_sets = 0
    for seed in range(SEED_COUNT):
        run = RandomRun(seed)
        run.run(EVENT_COUNT)
        committed += run.invariants.ledger.committed_offset
        elections += len(run.invariants.elections)
        kinds = [kind for _, kind, _ in run.invariants.events]
        truncations += kinds.count("truncated")
        voter_sets += kinds.count("voters")
    # A run in which nothing happens proves nothing.
    assert committed > 100 * SEED_COUNT
    assert elections > 2 * SEED_COUNT
    assert truncations
    assert voter_sets > SEED_COUNT / 4


@pytest.mark.slow
def test_damage_beyond_the_model_is_labelled() -> None:
    damaged = effects = 0
    for seed in range(SEED_COUNT):
        run = RandomRun(seed, beyond_model=True)
        run.run(EVENT_COUNT)
        damaged += bool(run.invariants.beyond_model)
        effects += len(run.invariants.damage_effects)
        assert run.invariants.beyond_model or not run.invariants.damage_effects
    assert damaged
    assert effects or SEED_COUNT < 100


def test_a_seed_gives_the_same_run_twice() -> None:
    first, second = RandomRun(7), RandomRun(7)
    first.run(EVENT_COUNT)
    second.run(EVENT_COUNT)
    assert first.invariants.timeline == second.invariants.timeline
    assert first.invariants.events == second.invariants.events


def test_an_epoch_without_records_is_forgotten_at_the_next_start() -> None:
    """Found by a run of KIP-642 (seed 374): a leader died between its epoch's entry and the epoch's first batch. Kept,
    the entry made followers believe that the epoch before ended there, and they cut committed records.
    """
    disk = Disk(bytes(16))
    disk.log.append(Batch(0, 1, 0, False, (("NoOpRecord", 0, {}),) * 3, None))
    disk.log.assign_epoch_start(2)
    assert disk.log.end_offset_for_epoch(1) == (1, 3)
    disk.recover()
    disk.log.append(Batch(3, 1, 0, False, (("NoOpRecord", 0, {}),), disk.log.last_batch))
    assert disk.log.epoch_starts == [(1, 0)]
    assert disk.log.validate(4, 1) == ("valid", 4, 1)


def test_a_process_that_dies_keeps_what_its_page_cache_holds() -> None:
    cluster = RandomRun(1).cluster
    disk = cluster.processes[0].disk
    cluster.restart(0)
    disk.log.append(Batch(0, 1, 0, False, (("NoOpRecord", 0, {}),) * 3, None))
    cluster.crash(0, power_cut=False)
    assert (disk.log.end_offset, disk.torn_octets) == (3, 0)


def test_an_answer_to_the_process_before_is_not_awaited() -> None:
    """Found by a storm (seed 745638): its connection has ended. Taken for the answer to the new process's request of
    the same number, it made a follower that had cut and read its log again cut what is committed.
    """
    cluster = RandomRun(1).cluster
    requests = []
    for _ in range(2):
        cluster.restart(0)
        node = cluster.processes[0].node
        assert node is not None
        node.request(1, VoteRequest(cluster.settings.cluster_id, node.key, (2, bytes(16)), 1, 0, 0, False))
        requests.append(node.correlation)
        if len(requests) == 1:
            cluster.crash(0)
    answer = VoteResponse(0, -1, 0, False, False, 0, node.key)
    for correlation, is_still_awaited in zip(requests, (True, False), strict=True):
        node.receive((1, -correlation, answer))
        assert (node.in_flight[1][0] == requests[-1]) is is_still_awaited


def test_a_disk_that_refuses_a_vote_ends_the_process() -> None:
    """The vote that could not be persisted is not given."""
    run = RandomRun(3, static=True)
    run.run(2_000)
    node = next(process.node for process in run.cluster.processes if process.node is not None)
    before = node.disk.visible_state
    node.disk.read_only = True
    settings = run.cluster.settings
    request = VoteRequest(settings.cluster_id, node.key, (99, bytes(16)), node.epoch + 1, node.epoch, 1 << 40, False)
    correlation = run.cluster.ask(node.slot, request)
    assert not node.running
    assert node.disk.visible_state is before
    assert correlation not in run.cluster.replies
