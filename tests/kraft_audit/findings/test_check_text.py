"""What people and programs read of findings."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest

from kraft_audit.findings import rule_pages
from kraft_audit.findings.check_text import check_lines, headline
from kraft_audit.findings.finding_formats import csv_rows
from kraft_audit.rules.judging import check
from kraft_audit.rules.registry import find_rule, rules
from kraft_audit.rules.rule_model import Status
from kraft_audit.rules.rule_settings import apply_waivers, parse_waivers
from kraft_audit.text.readable import duration, when
from tests.builders.facts import facts, stands_before
from tests.builders.histories import CLUSTER_ID, T0, HistoryBuilder

ECHO = f"{shlex.quote(sys.executable)} -c 'import json, sys; print(json.dumps(sys.argv[1:]))'"
WAIVER = "waivers: [{rule: KV007, who: ops, why: a laptop, until: 2099-01-01}]"


def _incident(build: HistoryBuilder) -> HistoryBuilder:
    """Broker 12 is fenced at 300 s; two partitions are left with broker 13 alone, the log ends 252 s later."""
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, 2, 3, to=552).watermark(552, 552, end=552)
    for node_id in (1, 2, 3):
        build.capture(node_id, 552)
    build.feature("metadata.version", 30).brokers(11, 12, 13)
    for name in ("orders-3", "orders-4"):
        build.partition(name, 10, "created").partition(name, 300, "fenced", isr=[13], leader=13, leader_epoch=4)
    return build.broker(11, at=300, fenced=True).broker(12, at=301, fenced=True)


def test_a_finding_shows_its_worst_subject_why_what_to_do_and_the_next_steps(build: HistoryBuilder) -> None:
    history = _incident(build).history()
    lines = [line.text for line in check_lines(history, check(history, only=["KP001"]), path="incident.tgz")]
    head, empty, rule, subject, more, why, advice, empty_again, summary = lines
    assert (empty, empty_again) == ("", "")
    # The first voters: what the disks were formatted with.
    begin, end = when(T0 - 1000), when(T0 + 552_000, T0)
    assert head.startswith(CLUSTER_ID)
    assert begin in head
    assert end in head
    assert facts(head) == {CLUSTER_ID, "4.3-IV0", "3", "551", "552", *begin.split(), *end.split()}
    assert rule.split()[:3] == ["CRITICAL", "KP001", "last-replica-standing"]
    assert when(T0 + 300_000) in rule
    assert "4 min 12 s" in rule
    assert facts(rule) == {"KP001", "2", "4", "12", *when(T0 + 300_000).split()}
    assert subject.split()[0] == "orders-3"
    assert facts(subject) == {"orders-3", "13", "[13]", "[]", "[11 12 13]", "300", "4"}
    assert facts(more) == {"1", "orders-4", "--rule", "KP001"}
    assert why.split()[0] == "why"
    assert "min.insync.replicas" in why
    assert advice.split()[0] == "do"
    assert stands_before(advice, "broker 12", "broker 13"), "who comes back first"
    assert advice.count(when(T0 + 300_000, T0)) == 2, "when each of the two left the ISR"
    assert facts(advice) == {"11", "12", "13", *facts(when(T0 + 300_000, T0))}
    assert facts(summary) == {"2", "0", "KP001", "13", "--lose"}
    for step in ("rules KP001", "timeline incident.tgz", "whatif incident.tgz --lose 13"):
        assert step in summary


def test_what_is_over_counts_a_subject_once_and_its_episodes_beside_it(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, to=552).watermark(552, 552, end=552).capture(1, 552)
    build.brokers(11, 12, 13).partition("orders-3", 10, "created")
    for at in (300, 400):
        build.partition("orders-3", at, "fenced", isr=[13], leader=13)
        build.partition("orders-3", at + 50, "isr_expanded", isr=[11, 12, 13], leader=13)
    history = build.history()
    lines = [line.text for line in check_lines(history, check(history, only=["KP001"]), path="incident.tgz")]
    head = next(line for line in lines if "KP001" in line)
    assert head.split()[:3] == ["CRITICAL", "KP001", "last-replica-standing"]
    assert head.endswith(when(T0 + 450_000))
    assert facts(head) == {"KP001", "1", "2", *when(T0 + 450_000).split()}


def _advice(build: HistoryBuilder, last_leaders: list[int]) -> list[str]:
    """What KP002 says to do about partitions t-0, t-1, … that wait each for its last leader."""
    build.brokers(*range(11, 20))
    for number, leader in enumerate(last_leaders):
        name = f"t-{number}"
        build.partition(name, 10).partition(name, 20, isr=[], elr=[leader], last_known_elr=[leader], leader=-1)
    history = build.history()
    lines = [line.text for line in check_lines(history, check(history, only=["KP002"]), path="x")]
    return [text for text in lines if text.startswith("    do ")]


def test_partitions_that_need_different_brokers_back_stand_apart(build: HistoryBuilder) -> None:
    first, second = _advice(build, [14, 11, 11, 14, 11, 11, 11])
    assert facts(first) == {"5", "t-1", "t-2", "t-4", "t-5", "11"}
    assert "…" in first, "there are more than are named"
    assert facts(second) == {"2", "t-0", "t-3", "14"}
    assert "…" not in second


def test_one_advice_for_all_names_no_partition(build: HistoryBuilder) -> None:
    (advice,) = _advice(build, [11, 11])
    assert facts(advice) == {"11"}


def test_the_lines_of_advice_are_bounded(build: HistoryBuilder) -> None:
    first, *_, last = lines = _advice(build, [11, 11, 12, 13, 14, 15, 16])
    assert facts(first) == {"2", "t-0", "t-1", "11"}
    assert len(lines) == 5
    assert facts(last) == {"2", "--rule", "KP002"}


def test_where_states_begin_is_said(build: HistoryBuilder) -> None:
    """A cleaned log begins with a snapshot: what came before is not judged."""
    history = _incident(build).history()
    assert "181" not in facts(headline(history))
    assert facts(headline(replace(history, states_from=181, _shared={}))) == facts(headline(history)) | {"181"}


def test_in_full_lists_every_subject_with_its_evidence(build: HistoryBuilder) -> None:
    history = _incident(build).history()
    text = "\n".join(line.text for line in check_lines(history, check(history, only=["KP001"]), path="x", in_full=True))
    assert "orders-4" in text
    assert "ISR [11 12 13]" in text
    assert "→ ISR [13]" in text


@pytest.mark.parametrize("in_full", [False, True])
def test_one_reason_for_all_rules_is_one_line_unless_all_is_asked_for(build: HistoryBuilder, in_full: bool) -> None:
    unread = replace(build.history(), is_read=False, is_replayed=False)
    lines = [line.text for line in check_lines(unread, check(unread), path="x", in_full=in_full)]
    reported = [text for text in lines if text.startswith("UNDECIDED")]
    assert len(reported) == (len(rules()) if in_full else 1)
    reasons = {text.partition("   ")[2] for text in reported}
    assert len(reasons) == 1
    assert len(reasons.pop()) > 20


def test_rules_that_could_not_look_stand_apart_from_those_shown_by_name(build: HistoryBuilder) -> None:
    """64 rules, then one more by name, was reported as 65 undecided."""
    unread = replace(build.history(), is_read=False, is_replayed=False)
    findings = [
        finding._replace(subject="node 3", reason="its disk was not captured") if finding.rule == "KQ020" else finding
        for finding in check(unread)
    ]
    *_, named, rest, empty, summary = [line.text for line in check_lines(unread, findings, path="x")]
    assert named.split()[:3] == ["UNDECIDED", "KQ020", "log-went-back"]
    assert facts(named) == {"KQ020", "3"}
    assert rest.startswith("UNDECIDED ")
    assert facts(rest) == {str(len(rules()) - 1)}
    assert empty == ""
    assert facts(summary) == {str(len(rules()))}


@pytest.mark.parametrize("path", ["odd/with space/in cident.tgz", "it's.tgz", "$(date).tgz", "s3://bucket/logs?a&b"])
def test_the_next_steps_can_be_pasted_whatever_the_path(build: HistoryBuilder, path: str) -> None:
    """A shell hands the commands what they are to be given."""
    history = _incident(build).history()
    *_, summary = [line.text for line in check_lines(history, check(history, only=["KP001"]), path=path)]
    steps = summary.partition("   ")[2].split(" · ")
    given = [json.loads(subprocess.check_output(["/bin/sh", "-c", f"{ECHO} {step}"])) for step in steps]
    assert given == [["rules", "KP001"], ["timeline", path], ["whatif", path, "--lose", "13"]]


def test_undecided_and_waived_are_counted(build: HistoryBuilder) -> None:
    build.voters(1, 2).capture(1, 10).watermark(10, 10, end=10, ids=(1, 2))
    history = build.history()
    findings, count = apply_waivers(list(check(history, only=["KV007", "KV013"])), parse_waivers(WAIVER, "w"), T0)
    text = "\n".join(line.text for line in check_lines(history, findings, path="x", waivers=count))
    assert "KV007" not in text
    (undecided,) = [line for line in text.splitlines() if line.startswith("UNDECIDED KV013 voter-behind")]
    assert facts(undecided) == {"KV013", "2"}
    assert re.findall(r"\d+ (\w+)", text.splitlines()[-1]) == ["undecided", "waived", "waivers"]
    assert re.findall(r"\d+", text.splitlines()[-1]) == ["1", "1", "0"]


def test_all_shows_what_is_clear(build: HistoryBuilder) -> None:
    history = build.three_nodes().history()
    text = "\n".join(
        line.text for line in check_lines(history, check(history, only=["KV007"]), path="x", show_all=True)
    )
    assert "CLEAR     KV007 fragile-voter-count" in text


def test_all_shows_no_other_rule_as_clear(build: HistoryBuilder) -> None:
    history = _incident(build).history()
    findings = list(check(history))
    lines = [
        line.text.split()[1]
        for line in check_lines(history, findings, path="x", show_all=True)
        if line.text.startswith("CLEAR ")
    ]
    assert "KP001" not in lines
    assert sorted(lines) == sorted(finding.rule for finding in findings if finding.status is Status.CLEAR)


def test_an_expired_waiver_is_said_where_its_finding_is(build: HistoryBuilder) -> None:
    history = build.voters(1, 2).capture(1, 10).history()
    waivers = parse_waivers(WAIVER.replace("2099-01-01", "2020-02-02"), "w")
    findings, count = apply_waivers(list(check(history, only=["KV007"])), waivers, T0)
    text = "\n".join(line.text for line in check_lines(history, findings, path="x", waivers=count))
    (expired,) = [line for line in text.splitlines() if "2020-02-02" in line]
    assert "ops" in expired
    assert re.findall(r"(\d+) waive[dr]", text.splitlines()[-1]) == ["0", "1"], "waived, expired"


def test_a_headline_without_captures_claims_nothing_proven(build: HistoryBuilder) -> None:
    assert headline(build.voters(1, 2, 3).history()) == CLUSTER_ID
    assert facts(headline(HistoryBuilder().three_nodes().history())) >= {CLUSTER_ID, "3", "40"}


@pytest.mark.parametrize(
    ("length_ms", "text"),
    [
        (1_200, "1.2 s"),
        (59_000, "59 s"),
        (252_000, "4 min 12 s"),
        (3_600_000, "1 h"),
        (90_061_000, "1 d 1 h"),
        (-5, "0.0 s"),
    ],
)
def test_durations(length_ms: int, text: str) -> None:
    assert duration(length_ms) == text


def test_csv_rows_are_flat(build: HistoryBuilder) -> None:
    for row in csv_rows(check(_incident(build).history())):
        assert all(value is None or isinstance(value, str | int | float | bool) for value in row.values())


def test_explain_shows_text_thresholds_and_sources() -> None:
    rule = find_rule("KV013")
    assert rule is not None
    lines = rule_pages.explanation(rule)
    text = "\n".join(lines)
    assert lines[0] == "KV013 voter-behind   medium"
    assert "max_lag_records = 1000 (conf/rules.yaml)" in text
    assert "KIP-595" in text
    assert max(map(len, lines)) <= 112


def test_every_rule_has_a_page_and_a_row() -> None:
    assert rule_pages.pages().keys() == {"index.md", *(f"{rule_id}.md" for rule_id in rules())}
    for rule_id, rule in rules().items():
        assert rule.text.what_to_do in rule_pages.pages()[f"{rule_id}.md"]
    assert [row["rule"] for row in rule_pages.rule_rows()] == list(rules())
