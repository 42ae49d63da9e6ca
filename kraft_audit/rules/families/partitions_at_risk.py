"""Rules about partitions that one more failure hurts: no leader, too few replicas in sync, in one rack, or alive."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory, elr_level, unclean_election_enabled
from kraft_audit.rules.columns.captures import operation_ends
from kraft_audit.rules.columns.frame import Mask, Rows, differs_from_before
from kraft_audit.rules.columns.nodes import BrokerStates, absences, broker_states, is_active, racks, status_text
from kraft_audit.rules.columns.partition_states import (
    Episode,
    PartitionChanges,
    PartitionStates,
    alone,
    cases_where_known,
    last_row,
    offline,
    partition_case,
    partition_cases,
    partition_states,
    under_min_isr,
)
from kraft_audit.rules.registry import rule
from kraft_audit.rules.rule_model import Case, Evidence, Thresholds, threshold
from kraft_audit.text.readable import HOUR_MS, any_of, duration, plural, when

DEPARTURE_ROWS: Final = 50
"""How many changes of a partition are searched for the one by which a replica left; an incident has fewer."""
TIME_MAX_MS: Final = 1 << 61
NEVER: Final = int(np.iinfo(np.int64).max)


@rule("KP001", control="durability", needs=("partition_changes", "broker_changes"))
def kp001(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)

    def describe(episode: Episode) -> tuple[str, str | None]:
        row = last_row(states, episode)
        last = (states.nodes("isr", row) or states.nodes("elr", row))[0]
        is_down = states.leader[row] == -1
        risk = ", it must come back with its disk" if is_down else ""
        summary = f"broker {last} is the only replica left with all acknowledged records{risk}: {states.describe(row)}"
        if episode.end is not None:
            return summary, "It is resolved. Find out why it came to this, and whether that broker crashed meanwhile."
        if is_down:
            return summary, f"bring broker {last} back with its disk first ({status_text(history, last)})"
        others = [broker for broker in states.nodes("replicas", row) if broker != last]
        left = sorted((_left_isr(states, row, broker), broker) for broker in others)
        back = "; ".join(status_text(history, broker) + text for (_, text), broker in reversed(left))
        first = f"broker {left[-1][1]}" if left else "another replica"
        return summary, f"bring {first} back into the ISR before you touch broker {last}: {back}"

    episodes = states.episodes(alone(states))
    yield from partition_cases(states, episodes, map(describe, episodes))


def _left_isr(states: PartitionStates, row: int, broker: int) -> tuple[int, str]:
    """When a broker last left the ISR before a row, and how; who left last has most records."""
    first = max(row - DEPARTURE_ROWS, 0)
    for at in range(row, first, -1):
        if states.is_first[at]:
            break
        if broker in states.nodes("isr", at - 1) and broker not in states.nodes("isr", at):
            time_ms = int(states.timestamp_ms[at])
            how = states.cause(at).replace("_", " ")
            return time_ms, f", out of the ISR since {when(time_ms, int(states.timestamp_ms[row]))} ({how})"
    return -1, ""


@rule("KP002", control="durability", needs=("partition_changes", "broker_changes"))
def kp002(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)

    def describe(episode: Episode) -> tuple[str, str | None]:
        row = last_row(states, episode)
        isr, elr, last_known = (states.nodes(name, row) for name in ("isr", "elr", "last_known_elr"))
        summary = f"no leader: {states.describe(row)}"
        if episode.end is not None:
            return summary, "It is resolved. Find out which brokers were away at once, and why."
        if isr or elr:
            return summary, _bring_back_first(history, states, row, isr or elr, last_known)
        if last_known:
            return summary, (
                f"no replica is eligible: broker {last_known[0]} was the last leader and is elected when it returns, "
                "with loss if it crashed; recover-plan shows what each choice costs"
            )
        return summary, "no replica is eligible and no last leader is known: recover-plan shows what each choice costs"

    episodes = states.episodes(offline(states))
    yield from partition_cases(states, episodes, map(describe, episodes))


def _bring_back_first(
    history: ClusterHistory, states: PartitionStates, row: int, eligible: Sequence[int], last_known: Sequence[int]
) -> str:
    """Who may lead without loss. Where unclean election is on, any other replica that is live first leads instead."""
    leads = bool(last_known) and last_known[0] in eligible
    wanted = last_known[:1] if leads else eligible
    first = f"broker {any_of(wanted)}" + (", which led last," if leads else "")
    names = "; ".join(status_text(history, broker) for broker in wanted)
    others = [broker for broker in states.nodes("replicas", row) if broker not in eligible]
    when_back = "first"
    if others and unclean_election_enabled(history, states.topic(row)):
        when_back = f"before {any_of(others)}, as unclean election is on and whoever is live first leads"
    crashed = "leaves the ELR when it registers" if elr_level(history) else "leads without what it had not flushed"
    return (
        f"bring {first} back {when_back}: a member that stopped cleanly leads without loss, one that crashed {crashed} "
        f"({names})"
    )


@rule("KP005", control="durability", needs=("partition_changes",))
def kp005(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    episodes = states.episodes(under_min_isr(states))
    if not episodes:
        return
    starts = np.array([episode.start for episode in episodes], np.int64)
    ends = np.array([-1 if episode.end is None else episode.end for episode in episodes], np.int64)
    newest = np.where(ends < 0, states.newest_rows(starts), ends - 1)
    ended_ms = np.where(ends < 0, history.end_ms or 0, states.timestamp_ms[ends])
    columns = zip(
        states.size("isr")[newest].tolist(),
        states.effective_min_isr[newest].tolist(),
        (ended_ms - states.timestamp_ms[starts]).tolist(),
        strict=True,
    )
    summaries = (
        (f"ISR {isr}, min.insync.replicas {wanted}: acks=all writes were blocked for {duration(lasted_ms)}", None)
        for isr, wanted, lasted_ms in columns
    )
    yield from partition_cases(states, episodes, summaries)


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
    for episode in states.episodes(condition):
        row = last_row(states, episode)
        members = states.nodes("isr", row) + states.nodes("elr", row)
        if episode.end is None and len(members) > 1:
            yield partition_case(states, episode, f"{members} are all in rack {rack_of[members[0]]}")


def _is_one_rack(changes: PartitionChanges, rack_of: Mapping[int, int]) -> Mask:
    """Rows whose ISR and ELR members have known racks, all the same.

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
    is_one_rack: Mask = (lowest == highest) & (highest >= 0)
    return is_one_rack


@rule("KP010", control="durability", needs=("partition_changes",))
def kp010(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    changes = states.changes
    count, wanted = changes.size("replicas"), changes.effective_min_isr
    kinds: tuple[tuple[str, Mask], ...] = (
        ("replication factor 1", count == 1),
        ("effective min ISR 1 of replication factor 3 or more", (wanted == 1) & (count >= 3)),
        ("effective min ISR equal to the replication factor", (wanted == count) & (count > 1)),
    )
    for summary, condition in kinds:
        yield from _by_topic(states, states.in_order(changes.exists & condition), summary)


def _by_topic(states: PartitionStates, condition: Mask, summary: str) -> Iterator[Case]:
    """One case a topic: a setting of the topic shows in each of its partitions."""
    open_rows = np.flatnonzero(condition & states.is_last)
    if not len(open_rows):
        return
    began = np.flatnonzero(condition & ~(np.append(False, condition[:-1]) & ~states.is_first))
    starts = began[np.searchsorted(began, open_rows, side="right") - 1]
    by_topic: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for topic, offset, start in zip(
        states.topics(open_rows), states.from_offset[starts].tolist(), starts.tolist(), strict=True
    ):
        by_topic[topic].append((offset, start))
    for topic, begins in sorted(by_topic.items()):
        offset, first = min(begins)
        text = f"{summary}: {plural(len(begins), 'partition')}"
        fact = Evidence(f"{states.name(first)}: {states.describe(first)}", offset=offset)
        yield Case(f"topic {topic}", text, offset, from_ms=int(states.timestamp_ms[first]), evidence=(fact,))


@dataclass(frozen=True, slots=True)
class IsrFlappingLimits(Thresholds):
    max_changes_an_hour: int = threshold(12, "ISR changes of one partition within any hour")


@rule("KP012", control="durability", needs=("partition_changes",), thresholds=IsrFlappingLimits)
def kp012(history: ClusterHistory, limits: IsrFlappingLimits) -> Iterator[Case]:
    states = partition_states(history)
    limit = limits.max_changes_an_hour
    is_other = differs_from_before(states.changes.lists["isr"], states.order, states.is_first)
    rows = np.flatnonzero(is_other & states.exists)
    if len(rows) <= limit:
        return
    # Records may claim any time that 64 bits hold: the time between two of them must fit as well.
    group, times_ms = np.cumsum(states.is_first)[rows], states.timestamp_ms[rows].clip(-TIME_MAX_MS, TIME_MAX_MS)
    # A change and the one `limit` changes before it, where both are of one partition.
    later, earlier = slice(limit, None), slice(len(rows) - limit)
    is_storm = (group[later] == group[earlier]) & (times_ms[later] - times_ms[earlier] <= HOUR_MS)
    hits = np.flatnonzero(is_storm)
    if not len(hits):
        return
    starts = np.flatnonzero(np.append(True, np.diff(group[hits]) > 0))
    from_change = hits[starts]
    to_change = hits[np.append(starts[1:], len(hits)) - 1] + limit
    spans = zip(rows[from_change].tolist(), rows[to_change].tolist(), strict=True)
    episodes = [Episode(first, None if states.is_last[last] else last + 1) for first, last in spans]
    counts = (to_change - from_change + 1).tolist()
    texts = ((f"more than {limit} ISR changes an hour, {count} in all", None) for count in counts)
    yield from partition_cases(states, episodes, texts)


@rule("KP016", control="durability", needs=("partition_changes", "broker_changes", "batches"))
def kp016(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    spans = {broker: _spans_away(history, broker, known) for broker, known in broker_states(history).items()}
    if not any(len(began) for began, _ in spans.values()):
        return
    isr = states.changes.lists["isr"]
    until, row_of_change = states.next_offset, states.row_of_change()
    sole = (isr.lengths == 1) & (states.changes.leader == -1)
    usable = states.in_order(states.changes.exists & ~sole)
    judged_at = np.full(len(states), NEVER)
    listed_from, listed_to = np.full(len(states), NEVER), np.full(len(states), -1)
    for broker, (began, ended) in spans.items():
        rows = row_of_change[isr.row_of_value[isr.values == broker]]
        rows = rows[usable[rows]]
        # The first span that is not over when the row begins; rows that hold on after the last one are left out.
        span = np.searchsorted(ended, states.from_offset[rows], side="right")
        rows, span = rows[span < len(began)], span[span < len(began)]
        first = np.maximum(began[span], states.from_offset[rows])
        last = np.minimum(ended[span], until[rows])
        ends = operation_ends(history, first)
        lasts = (first < until[rows]) & (last >= ends)
        np.minimum.at(judged_at, rows[lasts], ends[lasts] - 1)
        np.minimum.at(listed_from, rows[lasts], first[lasts])
        np.maximum.at(listed_to, rows[lasts], last[lasts])

    def describe(episode: Episode) -> str:
        row = episode.start
        at = int(judged_at[row])
        dead = [
            status_text(history, broker, at)
            for broker in states.nodes("isr", row)
            if (s := broker_states(history).get(broker)) is not None and not is_active(s.at(at))
        ]
        return f"{states.describe(row)}: {', '.join(dead) or 'a member was fenced meanwhile'}"

    condition = judged_at < NEVER
    times = {row["from_offset"]: row["timestamp_ms"] for row in history.rows("broker_changes")}
    rows = {(states.name(row), int(states.from_offset[row])): row for row in np.flatnonzero(condition).tolist()}
    for case in cases_where_known(history, states, condition, judged_at, describe):
        row = rows[case.subject, case.from_offset or 0]
        end = row + 1
        while end < len(states) and condition[end] and not states.is_first[end]:
            end += 1
        yield _while_away(case, int(listed_from[row]), int(listed_to[row:end].max()), times)


def _while_away(case: Case, from_offset: int, to_offset: int, times: Mapping[int, int]) -> Case:
    """A case with the span in which the broker was away and listed: it begins and ends with a change of either."""
    if case.undecided is not None:
        return case
    is_open = to_offset == NEVER
    return case._replace(
        from_offset=from_offset,
        from_ms=times.get(from_offset, case.from_ms),
        to_offset=None if is_open else to_offset,
        to_ms=None if is_open else times.get(to_offset, case.to_ms),
    )


def _spans_away(history: ClusterHistory, broker: int, known: BrokerStates) -> tuple[Rows, Rows]:
    """From which offsets on a broker was not active, and until which ones, without its quick restarts."""
    began, ended = known.inactive_spans()
    quick = [each.from_offset for each in absences(history) if each.broker_id == broker and each.is_quick_restart]
    is_longer = ~np.isin(began, quick)
    return began[is_longer], ended[is_longer]
