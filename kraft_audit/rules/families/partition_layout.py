"""Rules about where replicas are and how many: members in one rack, and settings under which one failure is enough."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.frame import coded
from kraft_audit.rules.columns.nodes import RackHistory, broker_states, rack_history, racks
from kraft_audit.rules.columns.partition_cases import partition_case
from kraft_audit.rules.columns.partition_states import Episode, PartitionChanges, PartitionStates, partition_states
from kraft_audit.rules.registry import rule
from kraft_audit.rules.rule_model import Case, Evidence, Thresholds
from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_audit.text.readable import plural

_NOW: Final = 1 << 62


@rule("KP009", control="durability", needs=("partition_changes", "broker_changes"))
def kp009(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    rack_of = racks(history)
    registered = [broker for broker, known in broker_states(history).items() if known.newest["exists"]]
    names = sorted(set(rack_of.values()))
    if len(names) < 2:
        if names and len(registered) > 1 and len(rack_of) == len(registered):
            yield Case("cluster", f"all {len(registered)} brokers are in rack {names[0]}", from_offset=0)
        return
    states = partition_states(history)
    numbers = {broker: names.index(rack) for broker, rack in rack_of.items()}
    condition = states.in_order(states.changes.exists & _is_one_rack(states.changes, numbers))
    if not condition[states.last_rows].any():
        return
    moments = rack_history(history)
    for episode in states.episodes(condition):
        if episode.end is None:
            row, from_offset = _one_rack_since(states, episode, moments)
            members = _members(states, states.newest_row(row))
            case = partition_case(states, Episode(row, None), f"{list(members)} are all in rack {rack_of[members[0]]}")
            at_record = int(states.from_offset[row]) == from_offset
            # A broker that came with another rack changed no partition: the state began before.
            yield case if at_record else case._replace(from_offset=from_offset, from_ms=moments.time_at(from_offset))


def _members(states: PartitionStates, row: int) -> tuple[int, ...]:
    return (*states.nodes("isr", row), *states.nodes("elr", row))


def _one_rack_since(states: PartitionStates, episode: Episode, moments: RackHistory) -> tuple[int, int]:
    """The row in effect, and the offset, from which on the members of a partition were in one rack, with others in
    another."""
    if moments.newest_change < states.from_offset[episode.start]:
        return episode.start, int(states.from_offset[episode.start])
    row = states.newest_row(episode.start)
    start, to_offset = (row, int(states.from_offset[row])), _NOW
    while states.exists[row]:
        begin = int(states.from_offset[row])
        since = moments.since(_members(states, row), to_offset, begin)
        if since is None:
            break
        start = row, since
        if since > begin or states.is_first[row]:
            break
        row, to_offset = row - 1, begin - 1
    return start


def _is_one_rack(changes: PartitionChanges, rack_of: Mapping[int, int]) -> Mask:
    """Rows with several ISR and ELR members that have known racks, all the same.

    Brokers are looked up, not counted up to: an id may be any number, and only as many as are registered are held.
    """
    brokers = np.array(sorted(rack_of), np.int64)
    its_rack = np.array([rack_of[broker] for broker in brokers.tolist()], np.int64)
    lowest = np.full(len(changes), np.iinfo(np.int64).max)
    highest = np.full(len(changes), -2, np.int64)
    for name in ("isr", "elr"):
        lists = changes.lists[name]
        place = np.minimum(np.searchsorted(brokers, lists.values), len(brokers) - 1)
        rack = np.where(brokers[place] == lists.values, its_rack[place], -1)
        np.minimum.at(lowest, lists.row_of_value, rack)
        np.maximum.at(highest, lists.row_of_value, rack)
    are_several = changes.size("isr") + changes.size("elr") > 1
    is_one_rack: Mask = are_several & (lowest == highest) & (highest >= 0)
    return is_one_rack


@rule("KP010", control="durability", needs=("partition_changes",))
def kp010(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    changes = states.changes
    count, wanted = changes.size("replicas"), changes.effective_min_isr
    kinds: tuple[tuple[str, str, Mask], ...] = (
        ("one-replica", "replication factor 1", count == 1),
        ("min-isr-1", "effective min ISR 1 of replication factor 3 or more", (wanted == 1) & (count >= 3)),
        ("min-isr-all", "effective min ISR equal to the replication factor", (wanted == count) & (count > 1)),
    )
    for kind, summary, condition in kinds:
        yield from _by_topic(states, states.in_order(changes.exists & condition), kind, summary)


@dataclass(frozen=True, slots=True)
class _Weakness:
    """A topic with partitions that are weak now: `first` is the row with which their count left 0 last."""

    first: int
    count: int


def _by_topic(states: PartitionStates, condition: Mask, kind: str, summary: str) -> Iterator[Case]:
    """One case a topic: a setting of the topic shows in each of its partitions."""
    weak_topics = _weak_topics(states, condition)
    for topic, weak in sorted(zip(states.topics(_firsts(weak_topics)), weak_topics, strict=True), key=itemgetter(0)):
        first = weak.first
        key = f"{states.value('topic_id', first)} {kind}"
        offset = int(states.from_offset[first])
        text = f"{summary}: {plural(weak.count, 'partition')}"
        fact = Evidence(f"{states.name(first)}: {states.describe(first)}", offset=offset)
        yield Case(f"topic {topic}", text, offset, from_ms=int(states.timestamp_ms[first]), evidence=(fact,), key=key)


def _firsts(weak_topics: Sequence[_Weakness]) -> Rows:
    return np.array([weak.first for weak in weak_topics], np.int64)


def _weak_topics(states: PartitionStates, condition: Mask) -> list[_Weakness]:
    """A case begins when the first partition of a topic becomes weak, and lasts until none is."""
    is_open = condition & states.is_last
    if not is_open.any():
        return []
    topics = coded(states.changes.table["topic_id"])[0][states.order]
    rows = np.flatnonzero(condition & np.isin(topics, topics[is_open]))
    follows = np.append(False, condition[:-1]) & ~states.is_first
    begins = rows[~follows[rows]]
    ends = _run_ends(states, condition, begins)
    order = np.lexsort((begins, states.from_offset[begins], topics[begins]))
    begins, ends, topic = begins[order], ends[order], topics[begins[order]]
    rank = np.unique(topic, return_inverse=True)[1].reshape(-1)
    offsets, ends = _as_places(states.from_offset[begins], ends)
    # Of each topic in turn, the furthest end so far: who begins after it found no weak partition left.
    span = int(ends.max()) + 1
    reach = np.maximum.accumulate(rank * span + ends)
    places = np.flatnonzero(np.append(True, (np.diff(rank) > 0) | (offsets[1:] + rank[1:] * span > reach[:-1])))
    last = places[np.append(rank[places][1:] > rank[places][:-1], True)]
    counts = np.bincount(rank[ends == span - 1])
    return [_Weakness(int(begins[place]), int(counts[rank[place]])) for place in last.tolist()]


def _as_places(*offsets: Rows) -> tuple[Rows, ...]:
    """Offsets as small numbers in the same order: a log may claim any offset that 64 bits hold."""
    places = np.unique(np.concatenate(offsets), return_inverse=True)[1].reshape(-1)
    return tuple(np.split(places, np.cumsum([len(each) for each in offsets])[:-1]))


def _run_ends(states: PartitionStates, condition: Mask, begins: Rows) -> Rows:
    """Where the run of rows ends that begins with each row; the largest int64 while it lasts."""
    holds_on = np.append(condition[1:], False) & ~states.is_last
    last = np.flatnonzero(condition & ~holds_on)
    ends: Rows = states.next_offset[last[np.searchsorted(last, begins)]]
    return ends
