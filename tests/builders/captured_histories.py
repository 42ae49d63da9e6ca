"""Histories of real captures, and what the rules find in them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import kraft_audit
from kraft_audit.capture.path_plans import plan_path
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.judging import check
from kraft_audit.rules.rule_model import Finding, Status
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders import readings


def findings_of(path: Path, capture: str | None) -> list[Finding]:
    """What the rules say of one cluster's captures."""
    return [finding for finding in check(history_of(path, capture)) if finding.status is not Status.CLEAR]


def history_of(path: Path, capture: str | None) -> ClusterHistory:
    """One capture of one cluster, or all of them."""
    (plan,) = plan_path(str(path), open_storage=open_storage, captured_at_ms=1, capture=capture)
    return readings.history_of(plan, open_storage=open_storage, redactor=Redactor(b"k" * 32))


def raised_below(path: Path, *rules: str) -> list[Finding]:
    """What these rules raise in all histories below a path."""
    with kraft_audit.open(str(path)) as clusters:
        found = [finding for cluster in clusters for finding in cluster.check(only=rules)]
    return [finding for finding in found if finding.status is Status.RAISED]


def shared_ids(findings: Iterable[Finding]) -> list[tuple[Finding, Finding]]:
    """Findings of one history that have an id in common and are not episodes of one subject."""
    first: dict[str, Finding] = {}
    of_key: dict[tuple[object, ...], Finding] = {}
    shared = []
    for finding in findings:
        same = first.setdefault(finding.finding_id, finding)
        if same.subject != finding.subject:
            shared.append((same, finding))
        # Of two cases with one key and one beginning the registry has given the second another id.
        episode = (finding.rule, finding.subject, finding.from_offset, finding.from_ms, finding.evidence)
        if of_key.setdefault(episode, finding) is not finding:
            shared.append((of_key[episode], finding))
    return shared
