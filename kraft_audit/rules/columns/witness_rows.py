"""The rows of the replayed tables from which the witnesses of partitions follow: what an hour keeps for the next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set

import numpy as np
import pyarrow.compute as pc

from kraft_audit.replay.partitions.window_events import MIN_ISR
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.partition_states import partition_states
from kraft_audit.rules.columns.witnesses import loss_events, walked_partition
from kraft_audit.rules.rule_model import RowNumbers
from kraft_audit.tables.number_arrays import Rows
from kraft_audit.tables.silver import PARTITION_CHANGES


def witness_rows(history: ClusterHistory, open_offsets: Set[int | None]) -> Iterator[RowNumbers]:
    """The rows from which the witnesses of partitions follow that are not just their ISR, and losses at these offsets.

    Of each such partition these are the rows from the last one on after which its witnesses were its ISR, and those
    with which replicas ceased to be witnesses; and since then all changes of its brokers and of min.insync.replicas.
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
    since_of_topic: dict[str, int] = {}
    for last in sorted(asked):
        walked = walked_partition(history, last)
        events = [event for event in walked.events if event.row in lost]
        settled = min([walked.settled_before(event.row) for event in events], default=walked.settled[-1])
        rows.update(range(settled, last + 1))
        leavings = [leaving.row for leaving in walked.after[-1].leavings.values()]
        leavings += [leaving.row for event in events for leaving in event.all_leavings]
        rows.update(leavings)
        rows.update(row - 1 for row in leavings if row > walked.first)
        topic, offset = states.topic(last), int(states.from_offset[settled])
        since_of_topic[topic] = min(offset, since_of_topic.get(topic, offset))
        for broker in states.nodes("replicas", last):
            since[broker] = min(offset, since.get(broker, offset))
    yield PARTITION_CHANGES.name, states.order[np.array(sorted(rows), np.int64)]
    yield from _broker_rows(history, since)
    yield from _min_isr_rows(history, since_of_topic)


def _broker_rows(history: ClusterHistory, since: Mapping[int, int]) -> Iterator[RowNumbers]:
    """The changes of brokers from an offset each on, with the one before."""
    table = history.chunked_table("broker_changes")
    brokers, offsets = table["broker_id"].to_numpy(), table["from_offset"].to_numpy()
    for broker, offset in since.items():
        yield "broker_changes", _from(np.flatnonzero(brokers == broker), offsets, offset)


def _min_isr_rows(history: ClusterHistory, since: Mapping[str, int]) -> Iterator[RowNumbers]:
    """The settings of min.insync.replicas for topics from an offset each on, with the one before, and of brokers."""
    if not since or not history.has("config_changes"):
        return
    table = history.chunked_table("config_changes")
    offsets, is_min_isr = table["from_offset"].to_numpy(), pc.equal(table["name"], MIN_ISR)
    resources = table.select(["resource_type", "resource_name"]).filter(is_min_isr).to_pylist()
    rows_of: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, resource in zip(np.flatnonzero(is_min_isr.to_numpy()).tolist(), resources, strict=True):
        rows_of[resource["resource_type"], resource["resource_name"]].append(row)
    earliest = min(since.values())
    for (kind, name), rows in rows_of.items():
        if kind != "TOPIC" or name in since:
            offset = since[name] if kind == "TOPIC" else earliest
            yield "config_changes", _from(np.array(rows, np.int64), offsets, offset)


def _from(rows: Rows, offsets: Rows, offset: int) -> Rows:
    """Of some rows of a table those from an offset on, with the one before."""
    ordered = rows[np.argsort(offsets[rows], kind="stable")]
    place = int(np.searchsorted(offsets[ordered], offset))
    return np.sort(ordered[max(place - 1, 0) :])
