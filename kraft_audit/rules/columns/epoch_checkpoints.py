"""Logs that begin an epoch elsewhere than leader-epoch-checkpoint says: the file is wrong, or the copy is torn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kraft_audit.capture.plan import identity_of
from kraft_audit.rules.cluster_history import ClusterHistory, TableRow, once_per_history
from kraft_audit.rules.columns.captures import captures_in_order, moment_number, newest_captures
from kraft_audit.rules.columns.log_runs import runs_of


@dataclass(frozen=True, slots=True)
class EpochMismatch:
    """A captured log and its leader-epoch-checkpoint: the first offset of each epoch in either.

    `from_offset` is the first offset at which they differ, `epochs` are those that do.
    """

    row: TableRow
    held: dict[int, int]
    listed: dict[int, int]
    from_offset: int
    epochs: frozenset[int]


@once_per_history
def epoch_mismatches(history: ClusterHistory) -> list[EpochMismatch]:
    """One for each capture whose log was read and differs from its file.

    Entries of epochs that the log does not hold are legal outside of it: it was cleaned, or goes on.
    """
    mismatches = []
    for row in captures_in_order(history):
        if row["leader_epoch_checkpoint"] is None or row["log_end_offset"] is None:
            continue
        start, end = _checkpointed_from(row), row["log_end_offset"]
        held = {epoch: max(offset, start) for epoch, offset in _epochs_of(runs_of(history, row), start, end).items()}
        listed = {entry["epoch"]: entry["start_offset"] for entry in row["leader_epoch_checkpoint"]}
        inside = {epoch: offset for epoch, offset in listed.items() if start <= offset < end}
        wrong = {epoch: offset for epoch, offset in inside.items() if held.get(epoch) != offset}
        # A file that was cut to a later log start begins the log's own last epoch after the log's end.
        missing = {epoch: offset for epoch, offset in held.items() if listed.get(epoch, end) >= end}
        if wrong or missing:
            from_offset = min([*wrong.values(), *missing.values()])
            mismatches.append(EpochMismatch(row, held, listed, from_offset, frozenset({*wrong, *missing})))
    return mismatches


def torn_reason(history: ClusterHistory) -> str | None:
    """Why nothing is concluded from the newest logs; None where one of them agrees with its file, or has none."""
    differing = {(identity_of(mismatch.row), moment_number(mismatch.row)) for mismatch in epoch_mismatches(history)}
    read = {(identity_of(row), moment_number(row)) for row in newest_captures(history) if row["log_end_offset"]}
    if not read or read - differing:
        return None
    return "log and leader-epoch-checkpoint differ, so the copy may be torn: copy it again"


def _checkpointed_from(row: TableRow) -> int:
    """The log start as the checkpoint knows it: cleaning moves the first entry up to a snapshot's end, which may lie
    inside the oldest segment that is left (UnifiedLog.maybeIncrementLogStartOffset, LeaderEpochFileCache 4.3.0)."""
    start = int(row["log_start_offset"] or 0)
    snapshot_end = row["snapshot_end_offset"] or 0
    # Without an entry the log is empty after its newest snapshot, or began again there.
    first = min((entry["start_offset"] for entry in row["leader_epoch_checkpoint"]), default=snapshot_end)
    return first if start < first <= snapshot_end else start


def _epochs_of(runs: Sequence[TableRow], start: int, end: int) -> dict[int, int]:
    """The first offset of each epoch in one captured log [start, end). A leader epoch never goes back in a log: a batch
    of an older one than the log begins with has rules of its own."""
    inside = [run for run in runs if run["from_offset"] < end and run["to_offset"] > start]
    first = max((run["leader_epoch"] for run in inside if run["from_offset"] <= start), default=-1)
    epochs: dict[int, int] = {}
    for run in inside:
        epoch, offset = run["leader_epoch"], run["from_offset"]
        if epoch >= first:
            epochs[epoch] = min(offset, epochs.get(epoch, offset))
    return epochs
