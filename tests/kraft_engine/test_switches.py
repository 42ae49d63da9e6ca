"""Every safety rule, switched off, is missed: the invariants can see."""

from __future__ import annotations

import pytest

from kraft_engine.hunt import SCHEDULES, SEED_LIMIT, hunt
from kraft_engine.switches import ALL_ON, RULES

# Rules whose damage is rare: where the search begins, so that the quick tests stay quick. `make switches` begins at 0.
NEAR = {
    "alter_partition_checks_brokers": 94,
    "answers_match_their_requests": 92,
    "cancelled_reassignment_keeps_an_isr": 56,
    "change_waits_for_epoch_commit": 46,
    "duplicate_voter_is_refused": 333,
    "elr_begins_with_cluster_min_isr": 12,
    "fetched_batches_are_of_this_epoch": 102,
    "follower_grants_no_vote": 76,
    "installed_snapshot_brings_its_voters": 63,
    "isr_expansion_needs_caught_up": 28,
    "last_voter_stays": 105,
    "min_isr_change_clears_elr": 8,
    "resigned_grants_no_vote": 18,
    "snapshot_outside_transaction": 36,
    "vote_needs_no_known_leader": 92,
}


@pytest.mark.slow
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
