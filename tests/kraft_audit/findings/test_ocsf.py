"""OCSF 1.5.0 Compliance Findings, as the library py-ocsf-models reads them: nothing undecided passes."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import py_ocsf_models
import pytest
from py_ocsf_models.events.findings.activity_id import ActivityID
from py_ocsf_models.events.findings.compliance_finding import ComplianceFinding
from py_ocsf_models.events.findings.status_id import StatusID
from py_ocsf_models.objects.compliance_status import StatusID as CheckStatus

from kraft_audit.commands.cli import run_command
from kraft_audit.findings.finding_formats import finding_rows
from kraft_audit.findings.ocsf import OCSF_VERSION, observed_ms, ocsf_events, without_nulls
from kraft_audit.rules.judging import check
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_settings import apply_waivers, parse_waivers
from tests.builders.histories import T0, HistoryBuilder

WAIVER = "waivers: [{rule: KQ008, who: ops, why: a laptop, until: 2099-01-01}]"
NOT_IN_THE_LIBRARY = {"compliance.status"}
"""Attributes of OCSF 1.5.0 that the library's models leave out."""


@pytest.fixture
def rows(build: HistoryBuilder) -> list[dict[str, Any]]:
    """Rows of every status, one of them waived."""
    build.three_nodes().damage(2, "BAD_CRC")
    findings, _ = apply_waivers(list(check(build.history())), parse_waivers(WAIVER, "w"), T0)
    found = finding_rows(findings, seen_ms=T0)
    assert any(row["waiver"] for row in found)
    return [
        *found,
        {
            **found[0],
            "status": "undecided",
            "state": "undecided",
            "reason": "one voter was not captured",
            "is_over": False,
        },
    ]


def _left_out(given: Any, read: Any, path: str = "") -> set[str]:
    if isinstance(given, dict):
        missing = {f"{path}{name}" for name in given.keys() - read.keys()}
        return missing.union(*(_left_out(given[n], read[n], f"{path}{n}.") for n in given.keys() & read.keys()))
    if isinstance(given, list):
        return set().union(*(_left_out(*pair, path) for pair in zip(given, read, strict=True)))
    return set()


def test_the_library_reads_every_attribute_of_every_event(rows: list[dict[str, Any]]) -> None:
    assert py_ocsf_models.OCSF_VERSION == OCSF_VERSION
    events = [without_nulls(event) for event in ocsf_events(rows, "1")]
    assert len(events) == len(rows)
    for event in events:
        read = ComplianceFinding.model_validate(event)
        assert _left_out(event, read.model_dump()) <= NOT_IN_THE_LIBRARY
        assert read.type_uid == 2003 * 100 + read.activity_id
        assert read.metadata.event_code is not None
        rule = rules()[read.metadata.event_code]
        assert read.compliance.control == rule.control
        assert read.compliance.standards
        assert read.compliance.requirements


def test_each_status_is_the_one_that_ocsf_has_for_it(rows: list[dict[str, Any]]) -> None:
    events = {event["finding_info"]["uid"]: event for event in ocsf_events(rows[:-1], "1")}
    expected = {"raised": CheckStatus.Fail, "undecided": CheckStatus.Unknown, "clear": CheckStatus.Pass}
    for row in rows[:-1]:
        event = events[row["finding_id"]]
        assert event["compliance"]["status_id"] == expected[row["status"]]
        assert event["compliance"]["status"] == expected[row["status"]].name
        assert StatusID(event["status_id"]).name == event["status"]
        assert (event["activity_id"] == ActivityID.Close) == (row["state"] == "resolved")
        assert (event["status_id"] == StatusID.Suppressed) == (row["waiver"] is not None and not row["is_over"])
    (undecided,) = ocsf_events(rows[-1:], "1")
    assert (undecided["compliance"]["status"], undecided["status"]) == ("Unknown", "Unknown")
    assert undecided["status_detail"] == "one voter was not captured"


def test_activities_follow_the_plans_of_a_lake(rows: list[dict[str, Any]]) -> None:
    known = {**rows[0], "status": "raised", "is_over": False, "first_seen_ms": 10, "last_seen_ms": 30, "first_plan": 1}
    new = {**known, "state": "open", "plan": 1, "changed_ms": 10}
    seen_again = {**known, "state": "open", "plan": 3, "changed_ms": 10}
    gone = {**known, "state": "resolved", "closed_by": "not_found", "plan": 4, "changed_ms": 40}
    events = ocsf_events([gone, seen_again, new], "1")
    assert [(event["activity_name"], event["time"]) for event in events] == [
        ("Create", 10),
        ("Update", 30),
        ("Close", 40),
    ]
    assert len({event["metadata"]["uid"] for event in events}) == 3
    assert Counter(event["finding_info"]["uid"] for event in events) == {rows[0]["finding_id"]: 3}
    assert events[-1]["compliance"]["status"] == "Fail", "what is resolved never says that a check passed"


@pytest.mark.slow
def test_the_same_logs_give_the_same_events_whenever_they_are_read(
    samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    logs = str(samples / "divergence.tgz")
    for number in range(2):
        time.sleep(0.01)  # what was read first was read at another time
        assert run_command(["check", logs, "--output", "ocsf", "--fail-on", "never"]) == 0
        printed.append(capsys.readouterr().out)
        assert run_command(["report", logs, "--output", "ocsf", "--out", str(tmp_path / str(number))]) == 0
        capsys.readouterr()
    first, again = printed
    assert first == again != ""
    assert (tmp_path / "0").read_text() == (tmp_path / "1").read_text() == first


def test_a_log_without_a_clock_is_observed_when_it_was_read(build: HistoryBuilder) -> None:
    history = build.three_nodes().history()
    assert observed_ms(replace(history, as_of_ms=1 << 62)) == history.seen_ms
    assert observed_ms(replace(history, as_of_ms=T0)) == T0
