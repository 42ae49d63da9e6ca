"""OSCAL 1.2, as compliance-trestle reads it: what is undecided is never satisfied, and the same lake gives the same."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trestle.oscal import OSCAL_VERSION as LIBRARY_VERSION
from trestle.oscal.assessment_plan import AssessmentPlan
from trestle.oscal.assessment_results import AssessmentResults
from trestle.oscal.catalog import Catalog

from kraft_audit.report.auditor_page import Audit, ControlResult
from kraft_audit.report.cluster_page import cluster_view
from kraft_audit.report.control_state import ControlStatus
from kraft_audit.report.oscal import CATALOG, OSCAL_VERSION, PLAN, RESULTS, oscal_documents
from kraft_audit.report.report_source import AsOf, ClusterInput
from kraft_audit.report.site import write_site
from kraft_audit.rules.frameworks import frameworks
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import CONTROLS
from tests.builders.report_sources import NOW_MS, GivenSource, harmful

MODELS = {CATALOG: Catalog, PLAN: AssessmentPlan, RESULTS: AssessmentResults}
KINDS = {CATALOG: "catalog", PLAN: "assessment-plan", RESULTS: "assessment-results"}
AS_OF = AsOf("lake", "the lake", NOW_MS, "0", "0", plan=7, closed_ms=NOW_MS - 5)


def _audit(given: ClusterInput) -> Audit:
    audit = Audit()
    audit.add(cluster_view(given))
    return audit


def _with_status(audit: Audit, status: ControlStatus) -> Audit:
    def changed(result: ControlResult) -> ControlResult:
        return replace(result, control=replace(result.control, status=status))

    return Audit({name: [changed(each) for each in results] for name, results in audit.results.items()})


def _ids(value: Any) -> Iterator[tuple[str, str]]:
    """Every id that is given, and every id that is named, with its key."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "uuid" or key.endswith("-uuid"):
                yield key, inner
            else:
                yield from _ids(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _ids(inner)


def _read(folder: Path, name: str) -> Any:
    document = MODELS[name].oscal_read(folder / name)
    assert document is not None
    return document


def test_the_library_reads_what_a_report_writes(last_replica: ClusterInput, tmp_path: Path) -> None:
    unread = replace(harmful(last_replica), name="so \x1b[31m wild\u202e\n")
    write_site(GivenSource([last_replica, unread]), tmp_path / "site")
    folder = tmp_path / "site" / "oscal"
    assert OSCAL_VERSION == LIBRARY_VERSION
    catalog, plan, results = (_read(folder, name) for name in (CATALOG, PLAN, RESULTS))
    assert [control.id for control in catalog.controls] == list(CONTROLS)
    for control in catalog.controls:
        named = {(prop.class_, prop.value) for prop in control.props}
        assert named == {
            (f.name.replace(" ", "-"), id_) for f in frameworks() for id_ in f.controls.get(control.id, ())
        }
    assert len(plan.local_definitions.activities) == len(rules())
    assert (folder / results.import_ap.href).is_file()
    objectives = {part.id for control in catalog.controls for part in control.parts}
    for result in results.results:
        assert {finding.target.target_id for finding in result.findings} < objectives
        assert all(finding.target.status is not None for finding in result.findings), "trestle lets it be missing"
        assert len(result.findings) == len(CONTROLS)
    given: list[str] = []
    for name in MODELS:
        found = list(_ids(json.loads((folder / name).read_text())))
        given += [value for key, value in found if key == "uuid"]
        assert {uuid.UUID(value).version for _, value in found} == {5}
    assert len(given) == len(set(given))
    named = {value for key, value in _ids(json.loads((folder / RESULTS).read_text())) if key != "uuid"}
    assert named <= set(given)


@pytest.mark.parametrize(
    ("status", "target"),
    [
        ("met", ("satisfied", "pass")),
        ("weakened", ("satisfied", "pass")),
        ("not_met", ("not-satisfied", "fail")),
        ("undecided", ("not-satisfied", "other")),
        ("not_judged", ("not-satisfied", "other")),
    ],
)
def test_only_what_is_met_or_weakened_is_satisfied(
    last_replica: ClusterInput, status: str, target: tuple[str, str]
) -> None:
    documents = oscal_documents(_with_status(_audit(last_replica), ControlStatus(status)), AS_OF)
    (result,) = documents[RESULTS]["assessment-results"]["results"]
    assert len(result["findings"]) == len(CONTROLS)
    for finding in result["findings"]:
        found = finding["target"]["status"]
        assert (found["state"], found["reason"]) == target
        assert ("remarks" in found) == (status not in ("met", "not_met"))


def test_results_are_those_of_the_control_pages(last_replica: ClusterInput) -> None:
    view = cluster_view(last_replica)
    assert len({control.status for control in view.controls}) > 1
    (result,) = oscal_documents(_audit(last_replica), AS_OF)[RESULTS]["assessment-results"]["results"]
    for control, finding in zip(view.controls, result["findings"], strict=True):
        assert (finding["target"]["status"]["state"] == "satisfied") == (control.status in ("met", "weakened"))
        observed = {each["observation-uuid"] for each in finding["related-observations"]}
        seen = [each for each in result["observations"] if each["uuid"] in observed]
        named = {prop["value"] for each in seen for prop in each.get("props", ())}
        assert named == {*control.not_met_by, *control.weakened_by, *control.undecided_by, *control.waived_by}


def test_times_are_those_of_the_plan_and_not_of_the_clock(last_replica: ClusterInput) -> None:
    audit = _audit(last_replica)
    later = replace(AS_OF, made_at_ms=NOW_MS + 86_400_000)
    assert oscal_documents(audit, AS_OF) == oscal_documents(audit, later)
    next_plan = oscal_documents(audit, replace(AS_OF, closed_ms=NOW_MS))
    for name, kind in KINDS.items():
        assert next_plan[name][kind]["uuid"] != oscal_documents(audit, AS_OF)[name][kind]["uuid"]
    assert next_plan[RESULTS]["assessment-results"]["metadata"]["last-modified"] == "2026-11-21T22:26:40.000Z"


def test_a_fleet_without_clusters_has_a_result(tmp_path: Path) -> None:
    write_site(GivenSource([]), tmp_path / "site")
    (result,) = _read(tmp_path / "site" / "oscal", RESULTS).results
    assert (result.title, result.findings) == ("No cluster was found", None)
