"""Findings for other readers: rows of the table `findings`, the JSON of `check`, CSV, distinct advice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kraft_audit.rules.judging import by_severity
from kraft_audit.rules.rule_model import Evidence, Finding, Severity, Status
from kraft_audit.tables.contract import build_rows
from kraft_audit.tables.gold import EVIDENCE, JUDGED_FINDINGS
from kraft_audit.text.readable import timestamp_us

_FACT: Final = tuple(field.name for field in EVIDENCE.value_type)
CHECK_KEYS: Final = (
    *("rule", "name", "severity", "status", "subject", "from_offset", "to_offset", "evidence", "why", "what_to_do"),
    *("summary", "reason", "from_ms", "to_ms", "epoch", "is_over", "state", "severity_now", "incident_id"),
    *("cluster_id", "finding_id", "scope", "waiver"),
)
CSV_KEYS: Final = (
    *(key for key in CHECK_KEYS if key not in ("evidence", "waiver")),
    *("evidence", "waived_by", "waived_until", "waived_why"),
)
"""Flat: evidence as one text, the waiver as three columns."""
WAIVER_COLUMNS: Final = {"by": "who", "until": "until", "why": "why"}
ADVICE_NAMES_SHOWN: Final = 4


def finding_rows(findings: Iterable[Finding], *, seen_ms: int | None = None, plan: int = 0) -> list[dict[str, Any]]:
    """Findings as rows: plain values by column name."""
    return [_row(finding, seen_ms, plan) for finding in findings]


def findings_batch(findings: Sequence[Finding], *, seen_ms: int | None = None, plan: int = 0) -> pa.RecordBatch:
    """Findings as one batch of the table."""
    return build_rows(JUDGED_FINDINGS, finding_rows(findings, seen_ms=seen_ms, plan=plan))


_SAME: Final = (
    *("finding_id", "cluster_id", "rule", "name", "subject", "summary", "reason", "from_offset", "to_offset"),
    *("from_ms", "to_ms", "epoch", "is_over", "why", "what_to_do", "incident_id"),
)
"""The columns that are fields of a finding as they are."""


def evidence_row(evidence: Evidence) -> dict[str, Any]:
    return {name: getattr(evidence, name) for name in _FACT}


def _row(finding: Finding, seen_ms: int | None, plan: int) -> dict[str, Any]:
    waiver, severity_now = finding.waiver, finding.severity_now
    return {
        **{name: getattr(finding, name) for name in _SAME},
        "severity": finding.severity.value,
        "scope": finding.scope.value,
        "status": finding.status.value,
        "state": finding.state.value,
        "severity_now": None if severity_now is None else severity_now.value,
        "from_time": timestamp_us(finding.from_ms),
        "to_time": timestamp_us(finding.to_ms),
        "evidence": [evidence_row(fact) for fact in finding.evidence],
        "waiver": None if waiver is None else {"who": waiver.who, "why": waiver.why, "until": waiver.until},
        "seen_ms": seen_ms,
        "plan": plan,
    }


def selected(findings: Iterable[Finding], *, show_all: bool = False) -> list[Finding]:
    """What `check` lists: raised and undecided, with `show_all` also clear; the worst first."""
    return [f for f in by_severity(findings) if show_all or f.status is not Status.CLEAR]


def check_document(findings: Iterable[Finding], *, show_all: bool = False) -> list[dict[str, Any]]:
    """One object a finding, with `CHECK_KEYS`."""
    rows = finding_rows(selected(findings, show_all=show_all))
    return [{key: row[key] for key in CHECK_KEYS} for row in rows]


def with_needed_software(rows: Iterable[dict[str, Any]], needed: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """The JSON of `check`: each finding with the first Kafka release that reads the log of its cluster.

    `needed` has it by finding id; null where no release is known.
    """
    return [{**row, "needs_release": needed[row["finding_id"]]} for row in rows]


def csv_rows(findings: Iterable[Finding], *, show_all: bool = False) -> list[dict[str, Any]]:
    """Rows of `CSV_KEYS`."""
    flat = []
    for row in check_document(findings, show_all=show_all):
        waiver = row.pop("waiver") or {}
        row["evidence"] = " | ".join(map(_fact_text, row["evidence"]))
        flat.append({**row, **{f"waived_{by}": waiver.get(key) for by, key in WAIVER_COLUMNS.items()}})
    return flat


def _fact_text(fact: Mapping[str, Any]) -> str:
    change = "" if fact["before"] is None and fact["after"] is None else f": {fact['before']} → {fact['after']}"
    return f"{fact['text']}{change}"


def worst(findings: Iterable[Finding]) -> Severity | None:
    """The highest severity raised and not waived; None where nothing is: what `--fail-on` is compared with."""
    raised = [f.severity for f in findings if f.status is Status.RAISED and f.waiver is None]
    return max(raised, key=lambda severity: severity.rank, default=None)


@dataclass(frozen=True, slots=True)
class Advice:
    """One advice and the subjects that need it, each once."""

    text: str
    subjects: tuple[str, ...]

    @property
    def names(self) -> str:
        """The subjects by name, as far as a line has room for them."""
        mark = ", " if any(" " in subject for subject in self.subjects) else " "
        cut = [*self.subjects[:ADVICE_NAMES_SHOWN], "…"] if len(self.subjects) > ADVICE_NAMES_SHOWN else self.subjects
        return mark.join(cut)


def distinct_advice(given: Iterable[tuple[str, str]]) -> list[Advice]:
    """Each distinct advice among pairs of (subject, what to do), what most subjects need first."""
    subjects: dict[str, dict[str, None]] = defaultdict(dict)
    for subject, text in given:
        subjects[text][subject] = None
    advice = [Advice(text, tuple(theirs)) for text, theirs in subjects.items()]
    return sorted(advice, key=lambda advice: -len(advice.subjects))
