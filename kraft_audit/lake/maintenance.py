"""Maintenance of a lake: delete old rows where asked, join small files, delete files that no version names any more.

None of it changes what a query of a closed plan gives, except for rows that `keep_days` lets go. A `Maintainer` does it
in the way of the lake's committer. deltalake refuses a table with liquid clustering, so with that committer small files
are joined in the order of the configured columns. Joined rows keep the encodings in which they were staged.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from kraft_audit.lake.closed_plans import CLOSED
from kraft_audit.lake.delta import DeltaLake
from kraft_audit.lake.joined_files import is_plain, join_files, small_files
from kraft_audit.lake.lake import Lake, require_committer, require_lake
from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.lake.ledger import CHECKPOINT_PLANS, READ_ROWS, Ledger
from kraft_audit.lake.plan_events import OPENED, STAGED
from kraft_audit.lake.settings import MaintainSettings
from kraft_audit.lake.staging.state_store import STATES_FOLDER, delete_states
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.bronze import FILES, PLANS
from kraft_audit.tables.gold import FINDING_EPISODES, FINDINGS, INCIDENTS, PARTITION_RISK
from kraft_audit.text.readable import DAY_MS
from kraft_audit.text.watched_work import doing
from kraft_codec.errors import ChoiceError, InputError

MERGED: Final = (FINDINGS, FINDING_EPISODES, INCIDENTS, PARTITION_RISK)
"""The gold tables that plans are merged into."""
STATES_KEPT: Final = 3
"""Of each history so many of the newest states stay: no plan is open, so the next one goes on from one of them."""
LEDGER_TABLES: Final = (PLANS.name, FILES.name)


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done to one table, or would be in a dry run; `failure` is empty if it went well."""

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
    """The operations on one table, by the library that reaches the lake."""

    def size(self, table: str) -> tuple[int, int, int]:
        """(files, bytes, files smaller than half the target) of the newest version."""

    def rows(self, table: str, condition: str) -> int: ...

    def forget(self, table: str, condition: str) -> None: ...

    def arrange(self, table: str, columns: Sequence[str]) -> str:
        """Join small files, rows ordered by the columns if any; returns how it was done."""

    def vacuum(self, table: str, hours: int, dry_run: bool) -> int:
        """Delete files that no version of the last `hours` names; returns how many."""


class DeltaMaintainer:
    """By the Delta project's own `deltalake`: a local folder or an object store, no JVM."""

    def __init__(self, lake: DeltaLake, target_file_bytes: int) -> None:
        self.lake = lake
        self.target_file_bytes = target_file_bytes

    def size(self, table: str) -> tuple[int, int, int]:
        sizes = self.lake.file_sizes(table)
        return len(sizes), sum(sizes), sum(2 * size < self.target_file_bytes for size in sizes)

    def rows(self, table: str, condition: str) -> int:
        counts = self.lake.query(f"SELECT count(*) AS n FROM {table} WHERE {condition}", table)  # noqa: S608
        return int(counts.column("n")[0].as_py())

    def forget(self, table: str, condition: str) -> None:
        self.lake.open(table).delete(condition)

    def arrange(self, table: str, columns: Sequence[str]) -> str:
        opened = self.lake.open(table)
        if not is_plain(opened):
            opened.optimize.compact(target_size=self.target_file_bytes)
            return "compacted"
        with self.lake.reading(table):
            files = small_files(opened, self.target_file_bytes // 2)
            join_files(opened, self.lake.uri, table, files, columns)
        return f"ordered by {', '.join(columns)}" if columns else "compacted"

    def vacuum(self, table: str, hours: int, dry_run: bool) -> int:
        opened = self.lake.open(table)
        return len(opened.vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=True))


def maintain_lake(
    lake: Lake,
    maintainer: Maintainer,
    settings: MaintainSettings,
    *,
    dry_run: bool = False,
    vacuum_hours: int | None = None,
    tables: Collection[str] = (),
) -> Iterator[Maintained]:
    """Forget, arrange and vacuum each table of the lake, or of `tables`; a failure of one does not stop the others.

    Raises InputError if there is no lake, or if a plan is open: no transaction names its staged files yet.
    """
    require_lake(lake)
    require_committer(lake)
    ledger = Ledger(lake)
    if open_plans := ledger.status().open:
        raise InputError(lake.uri, f"plan {open_plans[0]} is open: `kraft-audit run` finishes it, then `lake maintain`")
    hours = settings.vacuum_hours if vacuum_hours is None else vacuum_hours
    there = lake_tables(lake)
    unknown = [table for table in tables if table not in there]
    if unknown:
        raise ChoiceError(lake.uri, f"no table {unknown[0]}: it has {', '.join(there)}")
    if not tables and (states := _maintained_states(lake, ledger, dry_run)) is not None:
        yield states
    for table in tables or there:
        doing(f"maintaining {table}")
        try:
            yield _maintain(lake, maintainer, settings, table, hours, dry_run)
        except Exception as problem:  # of any library: the other tables are maintained all the same
            yield Maintained(table, failure=" ".join(str(problem).split())[:300])


def _maintained_states(lake: Lake, ledger: Ledger, dry_run: bool) -> Maintained | None:
    """Deletes what plans kept of earlier captures, but for the newest; None where they kept nothing."""
    names = ledger.kept_states(STATES_KEPT)
    try:
        deleted = [
            delete_states(lake.data_uri, history, frozenset(newest), dry_run=dry_run)
            for history, newest in names.items()
        ]
    except OSError as problem:
        return Maintained(STATES_FOLDER, failure=" ".join(str(problem).split())[:300])
    return Maintained(STATES_FOLDER, files_vacuumed=sum(deleted)) if names else None


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
    # A table that is arranged already is left alone: without new files it costs nothing.
    if small > 1:
        columns = settings.cluster_by.get(table, [])
        layout = f"would join {small} small files" if dry_run else maintainer.arrange(table, columns)
    vacuumed = maintainer.vacuum(table, hours, dry_run)
    files_after, bytes_after, _ = maintainer.size(table)
    return Maintained(table, forgotten, files_before, files_after, bytes_before, bytes_after, layout, vacuumed)


def lake_tables(lake: Lake) -> list[str]:
    """The tables of the lake: those with a contract, then any other Delta table in its folder."""
    if is_uri(lake.uri):
        return [table for table in LAKE_TABLES if lake.exists(table)]
    there = {log.parent.name for log in Path(lake.uri).glob("*/_delta_log")}
    return [table for table in LAKE_TABLES if table in there] + sorted(there - LAKE_TABLES.keys())


def _forgettable(lake: Lake, table: str, days: int | None) -> str | None:
    """Which rows may go: those of plans closed longer than `days` ago, but what runs, the archive and the gate read."""
    if days is None:
        return None
    before_ms = time.time_ns() // 1_000_000 - days * DAY_MS
    sql = f"""SELECT max(CASE WHEN at_ms < {before_ms} THEN plan END) AS plan,
            min(CASE WHEN at_ms >= {before_ms} THEN plan END) AS later_plan
        FROM plans WHERE event = '{CLOSED}'"""  # noqa: S608
    (ended,) = lake.query(sql, PLANS.name).to_pylist()
    if ended["plan"] is None:
        return None
    plan = ended["plan"] if ended["later_plan"] is None else min(ended["plan"], ended["later_plan"] - 1)
    ledger = Ledger(lake)
    # No plan is open: every plan has ended.
    closed = ledger.newest_plan()
    # The gate compares the newest plan with its manifest. The ledger reads from its last checkpoint on, and the gate as
    # many manifests as can lie between two checkpoints.
    plan = min(plan, closed - 1 - (CHECKPOINT_PLANS if table in LEDGER_TABLES else 0))
    return _of_ledger(lake, ledger, plan) if table == PLANS.name else f"plan <= {plan}"


def _of_ledger(lake: Lake, ledger: Ledger, plan: int) -> str:
    """Which rows of `plans` may go: none that the gold tables have yet to merge, and not the latest about a cluster.

    When a plan was closed stays too: it dates the rows of other tables, and separates a plan that was forgotten from a
    plan that never existed. If a plan stays, all its clusters stay.
    """
    merged = [
        lake.versions(table.name, [ledger.application(table.name)])[0] for table in MERGED if lake.exists(table.name)
    ]
    waiting = [number for _, number in ledger.closings(min(merged))] if merged else []
    plan = min([plan, *(number - 1 for number in waiting)])
    newest = [
        f"SELECT max(plan) AS plan FROM plans WHERE {condition} GROUP BY cluster_id"  # noqa: S608  # our own words
        for condition in (f"event = '{OPENED}'", f"event = '{STAGED}' AND outcome IS NOT NULL", READ_ROWS)
    ]
    sql = f"SELECT DISTINCT plan FROM ({' UNION ALL '.join(newest)}) AS newest WHERE plan <= {plan} ORDER BY plan"  # noqa: S608
    staying = ", ".join(map(str, lake.query(sql, PLANS.name).column("plan").to_pylist())) or "0"
    is_latest = f"data_file IS NULL AND event IN ('{OPENED}', '{STAGED}') AND plan IN ({staying})"
    return f"plan <= {plan} AND event <> '{CLOSED}' AND NOT ({is_latest})"
