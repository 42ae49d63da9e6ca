"""What was captured: replicas by round, their order, and the committed intervals that the rounds prove.

Captures that were read together are numbered in time, by what states it (`capture_order`), else by what most disks say.
The latter is no proof that one disk went back: a folder may hold copies of different moments.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple

from kraft_audit.capture.disk_trust import disk_trust
from kraft_audit.capture.plan import Identity, identity_of, replica_identity
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, once_per_history
from kraft_audit.rules.rule_model import Evidence
from kraft_audit.tables.number_arrays import Rows


class CaptureRound(NamedTuple):
    """Captures that were taken together, and the newest capture of each node as of then."""

    taken: list[TableRow]
    newest: list[TableRow]


def captures_in_order(history: ClusterHistory) -> list[TableRow]:
    """The captures of this cluster, oldest first; refused ones (of another cluster) left out.

    Those of one round are in the order of a plan's replicas (`ReplicaPlan.sort_key`), also where some of them have
    nothing new.
    """
    rows = [row for row in history.rows("captures") if row["accepted"]]
    return sorted(rows, key=lambda row: (capture_time(row), identity_of(row), row["root"], row["path"]))


def capture_time(row: TableRow) -> tuple[int, int, str]:
    """What orders captures: the plan's time, then the number of the capture within the plan."""
    return row["captured_at_ms"], row["capture_number"], row["capture"]


@once_per_history
def rounds_in_order(history: ClusterHistory) -> list[CaptureRound]:
    """The rounds of captures, oldest first."""
    return list(_capture_rounds(history))


def _capture_rounds(history: ClusterHistory) -> Iterator[CaptureRound]:
    newest: dict[Identity, TableRow] = {}
    for _, captures in groupby(captures_in_order(history), capture_time):
        taken = list(captures)
        for row in taken:
            newest[replica_identity(row["node_id"], None, row["root"], row["path"])] = row
        yield CaptureRound(taken, list(newest.values()))


def newest_round(history: ClusterHistory) -> list[TableRow]:
    """The captures that were taken together last."""
    rounds = rounds_in_order(history)
    return rounds[-1].taken if rounds else []


def path_read(history: ClusterHistory) -> str:
    """Where the newest captures were read; PATH where that is more than one place."""
    roots = {str(row["root"]) for row in newest_round(history)}
    return roots.pop() if len(roots) == 1 else "PATH"


def audit_command(history: ClusterHistory, *words: object) -> str:
    """A command of this tool to paste, about what was read: the words before the path and `--options` after it."""
    texts = [str(word) for word in words]
    first = next((place for place, text in enumerate(texts) if text.startswith("--")), len(texts))
    return " ".join(["kraft-audit", *texts[:first], shlex.quote(path_read(history)), *texts[first:]])


def newest_captures(history: ClusterHistory) -> list[TableRow]:
    """The newest capture of each node."""
    rounds = rounds_in_order(history)
    return rounds[-1].newest if rounds else []


def lacks_its_log(row: TableRow) -> bool:
    """Whether a copy has no segment, and files beside it show that there was a log: it was neither wiped nor new."""
    shows = bool(row["leader_epoch_checkpoint"]) or bool(row["snapshot_end_offset"])
    return bool(row["accepted"]) and row["log_end_offset"] is None and shows


EMPTIED_BYTES_MAX: Final = 256
"""A meta.properties that holds only its date is smaller."""


def is_emptied(row: TableRow) -> bool:
    """Whether every file of a node dir is empty, so that it says neither whose it is nor what it held."""
    says_nothing = row["node_id"] is None and row["meta_cluster_id"] is None and row["leader_epoch"] is None
    holds_nothing = not row["batch_count"] and not row["snapshot_count"] and row["log_end_offset"] == 0
    return says_nothing and holds_nothing and row["bytes_seen"] <= EMPTIED_BYTES_MAX


def replica_end(row: TableRow) -> int:
    """Up to where a replica knows the log: its log's end, or its snapshot's where that is further."""
    return max(row["log_end_offset"] or 0, row["snapshot_end_offset"] or 0)


def is_log_unread(row: TableRow) -> bool:
    """Whether nothing of a log was read: its bytes are unreadable, or the copy may be torn. It may hold anything."""
    return row["log_end_offset"] is None and row["bytes_unread"] > 0


def is_no_evidence(row: TableRow) -> bool:
    """Whether no claim may rest on a disk: its log was not read, or its own files contradict each other."""
    return not disk_trust(row).counts


def replica_name(row: Mapping[str, Any]) -> str:
    """A replica as people call it."""
    if row["node_id"] is None:
        return f"replica at {row['path'] or row['root']}"
    return f"node {row['node_id']}"


def capture_evidence(row: TableRow, text: str, **more: Any) -> Evidence:
    """A fact that a capture shows, with the folder where it was read."""
    return Evidence(
        text, node_id=row["node_id"], path=row["path"] or row["root"], timestamp_ms=row["read_to_ms"], **more
    )


def watermarks_in_order(history: ClusterHistory) -> list[TableRow]:
    """The committed intervals, that of the oldest captures first."""
    return sorted(history.rows("watermarks"), key=watermark_order)


def watermark_order(row: TableRow) -> tuple[int, int, int]:
    """What orders committed intervals."""
    return int(row["capture_number"]), row["read_to_ms"], row["low"]


def held_low(row: TableRow) -> tuple[int, int]:
    """(offset, epoch) that a round proves by bytes that had surely reached a disk: later rounds are held to that.

    Read is not durable: what a page cache alone held vanishes with the machine, and nothing committed is lost by it.
    """
    if row.get("held_low") is None:
        return row["low"], row["low_epoch"]
    return row["held_low"], row["held_low_epoch"]


def newest_watermark(history: ClusterHistory) -> TableRow | None:
    """The committed interval of the last captures."""
    rows = watermarks_in_order(history)
    return rows[-1] if rows else None


def committed_end(history: ClusterHistory) -> int | None:
    """The end, exclusive, of what the last captures prove committed; None where no log was captured.

    What is shown as "committed through" is this, less one: of `check`, the head of a page and its picture.
    """
    newest = newest_watermark(history)
    return None if newest is None else int(newest["low"])


def copies_in_doubt(history: ClusterHistory) -> str | None:
    """Why the newest copies are of different moments: one proves committed what too few of the others hold. None where
    they agree."""
    newest = newest_watermark(history)
    if newest is None or not newest["undecided"] or newest["high"] is None or newest["high"] >= newest["low"]:
        return None
    return str(newest["undecided"])


_NUMBER_BITS: Final = 20


def moment_number(row: Mapping[str, Any]) -> int:
    """When a capture was taken, as a number that orders captures: time, then number within the plan."""
    return (int(row["captured_at_ms"]) << _NUMBER_BITS) + int(row["capture_number"])


def moment_parts(moments: Rows) -> tuple[Rows, Rows]:
    """The times and the numbers of captures that `moment_number` gave."""
    return moments >> _NUMBER_BITS, moments & ((1 << _NUMBER_BITS) - 1)


CLOCK_SLACK_MS: Final = 60_000
"""Clocks of nodes, and times that copying wrote, may differ by so much."""


def order_in_doubt(history: ClusterHistory, earlier: TableRow, later: TableRow) -> str | None:
    """Why a disk's copy may be older than the one that is numbered before it; None where it is not.

    It is later where anything but content says so, where it was written later, and where all other disks in both
    captures moved on. Where the copy itself is ahead in what never goes back, the order does not matter: either way the
    disk lost something.
    """
    if later["captured_at_ms"] != earlier["captured_at_ms"] or _is_ahead(earlier, later):
        return None
    if earlier["capture_number"] in history.stated_earlier.get(later["capture_number"], ()):
        return None
    written = [history.written_ms.get((row["root"], row["path"])) for row in (earlier, later)]
    if written[0] is not None and written[1] is not None and written[1] > written[0] + CLOCK_SLACK_MS:
        return None
    moves = set(_moves_of_others(history, earlier, later))
    if moves - {0} == {1}:
        return None
    name = f"node {later['node_id']}"
    return (
        f"which copy of {name} is older, {_copy_place(earlier)} or {_copy_place(later)}, is only estimated: copies "
        f"that keep the times of files (tar, cp -p, rsync -a) would show it"
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


def _copy_place(row: TableRow) -> str:
    return str(row["path"] or row["root"])
