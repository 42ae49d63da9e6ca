"""An auditor's page per control: population, period, results and exceptions of every cluster, and the same as rows."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from kraft_audit.report.auditor_page import CONTROLS_CSV_COLUMNS, Audit, control_page
from kraft_audit.report.cluster_page import cluster_view
from kraft_audit.report.report_source import ClusterInput
from kraft_audit.report.site import write_site
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.rule_model import CONTROLS
from tests.builders.report_sources import GivenSource, one_input


@pytest.fixture(scope="module")
def clusters(captured_logs: Path) -> list[ClusterInput]:
    """One in trouble, one that was stopped in order, and one that could not be read."""
    unread = ClusterInput(ClusterHistory("AAAAAAAAAAAAAAAAAAAAAA", {}, is_read=False), [], name="unread")
    return [one_input(captured_logs / "elr" / "29-stopped"), one_input(captured_logs / "six" / "08-stopped"), unread]


def test_results_are_those_of_the_clusters_pages(clusters: list[ClusterInput]) -> None:
    audit = Audit()
    views = [cluster_view(given) for given in clusters]
    for view in views:
        audit.add(view)
    for place, name in enumerate(CONTROLS):
        page = control_page(name, audit.results[name])
        assert sum(page["counts"].values()) == len(views), "the population is complete"
        expected = {(view.cluster_id, view.controls[place].status) for view in views}
        assert {(result.cluster_id, result.result) for result in page["results"]} == expected
        for result in page["results"]:
            named = {group.rule for group in result.exceptions} | {loss["rule"] for loss in result.control.acknowledged}
            assert named == {*result.control.not_met_by, *result.control.weakened_by}
            assert named or result.result not in ("not_met", "weakened")
    durability = control_page("durability", audit.results["durability"])
    assert durability["counts"]["not_met"] == 1
    assert durability["counts"]["not_judged"] == 1, "what was not captured is never green"
    (unmet,) = (result for result in durability["results"] if result.result == "not_met")
    assert {group.rule for group in unmet.exceptions} >= {"KP001", "KP002"}


def test_pages_and_rows_say_the_same(clusters: list[ClusterInput], tmp_path: Path) -> None:
    folder = tmp_path / "site"
    write_site(GivenSource(clusters), folder)
    with (folder / "controls.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == CONTROLS_CSV_COLUMNS
    assert len(rows) == len(CONTROLS) * len(clusters)
    for name in CONTROLS:
        page = (folder / "controls" / f"{name}.html").read_text()
        unmet = sum(row["control"] == name and row["result"] == "not_met" for row in rows)
        assert page.count('<span class="badge not_met">') == unmet
        assert CONTROLS[name] in page
        assert "Signature" in page
        for rule in re.findall(r'href="\.\./rules/(\w+)\.html"', page):
            assert (folder / "rules" / f"{rule}.html").is_file()
