"""The committed interval against the truth of random histories, and against what Kafka reported."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.quorum.committed_interval import committed_interval
from kraft_audit.quorum.quorum_evidence import CapturedReplica, EpochRun, LogChain, PersistedState, QuorumEvidence
from kraft_audit.quorum.voter_history import Voter, VoterSet
from tests.builders import small_raft


def check_history(seed: int, *, static: bool, steps: int = 150) -> tuple[int, int]:
    """Runs one history with captures on the way; how many, and how many of them were points."""
    raft = small_raft.SmallRaft(seed, static=static)
    chance = random.Random(seed)  # noqa: S311
    captures = points = 0
    for _ in range(steps):
        raft.step()
        if chance.random() < 0.1:
            chosen = [i for i in raft.nodes if chance.random() < 0.75]
            chance.shuffle(chosen)
            taken = small_raft.capture(raft, chosen, at_rest=chance.random() < 0.3)
            interval = committed_interval(taken.evidence)
            assert interval.low <= taken.committed_at_end, (seed, interval)
            assert interval.high is None or taken.committed_at_start <= interval.high, (seed, interval)
            captures += 1
            points += interval.high == interval.low
    return captures, points


@pytest.mark.slow
@pytest.mark.parametrize("static", [True, False])
@given(seed=st.integers(0, 2**32))
def test_bounds_hold_on_random_histories(seed: int, static: bool) -> None:
    check_history(seed, static=static)


@given(seed=st.integers(0, 2**32), static=st.booleans(), at_rest=st.booleans())
def test_fewer_replicas_only_widen_and_order_does_not_matter(seed: int, static: bool, at_rest: bool) -> None:
    """Of replicas that were read at one moment or at several, one after the other is left out."""
    raft = small_raft.SmallRaft(seed, static=static)
    chance = random.Random(seed)  # noqa: S311
    for _ in range(chance.choice([40, 80, 120])):
        raft.step()
    nodes = list(raft.nodes)
    chance.shuffle(nodes)
    taken = small_raft.capture(raft, nodes, at_rest=at_rest)
    part, whole = taken.evidence, committed_interval(taken.evidence)
    while part.replicas:
        shuffled = list(part.replicas)
        chance.shuffle(shuffled)
        assert committed_interval(part.of_these(shuffled)) == whole
        part = part.of_these(shuffled[1:])
        fewer = committed_interval(part)
        assert fewer.low <= whole.low
        assert fewer.high is None or (whole.high is not None and fewer.high >= whole.high)
        assert fewer.high is None or fewer.high >= taken.committed_at_start
        whole = fewer


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
def test_an_earlier_low_is_kept(seed: int) -> None:
    raft = small_raft.SmallRaft(seed, static=False)
    low: tuple[int, int] | None = None
    for _ in range(8):
        for _ in range(25):
            raft.step()
        taken = small_raft.capture(raft, raft.random.sample(list(raft.nodes), 3))
        interval = committed_interval(replace(taken.evidence, earlier_low=low))
        assert (low or (0, -1))[0] <= interval.low <= taken.committed_at_end
        assert interval.high is None or taken.committed_at_start <= interval.high
        low = (interval.low, interval.low_epoch)


def three_ends(snapshot_epoch: int, held: tuple[int | None, ...] = (None, None, None)) -> QuorumEvidence:
    """Three voters whose logs begin with a snapshot at 100; `held` is how far each had reached its disk."""
    voters = VoterSet(99, 1, None, "snapshot", 1, tuple(Voter(number) for number in (1, 2, 3)))
    replicas = []
    for number, end, to in zip((1, 2, 3), (150, 130, 110), held, strict=True):
        runs = (EpochRun(3, 100, end),)
        chain = LogChain(runs=runs, voter_sets=(voters,))
        state = PersistedState(3, leader_id=1)
        snapshot = ((100, snapshot_epoch),)
        replicas.append(CapturedReplica(number, None, runs, snapshot, state, chain=chain, held_end_offset=to))
    return QuorumEvidence.of(replicas)


@pytest.mark.parametrize(
    ("snapshot_epoch", "low"),
    [(3, 130), (2, 100)],  # of epoch 2 alone, the snapshot does not tell that epoch 3 had begun
)
def test_a_log_cleaned_up_within_an_epoch_is_proven_from_its_snapshot_on(snapshot_epoch: int, low: int) -> None:
    assert committed_interval(three_ends(snapshot_epoch)).low == low


@pytest.mark.parametrize(
    ("held", "low"),
    [
        ((None, None, None), 130),
        ((150, 130, 110), 130),
        ((None, 120, None), 120),
        ((105, None, None), 110),
        ((105, 108, None), 108),
        ((0, 0, 0), 100),  # a snapshot is synced before it gets its name
        ((None, None, 0), 130),
    ],
)
def test_what_a_majority_held_on_its_disks(held: tuple[int | None, ...], low: int) -> None:
    """Of three voters' ends, each as far as it had reached the disk, the second highest; never less than a snapshot."""
    interval = committed_interval(three_ends(3, held))
    assert (interval.low, interval.held_low, interval.held_low_epoch) == (130, low, 3)


@given(seed=st.integers(0, 2**32), static=st.booleans(), at_rest=st.booleans())
def test_less_on_disks_never_proves_more(seed: int, static: bool, at_rest: bool) -> None:
    raft = small_raft.SmallRaft(seed, static=static)
    chance = random.Random(seed)  # noqa: S311
    for _ in range(chance.choice([40, 80, 120])):
        raft.step()
    evidence = small_raft.capture(raft, list(raft.nodes), at_rest=at_rest).evidence
    low = committed_interval(evidence).low
    held = [replica.end[1] for replica in evidence.replicas]
    known = low
    for _ in range(4):
        disks = [replace(disk, held_end_offset=to) for disk, to in zip(evidence.replicas, held, strict=True)]
        interval = committed_interval(replace(evidence, replicas=tuple(disks)))
        assert interval.low == low
        assert interval.held_low <= known
        known = interval.held_low
        held = [chance.randint(0, to) for to in held]
