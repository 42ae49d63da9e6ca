"""A report of a lake: what its closed plans left in the Delta tables, read without a JVM.

Each table is opened once, so that every page tells of the same versions, and these are told. Clusters are read some at
a time. Where no table `findings` is, the findings of each cluster's newest plan are taken; where no `partition_risk`
is, exposure is computed from `exposure_changes`.
"""

# ruff: noqa: S608  # queries hold names of our own and quoted literals
from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from kraft_audit.lake_folder import is_lake_folder
from kraft_audit.report.exposure import DAY_MS
from kraft_audit.report.lake_partitions import LakePartitions
from kraft_audit.report.lake_queries import EVERY_ROW, NEWEST_CAPTURES, NEWEST_PLAN
from kraft_audit.report.source import AsOf, ClusterInput, NotRead, Row, TableVersion, rules_version
from kraft_audit.rules.history import CONTRACTS, ClusterHistory
from kraft_audit.settings import absolute, is_uri
from kraft_audit.spark.lake import DeltaLake, require_lake, sql_text
from kraft_audit.spark.ledger import FROM_ARCHIVE, Ledger, without_exposures_text
from kraft_audit.spark.views import holding, query_of
from kraft_codec.errors import InputError
from kraft_codec.tables import PLANS

HISTORY: Final[Mapping[str, str]] = {
    "captures": NEWEST_CAPTURES,
    # Rounds are numbered within a plan: only those of the newest one are compared.
    "watermarks": NEWEST_PLAN,
    **dict.fromkeys(("leader_epochs", "voter_sets", "broker_changes", "config_changes", "feature_changes"), EVERY_ROW),
}
"""The tables of a cluster's history that pages and figures are made from, but for those of partitions."""
OF_PARTITIONS: Final = ("partition_changes", "exposure_changes")
FINDINGS: Final = "findings"
FINDINGS_STAGED: Final = "findings_staged"
PARTITION_RISK: Final = "partition_risk"
CLUSTERS_AT_ONCE: Final = 40
NO_SPANS: Final = pa.schema([("from_ms", pa.int64()), ("to_ms", pa.int64())]).empty_table()


class LakeSource:
    """The clusters of a lake as its last closed plan left them. Raises InputError where there is no lake."""

    def __init__(self, path: str) -> None:
        self._lake = DeltaLake(absolute(path, Path.cwd()))
        require_lake(self._lake)
        ledger = Ledger(self._lake)
        # Once, and before any table is opened: a plan that closes meanwhile may be in some of them and not in others.
        self._plan = ledger.status().closed
        self._not_read = tuple(NotRead(name, one.failure or "", one.at_ms) for name, one in ledger.unread().items())
        self._now_ms = time.time_ns() // 1_000_000
        wanted = (PLANS.name, *HISTORY, *OF_PARTITIONS, "replays", FINDINGS, FINDINGS_STAGED, PARTITION_RISK)
        self._tables: dict[str, DeltaTable] = {
            name: self._lake.open(name) for name in wanted if self._lake.exists(name)
        }
        if missing := [name for name in OF_PARTITIONS if name not in self._tables]:
            raise InputError(self._lake.uri, f"no table {missing[0]}, as an earlier release left it: {FROM_ARCHIVE}")
        self._query = self._lake.over(self._tables)
        if lacking := ledger.without_exposures(self._plan, self._query):
            raise InputError(self._lake.uri, without_exposures_text(lacking))

    def as_of(self) -> AsOf:
        versions = tuple(
            TableVersion(name, table.version(), self._committed_ms(name))
            for name, table in sorted(self._tables.items())
        )
        uri = self._lake.uri
        made = (self._now_ms, version("kraft-audit"), rules_version())
        return AsOf(uri, "the lake", *made, self._plan, versions, self._not_read)

    def clusters(self) -> Iterator[ClusterInput]:
        names = self._names()
        ids = self._ids()
        for start in range(0, len(ids), CLUSTERS_AT_ONCE):
            yield from self._some(ids[start : start + CLUSTERS_AT_ONCE], names)

    def _ids(self) -> list[str]:
        rows = self._query(f"SELECT DISTINCT cluster_id FROM ({self._view('captures')}) AS told ORDER BY cluster_id")
        return [str(value) for value in rows["cluster_id"].to_pylist()]

    def _names(self) -> dict[str, str]:
        rows = self._query(
            "SELECT cluster_id, max(cluster_name) AS name FROM plans "
            f"WHERE plan <= {self._plan} AND cluster_name IS NOT NULL AND cluster_id IS NOT NULL GROUP BY cluster_id"
        )
        return {row["cluster_id"]: row["name"] for row in rows.to_pylist()}

    def _some(self, ids: Sequence[str], names: Mapping[str, str]) -> Iterator[ClusterInput]:
        listed = ", ".join(sql_text(one) for one in ids)
        tables: dict[str, dict[str, pa.Table]] = {
            name: _by_cluster(self._query(sql.format(rows=self._view(name), clusters=listed, columns="held.*")))
            for name, sql in HISTORY.items()
            if name in self._tables
        }
        judged = self._judged(listed, "held.cluster_id, held.rule")
        findings = self._findings(listed) if FINDINGS in self._tables else self._judged(listed, "held.*")
        exposed = self._exposed(listed)
        partitions = LakePartitions(self._query, self._holding, _by_cluster, ids)
        tables["partition_changes"] = partitions.changes
        for id_ in ids:
            mine: dict[str, pa.Table] = {
                name: found.get(id_, CONTRACTS[name].schema.empty_table()) for name, found in tables.items()
            }
            yield ClusterInput(
                ClusterHistory(id_, mine, is_read=_is_read(mine["captures"])),
                findings.get(id_, []),
                names.get(id_),
                None if exposed is None else exposed.get(id_, {}),
                partitions.exposed_spans.get(id_, NO_SPANS),
                partitions.first_change_ms.get(id_),
                frozenset(row["rule"] for row in judged.get(id_, [])),
            )

    def _findings(self, listed: str) -> dict[str, list[Row]]:
        return _rows_by_cluster(self._query(f"SELECT * FROM findings WHERE cluster_id IN ({listed})"))

    def _judged(self, listed: str, columns: str) -> dict[str, list[Row]]:
        """What the newest plan that judged each cluster said of it, clear rules included."""
        if FINDINGS_STAGED not in self._tables:
            return {}
        rows = self._view(FINDINGS_STAGED)
        return _rows_by_cluster(self._query(NEWEST_PLAN.format(rows=rows, clusters=listed, columns=columns)))

    def _exposed(self, listed: str) -> dict[str, dict[int, float]] | None:
        """Partition-minutes by cluster and day; None where the lake keeps none."""
        if PARTITION_RISK not in self._tables:
            return None
        rows = self._query(
            "SELECT cluster_id, day, sum(exposure_minutes) AS minutes FROM partition_risk "
            f"WHERE cluster_id IN ({listed}) GROUP BY cluster_id, day"
        )
        found: dict[str, dict[int, float]] = defaultdict(dict)
        for row in rows.to_pylist():
            found[row["cluster_id"]][row["day"].toordinal() * DAY_MS - _EPOCH_MS] = row["minutes"]
        return found

    def _committed_ms(self, name: str) -> int | None:
        with self._lake.reading(name):
            history = self._tables[name].history(1)
        stamp = history[0].get("timestamp") if history else None
        return stamp if isinstance(stamp, int) else None

    def _view(self, name: str) -> str:
        """Closed plans only, and of what changes only what holds."""
        return query_of(name, lambda table: table, self._plan)

    def _holding(self, name: str) -> str:
        """Of changes only what holds, without its end."""
        return holding(name, lambda table: table, self._plan)


_EPOCH_MS: Final = 719_163 * DAY_MS
"""1970-01-01 as `date.toordinal` counts days."""


def is_lake(source: str) -> bool:
    """Whether a path or URI is a lake: it holds the ledger's table."""
    place = absolute(source, Path.cwd())
    if not is_uri(place):
        return is_lake_folder(place)
    return DeltaLake(place).exists(PLANS.name)


def _by_cluster(table: pa.Table) -> dict[str, pa.Table]:
    """The rows of each cluster, in one sort."""
    table = table.sort_by("cluster_id")
    ids = table["cluster_id"].to_pylist()
    starts = [place for place, id_ in enumerate(ids) if place == 0 or ids[place - 1] != id_]
    return {
        ids[start]: table.slice(start, end - start).combine_chunks() for start, end in pairwise([*starts, len(ids)])
    }


def _is_read(captures: pa.Table) -> bool:
    """Whether any capture held a batch of the log, or a snapshot of more than what a disk is formatted with."""
    ends = zip(captures["last_epoch"].to_pylist(), captures["snapshot_end_offset"].to_pylist(), strict=True)
    return any(epoch is not None or (end or 0) > 0 for epoch, end in ends)


def _rows_by_cluster(table: pa.Table) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in table.to_pylist():
        found[row["cluster_id"]].append(row)
    return found
