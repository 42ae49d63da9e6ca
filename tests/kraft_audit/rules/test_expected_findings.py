"""The findings of every capture of real Kafka, compared with lists that were reviewed with the scenarios' timelines.

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

from kraft_audit.capture.path_plans import plan_path
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import Finding, Status
from kraft_codec.storage.opener import open_storage
from tests.builders.captured_histories import findings_of, shared_ids

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
        for capture in _reviewed(path.stem)["captures"]
    ]


def _reviewed(scenario: str) -> dict[str, Any]:
    path = Path(__file__).parent / "expected" / f"{scenario}.yaml"
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "capture"), _cases())
def test_findings_of_a_capture(captured_logs: Path, scenario: str, capture: str) -> None:
    findings = findings_of(captured_logs / scenario, None if capture == TOGETHER else capture)
    assert not shared_ids(findings)
    found = summarised(findings)
    expected = _reviewed(scenario)["captures"][capture]
    if expected == "every rule is undecided":
        assert found.keys() == rules().keys()
        assert {kind for kinds in found.values() for kind in kinds} == {"undecided"}
    else:
        assert found == expected


@pytest.mark.parametrize("scenario", [path.stem for path in EXPECTED])
def test_every_finding_is_explained_by_the_story(scenario: str) -> None:
    reported = _reviewed(scenario)
    raised = {rule for capture in reported["captures"].values() if isinstance(capture, dict) for rule in capture}
    assert raised == reported["why"].keys()
    assert all(sentence.strip().endswith(".") for sentence in reported["why"].values())


@pytest.mark.parametrize("scenario", [path.stem for path in EXPECTED])
def test_every_capture_is_listed(captured_logs: Path, scenario: str) -> None:
    (plan,) = plan_path(str(captured_logs / scenario), open_storage=open_storage, captured_at_ms=1)
    captured = {replica.capture for replica in plan.replicas}
    assert captured == set(_reviewed(scenario)["captures"]) - {TOGETHER}


@pytest.mark.parametrize(("scenario", "capture"), sorted(HEALTHY.items()))
def test_a_healthy_capture_has_nothing_critical_and_above_low_only_what_is_true_of_it(
    scenario: str, capture: str
) -> None:
    reported = _reviewed(scenario)["captures"][capture]
    lasting = {rule for rule, kinds in reported.items() if "now" in kinds and rules()[rule].severity != "low"}
    assert lasting <= TRUE_OF_SMALL_CLUSTERS.keys()
    assert all(rules()[rule].severity != "critical" for rule in lasting)
