"""Every safety rule, switched off, is missed: the invariants can see."""

from __future__ import annotations

import pytest

from kraft_engine.invariants.switches import ALL_ON, RULES
from kraft_engine.runs.hunt import SCHEDULES, SEED_LIMIT, hunt

# Rules whose damage is rare: where the search begins, so that the quick tests stay quick. `make switches` begins at 0.
NEAR = {
    "alter_partition_checks_brokers": 61,
    "alter_partition_comes_from_leader": 4,
    "alter_partition_isr_has_leader": 3,
    "alter_partition_isr_is_of_replicas": 5,
    "answers_match_their_requests": 92,
    "broker_waits_for_its_registration": 5,
    "cancelled_reassignment_keeps_an_isr": 58,
    "candidate_grants_no_vote": 21,
    "change_waits_for_epoch_commit": 46,
    "clean_restart_keeps_elr": 19,
    "clean_shutdown_names_its_epoch": 19,
    "clean_shutdown_syncs": 7,
    "duplicate_voter_is_refused": 333,
    "elected_leader_clears_last_known": 6,
    "election_needs_active_broker": 16,
    "election_needs_online_directory": 12,
    "elr_begins_with_cluster_min_isr": 12,
    "elr_leader_is_the_isr": 7,
    "elr_leader_leaves_elr": 7,
    "elr_only_below_min_isr": 6,
    "fetched_batches_are_of_this_epoch": 102,
    "high_watermark_never_decreases": 14,
    "installed_snapshot_brings_its_voters": 63,
    "isr_expansion_needs_caught_up": 28,
    "isr_expansion_reaches_epoch_start": 7,
    "last_voter_stays": 105,
    "leader_checks_divergence": 8,
    "leader_outside_set_does_not_count_itself": 14,
    "metadata_version_never_falls": 4,
    "min_isr_change_clears_elr": 8,
    "new_voter_has_a_directory": 16,
    "new_voter_supports_kraft_version": 22,
    "one_vote_per_epoch": 21,
    "only_voters_stand": 21,
    "persist_vote_before_reply": 9,
    "recovering_leader_is_alone": 3,
    "removal_names_a_directory": 21,
    "resigned_grants_no_vote": 18,
    "snapshot_outside_transaction": 204,
    "unclean_leader_is_the_isr": 6,
    "unclean_shutdown_leaves_elr": 19,
    "unfencing_needs_caught_up": 6,
    "vote_needs_no_known_leader": 92,
    "voter_fences_old_epochs": 9,
    "voter_set_reverts_on_truncation": 11,
    "voters_match_by_directory": 37,
}


@pytest.mark.ci
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_switched_off_is_caught(rule: str) -> None:
    first_seed = NEAR.get(rule, 0)
    catch = hunt(rule, first_seed=first_seed, seed_limit=SEED_LIMIT - first_seed)
    assert catch is not None, f"{rule} was off up to seed {SEED_LIMIT} and nothing broke"


def test_there_are_a_hundred_rules_and_more() -> None:
    assert len(RULES) >= 120
    assert set(SCHEDULES) <= set(RULES)


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(ValueError, match="no safety rule is called 'fsync'"):
        ALL_ON.without("fsync")
