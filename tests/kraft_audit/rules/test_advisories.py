"""Advisories are reported on request, for nodes whose release line has a release that they name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.rules.families.cluster_settings import Advisory, advisories
from kraft_audit.rules.judging import check
from kraft_audit.rules.rule_model import Status
from kraft_codec.schemas.releases import LINE_OF_LEVEL
from tests.builders.captured_histories import history_of
from tests.builders.facts import facts
from tests.builders.histories import HistoryBuilder

ALL = {"KB006": {"since_year": 2000}}


def supports(level: int) -> list[dict[str, Any]]:
    return [{"name": "metadata.version", "min_supported_version": 1, "max_supported_version": level}]


def listens(protocol: int) -> list[dict[str, Any]]:
    return [{"name": "CLIENT", "host": "b11.example", "port": 9092, "security_protocol": protocol}]


def supported(level: int) -> Callable[[HistoryBuilder], object]:
    return lambda b: b.controller(1, at=3, features=supports(level))


def advisory_summaries(build: HistoryBuilder, since_year: int = 2000) -> dict[str, str]:
    return {finding.subject: finding.summary for finding in build.raised("KB006", since_year=since_year)}


def test_raised(build: HistoryBuilder) -> None:
    supported(27)(build)
    found = build.raised("KB006", since_year=2000)
    assert [finding.subject for finding in found] == ["CVE-2026-33557"]
    assert facts(found[0].summary) >= {"1", "4.1.0", "4.1.1", "4.1.2"}


def test_near_miss_is_not_raised(build: HistoryBuilder) -> None:
    supported(29)(build)
    assert [finding.status for finding in build.findings("KB006", since_year=2000)] == [Status.CLEAR]


def test_advisories_are_silent_unless_asked_for(build: HistoryBuilder) -> None:
    supported(27)(build)
    [found] = build.findings("KB006")
    assert found.status is Status.CLEAR
    assert "KB006.since_year" in found.summary
    assert "rules.yaml" in found.summary


@pytest.mark.parametrize(
    ("level", "named"),
    [
        (11, {"CVE-2025-27817": "3.5.x (fixed in 3.9.1)", "CVE-2025-27818": "3.5.x (fixed in 3.9.1)"}),
        (19, {"CVE-2024-56128": "3.7.0 to 3.7.1 (fixed in 3.7.2)"}),
        (20, {"CVE-2024-56128": "3.8.0 (fixed in 3.8.1)"}),
        (21, {"CVE-2025-27818": "3.9.0 (fixed in 3.9.1)", "CVE-2026-33558": "3.9.0 to 3.9.1 (fixed in 3.9.2)"}),
        (25, {"CVE-2026-33558": "4.0.0 (fixed in 4.0.1)"}),
    ],
)
def test_which_releases_of_a_line_are_named(build: HistoryBuilder, level: int, named: dict[str, str]) -> None:
    build.broker(11, at=1, features=supports(level), end_points=listens(2))
    build.add("security_changes", kind="SCRAM", subject="alice", exists=True, state="{}", from_offset=5)
    found = advisory_summaries(build)
    assert {cve: f"may run {words}" in found[cve] for cve, words in named.items()} == dict.fromkeys(named, True)


def test_what_a_log_decides_is_not_guessed(build: HistoryBuilder) -> None:
    """SCRAM is in danger only unencrypted, and only where somebody has a credential; ACLs only in a migration."""
    build.broker(11, at=1, features=supports(19), end_points=listens(3))
    build.broker(12, at=1, features=supports(14), is_migrating_zk_broker=True)
    build.add("security_changes", kind="SCRAM", subject="alice", exists=True, state="{}", from_offset=5)
    assert "CVE-2024-56128" not in advisory_summaries(build), "all listeners are encrypted"
    assert "CVE-2024-27309" in advisory_summaries(build)
    build.broker(11, at=7, features=supports(19), end_points=listens(2))
    assert "CVE-2024-56128" in advisory_summaries(build)
    build.broker(12, at=8, exists=False, features=[])
    assert "CVE-2024-27309" not in advisory_summaries(build)
    build.add("security_changes", kind="SCRAM", subject="alice", exists=False, state="{}", from_offset=9)
    assert "CVE-2024-56128" not in advisory_summaries(build)


def test_only_since_the_year_that_was_asked_for(build: HistoryBuilder) -> None:
    build.controller(1, features=supports(21))
    assert set(advisory_summaries(build, 2026)) == {"CVE-2026-33558"}
    assert set(advisory_summaries(build, 2025)) == {"CVE-2025-27817", "CVE-2025-27818", "CVE-2026-33558"}
    assert advisory_summaries(build, 2027) == {}


def test_a_restart_is_no_new_finding_and_an_upgrade_ends_it(build: HistoryBuilder) -> None:
    build.controller(1, at=3, features=supports(21))
    first = build.raised("KB006", since_year=2026)
    build.controller(1, at=30, features=supports(21))
    assert [finding.finding_id for finding in build.raised("KB006", since_year=2026)] == [
        finding.finding_id for finding in first
    ]
    build.controller(1, at=50, features=supports(30))
    assert advisory_summaries(build) == {}


def test_a_level_of_no_known_release_is_undecided(build: HistoryBuilder) -> None:
    build.controller(1, features=supports(max(LINE_OF_LEVEL) + 1))
    [found] = build.findings("KB006", since_year=2000)
    assert found.status is Status.UNDECIDED
    assert "controller 1" in str(found.reason)


def test_every_range_ends_below_what_fixes_it() -> None:
    for advisory in advisories():
        assert str(advisory.year) in advisory.cve
        for first, last in advisory.affected:
            assert first <= last
            assert any(fixed > last for fixed in advisory.fixed)
            assert not any(first <= fixed <= last and fixed[:2] == last[:2] for fixed in advisory.fixed)


@given(st.sampled_from(advisories()), st.sampled_from(sorted(LINE_OF_LEVEL.values())), st.integers(0, 9))
def test_a_line_is_named_by_just_the_releases_that_the_advisory_names(
    advisory: Advisory, line: tuple[int, int], patch: int
) -> None:
    release = (*line, patch)
    named = advisory.releases_of(line)
    if named is None:
        shown = False
    elif named.endswith(".x"):
        shown = True
    else:
        first, last = (tuple(map(int, word.split("."))) for word in (named.split(" to ") * 2)[:2])
        shown = first <= release <= last
    assert shown == any(first <= release <= last for first, last in advisory.affected)
    if named is not None:
        fixed = tuple(map(int, advisory.fixed_of(line).split(".")))
        assert not any(first <= fixed <= last for first, last in advisory.affected)
        assert fixed > (*line, 0)


@pytest.mark.slow
def test_the_lines_of_real_nodes(captured_logs: Path) -> None:
    """A quorum rolled from 3.5.2 to 3.9.2 to 4.3.1: which release a node ran, the scenario says of each capture."""
    scenario = captured_logs / "static-to-dynamic-upgrade"
    reported_of: dict[str, set[str]] = {}
    for capture in json.loads((scenario / "scenario.json").read_text())["captures"]:
        running = {node["kafka"].rsplit(".", 1)[0] for node in capture["nodes"].values() if node["state"] == "running"}
        if not running:
            continue
        found = check(history_of(scenario, capture["label"]), ALL, only=["KB006"])
        lines = {
            evidence.text.split()[-1]
            for finding in found
            if finding.status is Status.RAISED
            for evidence in finding.evidence
        }
        reported_of[capture["label"]] = lines
        assert lines == running - {"4.3"}, capture["label"]
    assert {line for lines in reported_of.values() for line in lines} == {"3.5", "3.9"}
