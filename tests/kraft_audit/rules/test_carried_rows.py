"""A judgement that goes on from the rows that matter says what a judgement of the whole log says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kraft_audit.rules.carried_rows import carry, rules_key, sizes, until
from kraft_audit.rules.registry import rules
from tests.builders.carried_judgements import Chain, Difference, judged, operation_ends_of
from tests.builders.histories import HistoryBuilder, Story
from tests.builders.log_stories import LOG_STORIES
from tests.builders.partition_stories import PARTITION_STORIES
from tests.builders.voter_stories import VOTER_STORIES

STORIES = VOTER_STORIES | LOG_STORIES | PARTITION_STORIES


CUTS = 5


def cut_differences(rule_id: str, story: Story) -> list[Difference]:
    """The differences of a story that is judged in two steps, by where the first one ends."""
    builder = HistoryBuilder()
    story(builder)
    history = builder.history()
    found: list[Difference] = []
    ends = operation_ends_of(history)[:-1]
    for to_offset in ends[:: len(ends) // CUTS + 1]:
        chain = Chain(history, only=[rule_id])
        chain.step(to_offset)
        found += chain.differences()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("rule_id", sorted(STORIES))
def test_a_story_in_two_steps(rule_id: str) -> None:
    stories: Sequence[Story] = STORIES[rule_id]
    for story in stories:
        assert cut_differences(rule_id, story) == []


def test_other_thresholds_need_other_rows() -> None:
    asked = {"KP012": {"max_changes_an_hour": 3}}
    assert rules_key({}, {}) == rules_key({"KP012": rules()["KP012"].defaults}, {})
    assert len({rules_key({}, {}), rules_key(asked, {}), rules_key({}, {"min.insync.replicas": "2"})}) == 3


def test_carried_rows_do_not_grow_with_the_log(build: HistoryBuilder) -> None:
    """A broker that restarts every three hours changes each partition and its own registration, and nothing is open."""
    sizes_of = []
    for days in (1, 8):
        build = HistoryBuilder().brokers(11, 12, 13)
        for number in range(days * 8):
            at = 10 + 10_800 * number
            build.broker(13, at=at, fenced=True).broker(13, at=at + 60)
            for partition in range(4):
                build.partition(f"t-{partition}", at, isr=[11, 12]).partition(
                    f"t-{partition}", at + 60, isr=[11, 12, 13]
                )
        build.capture(1, at + 4_000)
        history = build.history()
        sizes_of.append(sizes(carry(until(history, at + 61), judged(until(history, at + 61)), at + 61)))
        assert history.table("partition_changes").num_rows == days * 8 * 8
    assert sizes_of[0] == sizes_of[1]
    assert sizes_of[0]["partition_changes"] <= 4 * 3
