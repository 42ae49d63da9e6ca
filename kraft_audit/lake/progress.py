"""What a run shows: lines while it works, a summary at its end; and the points at which a test ends it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

from kraft_audit.lake.gold.cluster_summaries import ClusterSummary, action_lines, need_text
from kraft_audit.tables.gold import SEVERITIES
from kraft_audit.text.exit_codes import EXIT_FINDINGS, EXIT_FINE, EXIT_UNREADABLE
from kraft_audit.text.output import Output
from kraft_audit.text.readable import plural

LogFormat = Literal["text", "json"]
Progress = Callable[[str], None]
# The name by which the run's starter knows it; Airflow sets the second variable for each of its tasks.
RUN_VARIABLES: Final = ("KRAFT_AUDIT_RUN_ID", "AIRFLOW_CTX_DAG_RUN_ID")


class ProgressLine(str):
    """A line of progress, and the step, cluster and plan that it is about."""

    __slots__ = ("cluster", "level", "plan", "seconds", "step")

    step: str
    cluster: str | None
    plan: int | None
    seconds: float | None
    level: str

    def __new__(
        cls,
        step: str,
        what: str,
        *,
        cluster: str | None = None,
        plan: int | None = None,
        seconds: float | None = None,
        level: str = "info",
    ) -> ProgressLine:
        shown = what if cluster is None else f"{cluster}: {what}"
        line = super().__new__(cls, f"{step:<9}{shown}" + ("" if seconds is None else f"  ({seconds:.1f} s)"))
        line.step, line.cluster, line.plan, line.seconds, line.level = step, cluster, plan, seconds, level
        return line


def progress_to(stream: TextIO, log_format: LogFormat = "text", run: str | None = None) -> Progress:
    """A function that writes each line to the stream at once, with control characters made visible; on a terminal in
    lines of its width."""
    name, out = run or run_id(), Output(stream=stream)

    def text(line: str) -> None:
        out.text(line)
        stream.flush()

    def as_json(line: str) -> None:
        fields_of_line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": getattr(line, "level", "error" if line.startswith("kraft-audit:") else "info"),
            "run": name,
            "step": getattr(line, "step", None),
            "cluster": getattr(line, "cluster", None),
            "plan": getattr(line, "plan", None),
            "seconds": getattr(line, "seconds", None),
            "message": str(line),
        }
        out.line(json.dumps(fields_of_line))
        stream.flush()

    return as_json if log_format == "json" else text


def run_id() -> str:
    """The run's name: its starter's, else a random one."""
    declared = (os.environ.get(variable) for variable in RUN_VARIABLES)
    return next((name for name in declared if name), uuid.uuid4().hex)


def failpoint(name: str) -> None:
    """Where a test kills a run: `KRAFT_AUDIT_FAILPOINT=after-stage` ends the process there as kill -9 would.

    Points: after-plan, in-stage (ends the worker), before-manifest, after-stage, after-abandon, after-commit:TABLE,
    after-close, after-findings:PLAN, after-risk. Never set in production.
    """
    if os.environ.get("KRAFT_AUDIT_FAILPOINT") == name:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class FindingCounts:
    """Open findings of the lake by severity, and those that do not count, by the state of each."""

    open: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(SEVERITIES, 0))
    waived: int = 0
    expired: int = 0
    undecided: int = 0


@dataclass(slots=True)
class RunResult:
    """What a run did: sums over the plans that it finished."""

    lake: str
    plans: list[int] = field(default_factory=list)
    clusters: int = 0
    unchanged: int = 0
    replicas: int = 0
    captures: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    damage: Counter[str] = field(default_factory=Counter)
    findings: FindingCounts | None = None
    states: list[ClusterSummary] | None = None
    unreachable: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    """Critical promises that new rows break, as TABLE.CLAUSE: then findings are not merged."""
    pages: str = ""
    """The first page, if the run made pages."""
    unsent: int = 0
    """Messages that their target did not take."""

    @property
    def failed(self) -> dict[str, str]:
        """Why each cluster failed: a path could not be reached, or the last plan that tried did not read it."""
        names = {**self.unreachable, **self.unread}
        return {
            name: "; ".join(dict.fromkeys(filter(None, (self.unreachable.get(name), self.unread.get(name)))))
            for name in names
        }

    @property
    def exit_code(self) -> int:
        return EXIT_FINDINGS if self.broken else EXIT_UNREADABLE if self.failed or self.unsent else EXIT_FINE

    def intolerable(self, fleet_size: int, percent: int) -> str | None:
        """Why the failures are more than those of single clusters; None where a schedule may stay green.

        They are where every cluster failed, or several that are more than `percent` of the fleet failed for one reason,
        as where a role has expired. What one cluster lacks is that cluster's own, however small the fleet.
        """
        failed = self.failed
        if failed and len(failed) >= fleet_size:
            return f"all {fleet_size} clusters failed"
        reasons = Counter(reason_of(why) for why in failed.values())
        for reason, count in reasons.most_common(1):
            if count > 1 and 100 * count > percent * fleet_size:
                return f"{count} of {fleet_size} clusters failed for one reason: {reason}"
        return None

    def add_plan(self, number: int, summary: Mapping[str, Any], clusters: Iterable[str]) -> None:
        """Add what one plan did; `clusters` are the names of all that it tried to read."""
        self.plans.append(number)
        self.clusters += summary["clusters"]
        self.replicas += summary["replicas"]
        self.captures += summary["captures"]
        self.rows.update(summary["rows"])
        self.records.update(summary["records"])
        self.damage.update(summary["damage"])
        for name in clusters:
            self.unread.pop(name, None)
        self.unread.update(summary["failed"])

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON."""
        values = {
            column.name: getattr(self, column.name)
            for column in fields(self)
            if column.name not in ("unreachable", "unread")
        }
        values["failed"] = self.failed
        values["states"] = None if self.states is None else [asdict(state) for state in self.states]
        values["findings"] = None if self.findings is None else asdict(self.findings)
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in values.items()}


def reason_of(failure: str) -> str:
    """A failure without the path, names and numbers of its cluster: what may be the same for many."""
    return re.sub(r"[0-9]+", "N", failure.partition(";")[0].rpartition(": ")[2])


def findings_line(counts: FindingCounts) -> str:
    """How many findings are open, and how many do not count, on one line."""
    kinds = (("waived", counts.waived), ("with an expired waiver", counts.expired), ("undecided", counts.undecided))
    by_severity = ", ".join(f"{count} {severity}" for severity, count in counts.open.items() if count)
    total = f"{sum(counts.open.values())} open{f' ({by_severity})' if by_severity else ''}"
    parts = [total, *(f"{count} {what}" for what, count in kinds if count)]
    return ", ".join(parts)


def _read_line(result: RunResult) -> str:
    """What was read, and how long it took."""
    if not result.clusters:
        unchanged = f" new in {plural(result.unchanged, 'cluster')}" if result.unchanged else ""
        return f"nothing{unchanged}{_took(result)}"
    parts = [
        f"{plural(result.clusters, 'cluster')}{f' and {result.unchanged} unchanged' if result.unchanged else ''}",
        f"{plural(result.replicas, 'replica')} in {plural(result.captures, 'capture')}",
        f"{result.rows['batches']:,} batches, {plural(result.rows['records'], 'record')}",
        *([", ".join(f"{count} {name}" for name, count in result.damage.most_common())] if result.damage else []),
    ]
    return f"{'; '.join(parts)}{_took(result)}"


def _took(result: RunResult) -> str:
    """How long it took, and the plans' numbers, by which tables name them."""
    plans = f"plan {', '.join(map(str, result.plans))}" if result.plans else "no plan"
    return f" ({plans}, {sum(result.seconds.values()):.0f} s)"


def summary_text(result: RunResult, command_text: Callable[[str], str] = str) -> str:
    """The summary for people: which clusters need action and what to do, what was read, how to make the pages.

    `command_text` shortens a command for where it is shown.
    """
    failed = result.failed
    lines: list[str] = []
    if result.states is not None:
        unread = f", {len(failed)} could not be read" if failed else ""
        lines += [f"{need_text(result.states)}{unread}", *action_lines(result.states, command_text)]
    lines += [f"  {name}  could not be read, or only in part: {why}" for name, why in failed.items()]
    if result.findings is not None:
        lines.append(f"found  {findings_line(result.findings)}")
    lines.append(f"read   {_read_line(result)}")
    if result.broken:
        lines.append(f"broken {', '.join(result.broken)}: findings are not merged until the tables are repaired")
    if result.states is not None:
        made = f"kraft-audit report {shlex.quote(result.lake)} --out site"
        lines.append(f"pages  {result.pages or command_text(made)}")
    return "\n".join(lines) + "\n"
