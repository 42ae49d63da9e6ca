"""The archive of a lake as something to read: clusters, their rows as of a plan, and their silver rows and findings.

What closed plans left of one cluster is read as `kraft_audit.archive.archived_captures` wants it. Rows come from the
functions that read log dirs. No JVM.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from kraft_audit.archive.archived_captures import ArchivedCluster, ArchivedRedactor, FindWhole, archived_cluster
from kraft_audit.archive.archived_histories import ArchivedHistory, archived_histories
from kraft_audit.archive.runs import ArchiveTables
from kraft_audit.capture.plan import (
    ARCHIVED_ROOT,
    ONLY_HISTORY,
    ClusterPlan,
    HistoryOf,
    cluster_id_of,
    history_id,
    plan_from_json,
)
from kraft_audit.lake.closed_plans import ClosedPlans, not_abandoned
from kraft_audit.lake.delta import DeltaLake, sql_text
from kraft_audit.lake.lake import require_lake
from kraft_audit.lake.lake_paths import absolute
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import LedgerState
from kraft_audit.lake.plan_events import OPENED
from kraft_audit.lake.redaction_key import KEY_BYTES
from kraft_audit.lake.staging.stage import ReadingEnd
from kraft_audit.lake.staging.state_store import kept_before
from kraft_audit.losses.replica_disks import NO_LOGS
from kraft_audit.pipeline.analysis import reanalyze
from kraft_audit.reading import ReadingSettings
from kraft_audit.tables import STAGED_AS
from kraft_audit.tables.bronze import ARCHIVE, BATCHES, CAPTURES, DECODE_ERRORS, PLANS
from kraft_audit.tables.contract import Table, build_rows, with_column
from kraft_audit.tables.gold import HISTORIES
from kraft_audit.tables.silver import SILVER, WATERMARKS
from kraft_codec.errors import ChoiceError, InputError

REPLAYED: Final = frozenset(SILVER) - {WATERMARKS.name}
HOLDINGS: tuple[str, ...] = (
    "node_id", "directory_id", "captured_at_ms", "capture_number", "root", "path", "source", "file_name",
    "base_offset", "last_offset", "leader_epoch", "crc", "status", "plan",
)  # fmt: skip
CONTENTS: Final = ("leader_epoch", "from_offset", "first_crc", "content")
ArchiveOf = Callable[[str], ArchiveTables]
"""Gives what closed plans left of the cluster of an id."""


@dataclass(frozen=True, slots=True)
class LakeCluster:
    """A history of a cluster in a lake, with the name and the settings of its newest plan.

    `cluster_id` is what its rows have: the id of the history. `split_from` is the history that its logs were first read
    as a part of.
    """

    cluster_id: str
    name: str
    dialect: str
    defaults: tuple[tuple[str, str], ...]
    history_of: HistoryOf = ONLY_HISTORY
    is_running: bool = False
    gone: tuple[int, ...] = ()
    split_from: str = ""

    @classmethod
    def of_plan(cls, plan: ClusterPlan) -> LakeCluster:
        settings = (plan.name, plan.dialect, plan.defaults)
        return cls(plan.key, *settings, plan.history_of, plan.is_running, plan.gone, plan.split_from)


class LakeArchive:
    """The rows of a cluster, or of several, in the tables of a lake as they are now, of closed plans."""

    def __init__(self, query: Callable[[str], pa.Table], cluster_ids: Sequence[str], closed: ClosedPlans) -> None:
        self._query = query
        self._where = f"cluster_id IN ({', '.join(map(sql_text, cluster_ids))}) AND {closed.where()}"

    @classmethod
    def of(cls, lake: DeltaLake, *cluster_ids: str, closed: ClosedPlans) -> LakeArchive:
        return cls(lake.queries(CAPTURES.name, BATCHES.name, ARCHIVE.name, DECODE_ERRORS.name), cluster_ids, closed)

    @cached_property
    def _captures(self) -> pa.Table:
        return self.select(CAPTURES, CAPTURES.column_names)

    def captures(self) -> pa.Table:
        return self._captures

    def holdings(self) -> pa.Table:
        return self.select(BATCHES, HOLDINGS, "valid")

    def runs(self) -> pa.Table:
        return self.select(ARCHIVE, [name for name in ARCHIVE.column_names if name != "content"])

    def contents(self, source: str, from_offset: int, to_offset: int) -> pa.Table:
        wanted = f"source = {sql_text(source)} AND from_offset >= {from_offset} AND from_offset < {to_offset}"
        return self.select(ARCHIVE, CONTENTS, wanted)

    def whole(self, table: Table) -> pa.Table:
        """All rows of a bronze table about this cluster."""
        return self.select(table, table.column_names)

    def select(self, table: Table, columns: Sequence[str], wanted: str = "true") -> pa.Table:
        """Some columns of a bronze table, in the types of its contract; `wanted` is a condition on rows."""
        text = f"SELECT {', '.join(columns)} FROM {table.name} WHERE {wanted} AND {self._where}"  # noqa: S608  # quoted
        return self._query(text).cast(pa.schema([table.schema.field(name) for name in columns]))


def lake_clusters(lake: DeltaLake, closed: ClosedPlans) -> list[LakeCluster]:
    """The clusters that closed plans read, in the order of their names, each with the settings of its newest plan."""
    rows = lake.query(
        f"SELECT cluster_id, cluster_plan FROM plans WHERE event = {sql_text(OPENED)} AND {closed.where()} "  # noqa: S608
        f"AND {not_abandoned()} AND cluster_plan IS NOT NULL ORDER BY plan",
        PLANS.name,
    ).to_pylist()
    newest = {row["cluster_id"]: plan_from_json(row["cluster_plan"]) for row in rows}
    gone = {merged for plan in newest.values() for merged in plan.merged}
    clusters = [LakeCluster.of_plan(plan) for history, plan in newest.items() if history not in gone]
    return sorted(clusters, key=lambda cluster: (cluster.name, cluster.cluster_id))


def closed_plans(lake: DeltaLake) -> ClosedPlans:
    """The closed plans. Raises InputError where there is no lake, or its archive is still empty."""
    require_lake(lake)
    closed = Ledger(lake).status().done
    if not closed.newest or not lake.exists(ARCHIVE.name):
        raise InputError(lake.uri, "no plan is closed: there is nothing in the archive yet")
    return closed


def open_archive(
    lake: DeltaLake,
    cluster: LakeCluster,
    closed: ClosedPlans,
    *,
    root: str = "",
    find_whole: FindWhole | None = None,
    archive_of: ArchiveOf | None = None,
    only_telling: bool = False,
) -> ArchivedCluster:
    """One cluster of the archive; `root` is put before the lake's address. `archive_of`: where rows were read already.
    `only_telling`: as `archived_cluster` says.

    Raises InputError where the archive has nothing of it.
    """
    return _history_of_archive(lake, cluster, closed, 0, root, find_whole, archive_of, only_telling).cluster


def _history_of_archive(
    lake: DeltaLake,
    cluster: LakeCluster,
    closed: ClosedPlans,
    number: int,
    root: str,
    find_whole: FindWhole | None = None,
    archive_of: ArchiveOf | None = None,
    only_telling: bool = False,
) -> ArchivedHistory:
    histories = histories_of_archive(
        lake,
        cluster,
        closed,
        number,
        root=root,
        find_whole=find_whole,
        archive_of=archive_of,
        only_telling=only_telling,
    )
    for history in histories:
        if history.cluster.plan.key == cluster.cluster_id:
            return history
    raise InputError(f"{root}{lake.uri}", f"the archive holds nothing of cluster {cluster.cluster_id!r}")


def histories_of_archive(
    lake: DeltaLake,
    cluster: LakeCluster,
    closed: ClosedPlans,
    number: int,
    *,
    root: str,
    find_whole: FindWhole | None = None,
    archive_of: ArchiveOf | None = None,
    only_telling: bool = False,
) -> list[ArchivedHistory]:
    """The histories among the rows that hold a cluster, each with its id; nearly always this cluster alone.

    Raises InputError where the archive has nothing of it.
    """
    archive_of = archive_of or partial(LakeArchive.of, lake, closed=closed)
    source = archive_source(cluster, archive_of)
    put_together = partial(
        archived_cluster,
        location=f"{root}{lake.uri}",
        cluster_id=cluster_id_of(cluster.cluster_id),
        name=cluster.name,
        number=number,
        dialect=cluster.dialect,
        defaults=cluster.defaults,
        find_whole=find_whole,
        only_telling=only_telling,
    )
    histories = archived_histories(archive_of(source), put_together)
    if len(histories) == 1:
        plan = replace(histories[0].cluster.plan, history_id=source, history_of=cluster.history_of)
        return [_with_word(cluster, histories[0], plan)]
    states = Ledger(lake).states(closed)
    ids = _ids_of_parts(source, [history.cluster.plan for history in histories], states)
    return [_named(history, id_, source, cluster, states) for history, id_ in zip(histories, ids, strict=True)]


def archive_source(cluster: LakeCluster, archive_of: ArchiveOf) -> str:
    """The id under which the rows of a cluster are archived: its own, or that of the history it was split from."""
    if not cluster.split_from:
        return cluster.cluster_id
    return cluster.cluster_id if archive_of(cluster.cluster_id).captures().num_rows else cluster.split_from


def _ids_of_parts(source: str, plans: Sequence[ClusterPlan], states: Mapping[str, LedgerState]) -> list[str]:
    """The id of each history among rows with one id: the one that has its alias, else `source` once, else a new one."""
    cluster_id = cluster_id_of(source)
    ids: list[str] = []
    for plan in plans:
        same = [
            id_
            for id_, state in states.items()
            if cluster_id_of(id_) == cluster_id and set(state.aliases) & set(plan.aliases) and id_ not in ids
        ]
        ids.append(source if source in same else min(same, default=""))
    if source not in ids and "" in ids:
        ids[ids.index("")] = source
    return [id_ or history_id(cluster_id, plan.aliases) for id_, plan in zip(ids, plans, strict=True)]


def _named(
    history: ArchivedHistory, id_: str, source: str, cluster: LakeCluster, states: Mapping[str, LedgerState]
) -> ArchivedHistory:
    """A history with its id, and with what the ledger does not know of it yet."""
    plan, state = history.cluster.plan, states.get(id_, LedgerState())
    aliases = tuple(sorted({*state.aliases, *plan.aliases}))
    plan = replace(
        plan,
        history_id=id_,
        aliases=aliases if set(aliases) != set(state.aliases) else (),
        first_plan=state.first_plan or history.first_plan,
        split_from=state.split_from or ("" if id_ == source else source),
    )
    return _with_word(cluster, history, plan)


def _with_word(cluster: LakeCluster, history: ArchivedHistory, plan: ClusterPlan) -> ArchivedHistory:
    """The history with what its operator says."""
    plan = replace(plan, is_running=cluster.is_running, gone=cluster.gone)
    return replace(history, cluster=replace(history.cluster, plan=plan))


def lake_at(path: str) -> DeltaLake:
    """The lake at a path or URI as a person types it."""
    return DeltaLake(absolute(path, Path.cwd()))


def chosen_cluster(lake: DeltaLake, clusters: list[LakeCluster], wanted: str | None) -> LakeCluster:
    """The cluster of this id or name; without one the only cluster. Raises ChoiceError, which lists the clusters."""
    matches = [cluster for cluster in clusters if wanted == cluster.cluster_id]
    matches = matches or [cluster for cluster in clusters if wanted in (None, cluster.name)]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(f"{cluster.cluster_id} ({cluster.name})" for cluster in clusters)
    what = "more than one cluster" if matches else f"no cluster {wanted!r}" if clusters else "no cluster"
    raise ChoiceError(lake.uri, f"{what}: there are {names}")


def is_archived(plan: ClusterPlan) -> bool:
    """Whether a plan reads the archive."""
    return bool(plan.replicas) and plan.replicas[0].is_archived


def of_history(batch: pa.RecordBatch, plan: ClusterPlan) -> pa.RecordBatch:
    """Rows under the id of their history, which is the cluster id for the first one."""
    if plan.key == plan.cluster_id:
        return batch
    return with_column(batch, "cluster_id", pa.repeat(pa.scalar(plan.key), batch.num_rows))


def history_rows(plan: ClusterPlan) -> pa.RecordBatch:
    """What a plan learned about its history, and about those that proved to be the same."""
    common = {"cluster_id": plan.cluster_id, "name": plan.name, "first_plan": plan.first_plan, "plan": plan.number}
    rows = (
        [{**common, "history_id": plan.key, "aliases": list(plan.aliases), "merged_into": None}] if plan.aliases else []
    )
    rows += [{**common, "history_id": id_, "aliases": [], "merged_into": plan.key} for id_ in plan.merged]
    return build_rows(HISTORIES, rows)


class ArchiveReading:
    """One cluster of a plan, read from the archive."""

    def __init__(self, plan: ClusterPlan, lake_uri: str) -> None:
        self._plan = plan
        self._lake_uri = lake_uri
        self._forgotten: str | None = None

    def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        plan, lake = self._plan, DeltaLake(self._lake_uri)
        cluster = LakeCluster.of_plan(plan)
        # No other open plan reads this cluster: all its rows of earlier plans are of closed ones.
        before = ClosedPlans(plan.number - 1)
        history = _history_of_archive(lake, cluster, before, plan.number, ARCHIVED_ROOT)
        archived = history.cluster
        if archived.plan.replicas != plan.replicas:
            raise InputError(self._lake_uri, "the archive is not what was planned")
        archive_of = partial(LakeArchive.of, lake, closed=before)
        tables = archive_of(archive_source(cluster, archive_of))
        redactor = ArchivedRedactor(secrets.token_bytes(KEY_BYTES))
        if plan.aliases:
            yield HISTORIES.name, history_rows(plan)

        def judged_rows() -> Iterator[tuple[str, pa.RecordBatch]]:
            yield CAPTURES.name, archived.captures
            for table in (BATCHES, DECODE_ERRORS):
                rows = history.judged_rows(tables.whole(table), are_batches=table is BATCHES)
                yield from ((table.name, batch) for batch in rows.to_batches())

        settings = ReadingSettings(archived.open_storage, redactor)
        # What brokers' disks held of partitions with a loss is not in the archive.
        earlier, self._forgotten = kept_before(self._lake_uri, plan)
        logs = NO_LOGS if earlier is None else earlier.replica_logs
        for name, batch in reanalyze(plan, settings, judged_rows(), REPLAYED, logs):
            yield STAGED_AS.get(name, name), of_history(batch, plan)

    def end(self) -> ReadingEnd:
        return ReadingEnd(self._plan.redaction_state, forgotten=self._forgotten)
