"""SARIF 2.1.0: each result in a file, by its kind; what GitHub takes is bounded, and what was left out is said."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kraft_audit.findings.sarif import GITHUB_RESULTS_MAX, Profile, sarif
from kraft_audit.rules.judging import check
from kraft_audit.rules.rule_model import Finding, Status
from kraft_audit.rules.rule_settings import apply_waivers, parse_waivers
from tests.builders.histories import T0, HistoryBuilder

WAIVER = "waivers: [{rule: KQ008, who: ops, why: a laptop, until: 2099-01-01}]"


def _run(findings: list[Finding], profile: Profile = Profile.FULL) -> dict[str, Any]:
    (run,) = sarif(findings, version="1", profile=profile)["runs"]
    return dict(run)


def _findings(build: HistoryBuilder) -> list[Finding]:
    build.three_nodes().damage(2, "BAD_CRC")
    return list(check(build.history()))


def test_each_finding_is_one_result_of_its_kind(build: HistoryBuilder) -> None:
    findings = _findings(build)
    results = _run(findings)["results"]
    kinds = {Status.RAISED: "fail", Status.UNDECIDED: "open", Status.CLEAR: "pass"}
    assert Counter(result["kind"] for result in results) == Counter(kinds[finding.status] for finding in findings)
    assert {"fail", "pass"} <= {result["kind"] for result in results}
    for result in results:
        assert (result["level"] == "none") is (result["kind"] != "fail")
        for location in result["locations"]:
            assert location["physicalLocation"]["region"]["startLine"] == 1
            assert not location["physicalLocation"]["artifactLocation"]["uri"].startswith("/")
    fingerprints = Counter(result["partialFingerprints"]["findingId"] for result in results)
    assert fingerprints == Counter(finding.finding_id for finding in findings)


def test_a_result_points_at_its_file_and_its_rule(build: HistoryBuilder) -> None:
    findings, _ = apply_waivers(_findings(build), parse_waivers(WAIVER, "w"), T0)
    run = _run([finding for finding in findings if finding.rule == "KQ008"])
    (result,) = run["results"]
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert rule["id"] == result["ruleId"] == "KQ008"
    assert {"log_integrity", "NIST 800-53 SI-7"} <= set(rule["properties"]["tags"])
    location = result["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "node-2/__cluster_metadata-0/00000000000000000000.log"
    assert location["region"] == {"startLine": 1, "byteOffset": 777}
    assert result["suppressions"][0]["justification"].startswith("ops until 2099-01-01")


def test_github_gets_the_worst_failures_and_how_many_were_left_out(build: HistoryBuilder) -> None:
    findings, _ = apply_waivers(_findings(build), parse_waivers(WAIVER, "w"), T0)
    raised = [finding for finding in findings if finding.status is Status.RAISED]
    open_ = [finding for finding in raised if finding.waiver is None]
    assert 0 < len(open_) < len(raised)
    run = _run(findings, Profile.GITHUB)
    assert {result["kind"] for result in run["results"]} == {"fail"}
    assert len(run["results"]) == len(open_)
    run = _run(open_[:1] * (GITHUB_RESULTS_MAX + 7), Profile.GITHUB)
    assert len(run["results"]) == GITHUB_RESULTS_MAX
    assert run["properties"]["omitted_results"] == 7
