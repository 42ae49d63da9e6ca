"""A judgement that goes on from the rows that matter says what a judgement of the whole log says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from kraft_audit.rules.carried import carrying
from kraft_audit.rules.carried.carried_rows import CarriedRows, rules_key, sizes
from kraft_audit.rules.carried.carrying import carry
from kraft_audit.rules.carried.continued_history import until
from kraft_audit.rules.cluster_history import Contradiction
from kraft_audit.rules.registry import rules
from tests.builders.carried_judgements import Chain, Difference, judged, operation_ends_of, slowed
from tests.builders.histories import HistoryBuilder, Story
from tests.builders.log_stories import LOG_STORIES
from tests.builders.partition_stories import PARTITION_STORIES
from tests.builders.voter_stories import VOTER_STORIES

STORIES = VOTER_STORIES | LOG_STORIES | PARTITION_STORIES
COUNTED_WITHIN_AN_HOUR = {"KP012", "KB001", "KQ016"}


CUTS = 5
PACE = 4_000
"""Hours between two records: what is carried for having happened within an hour hides no row that is missing."""


def cut_differences(rule_id: str, story: Story) -> list[Difference]:
    """The differences of a story that is judged in two steps, by where the first one ends."""
    builder = HistoryBuilder()
    story(builder)
    history = builder.history()
    if rule_id not in COUNTED_WITHIN_AN_HOUR:
        history = slowed(history, PACE)
    found: list[Difference] = []
    ends = operation_ends_of(history)
    for to_offset in ends[:: len(ends) // CUTS + 1]:
        chain = Chain(history, only=[rule_id])
        chain.step(to_offset)
        found += chain.differences()
    return found


def came_back(b: HistoryBuilder) -> None:
    """Broker 13 came back uncleanly; one of two partitions has it in sync again, and other brokers change later."""
    b.three_nodes(100).brokers(11, 12, 13)
    for name in ("t-0", "t-1"):
        b.partition(name, 10, "created").partition(name, 20, "unclean_shutdown", isr=[11, 12], cause_broker_id=13)
    b.broker(13, at=22).partition("t-0", 35, "isr_expanded", isr=[11, 12, 13]).broker(13, at=45, rack="b")
    b.partition("t-0", 55, "fenced", isr=[11, 12]).partition("t-1", 65, "isr_expanded", isr=[11, 12, 13])


def contradicted(b: HistoryBuilder) -> None:
    """Broker 14 is no broker; 13 may have been unregistered before the snapshot that names it."""
    b.three_nodes(100).brokers(11, 12).partition("t-0", 10, "snapshot").partition("t-0", 35, isr=[11, 12])
    b.partition("t-1", 20, "created", replicas=[11, 14], isr=[11]).partition("t-1", 45, isr=[11], leader_epoch=2)
    b.partition("t-0", 65, isr=[11]).partition("t-1", 75, isr=[11], leader_epoch=3)
    b.contradictions = (Contradiction(33, "unknown_topic"),)


def away(b: HistoryBuilder) -> None:
    """The ISR lists 13 from the start, which was fenced before; when it is back, 12 is fenced."""
    b.three_nodes(100).brokers(11, 12, 13).broker(13, at=15, fenced=True).partition("t-0", 25, "created")
    b.broker(12, at=47, fenced=True).broker(13, at=57).partition("t-0", 77, isr=[11, 13])


def elr_cleared(b: HistoryBuilder) -> None:
    b.three_nodes(100).brokers(11, 12, 13).partition("t-0", 10, "created").partition("t-0", 20, isr=[11], elr=[12])
    b.config("TOPIC", "t", "min.insync.replicas", "1", 29).partition("t-0", 30, "elr_cleared", elr=[])
    b.config("TOPIC", "t", "min.insync.replicas", "2", 49).partition("t-0", 75, isr=[11, 12])


def allowed_twice(b: HistoryBuilder) -> None:
    b.three_nodes(100)
    for at, value in ((15, "true"), (35, "true"), (75, "false")):
        b.config("TOPIC", "t", "unclean.leader.election.enable", value, at)


def registered_again(b: HistoryBuilder) -> None:
    """A controller of an older release that registers with each start."""
    b.three_nodes(100).feature("metadata.version", 25)
    for at, level in ((11, 20), (31, 25), (41, 25), (51, 25)):
        range_ = {"name": "metadata.version", "min_supported_version": 7, "max_supported_version": level}
        b.controller(1, at=at, features=[range_])
    b.controller(2, at=61, features=[{**range_, "max_supported_version": 33}])


def deleted_after_a_loss(b: HistoryBuilder) -> None:
    """The loss stays open: no record ends it."""
    b.three_nodes(100).brokers(11, 12, 13).add(
        "topic_changes", topic="t", topic_id="t" + 21 * "x", from_offset=9, exists=True
    )
    b.feature("metadata.version", 30).partition("t-0", 10, "created").partition("t-0", 15, isr=[11, 12])
    b.partition("t-0", 20, isr=[], leader=-1, leader_epoch=1)
    elected = {"isr": [13], "leader": 13, "leader_epoch": 2, "leader_recovery_state": "RECOVERING"}
    b.partition("t-0", 25, "unclean_election", **elected).broker(12, at=35, fenced=True)
    b.add("topic_changes", topic="t", topic_id="t" + 21 * "x", from_offset=45, exists=False)
    b.partition("t-0", 45, exists=False)


def alone_in_a_named_topic(b: HistoryBuilder) -> None:
    b.three_nodes(100).brokers(11, 12, 13).add(
        "topic_changes", topic="t", topic_id="t" + 21 * "x", from_offset=9, exists=True
    )
    b.partition("t-0", 10, "created").partition("t-0", 25, isr=[11]).partition("t-0", 75, isr=[11, 12])


def acknowledged_by_fewer_for_a_while(b: HistoryBuilder) -> None:
    """t-0 has two replicas, so the replayed minimum stays 2 while that of t-1's leader goes from 3 to 2 and back."""
    b.three_nodes(100).brokers(11, 12, 13).feature("metadata.version", 30)
    b.add("topic_changes", topic="t", topic_id="t" + 21 * "x", from_offset=9, exists=True)
    b.config("TOPIC", "t", "min.insync.replicas", "3", 5).config("TOPIC", "other", "min.insync.replicas", "1", 6)
    b.partition("t-0", 10, "created", replicas=[11, 12], isr=[11, 12]).partition("t-1", 11, "created")
    b.partition("t-1", 15, "fenced", isr=[11, 12], elr=[13])
    b.config("TOPIC", "t", "min.insync.replicas", "2", 25).config("TOPIC", "t", "min.insync.replicas", "3", 35)
    b.partition("t-1", 55, "fenced", isr=[], leader=-1, leader_epoch=1, elr=[11, 12, 13])
    b.partition("t-1", 65, "unfenced", isr=[13], leader=13, leader_epoch=2, elr=[11, 12])


LONGER: dict[str, Story] = {
    "KP001": alone_in_a_named_topic,
    "KP020": deleted_after_a_loss,
    "KP008": came_back,
    "KP013": contradicted,
    "KP016": away,
    "KP007": elr_cleared,
    "KP011": allowed_twice,
    "KB008": registered_again,
}
"""Stories in which much happens between the beginning of an episode and its end."""


@pytest.mark.parametrize(("rule_id", "story"), [*sorted(LONGER.items()), ("KP020", acknowledged_by_fewer_for_a_while)])
def test_an_episode_that_began_long_before(rule_id: str, story: Story) -> None:
    builder = HistoryBuilder()
    story(builder)
    history = slowed(builder.history(), PACE)
    assert judged(history, [rule_id])
    for to_offset in operation_ends_of(history):
        chain = Chain(history, only=[rule_id])
        chain.step(to_offset)
        assert chain.differences() == [], to_offset


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


def _without_rows(name: str) -> Callable[[CarriedRows], CarriedRows]:
    return lambda state: replace(state, tables={**state.tables, name: state.tables[name].slice(0, 0)})


PARTS: dict[str, tuple[str, Callable[[CarriedRows], CarriedRows]]] = {
    "partition_changes": ("KP001", _without_rows("partition_changes")),
    "topic_changes": ("KP001", _without_rows("topic_changes")),
    "broker_changes": ("KP016", _without_rows("broker_changes")),
    "controller_changes": ("KB008", _without_rows("controller_changes")),
    "config_changes": ("KP011", _without_rows("config_changes")),
    "feature_changes": ("KP018", _without_rows("feature_changes")),
    "security_changes": ("KB004", _without_rows("security_changes")),
    "records": ("KQ017", _without_rows("records")),
    "captures": ("KV013", _without_rows("captures")),
    "batches": ("KQ001", _without_rows("batches")),
    "watermarks": ("KQ015", _without_rows("watermarks")),
    "decode_errors": ("KQ008", _without_rows("decode_errors")),
    "open episodes": ("KP001", lambda state: replace(state, episodes=replace(state.episodes, begins={}))),
    "contradictions": ("KP013", lambda state: replace(state, contradictions=())),
}
NOT_ALONE = {"voter_sets", "leader_epochs", "batch_copies"}
"""What a survey says of what is not deleted, and who else holds a batch: the random runs miss it. So they would a table
that no rule reads."""


@pytest.mark.slow
@pytest.mark.parametrize("part", sorted(PARTS))
def test_a_part_of_the_state_that_is_erased_is_missed(part: str) -> None:
    rule_id, erase = PARTS[part]
    builder = HistoryBuilder()
    LONGER.get(rule_id, STORIES.get(rule_id, (None,))[0])(builder)
    history = builder.history()
    noticed = False
    for to_offset in operation_ends_of(history):
        chain = Chain(history, only=[rule_id])
        chain.state = erase(chain.step(to_offset))
        noticed |= chain.differences() != []
    assert noticed


def test_each_carried_table_is_erased_once() -> None:
    builder = HistoryBuilder().three_nodes()
    tables = Chain(builder.history()).step(40).tables.keys()
    assert tables == PARTS.keys() - {"open episodes", "contradictions"} | NOT_ALONE


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule_id", sorted((LONGER.keys() - {"KP001"}) & {r for r, rule in rules().items() if rule.carries})
)
def test_rows_that_a_rule_asked_for_are_missed(rule_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Losses ask for whole stretches of partitions, which are what most others need.
    deaf = {**rules(), **{each: replace(rules()[each], carries=None) for each in ("KP020", rule_id)}}
    builder = HistoryBuilder()
    LONGER[rule_id](builder)
    history = slowed(builder.history(), PACE)
    monkeypatch.setattr(carrying, "rules", lambda: deaf)
    found = []
    for to_offset in operation_ends_of(history):
        chain = Chain(history, only=[rule_id])
        chain.step(to_offset)
        found += chain.differences()
    assert found
