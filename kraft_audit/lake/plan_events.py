"""The events of plans in the table `plans`: which plans there are, what they read, and how far each got.

An event is recorded once, by the run that comes first, in a transaction whose application and version say so to others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from kraft_audit.capture.plan import ClusterPlan, cluster_id_of
from kraft_audit.lake.closed_plans import ABANDONED, CLOSED, ClosedPlans
from kraft_audit.lake.delta import sql_text
from kraft_audit.lake.lake import COMMIT_ATTEMPTS, Lake
from kraft_audit.tables.bronze import PLANS
from kraft_audit.tables.contract import build_rows
from kraft_codec.errors import InputError

OPENED: Final = "opened"
STAGED: Final = "staged"
CHECKPOINT: Final = "checkpoint"
ATTEMPT: Final = "attempt"
NOTHING_CLOSED: Final = ClosedPlans()


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """Where the ledger stands: `opened` is the number of the newest plan, `closed` how many plans have ended.

    `open` are the numbers of the plans that have not, ascending; `done` are those that are closed as done.
    """

    opened: int
    closed: int
    open: tuple[int, ...] = ()
    done: ClosedPlans = NOTHING_CLOSED


@dataclass(frozen=True, slots=True)
class Claims:
    """What the open plans read: names of clusters in fleet.yaml, and cluster ids, each with the number of its plan."""

    names: Mapping[str, int]
    cluster_ids: Mapping[str, int]

    def plan_of(self, name: str, cluster_id: str | None) -> int | None:
        """The open plan that reads this cluster; None if it is free."""
        claimed = self.names.get(name)
        return self.cluster_ids.get(cluster_id) if claimed is None and cluster_id is not None else claimed


NO_CLAIMS: Final = Claims({}, {})


class PlanEvents:
    """The events of one lake's plans."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self._lake_id: str | None = None

    def application(self, what: str) -> str:
        """The application id of a transaction: lake and table. The lake's id is the table id of its `plans`."""
        if self._lake_id is None:
            self._lake_id = self.lake.table_id(PLANS.name)
        return f"kraft-audit/{self._lake_id}/{what}"

    def plan_application(self, what: str, number: int) -> str:
        """The application id of a transaction of one plan: plans commit in any order, and none stands for another."""
        return self.application(f"{what}/{number}")

    def newest_plan(self) -> int:
        """The number of the newest plan that was opened, 0 for none."""
        if not self.lake.exists(PLANS.name):
            return 0
        return self.lake.versions(PLANS.name, [self.application(f"plans/{OPENED}")])[0]

    def status(self) -> PlanStatus:
        if not self.lake.exists(PLANS.name):
            return PlanStatus(0, 0)
        applications = [self.application(f"plans/{event}") for event in (OPENED, CLOSED)]
        opened, closed = self.lake.versions(PLANS.name, applications)
        if opened == closed:
            return PlanStatus(opened, closed, (), ClosedPlans(opened))
        # The rows may be newer than the two numbers. What is decided by an old number is refused when it is recorded.
        rows = self.lake.query(
            f"""SELECT plan, max(CASE WHEN event = '{CLOSED}' THEN 1 ELSE 0 END) = 1 AS has_ended,
                max(CASE WHEN outcome = '{ABANDONED}' THEN 1 ELSE 0 END) = 1 AS is_abandoned
            FROM plans WHERE event IN ('{OPENED}', '{CLOSED}') GROUP BY plan ORDER BY plan""",  # noqa: S608
            PLANS.name,
        ).to_pylist()
        open_ = tuple(row["plan"] for row in rows if not row["has_ended"])
        low = min(open_, default=max(opened, rows[-1]["plan"] if rows else 0) + 1) - 1
        above = (row["plan"] for row in rows if row["plan"] > low and row["has_ended"] and not row["is_abandoned"])
        return PlanStatus(opened, closed, open_, ClosedPlans(low, tuple(above)))

    def claims(self, open_plans: Sequence[int]) -> Claims:
        """The clusters that these open plans read: no other plan may."""
        if not open_plans:
            return NO_CLAIMS
        rows = self.lake.query(
            f"SELECT plan, cluster_name, cluster_id FROM plans WHERE event = '{OPENED}' "  # noqa: S608
            f"AND plan IN ({', '.join(map(str, open_plans))}) AND cluster_plan IS NOT NULL",
            PLANS.name,
        ).to_pylist()
        names = {row["cluster_name"]: row["plan"] for row in rows}
        return Claims(names, {cluster_id_of(row["cluster_id"]): row["plan"] for row in rows})

    def is_staged(self, number: int) -> bool:
        """Whether it is fixed what is to be committed of a plan, or that nothing is."""
        return self.lake.versions(PLANS.name, [self.plan_application(f"plans/{STAGED}", number)])[0] >= number

    def is_abandoned(self, number: int) -> bool:
        sql = f"SELECT count(*) AS n FROM plans WHERE plan = {number} AND event = '{ABANDONED}'"  # noqa: S608
        return bool(self.lake.query(sql, PLANS.name)["n"][0].as_py())

    def abandon(self, number: int) -> bool:
        """Fix that nothing of a plan is committed. False where it is staged, or was abandoned before."""
        if self.is_staged(number):
            return False
        return self.record(ABANDONED, number, [{}], self.plan_application(f"plans/{STAGED}", number), number)

    def record_attempt(self, number: int, clusters: Sequence[tuple[int, ClusterPlan, Mapping[str, Any]]]) -> None:
        """Record that reading these clusters of a plan begins; of each its number and what `attempts` needs of it."""
        application = self.plan_application(f"plans/{ATTEMPT}", number)
        for _ in range(COMMIT_ATTEMPTS):
            (before,) = self.lake.versions(PLANS.name, [application])
            rows = [
                {
                    "cluster_number": place,
                    "cluster_name": plan.name,
                    "cluster_id": plan.key,
                    "summary": json.dumps(summary),
                    "place": before + 1,
                }
                for place, plan, summary in clusters
            ]
            if self.record(ATTEMPT, number, rows, application, before + 1):
                return
        raise InputError(self.lake.table_uri(PLANS.name), f"{COMMIT_ATTEMPTS} attempts to record an attempt met others")

    def attempts(self, number: int) -> list[tuple[int, str, int]]:
        """(when it began, part, seconds that it may take) of each attempt to read a part of an open plan."""
        rows = self.plan_rows(number, ATTEMPT, "cluster_number, at_ms, place, summary")
        attempts = {
            (row["place"], each["part"]): (row["at_ms"], each["part"], each["deadline_s"])
            for row in rows
            for each in [json.loads(row["summary"])]
        }
        return list(attempts.values())

    def closings(self, after: int) -> list[tuple[int, int]]:
        """(place in the order of closing, plan) of the plans that were closed as done after that place, in order."""
        rows = self.lake.query(
            f"SELECT place, plan FROM plans WHERE event = '{CLOSED}' AND outcome IS NULL "  # noqa: S608
            f"AND place > {after} ORDER BY place",
            PLANS.name,
        ).to_pylist()
        return [(row["place"], row["plan"]) for row in rows]

    def where_merged(self, table: str, closed: ClosedPlans, column: str = "plan") -> str:
        """The SQL condition that a gold table has taken a closed plan."""
        (place,) = self.lake.versions(table, [self.application(table)])
        waiting = ", ".join(str(number) for _, number in self.closings(place)) or "0"
        return f"({closed.where(column)} AND {column} NOT IN ({waiting}))"

    def plan_rows(self, number: int, event: str, columns: str) -> list[dict[str, Any]]:
        sql = f"SELECT {columns} FROM plans WHERE plan = {number} AND event = {sql_text(event)} ORDER BY cluster_number"  # noqa: S608
        rows: list[dict[str, Any]] = self.lake.query(sql, PLANS.name).to_pylist()
        return rows

    def record(
        self, event: str, number: int, rows: Iterable[Mapping[str, Any]], application: str, version: int
    ) -> bool:
        """Add the rows of an event, unless the application has that version already: then another run was first."""
        now_ms = time.time_ns() // 1_000_000
        common = {"plan": number, "event": event, "at_ms": now_ms, "at": datetime.fromtimestamp(now_ms / 1000, UTC)}
        empty = dict.fromkeys(PLANS.column_names)
        batch = build_rows(PLANS, [{**empty, **row, **common} for row in rows])
        return self.lake.append_rows(PLANS.name, pa.Table.from_batches([batch]), application, version)
