"""What was open where an earlier judgement stopped, and which rows a rule needs to go on from there.

A judgement of a log up to an offset is kept as the rows that still matter (`carrying`). The newest row of every
subject is among them always, and of each open finding the row in effect where it began with the one before it. What a
rule needs besides it says itself, by a function beside it: its `carries`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow.compute as pc

from kraft_audit.capture.continuity import run_begins
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.frame import SPREAD, coded, distinct, rows_with
from kraft_audit.rules.columns.partition_states import PartitionStates, partition_states
from kraft_audit.rules.finding_keys import partition_key
from kraft_audit.rules.rule_model import Finding, RowNumbers, Scope, finding_id
from kraft_audit.tables.number_arrays import Mask, Rows
from kraft_audit.tables.silver import PARTITION_CHANGES
from kraft_audit.text.readable import HOUR_MS

TIME_MAX_MS: Final = 1 << 61
ALWAYS_MS: Final = -(1 << 63)


def began_at(history: ClusterHistory, rule_id: str, scope: Scope, key: str) -> tuple[int, ...]:
    """Where the episodes of a finding began that were open at the end of an earlier judgement; none without one."""
    if history.carried is None:
        return ()
    return history.carried.begins.get(finding_id(history.history_id or history.cluster_id, rule_id, scope, key), ())


def begin_of(finding: Finding) -> int | None:
    """What distinguishes the episodes of a finding: the offset where it began, else the time."""
    return finding.from_ms if finding.from_offset is None else finding.from_offset


def look_back_ms(as_of_ms: int | None, *, is_open: bool = False) -> int:
    """The time from which rows are carried for rules that count changes within an hour.

    Two hours back while a storm is open: its last excess may be an hour old and rests on the hour before it.
    """
    # A record may claim any time that 64 bits hold.
    return ALWAYS_MS if as_of_ms is None else max(as_of_ms - (1 + is_open) * HOUR_MS, ALWAYS_MS)


def column(history: ClusterHistory, table: str, name: str) -> Rows:
    """A column of numbers of a table of the history."""
    values: Rows = history.chunked_table(table)[name].to_numpy()
    return values


def is_value(history: ClusterHistory, table: str, name: str, value: str | int) -> Mask:
    """The rows of a table with a value."""
    mask: Mask = pc.fill_null(pc.equal(history.chunked_table(table)[name], value), False).to_numpy()
    return mask


def rows_since(history: ClusterHistory, table: str, name: str, value: int, from_offset: int) -> RowNumbers:
    """The rows of one node from an offset on."""
    is_its = is_value(history, table, name, value)
    return table, np.flatnonzero(is_its & (column(history, table, "from_offset") >= from_offset))


def rows_at(history: ClusterHistory, table: str, offsets: Collection[int]) -> RowNumbers:
    """The rows that records at some offsets wrote."""
    return table, np.flatnonzero(np.isin(column(history, table, "from_offset"), np.array(sorted(offsets), np.int64)))


def key_of_row(states: PartitionStates, row: int) -> str:
    """What a finding about the partition of a row is known by."""
    return f"{states.value('topic_id', row)}-{int(states.partition[row])}"


def first_row(states: PartitionStates, row: int) -> int:
    """The oldest row of the partition of `row`."""
    place = int(np.searchsorted(states.last_rows, row))
    return int(states.last_rows[place - 1]) + 1 if place else 0


def row_at(states: PartitionStates, row: int, offset: int) -> int:
    """The row of the partition of `row` that was in effect at an offset; its oldest where none was yet."""
    first = first_row(states, row)
    offsets = states.from_offset[first : states.newest_row(row) + 1]
    return first + max(int(np.searchsorted(offsets, offset, side="right")) - 1, 0)


def newest_row_of(history: ClusterHistory, finding: Finding) -> int | None:
    """The newest row of the partition that a finding is about; None where no row is about it."""
    states = partition_states(history)
    numbers, ids, groups = history.known(f"groups of {PARTITION_CHANGES.name}", lambda: _groups(states))
    topic, _, partition = finding.subject.rpartition("-")
    topic_id = partition_key(history, finding.subject, finding.from_offset).rpartition("-")[0]
    # A log without its beginning may not say how a topic came by its name.
    topic_id = topic_id if topic_id in numbers else ids.get(topic, "")
    if topic_id not in numbers or not partition.isdigit():
        return None
    group = numbers[topic_id] * SPREAD + int(partition)
    place = int(np.searchsorted(groups, group))
    is_known = place < len(groups) and int(groups[place]) == group
    return int(states.last_rows[place]) if is_known else None


def _groups(states: PartitionStates) -> tuple[dict[str, int], dict[str, str], Rows]:
    """A number for each topic id, an id of each name, and number and partition of each partition as one number,
    ascending."""
    codes, topic_ids = coded(states.changes.table["topic_id"])
    newest = states.last_rows
    groups = codes[states.order[newest]] * SPREAD + states.partition[newest]
    numbers = {name: code for code, name in enumerate(topic_ids)}
    table = states.changes.table.select(["topic", "topic_id"]).group_by("topic").aggregate([("topic_id", "max")])
    ids = dict(zip(table["topic"].to_pylist(), table["topic_id_max"].to_pylist(), strict=True))
    return numbers, ids, groups


def begins_of(history: ClusterHistory, findings: Iterable[Finding]) -> Iterator[int]:
    """Of each finding about a partition the row that was in effect where it began."""
    states = partition_states(history)
    for finding in findings:
        newest = newest_row_of(history, finding)
        if newest is not None and finding.from_offset is not None:
            yield row_at(states, newest, finding.from_offset)


def with_previous(states: PartitionStates, rows: Rows) -> Rows:
    """Rows with the row of the same partition before each."""
    return distinct(np.concatenate([rows, rows[~states.is_first[rows]] - 1]))


def up_to_newest(states: PartitionStates, condition: Mask) -> Rows:
    """The rows from the first of each partition for which a condition holds, up to its newest."""
    wanted = np.flatnonzero(condition)
    if not len(wanted):
        return wanted
    place = np.searchsorted(states.last_rows, wanted)
    first = wanted[run_begins(place)]
    after = np.zeros(len(states) + 1, np.int64)
    after[first] += 1
    after[states.newest_rows(first) + 1] -= 1
    return np.flatnonzero(np.cumsum(after[:-1]))


def storms(times_ms: Rows, group: Rows, limit: int) -> list[tuple[int, int]]:
    """Storms among changes, each by the places of its first and last one: more than `limit` of a group within an hour.

    The changes of each `group` stand together, in the order of the log. A storm goes on while the changes of an excess
    are among those of the one before.
    """
    # Records may claim any time that 64 bits hold: the time between two of them must fit as well.
    times_ms = times_ms.clip(-TIME_MAX_MS, TIME_MAX_MS)
    # A change and the one `limit` changes before it, where both are of one group.
    later, earlier = slice(limit, None), slice(max(len(times_ms) - limit, 0))
    hits = np.flatnonzero((group[later] == group[earlier]) & (times_ms[later] - times_ms[earlier] <= HOUR_MS))
    is_new = run_begins(group[hits])
    is_new[1:] |= np.diff(hits) > limit
    starts = np.flatnonzero(is_new)
    ends = np.append(starts[1:], len(hits))[: len(starts)] - 1
    return list(zip(hits[starts].tolist(), (hits[ends] + limit).tolist(), strict=True))


def as_table_rows(states: PartitionStates, rows: Rows) -> RowNumbers:
    """Rows of the sorted states as rows of the table."""
    return PARTITION_CHANGES.name, states.order[rows]


def partition_mask(history: ClusterHistory, findings: Iterable[Finding]) -> Mask:
    """All rows of the partitions that some findings are about."""
    states = partition_states(history)
    mask = rows_with(len(states), np.zeros(0, np.int64))
    for finding in findings:
        newest = newest_row_of(history, finding)
        if newest is not None:
            mask[first_row(states, newest) : newest + 1] = True
    return mask
