"""Each rule by which a hold counts as acknowledged, and each clause of both bounds, on the smallest disks that tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_audit.quorum.committed_interval import CommittedInterval, committed_interval
from kraft_audit.quorum.open_interval import DIFFERENT_MOMENTS
from kraft_audit.quorum.quorum_evidence import (
    CapturedReplica,
    EpochRun,
    LeaderStart,
    LogChain,
    PersistedState,
    QuorumEvidence,
    merged_chains,
)
from kraft_audit.quorum.voter_history import Voter, VoterSet

Runs = tuple[tuple[int, int, int], ...]
"""(epoch, first offset, end offset)"""


def voters(offset: int, epoch: int, *ids: int, static: bool = False) -> VoterSet:
    members = tuple(Voter(i, None if static else f"d{i}") for i in ids)
    return VoterSet(offset, epoch, None, "static" if static else "log", 0 if static else 1, members)


THREE = voters(-1, 0, 1, 2, 3)
FIVE = voters(-1, 0, 1, 2, 3, 4, 5)


def disk(
    node_id: int,
    runs: Runs,
    leaders: dict[int, int],
    persisted: tuple[int, int] | None,
    *sets: VoterSet,
    firsts: dict[int, int] | None = None,
    snapshots: tuple[tuple[int, int], ...] = (),
) -> CapturedReplica:
    """One disk: its log's epochs, who led each (from its first offset on), (epoch, leader) of its quorum-state."""
    epochs = tuple(EpochRun(*run) for run in runs)
    starts = {e: LeaderStart(e, from_offset, leaders[e]) for e, from_offset, _ in runs if e in leaders}
    chain = LogChain(epochs, starts, sets or (THREE,), firsts or {})
    state = None if persisted is None else PersistedState(*persisted)
    return CapturedReplica(node_id, f"d{node_id}", epochs, snapshots, state, chain=chain if runs else None)


def interval(*replicas: CapturedReplica, earlier_low: tuple[int, int] | None = None) -> CommittedInterval:
    return committed_interval(QuorumEvidence.of(replicas, earlier_low=earlier_low))


def test_rule_a_counts_who_is_in_the_epoch() -> None:
    leads = {1: 1}
    first = disk(1, ((1, 0, 9),), leads, (1, 1))
    assert interval(first, disk(2, ((1, 0, 6),), leads, (1, 1))).low == 6
    assert interval(first, disk(2, ((1, 0, 6),), leads, (2, 3))).low == 0  # may have fetched it in epoch 2
    assert interval(first, disk(2, ((1, 0, 6),), leads, None)).low == 0
    assert interval(first, disk(2, ((1, 0, 6),), leads, (0, -1))).low == 0  # a state older than the log is no promise


def test_only_what_lies_above_the_leader_change_counts() -> None:
    leads = {1: 1, 2: 2}
    older = ((1, 0, 9),)
    newer = ((1, 0, 9), (2, 9, 10))
    of_three = interval(disk(2, newer, leads, (2, 2)), disk(3, older, leads, (2, 2)))
    assert (of_three.low, of_three.low_epoch) == (9, 1)  # nodes 1 and 2 had it in epoch 1: of 2 node 3 has nothing yet
    both = interval(disk(2, newer, leads, (2, 2)), disk(3, newer, leads, (2, 2)))
    assert (both.low, both.low_epoch) == (10, 2)
    of_five = interval(disk(2, newer, leads, (2, 2), FIVE), disk(3, older, leads, (2, 2), FIVE))
    assert of_five.low == 0  # figure 8: what epoch 1 wrote is on three of five, of whom node 3 may have it in epoch 2


@pytest.mark.parametrize(("follower_end", "low"), [(10, (9, 1)), (11, (9, 1)), (12, (12, 2))])
def test_data_ahead_of_the_leader_change_is_proven_with_it(follower_end: int, low: tuple[int, int]) -> None:
    """Kafka 3.5.2 wrote data at 9 and 10, the LeaderChange of epoch 2 at 11: without it nothing of epoch 2 counts."""

    def follower(node_id: int, end: int) -> CapturedReplica:
        found = disk(node_id, ((1, 0, 9), (2, 9, end)), {1: 1, 2: 2}, (2, 2))
        assert found.chain is not None
        leaders = {**found.chain.leaders, 2: LeaderStart(2, 11, 2)}
        return replace(found, chain=replace(found.chain, leaders=leaders))

    found = interval(follower(2, 13), follower(3, follower_end))
    assert (found.low, found.low_epoch) == low


def test_rule_b_counts_a_leader_that_was_not_captured_for_all_that_anyone_holds() -> None:
    leads = {1: 3}
    found = interval(disk(1, ((1, 0, 7),), leads, (1, 3)))
    assert (found.low, found.high) == (7, None)
    assert "node 3 led epoch 1" in found.low_evidence[0]
    observer = disk(9, ((1, 0, 12),), leads, (1, 3))
    assert interval(disk(1, ((1, 0, 7),), leads, (1, 3)), observer).low == 7  # what it holds more is on no majority
    led_elsewhere = interval(disk(1, ((1, 0, 7),), {1: 9}, (1, 9)))
    assert led_elsewhere.low == 0  # a leader outside the set does not count itself


def test_rule_b_reaches_to_the_longest_log_of_the_epoch_on_any_branch() -> None:
    leads = {1: 3}
    forked = disk(2, ((1, 0, 5), (4, 5, 6)), {1: 3, 4: 2}, (4, 2))
    assert interval(disk(1, ((1, 0, 7),), leads, (1, 3)), forked).low == 7


@pytest.mark.parametrize(("named", "low"), [(3, 201), (-1, 123), (1, 123)])
def test_rule_b_knows_a_leader_whose_leader_change_only_another_chain_still_holds(named: int, low: int) -> None:
    """Node 1 deleted what its snapshot covers, and no captured disk holds offsets 74 to 121.

    Its own quorum-state must name the same leader: nodes 2 and 3 may have been wiped and have begun again.
    """
    ends_before = disk(2, ((1, 0, 74),), {1: 3}, (1, 3))
    cleaned = disk(1, ((1, 122, 201),), {}, (1, named), voters(121, 1, 1, 2, 3), snapshots=((123, 1),))
    assert interval(cleaned, ends_before).low == low
    new_disk = VoterSet(121, 1, None, "log", 1, (Voter(1, "d1"), Voter(2, "d2"), Voter(3, "new")))
    replaced = disk(1, ((1, 122, 201),), {}, (1, named), new_disk, snapshots=((123, 1),))
    assert interval(replaced, ends_before).low == 123  # who led is the old disk of node 3


def test_rule_b_knows_a_configured_voter_by_its_id_and_another_by_its_disk() -> None:
    static = voters(-1, 0, 1, 2, 3, static=True)
    assert interval(disk(2, ((1, 0, 7),), {1: 1}, (1, 1), static)).low == 7
    new_disk = VoterSet(6, 1, None, "log", 1, (Voter(1, "new"), Voter(2, "d2"), Voter(3, "d3")))
    replaced = disk(2, ((1, 0, 9),), {1: 1}, (1, 1), THREE, new_disk)
    assert interval(replaced).low == 6  # who led is the old disk of node 1, which the set at 6 has not


def test_rule_c_counts_the_next_leader_below_its_leader_change() -> None:
    """Node 2 led epoch 2, so that what it holds of epoch 1 it held in epoch 1, though it is in a later one now."""
    leads = {1: 1, 2: 2}
    follower = disk(3, ((1, 0, 8), (2, 8, 9)), leads, (5, 4), FIVE)
    found = interval(follower)
    assert found.low == 0  # nodes 1 (led) and 2 (led next) alone are two of five
    with_one = interval(follower, disk(4, ((1, 0, 6),), leads, (1, 1), FIVE))
    assert with_one.low == 6


def test_rule_c_does_not_count_a_leader_of_any_later_epoch() -> None:
    """Figure 8: node 2 may have fetched the record of epoch 1 from the leader of epoch 2, before it led epoch 3."""
    leads = {1: 1, 2: 1, 3: 2}
    log = ((1, 0, 2), (3, 2, 3))
    assert interval(disk(2, log, leads, (3, 2))).low == 0
    assert interval(disk(2, log, {1: 1, 3: 2}, (3, 2)), disk(3, (), leads, (3, 2))).low == 0


def test_rule_d_counts_who_can_have_fetched_in_no_epoch_since() -> None:
    leads = {1: 1}
    first = disk(1, ((1, 0, 9),), leads, (1, 1))
    held = ((1, 0, 6),)
    assert interval(first, disk(2, held, leads, (2, -1))).low == 6  # epoch 2 had no leader that it knew
    assert interval(first, disk(2, held, leads, (3, -1))).low == 0  # epoch 2 may have had one
    led = disk(2, ((1, 0, 6), (3, 6, 7)), {1: 1, 3: 2}, (4, -1), FIVE)
    assert interval(disk(1, ((1, 0, 9),), leads, (1, 1), FIVE), led, disk(3, held, leads, (1, 1), FIVE)).low == 0
    next_led = disk(2, ((1, 0, 6), (2, 6, 7)), {1: 1, 2: 2}, (3, -1), FIVE)
    whole = interval(disk(1, ((1, 0, 9),), leads, (1, 1), FIVE), next_led, disk(3, held, leads, (1, 1), FIVE))
    assert whole.low == 6


def test_a_snapshot_an_earlier_low_and_metadata_after_the_first_batch_prove_on_one_disk() -> None:
    leads = {4: 2}
    replica = disk(1, ((4, 10, 30),), leads, (9, 3))
    assert interval(replica).low == 0
    snapshot = interval(replace(replica, snapshots=((17, 4),)))
    assert (snapshot.low, snapshot.low_epoch) == (17, 4)
    assert interval(replica, earlier_low=(21, 4)).low == 21
    first = interval(disk(1, ((4, 10, 30),), leads, (9, 3), firsts={4: 13}))
    assert (first.low, first.low_epoch) == (13, 4)


def test_a_set_counts_up_to_the_record_of_its_successor() -> None:
    """Nodes 1 and 2 are a majority of three; of {1 2 3 4}, in effect from offset 6 on, they are none."""
    leads = {1: 1}
    sets = (THREE, voters(6, 1, 1, 2, 3, 4))
    log = ((1, 0, 9),)
    assert interval(disk(1, log, leads, (1, 1), *sets), disk(2, log, leads, (1, 1), *sets)).low == 6
    third = disk(4, ((1, 0, 8),), leads, (1, 1), *sets)
    assert interval(disk(1, log, leads, (1, 1), *sets), disk(2, log, leads, (1, 1), *sets), third).low == 8


def test_high_is_where_too_few_can_hold_more() -> None:
    leads = {1: 1}
    disks = [disk(1, ((1, 0, 9),), leads, (1, 1)), disk(2, ((1, 0, 6),), leads, (1, 1))]
    third = disk(3, ((1, 0, 4),), leads, (1, 1))
    assert (interval(*disks).low, interval(*disks).high) == (6, 9)  # node 3 may hold it, and a set without it
    assert (interval(*disks, third).low, interval(*disks, third).high) == (6, 6)
    assert interval(disks[1], third).high == 6
    assert interval(disks[0]).high is None


def test_high_of_a_static_quorum_is_tighter() -> None:
    """Of two configured voters one lacks the record: no unseen set can have committed it."""
    leads = {1: 1}
    two, static = voters(-1, 0, 1, 2), voters(-1, 0, 1, 2, static=True)
    for sets, high in (((two,), 9), ((static,), 6)):
        assert (
            interval(disk(1, ((1, 0, 9),), leads, (1, 1), *sets), disk(2, ((1, 0, 6),), leads, (1, 1), *sets)).high
            == high
        )


def test_one_of_two_configured_voters_bounds_alone() -> None:
    static = voters(-1, 0, 1, 2, static=True)
    assert interval(disk(2, ((1, 0, 6),), {1: 1}, (1, 1), static)).high == 6
    assert interval(disk(2, ((1, 0, 6),), {1: 1}, (1, 1), voters(-1, 0, 1, 2))).high is None


def test_high_needs_a_majority_of_every_set_that_was_seen() -> None:
    leads = {1: 1, 2: 5, 3: 1}
    strange = voters(3, 1, 1, 4, 5, 6, 7)
    on_the_way = [disk(i, ((1, 0, 5),), leads, (1, 1), THREE, strange) for i in (2, 3)]
    assert interval(*on_the_way).high is None
    elsewhere = replace(strange, from_epoch=2)
    forked = disk(2, ((1, 0, 2), (2, 2, 4)), leads, (3, 1), THREE, elsewhere)
    newest = disk(3, ((1, 0, 2), (3, 2, 5)), leads, None)
    assert interval(forked, newest).high is None
    # What epoch 3 committed is not on the other branch: whoever leads from now on knows nothing of its voters.
    decided = interval(forked, replace(newest, persisted=PersistedState(3, 1)))
    assert (decided.low, decided.high) == (5, 5)


def test_high_between_an_old_set_and_one_that_was_not_committed() -> None:
    """{1 2 3 4} becomes {1 2 3} at 6, which too few hold; the record at 5 is excluded if neither set can have it."""
    leads = {1: 1}
    sets = (voters(-1, 0, 1, 2, 3, 4), voters(6, 1, 1, 2, 3))

    def high(*ends: int) -> int | None:
        return interval(*(disk(i, ((1, 0, end),), leads, (1, 1), *sets) for i, end in enumerate(ends, 1))).high

    assert high(9, 4, 4, 9) == 4
    assert high(9, 6, 2, 2) == 6  # {1 2} are a majority of {1 2 3}


def test_high_counts_a_snapshot_as_holding() -> None:
    leads = {1: 1}
    leader = disk(1, ((1, 0, 9),), leads, (1, 1))
    lagging = disk(2, ((1, 0, 4),), leads, (1, 1))
    empty = disk(3, (), {}, (1, 1), snapshots=((7, 1),))
    assert interval(leader, lagging, empty).high == 7
    beyond = disk(3, (), {}, (1, 1), snapshots=((12, 1),))
    assert interval(leader, lagging, beyond).low == 12
    assert interval(leader, lagging, beyond).high is None  # no log reaches so far


def test_high_excludes_a_leader_change_with_all_of_its_epoch() -> None:
    """Of three voters two lack epoch 2's LeaderChange: nothing of epoch 2 was committed."""
    leads = {1: 1, 2: 3}
    older = ((1, 0, 5),)
    found = interval(
        disk(1, older, leads, (1, 1)), disk(2, older, leads, (1, 1)), disk(3, ((1, 0, 5), (2, 5, 9)), leads, (2, 3))
    )
    assert (found.low, found.high) == (5, 5)


def test_high_excludes_a_voter_set_with_what_follows_it() -> None:
    """{1 2 3} becomes {1 2} at 6; node 2 lacks that, so that its own set cannot have committed it."""
    leads = {1: 1}
    sets = (THREE, voters(6, 1, 1, 2))
    leader = disk(1, ((1, 0, 9),), leads, (1, 1), *sets)
    found = interval(leader, disk(2, ((1, 0, 5),), leads, (1, 1)), disk(3, ((1, 0, 9),), leads, (1, 1), *sets))
    assert found.high == 6


def test_high_below_a_later_set_needs_both_sets_blocked() -> None:
    """The record at 5 is on 1 and 4 only: not a majority of {1 2 3}, but one of {1 4}, which came later."""
    leads = {1: 1}
    first, then = voters(-1, 0, 1, 2, 4), voters(6, 1, 1, 4)
    log = ((1, 0, 9),)
    found = interval(
        disk(1, log, leads, (1, 1), first, then),
        disk(2, ((1, 0, 2),), leads, (1, 1), first),
        disk(4, log, leads, (1, 1), first, then),
    )
    assert (found.low, found.high) == (9, 9)


def test_high_takes_what_those_prove_that_saw_less() -> None:
    """When 2 and 3 were read nothing from 4 on was committed. Node 1 went on: the set became {1 3}, then {1}."""
    leads = {1: 1, 2: 1}
    lagging = [disk(i, ((1, 0, 4),), leads, (1, 1)) for i in (2, 3)]
    assert interval(*lagging).high == 4
    sets = (THREE, voters(5, 1, 1, 3), voters(7, 1, 1))
    went_on = disk(1, ((1, 0, 8), (2, 8, 9)), leads, (2, 1), *sets)
    assert interval(went_on).high == 9
    found = interval(went_on, *lagging)
    assert (found.low, found.high) == (9, 4)  # of different moments
    assert found.undecided is not None
    assert found.undecided.startswith(DIFFERENT_MOMENTS)


def test_high_leaves_out_who_saw_a_set_of_which_too_few_were_captured() -> None:
    leads = {1: 1, 3: 1}
    disks = [disk(i, ((1, 0, 2), (3, 2, 5)), leads, (3, 1)) for i in (2, 3)]
    observer = disk(9, ((1, 0, 2), (2, 2, 4)), {1: 1, 2: 5}, (2, 5), THREE, voters(3, 2, 1, 4, 5, 6, 7))
    assert interval(*disks).high == 5
    assert interval(*disks, observer).high == 5


def test_high_does_not_count_a_snapshot_or_a_suffix_of_another_branch() -> None:
    leads = {1: 1, 4: 1}
    longest = disk(1, ((1, 0, 5), (4, 5, 9)), leads, (4, 1))
    lagging = disk(2, ((1, 0, 4),), leads, (4, 1))
    assert interval(longest, lagging, disk(3, (), {}, (4, 1), snapshots=((7, 2),))).high == 4
    suffix = disk(3, ((1, 0, 8),), leads, (4, 1))
    assert interval(longest, lagging, suffix).high == 5


def test_of_two_disks_of_one_configured_voter_the_furthest_speaks() -> None:
    static = voters(-1, 0, 1, 2, 3, static=True)
    disks = [disk(2, ((1, 0, end),), {1: 1}, (1, 1), static) for end in (8, 4)]
    found = interval(disk(1, ((1, 0, 9),), {1: 1}, (1, 1), static), disks[0], replace(disks[1], directory_id="old"))
    assert found.low == 8


def test_two_leaders_of_one_epoch_prove_and_bound_nothing() -> None:
    log = ((1, 0, 9),)
    split = interval(disk(1, log, {1: 1}, (1, 1)), disk(2, log, {1: 2}, (1, 2)), disk(3, log, {1: 1}, (1, 1)))
    assert (split.low, split.high, split.canonical) == (0, None, None)
    evidence = QuorumEvidence.of([disk(i, log, {1: 1}, (1, 1)) for i in (1, 2)], conflicting_epochs=frozenset({1}))
    assert committed_interval(evidence).low == 0


def test_canonical_is_the_furthest_voters_log_not_an_observers() -> None:
    leads = {1: 1}
    voter, observer = disk(1, ((1, 0, 5),), leads, (1, 1)), disk(9, ((1, 0, 3), (2, 3, 12)), {1: 1, 2: 2}, (2, 2))
    removed = disk(4, ((1, 0, 3), (3, 3, 7)), {1: 1, 3: 4}, (3, 4))
    for disks, end in (((voter, observer), (1, 5)), ((observer,), (2, 12)), ((voter, removed), (3, 7))):
        canonical = interval(*disks).canonical
        assert canonical is not None
        assert canonical.end == end  # a removed leader that still leads is one of them


def test_a_longer_stale_tail_hides_no_log_that_was_read_later() -> None:
    """Voter 2's tail of epoch 1 goes on beyond what observer 9, read last, proves of epoch 2."""
    leads = {1: 1, 2: 3}
    voter = disk(2, ((1, 0, 20),), leads, None)
    found = interval(voter, disk(9, ((1, 0, 8), (2, 8, 12)), leads, (2, 3), firsts={2: 9}))
    assert (found.low, found.low_epoch) == (9, 2)
    assert found.canonical is not None
    assert found.canonical.end == (2, 12)


def test_no_log_is_canonical_that_contradicts_what_was_proven() -> None:
    voter = disk(1, ((1, 0, 9),), {1: 1}, (1, 1))
    assert interval(voter, earlier_low=(9, 1)).canonical is not None
    assert interval(voter, earlier_low=(21, 1)).canonical is None
    assert interval(voter, earlier_low=(5, 7)).canonical is None


def test_merged_branches_join_what_overlaps_and_keep_what_forks() -> None:
    def chain(runs: Runs, leaders: dict[int, int]) -> LogChain:
        found = disk(1, runs, leaders, None).chain
        assert found is not None
        return found

    below, above = chain(((1, 0, 6),), {1: 1}), chain(((1, 4, 9), (2, 9, 12)), {2: 2})
    (joined,) = merged_chains([above, below])
    assert [(run.epoch, run.from_offset, run.to_offset) for run in joined.runs] == [(1, 0, 9), (2, 9, 12)]
    fork = chain(((1, 0, 5), (3, 5, 7)), {1: 1, 3: 3})
    assert len(merged_chains([joined, fork])) == 2
    suffix = chain(((1, 0, 11),), {1: 1})
    assert len(merged_chains([joined, suffix])) == 2
    apart = chain(((1, 0, 2),), {1: 1})
    assert len(merged_chains([above, apart])) == 2  # no replica holds what lies between


TWO_DISKS = VoterSet(-1, 0, None, "log", 1, (Voter(1, "d1"), Voter(2, "d2"), Voter(3, "d3"), Voter(3, "d3'")))
"""KIP-856, Disk Failure Recovery Scenario: the failed disk of node 3 still votes beside its successor."""


@pytest.mark.parametrize(("led_by", "low"), [(None, 0), ("d3'", 5), ("d3", 5)])
def test_two_disks_of_one_id_are_not_both_the_leader(led_by: str | None, low: int) -> None:
    """Of four voters three must hold a record: a leader that was not captured is one of them, not two."""

    def follower(node_id: int, end: int) -> CapturedReplica:
        found = disk(node_id, ((1, 0, end),), {1: 3}, (1, 3), TWO_DISKS)
        assert found.chain is not None
        led = replace(found.chain, leaders={1: LeaderStart(1, 0, 3, led_by)})
        return replace(found, chain=led)

    assert interval(follower(1, 5)).low == 0
    assert interval(follower(1, 5), follower(2, 5)).low == low


def test_a_disk_without_a_directory_is_none_of_two_of_its_id() -> None:
    nameless = replace(disk(3, ((1, 0, 5),), {1: 1}, (1, 1), TWO_DISKS), directory_id=None)
    evidence = QuorumEvidence.of([nameless])
    assert evidence.captured(TWO_DISKS) == []
    assert evidence.captured(THREE) == [nameless]


@pytest.mark.parametrize(("directories", "low"), [(True, 0), (False, 9)])
def test_a_leader_of_whose_set_nothing_is_known_is_known_by_its_id_alone(directories: bool, low: int) -> None:
    """The first set that is known came after the election: which disk of node 3 led, its id does not tell."""
    later = voters(6, 1, 1, 2, 3, static=not directories)
    assert interval(disk(1, ((1, 0, 9),), {1: 3}, (1, 3), later)).low == low


def test_where_no_voter_set_is_known_nothing_is_excluded() -> None:
    """The first set in the log is on one of three disks; the voters of the records before it are not known."""

    def high(*before: VoterSet) -> int | None:
        replicas = []
        for number, end in ((1, 9), (2, 3), (3, 3)):
            replica = disk(number, ((1, 0, end),), {1: 1}, (1, 1))
            assert replica.chain is not None
            known_sets = (*before, voters(5, 1, 1, 2, 3)) if end > 5 else before
            replicas.append(replace(replica, chain=replace(replica.chain, voter_sets=known_sets)))
        return interval(*replicas).high

    assert high() == 5
    assert high(THREE) == 3


def test_an_epoch_that_too_few_hold_is_skipped_even_where_its_beginning_is_not_known() -> None:
    """The LeaderChange of epoch 2 is in no captured log: what stands of it is on one disk of three."""
    replica = disk(1, ((1, 0, 5), (2, 7, 9)), {1: 1}, (2, 1))
    assert interval(replica, disk(2, ((1, 0, 5),), {1: 1}, (2, 1)), disk(3, ((1, 0, 4),), {1: 1}, (2, 1))).high == 5


@pytest.mark.parametrize(("later", "high"), [((voters(6, 1, 1),), None), ((), 3)])
def test_a_disk_that_took_the_place_of_a_static_voters_lacks_nothing_of_it(
    later: tuple[VoterSet, ...], high: int | None
) -> None:
    """Node 1 was upgraded, and its disk replaced then: by its id alone the new one would be the only voter's."""
    static = voters(-1, 0, 1, static=True)
    observer = disk(9, ((1, 0, 9),), {1: 1}, (1, 1), static, *later)
    replaced = replace(disk(1, ((1, 0, 3),), {1: 1}, (1, 1), static), directory_id="another disk")
    assert interval(observer, replaced).high == high
    # The observer alone, which has not reached the upgrade, gives the same interval.
    behind = disk(8, ((1, 0, 5),), {1: 1}, (1, 1), static)
    assert interval(observer, behind, replaced).high == high
    # An empty disk belongs to no voter, whatever was seen of an upgrade.
    empty = CapturedReplica(1, "another disk", (), persisted=PersistedState(1, 1))
    assert interval(observer, empty).high is None


def test_low_above_high_is_a_contradiction_only_after_an_earlier_proof() -> None:
    """Disks that are read after the proof and lack the record have lost it; in one round they may be older copies."""
    leads = {1: 1}
    disks = [disk(1, ((1, 0, 9),), leads, (1, 1)), *(disk(i, ((1, 0, 4),), leads, (1, 1)) for i in (2, 3))]
    found = committed_interval(replace(QuorumEvidence.of(disks), earlier_low=(9, 1)))
    assert (found.low, found.high) == (9, 4)
    assert found.undecided == "CONTRADICTION: offset 8 was committed, but only 1 of 3 voters still holds offsets 4–8"


@pytest.mark.parametrize(
    ("state", "took_part", "earlier", "forgotten"),
    [
        (PersistedState(5), 5, -1, 5),
        (PersistedState(5, voted_id=2), 5, -1, -1),
        (PersistedState(5, leader_id=1), 5, -1, -1),
        (PersistedState(5), 4, 5, -1),
        (PersistedState(5, voted_id=2), 5, 5, -1),
        (PersistedState(5, voted_id=2), 6, -1, 6),
        (PersistedState(5, leader_id=1), -1, 6, 6),
    ],
)
def test_an_epoch_is_forgotten_above_the_persisted_one_or_without_its_vote(
    state: PersistedState, took_part: int, earlier: int, forgotten: int
) -> None:
    assert state.forgotten_epoch(took_part, earlier) == forgotten
