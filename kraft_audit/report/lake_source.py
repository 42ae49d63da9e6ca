"""A report of a lake: what its closed plans left in the Delta tables, read without a JVM.

Each table is opened once, so that every page shows the same versions, and names them. Clusters are read a few dozen at
a time. Where the table `findings` is missing, the findings of each cluster's newest plan are taken; where
`partition_risk` is missing, exposure is computed from `exposure_changes`.
"""

# ruff: noqa: S608  # queries hold names of our own and quoted literals
from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from kraft_audit.clusters import open_copies
from kraft_audit.lake.closed_plans import CLOSED
from kraft_audit.lake.delta import DeltaLake, sql_text
from kraft_audit.lake.gold.clusters_table import known_clusters
from kraft_audit.lake.lake import require_lake
from kraft_audit.lake.lake_copies import copies_of
from kraft_audit.lake.lake_paths import absolute, is_lake_folder, is_uri
from kraft_audit.lake.ledger import READ_ROWS, Ledger
from kraft_audit.lake.staging.archive_reading import LakeCluster, chosen_cluster, lake_clusters
from kraft_audit.lake.staging.small_archives import SmallArchives
from kraft_audit.lake.views import last_captures, newest_plan_rows, query_of, rows_of_clusters
from kraft_audit.picture.whole_picture import DrawnApart
from kraft_audit.recovery.may_i.permission_table import Permissions, ask_one
from kraft_audit.report.drawn_rows import DrawnRows
from kraft_audit.report.lake_answer import lake_situation
from kraft_audit.report.lake_partitions import NO_SPANS, by_cluster, partitions_of
from kraft_audit.report.report_source import (
    AsOf,
    ClusterInput,
    HasPage,
    NotRead,
    PageOrigin,
    TableVersion,
    no_page,
    rules_version,
)
from kraft_audit.report.stored_situations import newest_judged, stored_situations
from kraft_audit.rules.cluster_history import CONTRACTS, ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import path_read
from kraft_audit.rules.rule_model import FindingState
from kraft_audit.tables import FINDINGS_STAGED, INCIDENTS_STAGED
from kraft_audit.tables.bronze import BATCHES, PLANS
from kraft_audit.tables.gold import (
    FINDING_EPISODES,
    FINDINGS,
    HISTORIES,
    INCIDENTS,
    LABELS,
    PARTITION_RISK,
)
from kraft_audit.tables.losses import LOSSES
from kraft_audit.tables.silver import EXPOSURE_CHANGES, PARTITION_CHANGES, REPLAYS
from kraft_audit.text.readable import DAY_MS, timestamp_us
from kraft_codec.errors import ChoiceError, InputError

HISTORY: Final[Mapping[str, Callable[[str, str], str]]] = {
    "captures": last_captures,
    # Rounds are numbered within a plan: only those of the newest one are compared.
    "watermarks": newest_plan_rows,
    **dict.fromkeys(
        (
            *("leader_epochs", "voter_sets", "broker_changes", "controller_changes", "config_changes"),
            "feature_changes",
        ),
        rows_of_clusters,
    ),
}
"""The tables of a cluster's history that pages and metrics are made from, except those of partitions, and the query of
the rows that are read: of a table's rows of closed plans, and of a list of quoted cluster ids."""
OF_PARTITIONS: Final = (PARTITION_CHANGES.name, EXPOSURE_CHANGES.name)
CLUSTERS_AT_ONCE: Final = 40
REPORT_CLUSTERS_ASKED_MAX: Final = 100
"""Of each the archive is read and replayed, a tenth of a second at least."""
OTHER_EPISODES: Final = """
SELECT episodes.* FROM finding_episodes AS episodes
JOIN findings ON findings.finding_id = episodes.finding_id AND findings.cluster_id = episodes.cluster_id
WHERE findings.cluster_id IN ({listed}) AND (
    (episodes.from_offset IS DISTINCT FROM findings.from_offset) OR (episodes.from_ms IS DISTINCT FROM findings.from_ms)
)
ORDER BY episodes.finding_id, episodes.from_ms, episodes.from_offset
"""
"""Episodes other than the one that the finding's own row shows; most findings have none."""
_READ_AND_CLOSED: Final = f"""
SELECT read.cluster_id, read.plan, ended.at_ms
FROM (
    SELECT cluster_id, max(plan) AS plan FROM plans
    WHERE {READ_ROWS} AND {{is_closed}} AND cluster_id IS NOT NULL GROUP BY cluster_id
) AS read
JOIN (SELECT plan, max(at_ms) AS at_ms FROM plans WHERE event = '{CLOSED}' GROUP BY plan) AS ended
ON read.plan = ended.plan
"""  # our own words


class LakeSource:
    """The clusters of a lake as its last closed plan left them. Raises InputError where there is no lake.

    With `has_pages` the archive is asked what `may-i` answers about each, and what its picture shows is read.
    """

    def __init__(self, lake: str | DeltaLake, *, has_pages: bool = False) -> None:
        self._has_pages = has_pages
        self._lake = DeltaLake(absolute(lake, Path.cwd())) if isinstance(lake, str) else lake
        with self._lake.reading_once():
            self._open()

    def _open(self) -> None:
        require_lake(self._lake)
        ledger = Ledger(self._lake)
        # Once, and before any table is opened: a plan that closes meanwhile may be in some tables and not in others.
        self._closed = ledger.status().done
        self._not_read = tuple(NotRead(name, look.failure or "", look.at_ms) for name, look in ledger.unread().items())
        self._now_ms = time.time_ns() // 1_000_000
        wanted = (
            PLANS.name,
            BATCHES.name,
            *HISTORY,
            *OF_PARTITIONS,
            REPLAYS.name,
            *(FINDINGS.name, FINDING_EPISODES.name, HISTORIES.name, INCIDENTS.name),
            *(FINDINGS_STAGED.name, INCIDENTS_STAGED.name),
            PARTITION_RISK.name,
            LOSSES.name,
        )
        self._tables: dict[str, DeltaTable] = {
            name: self._lake.latest(name) for name in wanted if self._lake.exists(name)
        }
        if missing := [name for name in OF_PARTITIONS if name not in self._tables]:
            raise InputError(self._lake.uri, f"no table {missing[0]}")
        self._query = self._lake.queries_of(self._tables)
        self._known = known_clusters(self._lake)
        judged = newest_judged(self._lake)
        _, self._situations = stored_situations(self._lake, judged)
        closed = self._query(_READ_AND_CLOSED.format(is_closed=self._closed.where())).to_pylist()
        self._read_at = {
            row["cluster_id"]: (row["plan"], max(row["at_ms"], judged.get(row["cluster_id"], (0, 0))[1]))
            for row in closed
        }

    def as_of(self) -> AsOf:
        versions = tuple(
            TableVersion(name, table.version(), self._committed_ms(name))
            for name, table in sorted(self._tables.items())
        )
        uri = self._lake.uri
        made = (self._now_ms, version("kraft-audit"), rules_version())
        named = {row["cluster_name"] for row in self._known.values()} | {cluster.name for cluster in self._not_read}
        plan = self._closed.newest
        expected = tuple(sorted(named))
        return AsOf(uri, "the lake", *made, plan, versions, self._not_read, expected, self._closed_ms(plan))

    def _closed_ms(self, plan: int) -> int | None:
        rows = self._query(f"SELECT max(at_ms) AS at_ms FROM plans WHERE event = '{CLOSED}' AND plan = {plan}")
        at_ms: int | None = rows["at_ms"][0].as_py()
        return at_ms

    def clusters(self, has_page: HasPage = no_page) -> Iterator[ClusterInput]:
        return self.of(self.ids(), has_page)

    def of(self, ids: Sequence[str], has_page: HasPage = no_page) -> Iterator[ClusterInput]:
        """Only the clusters of these ids."""
        names = self._names()
        with self._lake.reading_once():
            for start in range(0, len(ids), CLUSTERS_AT_ONCE):
                some = ids[start : start + CLUSTERS_AT_ONCE]
                if self._has_pages:
                    yield from self._with_pages(list(self._read(some, names)), has_page, len(ids))
                else:
                    yield from self._read(some, names)

    def _with_pages(self, some: list[ClusterInput], has_page: HasPage, cluster_count: int) -> Iterator[ClusterInput]:
        """The clusters with what only their pages show, unless they have their page."""
        listed = ", ".join(sql_text(given.cluster_id) for given in some)
        drawn = DrawnRows(self._query, self._view, self._tables, listed)
        some = [self._with_origin(given, drawn, cluster_count) for given in some]
        changed = {given.cluster_id for given in some if not has_page(given)}
        archives = SmallArchives(self._lake, changed, self._closed)
        drawn.read_together(changed)
        for given in _let_go(some):
            if given.cluster_id not in changed:
                yield given
                continue
            permissions = self._permissions(given, cluster_count, archives)
            yield replace(given, drawn=drawn.history(given.history), permissions=permissions)

    def _with_origin(self, given: ClusterInput, drawn: DrawnRows, cluster_count: int) -> ClusterInput:
        id_, spans, origin = given.cluster_id, given.exposed_spans, None
        if (read_at := self._read_at.get(id_)) is not None:
            origin = PageOrigin(*read_at, drawn.row_counts(id_), cluster_count <= REPORT_CLUSTERS_ASKED_MAX)
        return replace(given, apart=drawn.apart(id_, NO_SPANS if spans is None else spans), origin=origin)

    def _permissions(self, given: ClusterInput, cluster_count: int, archives: SmallArchives) -> Permissions:
        """What `may-i` answers about the node dirs as they were when the lake read them."""
        path = path_read(given.history)
        if cluster_count > REPORT_CLUSTERS_ASKED_MAX:
            return Permissions(skipped=f"the lake has {cluster_count} clusters. {ask_one(path)}")
        try:
            chosen = chosen_cluster(self._lake, self._archived, given.cluster_id)
            # A cluster that goes on quietly has as many captures as hours: only those are read that say something.
            copies = copies_of(self._lake, chosen, self._closed, archives.of, only_telling=True)
            with open_copies(self._lake.uri, copies) as clusters:
                (cluster,) = clusters
                return cluster.permissions(path)
        except (InputError, ChoiceError) as problem:
            return Permissions(skipped=f"{problem.detail}. {ask_one(path)}")

    @cached_property
    def _archived(self) -> list[LakeCluster]:
        return lake_clusters(self._lake, self._closed)

    def ids(self) -> list[str]:
        """The histories that are shown: those that are no other one."""
        merged = "SELECT NULL AS history_id WHERE false"
        if HISTORIES.name in self._tables:
            merged = f"SELECT history_id FROM ({self._view(HISTORIES.name)}) AS known WHERE merged_into IS NOT NULL"
        rows = self._query(
            f"SELECT DISTINCT cluster_id FROM ({self._view('captures')}) AS captured "
            f"WHERE cluster_id NOT IN ({merged}) ORDER BY cluster_id"
        )
        return [str(value) for value in rows["cluster_id"].to_pylist()]

    def _names(self) -> dict[str, str]:
        rows = self._query(
            "SELECT cluster_id, max(cluster_name) AS name FROM plans "
            f"WHERE {self._closed.where()} AND cluster_name IS NOT NULL AND cluster_id IS NOT NULL GROUP BY cluster_id"
        )
        names = {row["cluster_id"]: row["name"] for row in rows.to_pylist()}
        return names | {id_: row["cluster_name"] for id_, row in self._known.items()}

    def _read(self, ids: Sequence[str], names: Mapping[str, str]) -> Iterator[ClusterInput]:
        listed = ", ".join(map(sql_text, ids))
        tables: dict[str, dict[str, pa.Table]] = {
            name: by_cluster(self._query(query(self._view(name), listed)))
            for name, query in HISTORY.items()
            if name in self._tables
        }
        judged = self._judged(listed, "DISTINCT held.cluster_id, held.rule")
        findings = self._findings(listed) if FINDINGS.name in self._tables else self._judged(listed, "held.*")
        incidents = self._incidents(listed)
        exposed = self._exposed(listed)
        partitions = partitions_of(self._query, self._closed, listed)
        tables[PARTITION_CHANGES.name] = {id_: known.changes for id_, known in partitions.items()}
        for id_ in ids:
            own_tables: dict[str, pa.Table] = {
                name: by_cluster.get(id_, CONTRACTS[name].schema.empty_table()) for name, by_cluster in tables.items()
            }
            known = partitions.get(id_)
            history = ClusterHistory(id_, own_tables, is_read=_is_read(own_tables["captures"]))
            rules = frozenset(row["rule"] for row in judged.get(id_, []))
            spans = NO_SPANS if known is None else known.exposed_spans
            yield ClusterInput(
                history,
                findings.get(id_, []),
                names.get(id_),
                None if exposed is None else exposed.get(id_, {}),
                spans,
                None if known is None else known.first_change_ms,
                rules,
                incidents.get(id_, []),
                situation=self._situations.get(id_)
                or lake_situation(history, findings.get(id_, []), incidents.get(id_, []), rules),
                labels=_labels(self._known.get(id_)),
                apart=DrawnApart(spans),
            )

    def _incidents(self, listed: str) -> dict[str, list[TableRow]]:
        """The incidents of each cluster; where the table `incidents` is missing, those of its newest plan."""
        if INCIDENTS.name in self._tables:
            incidents = _rows_by_cluster(self._query(f"SELECT * FROM incidents WHERE cluster_id IN ({listed})"))
            explained = self._explained(listed)
            return {
                id_: [{**row, "finding_ids": explained.get((id_, row["incident_id"]), [])} for row in rows]
                for id_, rows in incidents.items()
            }
        if INCIDENTS_STAGED.name not in self._tables:
            return {}
        return _rows_by_cluster(self._query(newest_plan_rows(self._view(INCIDENTS_STAGED.name), listed, "held.*")))

    def _explained(self, listed: str) -> dict[tuple[str, str], list[str]]:
        """The findings of each incident, by cluster and incident."""
        explained: dict[tuple[str, str], list[str]] = defaultdict(list)
        if FINDING_EPISODES.name in self._tables:
            rows = self._query(
                "SELECT DISTINCT cluster_id, incident_id, finding_id FROM finding_episodes "
                f"WHERE incident_id IS NOT NULL AND cluster_id IN ({listed}) ORDER BY finding_id"
            )
            for row in rows.to_pylist():
                explained[row["cluster_id"], row["incident_id"]].append(row["finding_id"])
        return explained

    def _findings(self, listed: str) -> dict[str, list[TableRow]]:
        """The findings, a row for each episode."""
        findings = _rows_by_cluster(self._query(f"SELECT * FROM findings WHERE cluster_id IN ({listed})"))
        if FINDING_EPISODES.name not in self._tables:
            return findings
        others = _rows_by_cluster(self._query(OTHER_EPISODES.format(listed=listed)))
        for id_, episodes in others.items():
            rows = findings[id_]
            by_finding = {row["finding_id"]: row for row in rows}
            for episode in episodes:
                finding = by_finding[episode["finding_id"]]
                times = {each: timestamp_us(episode[f"{each[:-5]}_ms"]) for each in ("from_time", "to_time")}
                is_over = episode["state"] == FindingState.RESOLVED
                own = {"state": episode["state"], "severity_now": None} if is_over else {}
                rows.append({**finding, **episode, **times, "state": finding["state"], **own})
        return findings

    def _judged(self, listed: str, columns: str) -> dict[str, list[TableRow]]:
        """The findings of the newest plan that judged each cluster, clear rules included."""
        if FINDINGS_STAGED.name not in self._tables:
            return {}
        rows = self._view(FINDINGS_STAGED.name)
        return _rows_by_cluster(self._query(newest_plan_rows(rows, listed, columns)))

    def _exposed(self, listed: str) -> dict[str, dict[int, float]] | None:
        """Partition-minutes by cluster and day; None if the lake has no table of them."""
        if PARTITION_RISK.name not in self._tables:
            return None
        rows = self._query(
            "SELECT cluster_id, day, sum(exposure_minutes) AS minutes FROM partition_risk "
            f"WHERE cluster_id IN ({listed}) GROUP BY cluster_id, day"
        )
        exposed: dict[str, dict[int, float]] = defaultdict(dict)
        for row in rows.to_pylist():
            exposed[row["cluster_id"]][row["day"].toordinal() * DAY_MS - _EPOCH_MS] = row["minutes"]
        return exposed

    def _committed_ms(self, name: str) -> int | None:
        with self._lake.reading(name):
            history = self._tables[name].history(1)
        stamp = history[0].get("timestamp") if history else None
        return stamp if isinstance(stamp, int) else None

    def _view(self, name: str) -> str:
        """The table's rows of closed plans; of silver tables only those that hold."""
        return query_of(name, lambda table: table, self._closed)


_EPOCH_MS: Final = 719_163 * DAY_MS
"""1970-01-01 as `date.toordinal` counts days."""


def is_lake(source: str) -> bool:
    """Whether a path or URI is a lake: it holds the ledger's table."""
    place = absolute(source, Path.cwd())
    if not is_uri(place):
        return is_lake_folder(place)
    return DeltaLake(place).exists(PLANS.name)


def _let_go(inputs: list[ClusterInput]) -> Iterator[ClusterInput]:
    """One after the other, none of which is held any longer: what is derived of a history grows with its partitions."""
    inputs.reverse()
    while inputs:
        yield inputs.pop()


def _labels(row: Mapping[str, str | None] | None) -> dict[str, str]:
    return {} if row is None else {label: value for label in LABELS if (value := row[label]) is not None}


def _is_read(captures: pa.Table) -> bool:
    """Whether any capture held a batch of the log, or a snapshot of more than what a disk is formatted with."""
    ends = zip(captures["last_epoch"].to_pylist(), captures["snapshot_end_offset"].to_pylist(), strict=True)
    return any(epoch is not None or (end or 0) > 0 for epoch, end in ends)


def _rows_by_cluster(table: pa.Table) -> dict[str, list[TableRow]]:
    return {id_: rows.to_pylist() for id_, rows in by_cluster(table).items()}
