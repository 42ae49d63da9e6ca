"""What the histories of brokers, controllers, topics, configs, features and security have in common.

Their records are few beside those of partitions, so each is a plain value here: a subject's state is a dict of the
columns of its table, and every record yields the state after it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from kraft_audit.replay.records import RecordColumns, rows_in_order
from kraft_audit.replay.tables import silver_batch
from kraft_codec.contract import Table


@dataclass(frozen=True, slots=True)
class Change:
    """What one record did to one subject; `state` is None once the subject is gone, `last` is what it was."""

    subject: Hashable
    cause: str
    state: Mapping[str, Any] | None
    last: Mapping[str, Any] | None = None


class History(ABC):
    """A table of changes, brought forward window by window."""

    table: ClassVar[Table]
    messages: ClassVar[tuple[str, ...]]

    def __init__(self, *, cluster_id: str, plan: int, emit_from_offset: int) -> None:
        self.cluster_id = cluster_id
        self.plan = plan
        self.emit_from_offset = emit_from_offset
        self.state: dict[Hashable, Mapping[str, Any]] = {}
        self.problems: list[tuple[int, str]] = []

    @abstractmethod
    def changes(self, name: str, row: Mapping[str, Any]) -> Iterator[Change]:
        """What a record of that type does to the state as it is; the caller then applies it."""

    def reset(self) -> None:
        """Forgets everything, before a snapshot is loaded."""
        self.state.clear()

    def replay(self, records: RecordColumns) -> Iterator[pa.RecordBatch]:
        """Applies a window's records; a batch of the table, if there is any change to tell."""
        rows = []
        for name, row in rows_in_order(records, self.messages):
            for change in list(self.changes(name, row)):
                self._apply(change)
                if row["offset"] >= self.emit_from_offset:
                    rows.append(self._row(change, row["offset"], row["leader_epoch"], row["timestamp_ms"]))
        if rows:
            yield silver_batch(self.table, self.cluster_id, self.plan, rows)

    def absorb(self, records: RecordColumns) -> None:
        """Applies records without telling of them."""
        for name, row in rows_in_order(records, self.messages):
            for change in list(self.changes(name, row)):
                self._apply(change)

    def rows(self, offset: int, epoch: int, timestamp_ms: int) -> Iterator[pa.RecordBatch]:
        """The state now as rows at `offset`, with cause "snapshot"."""
        rows = [
            self._row(Change(subject, "snapshot", state), offset, epoch, timestamp_ms)
            for subject, state in sorted(self.state.items(), key=lambda entry: str(entry[0]))
        ]
        if rows:
            yield silver_batch(self.table, self.cluster_id, self.plan, rows)

    def _apply(self, change: Change) -> None:
        if change.state is None:
            self.state.pop(change.subject, None)
        else:
            self.state[change.subject] = change.state

    def _row(self, change: Change, offset: int, epoch: int, timestamp_ms: int) -> dict[str, Any]:
        state = change.state if change.state is not None else change.last
        return {
            "from_offset": offset,
            "from_epoch": epoch,
            "timestamp_ms": timestamp_ms,
            "cause": change.cause,
            "exists": change.state is not None,
            **(state or {}),
        }
