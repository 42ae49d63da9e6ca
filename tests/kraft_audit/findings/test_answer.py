"""What `check` opens with: nothing is claimed that the disks do not show."""

from __future__ import annotations

import pytest

from kraft_audit.findings.answer import answer_lines
from kraft_audit.findings.situation import cluster_row, situation_of
from kraft_audit.incidents.folding import fold
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.quorum_standing import quorum_standing
from kraft_audit.rules.judging import check
from kraft_audit.rules.rule_model import Finding
from kraft_audit.rules.rule_settings import apply_waivers, parse_waivers
from tests.builders.histories import T0, HistoryBuilder

RULES = ("KP001", "KP002", "KP005", "KQ023", "KQ024", "KQ025")


def _findings(history: ClusterHistory, *waived: str) -> list[Finding]:
    """All findings; those of some rules waived."""
    entry = "  - {rule: %s, who: ops, why: known, until: 2099-01-01}\n"
    text = "waivers:\n" + "".join(entry % rule for rule in waived)
    waivers = parse_waivers(text, "waivers.yaml") if waived else ()
    return apply_waivers(list(check(history, only=RULES)), waivers, T0)[0]


def _answer(build: HistoryBuilder, *waived: str) -> list[str]:
    history = build.history()
    folded = fold(history, _findings(history, *waived))
    return [f"{line.word} {line.text}".strip() for line in answer_lines(history, folded, "there.tgz")]


def _next(build: HistoryBuilder) -> str:
    (line,) = [line for line in _answer(build) if line.startswith("NEXT")]
    return line


def _leaderless(build: HistoryBuilder, **ends: int) -> HistoryBuilder:
    """Three voters; voter 3 alone is in epoch 2, which has no leader. `ends`: where each log ends, as n1=40."""
    build.voters(1, 2, 3).leader_epoch(1, 1, 0).watermark(30, 30, end=max(ends.values()), ids=(1, 2, 3))
    for node_id, end in ((int(name[1:]), end) for name, end in ends.items()):
        build.log(node_id, to=end)
        build.capture(node_id, end, epoch=2 if node_id == 3 else 1, last_epoch=1, leader_id=-1)
    return build


def test_the_longest_log_of_those_that_vote_leads(build: HistoryBuilder) -> None:
    line = _next(_leaderless(build, n1=30, n2=30, n3=40))
    assert "Start controller 1 alone" in line
    assert "(or 2 alone)" in line
    assert "3 will lead and nothing is lost" in line


def test_of_equal_logs_no_leader_is_named(build: HistoryBuilder) -> None:
    line = _next(_leaderless(build, n1=40, n2=40, n3=40))
    assert "will lead" not in line
    assert "any of them may lead and nothing is lost" in line


def test_a_voter_that_was_left_behind_leads_where_its_log_is_longer(build: HistoryBuilder) -> None:
    line = _next(_leaderless(build, n1=40, n2=30, n3=35))
    assert "1 will lead and nothing is lost" in line
    assert "(or" not in line, "with 2 started, 3 would lead without what 1 alone holds"


def test_a_log_that_stays_away_may_hold_more(build: HistoryBuilder) -> None:
    line = _next(_leaderless(build, n1=35, n2=40, n3=38))
    assert "without what only 2 holds" in line
    assert "nothing is lost" not in line


def test_what_is_not_judged_names_the_disk_to_fetch_first(build: HistoryBuilder) -> None:
    build.voters(1, 2, 3, 4, 5).leader_epoch(7, 4, 0).log(1, to=40, epoch=7).watermark(0, None, end=40, epoch=7)
    build.capture(1, 40, epoch=7, leader_id=4)
    lines = _answer(build)
    assert lines[1] == "NOT JUDGED 1 of 5 voters captured; copy voters 2, 3, 4 and 5 too."
    assert lines[2:] == [
        "NEXT Copy the disk of controller 4 first, which led epoch 7; then 1 of 2, 3 and 5. On its host:   "
        "kraft-capture --config /etc/kafka/server.properties --tar node-4.tgz",
        "If they are lost for good:   kraft-audit check there.tgz --gone 2,3,4,5",
    ]


@pytest.mark.parametrize("rule", ["KP002", "KP005"])
def test_a_waived_finding_does_not_make_partitions_fine(build: HistoryBuilder, rule: str) -> None:
    build.three_nodes().brokers(11, 12, 13).partition("t-0", 5).partition("t-1", 6)
    if rule == "KP002":
        build.partition("t-1", 30, isr=[11, 12, 13], leader=-1)
    else:
        build.partition("t-1", 30, isr=[11], leader=11, elr=[12])
    text = " ".join(_answer(build, "KP001", "KP002", "KP005", "KP017"))
    assert "OK Node 1 leads epoch 1" in text
    assert "All partitions have a leader" not in text
    assert ("1 of 2 have no leader" if rule == "KP002" else "1 of 2 are below min ISR") in text


def test_waived_findings_stay_in_their_incident_and_alarm_nowhere(build: HistoryBuilder) -> None:
    build.three_nodes().brokers(11, 12, 13).partition("t-0", 5)
    build.broker(11, 20, fenced=True).broker(12, 22, fenced=True).partition("t-0", 23, isr=[13], leader=13)
    history = build.history()
    folded = fold(history, _findings(history, "KP001", "KP005"))
    (incident,) = folded.incidents
    assert {finding.rule for finding in incident.findings} >= {"KP001", "KP005"}
    assert not {"KP001", "KP005"} & {finding.rule for finding in folded.open}
    assert situation_of(history, quorum_standing(history), folded, "PATH").severity_now != "critical"


def test_of_many_clusters_what_is_broken_comes_before_what_is_unclear(build: HistoryBuilder) -> None:
    healthy = HistoryBuilder().three_nodes().history()
    broken = _leaderless(HistoryBuilder(), n1=40, n2=40, n3=40).history()
    unclear = (
        build.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, to=40).capture(1, 40).watermark(0, None, end=40).history()
    )
    rows = [
        cluster_row("a", situation_of(history, quorum_standing(history), fold(history, _findings(history)), "PATH"))
        for history in (healthy, unclear, broken)
    ]
    assert [row["state"] for row in sorted(rows, key=lambda row: row["rank"], reverse=True)] == [
        "quorum",
        "not judged",
        "ok",
    ]


def test_who_starts_a_leaderless_quorum_is_told_which_software_reads_the_log(build: HistoryBuilder) -> None:
    """The software was put back below metadata.version 4.0-IV3: each controller dies at the first record it reads."""
    _leaderless(build, n1=40, n2=40, n3=40).feature("metadata.version", 25)
    assert "metadata.version 4.0-IV3   needs Kafka 4.0 or later   3 of 3 voters captured" in _answer(build)[0]


@pytest.mark.parametrize(("newest", "is_said"), [(21, True), (25, False)])
def test_older_registered_software_is_told_of_a_working_quorum_too(
    build: HistoryBuilder, newest: int, is_said: bool
) -> None:
    build.three_nodes().feature("metadata.version", 25)
    supported = [{"name": "metadata.version", "min_supported_version": 1, "max_supported_version": newest}]
    build.broker(11, features=supported)
    assert ("needs Kafka 4.0 or later" in _answer(build)[0]) is is_said


@pytest.mark.parametrize(("at", "is_said"), [(None, False), (30, True)])
def test_a_log_keeps_records_of_a_level_that_was_lowered_again(
    build: HistoryBuilder, at: int | None, is_said: bool
) -> None:
    build.three_nodes().feature("metadata.version", 25 if is_said else 21)
    if at is not None:
        build.feature("metadata.version", 21, at=at)
    supported = [{"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 21}]
    build.broker(11, features=supported)
    assert ("needs Kafka 4.0 or later" in _answer(build)[0]) is is_said
