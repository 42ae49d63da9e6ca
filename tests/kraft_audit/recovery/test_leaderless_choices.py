"""What a leaderless partition may choose, over every combination of who is eligible, who is up and what is known."""

from __future__ import annotations

from itertools import chain, combinations, product

import pytest

from kraft_audit.recovery.leaderless_partitions import (
    Choice,
    RecoveryPlan,
    ReplicaLog,
    _aggressive,
    _balanced,
    _shipped,
    common_end,
)
from kraft_audit.recovery.recovery_text import recovery_lines
from kraft_audit.rules.columns.sure_copies import Copies

REPLICAS = (1, 2, 3)
Brokers = tuple[int, ...]


def subsets(of: Brokers) -> list[Brokers]:
    return list(chain.from_iterable(combinations(of, size) for size in range(len(of) + 1)))


LOGS = {
    "none": {},
    "one": {2: ReplicaLog(2, 50, 4, 40, ((1, 0), (4, 30)))},
    "all": {
        1: ReplicaLog(1, 60, 3, 40, ((1, 0), (3, 30))),
        2: ReplicaLog(2, 50, 4, 40, ((1, 0), (4, 30))),
        3: ReplicaLog(3, 50, 4, None, ((1, 0), (4, 30)), is_clean=True),
    },
    "marks": {broker: ReplicaLog(broker, None, None, 40) for broker in REPLICAS},
}
CASES = list(product(subsets(REPLICAS), subsets((1, 2)), ((), (3,), (2, 3)), LOGS))
"""Who is up, who is in the ELR (the ISR is empty then), who was known last, which logs were captured."""


def held_by(brokers: Brokers) -> Copies:
    """Every eligible replica surely holds everything."""
    return Copies(0, frozenset(brokers), frozenset(), frozenset(), None, None)


def plan_of(up: Brokers, elr: Brokers, last: Brokers, logs: str, *, unclean: bool, has_elr: bool) -> RecoveryPlan:
    lists = {"replicas": REPLICAS, "isr": (), "elr": elr, "last_known_elr": last}
    known = LOGS[logs]
    choices = (
        _shipped(lists, up, unclean, has_elr, known, held_by(elr)),
        _balanced(lists, up, known),
        _aggressive(lists, up, known),
    )
    return RecoveryPlan("t", 0, REPLICAS, (), elr, last, 1_700_000_000_000, unclean, *choices, tuple(known.values()))


@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize("has_elr", [False, True])
def test_every_choice_is_one_that_the_rules_allow(unclean: bool, has_elr: bool) -> None:
    """Facts 6.2 and KIP-966: who leads is up; an eligible one that is up is taken, and loses nothing."""
    for up, elr, last, logs in CASES:
        plan = plan_of(up, elr, last, logs, unclean=unclean, has_elr=has_elr)
        eligible_up = set(elr) & set(up)
        for choice in (plan.shipped, plan.balanced, plan.aggressive):
            if eligible_up:
                assert (choice.leader in eligible_up, choice.lost_records) == (True, 0)
            assert choice.leader is None or choice.leader in up
            assert choice.leader is None or not choice.waits_for
        if not eligible_up:
            _without_an_eligible_one(plan, up, unclean, has_elr)
        text = "\n".join(recovery_lines([plan]))
        assert ("no broker's data directory was captured" in text) == (logs == "none")
        assert plan.shipped.text in text


def _without_an_eligible_one(plan: RecoveryPlan, up: Brokers, unclean: bool, has_elr: bool) -> None:
    last, elr, logs = plan.last_known_elr, plan.elr, {log.broker_id: log for log in plan.logs}
    elects_last = has_elr and not elr and len(last) == 1 and last[0] in up
    assert (plan.shipped.leader is not None) == (elects_last or (unclean and bool(up)))
    if elects_last:
        assert plan.shipped.leader == last[0]
    elif plan.shipped.leader is not None:
        assert plan.shipped.leader == up[0], "the first live replica in the order of replicas"
        assert ("gives up ELR" in plan.shipped.text) == bool(elr)
    can_compare = bool(up) and (len(up) == 1 or all(b in logs and logs[b].log_end_offset is not None for b in up))
    longest = (
        max(up, key=lambda b: (logs[b].leader_epoch, logs[b].log_end_offset, -b))
        if can_compare and len(up) > 1
        else None
    )
    alone = up[0] if len(up) == 1 else None
    assert plan.aggressive.leader == (longest or alone)
    waits = bool(elr) or not last or not set(last) <= set(up)
    assert plan.balanced.leader == (None if waits else longest or alone)
    if plan.balanced.leader is None and last and not elr and waits:
        assert set(plan.balanced.waits_for) == set(last) - set(up)


def test_logs_without_a_common_epoch_share_what_lies_below_both() -> None:
    mine, replica_log = ReplicaLog(1, 90, 5, None, ((5, 70),)), ReplicaLog(2, 80, 4, None, ((4, 60),))
    assert common_end(replica_log, mine) == 60
    assert common_end(ReplicaLog(3, None, None, 40), mine) == 90
    assert common_end(ReplicaLog(3, 50, 4), mine) == 50, "without epochs, the shorter of the two"


def test_lines_for_plans_of_every_kind() -> None:
    waits = Choice(None, (1,), "waits for 1")
    safe, unknown = Choice(1, (), "elects 1", 0), Choice(1, (), "elects 1")
    choice, many = Choice(1, (), "elects 1", 1, 5), Choice(1, (), "elects 1", 3, 3)
    logs = (ReplicaLog(1, None, None, 7), ReplicaLog(2, 9, 1, None, is_clean=True))
    plans = [
        RecoveryPlan("t", number, (1,), (), (), (), 0, False, shipped, waits, waits, logs)
        for number, shipped in enumerate([waits, safe, unknown, choice, many])
    ]
    text = "\n".join(recovery_lines(plans, show_all=True))
    assert text.startswith("5 partitions without a leader")
    for part in (
        "loses nothing", "what is lost is not known", "loses 1 record that consumers", "loses 3 records that consumers",
        "broker 1: where its log ends was not captured, consumers could read up to offset 7, perhaps more",
        "broker 2: its log ends at offset 9, in leader epoch 1, stopped cleanly",
    ):  # fmt: skip
        assert part in text
    assert list(recovery_lines([])) == ["every partition has a leader"]
