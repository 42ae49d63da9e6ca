"""A run: plan → stage → commit → close, then findings → risk. Before it stages a new plan it joins small files.

Each step is recorded once in the ledger, so that any run can finish the plan of any other. Findings and risk bring the
gold tables up to the newest closed plan, whichever run closed it.

An open plan belongs to a run that died or that works at the same time. Its clusters are its own: a new plan reads what
changed in all others. Then the open plan is finished too, with the bytes, the files and the numbers that it fixed, if
it is staged or reads clusters of this run's fleet; a new plan reads what changed in them since. Where nothing changed,
there is no plan, and no engine is started.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from kraft_audit.capture.path_plans import unread_lines
from kraft_audit.lake.fleet_plan import FleetPlan, plan_fleet
from kraft_audit.lake.lake import Lake
from kraft_audit.lake.lake_paths import absolute, is_uri
from kraft_audit.lake.ledger import Ledger
from kraft_audit.lake.ledger_state import InspectedCluster, Manifest
from kraft_audit.lake.plan_commits import claimed_text, commit_tables, plan_summary, size_text
from kraft_audit.lake.plan_events import Claims
from kraft_audit.lake.progress import Progress, ProgressLine, RunResult, failpoint, findings_line
from kraft_audit.lake.redaction_key import key_id, load_key
from kraft_audit.lake.settings import ClusterSettings, FleetSettings, SettingsError
from kraft_audit.lake.staging.stage import StageError
from kraft_audit.lake.staging.stage_parts import forget_manifests
from kraft_audit.lake.waves import numbered, waves_of
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.text.readable import plural
from kraft_audit.text.watched_work import doing
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from kraft_audit.lake.gold.gold_tables import GoldTables

Stager = Callable[[int], Manifest]
Gate: TypeAlias = "Callable[[Run], bool]"
"""Judges the tables of a run's lake once its plans are closed; whether findings may be merged."""


# Each round finishes a plan that another run opened first; more rounds mean that something opens plans without end.
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
    """One run over one lake. `stager` reads the clusters of a plan; it is called only if there is a plan to stage.

    Without `gold` the run ends with the closed plan, and the gold tables stay as they are. They also do where `gate`
    is given, judges the tables of closed plans, and says no.
    """

    def __init__(
        self,
        fleet: FleetSettings,
        lake: Lake,
        stager: Stager,
        progress: Progress,
        gold: GoldTables | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.fleet = fleet
        self.lake = lake
        self.ledger = Ledger(lake)
        self.stager = stager
        self.progress = progress
        self.gold = gold
        self._gate = gate
        self.result = RunResult(lake.uri)
        self.planned_bytes: int | None = None
        self._left_open: tuple[int, ...] = ()
        self._failed_before: frozenset[str] = frozenset()

    def all_steps(self) -> RunResult:
        self._prepare()
        for _ in range(ROUNDS):
            opened = self._plan()
            if opened is None:
                continue
            left = self._left_open
            if opened:
                self._join_small_files()
            self._finish_each((*opened, *left))
            if not left:
                if self._gate is None or self._gate(self):
                    self._findings()
                    self._risk()
                return self.result
        raise InputError(self.lake.uri, f"other runs opened {ROUNDS} plans while this one was planning")

    def finish_open_plans(self) -> RunResult:
        """End the plans that killed runs left open, if there are any, and do nothing else."""
        self._prepare()
        self._left_open = self.ledger.status().open
        self._finish_each(self._left_open)
        return self.result

    def abandon(self, number: int) -> RunResult:
        """End an open plan so that nothing of it is committed; the next run plans its clusters again.

        Raises InputError where it is not open, or is staged: what is left of it then needs no cluster.
        """
        self._prepare()
        if number not in self.ledger.status().open:
            raise InputError(self.lake.uri, f"plan {number} is not open: there is nothing to abandon")
        if not self.ledger.abandon(number) and not self.ledger.is_abandoned(number):
            why = "what is left needs no cluster: `kraft-audit run --finish` does it"
            raise InputError(self.lake.uri, f"plan {number} is staged, and cannot be abandoned; {why}")
        failpoint("after-abandon")
        self._finish(number)
        return self.result

    def one_step(self, step: Step) -> RunResult:
        """Do only this step, of each open plan; `plan` opens one for clusters that no open plan reads.

        Gold steps follow closed plans.
        """
        self._prepare()
        if step in (Step.PLAN, Step.FINDINGS, Step.RISK):
            {Step.PLAN: self._plan, Step.FINDINGS: self._findings, Step.RISK: self._risk}[step]()
            return self.result
        open_plans = self.ledger.status().open
        if not open_plans:
            self.progress(ProgressLine(step, "no plan is open"))
        for number in open_plans:
            self._step_of(step, number)
        return self.result

    def _step_of(self, step: Step, number: int) -> None:
        is_staged = self.ledger.is_staged(number)
        match step:
            case _ if is_staged and self.ledger.is_abandoned(number):
                self._close_abandoned(number)
            case Step.STAGE if is_staged:
                self.progress(ProgressLine(step, f"plan {number} is staged", plan=number))
            case Step.STAGE:
                self._stage(number)
            case _ if not is_staged:
                self.progress(ProgressLine(step, f"plan {number} is not staged yet", plan=number))
            case Step.COMMIT:
                self._commit(number, self.ledger.manifest(number))
            case _:
                self._close(number, self.ledger.manifest(number))

    def _prepare(self) -> None:
        """Load the key and create the tables. Another key than the lake's would make every secret look changed."""
        key_file = Path(self.fleet.redaction_key_file or "")
        known = self.ledger.redaction_key_id() if self.lake.exists("plans") else None
        self.key_id = key_id(load_key(key_file, may_create=known is None))
        if known is not None and known != self.key_id:
            raise InputError(str(key_file), f"not the key that the lake {self.lake.uri} was begun with")
        self.ledger.create()

    def _finish_each(self, numbers: Sequence[int]) -> None:
        """Finish the plans one after the other. One that stays open stops no other; then its problem is raised."""
        problems: list[Exception] = []
        for number in numbers:
            if number in self._left_open:
                self.progress(ProgressLine(Step.PLAN, f"plan {number} is open: finishing it", plan=number))
            try:
                self._finish(number)
                if len(numbers) > 1 and self._gate is None:
                    # What was found in these clusters does not wait for the others.
                    self._findings()
            except (InputError, StageError) as problem:
                problems.append(problem)
        if problems:
            raise problems[0]

    def _finish(self, number: int) -> None:
        is_taken = self.ledger.is_staged(number) or not self._stage(number)
        if is_taken and self.ledger.is_abandoned(number):
            self._close_abandoned(number)
            return
        manifest = self.ledger.manifest(number)
        self._commit(number, manifest)
        self._close(number, manifest)

    def _plan(self) -> tuple[int, ...] | None:
        """The numbers of the plans that this run opened, none if nothing changed; None if another run was first."""
        started = time.monotonic()
        # A plan that another run opens from here on takes this number, and this one is then refused.
        status = self.ledger.status()
        number = status.opened + 1
        self._recommit_lost(status.closed)
        unread, now_ms = self.ledger.unread(), time.time_ns() // 1_000_000
        self._failed_before = frozenset(name for name, cluster in unread.items() if cluster.retry_at_ms)
        waits = {name: cluster for name, cluster in unread.items() if cluster.retry_at_ms > now_ms}
        planned = self._plan_fleet(number, self.ledger.claims(status.open), waits)
        claimed = set(planned.claimed.values())
        # The others are those of other runs, alive or dead, over other clusters.
        self._left_open = tuple(each for each in status.open if each in claimed or self.ledger.is_staged(each))
        self.planned_bytes = planned.planned_bytes
        self.result.unreachable = dict(planned.failed)
        self.result.unchanged = planned.unchanged_count
        for name, why in planned.failed.items():
            self.progress(ProgressLine(Step.PLAN, why, cluster=name, level="warning"))
        for cluster in planned.clusters:
            for line in unread_lines(cluster.plan.damages):
                self.progress(ProgressLine(Step.PLAN, line, cluster=cluster.plan.name, level="warning"))
        for unchanged in planned.inspected:
            if unchanged.failure is None:
                # The plan of another run could not reach it, this one could.
                self.result.unread.pop(unchanged.cluster_name, None)
        inspected = planned.inspections_to_record(unread, now_ms)
        left = claimed_text(planned.claimed)
        if not planned.clusters and not inspected:
            self.show(Step.PLAN, f"nothing new in {plural(planned.unchanged_count, 'cluster')}{left}", started)
            return ()
        opened: list[int] = []
        for wave in waves_of(planned.clusters, self._failed_before) or [()]:
            more = () if opened else inspected
            # Where another run opens a plan in between, the next one plans what is left.
            if not self.ledger.open_plan(numbered(wave, number + len(opened)), self.key_id, more, number + len(opened)):
                break
            opened.append(number + len(opened))
        if not opened:
            self.show(Step.PLAN, f"another run opened plan {number}", started)
            return None
        counts = f"{plural(len(planned.clusters), 'cluster')}, {plural(planned.replica_count, 'replica')}"
        what = f"plan {', '.join(map(str, opened))}: {counts}"
        self.show(
            Step.PLAN,
            f"{what}, {size_text(planned.planned_bytes)} to read, {planned.unchanged_count} unchanged{left}",
            started,
        )
        failpoint("after-plan")
        return tuple(opened)

    def _recommit_lost(self, closed: int) -> None:
        """Commit the plan that closed last once more where a power cut left a table's last commit empty.

        In an object store a commit is whole or absent.
        """
        if closed == 0 or is_uri(self.lake.uri):
            return
        for _, number in self.ledger.closings(closed - 1):
            committed = commit_tables(self.ledger, number, self.ledger.manifest(number))
            if again := [table for table, _, is_new in committed if is_new]:
                what = f"plan {number} was lost from {', '.join(again)}, and is committed again"
                self.progress(ProgressLine(Step.COMMIT, what, plan=number, level="warning"))

    def _plan_fleet(self, number: int, claims: Claims, waits: Mapping[str, InspectedCluster]) -> FleetPlan:
        """What plan `number` reads; `claims` are the clusters of open plans, `waits` those to leave alone now."""
        return plan_fleet(self.fleet, self.ledger, number, claims, waits)

    def _stage(self, number: int) -> bool:
        """Stage a plan. False where another run had staged it, or it was abandoned meanwhile."""
        started = time.monotonic()
        manifest = self.stager(number) if self.ledger.reads_any(number) else Manifest((), ())
        failpoint("before-manifest")
        is_first = self.ledger.record_staged(number, manifest)
        forget_manifests(self.lake.data_uri, number)
        if is_first:
            rows = sum(file.row_count for file in manifest.files)
            self.show(Step.STAGE, f"plan {number}: {rows} rows in {len(manifest.files)} files", started)
        else:
            self.show(Step.STAGE, f"plan {number}: another run ended this step first, and that counts", started)
        failpoint("after-stage")
        return is_first

    def _commit(self, number: int, manifest: Manifest) -> None:
        started = time.monotonic()
        doing(f"committing plan {number}")
        are_new = [is_new for _, _, is_new in commit_tables(self.ledger, number, manifest)]
        text, there = f"plan {number}: {plural(sum(are_new), 'table')}", are_new.count(False)
        if there:
            text += f", {there} of an earlier try were there"
        self.show(Step.COMMIT, text, started)

    def _close(self, number: int, manifest: Manifest) -> None:
        started = time.monotonic()
        summary = plan_summary(manifest)
        is_first = self.ledger.close_plan(number, summary)
        self.result.add_plan(number, summary, [outcome.cluster_name for outcome in manifest.outcomes])
        for name, why in summary.get("forgotten", {}).items():
            text = f"what earlier captures showed is not known any more: {why}"
            self.progress(ProgressLine(Step.CLOSE, text, cluster=name, plan=number, level="warning"))
        for name, why in summary["failed"].items():
            self.progress(ProgressLine(Step.CLOSE, why, cluster=name, plan=number, level="warning"))
        self.show(Step.CLOSE, f"plan {number}" + ("" if is_first else " was closed by another run"), started)
        failpoint("after-close")

    def _close_abandoned(self, number: int) -> None:
        started = time.monotonic()
        forget_manifests(self.lake.data_uri, number)
        is_first = self.ledger.close_plan(number, {}, is_abandoned=True)
        self.show(Step.CLOSE, f"plan {number} is abandoned" + ("" if is_first else ", by another run"), started)

    def _join_small_files(self) -> None:
        """Join small files before staging. If a table fails, its files stay for the next run."""
        doing("joining small files")
        for table in LAKE_TABLES:
            try:
                if self.lake.exists(table):
                    self.lake.join_small_files(table)
            except Exception as problem:  # of any library: nothing rests on it
                why = " ".join(str(problem).split())[:300]
                text = f"small files of {table} are not joined, and the run goes on: {why}"
                self.progress(ProgressLine(Step.PLAN, text, level="warning"))

    def _findings(self) -> None:
        if self.gold is None:
            return
        started = time.monotonic()
        doing("merging findings")
        merged = self.gold.findings()
        self.result.findings = counts = self.gold.counts()
        self.result.states = self.gold.states()
        what = f"plan {', '.join(map(str, merged))} merged" if merged else "nothing new"
        self.show(Step.FINDINGS, f"{what}: {findings_line(counts)}", started)

    def _risk(self) -> None:
        if self.gold is None:
            return
        started = time.monotonic()
        doing("summing up the risk of partitions")
        touched = self.gold.risk()
        self.show(Step.RISK, ", ".join(touched) or "nothing new", started)

    def show(self, step: str, what: str, started: float) -> None:
        """Note how long a step took since `started` (`time.monotonic`), and say what it did."""
        seconds = time.monotonic() - started
        self.result.seconds[step] = round(self.result.seconds.get(step, 0.0) + seconds, 3)
        self.progress(ProgressLine(step, what, seconds=seconds))


def with_word(fleet: FleetSettings, *, running: bool, gone: Sequence[int]) -> FleetSettings:
    """The same fleet with what the operator of its only cluster says. Raises SettingsError where it has several."""
    if not running and not gone:
        return fleet
    if len(fleet.clusters) != 1:
        raise SettingsError("run", "--gone or --running", "", "one cluster that is meant, by --cluster NAME")
    (cluster,) = fleet.clusters
    said = cluster.model_copy(update={"running": running or cluster.running, "gone": list(gone) or cluster.gone})
    return fleet.model_copy(update={"clusters": [said]})


def lake_alone(lake: str | None, clusters: Sequence[str] | None = None) -> FleetSettings:
    """Settings of a run from the archive without a fleet file: all clusters, or these, as they were last read."""
    if not lake:
        raise SettingsError("run", "lake", lake, "FLEET.yaml, or --lake with --from archive")
    uri = absolute(lake, Path.cwd()).rstrip("/")
    named = [ClusterSettings.model_construct(name=name, paths=[]) for name in clusters or ()]
    return FleetSettings.model_construct(lake=uri, clusters=named, redaction_key_file=f"{uri}.redaction-key")


def without_lost_key(fleet: FleetSettings) -> FleetSettings:
    """The same fleet, without its key file if that is missing: a run from the archive makes no fingerprint."""
    if fleet.redaction_key_file is not None and not Path(fleet.redaction_key_file).exists():
        return fleet.model_copy(update={"redaction_key_file": None})
    return fleet
