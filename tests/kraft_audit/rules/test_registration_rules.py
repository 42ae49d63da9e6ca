"""Rules about registrations, listeners, access and levels: where each begins, how severe it is, what it advises."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_audit.rules.rule_model import Severity
from tests.builders.histories import T0, HistoryBuilder
from tests.builders.partition_stories import acl, at_level, log_dirs, protocol
from tests.builders.voter_stories import started, supports

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("host", "severity"),
    [
        ("127.0.0.1", Severity.LOW),
        ("[::1]", Severity.LOW),
        ("localhost", Severity.LOW),
        ("10.0.0.4", Severity.MEDIUM),
        ("192.168.1.9", Severity.MEDIUM),
        ("kafka2", Severity.MEDIUM),
        ("100.27.158.24", Severity.HIGH),
        ("2600:1f18::5", Severity.HIGH),
    ],
)
def test_kb003_by_who_can_reach_the_address(build: HistoryBuilder, host: str, severity: Severity) -> None:
    protocol(2, host)(build)
    (finding,) = build.raised("KB003")
    assert finding.severity is severity
    assert host in finding.summary


def test_kb003_a_public_address_that_was_given_up_is_over(build: HistoryBuilder) -> None:
    protocol(2, "103.234.150.144")(build)
    point = {"name": "CLIENT", "host": "127.0.0.1", "port": 9092, "security_protocol": 2}
    build.broker(11, at=20, end_points=[point]).broker(11, at=30, end_points=[point], fenced=True)
    assert [(f.severity, f.from_offset, f.to_offset, f.is_over) for f in build.raised("KB003")] == [
        (Severity.HIGH, 1, 20, True),
        (Severity.LOW, 20, None, False),
    ]


def turn(build: HistoryBuilder, count: int, *, restarts: bool) -> None:
    """Broker 11 is fenced and unfenced every minute; with `restarts` by another process each time."""
    build.broker(11, at=0)
    for number in range(count):
        process = f"process{number if restarts else 0}".ljust(22, "x")
        before = f"process{max(number - 1, 0) if restarts else 0}".ljust(22, "x")
        build.broker(11, at=60 * number + 60, fenced=True, incarnation_id=before)
        build.broker(11, at=60 * number + 80, fenced=True, incarnation_id=process)
        build.broker(11, at=60 * number + 90, incarnation_id=process)
    build.rows["broker_changes"][0]["incarnation_id"] = "process0".ljust(22, "x")


@pytest.mark.parametrize(
    ("restarts", "count", "raised"), [(False, 4, True), (False, 3, False), (True, 8, True), (True, 7, False)]
)
def test_kb001_restarts_are_no_late_heartbeats(build: HistoryBuilder, restarts: bool, count: int, raised: bool) -> None:
    turn(build, count, restarts=restarts)
    found = build.raised("KB001")
    assert len(found) == raised
    if raised:
        assert ("heartbeats" in found[0].what_to_do) is not restarts


def test_kb001_is_over_an_hour_later(build: HistoryBuilder) -> None:
    turn(build, 5, restarts=False)
    build.capture(1, 40, last_timestamp_ms=T0 + 5 * 60_000 + HOUR_MS + 1)
    assert [finding.is_over for finding in build.raised("KB001")] == [True]


@pytest.mark.parametrize(
    ("host", "level", "severity"),
    [
        ("*", 30, Severity.HIGH),
        ("0.0.0.0/0", 33, Severity.HIGH),
        ("10.0.0.0/8", 33, Severity.MEDIUM),
        ("10.0.0.0/8", 30, None),
        ("10.0.0.7", 30, Severity.MEDIUM),
        ("127.0.0.1", 30, Severity.LOW),
    ],
)
def test_kb004_by_the_hosts_that_are_meant(
    build: HistoryBuilder, host: str, level: int, severity: Severity | None
) -> None:
    """Ranges of addresses came with 4.4: before, no client's address equals one."""
    build.feature("metadata.version", level)
    acl(host=host)(build)
    assert [finding.severity for finding in build.raised("KB004")] == ([] if severity is None else [severity])


@pytest.mark.parametrize(
    ("denied", "raised"),
    [
        ({}, 0),
        ({"resourceName": "orders"}, 1),
        ({"resourceType": 3}, 1),
        ({"host": "10.0.0.7"}, 1),
        ({"operation": 3}, 1),
        ({"principal": "User:bob"}, 1),
    ],
)
def test_kb004_unless_a_deny_takes_all_of_it_back(build: HistoryBuilder, denied: dict[str, Any], raised: int) -> None:
    acl()(build)
    acl(permissionType=2, **denied)(build)
    build.rows["security_changes"][-1]["subject"] = "id-2"
    assert len(build.raised("KB004")) == raised


def test_kb004_a_deny_of_a_prefix_covers_topics_that_begin_so(build: HistoryBuilder) -> None:
    acl(resourceName="orders-eu")(build)
    acl(permissionType=2, resourceName="orders", patternType=4)(build)
    build.rows["security_changes"][-1]["subject"] = "id-2"
    assert build.raised("KB004") == []


def test_kb002_newest_is_what_all_live_nodes_support(build: HistoryBuilder) -> None:
    at_level(25, since=-40_000_000)(build)
    build.controller(2, features=supports(30))
    (finding,) = build.raised("KB002")
    assert "metadata.version=30" in finding.what_to_do
    build.controller(3, features=supports(25))
    assert build.raised("KB002") == []


def test_kb007_is_undecided_where_the_log_begins_later(build: HistoryBuilder) -> None:
    build.broker(11).is_complete = False
    assert [finding.status for finding in build.findings("KB007")] == ["undecided"]


def ghost(build: HistoryBuilder, level: int, *, supported: int, others: int) -> HistoryBuilder:
    build.three_nodes().feature("metadata.version", level)
    for node_id in (1, 2, 3):
        build.controller(node_id, features=supports(others))
    return build.controller(9, features=supports(supported))


@pytest.mark.parametrize(
    ("level", "supported", "others", "severity", "command"),
    [
        (30, 30, 33, Severity.HIGH, "kraft-audit upgrade-check /captures --to 4.4-IV2"),
        (33, 33, 33, Severity.LOW, "Unregister controller 9 if it is gone for good"),
        (30, 30, 30, Severity.LOW, "no command removes it"),
    ],
)
def test_kb008_of_a_ghost(
    build: HistoryBuilder, level: int, supported: int, others: int, severity: Severity, command: str
) -> None:
    """Unregistering is refused below 33, and the upgrade to 33 is what the ghost blocks (KAFKA-20295)."""
    (finding,) = ghost(build, level, supported=supported, others=others).raised("KB008")
    assert (finding.subject, finding.severity) == ("controller 9", severity)
    assert command in finding.what_to_do


def test_kb008_of_nodes_that_are_still_to_be_upgraded(build: HistoryBuilder) -> None:
    ghost(build, 30, supported=33, others=33).controller(3, at=9, features=supports(30))
    build.broker(11, features=supports(30), fenced=True)
    found = {finding.subject: finding for finding in build.raised("KB008")}
    assert found["controller 3"].severity is Severity.MEDIUM
    assert found["broker 11"].severity is Severity.HIGH
    assert "or unregister it if it is gone for good" in found["broker 11"].what_to_do


def test_kb010_ends_when_the_broker_registers_again(build: HistoryBuilder) -> None:
    log_dirs("first")(build)
    build.broker(11, at=30, log_dirs=["first", "second"], incarnation_id="another".ljust(22, "x"))
    assert [(f.from_offset, f.to_offset) for f in build.raised("KB010")] == [(20, 30)]


def test_kb011_epochs_of_the_only_voter_are_its_starts(build: HistoryBuilder) -> None:
    build.voters(1).capture(1, 40)
    for epoch in (1, 2):
        build.leader_epoch(epoch, 1, epoch * 10, voters=[1])
    assert build.raised("KB011") == []
    build.leader_epoch(3, 1, 30, voters=[1])
    assert [finding.from_offset for finding in build.raised("KB011")] == [10]
    build.broker(11, at=35)
    assert build.raised("KB011") == []


def test_kb011_not_where_brokers_may_stand_in_a_part_that_is_missing(build: HistoryBuilder) -> None:
    started(1, 1, 1)(build)
    build.gaps = ((5, 7),)
    assert build.raised("KB011") == []
