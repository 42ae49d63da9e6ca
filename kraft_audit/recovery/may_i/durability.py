"""What no election among the disks of a quorum can lose, and the smallest accident that changes that."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from kraft_audit.recovery.may_i.electorate import NO_EPOCH, Electorate
from kraft_audit.recovery.may_i.start_safety import StartSafety
from kraft_audit.text.readable import listed

VOTERS_SEARCHED_MAX: Final = 9
"""Sets of disks are tried one by one; no quorum has more voters (KIP-595 expects three to five)."""


@dataclass(frozen=True, slots=True)
class Durability:
    """What no election can lose. Offsets are exclusive ends.

    Nothing below `safe_to` can be lost while no disk changes. `emptied` is the smallest set of nodes whose disks,
    emptied, let an election lose something below `low`; None where no set does. `gone_count` voters gone leave no
    majority.
    """

    safe_to: int
    emptied: tuple[int, ...] | None
    gone_count: int

    @property
    def text(self) -> str:
        """The same in a sentence."""
        safe = f"Offsets through {self.safe_to - 1} cannot be lost by any election" if self.safe_to else ""
        parts = [f"{safe or 'Some election could lose every record'} among all disks"]
        if self.emptied:
            parts.append(f"emptying {listed(self.emptied)} could lose committed records")
        if self.gone_count:
            voters = "1 voter gone leaves" if self.gone_count == 1 else f"{self.gone_count} voters gone leave"
            parts.append(f"{voters} no majority")
        return f"{'; '.join(parts)}."


def durability(safety: StartSafety) -> Durability:
    """What no election can lose, all disks running."""
    losing = safety.losing_first(safety.disks)
    voters = safety.chain.voters_at_end
    spare = 0
    if voters is not None:
        electorate = Electorate(voters, safety.disks)
        spare = electorate.count() - electorate.majority + 1
    return Durability(
        safety.chain.end[1] if losing is None else losing.offset,
        _smallest_emptied(safety, set() if voters is None else set(voters.ids)),
        max(spare, 0),
    )


def _smallest_emptied(safety: StartSafety, voters: Collection[int]) -> tuple[int, ...] | None:
    nodes = sorted(voters)[:VOTERS_SEARCHED_MAX]
    proven = replace(safety, high=safety.low)
    for size in range(len(nodes) + 1):
        for chosen in combinations(nodes, size):
            disks = [disk.emptied(NO_EPOCH) if disk.node_id in chosen else disk for disk in safety.disks]
            if proven.with_disks(disks).losing(disks) is not None:
                return chosen
    return None
