"""What closed plans left of one cluster in a lake, as `kraft_audit.replay.archived` asks for it; no JVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from kraft_audit.replay.archived import ArchivedCluster, archived_cluster
from kraft_audit.replay.plan import from_json
from kraft_audit.settings import absolute
from kraft_audit.spark.lake import DeltaLake, require_lake, sql_text
from kraft_audit.spark.ledger import OPENED, Ledger
from kraft_codec.contract import Table
from kraft_codec.errors import ChoiceError, InputError
from kraft_codec.schemas import Dialect
from kraft_codec.tables import ARCHIVE, BATCHES, CAPTURES, DECODE_ERRORS, PLANS

HOLDINGS: tuple[str, ...] = (
    "node_id", "directory_id", "captured_at_ms", "capture_number", "root", "path", "source", "file_name",
    "base_offset", "last_offset", "leader_epoch", "crc", "status", "plan",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LakeCluster:
    """A cluster of a lake, as its newest plan names it and reads it."""

    cluster_id: str
    name: str
    dialect: Dialect
    defaults: tuple[tuple[str, str], ...]


class LakeArchive:
    """The tables of one lake as they are now, about one cluster, rows up to plan `closed`."""

    def __init__(self, query: Callable[[str], pa.Table], cluster_id: str, closed: int) -> None:
        self._query = query
        self._where = f"cluster_id = {sql_text(cluster_id)} AND plan <= {closed}"

    @classmethod
    def of(cls, lake: DeltaLake, cluster_id: str, closed: int) -> LakeArchive:
        return cls(lake.at_once(CAPTURES.name, BATCHES.name, ARCHIVE.name, DECODE_ERRORS.name), cluster_id, closed)

    def captures(self) -> pa.Table:
        return self._select(CAPTURES, CAPTURES.column_names)

    def holdings(self) -> pa.Table:
        return self._select(BATCHES, HOLDINGS, "valid")

    def runs(self) -> pa.Table:
        return self._select(ARCHIVE, [name for name in ARCHIVE.column_names if name != "content"])

    def contents(self, source: str, from_offset: int, to_offset: int) -> pa.Table:
        wanted = f"source = {sql_text(source)} AND from_offset >= {from_offset} AND from_offset < {to_offset}"
        return self._select(ARCHIVE, ("leader_epoch", "from_offset", "first_crc", "content"), wanted)

    def whole(self, table: Table) -> pa.Table:
        """All rows of a bronze table."""
        return self._select(table, table.column_names)

    def _select(self, table: Table, columns: Sequence[str], wanted: str = "true") -> pa.Table:
        text = f"SELECT {', '.join(columns)} FROM {table.name} WHERE {wanted} AND {self._where}"  # noqa: S608  # quoted
        return self._query(text).cast(pa.schema([table.schema.field(name) for name in columns]))


def lake_clusters(lake: DeltaLake, closed: int) -> list[LakeCluster]:
    """The clusters that closed plans read, each as the newest of them was told to, by name."""
    rows = lake.query(
        f"SELECT cluster_id, cluster_plan FROM plans WHERE event = {sql_text(OPENED)} AND plan <= {closed} "  # noqa: S608
        "AND cluster_plan IS NOT NULL ORDER BY plan",
        PLANS.name,
    ).to_pylist()
    newest = {row["cluster_id"]: from_json(row["cluster_plan"]) for row in rows}
    found = [
        LakeCluster(cluster_id, plan.name, Dialect(plan.dialect), plan.defaults) for cluster_id, plan in newest.items()
    ]
    return sorted(found, key=lambda one: (one.name, one.cluster_id))


def closed_plan(lake: DeltaLake) -> int:
    """The newest closed plan. Raises InputError where there is no lake, or nothing in it yet."""
    require_lake(lake)
    closed = Ledger(lake).status().closed
    if not closed or not lake.exists(ARCHIVE.name):
        raise InputError(lake.uri, "no plan is closed: there is nothing in the archive yet")
    return closed


def open_archive(
    lake: DeltaLake, cluster: LakeCluster, closed: int, number: int = 0, *, root: str = ""
) -> ArchivedCluster:
    """One cluster as it can be read again, as plan `number` would; `root` is put before the lake's address.

    Raises InputError where the archive has nothing of it.
    """
    return archived_cluster(
        LakeArchive.of(lake, cluster.cluster_id, closed),
        location=f"{root}{lake.uri}",
        cluster_id=cluster.cluster_id,
        name=cluster.name,
        number=number,
        dialect=cluster.dialect,
        defaults=cluster.defaults,
    )


def lake_at(path: str) -> DeltaLake:
    """The lake at a path or URI as a person types it."""
    from pathlib import Path

    return DeltaLake(absolute(path, Path.cwd()))


def chosen_cluster(lake: DeltaLake, clusters: list[LakeCluster], wanted: str | None) -> LakeCluster:
    """The one of this id or name, or the only one. Raises ChoiceError that names those that there are."""
    found = [one for one in clusters if wanted in (None, one.cluster_id, one.name)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{one.cluster_id} ({one.name})" for one in clusters)
    what = f"no cluster {wanted!r}" if wanted is not None else "more than one cluster"
    raise ChoiceError(lake.uri, f"{what}: there are {names}")
