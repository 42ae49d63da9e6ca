"""Rules about how leaders came about: unclean, last known, while fenced; and how the ELR was lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from kraft_audit.rules.broker_states import broker_states, status_text
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import Case, Evidence, Scope, Severity, Thresholds, undecided
from kraft_audit.rules.node_lists import Mask, rows_with
from kraft_audit.rules.operations import operation_ends
from kraft_audit.rules.partition_states import Episode, PartitionStates, partition_states
from kraft_audit.rules.partitions import partition_case
from kraft_audit.rules.registry import rule

SHOWN = 20


def _stake(states: PartitionStates, row: int) -> tuple[Evidence, ...]:
    """From when on records may be missing: since the partition last had a leader that was in sync."""
    before = states.previous(row)
    if before is None:
        return ()
    led = before
    while not states.is_first[led] and states.leader[led] == -1:
        led -= 1
    seconds = (int(states.timestamp_ms[row]) - int(states.timestamp_ms[led])) / 1000
    return (
        Evidence(
            f"last state with a leader: {states.describe(led)}, {seconds:.1f} s before; what was acknowledged "
            "until then and did not reach the new leader is lost",
            offset=int(states.from_offset[led]),
            epoch=int(states.leader_epoch[led]),
            timestamp_ms=int(states.timestamp_ms[led]),
        ),
    )


def _until_enough_in_sync(states: PartitionStates, row: int) -> Episode:
    """From a row to the one from which on enough replicas are in sync again, or the topic is gone."""
    end = row + 1
    while end <= states.newest_row(row):
        if not states.exists[end] or states.size_of("isr", end) >= states.effective_min_isr[end]:
            return Episode(row, end)
        end += 1
    return Episode(row, None)


def _recovery(states: PartitionStates, row: int) -> Episode:
    """From the election to the record that says RECOVERED."""
    end = row + 1
    while end <= states.newest_row(row) and states.recovering[end]:
        end += 1
    return Episode(row, end if end <= states.newest_row(row) else None)


def _unclean_text(states: PartitionStates, row: int) -> str:
    """Who was elected, and which eligible members that gave up."""
    leader, before = int(states.leader[row]), states.previous(row)
    elr = [] if before is None else [broker for broker in states.nodes("elr", before) if broker != leader]
    text = f"broker {leader} was elected from outside ISR and ELR"
    if states.value("election", row) == "last_known":
        return f"{text}, as the last known leader"
    return f"{text}, given up: ELR {elr}" if elr else text


@rule("KP003", "unclean-election", Severity.CRITICAL, Scope.PARTITION, needs=("partition_changes",))
def kp003(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    told = states.told
    for row in states.rows_of(told.exists & told.is_election("unclean", "last_known")).tolist():
        yield partition_case(states, _recovery(states, row), _unclean_text(states, row), facts=_stake(states, row))
    from_snapshot = states.rows_of(told.exists & told.is_cause("snapshot"))
    from_snapshot = from_snapshot[states.is_first[from_snapshot]]
    if not len(from_snapshot):
        return
    for row in from_snapshot[states.recovering[from_snapshot]].tolist():
        yield undecided(
            states.name(row),
            "RECOVERING in a snapshot: the record of its election is gone",
            from_offset=int(states.from_offset[row]),
        )


@rule("KP004", "last-known-leader-elected", Severity.HIGH, Scope.PARTITION, needs=("partition_changes",))
def kp004(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    for row in states.rows_of(states.told.exists & states.told.is_election("last_known")).tolist():
        summary = f"broker {int(states.leader[row])}, the last known leader, was elected with ISR and ELR empty"
        yield partition_case(states, _recovery(states, row), summary, facts=_stake(states, row))


@rule(
    "KP017", "fenced-leader-elected", Severity.CRITICAL, Scope.PARTITION, needs=("partition_changes", "broker_changes")
)
def kp017(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    for row in states.rows_of(states.told.exists & states.told.is_election("last_known")).tolist():
        leader, offset = int(states.leader[row]), int(states.from_offset[row])
        known = broker_states(history).get(leader)
        state = None if known is None else known.at(offset)
        if state is not None and (state["fenced"] or not state["exists"]):
            if (unknown := history.unknown_before(offset)) is not None:
                yield undecided(
                    states.name(row), f"{status_text(history, leader, offset)}: {unknown}", from_offset=offset
                )
                continue
            summary = f"the last known leader was elected, and is {status_text(history, leader, offset)}"
            fact = Evidence(status_text(history, leader, offset), offset=state["from_offset"])
            end = row + 1 if row < states.newest_row(row) else None
            yield partition_case(states, Episode(row, end), summary, facts=(fact,))


@rule("KP007", "elr-wiped-by-config", Severity.MEDIUM, Scope.PARTITION, needs=("partition_changes", "config_changes"))
def kp007(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    if not len(states.told.lists["elr"].values):
        return
    elr, isr = states.size("elr"), states.size("isr")
    had = np.append(0, elr[:-1]) * ~states.is_first > 0 if len(states) else np.zeros(0, bool)
    is_gone = states.exists & had & (elr == 0)
    by_directory = (
        is_gone & states.in_order(states.told.is_cause("directory_assigned")) & (isr < states.effective_min_isr)
    )
    writes = sorted(
        (row for row in history.rows("config_changes") if row["name"] == "min.insync.replicas"),
        key=lambda row: row["from_offset"],
    )
    offsets = np.array([row["from_offset"] for row in writes], np.int64)
    by_config = is_gone & states.in_order(states.told.is_cause("elr_cleared"))
    for row in np.flatnonzero(by_config | by_directory).tolist():
        lost = states.nodes("elr", row - 1)
        if by_directory[row]:
            summary = f"a directory assignment wiped ELR {lost} (4.0.0 to 4.2.0)"
            yield partition_case(states, _until_enough_in_sync(states, row), summary)
            continue
        place = int(np.searchsorted(offsets, states.from_offset[row])) - 1
        if place < 0:
            yield partition_case(states, _until_enough_in_sync(states, row), f"ELR {lost} was cleared")
            continue
        write = writes[place]
        where = f"{write['resource_type']} {write['resource_name'] or '(all brokers)'}"
        text = f"min.insync.replicas of {where} := {write['value']}"
        fact = Evidence(text, offset=write["from_offset"], timestamp_ms=write["timestamp_ms"])
        episode = _until_enough_in_sync(states, row)
        yield partition_case(states, episode, f"{text} cleared ELR {lost}", facts=(fact,))


def _around_unclean_shutdowns(history: ClusterHistory) -> Mask:
    """The rows that KP008 looks at: each fall, the state before it and the newest one of its partition."""
    states = partition_states(history)
    rows = states.rows_of(states.told.is_cause("unclean_shutdown"))
    before = rows[~states.is_first[rows]] - 1
    return rows_with(len(states), np.concatenate([rows, before, states.newest_rows(rows)]))


@rule(
    "KP008",
    "unclean-shutdown",
    Severity.MEDIUM,
    Scope.BROKER,
    needs=("partition_changes", "broker_changes", "batches"),
    across=_around_unclean_shutdowns,
)
def kp008(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    by_return: dict[tuple[int, int], list[int]] = defaultdict(list)
    fallen = states.rows_of(states.told.is_cause("unclean_shutdown"))
    ends = operation_ends(history, states.from_offset[fallen])
    for row, end in zip(fallen.tolist(), ends.tolist(), strict=True):
        broker = states.value("cause_broker_id", row)
        known = broker_states(history).get(broker)
        registration = -1
        if known is not None:
            place = int(np.searchsorted(known.offsets, states.from_offset[row]))
            registration = int(known.offsets[place]) if place < len(known.offsets) else -1
        # A leader may have taken it out a moment before: that is an operation of its own, in a batch of its own.
        if end > registration:
            by_return[broker, registration].append(row)
    for (broker, registration), rows in sorted(by_return.items()):
        rows.sort(key=lambda row: int(states.from_offset[row]))
        first = rows[0]
        names = list(dict.fromkeys(states.name(row) for row in rows))
        shown = ", ".join(names[:SHOWN]) + ("" if len(names) <= SHOWN else " …")
        noun = "partition" if len(names) == 1 else "partitions"
        facts = [
            Evidence(
                f"{states.name(row)}: {states.describe(row)}",
                offset=int(states.from_offset[row]),
                before=None if states.is_first[row] else states.describe(row - 1),
                after=states.describe(row),
            )
            for row in rows[:SHOWN]
        ]
        came = f"registration at offset {registration}" if registration >= 0 else "its registration was not read"
        yield Case(
            f"broker {broker}",
            f"came back uncleanly ({came}): out of ISR or ELR of {len(names)} {noun}: {shown}",
            from_offset=int(states.from_offset[first]),
            from_ms=int(states.timestamp_ms[first]),
            evidence=tuple(facts),
            is_over=all(_is_back(states, row, broker) for row in rows),
        )


def _is_back(states: PartitionStates, row: int, broker: int) -> bool:
    """Whether the broker is in sync again where it fell out, or the partition is gone or no longer its own."""
    newest = states.newest_row(row)
    return (
        not states.exists[newest]
        or broker in states.nodes("isr", newest)
        or broker not in states.nodes("replicas", newest)
    )


def _moved_replicas(states: PartitionStates, row: int) -> bool:
    """Whether replicas came or went: another order of the same ones completes nothing (facts 6.1 step 1)."""
    before = states.previous(row)
    if before is None:
        return False
    was_under_way = states.size_of("adding_replicas", before) + states.size_of("removing_replicas", before) > 0
    return was_under_way or set(states.nodes("replicas", before)) != set(states.nodes("replicas", row))


@rule("KP014", "reassignment-below-min-isr", Severity.MEDIUM, Scope.PARTITION, needs=("partition_changes",))
def kp014(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    told = states.told
    is_completed = told.is_cause("reassignment_completed") & told.exists
    for row in states.rows_of(is_completed & (told.size("isr") < told.effective_min_isr)).tolist():
        if not _moved_replicas(states, row):
            continue
        wanted = int(states.effective_min_isr[row])
        summary = f"a reassignment completed with {states.size_of('isr', row)} in sync of {wanted} wanted"
        yield partition_case(states, _until_enough_in_sync(states, row), summary)
