"""What carried rows say besides rows: each of it, forgotten, changes what the next judgement says.

The next judgement reads only what is new; what is carried is all that it knows of the log before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from kraft_audit.rules.carried.carried_rows import CarriedRows
from kraft_audit.rules.carried.carrying import carry
from kraft_audit.rules.carried.continued_history import history_of, until
from kraft_audit.rules.cluster_history import ClusterHistory, Contradiction, OpenEpisodes, SnapshotCheck
from kraft_audit.rules.columns.lost_records import state_of_snapshot
from tests.builders.carried_judgements import judged, new_rows, said
from tests.builders.histories import HistoryBuilder
from tests.builders.partition_stories import PARTITION_STORIES

END = 100
Erase = Callable[[CarriedRows], CarriedRows]


def contradicted(b: HistoryBuilder) -> None:
    b.three_nodes(END).brokers(11, 12).partition("t-0", 10, isr=[11, 12]).partition("t-0", 45, isr=[11, 12])
    b.contradictions = (Contradiction(33, "unknown_topic"),)


def past_a_gap(b: HistoryBuilder) -> None:
    contradicted(b)
    b.gaps = ((20, 25),)


def undecoded(b: HistoryBuilder) -> None:
    contradicted(b)
    b.undecoded_from = 20


def without_a_beginning(b: HistoryBuilder) -> None:
    contradicted(b)
    b.is_complete = False


def differing_snapshot(b: HistoryBuilder) -> None:
    b.three_nodes(END)
    b.snapshot_checks = (SnapshotCheck(30, 1, ("a topic is missing",), "node-1/30.checkpoint"),)


def from_a_snapshot(b: HistoryBuilder) -> None:
    """No log reaches the snapshot that the state is of."""
    b.three_nodes(END)
    b.rows["watermarks"][0].update(canonical_epoch=None, canonical_end_offset=None)
    b.states_from = 7


def twelve_changes_in_an_hour(b: HistoryBuilder) -> None:
    """Twelve changes of the ISR in the hour before the last cut. The row before them, of more than an hour before, has
    another ISR than the one that is carried before it, for the unclean election, but did not change it."""
    b.three_nodes(4_000).brokers(11, 12, 13).partition("t-0", 5, "created")
    b.partition("t-0", 10, isr=[12], leader=12, election="unclean").partition("t-0", 20, isr=[11], leader=11)
    b.partition("t-0", 95, leader_epoch=7)
    for number in range(12):
        b.partition("t-0", 110 + 300 * number, isr=[12 - number % 2], leader=12 - number % 2)


def last_replica(b: HistoryBuilder) -> None:
    PARTITION_STORIES["KP001"][0](b)


def without(**values: Any) -> Erase:
    return lambda state: replace(state, **values)


def without_episode(**values: Any) -> Erase:
    return lambda state: replace(state, episodes=replace(state.episodes, **values))


RULES = ("KP001", "KP012", "KP013", "KQ011")
MUTANTS: dict[str, tuple[Callable[[HistoryBuilder], None], Erase]] = {
    "contradictions": (contradicted, without(contradictions=())),
    "gaps": (past_a_gap, without(gaps=())),
    "undecoded_from": (undecoded, without(undecoded_from=None)),
    "is_complete": (without_a_beginning, without(is_complete=True)),
    "snapshot_checks": (differing_snapshot, without(snapshot_checks=())),
    "states_from": (from_a_snapshot, without(states_from=0)),
    "is_read": (last_replica, without(is_read=False)),
    "is_replayed": (last_replica, without(is_replayed=False)),
    "to_offset": (last_replica, without_episode(to_offset=0)),
    "to_ms": (twelve_changes_in_an_hour, without_episode(to_ms=None)),
    "begins": (last_replica, without_episode(begins={})),
}


def said_after(state: CarriedRows, whole: ClusterHistory, to_offset: int) -> tuple[Any, ...]:
    """What is said where nothing but the carried rows is known of the log before an offset."""
    new = replace(
        new_rows(whole, whole, to_offset),
        gaps=(),
        undecoded_from=None,
        is_complete=True,
        states_from=0,
        snapshot_checks=(),
        is_read=False,
        is_replayed=False,
        contradictions=(),
        _shared={},
        as_of_ms=whole.as_of_ms,
    )
    history = history_of(state, new)
    findings = sorted((finding.rule, finding.subject, str(said(finding))) for finding in judged(history, RULES))
    return findings, history.carried and history.carried.to_offset, state_of_snapshot(history)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_what_is_forgotten_is_missed(name: str) -> None:
    story, erase = MUTANTS[name]
    builder = HistoryBuilder()
    story(builder)
    whole = builder.history()
    noticed = False
    for to_offset in (*range(5, END, 20), 3_700):
        before = until(whole, to_offset)
        state = carry(before, judged(before, RULES), to_offset)
        noticed |= said_after(state, whole, to_offset) != said_after(erase(state), whole, to_offset)
    assert noticed


def test_each_fact_is_forgotten_once() -> None:
    """The tables have mutants of their own, in test_carried_rows; what disks held, in test_losses_by_the_hour."""
    names = {each.name for kind in (CarriedRows, OpenEpisodes) for each in fields(kind)}
    names -= {"tables", "episodes", "replica_logs"}
    assert names == MUTANTS.keys()
