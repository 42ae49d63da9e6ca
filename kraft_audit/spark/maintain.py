"""Maintenance of a lake: forget old rows where asked, join small files, drop files that nothing names any more.

None of it changes what a query of a closed plan gives (but for rows that `keep_days` lets go). By `deltalake` it needs
no JVM; liquid clustering and lakes that only the JVM reaches are done by delta-spark. deltalake refuses a liquidly
clustered table, so that with the committer deltalake the configured columns order the rows by Z-order instead.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from kraft_audit.settings import is_uri
from kraft_audit.spark.gold_tables import FINDINGS, PARTITION_RISK
from kraft_audit.spark.lake import DeltaLake, Lake, require_lake
from kraft_audit.spark.ledger import CHECKPOINT_PLANS, CLOSED, OPENED, READ_ROWS, STAGED, Ledger
from kraft_audit.spark.maintain_settings import MaintainSettings
from kraft_audit.spark.tables import LAKE_TABLES
from kraft_codec.errors import ChoiceError, InputError
from kraft_codec.tables import FILES, PLANS

if TYPE_CHECKING:
    from kraft_audit.spark.jvm_lake import JvmLake

LEDGER_TABLES: Final = (PLANS.name, FILES.name)
DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done (or, in a dry run, would be) to one table; `failure` is empty where it went well."""

    table: str
    rows_forgotten: int = 0
    files_before: int = 0
    files_after: int = 0
    size_bytes_before: int = 0
    size_bytes_after: int = 0
    layout: str = ""
    files_vacuumed: int = 0
    failure: str = ""


class Maintainer(Protocol):
    """The operations on one table, by whoever reaches it."""

    def size(self, table: str) -> tuple[int, int, int]:
        """(files, bytes, files smaller than half the target) of the newest version."""

    def rows(self, table: str, condition: str) -> int: ...

    def forget(self, table: str, condition: str) -> None: ...

    def arrange(self, table: str, columns: Sequence[str]) -> str:
        """Join small files, rows ordered by the columns if any; says how."""

    def vacuum(self, table: str, hours: int, dry_run: bool) -> int:
        """Delete files that no version of the last `hours` names; how many."""


class DeltaMaintainer:
    """By the Delta project's own `deltalake`: a local folder or an object store, no JVM."""

    def __init__(self, lake: DeltaLake, target_file_bytes: int) -> None:
        self.lake = lake
        self.target_file_bytes = target_file_bytes

    def size(self, table: str) -> tuple[int, int, int]:
        sizes = self.lake.file_sizes(table)
        return len(sizes), sum(sizes), sum(2 * size < self.target_file_bytes for size in sizes)

    def rows(self, table: str, condition: str) -> int:
        found = self.lake.query(f"SELECT count(*) AS n FROM {table} WHERE {condition}", table)  # noqa: S608
        return int(found.column("n")[0].as_py())

    def forget(self, table: str, condition: str) -> None:
        self.lake.open(table).delete(condition)

    def arrange(self, table: str, columns: Sequence[str]) -> str:
        from deltalake import WriterProperties

        options: dict[str, Any] = {
            "target_size": self.target_file_bytes,
            "writer_properties": WriterProperties(compression="ZSTD"),
        }
        opened = self.lake.open(table)
        if columns:
            opened.optimize.z_order(list(columns), **options)
            return f"Z-order by {', '.join(columns)}"
        opened.optimize.compact(**options)
        return "compacted"

    def vacuum(self, table: str, hours: int, dry_run: bool) -> int:
        opened = self.lake.open(table)
        return len(opened.vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=True))


class SparkMaintainer:
    """By delta-spark: OPTIMIZE, liquid clustering, VACUUM."""

    def __init__(self, lake: JvmLake, target_file_bytes: int) -> None:
        self.lake = lake
        self.target_file_bytes = target_file_bytes
        spark = lake.spark
        spark.conf.set("spark.databricks.delta.optimize.maxFileSize", str(target_file_bytes))
        spark.conf.set("spark.databricks.delta.optimize.minFileSize", str(target_file_bytes // 2))
        # The retention is checked by the settings, which allow no less than a day.
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")

    def _path(self, table: str) -> str:
        return "delta.`" + self.lake.table_uri(table).replace("`", "``") + "`"

    def size(self, table: str) -> tuple[int, int, int]:
        detail = self.lake.spark.sql(f"DESCRIBE DETAIL {self._path(table)}").collect()[0]
        files, size_bytes = int(detail["numFiles"]), int(detail["sizeInBytes"])
        # Each file's own size would cost a scan of the log: OPTIMIZE picks the small ones itself.
        return files, size_bytes, files if 2 * size_bytes < files * self.target_file_bytes else 0

    def rows(self, table: str, condition: str) -> int:
        return int(self.lake.spark.sql(f"SELECT count(*) FROM {self._path(table)} WHERE {condition}").collect()[0][0])  # noqa: S608

    def forget(self, table: str, condition: str) -> None:
        self.lake.spark.sql(f"DELETE FROM {self._path(table)} WHERE {condition}")  # noqa: S608

    def arrange(self, table: str, columns: Sequence[str]) -> str:
        spark, path = self.lake.spark, self._path(table)
        how = "compacted"
        if columns:
            detail = spark.sql(f"DESCRIBE DETAIL {path}").collect()[0]
            if list(detail["clusteringColumns"]) != list(columns):
                spark.sql(f"ALTER TABLE {path} CLUSTER BY ({', '.join(f'`{column}`' for column in columns)})")
            how = f"liquid clustering by {', '.join(columns)}"
        spark.sql(f"OPTIMIZE {path}")
        return how

    def vacuum(self, table: str, hours: int, dry_run: bool) -> int:
        sql = f"VACUUM {self._path(table)} RETAIN {hours} HOURS"
        count = int(self.lake.spark.sql(f"{sql} DRY RUN").count())
        if count and not dry_run:
            self.lake.spark.sql(sql)
        return count


def maintain_lake(
    lake: Lake,
    maintainer: Maintainer,
    settings: MaintainSettings,
    *,
    dry_run: bool = False,
    vacuum_hours: int | None = None,
    tables: Collection[str] = (),
) -> Iterator[Maintained]:
    """Forget, arrange and vacuum every table of the lake (or these), one by one; a failure is that table's alone.

    Raises InputError where there is no lake, or where a plan is open: its staged files are named by no transaction yet.
    """
    require_lake(lake)
    ledger = Ledger(lake)
    open_number = ledger.status().open_number
    if open_number is not None:
        raise InputError(lake.uri, f"plan {open_number} is open: `kraft-audit run` finishes it, then maintain")
    hours = settings.vacuum_hours if vacuum_hours is None else vacuum_hours
    there = lake_tables(lake)
    unknown = [table for table in tables if table not in there]
    if unknown:
        raise ChoiceError(lake.uri, f"no table {unknown[0]}: it has {', '.join(there)}")
    for table in tables or there:
        try:
            yield _maintain(lake, maintainer, settings, table, hours, dry_run)
        except Exception as problem:  # whatever the library says, the other tables are kept up
            yield Maintained(table, failure=" ".join(str(problem).split())[:300])


def _maintain(
    lake: Lake, maintainer: Maintainer, settings: MaintainSettings, table: str, hours: int, dry_run: bool
) -> Maintained:
    files_before, bytes_before, small = maintainer.size(table)
    forgotten = 0
    condition = _forgettable(lake, table, settings.keep_days.get(table))
    if condition is not None:
        forgotten = maintainer.rows(table, condition)
        if forgotten and not dry_run:
            maintainer.forget(table, condition)
    layout = ""
    # What is arranged already is left: a table that nobody wrote to costs nothing.
    if small > 1:
        columns = settings.cluster_by.get(table, [])
        layout = f"would join {small} small files" if dry_run else maintainer.arrange(table, columns)
    vacuumed = maintainer.vacuum(table, hours, dry_run)
    files_after, bytes_after, _ = maintainer.size(table)
    return Maintained(table, forgotten, files_before, files_after, bytes_before, bytes_after, layout, vacuumed)


def lake_tables(lake: Lake) -> list[str]:
    """The tables that are there: those of the contracts, then whatever Delta table lies beside them in a folder."""
    if is_uri(lake.uri):
        return [table for table in LAKE_TABLES if lake.exists(table)]
    there = {log.parent.name for log in Path(lake.uri).glob("*/_delta_log")}
    return [table for table in LAKE_TABLES if table in there] + sorted(there - LAKE_TABLES.keys())


def _forgettable(lake: Lake, table: str, days: int | None) -> str | None:
    """Which rows may go: those of plans closed longer than `days` ago, but what runs, the archive and the gate read."""
    if days is None:
        return None
    before_ms = time.time_ns() // 1_000_000 - days * DAY_MS
    sql = f"SELECT max(plan) AS plan FROM plans WHERE event = '{CLOSED}' AND at_ms < {before_ms}"  # noqa: S608
    plan = lake.query(sql, PLANS.name).column("plan")[0].as_py()
    if plan is None:
        return None
    ledger = Ledger(lake)
    closed = ledger.status().closed
    # The gate holds the newest plan to its manifest; the ledger reads from its last checkpoint on, and the gate as many
    # manifests as can lie between two.
    plan = min(plan, closed - 1 - (CHECKPOINT_PLANS if table in LEDGER_TABLES else 0))
    return _of_ledger(lake, ledger, plan) if table == PLANS.name else f"plan <= {plan}"


def _of_ledger(lake: Lake, ledger: Ledger, plan: int) -> str:
    """Which rows of `plans` may go: neither what the gold tables have yet to take, nor what is last said of a cluster.

    That a plan was closed, and when, stays too: it dates the rows of other tables, and tells a plan that was forgotten
    from one that never was. Of a plan that stays all clusters do.
    """
    merged = [
        lake.versions(table.name, [ledger.application(table.name)])[0]
        for table in (FINDINGS, PARTITION_RISK)
        if lake.exists(table.name)
    ]
    plan = min([plan, *merged])
    newest = [
        f"SELECT max(plan) AS plan FROM plans WHERE {said} GROUP BY cluster_id"  # noqa: S608  # words of our own
        for said in (f"event = '{OPENED}'", f"event = '{STAGED}' AND outcome IS NOT NULL", READ_ROWS)
    ]
    sql = f"SELECT DISTINCT plan FROM ({' UNION ALL '.join(newest)}) AS newest WHERE plan <= {plan} ORDER BY plan"  # noqa: S608
    kept = ", ".join(map(str, lake.query(sql, PLANS.name).column("plan").to_pylist())) or "0"
    is_last_said = f"data_file IS NULL AND event IN ('{OPENED}', '{STAGED}') AND plan IN ({kept})"
    return f"plan <= {plan} AND event <> '{CLOSED}' AND NOT ({is_last_said})"


def open_maintainer(
    uri: str, committer: str, settings: MaintainSettings, spark_conf: Path | None = None
) -> tuple[Lake, Maintainer]:
    """The lake and who maintains it: deltalake, or a Spark session where only the JVM reaches the lake."""
    if committer == "spark":
        from kraft_audit.spark.jvm_lake import JvmLake
        from kraft_audit.spark.session import spark_session

        jvm_lake = JvmLake(uri, uri, lambda: spark_session("kraft-audit maintain", conf_file=spark_conf))
        return jvm_lake, SparkMaintainer(jvm_lake, settings.target_file_bytes)
    lake = DeltaLake(uri)
    return lake, DeltaMaintainer(lake, settings.target_file_bytes)
