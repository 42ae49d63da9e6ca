"""Findings as SARIF 2.1.0 (OASIS), in full, or as code scanning of GitHub takes it.

Every result has a physical location, as readers of SARIF place results in files: the segment or file that the evidence
names, relative to what was read, with line 1 as a binary file has no lines; else the replica's folder.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from kraft_audit.findings.finding_formats import evidence_row
from kraft_audit.rules.frameworks import requirements
from kraft_audit.rules.judging import by_severity
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import Evidence, Finding, FindingState, Severity, Status
from kraft_codec.file_names import METADATA_LOG_DIR

LEVEL: Final = {
    Severity.CRITICAL: "error",
    Severity.HIGH: "error",
    Severity.MEDIUM: "warning",
    Severity.LOW: "note",
}
SECURITY_SEVERITY: Final = {Severity.CRITICAL: "9.5", Severity.HIGH: "8.0", Severity.MEDIUM: "5.0", Severity.LOW: "2.0"}
KIND: Final = {Status.RAISED: "fail", Status.UNDECIDED: "open", Status.CLEAR: "pass"}
"""A result's kind; its level is none where it is not fail (SARIF 3.27.10)."""
GITHUB_RESULTS_MAX: Final = 5_000
"""GitHub takes 25,000 results of a run and shows the worst 5,000."""


class Profile(enum.StrEnum):
    """`full` has every finding, undecided and clear ones too; `github` those that are open."""

    FULL = "full"
    GITHUB = "github"


def sarif(findings: Sequence[Finding], *, version: str, profile: Profile = Profile.FULL) -> dict[str, Any]:
    """A SARIF 2.1.0 log with one run, the worst findings first; waived ones as suppressed results."""
    ordered = list(by_severity(findings))
    omitted = 0
    if profile is Profile.GITHUB:
        failed = [finding for finding in ordered if finding.state is FindingState.OPEN]
        ordered, omitted = failed[:GITHUB_RESULTS_MAX], max(0, len(failed) - GITHUB_RESULTS_MAX)
    used = {rule_id: number for number, rule_id in enumerate(sorted({finding.rule for finding in ordered}))}
    driver = {
        "name": "kraft-audit",
        "version": version,
        "rules": [_rule(rule_id) for rule_id in used],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, used[finding.rule]) for finding in ordered],
        "properties": {"profile": profile.value, "omitted_results": omitted},
    }
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _rule(rule_id: str) -> dict[str, Any]:
    rule = rules()[rule_id]
    tags = [rule.control, *(f"{each.framework} {id_}" for each in requirements(rule.control) for id_ in each.ids)]
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.text.raised_when},
        "fullDescription": {"text": rule.text.why},
        "help": {"text": rule.text.what_to_do},
        "helpUri": rule.text.address,
        "defaultConfiguration": {"level": LEVEL[rule.severity]},
        "properties": {
            "security-severity": SECURITY_SEVERITY[rule.severity],
            "severity": rule.severity.value,
            "tags": tags,
        },
    }


def _result(finding: Finding, rule_index: int) -> dict[str, Any]:
    kind = KIND[finding.status]
    said = finding.summary or finding.reason or "the rule found nothing"
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "kind": kind,
        "level": _level(finding),
        "message": {"text": f"{finding.subject}: {said}" if finding.subject else said},
        "partialFingerprints": {"findingId": finding.finding_id},
        "locations": [_location(finding, fact) for fact in finding.evidence if fact.path] or [_location(finding, None)],
        "properties": {
            "cluster_id": finding.cluster_id,
            "from_offset": finding.from_offset,
            "to_offset": finding.to_offset,
            "is_over": finding.is_over,
            "state": finding.state.value,
            "severity": finding.severity.value,
            "incident_id": finding.incident_id,
            "what_to_do": finding.what_to_do,
            "evidence": [evidence_row(fact) for fact in finding.evidence],
        },
    }
    if finding.waiver is not None:
        text = f"{finding.waiver.who} until {finding.waiver.until}: {finding.waiver.why}"
        result["suppressions"] = [{"kind": "external", "justification": text}]
    return result


def _level(finding: Finding) -> str:
    """As severe as the finding while it is open; a note where something explains or ended it."""
    if finding.status is not Status.RAISED:
        return "none"
    return "note" if finding.severity_now is None else LEVEL[finding.severity_now]


def _location(finding: Finding, fact: Evidence | None) -> dict[str, Any]:
    """Where it stands: a relative URI that is the same in every run over the same layout of folders."""
    parts = [METADATA_LOG_DIR] if fact is None else [part for part in (fact.path, fact.file_name) if part]
    region: dict[str, int] = {"startLine": 1}
    if fact is not None and fact.position is not None:
        region["byteOffset"] = fact.position
    uri = quote("/".join(part.strip("/") for part in parts))
    return {
        "physicalLocation": {"artifactLocation": {"uri": uri}, "region": region},
        "logicalLocations": [{"fullyQualifiedName": f"{finding.cluster_id}/{finding.subject}"}],
    }
