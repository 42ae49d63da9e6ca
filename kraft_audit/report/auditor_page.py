"""What an auditor asks of one control over the whole fleet: what was tested, on what, for how long, with which result.

A cluster whose log was not read, or that no rule of the control judged, is not judged: it never counts as met.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kraft_audit.report.cluster_page import ClusterView, RuleGroup
from kraft_audit.report.control_state import Control, ControlStatus
from kraft_audit.rules.cluster_history import TableRow
from kraft_audit.rules.frameworks import frameworks, requirements
from kraft_audit.rules.registry import control_of, rules
from kraft_audit.rules.rule_model import CONTROLS, ControlName, Severity
from kraft_audit.text.output import to_csv_cell
from kraft_audit.text.readable import time_text

CSV_FILE: Final = "controls.csv"
CONTROLS_CSV_COLUMNS: Final = (
    *("control", "cluster_id", "cluster", "result", "since_utc", "open_findings", "acknowledged_losses"),
    *(
        "waived_findings",
        "undecided_cases",
        "rules_checked",
        "period_from_utc",
        "period_to_utc",
        "voters_captured",
        "voters",
    ),
    "requirements",
)
"""The columns of controls.csv, in order: part of the public interface."""
WEIGHING: Final = frozenset(severity.value for severity in Severity if severity.rank >= Severity.MEDIUM.rank)


@dataclass(frozen=True, slots=True)
class ControlResult:
    """One control of one cluster. `exceptions` are open findings of severity medium and up, by rule;
    `waived` are accepted, `acknowledged` losses among them; times are the log's."""

    cluster_id: str
    page_id: str
    title: str
    control: Control
    exceptions: tuple[RuleGroup, ...]
    waived: tuple[TableRow, ...]
    undecided: int
    period: tuple[int, int] | None
    captured_voters: int | None
    voters: int | None

    @property
    def result(self) -> ControlStatus:
        return self.control.status


@dataclass(slots=True)
class Audit:
    """The results of all clusters by control, collected while their pages are written."""

    results: dict[ControlName, list[ControlResult]] = field(default_factory=lambda: {name: [] for name in CONTROLS})

    def add(self, view: ClusterView) -> None:
        """Add one cluster."""
        captured, voters = view.voters_captured
        for name, control in zip(CONTROLS, view.controls, strict=True):
            self.results[name].append(
                ControlResult(
                    view.cluster_id,
                    view.page_id,
                    view.title,
                    control,
                    tuple(
                        _without_findings(g)
                        for g in view.open_groups
                        if _is_of(g.rule, name) and g.severity in WEIGHING
                    ),
                    tuple(finding for finding in view.waived if _is_of(finding["rule"], name)),
                    sum(group.count for group in view.undecided if _is_of(group.rule, name)),
                    view.exposure.covered,
                    captured,
                    voters,
                )
            )


def _is_of(rule: str, name: ControlName) -> bool:
    return control_of(rule) == name


def _without_findings(group: RuleGroup) -> RuleGroup:
    """A fleet's page holds no finding of any cluster in memory."""
    return replace(group, findings=(), advice=(), advised_otherwise=0)


def control_page(name: ControlName, results: Sequence[ControlResult]) -> dict[str, Any]:
    """One control's page as values for its template."""
    periods = [result.period for result in results if result.period is not None]
    order = list(ControlStatus)
    return {
        "title": name.replace("_", " "),
        "claim": CONTROLS[name],
        "required": [(f, f.controls.get(name, ()), f.not_mapped.get(name)) for f in frameworks()],
        "tests": [rule for rule in rules().values() if rule.control == name],
        "results": sorted(results, key=lambda result: (order.index(result.result), result.title)),
        "statuses": [
            ControlStatus.NOT_MET,
            ControlStatus.WEAKENED,
            ControlStatus.MET,
            ControlStatus.UNDECIDED,
            ControlStatus.NOT_JUDGED,
        ],
        "counts": Counter(result.result for result in results),
        "period": (min(begin for begin, _ in periods), max(end for _, end in periods)) if periods else None,
        "acknowledged": [(result, finding) for result in results for finding in result.control.acknowledged],
        "waived": [(result, finding) for result in results for finding in result.waived],
    }


def write_controls(file: Path, audit: Audit) -> None:
    """controls.csv: a row for each control of each cluster."""
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\r\n")
        writer.writerow(CONTROLS_CSV_COLUMNS)
        writer.writerows([to_csv_cell(value) for value in row] for row in _csv_rows(audit))


def _csv_rows(audit: Audit) -> Iterator[tuple[Any, ...]]:
    for name, results in audit.results.items():
        required = "; ".join(map(str, requirements(name)))
        for result in results:
            begin, end = result.period or (None, None)
            yield (
                *(name, result.cluster_id, result.title, result.result, time_text(result.control.since_ms)),
                *(sum(group.count for group in result.exceptions), len(result.control.acknowledged)),
                *(len(result.waived), result.undecided, len(result.control.rules), time_text(begin), time_text(end)),
                *(result.captured_voters, result.voters, required),
            )
