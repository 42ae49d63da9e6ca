"""Leader epochs: who led, by whose votes, from where to where, and which epochs were burnt.

An epoch is burnt when no record of it is in the log: a candidate raised it and was not elected, or was elected and
appended nothing that survived (`CandidateState`, `QuorumState` of Kafka 4.3.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from kraft_audit.replay.records import ControlRecord

MAX_BURNT_EPOCHS: Final = 10_000
"""A damaged epoch number must not become two billion rows."""


@dataclass(frozen=True, slots=True)
class EpochRun:
    """The records of one leader epoch on one branch: half-open offsets, append time of the first batch."""

    epoch: int
    from_offset: int
    to_offset: int
    timestamp_ms: int | None = None


def leader_epoch_rows(
    runs: Sequence[EpochRun],
    records: Iterable[ControlRecord],
    *,
    canonical_to: int | None = None,
    persisted_leaders: Mapping[int, int] | None = None,
) -> list[dict[str, Any]]:
    """Rows of `leader_epochs` for one branch, ascending by epoch.

    `runs`: the epochs of the branch, ascending; `records`: its control records. `canonical_to` is the offset from which
    on the branch differs from the canonical log, None where it is the canonical one. `persisted_leaders`: the leader id
    (-1 for none) that quorum-state files named for an epoch; they tell of epochs that no log holds. Only the canonical
    branch lists burnt epochs, at most `MAX_BURNT_EPOCHS` of them.
    """
    changes: dict[int, ControlRecord] = {}
    for record in records:
        if record.name == "LEADER_CHANGE":
            changes.setdefault(record.leader_epoch, record)
    rows = [
        _run_row(run, changes.get(run.epoch), last=index + 1 == len(runs), canonical_to=canonical_to)
        for index, run in enumerate(runs)
    ]
    if canonical_to is None:
        rows.extend(_burnt_rows(runs, persisted_leaders or {}))
    return sorted(rows, key=lambda row: int(row["epoch"]))


def _run_row(run: EpochRun, change: ControlRecord | None, *, last: bool, canonical_to: int | None) -> dict[str, Any]:
    canonical = canonical_to is None or run.from_offset < canonical_to
    if canonical_to is not None and run.to_offset > canonical_to:
        ended_by = "truncated"
    else:
        ended_by = "open" if last else "next_epoch"
    fields = change.fields if change is not None else None
    return {
        "epoch": run.epoch,
        "from_offset": run.from_offset,
        "to_offset": run.to_offset,
        "leader_change_offset": change.offset if change is not None else None,
        "leader_id": fields["leader_id"] if fields is not None else None,
        "voters": _ids(fields, "voters"),
        "granting_voters": _ids(fields, "granting_voters"),
        "timestamp_ms": run.timestamp_ms,
        "canonical": canonical,
        "ended_by": ended_by,
    }


def _ids(fields: Mapping[str, Any] | None, name: str) -> list[int] | None:
    return None if fields is None else [voter["voter_id"] for voter in fields[name]]


def _burnt_rows(runs: Sequence[EpochRun], persisted_leaders: Mapping[int, int]) -> list[dict[str, Any]]:
    """Epochs without a record: between the log's epochs, and those that only a quorum-state file knows."""
    held = {run.epoch for run in runs}
    known = held | persisted_leaders.keys()
    if not known:
        return []
    first = min(held) if held else max(1, min(known))
    return [
        {
            "epoch": epoch,
            "from_offset": None,
            "to_offset": None,
            "leader_change_offset": None,
            "leader_id": leader if (leader := persisted_leaders.get(epoch, -1)) >= 0 else None,
            "voters": None,
            "granting_voters": None,
            "timestamp_ms": None,
            "canonical": True,
            "ended_by": "burnt",
        }
        for epoch in islice((epoch for epoch in range(first, max(known) + 1) if epoch not in held), MAX_BURNT_EPOCHS)
    ]
