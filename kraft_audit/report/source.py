"""What a report is made from: one cluster at a time, out of log dirs or out of a lake, in one shape.

Nothing is guessed: what a source does not hold is None or absent, and the pages say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from kraft_audit.rules.history import ClusterHistory

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A Delta table as it was read: its version and when that was committed."""

    table: str
    version: int
    committed_ms: int | None


@dataclass(frozen=True, slots=True)
class NotRead:
    """A cluster of the fleet that could not be read, or not wholly, when that was last tried, and why."""

    name: str
    why: str
    tried_ms: int


@dataclass(frozen=True, slots=True)
class AsOf:
    """From what, and as of when, everything on the pages was told. `plan` is the newest closed plan of a lake.

    `not_read` are clusters that a lake's plans could not read: what is told of them, if anything, is older.
    """

    source: str
    kind: str
    made_at_ms: int
    tool_version: str
    rules_version: str
    plan: int | None = None
    versions: tuple[TableVersion, ...] = ()
    not_read: tuple[NotRead, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ClusterInput:
    """One cluster: its history, its findings as rows of the table `findings`, and what people call it.

    `exposed_minutes` is the exposure by day (ms of its midnight, UTC) where the source keeps it; else `exposed_spans`
    (`from_ms`, `to_ms`; null: it lasts) where it keeps those; neither: exposure is computed from `partition_changes`.
    That table may lack rows that no page tells of; `first_change_ms` is the time of its first row then. `judged_rules`
    are those that looked at the cluster; None: those of `findings`, where a rule that found nothing says so by a row of
    status clear.
    """

    history: ClusterHistory
    findings: Sequence[Row]
    name: str | None = None
    exposed_minutes: Mapping[int, float] | None = None
    exposed_spans: pa.Table | None = None
    first_change_ms: int | None = None
    judged_rules: frozenset[str] | None = None

    @property
    def cluster_id(self) -> str:
        return self.history.cluster_id


class Source(Protocol):
    """Where clusters come from; each is held in memory only while its page is written."""

    def as_of(self) -> AsOf: ...

    def clusters(self) -> Iterator[ClusterInput]: ...


def state_of(finding: Row) -> str:
    """open, waived, closed or undecided, whichever source the row is from."""
    if finding["status"] == "undecided":
        return "closed" if finding.get("state") == "closed" else "undecided"
    if finding["is_over"] or finding.get("state") == "closed":
        return "closed"
    return "waived" if finding["waiver"] is not None else "open"


def rules_version() -> str:
    """A short name of the rules as they are: it changes with any id, severity, text or threshold."""
    import hashlib
    import json

    from kraft_audit.rules.pages import rule_rows

    text = json.dumps(rule_rows(), sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
