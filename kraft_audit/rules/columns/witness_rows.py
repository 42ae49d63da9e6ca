"""The rows of the replayed tables from which the witnesses of partitions follow: what an hour keeps for the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

import numpy as np

from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.rules.columns.witnesses import loss_events, walked_partition
from kraft_audit.rules.rule_model import RowNumbers
from kraft_audit.tables.silver import PARTITION_CHANGES


def witness_rows(history: ClusterHistory, open_offsets: Set[int | None]) -> Iterator[RowNumbers]:
    """The rows from which the witnesses of partitions follow that are not just their ISR, and losses at these offsets.

    Of each such partition these are the rows from the last one on after which its witnesses were its ISR, and those
    with which replicas ceased to be witnesses; and all changes of its brokers since.
    """
    states = partition_states(history)
    if not len(states):
        return
    newest = states.last_rows[states.exists[states.last_rows]]
    is_plain = (states.leader[newest] >= 0) & (states.size("isr")[newest] >= states.size("replicas")[newest])
    lost = {event.row for event in loss_events(history) if event.offset in open_offsets}
    asked = {*newest[~is_plain].tolist(), *states.newest_rows(np.array(sorted(lost), np.int64)).tolist()}
    rows: set[int] = set()
    since: dict[int, int] = {}
    for last in sorted(asked):
        walked = walked_partition(history, last)
        events = [event for event in walked.events if event.row in lost]
        settled = min([walked.settled_before(event.row) for event in events], default=walked.settled[-1])
        rows.update(range(settled, last + 1))
        leavings = [leaving.row for leaving in walked.after[-1].leavings.values()]
        leavings += [leaving.row for event in events for leaving in event.all_leavings]
        rows.update(leavings)
        rows.update(row - 1 for row in leavings if row > walked.first)
        for broker in states.nodes("replicas", last):
            offset = int(states.from_offset[settled])
            since[broker] = min(offset, since.get(broker, offset))
    yield PARTITION_CHANGES.name, states.order[np.array(sorted(rows), np.int64)]
    yield from _broker_rows(history, since)


def _broker_rows(history: ClusterHistory, since: Mapping[int, int]) -> Iterator[RowNumbers]:
    """The changes of brokers from an offset each on, with the one before."""
    table = history.chunked_table("broker_changes")
    brokers, offsets = table["broker_id"].to_numpy(), table["from_offset"].to_numpy()
    for broker, offset in since.items():
        own = np.flatnonzero(brokers == broker)
        own = own[np.argsort(offsets[own], kind="stable")]
        place = int(np.searchsorted(offsets[own], offset))
        yield "broker_changes", np.sort(own[max(place - 1, 0) :])
