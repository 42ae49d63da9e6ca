"""A run: plan → stage → commit → close, each recorded once in the ledger, so that any run can finish any other's plan;
then findings → risk, which bring the gold tables up to the newest closed plan, whichever run closed it.

An open plan (of a run that died, or of one that is at work beside this one) is finished first, with the bytes, the
files and the numbers that it fixed; then what is new since is planned. Where nothing is new, no plan is made and Spark
is not even started.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kraft_audit.replay.damage import unread_lines
from kraft_audit.settings import FleetSettings, is_uri
from kraft_audit.spark.commit import commit_tables, plan_summary
from kraft_audit.spark.failpoints import failpoint
from kraft_audit.spark.gold_steps import GoldSteps
from kraft_audit.spark.lake import Lake
from kraft_audit.spark.ledger import Ledger
from kraft_audit.spark.ledger_state import Manifest
from kraft_audit.spark.plan import FleetPlan, plan_fleet
from kraft_audit.spark.progress import Line, Progress
from kraft_audit.spark.redaction_key import key_id, load_key
from kraft_audit.spark.summary import RunResult, findings_line
from kraft_codec.errors import InputError

Stager = Callable[[int], Manifest]
# Each round finishes a plan that another run opened first; more means that something opens plans without end.
ROUNDS: Final = 20


class Step(enum.StrEnum):
    """A step of a run; `--only` takes one."""

    PLAN = "plan"
    STAGE = "stage"
    COMMIT = "commit"
    CLOSE = "close"
    FINDINGS = "findings"
    RISK = "risk"


class Run:
    """One run over one lake. `stager` reads the clusters of a plan and is called only where there is one to stage.

    Without `gold` the run ends with the closed plan, and the gold tables stay as they are.
    """

    def __init__(
        self, fleet: FleetSettings, lake: Lake, stager: Stager, progress: Progress, gold: GoldSteps | None = None
    ) -> None:
        self.fleet = fleet
        self.lake = lake
        self.ledger = Ledger(lake)
        self.stager = stager
        self.progress = progress
        self.gold = gold
        self.result = RunResult(lake.uri)
        self.planned_bytes: int | None = None

    def all_steps(self) -> RunResult:
        self._prepare()
        for _ in range(ROUNDS):
            self._finish_open_plan()
            number = self._plan()
            if number is None or number > 0:
                if number is not None:
                    self._finish(number)
                self._findings()
                self._risk()
                return self.result
        raise InputError(self.lake.uri, f"other runs opened {ROUNDS} plans while this one was planning")

    def finish_open_plan(self) -> RunResult:
        """Only end the plan that a killed run left open, if there is one."""
        self._prepare()
        self._finish_open_plan()
        return self.result

    def one_step(self, step: Step) -> RunResult:
        """Only this step, of the plan that is open; `plan` opens one where none is. Gold follows closed plans."""
        self._prepare()
        if step is Step.FINDINGS:
            self._findings()
            return self.result
        if step is Step.RISK:
            self._risk()
            return self.result
        status = self.ledger.status()
        number = status.open_number
        match step:
            case Step.PLAN if number is None:
                self._plan()
            case Step.PLAN:
                self.progress(Line(step, f"plan {number} is open: nothing to plan before it is closed", plan=number))
            case _ if number is None:
                self.progress(Line(step, "no plan is open"))
            case Step.STAGE if status.staged >= number:
                self.progress(Line(step, f"plan {number} is staged", plan=number))
            case Step.STAGE:
                self._stage(number)
            case _ if status.staged < number:
                self.progress(Line(step, f"plan {number} is not staged yet", plan=number))
            case Step.COMMIT:
                self._commit(number, self.ledger.manifest(number))
            case Step.CLOSE:
                self._close(number, self.ledger.manifest(number))
        return self.result

    def _prepare(self) -> None:
        """The key and the tables; a key that is not the lake's would make every secret look changed."""
        key_file = Path(self.fleet.redaction_key_file or "")
        known = self.ledger.redaction_key_id() if self.lake.exists("plans") else None
        self.key_id = key_id(load_key(key_file, may_create=known is None))
        if known is not None and known != self.key_id:
            raise InputError(str(key_file), f"not the key that the lake {self.lake.uri} was begun with")
        self.ledger.create()

    def _finish_open_plan(self) -> None:
        number = self.ledger.status().open_number
        if number is not None:
            self.progress(Line(Step.PLAN, f"plan {number} is open: finishing it first", plan=number))
            self._finish(number)

    def _finish(self, number: int) -> None:
        if self.ledger.status().staged < number:
            self._stage(number)
        manifest = self.ledger.manifest(number)
        self._commit(number, manifest)
        self._close(number, manifest)

    def _plan(self) -> int | None:
        """The number of the plan that this run opened; None where nothing is new, 0 where another run was first."""
        started = time.monotonic()
        status = self.ledger.status()
        if status.open_number is not None:
            return 0  # another run opened it since: what it reads is not in the ledger yet
        self._hold_closed(status.closed)
        # Whatever others open and close from here on takes this number, and this plan is refused then.
        number = status.closed + 1
        planned = self._look(number)
        self.planned_bytes = planned.planned_bytes
        self.result.unreachable = dict(planned.failed)
        self.result.unchanged = planned.unchanged_count
        for name, why in planned.failed.items():
            self.progress(Line(Step.PLAN, why, cluster=name, level="warning"))
        for one in planned.clusters:
            for line in unread_lines(one.plan.damages):
                self.progress(Line(Step.PLAN, line, cluster=one.plan.name, level="warning"))
        for looked in planned.looked_at:
            if looked.failure is None:
                # What the plan of another run could not reach, this one did.
                self.result.unread.pop(looked.cluster_name, None)
        looked_at = planned.news_of_looking(self.ledger.unread(), time.time_ns() // 1_000_000)
        if not planned.clusters and not looked_at:
            self._tell(Step.PLAN, f"nothing new in {planned.unchanged_count} clusters", started)
            return None
        opened = self.ledger.open_plan(planned.clusters, self.key_id, looked_at, number)
        if not opened:
            self._tell(Step.PLAN, f"another run opened plan {number}", started)
            return 0
        what = f"plan {number}: {len(planned.clusters)} clusters, {planned.replica_count} replicas"
        self._tell(
            Step.PLAN, f"{what}, {_size(planned.planned_bytes)} to read, {planned.unchanged_count} unchanged", started
        )
        failpoint("after-plan")
        return number

    def _hold_closed(self, number: int) -> None:
        """A power cut may leave a table's last commit empty though the plan was closed: it is committed once more.

        An object store has a commit whole or not at all.
        """
        if number == 0 or is_uri(self.lake.uri):
            return
        again: list[str] = []

        def committed(table: str, _: int, brought: bool) -> None:
            if brought:
                again.append(table)

        commit_tables(self.ledger, number, self.ledger.manifest(number), committed)
        if again:
            what = f"plan {number} was lost from {', '.join(again)}, and is committed again"
            self.progress(Line(Step.COMMIT, what, plan=number, level="warning"))

    def _look(self, number: int) -> FleetPlan:
        """What plan `number` would read."""
        return plan_fleet(self.fleet, self.ledger, number)

    def _stage(self, number: int) -> None:
        started = time.monotonic()
        manifest = self.stager(number) if self.ledger.reads_any(number) else Manifest((), ())
        failpoint("before-manifest")
        if self.ledger.record_staged(number, manifest):
            rows = sum(file.row_count for file in manifest.files)
            self._tell(Step.STAGE, f"plan {number}: {rows} rows in {len(manifest.files)} files", started)
        else:
            self._tell(Step.STAGE, f"plan {number}: another run had staged it, its files are taken", started)
        failpoint("after-stage")

    def _commit(self, number: int, manifest: Manifest) -> None:
        started = time.monotonic()
        tables: list[str] = []

        def committed(table: str, rows: int, brought: bool) -> None:
            tables.append(f"{table} {rows}" if brought else f"{table} was there")

        commit_tables(self.ledger, number, manifest, committed)
        self._tell(Step.COMMIT, f"plan {number}: {', '.join(tables) or 'no rows'}", started)

    def _close(self, number: int, manifest: Manifest) -> None:
        started = time.monotonic()
        summary = plan_summary(manifest)
        brought = self.ledger.close_plan(number, summary)
        self.result.add_plan(number, summary, [one.cluster_name for one in manifest.outcomes])
        for name, why in summary["failed"].items():
            self.progress(Line(Step.CLOSE, why, cluster=name, plan=number, level="warning"))
        self._tell(Step.CLOSE, f"plan {number}" + ("" if brought else " was closed by another run"), started)
        failpoint("after-close")

    def _findings(self) -> None:
        if self.gold is None:
            return
        started = time.monotonic()
        merged = self.gold.findings()
        self.result.findings = counts = self.gold.counts()
        what = f"plan {', '.join(map(str, merged))} merged" if merged else "nothing new"
        self._tell(Step.FINDINGS, f"{what}: {findings_line(counts)}", started)

    def _risk(self) -> None:
        if self.gold is None:
            return
        started = time.monotonic()
        touched = self.gold.risk()
        if self.gold.left_out is not None:
            self.progress(Line(Step.RISK, f"partition_risk stays as it is: {self.gold.left_out}", level="warning"))
        self._tell(Step.RISK, ", ".join(touched) or "nothing new", started)

    def _tell(self, step: Step, what: str, started: float) -> None:
        seconds = time.monotonic() - started
        self.result.seconds[step] = round(self.result.seconds.get(step, 0.0) + seconds, 3)
        self.progress(Line(step, what, seconds=seconds))


def _size(byte_count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if byte_count >= size:
            return f"{byte_count / size:.1f} {unit}"
    return f"{byte_count} B"
