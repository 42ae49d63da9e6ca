"""A history up to an offset: what is settled by then, as of the log's time there."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.compute as pc

from kraft_audit.rules.carried.carried_rows import CHANGES
from kraft_audit.rules.cluster_history import ClusterHistory, newest_append_ms
from kraft_audit.rules.columns.log_batches import CANONICAL_LOG, LOG_BATCHES, canonical_log


def until(history: ClusterHistory, to_offset: int, waiting_to: int | None = None) -> ClusterHistory:
    """A history without the records from an offset on, as of the log's time there. The captures stay.

    `waiting_to` is up to where records wait for the end of their transaction: its marks are not read again.
    """
    tables = dict(history.tables)
    for name in (*CHANGES, "records"):
        if name in tables:
            table, column = tables[name], "offset" if name == "records" else "from_offset"
            end = to_offset if name != "records" or waiting_to is None else max(to_offset, waiting_to)
            tables[name] = table.filter(pc.less(table[column], end))
    return replace(
        history,
        tables=tables,
        contradictions=history.contradictions
        and tuple(each for each in history.contradictions if each.offset < to_offset),
        parts_to=to_offset if history.parts_to is None else min(to_offset, history.parts_to),
        as_of_ms=canonical_log(history).time_at(to_offset - 1) if to_offset else None,
        # Their tables stay as they are.
        _shared={name: history.shared[name] for name in (LOG_BATCHES, CANONICAL_LOG) if name in history.shared},
    )


def begins_below(history: ClusterHistory, offset: int) -> bool:
    """Whether something changed before an offset."""
    tables = [history.tables[name]["from_offset"] for name in CHANGES if name in history.tables]
    return history.parts is not None or any(pc.min(rows).as_py() < offset for rows in tables if len(rows))


def ends_at(history: ClusterHistory, to_offset: int) -> bool:
    """Whether a history has nothing from an offset on, so that `until` says the same of it at the same time."""
    tables = [history.tables[name]["from_offset"] for name in CHANGES if name in history.tables]
    last = max((pc.max(offsets).as_py() for offsets in tables if len(offsets)), default=-1)
    last = max(last, -1 if history.parts is None else history.parts.last_offset)
    last = max([last, *(each.offset for each in history.contradictions or ())])
    return last < to_offset and history.end_ms == _time_at_end(history, to_offset)


def as_until(history: ClusterHistory, to_offset: int, waiting_to: int | None = None) -> ClusterHistory:
    """`until` of a history that ends there: with what was derived from it, as its rows are the same."""
    ended = until(history, to_offset, waiting_to)
    same = replace(ended, tables={**history.tables, "records": ended.tables["records"]}, _shared=history.shared)
    same.share_partitions(history)
    return same


def _time_at_end(history: ClusterHistory, to_offset: int) -> int | None:
    """The time of the log at which records before an offset are judged."""
    if to_offset and (time_ms := canonical_log(history).time_at(to_offset - 1)) is not None:
        return time_ms
    return history.known("newest append", lambda: newest_append_ms(history.rows("captures")))
