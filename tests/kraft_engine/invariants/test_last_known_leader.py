"""When a last known leader may be elected without permission: ISR and ELR are both empty after the operation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft_engine.invariants.operation_invariants import Before, OperationInvariants

CASES = (
    # isr, elr, last known ELR, who comes back uncleanly, the leader that is elected, whether that is allowed
    ((), (2,), (4,), {2}, 4, True),
    ((2,), (), (4,), {2}, 4, True),
    ((2,), (3,), (4,), {2}, 4, False),
    ((2,), (), (4,), {3}, 4, False),
    ((), (), (4,), set(), 4, True),
    ((), (), (4,), set(), 3, False),
    ((), (), (3, 4), set(), 4, False),
)


@pytest.mark.parametrize(("isr", "elr", "last_known", "gone", "leader", "is_allowed"), CASES)
def test_an_unclean_leader(
    isr: tuple[int, ...], elr: tuple[int, ...], last_known: tuple[int, ...], gone: set[int], leader: int,
    is_allowed: bool,
) -> None:  # fmt: skip
    failed: list[str] = []
    nothing: Any = SimpleNamespace()
    invariants = OperationInvariants(lambda name, _: failed.append(name), nothing)
    controller: Any = SimpleNamespace(
        bootstrap=SimpleNamespace(unclean_recovery=False), image=SimpleNamespace(unclean_allowed=lambda _: False)
    )
    before = Before(frozenset({2, 3, 4}), isr, elr, last_known, frozenset(), -1, 1, 0)
    partition: Any = SimpleNamespace(topic_id=bytes(16), leader=leader, elr=[])
    invariants._check_unclean(controller, "topic-0", before, partition, gone)
    assert failed == ([] if is_allowed else ["UncleanIsAllowed"])
