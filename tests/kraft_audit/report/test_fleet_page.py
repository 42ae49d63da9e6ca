"""The fleet's page answers first: who needs action, for what, and what changed since the last report."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.findings.situation import needs_in_words, said_and_command
from kraft_audit.report.cluster_page import cluster_view
from kraft_audit.report.cluster_standing import Footing
from kraft_audit.report.control_state import Control, ControlStatus, control_state
from kraft_audit.report.control_strips import control_cells, control_spans
from kraft_audit.report.fleet_page import Fleet, fleet_view
from kraft_audit.report.report_source import ClusterInput
from kraft_audit.report.since_last import INCIDENTS_FILE
from kraft_audit.report.site import page_of, write_site
from kraft_audit.rules.rule_model import CONTROLS, LOSS
from kraft_audit.text.readable import when
from tests.builders.report_sources import NOW_MS, GivenSource, one_input

HOUR = 3_600_000


def _fleet(*given: ClusterInput) -> Fleet:
    fleet = Fleet()
    for each in given:
        fleet.add(each, cluster_view(each))
    return fleet


@pytest.mark.slow
def test_a_fleet_is_one_sentence(captured_logs: Path) -> None:
    fleet = _fleet(
        one_input(captured_logs / "six" / "06-three-of-six-down"),
        one_input(captured_logs / "elr" / "29-stopped"),
        one_input(captured_logs / "six" / "08-stopped"),
        one_input(captured_logs / "mini-3.9.2" / "04-stopped"),
    )
    need, needs = needs_in_words([line.need for line in fleet.lines])
    assert need == "2 of 4 clusters need action:"
    assert needs == "1 may have lost acknowledged records, 1 has no leader."
    rows = [row["line"] for row in fleet_view(fleet)["rows"]]
    assert [line.standing for line in rows[:2]] == [Footing.ACTION] * 2
    assert all(line.action is None for line in rows[2:])


@pytest.mark.slow
def test_a_row_says_who_is_at_risk_since_when_who_owns_it_and_what_to_do(captured_logs: Path, tmp_path: Path) -> None:
    """The most urgent first, and each cluster's page begins with the same sentence."""
    labels = {"owner": "order service", "contact": "#orders"}
    lost = replace(one_input(captured_logs / "elr" / "29-stopped"), name="orders", labels=labels)
    given = [one_input(captured_logs / name) for name in ("mini-3.9.2/04-stopped", "six/06-three-of-six-down")]
    fleet = _fleet(*given, lost)
    rows = [row["line"] for row in fleet_view(fleet)["rows"]]
    assert [line.title for line in rows] == ["orders", given[1].title, given[0].title]
    write_site(GivenSource([*given, lost]), tmp_path / "site")
    page = (tmp_path / "site" / "index.html").read_text()
    for line, row in zip(rows, re.split(r"<tr class=.is-", page)[1:], strict=True):
        own = unescape((tmp_path / "site" / page_of(line.page_id)).read_text())
        assert f"<h1>{line.state}</h1>" in own or f'<h1 class="alarm">{line.state}</h1>' in own
        assert line.state in unescape(row)
        for action in filter(None, [line.action]):
            assert (line.standing, f"<code>{action.command}</code>" in unescape(row)) == (Footing.ACTION, True)
            assert action.what.casefold() == line.state.casefold()
            assert line.since_ms == action.since_ms
            assert line.since_ms is None or when(line.since_ms) in row
    orders = unescape(re.split(r"<tr class=.is-", page)[1])
    assert all(said in orders for said in ("order service", "#orders", "9 partitions", "not met"))
    assert "ends" in orders
    assert "read" in orders


def test_sound_rows_have_no_red(captured_logs: Path) -> None:
    """A row that needs action has a control that is not met, and no other row has one."""
    names = ("elr/06-kill-13-last-replica", "elr/29-stopped", "six/06-three-of-six-down", "six/08-stopped")
    fleet = _fleet(*(one_input(captured_logs / name) for name in names))
    for row in fleet_view(fleet)["rows"]:
        line, statuses = row["line"], {cell.status for cell in row["cells"]}
        assert (line.action is not None) == (ControlStatus.NOT_MET in statuses) == (line.standing is Footing.ACTION)
        assert line.standing is not Footing.SOUND or statuses == {ControlStatus.MET}


def test_a_loss_that_a_person_acknowledged_weakens_in_its_own_time(captured_logs: Path) -> None:
    given = one_input(captured_logs / "elr" / "29-stopped")
    losses = [row for row in given.findings if row["rule"] == LOSS]
    others = [row for row in given.findings if row["rule"] != LOSS and row["severity"] not in ("critical", "high")]
    accepted = [{**row, "waiver": WAIVER, "state": "acknowledged", "severity_now": None} for row in losses]
    assert losses

    def durability(findings: list[Any], covered: tuple[int, int] | None) -> Control:
        return control_state("durability", findings, {row["rule"] for row in findings}, covered)

    assert durability([*others, *losses], None).status is ControlStatus.NOT_MET
    time_ms = losses[0]["from_ms"]
    (at_that_time, later) = (durability(accepted, (begin, begin + HOUR)) for begin in (time_ms - HOUR, time_ms + HOUR))
    assert at_that_time.status is ControlStatus.WEAKENED
    assert {row["subject"] for row in at_that_time.acknowledged} <= {row["subject"] for row in losses}
    assert (later.status, later.acknowledged) == (ControlStatus.MET, ())
    calm = replace(given, findings=[*others, *accepted], situation=replace(given.situation, need=None))
    fleet = _fleet(calm)
    (line,) = fleet.lines
    assert [finding["subject"] for finding in cluster_view(calm).waived] == [row["subject"] for row in losses]
    assert len(fleet.waivers) == len(losses)
    assert line.standing is Footing.WEAKENED
    assert line.state.startswith(f"{len(losses)} partitions ")
    assert WAIVER["who"] in line.state


def test_a_cluster_that_was_stopped_in_order_needs_no_action(captured_logs: Path) -> None:
    """All partitions are offline, and none is lost: no open critical finding, as `check` exits with 0."""
    given = one_input(captured_logs / "six" / "08-stopped")
    view = cluster_view(given)
    assert view.stopped_groups
    assert view.worst not in ("critical", "high")
    assert "not_met" not in {control.status for control in view.controls if control.name == "durability"}
    assert needs_in_words([line.need for line in _fleet(given).lines]) == ("", "")


@pytest.mark.slow
def test_what_changed_since_the_last_report(captured_logs: Path, tmp_path: Path) -> None:
    """The quorum has no leader, then works again: resolved; a cluster that was not captured resolves nothing."""
    down = one_input(captured_logs / "six" / "06-three-of-six-down")
    back = one_input(captured_logs / "six" / "07-all-back")
    brokers = one_input(captured_logs / "elr" / "29-stopped")
    folder = tmp_path / "site"
    write_site(GivenSource([down, brokers]), folder)
    assert "Opened since" not in (folder / "index.html").read_text()
    write_site(GivenSource([back]), folder)
    page = (folder / "index.html").read_text()
    assert "Resolved since then: 1" in page
    assert ": 0</h2>" in page.split("Opened since")[1].split("</section>")[0]
    write_site(GivenSource([down]), folder)
    page = (folder / "index.html").read_text()
    assert ": 1</h2>" in page.split("Opened since")[1].split("</section>")[0]
    assert "Resolved since then: 0" in page


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"format": "kraft-audit incidents 1", "incidents": [{}]}', "\ud800"])
def test_a_file_that_no_report_left_counts_as_none(text: str, captured_logs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    given = one_input(captured_logs / "six" / "06-three-of-six-down")
    write_site(GivenSource([given]), folder)
    (folder / INCIDENTS_FILE).write_text(text, encoding="utf-8", errors="surrogatepass")
    write_site(GivenSource([given]), folder)
    assert "Opened since" not in (folder / "index.html").read_text()
    assert json.loads((folder / INCIDENTS_FILE).read_text())["incidents"]


def test_strips_are_what_was_open_hour_by_hour(captured_logs: Path) -> None:
    given = one_input(captured_logs / "elr" / "29-stopped")
    view = cluster_view(given)
    assert view.exposure.from_ms is not None
    assert view.exposure.to_ms is not None
    first = view.exposure.from_ms // HOUR * HOUR
    edges = [first + place * HOUR for place in range(-2, 3)]
    covered = (view.exposure.from_ms, view.exposure.to_ms)
    statuses = {control.name: control.status for control in view.controls}
    cells = control_cells(statuses, control_spans(given.findings), edges, covered, "hour")
    assert [cell.name for cell in cells] == [name.replace("_", " ") for name in CONTROLS]
    by_name = {cell.name: cell for cell in cells}
    assert by_name["durability"].status == "not_met"
    assert [kind for kind, _ in by_name["durability"].strip] == ["critical"]
    assert by_name["durability"].in_words == "durability: not met; not met in 1 of 1 hour that the log covers"
    assert [kind for kind, _ in by_name["access"].strip] == ["met"], "hours that no log covers have no cell"


def test_a_command_is_apart_from_what_is_said() -> None:
    assert said_and_command("Start it.   kraft-audit recover-plan 'a b'") == (
        "Start it.",
        "kraft-audit recover-plan 'a b'",
    )
    assert said_and_command("Start broker 3 first.") == ("Start broker 3 first.", "")


def _with_history(given: ClusterInput, times: int) -> ClusterInput:
    """The cluster as if all of it had happened so often before, a day apart: over, or waived and waived no longer."""
    ended = [row for row in given.findings if row["status"] == "raised" and row["from_ms"] is not None]
    incidents = [row for row in given.incidents if row["from_ms"] is not None]
    findings, before = list(given.findings), list(given.incidents)
    for number in range(1, times):
        earlier = number * 24 * HOUR
        states = ({"is_over": True}, {"waiver": WAIVER}, {"expired_waiver": {"who": "a", "until": "2026-01-01"}})
        for row, state in zip(ended, states * len(ended), strict=False):
            ms = {"from_ms": row["from_ms"] - earlier, "to_ms": row["from_ms"] - earlier + HOUR}
            findings.append({**row, **ms, **state, "finding_id": f"{row['finding_id']}-{number}"})
        before += [
            {
                **row,
                "incident_id": f"{row['incident_id']}-{number}",
                "from_ms": row["from_ms"] - earlier,
                "is_open": False,
            }
            for row in incidents
        ]
    return replace(given, findings=findings, incidents=before)


WAIVER = {"who": "platform team", "why": "known", "until": "2027-01-01"}


@pytest.mark.slow
def test_a_longer_history_does_not_make_the_page_larger(captured_logs: Path, tmp_path: Path) -> None:
    given = one_input(captured_logs / "elr" / "06-kill-13-last-replica")
    assert len(given.findings) > 10
    assert given.incidents
    sizes = []
    for times in (60, 240):
        folder = tmp_path / str(times)
        write_site(GivenSource([_with_history(given, times)]), folder)
        page = (folder / "index.html").read_text()
        assert "more are on the clusters' pages" in page
        assert "older ones are on the clusters' pages" in page
        sizes.append(len(page.encode()))
    assert sizes[1] - sizes[0] < 2_000
    assert sizes[1] < 150_000


def test_trends_count_what_was_open_and_how_long_partitions_were_exposed(captured_logs: Path) -> None:
    stopped, down = (one_input(captured_logs / each) for each in ("elr/29-stopped", "six/06-three-of-six-down"))
    fleet = _fleet(stopped, down)
    view = fleet_view(fleet)
    edges, rows = view["edges"], view["trend_rows"]
    assert len(rows) == len(edges) - 1 > 1
    shown = [row for row in (*down.incidents, *stopped.incidents) if row["kind"] != "cluster_stop"]
    assert shown
    for (start, open_incidents, minutes), end in zip(rows, edges[1:], strict=True):
        lasting = [row for row in shown if row["is_open"] or (row["to_ms"] or row["from_ms"] or 0) >= end]
        assert open_incidents == sum(row["from_ms"] is not None and row["from_ms"] < end for row in lasting), start
        of_clusters = [line.exposure.within([start, end])[0] or 0.0 for line in fleet.lines]
        assert minutes == pytest.approx(sum(of_clusters))
    assert sum(minutes for *_, minutes in rows) > 0
    assert rows[-1][1] > 0


def test_a_cluster_shows_its_leader_its_lag_and_how_old_its_capture_is(captured_logs: Path, tmp_path: Path) -> None:
    (down,) = _fleet(one_input(captured_logs / "six" / "06-three-of-six-down")).lines
    assert down.leader is None, "epoch 4 has none"
    given = one_input(captured_logs / "six" / "04-after-failover")
    (line,) = _fleet(given).lines
    assert line.leader == (5, 3)
    ends = [row["log_end_offset"] for row in given.history.rows("captures") if row["node_id"] <= 6]
    assert line.lag == max(ends) - min(ends) > 0
    write_site(GivenSource([given]), tmp_path / "site")
    page = (tmp_path / "site" / "index.html").read_text()
    assert f"node 5 leads epoch 3, lag {line.lag}" in page
    ages = [(NOW_MS - (time_ms or 0)) > 2 * HOUR for time_ms in (line.exposure.to_ms, line.read_to_ms)]
    assert page.count('class="ago old"') == sum(ages)
