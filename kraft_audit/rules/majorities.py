"""Do all majorities of two voter sets meet? The exact answer, with a witness where they do not."""

from __future__ import annotations

from collections.abc import Set
from typing import TypeVar

Member = TypeVar("Member", bound=tuple[object, ...])


def majority_size(count: int) -> int:
    """How many of `count` voters decide (facts 7.2: n / 2 + 1)."""
    return count // 2 + 1


def disjoint_majorities(before: Set[Member], after: Set[Member]) -> tuple[frozenset[Member], frozenset[Member]] | None:
    """A majority of each set such that they share no voter, or None where every two majorities meet.

    A majority takes as many voters as it can from outside the other set and needs the rest from the common ones: two
    disjoint ones exist exactly when those needs together fit in the common voters. An empty set has no majority.
    """
    if not before or not after:
        return None
    common = sorted(before & after, key=repr)
    only_before, only_after = sorted(before - after, key=repr), sorted(after - before, key=repr)
    size_before, size_after = majority_size(len(before)), majority_size(len(after))
    need_before = max(0, size_before - len(only_before))
    need_after = max(0, size_after - len(only_after))
    if need_before + need_after > len(common):
        return None
    first = frozenset(only_before[:size_before]) | frozenset(common[:need_before])
    second = frozenset(only_after[:size_after]) | frozenset(common[need_before : need_before + need_after])
    return first, second


def kafka_overlap_verdict(before: Set[Member], after: Set[Member]) -> bool:
    """What Kafka's own test says: VoterSet.hasOverlappingMajority (3.9 to 4.4, facts 7.7); weaker than its name."""
    return len(before - after) <= 1 and len(after - before) <= 1
