"""The findings of every capture of real Kafka, held against lists that were reviewed with the scenarios' timelines.

`expected/<scenario>.yaml`: for each capture alone, and under `all of them` for the scenario's captures together, what
each rule raises: the subjects, or how many where there are more than six; "every rule is undecided" where there is no
log. `why` explains each rule by what was done to that cluster (scenario.json); a rule without such a sentence may not
be raised.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from kraft_audit.replay.planning import plan_path
from kraft_audit.rules.collect import read_history
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import Finding, Status
from kraft_audit.rules.registry import check, rules
from kraft_codec.redaction import Redactor
from kraft_codec.storage import open_storage

EXPECTED = sorted((Path(__file__).parent / "expected").glob("*.yaml"))
TOGETHER = "all of them"
HEALTHY = {
    "divergence": "00-healthy",
    "dynamic-quorum": "02-3voters",
    "uncommitted-voter-change": "00-healthy",
    "jbod": "00-healthy",
    "elr": "03-elr-initial",
    "mini-3.9.2": "01-two-voters",
    "mini-4.4.0": "01-two-voters",
}
TRUE_OF_SMALL_CLUSTERS = {
    "KB003": "plaintext listeners",
    "KV007": "one or two voters, or four",
    "KP010": "replication factor 1, or min ISR 1 of three replicas",
    "KP011": "unclean election, which the elr scenario allows for topic elr-u",
}
SHOWN_SUBJECTS = 6
QUICK = {"divergence", "uncommitted-voter-change", "mini-4.4.0"}
"""Under a second a capture; the others are run by make test."""


def findings_of(path: Path, capture: str | None) -> list[Finding]:
    """What the rules say of one cluster's captures."""
    return [finding for finding in check(history_of(path, capture)) if finding.status is not Status.CLEAR]


def history_of(path: Path, capture: str | None) -> ClusterHistory:
    """One capture of one cluster, or all of them."""
    (plan,) = plan_path(str(path), open_storage=open_storage, captured_at_ms=1, capture=capture)
    return read_history(plan, open_storage=open_storage, redactor=Redactor(b"k" * 32))


def summarised(findings: Sequence[Finding]) -> dict[str, dict[str, Any]]:
    """Rule → what lasts, what is over, what is undecided: subjects, or how many."""
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for finding in findings:
        kind = "undecided" if finding.status is Status.UNDECIDED else "over" if finding.is_over else "now"
        groups[finding.rule][kind].append(finding.subject)
    return {
        rule: {kind: _shown(subjects) for kind, subjects in sorted(kinds.items())}
        for rule, kinds in sorted(groups.items())
    }


def _shown(subjects: list[str]) -> Any:
    return sorted(subjects) if len(subjects) <= SHOWN_SUBJECTS else len(subjects)


def _cases() -> list[Any]:
    return [
        pytest.param(path.stem, capture, marks=() if path.stem in QUICK else pytest.mark.slow)
        for path in EXPECTED
        for capture in _told(path.stem)["captures"]
    ]


def _told(scenario: str) -> dict[str, Any]:
    path = Path(__file__).parent / "expected" / f"{scenario}.yaml"
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def _expected(scenario: str, capture: str) -> dict[str, Any]:
    told: dict[str, Any] | str = _told(scenario)["captures"][capture]
    if isinstance(told, dict):
        return told
    assert told == "every rule is undecided"
    return {rule: {"undecided": [""]} for rule in rules()}


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "capture"), _cases())
def test_findings_of_a_capture(corpus: Path, scenario: str, capture: str) -> None:
    findings = findings_of(corpus / scenario, None if capture == TOGETHER else capture)
    assert len({finding.finding_id for finding in findings}) == len(findings)
    found = summarised(findings)
    assert found == _expected(scenario, capture)


@pytest.mark.parametrize("scenario", [path.stem for path in EXPECTED])
def test_every_finding_is_explained_by_the_story(scenario: str) -> None:
    told = _told(scenario)
    raised = {rule for capture in told["captures"].values() if isinstance(capture, dict) for rule in capture}
    assert raised == told["why"].keys()
    assert all(sentence.strip().endswith(".") for sentence in told["why"].values())


@pytest.mark.parametrize("scenario", [path.stem for path in EXPECTED])
def test_every_capture_is_listed(corpus: Path, scenario: str) -> None:
    (plan,) = plan_path(str(corpus / scenario), open_storage=open_storage, captured_at_ms=1)
    captured = {replica.capture for replica in plan.replicas}
    assert captured == set(_told(scenario)["captures"]) - {TOGETHER}


@pytest.mark.parametrize(("scenario", "capture"), sorted(HEALTHY.items()))
def test_a_healthy_capture_has_nothing_critical_and_above_low_only_what_is_true_of_it(
    scenario: str, capture: str
) -> None:
    told = _told(scenario)["captures"][capture]
    lasting = {rule for rule, kinds in told.items() if "now" in kinds and rules()[rule].severity != "low"}
    assert lasting <= TRUE_OF_SMALL_CLUSTERS.keys()
    assert all(rules()[rule].severity != "critical" for rule in lasting)
