"""Filters that Spark pushes into format("kraft"): which clusters, nodes, types and offsets need not be read.

PySpark 4.1 is the first that has them: this module is loaded where Spark pushes one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from kraft_audit.spark.readers import TableReader, arrow_schema

if TYPE_CHECKING:
    from kraft_audit.capture.plan import Selection


class PushingReader(TableReader):
    """A TableReader to which Spark pushes filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        names = set(arrow_schema(self.options).names)
        wanted = PushedFilters()
        for pushed in filters:
            column: tuple[str, ...] = getattr(pushed, "attribute", ())
            if len(column) == 1 and column[0] in names:
                wanted.take(column[0], pushed)
        self.selection = wanted.selection()
        if wanted.cluster_ids is not None:
            given = self.cluster_ids
            self.cluster_ids = wanted.cluster_ids if given is None else given & wanted.cluster_ids
        # All are returned: `analyze` skips whole windows and replicas, Spark still filters single rows.
        return filters


class PushedFilters:
    """Collects what equality, IN and range filters select of the four columns by which reading can skip."""

    def __init__(self) -> None:
        self.cluster_ids: frozenset[str] | None = None
        self.node_ids: frozenset[int] | None = None
        self.record_types: frozenset[str] | None = None
        self.from_offset: int | None = None
        self.to_offset: int | None = None

    def take(self, column: str, pushed: Filter) -> None:
        match pushed:
            case EqualTo(value=value) | EqualNullSafe(value=value):
                self._restrict(column, (value,))
            case In(value=values):
                self._restrict(column, values)
            case GreaterThanOrEqual(value=value) if column == "offset":
                self._offsets(value, None)
            case GreaterThan(value=value) if column == "offset":
                self._offsets(value + 1, None)
            case LessThan(value=value) if column == "offset":
                self._offsets(None, value)
            case LessThanOrEqual(value=value) if column == "offset":
                self._offsets(None, value + 1)
            case _:
                pass

    def selection(self) -> Selection:
        from kraft_audit.capture.plan import Selection

        return Selection(
            self.from_offset,
            self.to_offset,
            None if self.node_ids is None else tuple(sorted(self.node_ids)),
            None if self.record_types is None else tuple(sorted(self.record_types)),
        )

    def _restrict(self, column: str, values: Iterable[Any]) -> None:
        wanted = frozenset(value for value in values if value is not None)  # null equals nothing
        match column:
            case "cluster_id":
                self.cluster_ids = wanted if self.cluster_ids is None else self.cluster_ids & wanted
            case "node_id":
                self.node_ids = wanted if self.node_ids is None else self.node_ids & wanted
            case "record_type":
                self.record_types = wanted if self.record_types is None else self.record_types & wanted
            case "offset" if wanted:
                self._offsets(min(wanted), max(wanted) + 1)
            case _:
                pass

    def _offsets(self, from_offset: int | None, to_offset: int | None) -> None:
        if from_offset is not None:
            self.from_offset = from_offset if self.from_offset is None else max(self.from_offset, from_offset)
        if to_offset is not None:
            self.to_offset = to_offset if self.to_offset is None else min(self.to_offset, to_offset)
