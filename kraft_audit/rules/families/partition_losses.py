"""Rules about what partitions may have lost: by leaders that were elected, and by brokers that came back uncleanly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Final

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory, unclean_election_enabled
from kraft_audit.rules.columns.frame import distinct, rows_with
from kraft_audit.rules.columns.log_batches import batches_of_operations, operation_ends
from kraft_audit.rules.columns.nodes import broker_states, status_text
from kraft_audit.rules.columns.open_episodes import as_table_rows, begins_of, rows_at, with_previous
from kraft_audit.rules.columns.partition_states import Episode, PartitionStates, partition_case, partition_states
from kraft_audit.rules.registry import rule
from kraft_audit.rules.rule_model import Case, Evidence, Finding, RowNumbers, Thresholds, undecided
from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_audit.tables.silver import PARTITION_CHANGES
from kraft_audit.text.readable import plural


def _since_led(history: ClusterHistory, open_findings: Iterable[Finding]) -> Iterator[RowNumbers]:
    """From the last state with a leader to the election, and what holds now: of deleted topics, too."""
    states = partition_states(history)
    rows: set[int] = set()
    for row in begins_of(history, open_findings):
        rows |= {*range(_last_led(states, row), row + 1), states.newest_row(row)}
    yield as_table_rows(states, np.array(sorted(rows), np.int64))


@rule("KP003", control="durability", needs=("partition_changes",), carries=_since_led)
def kp003(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    changes = states.changes
    for row in states.rows_of(changes.exists & changes.is_election("unclean")).tolist():
        yield _lossy_election(states, row, _unclean_text(states, row))._replace(
            what_to_do=_after_unclean_election(history, states, row)
        )
    from_snapshot = states.rows_of(changes.exists & changes.is_cause("snapshot"))
    for row in from_snapshot[states.is_first[from_snapshot]].tolist() if len(from_snapshot) else ():
        if states.recovering[row]:
            reason = "RECOVERING in a snapshot: the record of its election is gone"
            yield undecided(states.name(row), reason, from_offset=int(states.from_offset[row]))


def _stake(states: PartitionStates, row: int) -> tuple[Evidence, ...]:
    """From when on records may be missing: since the partition last had a leader that was in sync."""
    led = _last_led(states, row)
    if led == row:
        return ()
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


def _last_led(states: PartitionStates, row: int) -> int:
    """The last row before one that has a leader, or the first one; the row itself where it is the first."""
    before = states.previous(row)
    if before is None:
        return row
    while not states.is_first[before] and states.leader[before] == -1:
        before -= 1
    return before


def _unclean_text(states: PartitionStates, row: int) -> str:
    """The leader that was elected, and the members that were given up."""
    leader, before = int(states.leader[row]), states.previous(row)
    given_up = [
        f"{name.upper()} {nodes}"
        for name in ("isr", "elr")
        if before is not None and (nodes := [broker for broker in states.nodes(name, before) if broker != leader])
    ]
    text = f"broker {leader} was elected though it was not eligible"
    return text + (f", given up: {' and '.join(given_up)}" if given_up else "")


def _after_unclean_election(history: ClusterHistory, states: PartitionStates, row: int) -> str:
    """What to do now: the setting is named where it is on, otherwise somebody asked for this election."""
    text = "Compare what producers were acknowledged with what is there, in the time and leader epochs named."
    topic = states.topic(row)
    if unclean_election_enabled(history, topic):
        return f"{text} Turn unclean.leader.election.enable off for topic {topic}."
    return f"{text} Unclean election is off for topic {topic} now: find who asked for it (kafka-leader-election.sh)."


@rule("KP004", control="durability", needs=("partition_changes",), carries=_since_led)
def kp004(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    for row in states.rows_of(states.changes.exists & states.changes.is_election("last_known")).tolist():
        summary = f"broker {int(states.leader[row])}, the last known leader, was elected with ISR and ELR empty"
        yield _lossy_election(states, row, summary)


def _lossy_election(states: PartitionStates, row: int, summary: str) -> Case:
    """From the election to the record that says RECOVERED, which the leader of a sole replica never writes.

    It writes it when the ISR grows (Partition.prepareIsrExpand, Kafka 4.3.0). What is over stays over when replicas are
    added.
    """
    newest = states.newest_row(row)
    recovered = next((end for end in range(row + 1, newest + 1) if not states.recovering[end]), None)
    case = partition_case(states, Episode(row, recovered), summary, *_stake(states, row))
    last = newest if recovered is None else recovered
    return case._replace(is_over=any(states.size_of("replicas", each) == 1 for each in range(row, last + 1)))


@rule("KP017", control="durability", needs=("partition_changes", "broker_changes"))
def kp017(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    states = partition_states(history)
    for row in states.rows_of(states.changes.exists & states.changes.is_election("last_known")).tolist():
        leader, offset = int(states.leader[row]), int(states.from_offset[row])
        known = broker_states(history).get(leader)
        state = None if known is None else known.at(offset)
        if state is None or not (state["fenced"] or not state["exists"]):
            continue
        status = status_text(history, leader, offset)
        if (unknown := history.unknown_before(offset)) is not None:
            yield undecided(states.name(row), f"{status}: {unknown}", from_offset=offset)
            continue
        end = row + 1 if row < states.newest_row(row) else None
        fact = Evidence(status, offset=state["from_offset"])
        yield partition_case(states, Episode(row, end), f"the last known leader was elected, and is {status}", fact)


FALLS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class _Return:
    """A broker that came back, the rows by which it fell out of ISR or ELR, and the row of each partition, where there
    is one, with which it was back.

    `registration` is the offset of the registration in the same operation, -1 where none was read.
    """

    broker: int
    registration: int
    falls: list[int]
    backs: list[int | None]

    @property
    def end(self) -> int | None:
        """The row with which it was back everywhere."""
        known = [row for row in self.backs if row is not None]
        return None if len(known) < len(self.backs) else known[-1]


def _returns(history: ClusterHistory) -> Iterator[_Return]:
    states = partition_states(history)
    falls: dict[tuple[int, int], list[int]] = defaultdict(list)
    is_certain = states.in_order(states.changes.is_cause("unclean_shutdown"))
    fallen = states.rows_of(states.changes.may_be_cause("unclean_shutdown"))
    ends = operation_ends(history, states.from_offset[fallen])
    eligible = _still_eligible(history)[0] if len(fallen) else frozenset()
    for row, end in zip(fallen.tolist(), ends.tolist(), strict=True):
        broker = states.value("cause_broker_id", row)
        registration = _registration(history, broker, int(states.from_offset[row]), end)
        # A leader may have removed it a moment before: that is an operation of its own.
        if (broker, registration) in eligible:
            continue
        if registration is not None or is_certain[row]:
            falls[broker, -1 if registration is None else registration].append(row)
    for (broker, registration), rows in sorted(falls.items()):
        rows.sort(key=lambda row: int(states.from_offset[row]))
        backs = [_back(states, row, broker) for row in rows]
        backs.sort(key=lambda row: -1 if row is None else int(states.from_offset[row]))
        yield _Return(broker, registration, rows, backs)


def _registration(history: ClusterHistory, broker: int, offset: int, end: int) -> int | None:
    """The offset of a broker's registration in the operation [offset, end)."""
    known = broker_states(history).get(broker)
    if known is None:
        return None
    place = int(np.searchsorted(known.offsets, offset))
    return int(known.offsets[place]) if place < len(known.offsets) and known.offsets[place] < end else None


def _still_eligible(history: ClusterHistory) -> tuple[Set[tuple[int, int]], Rows]:
    return history.known(f"still eligible by {PARTITION_CHANGES.name}", lambda: _find_still_eligible(history))


def _find_still_eligible(history: ClusterHistory) -> tuple[Set[tuple[int, int]], Rows]:
    """(broker, offset of a change of it) where it is in some ELR before and after; and a row of each that shows it.

    An unclean registration takes a broker out of every ELR (ReplicationControlManager.handleUncleanBrokerShutdown,
    Kafka 4.3.0): where it stays in one, what it left was another operation in that batch. A row counts where no other
    change of its partition can have been left out after it.
    """
    states = partition_states(history)
    elr, epoch = states.changes.lists["elr"], states.partition_epoch
    rows = states.row_of_change()[elr.row_of_value]
    is_whole = states.exists & (states.is_last | (np.append(epoch[1:], 0) <= epoch + 1))
    until = states.next_offset
    eligible: set[tuple[int, int]] = set()
    shown: set[int] = set()
    for broker, known in broker_states(history).items():
        own = np.sort(rows[(elr.values == broker) & is_whole[rows]])
        first = np.searchsorted(known.offsets, states.from_offset[own], side="right")
        last = np.searchsorted(known.offsets, until[own], side="left")
        reached = 0
        for place in np.lexsort((-last, first)).tolist():
            if last[place] > max(reached, int(first[place])):
                changes = known.offsets[max(reached, int(first[place])) : last[place]]
                eligible.update((broker, offset) for offset in changes.tolist())
                shown.add(int(own[place]))
                reached = int(last[place])
    return eligible, np.array(sorted(shown), np.int64)


def _back(states: PartitionStates, row: int, broker: int) -> int | None:
    """The first row with which the broker is in sync again, or the partition is gone or no longer its own."""
    for later in range(row + 1, states.newest_row(row) + 1):
        is_its = states.exists[later] and broker in states.nodes("replicas", later)
        if not is_its or broker in states.nodes("isr", later):
            return later
    return None


def _around_unclean_shutdowns(history: ClusterHistory) -> Mask:
    """The rows that KP008 needs: each fall, the state before it, and with which row the broker was back.

    And those by which it stayed in an ELR, each with the next one.
    """
    states = partition_states(history)
    falls = states.rows_of(states.changes.may_be_cause("unclean_shutdown"))
    backs = [_back(states, row, states.value("cause_broker_id", row)) for row in falls.tolist()]
    known = np.array([row for row in backs if row is not None], np.int64)
    _, eligible = _still_eligible(history)
    eligible = np.concatenate([eligible, eligible[~states.is_last[eligible]] + 1])
    around = [with_previous(states, falls), known, states.newest_rows(falls), eligible]
    return rows_with(len(states), np.concatenate(around))


def _of_open_returns(history: ClusterHistory, open_findings: Sequence[Finding]) -> Iterator[RowNumbers]:
    """Of the brokers that are not back everywhere: their falls, where they are back, and their registration."""
    states = partition_states(history)
    begins = {(finding.subject, finding.from_offset) for finding in open_findings}
    for each in _returns(history):
        if (f"broker {each.broker}", int(states.from_offset[each.falls[0]])) in begins:
            falls, backs = np.array(each.falls), np.array([row for row in each.backs if row is not None], np.int64)
            yield as_table_rows(states, distinct(np.concatenate([with_previous(states, falls), backs])))
            yield rows_at(history, "broker_changes", [each.registration])
            yield batches_of_operations(history, states.from_offset[falls])


@rule(
    "KP008",
    control="durability",
    needs=("partition_changes", "broker_changes", "batches"),
    across=_around_unclean_shutdowns,
    carries=_of_open_returns,
)
def kp008(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    """From the first fall until the broker is in sync again wherever it fell out."""
    states = partition_states(history)
    is_certain = states.in_order(states.changes.is_cause("unclean_shutdown"))
    for each in _returns(history):
        names = list(dict.fromkeys(map(states.name, each.falls)))
        shown = ", ".join(names[:FALLS_SHOWN]) + " …" * (len(names) > FALLS_SHOWN)
        came = "its registration was not read"
        if each.registration >= 0:
            came = f"registration at offset {each.registration}"
        if not is_certain[each.falls].any():
            came += ", unless it ended cleanly and a leader had just removed it"
        fallen_out = f"out of ISR or ELR of {plural(len(names), 'partition')}"
        first, end = each.falls[0], each.end
        yield Case(
            f"broker {each.broker}",
            f"came back uncleanly ({came}): {fallen_out}: {shown}",
            from_offset=int(states.from_offset[first]),
            to_offset=None if end is None else int(states.from_offset[end]),
            from_ms=int(states.timestamp_ms[first]),
            to_ms=None if end is None else int(states.timestamp_ms[end]),
            evidence=tuple(_fall(states, row) for row in each.falls[:FALLS_SHOWN]),
            key=f"broker {each.broker} {each.registration}",
        )


def _fall(states: PartitionStates, row: int) -> Evidence:
    before, after = states.previous(row), states.describe(row)
    return Evidence(
        f"{states.name(row)}: {after}",
        offset=int(states.from_offset[row]),
        before=None if before is None else states.describe(before),
        after=after,
    )
