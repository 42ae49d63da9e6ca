"""Whether one copy of a disk is surely later than another, or only estimated to be.

Captures that were read together have no times of their own: planning numbers them by what most disks say. That is no
proof that one disk went back: a folder may hold copies of different moments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraft_audit.rules.cluster_history import ClusterHistory, TableRow
from kraft_audit.rules.columns.captures import captures_in_order, identity_of, replica_end

CLOCK_SLACK_MS: Final = 60_000
"""Clocks of nodes, and times that copying wrote, may differ by so much."""


def order_in_doubt(history: ClusterHistory, earlier: TableRow, later: TableRow) -> str | None:
    """Why a disk's copy may be older than the one that is numbered before it; None where it is not.

    It is later where it was captured or written later, and where all other disks in both captures moved on. Where the
    copy itself is ahead in what never goes back, the order does not matter: either way the disk lost something.
    """
    if later["captured_at_ms"] != earlier["captured_at_ms"] or _is_ahead(earlier, later):
        return None
    written = [history.written_ms.get((row["root"], row["path"])) for row in (earlier, later)]
    if written[0] is not None and written[1] is not None and written[1] > written[0] + CLOCK_SLACK_MS:
        return None
    moves = set(_moves_of_others(history, earlier, later))
    if moves - {0} == {1}:
        return None
    name = f"node {later['node_id']}"
    return (
        f"which copy of {name} is older, {_place(earlier)} or {_place(later)}, is only estimated: copies that keep the "
        f"times of files (tar, cp -p, rsync -a) would show it"
    )


def _is_ahead(earlier: TableRow, later: TableRow) -> bool:
    """Whether a disk's later copy has an epoch, a snapshot or a record that the earlier one cannot have known."""
    times_ms = earlier["last_timestamp_ms"], later["last_timestamp_ms"]
    is_newer = None not in times_ms and times_ms[1] > times_ms[0] + CLOCK_SLACK_MS
    return is_newer or any(
        (later[name] or 0) > (earlier[name] or 0) for name in ("leader_epoch", "last_epoch", "snapshot_end_offset")
    )


def _moves_of_others(history: ClusterHistory, earlier: TableRow, later: TableRow) -> Iterator[int]:
    """1, 0 or -1 for each other disk in both captures: whether it went on, stayed, or went back."""
    before, after = (
        {identity_of(each): _position(each) for each in captures_in_order(history) if _is_of(each, row)}
        for row in (earlier, later)
    )
    for disk in (before.keys() & after.keys()) - {identity_of(later)}:
        yield (before[disk] < after[disk]) - (after[disk] < before[disk])


def _is_of(row: TableRow, capture: TableRow) -> bool:
    return all(row[name] == capture[name] for name in ("captured_at_ms", "capture_number", "capture"))


def _position(row: TableRow) -> tuple[int, int, int]:
    return row["leader_epoch"] or 0, replica_end(row), row["snapshot_end_offset"] or 0


def _place(row: TableRow) -> str:
    return str(row["path"] or row["root"])
