"""A finding is the same one in every run: by what it is about, never by a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_audit.rules import judging
from kraft_audit.rules.rule_model import Finding, Status
from tests.builders.captured_histories import shared_ids
from tests.builders.histories import HistoryBuilder, directory
from tests.builders.log_stories import LOG_STORIES
from tests.builders.partition_stories import PARTITION_STORIES, then
from tests.builders.voter_stories import VOTER_STORIES

STORIES = VOTER_STORIES | LOG_STORIES | PARTITION_STORIES


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The key of each case that becomes a finding, with its rule."""
    seen: list[tuple[str, str]] = []
    finding_of = judging.finding_of

    def noted(rule: Any, *values: Any) -> Finding:
        seen.append((rule.id, str(values[3]) if len(values) > 3 else ""))
        return finding_of(rule, *values)

    monkeypatch.setattr(judging, "finding_of", noted)
    return seen


@pytest.mark.slow
def test_no_two_findings_of_a_sample_share_an_id(samples: Path, keys: list[tuple[str, str]]) -> None:
    for archive in sorted(samples.glob("*.tgz")):
        with kraft_audit.open(str(archive)) as clusters:
            for cluster in clusters:
                findings = [each for each in cluster.check() if each.status is not Status.CLEAR]
                assert not shared_ids(findings), archive.name
    assert keys
    assert not [key for key in keys if " #" in key[1]]


@pytest.mark.parametrize("rule_id", sorted(STORIES))
def test_no_two_findings_of_a_story_share_an_id(rule_id: str, keys: list[tuple[str, str]]) -> None:
    for story in STORIES[rule_id]:
        builder = HistoryBuilder()
        story(builder)
        assert not shared_ids(judging.check(builder.history(), only=[rule_id]))
    assert not [key for key in keys if " #" in key[1]]


@pytest.mark.parametrize("rule_id", ["KQ001", "KQ004", "KQ008", "KQ012", "KQ014"])
def test_what_a_disk_showed_stays_the_same_finding_once_another_one_is_in_its_place(rule_id: str) -> None:
    """With another id it would vanish, and count as a new one."""
    builder = HistoryBuilder()
    STORIES[rule_id][0](builder)
    before = {each.finding_id for each in builder.raised(rule_id)}
    for node_id in (1, 2, 3):
        builder.capture(node_id, 0, when=3_600_000, directory_id=directory(node_id, 1), capture_number=9)
    assert {each.finding_id for each in builder.raised(rule_id)} == before


def test_episodes_of_a_partition_are_one_finding(build: HistoryBuilder) -> None:
    then({"isr": [13], "leader": 13, "cause": "fenced"}, {"isr": [13, 12], "cause": "isr_expanded"})(build)
    build.partition("t-0", 50, "fenced", isr=[13]).broker(12, at=51, fenced=True)
    past, now = build.raised("KP001")
    assert past.from_offset != now.from_offset
    assert past.finding_id == now.finding_id


def test_a_topic_that_was_created_again_is_another_subject(build: HistoryBuilder) -> None:
    build.add("topic_changes", topic="t", topic_id="first", from_offset=1, exists=True)
    build.add("topic_changes", topic="t", topic_id="second", from_offset=40, exists=True)
    then({"isr": [13], "leader": 13, "cause": "fenced"}, {"isr": [13, 12], "cause": "isr_expanded"})(build)
    build.partition("t-0", 50, "fenced", isr=[13]).broker(12, at=51, fenced=True)
    past, now = build.raised("KP001")
    assert past.subject == now.subject
    assert past.finding_id != now.finding_id
