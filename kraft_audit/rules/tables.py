"""The contract of the table `findings`, and findings as its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from kraft_audit.rules.model import Evidence, Finding
from kraft_audit.times import timestamp_us
from kraft_codec.contract import TIMESTAMP, Table, is_, list_of, may
from kraft_codec.tables import build_rows

EVIDENCE: Final = list_of(
    pa.struct(
        [
            pa.field("text", pa.string(), nullable=False),
            pa.field("offset", pa.int64()),
            pa.field("epoch", pa.int32()),
            pa.field("timestamp_ms", pa.int64()),
            pa.field("node_id", pa.int32()),
            pa.field("path", pa.string()),
            pa.field("file_name", pa.string()),
            pa.field("position", pa.int64()),
            pa.field("before", pa.string()),
            pa.field("after", pa.string()),
        ]
    )
)
_FACT: Final = tuple(field.name for field in EVIDENCE.value_type)
WAIVER: Final = pa.struct([pa.field(name, pa.string(), nullable=False) for name in ("who", "why", "until")])


FINDINGS: Final = Table(
    "findings",
    "gold",
    "one episode of one subject that one rule raised, or could not decide",
    ("finding_id",),
    "for ever",
    "What was unsafe. A re-run finds the same finding_id again: it updates last_seen_ms and to_offset, never doubles.",
    (
        is_("finding_id", pa.string(), "hash of (rule, cluster, subject, offset or time of the episode's beginning)"),
        is_("cluster_id", pa.string(), "cluster id, 22 characters as Kafka prints it"),
        is_("rule", pa.string(), "id of the rule, which never changes"),
        is_("name", pa.string(), "name of the rule"),
        is_("severity", pa.string(), "critical, high, medium or low"),
        is_("scope", pa.string(), "what the subject is: voters, log, partition, broker or cluster"),
        is_("status", pa.string(), "raised, undecided, or clear (rows without a subject)"),
        is_("subject", pa.string(), "the partition, voter, replica, broker or setting"),
        is_("summary", pa.string(), "what was found, one line"),
        may("reason", pa.string(), "why it is undecided"),
        may("from_offset", pa.int64(), "offset at which the episode began"),
        may("to_offset", pa.int64(), "offset at which it ended (exclusive); null while it lasts"),
        may("from_ms", pa.int64(), "append time of its beginning"),
        may("to_ms", pa.int64(), "append time of its end"),
        may("from_time", TIMESTAMP, "from_ms for people; null where that is no time"),
        may("to_time", TIMESTAMP, "to_ms for people; null where that is no time"),
        may("epoch", pa.int32(), "leader epoch it is about: of the partition for partitions, of the log otherwise"),
        is_("is_over", pa.bool_(), "it is history: its cause is gone"),
        is_("evidence", EVIDENCE, "the facts behind it"),
        is_("why", pa.string(), "why it matters"),
        is_("what_to_do", pa.string(), "what to do"),
        may("waiver", WAIVER, "who accepts it, why, and until which day"),
        may("seen_ms", pa.int64(), "when the captures behind it had been read"),
        is_("plan", pa.int64(), "the plan that wrote this row; 0 where there is no ledger"),
    ),
)


def finding_rows(findings: Iterable[Finding], *, seen_ms: int | None = None, plan: int = 0) -> list[dict[str, Any]]:
    """Findings as rows: plain values by column name."""
    return [_row(finding, seen_ms, plan) for finding in findings]


def findings_batch(findings: Sequence[Finding], *, seen_ms: int | None = None, plan: int = 0) -> pa.RecordBatch:
    """Findings as one batch of the table."""
    return build_rows(FINDINGS, finding_rows(findings, seen_ms=seen_ms, plan=plan))


def evidence_row(evidence: Evidence) -> dict[str, Any]:
    return {name: getattr(evidence, name) for name in _FACT}


def _row(finding: Finding, seen_ms: int | None, plan: int) -> dict[str, Any]:
    same = (
        *("finding_id", "cluster_id", "rule", "name", "subject", "summary", "reason", "from_offset", "to_offset"),
        *("from_ms", "to_ms", "epoch", "is_over", "why", "what_to_do"),
    )
    waiver = finding.waiver
    return {
        **{name: getattr(finding, name) for name in same},
        "severity": finding.severity.value,
        "scope": finding.scope.value,
        "status": finding.status.value,
        "from_time": timestamp_us(finding.from_ms),
        "to_time": timestamp_us(finding.to_ms),
        "evidence": [evidence_row(fact) for fact in finding.evidence],
        "waiver": None if waiver is None else {"who": waiver.who, "why": waiver.why, "until": waiver.until},
        "seen_ms": seen_ms,
        "plan": plan,
    }
