"""Episodes that are held as numbers are counted as those that are held as they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.rules.judging import EpisodeCounts, JudgedEpisodes

EPISODES = st.tuples(st.text(max_size=3), st.none() | st.integers(-2, 2))


@given(st.lists(EPISODES, max_size=60))
def test_each_episode_counts_as_often_as_it_came(episodes: list[tuple[str, int | None]]) -> None:
    counts, judged = EpisodeCounts(), JudgedEpisodes()
    assert not judged
    for episode in episodes:
        assert (episode in judged) == (episode in counts)
        assert judged.add(episode) == counts.add(episode)
    assert len(judged) == len(counts)


def test_many_are_distinct_in_a_few_bytes_each() -> None:
    episodes = [(f"topic-{number}", number % 7) for number in range(20_000)]
    judged = JudgedEpisodes()
    assert {judged.add(episode) for episode in episodes} == {1}
    assert len(judged) == len(episodes)
    assert judged.size_bytes <= 40 * len(episodes)
    assert {judged.add(episode) for episode in episodes} == {2}
    assert ("topic-1", 2) not in judged
