"""A merge into one table of a lake, as rows or as a query, for whatever carries it out."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from kraft_audit.lake.views import TableReference

EngineWords = Mapping[str, str]
"""What an engine calls the functions that stand in braces in the texts of gold.

`explode` makes a row of each element, `sequence` lists the numbers from one to another with both, `array` without
elements is an empty list. `by_hash` comes first in PARTITION BY, for an engine that sorts by it faster.
"""
Changes = Callable[[TableReference, EngineWords], str]
"""The query that gives a merge's rows, in an engine's words."""


class MergeAction(enum.Enum):
    """What a clause of a merge does with a row."""

    UPDATE = "update"
    INSERT = "insert"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class MergeClause:
    """UPDATE or DELETE of a matched row, or INSERT of one that is not: column → expression over `known` and `found`."""

    action: MergeAction
    values: Mapping[str, str]
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge, for either engine: rows, or the query over `tables` that gives them.

    `{no_waiver}` in an expression stands for NULL of `null_type`: DataFusion cannot infer the type of a struct's NULL.
    """

    same_row: str
    clauses: tuple[MergeClause, ...]
    changes: Changes | None = None
    tables: tuple[str, ...] = ()
    row_count: int = 0
    rows: pa.Table | None = None
    null_type: pa.DataType | None = None


@dataclass(frozen=True, slots=True)
class Once:
    """The application transaction of a merge: done by whoever comes first, whatever dies meanwhile."""

    application: str
    version: int
    is_done: Callable[[], bool]


class Merges(Protocol):
    """What carries out merges."""

    def merge(self, table: str, merge: Merge, once: Once | None = None) -> bool:
        """Merge once. A commit that loses against another run's is tried again. False if that was done before."""
