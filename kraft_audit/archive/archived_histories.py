"""The histories that one archive holds: a lake may keep several logs under one id.

Two logs count as one while all that was read of them joins them, as where an empty disk lay beside a log. What
`split_histories` finds on disks it finds in the archive too. Each history is put together of its own captures alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kraft_audit.archive.archived_captures import (
    ArchivedCluster,
    CaptureKey,
    accepted_captures,
    capture_key,
    different_rows,
)
from kraft_audit.archive.runs import ArchiveTables
from kraft_audit.capture.histories import split_histories
from kraft_audit.capture.plan import ClusterPlan, HistoryOf, HistorySummary, ReplicaPlan
from kraft_audit.capture.presence import PRESENT
from kraft_audit.tables.bronze import BATCH_KEY
from kraft_audit.tables.number_arrays import Mask

_KEY_COLUMNS: Final = ("plan", "captured_at_ms", "capture_number", "root", "path")


@dataclass(frozen=True, slots=True)
class CaptureFilter:
    """Whose rows belong to one history: `mine` are its captures. The newest has the rows that no capture has, too."""

    mine: frozenset[CaptureKey]
    others: frozenset[CaptureKey]
    is_newest: bool

    def own(self, rows: pa.Table) -> pa.Table:
        """The rows of a bronze table that belong to this history."""
        wanted = self.others if self.is_newest else self.mine
        is_listed = _is_of(rows, wanted)
        return rows.filter(pa.array(~is_listed if self.is_newest else is_listed))

    def own_batches(self, rows: pa.Table) -> pa.Table:
        """The rows of `batches` of this history; not those that say that another history's batch was cut off."""
        rows = self.own(rows)
        is_present = np.array([status == PRESENT for status in rows.column("status").to_pylist()], bool)
        columns = [rows.column(name).to_pylist() for name in ("source", *BATCH_KEY)]
        keys = list(zip(*columns, strict=True))
        held = {key for key, present in zip(keys, is_present, strict=True) if present}
        return rows.filter(pa.array([key in held for key in keys], pa.bool_()))


def _is_of(rows: pa.Table, captures: frozenset[CaptureKey]) -> Mask:
    """Which rows are of one of these captures."""
    different, which = different_rows(rows, _KEY_COLUMNS)
    is_one = np.array([capture_key(row) in captures for row in different], bool)
    mask: Mask = is_one[which] if len(is_one) else np.zeros(0, bool)
    return mask


class _OwnTables:
    """The tables of an archive, with what one of its histories holds."""

    def __init__(self, tables: ArchiveTables, own: CaptureFilter) -> None:
        self._tables = tables
        self._own = own

    def captures(self) -> pa.Table:
        return self._own.own(self._tables.captures())

    def holdings(self) -> pa.Table:
        return self._own.own_batches(self._tables.holdings())

    def runs(self) -> pa.Table:
        return self._tables.runs()

    def contents(self, source: str, from_offset: int, to_offset: int) -> pa.Table:
        return self._tables.contents(source, from_offset, to_offset)


@dataclass(frozen=True, slots=True)
class ArchivedHistory:
    """One history of an archive. `captures` is None where the archive holds no other."""

    cluster: ArchivedCluster
    captures: CaptureFilter | None = None

    @property
    def first_plan(self) -> int:
        """The plan that read it first."""
        return min(int(plan) for plan in self.cluster.captures.column("plan").to_pylist())

    def judged_rows(self, rows: pa.Table, *, are_batches: bool = False) -> pa.Table:
        """The rows of a bronze table of this history, with the capture numbers of its plan."""
        if self.captures is not None:
            rows = self.captures.own_batches(rows) if are_batches else self.captures.own(rows)
        return self.cluster.renumbered(rows)


def archived_histories(
    tables: ArchiveTables, put_together: Callable[[ArchiveTables], ArchivedCluster]
) -> list[ArchivedHistory]:
    """Each history among the captures of an archive, the newest first; the only one in the usual case.

    `put_together` is `archived_cluster` with what is known of the cluster. Raises InputError as that does.
    """
    whole = put_together(tables)
    rows = tables.captures().to_pylist()
    places = {capture_key(row): row for row in rows}
    split = split_histories(_as_it_lay(whole, places), lambda _: whole.storage)
    if len(split) < 2:
        return [ArchivedHistory(whole)]
    summaries = tuple(_as_captured(summary, whole, places) for summary in split[0].history_of.histories)
    histories = []
    members = _members(split, whole, tables.captures())
    for place, (mine, history) in enumerate(zip(members, split, strict=True)):
        others = frozenset(key for theirs in members if theirs is not mine for key in theirs)
        own = CaptureFilter(mine, others, place == 0)
        cluster = put_together(_OwnTables(tables, own))
        plan = replace(cluster.plan, aliases=history.aliases, history_of=HistoryOf(place, summaries))
        histories.append(ArchivedHistory(replace(cluster, plan=plan), own))
    return histories


def _as_it_lay(whole: ArchivedCluster, rows: Mapping[CaptureKey, Mapping[str, Any]]) -> ClusterPlan:
    """The plan with the folders that the node dirs lay in: what lay side by side may be one quorum."""

    def as_it_lay(replica: ReplicaPlan) -> ReplicaPlan:
        row = rows[whole.places[replica.path]]
        return replace(replica, capture=f"{row['root']}\0{row['capture']}\0{row['path'].rpartition('/')[0]}")

    return replace(whole.plan, replicas=tuple(map(as_it_lay, whole.plan.replicas)))


def _as_captured(
    summary: HistorySummary, whole: ArchivedCluster, rows: Mapping[CaptureKey, Mapping[str, Any]]
) -> HistorySummary:
    """A summary whose replicas are where they were read."""

    def as_captured(replica: ReplicaPlan) -> ReplicaPlan:
        row = rows[whole.places[replica.path]]
        return replace(replica, root=row["root"], path=row["path"], capture=row["capture"], log_dir="")

    replicas = {each.identity: each for each in map(as_captured, summary.replicas)}
    return replace(summary, replicas=tuple(replicas.values()))


def _members(split: Sequence[ClusterPlan], whole: ArchivedCluster, captures: pa.Table) -> list[frozenset[CaptureKey]]:
    """The captures of each history. One that was not read again goes with the later one that holds what it held."""
    group_of = {
        whole.places[replica.path]: place for place, history in enumerate(split) for replica in history.replicas
    }
    following: dict[Any, int] = {}
    for capture in reversed(accepted_captures(captures)):
        key = capture_key(capture.row)
        following[capture.identity] = group_of.setdefault(key, following.get(capture.identity, 0))
    return [frozenset(key for key, place in group_of.items() if place == number) for number in range(len(split))]
