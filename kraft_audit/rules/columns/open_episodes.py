"""What was open where an earlier judgement stopped, and which rows a rule needs to go on from there.

A judgement of a log up to an offset is kept as the rows that still matter (`carrying`). The newest row of every
subject is among them always, and of each open finding the row in effect where it began with the one before it. What a
rule needs besides it says itself, by a function beside it: its `carries`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow.compute as pc

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.frame import Mask, Rows
from kraft_audit.rules.rule_model import Finding, RowNumbers, Scope, finding_id
from kraft_audit.text.readable import HOUR_MS

ALWAYS_MS: Final = -(1 << 63)


def began_at(history: ClusterHistory, rule_id: str, scope: Scope, key: str) -> tuple[int, ...]:
    """Where the episodes of a finding began that were open at the end of an earlier judgement; none without one."""
    if history.carried is None:
        return ()
    return history.carried.begins.get(finding_id(history.history_id or history.cluster_id, rule_id, scope, key), ())


def begin_of(finding: Finding) -> int | None:
    """What distinguishes the episodes of a finding: the offset where it began, else the time."""
    return finding.from_ms if finding.from_offset is None else finding.from_offset


def look_back_ms(as_of_ms: int | None, *, is_open: bool = False) -> int:
    """The time from which rows are carried for rules that count changes within an hour.

    Two hours back while a storm is open: its last excess may be an hour old and rests on the hour before it.
    """
    # A record may claim any time that 64 bits hold.
    return ALWAYS_MS if as_of_ms is None else max(as_of_ms - (1 + is_open) * HOUR_MS, ALWAYS_MS)


def column(history: ClusterHistory, table: str, name: str) -> Rows:
    """A column of numbers of a table of the history."""
    values: Rows = history.chunked_table(table)[name].to_numpy()
    return values


def is_value(history: ClusterHistory, table: str, name: str, value: str | int) -> Mask:
    """The rows of a table with a value."""
    mask: Mask = pc.fill_null(pc.equal(history.chunked_table(table)[name], value), False).to_numpy()
    return mask


def rows_since(history: ClusterHistory, table: str, name: str, value: int, from_offset: int) -> RowNumbers:
    """The rows of one node from an offset on."""
    is_its = is_value(history, table, name, value)
    return table, np.flatnonzero(is_its & (column(history, table, "from_offset") >= from_offset))


def rows_at(history: ClusterHistory, table: str, offsets: Collection[int]) -> RowNumbers:
    """The rows that records at some offsets wrote."""
    return table, np.flatnonzero(np.isin(column(history, table, "from_offset"), np.array(sorted(offsets), np.int64)))
