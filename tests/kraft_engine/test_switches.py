"""Every safety rule, switched off, is missed: the invariants can see."""

from __future__ import annotations

import pytest

from kraft_engine.hunt import hunt, table
from kraft_engine.switches import ALL_ON, RULES

# Rules whose damage is rare: where the search begins, so that the quick tests stay quick. The slow test begins at 0.
NEAR = {
    "change_waits_for_epoch_commit": 66,
    "duplicate_voter_is_refused": 119,
    "persist_vote_before_reply": 72,
    "unclean_shutdown_leaves_elr": 48,
}


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_switched_off_is_caught(rule: str) -> None:
    catch = hunt(rule, first_seed=NEAR.get(rule, 0))
    assert catch is not None, f"{rule} was off for 500 seeds and nothing broke"


@pytest.mark.slow
def test_every_rule_is_caught_within_500_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    catches = [hunt(rule) for rule in RULES]
    missed = [rule for rule, catch in zip(RULES, catches, strict=True) if catch is None]
    with capsys.disabled():
        print("\n" + table([catch for catch in catches if catch is not None]))  # noqa: T201 - the table is the result
    assert not missed


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(ValueError, match="no safety rule is called 'fsync'"):
        ALL_ON.without("fsync")
