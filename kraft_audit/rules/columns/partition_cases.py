"""Cases about partitions, from the episodes of a condition: ten thousands of them, so columns are read at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.partition_states import Episode, PartitionStates
from kraft_audit.rules.rule_model import Case, DeferredEvidence, Evidence, undecided
from kraft_audit.tables.number_arrays import Rows

CASES_AT_ONCE: Final = 500
Span = tuple[int, int | None, int, int | None]
"""The first offset of a case, its end, and the times of both; no end while it lasts."""


def partition_case(states: PartitionStates, episode: Episode, summary: str, *facts: Evidence) -> Case:
    """A case about one partition: what it was, what it became, and how it ended."""
    (case,) = partition_cases(states, [episode], [(summary, None)], facts)
    return case


def partition_cases(
    states: PartitionStates,
    episodes: Sequence[Episode],
    texts: Iterable[tuple[str, str | None]],
    facts: tuple[Evidence, ...] = (),
    spans: Iterable[Span] | None = None,
) -> Iterator[Case]:
    """Cases about partitions, each with its summary and what to do.

    There may be ten thousands of them, so columns are looked up for all at once. `spans`: when each began and ended,
    where those are not the records of its first row and of the row after it.
    """
    starts = np.array([episode.start for episode in episodes], np.int64)
    spans = row_spans(states, episodes) if spans is None else spans
    epochs = states.leader_epoch[starts].tolist()
    for place, ((summary, do), name, epoch, (from_offset, to_offset, from_ms, to_ms)) in enumerate(
        zip(texts, states.names(starts), epochs, spans, strict=True)
    ):
        if place % CASES_AT_ONCE == 0:
            some = _EvidenceOfMany(states, episodes[place : place + CASES_AT_ONCE], facts)
        evidence = DeferredEvidence(some.of, place % CASES_AT_ONCE)
        yield Case(name, summary, from_offset, to_offset, from_ms, to_ms, epoch, evidence, what_to_do=do)


def row_spans(states: PartitionStates, episodes: Sequence[Episode]) -> Iterator[Span]:
    """When each episode began and ended, by the records that wrote its first row and the row after it."""
    starts = np.array([episode.start for episode in episodes], np.int64)
    # While an episode lasts the row of its end stands for nothing.
    ends = np.array([0 if episode.end is None else episode.end for episode in episodes], np.int64)
    offsets, times_ms = states.from_offset, states.timestamp_ms
    columns = (column[rows].tolist() for column in (offsets, times_ms) for rows in (starts, ends))
    for episode, from_offset, to_offset, from_ms, to_ms in zip(episodes, *columns, strict=True):
        yield (from_offset, None, from_ms, None) if episode.end is None else (from_offset, to_offset, from_ms, to_ms)


class _EvidenceOfMany:
    """The evidence of some hundreds of cases, put into words when that of one is asked for, and kept with them."""

    def __init__(self, states: PartitionStates, episodes: Sequence[Episode], facts: tuple[Evidence, ...]) -> None:
        self._states = states
        self._episodes = episodes
        self._facts = facts

    def of(self, place: int) -> tuple[Evidence, ...]:
        """The evidence of the case at a place."""
        return self._made[place]

    @cached_property
    def _made(self) -> list[tuple[Evidence, ...]]:
        return list(self._make())

    def _make(self) -> Iterator[tuple[Evidence, ...]]:
        states, episodes = self._states, self._episodes
        starts = np.array([episode.start for episode in episodes], np.int64)
        ends = np.array([episode.end for episode in episodes if episode.end is not None], np.int64)
        earlier = iter(states.descriptions(starts[~states.is_first[starts]] - 1))
        columns = (states.from_offset, states.leader_epoch, states.timestamp_ms, states.is_first)
        rows = zip(*(column[starts].tolist() for column in columns), strict=True)
        endings = self._endings(ends)
        for episode, row, state, cause in zip(
            episodes, rows, states.descriptions(starts), states.causes(starts), strict=True
        ):
            offset, epoch, time_ms, is_first = row
            before = None if is_first else next(earlier)
            fact = Evidence(
                state, offset=offset, epoch=epoch, timestamp_ms=time_ms, before=before, after=f"{state} ({cause})"
            )
            yield (fact, *self._facts) if episode.end is None else (fact, *self._facts, next(endings))

    def _endings(self, ends: Rows) -> Iterator[Evidence]:
        """What shows that cases are over, by the rows that end them."""
        states = self._states
        columns = (column[ends].tolist() for column in (states.exists, states.from_offset, states.timestamp_ms))
        for state, cause, exists, offset, time_ms in zip(
            states.descriptions(ends), states.causes(ends), *columns, strict=True
        ):
            text = f"resolved: {state if exists else 'the topic was removed'} ({cause})"
            yield Evidence(text, offset=offset, timestamp_ms=time_ms)


def cases_where_known(
    history: ClusterHistory,
    states: PartitionStates,
    episodes: Sequence[Episode],
    summaries: Iterable[str],
    judged_at: Rows,
    spans: Iterable[Span] | None = None,
) -> Iterator[Case]:
    """Cases of a condition that compares replayed states, that of each row as after the record at `judged_at`.

    What was judged after missing records is undecided. `summaries` and `spans`: one for each episode.
    """
    spans = row_spans(states, episodes) if spans is None else spans
    texts = ((summary, None) for summary in summaries)
    if history.unknown_from is None:
        yield from partition_cases(states, episodes, texts, spans=spans)
        return
    offsets = judged_at[np.array([episode.start for episode in episodes], np.int64)].tolist()
    known: list[tuple[Episode, tuple[str, None], Span]] = []
    for episode, text, span, offset in zip(episodes, texts, spans, offsets, strict=True):
        reason = history.unknown_before(offset)
        if reason is None:
            known.append((episode, text, span))
            continue
        case = undecided(states.name(episode.start), reason, from_offset=int(states.from_offset[episode.start]))
        yield case._replace(summary=f"{text[0]}: {reason}")
    if known:
        of_known, known_texts, known_spans = zip(*known, strict=True)
        yield from partition_cases(states, of_known, known_texts, spans=known_spans)


def last_row(states: PartitionStates, episode: Episode) -> int:
    """The newest row of an episode."""
    return states.newest_row(episode.start) if episode.end is None else episode.end - 1


def until_enough_in_sync(states: PartitionStates, row: int) -> Episode:
    """From a row to the one from which on enough replicas are in sync again, or the topic is gone."""
    for end in range(row + 1, states.newest_row(row) + 1):
        if not states.exists[end] or states.size_of("isr", end) >= states.effective_min_isr[end]:
            return Episode(row, end)
    return Episode(row, None)
