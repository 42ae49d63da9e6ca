"""The registry: every rule has its text and its two histories; conf/rules.yaml is what the registry says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from kraft_audit.findings.rule_pages import near
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.judging import by_severity, check
from kraft_audit.rules.registry import control_of, find_rule, rule, rules, texts
from kraft_audit.rules.rule_model import CONTROLS, NO_RELEASE, RuleStatus, Status, Thresholds
from kraft_audit.rules.rule_settings import (
    THRESHOLD_MAX,
    RuleSettingsError,
    load_rule_settings,
    parse_rule_settings,
)
from kraft_codec.schemas import Dialect
from kraft_codec.schemas.releases import LINE_OF_LEVEL, parse_release
from tests.builders.histories import HistoryBuilder
from tests.builders.log_stories import LOG_STORIES
from tests.builders.partition_stories import PARTITION_STORIES
from tests.builders.voter_stories import VOTER_STORIES

STORIES = VOTER_STORIES | LOG_STORIES | PARTITION_STORIES
RAISED_ON_REQUEST = {"KB006"}
"""test_advisories.py raises it."""


def test_every_rule_has_a_history_that_raises_it_and_a_near_miss() -> None:
    assert STORIES.keys() | RAISED_ON_REQUEST == rules().keys()
    assert len(STORIES) == len(VOTER_STORIES) + len(LOG_STORIES) + len(PARTITION_STORIES)


@pytest.mark.parametrize("rule_id", sorted(STORIES))
def test_a_rule_is_raised_by_its_story(build: HistoryBuilder, rule_id: str) -> None:
    raising, _ = STORIES[rule_id]
    raising(build)
    (found,) = build.raised(rule_id)
    assert found.summary
    assert found.evidence or rule_id not in LOG_STORIES
    assert found.finding_id
    assert found.what_to_do


@pytest.mark.parametrize("rule_id", sorted(STORIES))
def test_a_rule_is_silent_in_its_near_miss(build: HistoryBuilder, rule_id: str) -> None:
    _, near_miss = STORIES[rule_id]
    near_miss(build)
    assert build.raised(rule_id) == []


def test_ids_and_names_are_unique_and_texts_belong_to_rules() -> None:
    assert texts().keys() == rules().keys()
    assert len({each.name for each in rules().values()}) == len(rules())
    for each in rules().values():
        assert each.text.sources
        assert each.text.why.endswith(".")


def test_a_rule_cannot_be_registered_twice() -> None:
    register = rule("KV001", control="access", needs=())
    with pytest.raises(ValueError, match="KV001 is registered twice"):
        register(lambda history, thresholds: ())


def test_a_rule_needs_a_text() -> None:
    register = rule("KX999", control="access", needs=())
    with pytest.raises(ValueError, match="KX999 has no text"):
        register(lambda history, thresholds: ())


@pytest.mark.parametrize("name", ["KP001", "kp001", "last-replica-standing", " KP001 "])
def test_rules_are_found_by_id_and_name(name: str) -> None:
    found = find_rule(name)
    assert found is not None
    assert found.id == "KP001"


def test_a_rule_that_another_took_in_is_found_by_its_old_id() -> None:
    assert [getattr(find_rule(name), "id", None) for name in ("KV016", "ghost-controller")] == ["KB008", "KB008"]


def test_what_is_said_of_each_rule() -> None:
    assert sum(each.text.status is RuleStatus.EXPERIMENTAL for each in rules().values()) <= 3
    for each in rules().values():
        assert re.fullmatch(r"\d+\.\d+\.\d+", each.text.since)
        assert len(each.text.releases) <= 2
        is_proposal = Dialect.KIP853 not in each.dialects
        assert is_proposal == (NO_RELEASE in each.text.releases)
        named = [parse_release(release) for release in each.text.releases if not is_proposal]
        assert named == sorted(named)
        assert {release[:2] for release in named} <= set(LINE_OF_LEVEL.values())
        assert all(text.endswith(".") for text in each.text.false_positives)
    references = rules()["KB008"].text.references
    assert "https://issues.apache.org/jira/browse/KAFKA-20295" in references


def test_every_control_has_rules_and_every_rule_one_control() -> None:
    assert {each.control for each in rules().values()} == set(CONTROLS)
    assert all(control_of(id_) == each.control for id_, each in rules().items())
    assert control_of("KX999") is None


def test_limits_are_the_defaults_but_where_they_are_set() -> None:
    storm = rules()["KQ016"]
    assert storm.limits_of({}) == storm.limits()
    assert storm.limits_of({"max_burnt_epochs": 7.9}) == replace(storm.limits(), max_leaderless_epochs=7)
    assert rules()["KP015"].limits_of({"max_hours": 1.5}) == replace(rules()["KP015"].limits(), max_hours=1.5)
    assert rules()["KV001"].limits_of({}) == Thresholds()


def settings_text() -> str:
    """The whole of conf/rules.yaml with the defaults."""
    parts = [
        "# Thresholds of the rules, with their defaults. What is left out keeps its default.\n"
        "# `kraft-audit rules RULE` says what a rule does.\n"
    ]
    for known in rules().values():
        if known.thresholds:
            lines = [f"{known.id}:  # {known.name}"]
            for each in known.thresholds:
                default = yaml.safe_dump(each.default).splitlines()[0]
                lines.append(f"  {each.name}: {default}  # {each.comment}")
            parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def test_the_settings_file_is_the_registrys(project_root: Path) -> None:
    path = project_root / "conf" / "rules.yaml"
    assert path.read_text(encoding="utf-8") == settings_text()
    loaded = load_rule_settings(path)
    assert loaded == {each.id: each.defaults for each in rules().values() if each.thresholds}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "KP015:\n  max_hour: 5\n",
            "rules.yaml: KP015.max_hour: 5: expected one of max_hours (did you mean max_hours?)",
        ),
        (
            "KV013:\n  max_lag_records: many\n",
            "rules.yaml: KV013.max_lag_records: 'many': expected a number of records, 0 to 1000000000000000",
        ),
        (
            "KV013:\n  max_lag_records: true\n",
            "rules.yaml: KV013.max_lag_records: True: expected a number of records, 0 to 1000000000000000",
        ),
        (
            "KV013:\n  max_lag_records: -1\n",
            "rules.yaml: KV013.max_lag_records: -1: expected a number of records, 0 to 1000000000000000",
        ),
        (
            "KP012:\n  max_changes_an_hour: .inf\n",
            "rules.yaml: KP012.max_changes_an_hour: inf: expected a number of hour, 0 to 1000000000000000",
        ),
        (
            "KV010:\n  grace_seconds: .nan\n",
            "rules.yaml: KV010.grace_seconds: nan: expected a number of seconds, 0 to 1000000000000000",
        ),
        (
            "KV010:\n  grace_seconds: 1.0e+300\n",
            "rules.yaml: KV010.grace_seconds: 1e+300: expected a number of seconds, 0 to 1000000000000000",
        ),
        ("KV013: 7\n", "rules.yaml: KV013: 7: expected thresholds by name"),
        ("KV013:\nKV013:\n", "rules.yaml: line 2: \"key 'KV013' twice\": expected YAML"),
        ("[]", "rules.yaml: (file): []: expected rule ids with their thresholds"),
    ],
)
def test_one_line_for_a_setting_that_cannot_be_used(text: str, line: str) -> None:
    with pytest.raises(RuleSettingsError) as caught:
        parse_rule_settings(text, "rules.yaml")
    assert str(caught.value) == line


def test_the_largest_thresholds_raise_nothing(build: HistoryBuilder) -> None:
    largest = "".join(
        f"{rule.id}: {{{', '.join(f'{threshold.name}: {THRESHOLD_MAX}' for threshold in rule.thresholds)}}}\n"
        for rule in rules().values()
        if rule.thresholds
    )
    build.voters(1, 2, 3).capture(1, 40).capture(2, 40).capture(3, 30).watermark(40, 40, end=40)
    settings = parse_rule_settings(largest, "rules.yaml")
    findings = check(build.history(), settings, only=list(settings))
    assert [finding.rule for finding in findings if finding.status == "raised"] == []


def test_an_unknown_rule_is_reported_with_the_nearest() -> None:
    with pytest.raises(RuleSettingsError, match=r"rules.yaml: KVO13: .*did you mean KV013\?"):
        parse_rule_settings("KVO13:\n  max_lag_records: 1\n", "rules.yaml")


def test_thresholds_reach_the_rules(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).capture(1, 40).capture(2, 40).capture(3, 30).watermark(40, 40, end=40)
    assert [f.rule for f in check(build.history(), only=["KV013"]) if f.subject] == []
    found = list(check(build.history(), {"KV013": {"max_lag_records": 5}}, only=["KV013"]))
    assert [finding.subject for finding in found] == ["voter 3"]


def test_worst_first_and_what_lasts_before_what_is_over(build: HistoryBuilder) -> None:
    build.three_nodes().brokers(11, 12, 13)
    build.partition("a-0", 10, isr=[13]).partition("a-0", 20, isr=[12, 13]).partition("b-0", 15, isr=[13])
    ordered = by_severity(check(build.history(), only=["KP001", "KP005"]))
    assert [(f.rule, f.subject) for f in ordered] == [
        ("KP001", "b-0"),
        ("KP001", "a-0"),
        ("KP005", "b-0"),
        ("KP005", "a-0"),
    ]


def test_two_cases_of_one_subject_have_two_ids(build: HistoryBuilder) -> None:
    endpoints = [{"name": name, "host": "c1.example", "port": 9093} for name in ("CONTROLLER", "INSIDE")]
    build.voters(1, endpoints={1: endpoints})
    build.controller(1, end_points=[{**each, "port": 1, "security_protocol": 1} for each in endpoints])
    found = build.raised("KV009")
    assert [finding.subject for finding in found] == ["voter 1", "voter 1"]
    assert len({finding.finding_id for finding in found}) == 2


def statuses(history: ClusterHistory) -> dict[str, set[Status]]:
    found: dict[str, set[Status]] = {}
    for finding in check(history):
        found.setdefault(finding.rule, set()).add(finding.status)
    return found


def test_a_rule_that_had_nothing_to_look_at_is_undecided() -> None:
    unread = replace(HistoryBuilder().history(), is_read=False, is_replayed=False)
    assert statuses(unread) == {id_: {Status.UNDECIDED} for id_ in rules()}
    # What is there to be seen is raised all the same.
    foreign = HistoryBuilder().capture(1, 0, accepted=False, meta_cluster_id="another").history()
    assert statuses(replace(foreign, is_read=False))["KQ010"] == {Status.RAISED}


def test_without_a_canonical_log_what_is_replayed_is_undecided() -> None:
    whole = HistoryBuilder().three_nodes().history()
    before, after = statuses(whole), statuses(replace(whole, is_replayed=False))
    changed = {id_ for id_ in rules() if after[id_] != before[id_]}
    assert {"KP001", "KP013", "KB003", "KB004"} <= changed
    assert not {"KQ001", "KQ008", "KV007"} & changed
    assert {status for id_ in changed for status in after[id_]} == {Status.UNDECIDED}


@pytest.mark.parametrize(
    ("text", "meant"),
    [("kp1", "KP001"), ("KP01", "KP001"), ("kp0018", "KP018"), ("KV3", "KV003"), ("last-replica", "KP001")],
)
def test_the_rule_that_was_meant(text: str, meant: str) -> None:
    """An id without its zeros is that of the number, not one that has most of its letters."""
    assert find_rule(text) is None
    assert near(text) == meant
