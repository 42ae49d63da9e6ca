"""Rules about elections of partition leaders that may have lost records: who was elected, and what was given up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory, unclean_election_enabled
from kraft_audit.rules.columns.carried_partitions import as_table_rows, begins_of
from kraft_audit.rules.columns.nodes import broker_states, status_text
from kraft_audit.rules.columns.partition_states import Episode, PartitionStates, partition_case, partition_states
from kraft_audit.rules.registry import rule
from kraft_audit.rules.rule_model import Case, Evidence, Finding, RowNumbers, Thresholds, undecided


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
