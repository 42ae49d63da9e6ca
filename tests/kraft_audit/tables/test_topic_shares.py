"""Each topic is in one share, whichever way its rows come."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.tables.topic_shares import PART_COUNT, TopicShare, topic_number, topic_numbers

TOPICS = [f"topic-{number:016d}" for number in range(2_000)]


@given(st.integers(1, PART_COUNT), st.text(min_size=1, max_size=22))
def test_a_topic_is_in_one_share(count: int, topic_id: str) -> None:
    assert sum(TopicShare(number, count).has(topic_id) for number in range(count)) == 1


def test_the_last_share_has_fewer_topics() -> None:
    sizes = [sum(map(TopicShare(number, 4).has, TOPICS)) for number in range(4)]
    assert sum(sizes) == len(TOPICS)
    assert max(sizes[:3]) < 1.2 * min(sizes[:3])
    assert 0.7 < sizes[3] / (sum(sizes[:3]) / 3) < 1.0


def test_a_share_is_of_whole_parts() -> None:
    """So that parts that were judged one after the other are those that shares judge, in the same order."""
    shares = {}
    for topic_id in TOPICS:
        number = next(each for each in range(3) if TopicShare(each, 3).has(topic_id))
        assert shares.setdefault(topic_number(topic_id) % PART_COUNT, number) == number
    assert [shares[part] for part in sorted(shares)] == sorted(shares.values())


def test_the_numbers_of_a_column_are_those_of_its_values() -> None:
    topic_ids = ["a", "b", "a", "c"]
    assert topic_numbers(pa.array(topic_ids)).tolist() == [topic_number(each) for each in topic_ids]
    assert topic_numbers(pa.array([], pa.string())).tolist() == []
