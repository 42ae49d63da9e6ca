"""Which partitions have to be walked for their witnesses: those in which a loss event is possible at all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.broker_returns import broker_returns
from kraft_audit.rules.columns.frame import Numbers, exceeds, rows_with
from kraft_audit.rules.columns.min_isr_settings import min_isr_settings
from kraft_audit.rules.columns.nodes import broker_states
from kraft_audit.rules.columns.partition_states import PartitionStates
from kraft_audit.tables.number_arrays import Mask, Rows


def may_pass_over(history: ClusterHistory, states: PartitionStates) -> Rows:
    """Rows that may be loss events, or make later ones: all others elect a member of the ISR, or a sound ELR's.

    Members of the ISR are witnesses, as a leader took them in, until one of them comes back from a crash. Those who
    left it for the ELR stay witnesses while that is as Kafka keeps it.
    """
    lists, is_first = states.changes.lists, states.is_first
    row_of_change = states.row_of_change()
    rows = {name: row_of_change[lists[name].row_of_value] for name in ("isr", "elr")}
    elected = ~is_first & (states.leader >= 0) & (np.append(0, np.diff(states.leader_epoch)) != 0)
    is_member = _was_in(states, rows["isr"], lists["isr"].values)
    if len(lists["elr"].values):
        is_sound = ~rows_with(len(states), states.newest_rows(_unsound_elr(history, states, rows["elr"])))
        is_sound = is_sound[states.newest_rows(np.arange(len(states)))]
        is_member |= is_sound & _was_in(states, rows["elr"], lists["elr"].values)
    rows_asked = [np.flatnonzero(elected & ~is_member), np.flatnonzero(is_first & states.recovering)]
    rows_asked.append(_comes_back_in(history, states, rows["isr"], lists["isr"].values))
    rows_asked.append(moved_directories(history, states))
    return np.concatenate(rows_asked)


def _was_in(states: PartitionStates, rows: Rows, members: Numbers) -> Mask:
    """Rows whose leader is a member of a list of the row before: `members` and the row of each."""
    has_next = ~states.is_last[rows]
    follows = rows[has_next] + 1
    return rows_with(len(states), follows[members[has_next] == states.leader[follows]])


def _unsound_elr(history: ClusterHistory, states: PartitionStates, rows: Rows) -> Rows:
    """Rows whose ELR holds who is no replica, who came back from a crash, or anybody while enough are in sync."""
    lists, changes = states.changes.lists, states.changes
    is_odd = exceeds(lists["elr"], lists["replicas"])
    is_odd |= (changes.size("elr") > 0) & (changes.size("isr") >= changes.effective_min_isr)
    if min_isr_settings(history).is_other:
        is_odd |= changes.size("elr") > 0
    return np.concatenate([states.rows_of(is_odd), _comes_back_in(history, states, rows, lists["elr"].values)])


def _comes_back_in(history: ClusterHistory, states: PartitionStates, rows: Rows, members: Numbers) -> Rows:
    """Rows in which a broker is in a list when it comes back from a crash: `members` and the row of each."""
    wanted = [np.zeros(0, np.int64)]
    until = states.next_offset
    by_broker: dict[int, list[int]] = {}
    for each in (each for each in broker_returns(history) if not each.is_clean):
        by_broker.setdefault(each.broker_id, []).append(each.offset)
    for broker, offsets in by_broker.items():
        its = rows[members == broker]
        first = np.searchsorted(offsets, states.from_offset[its], side="left")
        last = np.searchsorted(offsets, until[its], side="left")
        wanted.append(its[last > first])
    return np.concatenate(wanted)


def moved_directories(history: ClusterHistory, states: PartitionStates) -> Rows:
    """Rows that assign directories, of partitions that had one which its broker has lost since."""
    lost = set()
    for known in broker_states(history).values():
        ever: set[str] = set()
        for row in known.rows:
            lost |= ever.difference(row["log_dirs"])
            ever.update(row["log_dirs"])
    if not lost:
        return np.zeros(0, np.int64)
    rows = states.rows_of(states.changes.may_be_cause("directory_assigned"))
    rows = rows[~states.is_first[rows]]
    lists = states.changes.table["directories"].take(pa.array(states.order[rows - 1])).combine_chunks()
    is_lost = pc.is_in(lists.flatten(), pa.array(sorted(lost), pa.string())).to_numpy(zero_copy_only=False)
    ends = np.cumsum(pc.fill_null(pc.list_value_length(lists), 0).to_numpy())
    counts = np.append(0, np.cumsum(is_lost))
    return rows[counts[ends] > counts[np.append(0, ends[:-1])]] if len(rows) else rows
