"""Rows of `partition_changes` in the order in which they were told, as the columns that conditions are made of.

Most conditions look at one row alone, and most hold nowhere: they are asked here, before anything is put in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.rules.node_lists import Mask, NodeLists, Numbers

LISTS: Final = ("replicas", "isr", "elr", "last_known_elr", "adding_replicas", "removing_replicas", "expected_elr")

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, eq=False)
class ToldPartitions:
    """The columns of a table, each made when it is asked for."""

    table: pa.Table
    lists: Mapping[str, NodeLists]
    _known: dict[str, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def exists(self) -> Mask:
        return np.asarray(self.numbers("exists"), bool)

    @property
    def leader(self) -> Numbers:
        return np.asarray(self.numbers("leader"), np.int32)

    @property
    def effective_min_isr(self) -> Numbers:
        return np.asarray(self.numbers("effective_min_isr"), np.int32)

    @property
    def recovering(self) -> Mask:
        return self._is_text("leader_recovery_state", ("RECOVERING",))

    @property
    def has_expected(self) -> Mask:
        """Whether the shipped rules give an ELR."""
        return self.once("has expected", lambda: _flags(pc.is_valid(self.table["expected_elr"])))

    def size(self, name: str) -> Numbers:
        return self.lists[name].lengths

    def is_cause(self, *causes: str) -> Mask:
        return self._is_text("cause", causes)

    def is_election(self, *kinds: str) -> Mask:
        return self._is_text("election", kinds)

    def numbers(self, name: str) -> Any:
        """A column of numbers or flags."""
        return self.once(name, lambda: self.table[name].to_numpy())

    def once(self, name: str, make: Callable[[], _Value]) -> _Value:
        """A value that is made once."""
        if name not in self._known:
            self._known[name] = make()
        value: _Value = self._known[name]
        return value

    def _is_text(self, name: str, wanted: tuple[str, ...]) -> Mask:
        """Rows whose text is one of those wanted: to compare each is cheaper than to number them all."""
        found = np.zeros(len(self), bool)
        for text in wanted:
            found |= self.once(f"{name} {text}", partial(_equal, self.table[name], text))
        return found


def told_partitions(table: pa.Table) -> ToldPartitions:
    """The columns of a table of the contract `partition_changes`."""
    return ToldPartitions(table, {name: NodeLists(table[name]) for name in LISTS})


def _equal(column: pa.ChunkedArray, text: str) -> Mask:
    return _flags(pc.fill_null(pc.equal(column, text), False))


def _flags(column: pa.ChunkedArray) -> Mask:
    flags: Mask = column.to_numpy()
    return flags
