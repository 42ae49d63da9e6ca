"""Rules about what a partition can survive: last replica, no leader, too few in sync, one rack, a broken ELR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from kraft_audit.rules.broker_states import broker_states, is_active, racks, status_text
from kraft_audit.rules.exposure import alone, offline, under_min_isr
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import Case, DeferredEvidence, Evidence, Scope, Severity, Thresholds, undecided
from kraft_audit.rules.node_lists import Mask, Rows, differs, exceeds, shares
from kraft_audit.rules.operations import operation_ends
from kraft_audit.rules.partition_states import Episode, PartitionStates, partition_states
from kraft_audit.rules.recovery import any_of, unclean_election_enabled
from kraft_audit.rules.registry import rule
from kraft_audit.rules.told_partitions import ToldPartitions
from kraft_audit.times import duration, when

DEPARTURE_ROWS = 50
"""How many changes of a partition are looked through for the one by which a replica left; an incident has fewer."""
CAUSES_THAT_RECOMPUTE_NOTHING = ("min_isr_edited", "replicas_of_partition_0", "controller_changed", "snapshot")


def partition_case(
    states: PartitionStates, episode: Episode, summary: str, *, do: str | None = None, facts: tuple[Evidence, ...] = ()
) -> Case:
    """A case about one partition: what it was, what it became, and how it ended."""
    (case,) = partition_cases(states, [episode], [(summary, do)], facts=facts)
    return case


def partition_cases(
    states: PartitionStates,
    episodes: Sequence[Episode],
    told: Iterable[tuple[str, str | None]],
    *,
    facts: tuple[Evidence, ...] = (),
) -> Iterator[Case]:
    """Cases about partitions, each with its summary and what to do.

    There may be ten thousands of them, so that what stands in columns is looked up for all at once.
    """
    starts = np.array([episode.start for episode in episodes], np.int64)
    # While an episode lasts the row of its end stands for nothing.
    ends = np.array([0 if episode.end is None else episode.end for episode in episodes], np.int64)
    columns = zip(
        episodes,
        told,
        states.names(starts),
        states.from_offset[starts].tolist(),
        states.from_offset[ends].tolist(),
        states.timestamp_ms[starts].tolist(),
        states.timestamp_ms[ends].tolist(),
        states.leader_epoch[starts].tolist(),
        strict=True,
    )
    for episode, (summary, do), name, from_offset, to_offset, from_ms, to_ms, epoch in columns:
        lasts = episode.end is None
        yield Case(
            name,
            summary,
            from_offset,
            None if lasts else to_offset,
            from_ms,
            None if lasts else to_ms,
            epoch,
            DeferredEvidence(_partition_evidence, states, episode.start, episode.end, facts),
            what_to_do=do,
        )


def _partition_evidence(
    states: PartitionStates, start: int, end: int | None, facts: tuple[Evidence, ...]
) -> tuple[Evidence, ...]:
    before, told = states.previous(start), states.describe(start)
    evidence = [
        Evidence(
            told,
            offset=int(states.from_offset[start]),
            epoch=int(states.leader_epoch[start]),
            timestamp_ms=int(states.timestamp_ms[start]),
            before=None if before is None else states.describe(before),
            after=f"{told} ({states.cause(start)})",
        ),
        *facts,
    ]
    if end is not None:
        text = states.describe(end) if states.exists[end] else "the topic was removed"
        evidence.append(
            Evidence(
                f"over: {text} ({states.cause(end)})",
                offset=int(states.from_offset[end]),
                timestamp_ms=int(states.timestamp_ms[end]),
            )
        )
    return tuple(evidence)


def _cases(
    states: PartitionStates, condition: Mask, describe: Callable[[Episode], tuple[str, str | None]]
) -> Iterator[Case]:
    episodes = states.episodes(condition)
    yield from partition_cases(states, episodes, map(describe, episodes))


def _cases_where_known(
    history: ClusterHistory,
    states: PartitionStates,
    condition: Mask,
    judged_at: Rows,
    describe: Callable[[Episode], tuple[str, str | None]],
) -> Iterator[Case]:
    """Cases of a condition that compares replayed states, that of each row as after the record at `judged_at`.

    Undecided is what was judged behind records that are missing.
    """
    known: list[Episode] = []
    for episode in states.episodes(condition):
        reason = history.unknown_before(int(judged_at[episode.start]))
        if reason is None:
            known.append(episode)
            continue
        case = undecided(states.name(episode.start), reason, from_offset=int(states.from_offset[episode.start]))
        yield case._replace(summary=f"{describe(episode)[0]}: {reason}")
    yield from partition_cases(states, known, map(describe, known))


@rule(
    "KP001", "last-replica-standing", Severity.CRITICAL, Scope.PARTITION, needs=("partition_changes", "broker_changes")
)
def kp001(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)

    def describe(episode: Episode) -> tuple[str, str | None]:
        row = _last_row(states, episode)
        last = (states.nodes("isr", row) or states.nodes("elr", row))[0]
        is_down = states.leader[row] == -1
        risk = ", it must come back with its disk" if is_down else ""
        summary = f"broker {last} alone holds what was acknowledged{risk}: {states.describe(row)}"
        if episode.end is not None:
            return summary, "it is over: find out why it came to this, and whether that broker crashed meanwhile"
        if is_down:
            return summary, f"bring broker {last} back with its disk first ({status_text(history, last)})"
        others = [broker for broker in states.nodes("replicas", row) if broker != last]
        left = sorted((_departure(states, row, broker), broker) for broker in others)
        back = "; ".join(status_text(history, broker) + text for (_, text), broker in reversed(left))
        first = f"broker {left[-1][1]}" if left else "another replica"
        return summary, f"bring {first} back into the ISR before you touch broker {last}: {back}"

    yield from _cases(states, alone(states), describe)


def _departure(states: PartitionStates, row: int, broker: int) -> tuple[int, str]:
    """When a broker left the ISR for the last time before a row, and how; the latest knows most."""
    first = max(row - DEPARTURE_ROWS, 0)
    for at in range(row, first, -1):
        if states.is_first[at]:
            break
        if broker in states.nodes("isr", at - 1) and broker not in states.nodes("isr", at):
            time_ms = int(states.timestamp_ms[at])
            how = states.cause(at).replace("_", " ")
            return time_ms, f", out of the ISR since {when(time_ms, int(states.timestamp_ms[row]))} ({how})"
    return -1, ""


def _last_row(states: PartitionStates, episode: Episode) -> int:
    """The newest row of an episode."""
    return states.newest_row(episode.start) if episode.end is None else episode.end - 1


@rule("KP002", "offline", Severity.CRITICAL, Scope.PARTITION, needs=("partition_changes", "broker_changes"))
def kp002(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)

    def describe(episode: Episode) -> tuple[str, str | None]:
        row = _last_row(states, episode)
        isr, elr, last_known = (states.nodes(name, row) for name in ("isr", "elr", "last_known_elr"))
        summary = f"no leader: {states.describe(row)}"
        if episode.end is not None:
            return summary, "it is over: find out which brokers were away at once, and why"
        if isr or elr:
            return summary, _bring_back_first(history, states, row, isr or elr, last_known)
        if last_known:
            return summary, (
                f"nobody is eligible: broker {last_known[0]} was the last leader and is elected when it returns, "
                "with loss if it crashed; recover-plan shows what each choice costs"
            )
        return summary, "nobody is eligible and no last leader is known: recover-plan shows what each choice costs"

    yield from _cases(states, offline(states), describe)


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
    return (
        f"bring {first} back {when_back}: a member that stopped cleanly leads without loss, one that crashed leaves "
        f"the ELR when it registers ({names})"
    )


@rule("KP005", "under-min-isr", Severity.HIGH, Scope.PARTITION, needs=("partition_changes",))
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
        (f"{isr} in sync of {wanted} wanted: the high watermark stood still for {duration(lasted_ms)}", None)
        for isr, wanted, lasted_ms in columns
    )
    yield from partition_cases(states, episodes, summaries)


@rule("KP006", "elr-invariant-broken", Severity.HIGH, Scope.PARTITION, needs=("partition_changes",))
def kp006(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    told = states.told
    isr, elr, replicas, expected = (told.lists[name] for name in ("isr", "elr", "replicas", "expected_elr"))
    if not len(elr.values) and not len(expected.values):
        return
    recomputed = ~told.is_cause(*CAUSES_THAT_RECOMPUTE_NOTHING)
    enough = isr.lengths >= told.effective_min_isr
    overlap, outside, kept, other = (
        states.in_order(told.exists & mask)
        for mask in (
            shares(isr, elr),
            exceeds(elr, replicas),
            (elr.lengths > 0) & enough & recomputed,
            told.has_expected & differs(elr, expected),
        )
    )

    def describe(episode: Episode) -> tuple[str, str | None]:
        row = episode.start
        found = [
            text
            for mask, text in (
                (overlap, "a node is in the ISR and in the ELR"),
                (outside, "the ELR holds a node that is no replica"),
                (kept, f"an ELR is kept though {states.size_of('isr', row)} in sync are enough"),
                (other, f"the shipped rules give ELR {states.nodes('expected_elr', row)}"),
            )
            if mask[row]
        ]
        return f"{'; '.join(found)}: {states.describe(row)}", None

    broken = overlap | outside | kept | other
    yield from _cases_where_known(history, states, broken, states.from_offset, describe)


@rule("KP009", "one-rack", Severity.HIGH, Scope.PARTITION, needs=("partition_changes", "broker_changes"))
def kp009(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    known = racks(history)
    all_brokers = [b for b, states in broker_states(history).items() if states.newest["exists"]]
    names = sorted(set(known.values()))
    if not names:
        return
    if len(names) == 1:
        if len(all_brokers) > 1 and len(known) == len(all_brokers):
            yield Case("cluster", f"all {len(all_brokers)} brokers are in rack {names[0]}", from_offset=0)
        return
    states = partition_states(history)
    numbers = {name: number for number, name in enumerate(names)}
    rack_of = {broker: numbers[rack] for broker, rack in known.items()}
    condition = states.in_order(states.told.exists & _is_one_rack(states.told, rack_of))
    if not condition[states.last_rows].any():
        return
    for episode in states.episodes(condition):
        if episode.end is None:
            row = _last_row(states, episode)
            members = states.nodes("isr", row) + states.nodes("elr", row)
            if len(members) > 1:
                yield partition_case(states, episode, f"{members} are all in rack {known[members[0]]}")


def _is_one_rack(told: ToldPartitions, rack_of: Mapping[int, int]) -> Mask:
    """Rows whose ISR and ELR members have known racks, all the same.

    Brokers are looked up, not counted up to: an id may be any number, and only as many as are registered are held.
    """
    brokers = np.array(sorted(rack_of), np.int64)
    its_rack = np.array([rack_of[broker] for broker in brokers.tolist()], np.int64)
    lowest = np.full(len(told), np.iinfo(np.int64).max)
    highest = np.full(len(told), -2, np.int64)
    for name in ("isr", "elr"):
        lists = told.lists[name]
        place = np.minimum(np.searchsorted(brokers, lists.values), len(brokers) - 1)
        rack = np.where(brokers[place] == lists.values, its_rack[place], -1)
        np.minimum.at(lowest, lists.row_of_value, rack)
        np.maximum.at(highest, lists.row_of_value, rack)
    one_rack: Mask = (lowest == highest) & (highest >= 0)
    return one_rack


@rule(
    "KP016",
    "isr-on-dead-broker",
    Severity.HIGH,
    Scope.PARTITION,
    needs=("partition_changes", "broker_changes", "batches"),
)
def kp016(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    away = {broker: known.inactive_spans() for broker, known in broker_states(history).items()}
    if not any(len(began) for began, _ in away.values()):
        return
    isr = states.told.lists["isr"]
    until, row_of_told = states.next_offset, states.row_of_told()
    sole = (isr.lengths == 1) & (states.told.leader == -1)
    usable = states.in_order(states.told.exists & ~sole)
    never = np.iinfo(np.int64).max
    judged_at = np.full(len(states), never)
    for broker, (began, ended) in away.items():
        rows = row_of_told[isr.row_of_value[isr.values == broker]]
        rows = rows[usable[rows]]
        # The first span that is not over when the row begins; rows that hold on after the last one are left out.
        span = np.searchsorted(ended, states.from_offset[rows], side="right")
        rows, span = rows[span < len(began)], span[span < len(began)]
        first = np.maximum(began[span], states.from_offset[rows])
        last = np.minimum(ended[span], until[rows])
        ends = operation_ends(history, first)
        lasts = (first < until[rows]) & (last >= ends)
        np.minimum.at(judged_at, rows[lasts], ends[lasts] - 1)

    def describe(episode: Episode) -> tuple[str, str | None]:
        row = episode.start
        stop = int(until[row])
        at = stop - 1
        dead = [
            status_text(history, broker, at)
            for broker in states.nodes("isr", row)
            if (s := broker_states(history).get(broker)) is not None and not is_active(s.at(at))
        ]
        return f"{states.describe(row)}: {', '.join(dead) or 'a member was fenced meanwhile'}", None

    yield from _cases_where_known(history, states, judged_at < never, judged_at, describe)
