"""Waivers hold to the end of their day, are counted, and expire into findings."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from kraft_audit.findings.finding_formats import findings_batch
from kraft_audit.rules.judging import check
from kraft_audit.rules.rule_model import FOR_EVER
from kraft_audit.rules.rule_settings import RuleSettingsError, apply_waivers, load_waivers, matches, parse_waivers
from kraft_audit.tables.gold import JUDGED_FINDINGS
from tests.builders.histories import CLUSTER_ID, HistoryBuilder

WAIVER = """
waivers:
  - {rule: weak-durability, subject: "topic metrics-*", who: ops, why: cheap, until: 2026-12-31}
"""


def _at(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)


def _weak(build: HistoryBuilder) -> HistoryBuilder:
    for topic in ("metrics-a", "orders"):
        build.partition(f"{topic}-0", 10, replicas=[11], isr=[11], effective_min_isr=1)
    return build


def test_waived_until_the_end_of_the_day(build: HistoryBuilder) -> None:
    findings = list(check(_weak(build).history(), only=["KP010"]))
    marked, count = apply_waivers(findings, parse_waivers(WAIVER, "waivers.yaml"), _at("2026-12-31T23:59:59"))
    assert {f.subject: f.waiver.who if f.waiver else None for f in marked} == {
        "topic metrics-a": "ops",
        "topic orders": None,
    }
    assert (count.waived, count.expired) == (1, 0)


@pytest.mark.parametrize("subject", ["voters [1, 2, 3]", "user [3]", "topic t[!a]"])
def test_a_subject_with_the_signs_of_a_pattern_fits_itself(subject: str) -> None:
    (waiver,) = parse_waivers(WAIVER.replace("topic metrics-*", subject), "waivers.yaml")
    assert matches(waiver, rule="KP010", cluster_id=CLUSTER_ID, subject=subject, from_ms=1)
    assert not matches(waiver, rule="KP010", cluster_id=CLUSTER_ID, subject=f"{subject}b", from_ms=1)
    (pattern,) = parse_waivers(WAIVER.replace("topic metrics-*", "user [[]?]"), "waivers.yaml")
    assert matches(pattern, rule="KP010", cluster_id=CLUSTER_ID, subject="user [3]", from_ms=1) == (waiver != pattern)


def test_expired_is_a_finding_again(build: HistoryBuilder) -> None:
    findings = list(check(_weak(build).history(), only=["KP010"]))
    marked, count = apply_waivers(findings, parse_waivers(WAIVER, "waivers.yaml"), _at("2027-01-01T00:00:00"))
    assert [f.waiver for f in marked] == [None, None]
    assert (count.waived, count.expired) == (0, 1)


def test_a_waiver_of_another_cluster_does_not_count(build: HistoryBuilder) -> None:
    text = WAIVER.replace("subject:", f"cluster: not-{CLUSTER_ID}, subject:")
    _, count = apply_waivers(
        list(check(_weak(build).history(), only=["KP010"])), parse_waivers(text, "w.yaml"), _at("2026-01-01")
    )
    assert count.waived == 0


def test_the_example_can_be_loaded(project_root: Path) -> None:
    assert [waiver.rule for waiver in load_waivers(project_root / "conf" / "waivers.example.yaml")] == [
        "KB003",
        "KP010",
    ]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("rule: weak-durability", "rule: KX1", "w.yaml: waivers[0].rule: 'KX1': expected the id or name of a rule"),
        ("until: 2026-12-31", "until: soon", "w.yaml: waivers[0].until: 'soon': expected a day such as 2027-01-31"),
        ("who: ops, ", "", "w.yaml: waivers[0].who: None: expected a name"),
        (
            "why: cheap",
            "wy: cheap",
            "w.yaml: waivers[0].wy: 'cheap': expected one of rule, cluster, subject, who, why, until, before",
        ),
        (
            WAIVER,
            "waivers: [ops]",
            "w.yaml: waivers[0]: 'ops': expected rule, cluster, subject, who, why, until, before",
        ),
    ],
)
def test_one_line_for_an_entry_that_cannot_be_used(old: str, new: str, line: str) -> None:
    with pytest.raises(RuleSettingsError) as caught:
        parse_waivers(WAIVER.replace(old, new), "w.yaml")
    assert str(caught.value) == line


@pytest.mark.parametrize("until", ["2026-12-31", "'2026-12-31'", "'20261231'", "'2026-W53-4'"])
def test_a_day_is_kept_as_sql_reads_it(until: str) -> None:
    (waiver,) = parse_waivers(WAIVER.replace("2026-12-31", until), "w.yaml")
    assert waiver.until == "2026-12-31"


def test_an_empty_file_waives_nothing() -> None:
    assert parse_waivers("# none yet\n", "w.yaml") == ()


def test_rows_of_the_table(build: HistoryBuilder) -> None:
    findings = list(check(_weak(build).history()))
    marked, _ = apply_waivers(findings, parse_waivers(WAIVER, "waivers.yaml"), _at("2026-06-01"))
    batch = findings_batch(marked, seen_ms=build.history().seen_ms, plan=7)
    assert batch.schema == JUDGED_FINDINGS.schema
    assert batch.num_rows == len(findings)
    by_subject = {row["subject"]: row for row in batch.to_pylist() if row["rule"] == "KP010"}
    assert by_subject["topic metrics-a"]["waiver"] == {"who": "ops", "why": "cheap", "until": "2026-12-31"}
    assert by_subject["topic orders"]["waiver"] is None
    assert by_subject["topic orders"]["from_offset"] == 10
    raised = [row["finding_id"] for row in batch.to_pylist() if row["status"] == "raised"]
    assert len(set(raised)) == len(raised)


LOSS = {"rule": "KP020", "who": "payments", "why": "sent again"}


def test_a_loss_is_acknowledged_without_a_day_and_the_next_one_is_not() -> None:
    text = "waivers: [{rule: KP020, who: payments, why: sent again, before: 2026-11-21T01:34:26Z}]"
    (waiver,) = parse_waivers(text, "w.yaml")
    assert (waiver.until, waiver.before_ms) == (FOR_EVER, 1_795_224_866_000)
    about = {"rule": "KP020", "cluster_id": CLUSTER_ID, "subject": "t-0"}
    assert matches(waiver, **about, from_ms=1_795_224_865_999)
    assert not matches(waiver, **about, from_ms=1_795_224_866_000)
    assert not matches(waiver, **about, from_ms=None)


def test_a_waiver_of_an_earlier_name_of_the_rule_still_applies() -> None:
    (waiver,) = parse_waivers("waivers: [{rule: KP003, who: a, why: b, until: 2027-01-31}]", "w.yaml")
    assert (waiver.rule, waiver.before_ms) == ("KP020", None)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (LOSS, "waivers[0].until: None: expected a day such as 2027-01-31"),
        ({**LOSS, "before": "soon"}, "waivers[0].before: 'soon': expected a time such as 2027-01-31T12:00:00Z"),
        (
            {**LOSS, "rule": "KP010", "before": "2027-01-31T12:00:00Z"},
            "waivers[0].until: None: expected a day such as 2027-01-31",
        ),
    ],
)
def test_what_a_loss_cannot_be_acknowledged_by(entry: dict[str, str], problem: str) -> None:
    with pytest.raises(RuleSettingsError) as caught:
        parse_waivers(yaml.safe_dump({"waivers": [entry]}), "w.yaml")
    assert str(caught.value) == f"w.yaml: {problem}"
