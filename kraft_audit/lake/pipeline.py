"""A run: plan → stage → commit → close, then findings → risk.

Each step is recorded once in the ledger, so that any run can finish the plan of any other. Findings and risk bring the
gold tables up to the newest closed plan, whichever run closed it.

An open plan belongs to a run that died or that works at the same time. It is finished first, with the bytes, the files
and the numbers that it fixed; then a new plan reads what changed since. Where nothing changed, there is no plan, and
Spark is not started.
"""

from __future__ import annotations

import enum
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from kraft_audit.capture.path_plans import unread_lines
from kraft_audit.lake.delta import Lake
from kraft_audit.lake.fleet_plan import FleetPlan, plan_fleet
from kraft_audit.lake.lake_paths import absolute, is_uri
from kraft_audit.lake.ledger import Ledger, delta_schema
from kraft_audit.lake.ledger_state import Manifest
from kraft_audit.lake.open_incidents import ClusterState
from kraft_audit.lake.progress import FindingCounts, Progress, ProgressLine, RunResult, failpoint, findings_line
from kraft_audit.lake.redaction_key import key_id, load_key
from kraft_audit.lake.settings import ClusterSettings, FleetSettings, SettingsError
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.tables.bronze import FILES
from kraft_audit.text.readable import plural
from kraft_codec.errors import InputError

Stager = Callable[[int], Manifest]


class GoldSteps(Protocol):
    """The gold tables of one fleet's lake, brought up to the newest closed plan."""

    @property
    def left_out(self) -> str | None: ...
    def findings(self) -> list[int]: ...
    def counts(self) -> FindingCounts: ...
    def states(self) -> list[ClusterState]: ...
    def older_ids(self) -> int: ...
    def risk(self) -> list[str]: ...


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
        """End the plan that a killed run left open, if there is one, and do nothing else."""
        self._prepare()
        self._finish_open_plan()
        return self.result

    def one_step(self, step: Step) -> RunResult:
        """Do only this step, of the open plan; `plan` opens a plan if none is open. Gold steps follow closed plans."""
        self._prepare()
        status = self.ledger.status()
        number = status.open_number
        match step:
            case Step.FINDINGS:
                self._findings()
            case Step.RISK:
                self._risk()
            case Step.PLAN if number is None:
                self._plan()
            case Step.PLAN:
                self.progress(
                    ProgressLine(step, f"plan {number} is open: nothing to plan before it is closed", plan=number)
                )
            case _ if number is None:
                self.progress(ProgressLine(step, "no plan is open"))
            case Step.STAGE if status.staged >= number:
                self.progress(ProgressLine(step, f"plan {number} is staged", plan=number))
            case Step.STAGE:
                self._stage(number)
            case _ if status.staged < number:
                self.progress(ProgressLine(step, f"plan {number} is not staged yet", plan=number))
            case Step.COMMIT:
                self._commit(number, self.ledger.manifest(number))
            case Step.CLOSE:
                self._close(number, self.ledger.manifest(number))
        return self.result

    def _prepare(self) -> None:
        """Load the key and create the tables. Another key than the lake's would make every secret look changed."""
        key_file = Path(self.fleet.redaction_key_file or "")
        known = self.ledger.redaction_key_id() if self.lake.exists("plans") else None
        self.key_id = key_id(load_key(key_file, may_create=known is None))
        if known is not None and known != self.key_id:
            raise InputError(str(key_file), f"not the key that the lake {self.lake.uri} was begun with")
        self.ledger.create()

    def _finish_open_plan(self) -> None:
        number = self.ledger.status().open_number
        if number is not None:
            self.progress(ProgressLine(Step.PLAN, f"plan {number} is open: finishing it first", plan=number))
            self._finish(number)

    def _finish(self, number: int) -> None:
        if self.ledger.status().staged < number:
            self._stage(number)
        manifest = self.ledger.manifest(number)
        self._commit(number, manifest)
        self._close(number, manifest)

    def _plan(self) -> int | None:
        """The number of the plan that this run opened; None if nothing changed, 0 if another run was first."""
        started = time.monotonic()
        status = self.ledger.status()
        if status.open_number is not None:
            return 0  # another run opened it meanwhile: what it reads is not in the ledger yet
        self._recommit_lost(status.closed)
        # A plan that another run opens from here on takes this number, and this one is then refused.
        number = status.closed + 1
        planned = self._plan_fleet(number)
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
        inspected = planned.inspections_to_record(self.ledger.unread(), time.time_ns() // 1_000_000)
        if not planned.clusters and not inspected:
            self._show(Step.PLAN, f"nothing new in {planned.unchanged_count} clusters", started)
            return None
        opened = self.ledger.open_plan(planned.clusters, self.key_id, inspected, number)
        if not opened:
            self._show(Step.PLAN, f"another run opened plan {number}", started)
            return 0
        what = f"plan {number}: {len(planned.clusters)} clusters, {planned.replica_count} replicas"
        self._show(
            Step.PLAN,
            f"{what}, {_size_text(planned.planned_bytes)} to read, {planned.unchanged_count} unchanged",
            started,
        )
        failpoint("after-plan")
        return number

    def _recommit_lost(self, number: int) -> None:
        """Commit the newest closed plan once more where a power cut left a table's last commit empty.

        In an object store a commit is whole or absent.
        """
        if number == 0 or is_uri(self.lake.uri):
            return
        committed = commit_tables(self.ledger, number, self.ledger.manifest(number))
        if again := [table for table, _, is_new in committed if is_new]:
            what = f"plan {number} was lost from {', '.join(again)}, and is committed again"
            self.progress(ProgressLine(Step.COMMIT, what, plan=number, level="warning"))

    def _plan_fleet(self, number: int) -> FleetPlan:
        """Decide what plan `number` reads."""
        return plan_fleet(self.fleet, self.ledger, number)

    def _stage(self, number: int) -> None:
        started = time.monotonic()
        manifest = self.stager(number) if self.ledger.reads_any(number) else Manifest((), ())
        failpoint("before-manifest")
        if self.ledger.record_staged(number, manifest):
            rows = sum(file.row_count for file in manifest.files)
            self._show(Step.STAGE, f"plan {number}: {rows} rows in {len(manifest.files)} files", started)
        else:
            self._show(Step.STAGE, f"plan {number}: another run had staged it, its files are taken", started)
        failpoint("after-stage")

    def _commit(self, number: int, manifest: Manifest) -> None:
        started = time.monotonic()
        committed = commit_tables(self.ledger, number, manifest)
        tables = [f"{table} {rows}" if is_new else f"{table} was there" for table, rows, is_new in committed]
        self._show(Step.COMMIT, f"plan {number}: {', '.join(tables) or 'no rows'}", started)

    def _close(self, number: int, manifest: Manifest) -> None:
        started = time.monotonic()
        summary = plan_summary(manifest)
        is_first = self.ledger.close_plan(number, summary)
        self.result.add_plan(number, summary, [outcome.cluster_name for outcome in manifest.outcomes])
        for name, why in summary["failed"].items():
            self.progress(ProgressLine(Step.CLOSE, why, cluster=name, plan=number, level="warning"))
        self._show(Step.CLOSE, f"plan {number}" + ("" if is_first else " was closed by another run"), started)
        failpoint("after-close")

    def _findings(self) -> None:
        if self.gold is None:
            return
        started = time.monotonic()
        merged = self.gold.findings()
        self.result.findings = counts = self.gold.counts()
        self.result.states = self.gold.states()
        what = f"plan {', '.join(map(str, merged))} merged" if merged else "nothing new"
        self._show(Step.FINDINGS, f"{what}: {findings_line(counts)}", started)
        if merged and (older := self.gold.older_ids()):
            what = f"{plural(older, 'open finding')} with ids of an earlier release"
            renewed = "`kraft-audit run FLEET --from archive` closes them and judges their clusters again"
            self.progress(ProgressLine(Step.FINDINGS, f"{what}: {renewed}", level="warning"))

    def _risk(self) -> None:
        if self.gold is None:
            return
        started = time.monotonic()
        touched = self.gold.risk()
        if self.gold.left_out is not None:
            self.progress(
                ProgressLine(Step.RISK, f"partition_risk stays as it is: {self.gold.left_out}", level="warning")
            )
        self._show(Step.RISK, ", ".join(touched) or "nothing new", started)

    def _show(self, step: Step, what: str, started: float) -> None:
        seconds = time.monotonic() - started
        self.result.seconds[step] = round(self.result.seconds.get(step, 0.0) + seconds, 3)
        self.progress(ProgressLine(step, what, seconds=seconds))


def _size_text(byte_count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if byte_count >= size:
            return f"{byte_count / size:.1f} {unit}"
    return f"{byte_count} B"


def commit_tables(ledger: Ledger, number: int, manifest: Manifest) -> Iterator[tuple[str, int, bool]]:
    """Add the manifest's files to their tables, the ledger of files last.

    Yields each table, its rows in this plan, and whether this run added them. May be repeated, by this run or another:
    a table that already has the plan is left as it is.
    """
    by_table: dict[str, list[Any]] = {}
    for file in manifest.files:
        by_table.setdefault(file.table, []).append(file)
    order = sorted(by_table, key=lambda table: (table == FILES.name, list(LAKE_TABLES).index(table)))
    for table in order:
        files = by_table[table]
        is_new = ledger.lake.commit(table, files, delta_schema(table), ledger.application(table), number)
        failpoint(f"after-commit:{table}")
        yield table, sum(file.row_count for file in files), is_new


def plan_summary(manifest: Manifest) -> dict[str, Any]:
    """What the plan did: sums over its clusters, and the failures by cluster name."""
    read = [outcome for outcome in manifest.outcomes if outcome.failure is None]

    def total(name: str) -> dict[str, int]:
        counts = Counter[str]()
        for outcome in read:
            counts.update(outcome.summary[name])
        return dict(sorted(counts.items()))

    return {
        "clusters": len(read),
        "replicas": sum(outcome.summary["replicas"] for outcome in read),
        "captures": sum(outcome.summary["captures"] for outcome in read),
        **{name: total(name) for name in ("rows", "records", "damage")},
        "batch_bytes": sum(outcome.summary["batch_bytes"] for outcome in read),
        "failed": {
            outcome.cluster_name: outcome.failure for outcome in manifest.outcomes if outcome.failure is not None
        },
    }


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
