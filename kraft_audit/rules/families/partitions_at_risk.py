"""Rules about partitions that one more failure hurts: no leader, too few replicas in sync, in one rack, or alive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory, elr_level, unclean_election_enabled
from kraft_audit.rules.columns.frame import ranges
from kraft_audit.rules.columns.log_batches import operation_ends
from kraft_audit.rules.columns.nodes import STATUSES, UP, BrokerStates, absences, broker_states, status_text
from kraft_audit.rules.columns.partition_cases import Span, cases_where_known, last_row, partition_cases, row_spans
from kraft_audit.rules.columns.partition_states import (
    Episode,
    PartitionStates,
    alone,
    offline,
    partition_states,
    under_min_isr,
)
from kraft_audit.rules.columns.sure_copies import has_directory
from kraft_audit.rules.columns.witnesses import witnesses
from kraft_audit.rules.registry import rule
from kraft_audit.rules.rule_model import Case, Thresholds
from kraft_audit.tables.number_arrays import Rows
from kraft_audit.text.readable import any_of, duration, when

DEPARTURE_ROWS: Final = 50
"""How many changes of a partition are searched for the one by which a replica left; an incident has fewer."""
WITH_EVERYTHING: Final = "with all acknowledged records"
"""What KP001 says of a last replica that no loss came before."""
UNREACHED_OFFSET: Final = int(np.iinfo(np.int64).max)
"""After every record: of what has not happened, or has not ended."""


@rule("KP001", control="durability", needs=("partition_changes", "broker_changes"))
def kp001(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)

    def describe(episode: Episode) -> tuple[str, str | None]:
        row = last_row(states, episode)
        last = (states.nodes("isr", row) or states.nodes("elr", row))[0]
        is_down = states.leader[row] == -1
        risk = ", it must come back with its disk" if is_down else ""
        summary = f"broker {last} is the only replica left {_what_it_holds(history, row, last)}{risk}: "
        summary += states.describe(row)
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


def _what_it_holds(history: ClusterHistory, row: int, last: int) -> str:
    """What the last eligible replica holds: everything acknowledged, unless it crashed or a loss came before."""
    known = witnesses(history, row)
    if last not in known.members:
        return "that can lead, without what it had not flushed when it crashed"
    if known.since is not None:
        return f"with what was acknowledged since {when(known.since.timestamp_ms)}"
    return WITH_EVERYTHING


def _left_isr(states: PartitionStates, row: int, broker: int) -> tuple[int, str]:
    """When a broker last left the ISR before a row, and how; who left last has most records."""
    at = _left_at(states, row, broker)
    if at is None:
        return -1, ""
    time_ms = int(states.timestamp_ms[at])
    how = states.cause(at).replace("_", " ")
    return time_ms, f", out of the ISR since {when(time_ms, int(states.timestamp_ms[row]))} ({how})"


def _left_at(states: PartitionStates, row: int, broker: int) -> int | None:
    """The row with which a broker last left the ISR, a replica ever since: one that was assigned again never was in."""
    for at in range(row, max(row - DEPARTURE_ROWS, 0), -1):
        if states.is_first[at] or broker not in states.nodes("replicas", at):
            break
        if broker in states.nodes("isr", at - 1) and broker not in states.nodes("isr", at):
            return at
    return None


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
    directories = dict(zip(states.nodes("replicas", row), states.value("directories", row) or (), strict=False))
    on_disk = [broker for broker in eligible if has_directory(history, broker, directories.get(broker, ""))]
    if not on_disk:
        return (
            f"bring the log dir of broker {any_of(eligible)} back that holds it: the broker does not have it now, and "
            "with another disk in its place it leads with an empty log. recover-plan shows what is left otherwise"
        )
    eligible = on_disk
    leads = bool(last_known) and last_known[0] in eligible
    wanted = last_known[:1] if leads else eligible
    first = f"broker {any_of(wanted)}" + (", which led last," if leads else "")
    names = "; ".join(status_text(history, broker) for broker in wanted)
    others = [broker for broker in states.nodes("replicas", row) if broker not in eligible]
    when_back = f"before {any_of(others)}" if others else "first"
    off = ""
    if not unclean_election_enabled(history, states.topic(row)):
        when_back = "first"
    elif states.size_of("replicas", row) > 1:
        stopped = {each.broker_id for each in absences(history) if each.to_offset is None and each.is_clean}
        off = "" if stopped.issuperset(wanted) else "turn unclean election off before any start, then "
        when_back += ", as unclean election is on and whoever is live first leads" * (not off and bool(others))
    crashed = "leaves the ELR when it registers" if elr_level(history) else "leads without what it had not flushed"
    return (
        f"{off}bring {first} back {when_back}: a member that stopped cleanly leads without loss, one that crashed "
        f"{crashed} ({names})"
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


@rule(
    "KP016",
    control="durability",
    needs=("partition_changes", "broker_changes", "batches"),
)
def kp016(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    spans = {broker: _spans_away(history, broker, known) for broker, known in broker_states(history).items()}
    if not any(len(began) for began, _ in spans.values()):
        return
    judged_at, listed_from, listed_to = _listed_while_away(history, states, spans)
    condition = judged_at < UNREACHED_OFFSET
    episodes = states.episodes(condition)
    if not episodes:
        return
    starts = np.array([episode.start for episode in episodes], np.int64)
    rows = np.flatnonzero(condition)
    until = np.maximum.reduceat(listed_to[rows], np.searchsorted(rows, starts))
    away = _who_is_away(history, states, starts, judged_at[starts])
    described = zip(states.descriptions(starts), away, strict=True)
    summaries = (f"{state}: {who or 'a member was fenced meanwhile'}" for state, who in described)
    listed = _listed_spans(history, listed_from[starts], until, row_spans(states, episodes))
    yield from cases_where_known(history, states, episodes, summaries, judged_at, listed)


def _listed_while_away(
    history: ClusterHistory, states: PartitionStates, spans: Mapping[int, tuple[Rows, Rows]]
) -> tuple[Rows, Rows, Rows]:
    """Of each row after which record it was judged, and from which offset until which one a member was away and listed.

    Where none was, the first two are UNREACHED_OFFSET. A last member that stays listed without a leader is left out, as
    an ISR is never empty.
    """
    isr = states.changes.lists["isr"]
    until, row_of_change = states.next_offset, states.row_of_change()
    sole = (isr.lengths == 1) & (states.changes.leader == -1)
    usable = states.in_order(states.changes.exists & ~sole)
    judged_at = np.full(len(states), UNREACHED_OFFSET)
    listed_from, listed_to = np.full(len(states), UNREACHED_OFFSET), np.full(len(states), -1)
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
    return judged_at, listed_from, listed_to


def _who_is_away(history: ClusterHistory, states: PartitionStates, rows: Rows, offsets: Rows) -> list[str]:
    """The ISR members of each row that were not up after the record at its offset: "broker 12 fenced"."""
    isr, of_table = states.changes.lists["isr"], states.order[rows]
    counts = isr.lengths[of_table].astype(np.int64)
    members, row_of = isr.values[ranges(isr.starts[of_table], counts)], np.repeat(np.arange(len(rows)), counts)
    statuses = np.full(len(members), STATUSES.index(UP))
    for broker, known in broker_states(history).items():
        its = np.flatnonzero(members == broker)
        statuses[its] = known.statuses_at(offsets[row_of[its]])
    is_away = statuses != STATUSES.index(UP)
    away = [""] * len(rows)
    columns = (column[is_away].tolist() for column in (row_of, members, statuses))
    for row, broker, status in zip(*columns, strict=True):
        before = f"{away[row]}, " if away[row] else ""
        away[row] = f"{before}broker {broker} {STATUSES[status]}"
    return away


def _listed_spans(history: ClusterHistory, froms: Rows, tos: Rows, of_rows: Iterable[Span]) -> Iterator[Span]:
    """The spans in which brokers were away and listed: each begins and ends with a change of a broker or a row."""
    times = {row["from_offset"]: row["timestamp_ms"] for row in history.rows("broker_changes")}
    for from_offset, to_offset, (_, _, from_ms, to_ms) in zip(froms.tolist(), tos.tolist(), of_rows, strict=True):
        began_ms = times.get(from_offset, from_ms)
        if to_offset == UNREACHED_OFFSET:
            yield from_offset, None, began_ms, None
        else:
            yield from_offset, to_offset, began_ms, times.get(to_offset, to_ms)


def _spans_away(history: ClusterHistory, broker: int, known: BrokerStates) -> tuple[Rows, Rows]:
    """From which offsets on a broker was not active, and until which ones, without its quick restarts.

    Nor one that may become a quick one yet: it is judged when the session has timed out.
    """
    began, ended = known.inactive_spans()
    mine = (each for each in absences(history) if each.broker_id == broker)
    quick = [each.from_offset for each in mine if each.is_quick_restart or each.may_be_quick(history.end_ms)]
    is_longer = ~np.isin(began, quick)
    return began[is_longer], ended[is_longer]
