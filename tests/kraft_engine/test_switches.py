"""Every safety rule, switched off, is missed: the invariants can see."""

from __future__ import annotations

import pytest

from kraft_engine.switches import ALL_ON, RULES

# Rules whose damage is rare: where the search begins, so that the quick tests stay quick. `make switches` begins at 0.
NEAR = {
    "change_waits_for_epoch_commit": 66,
    "duplicate_voter_is_refused": 119,
    "persist_vote_before_reply": 72,
    "unclean_shutdown_leaves_elr": 48,
}


def test_there_are_sixty_rules_and_more() -> None:
    assert len(RULES) >= 60


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(ValueError, match="no safety rule is called 'fsync'"):
        ALL_ON.without("fsync")
