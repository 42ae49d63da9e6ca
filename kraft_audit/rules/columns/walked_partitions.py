"""Which partitions have to be walked for their witnesses: those in which a loss event is possible, and those whose ISR
may hold who is no witness."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.broker_returns import broker_returns
from kraft_audit.rules.columns.frame import SPREAD, Numbers, exceeds, rows_with
from kraft_audit.rules.columns.min_isr_settings import min_isr_settings
from kraft_audit.rules.columns.nodes import broker_states
from kraft_audit.rules.columns.partition_states import PartitionStates, partition_states
from kraft_audit.tables.number_arrays import Mask, Rows


def may_pass_over(history: ClusterHistory, states: PartitionStates) -> Rows:
    """Rows that may be loss events, or make later ones: all others elect a member of the ISR, or a sound ELR's.

    Members of the ISR are witnesses, as a leader took them in, until one of them comes back from a crash. Those who
    left it for the ELR stay witnesses while that is as Kafka keeps it.
    """
    lists, is_first = states.changes.lists, states.is_first
    row_of_change = states.row_of_change()
    rows = {name: row_of_change[lists[name].row_of_value] for name in ("isr", "elr")}
    elected = _elects(states)
    is_member = _was_in(states, rows["isr"], lists["isr"].values)
    if len(lists["elr"].values):
        is_sound = ~rows_with(len(states), states.newest_rows(_unsound_elr(history, states, rows["elr"])))
        is_sound = is_sound[states.newest_rows(np.arange(len(states)))]
        is_member |= is_sound & _was_in(states, rows["elr"], lists["elr"].values)
    rows_asked = [np.flatnonzero(elected & ~is_member), np.flatnonzero(is_first & states.recovering)]
    rows_asked.append(_comes_back_in(history, states, rows["isr"], lists["isr"].values))
    rows_asked.append(moved_directories(history, states))
    return np.concatenate(rows_asked)


def keeps_witnesses(history: ClusterHistory) -> Mask:
    """Rows of partitions that exist and whose ISR are witnesses in every row, as the walk would say.

    No row of them elects who was not in the ISR before, lets into the ISR without a standing leader, leads from
    outside the ISR, empties a directory, or has a member in it that comes back from a crash.
    """
    states = partition_states(history)
    return states.once("keeps witnesses", lambda: _keeps_witnesses(history, states))


def _keeps_witnesses(history: ClusterHistory, states: PartitionStates) -> Mask:
    isr, leader, is_first = states.changes.lists["isr"], states.leader, states.is_first
    rows = states.row_of_change()[isr.row_of_value]
    is_odd = ~states.exists | (~is_first & states.recovering)
    is_odd |= _elects(states) & ~_was_in(states, rows, isr.values)
    is_odd |= (leader >= 0) & ~rows_with(len(states), rows[isr.values == leader[rows]])
    is_odd |= states.in_order(exceeds(isr, states.changes.lists["replicas"]))
    for odd in (_grows_without_leader(states, rows, isr.values), _comes_back_in(history, states, rows, isr.values)):
        is_odd[odd] = True
    is_odd[moved_directories(history, states)] = True
    newest = states.newest_rows(np.arange(len(states)))
    return ~rows_with(len(states), newest[is_odd])[newest]


def _elects(states: PartitionStates) -> Mask:
    mask: Mask = ~states.is_first & (states.leader >= 0) & (np.append(0, np.diff(states.leader_epoch)) != 0)
    return mask


def _grows_without_leader(states: PartitionStates, rows: Rows, members: Numbers) -> Rows:
    """Rows whose ISR got a member that no standing leader let in: `members` of the ISR, and the row of each."""
    leader = states.leader
    before = np.append(-1, leader[:-1])
    is_asked = ~states.is_first & ((before < 0) | ((leader != before) & (leader != -1)))
    mine = np.flatnonzero(is_asked[rows])
    theirs = np.flatnonzero(np.append(is_asked[1:], False)[rows])
    is_new = ~np.isin(rows[mine] * SPREAD + members[mine], (rows[theirs] + 1) * SPREAD + members[theirs])
    return rows[mine[is_new]]


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
