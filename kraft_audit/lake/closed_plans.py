"""Which plans are visible: those that are closed as done, as a low mark and a set.

Plans close in any order. Every plan up to the low mark has ended; of the later ones, some have. A plan that was
abandoned has no rows outside the table `plans`, so that the mark may pass it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraft_audit.tables.bronze import PLANS

CLOSED: Final = "closed"
ABANDONED: Final = "abandoned"


@dataclass(frozen=True, slots=True)
class ClosedPlans:
    """Every plan up to `low`, and those in `above`, ascending."""

    low: int = 0
    above: tuple[int, ...] = ()

    @property
    def newest(self) -> int:
        """The highest number among them, 0 if there is none."""
        return max(self.low, *self.above, 0)

    def where(self, column: str = "plan") -> str:
        """The SQL condition that a row is of one of them."""
        if not self.above:
            return f"{column} <= {self.low}"
        return f"({column} <= {self.low} OR {column} IN ({', '.join(map(str, self.above))}))"

    def __contains__(self, plan: int) -> bool:
        return plan <= self.low or plan in self.above


def where_closed(plans: str) -> str:
    """The same condition where the ledger is not read beforehand; `plans` is how the query names that table."""
    return f"plan IN (SELECT plan FROM {plans} WHERE event = '{CLOSED}' AND outcome IS NULL)"  # noqa: S608  # our own words


def not_abandoned(plans: str = PLANS.name) -> str:
    """The SQL condition that a row of `plans` is of no plan that was abandoned."""
    return f"plan NOT IN (SELECT plan FROM {plans} WHERE event = '{CLOSED}' AND outcome = '{ABANDONED}')"  # noqa: S608
