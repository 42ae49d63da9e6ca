"""Rules of the membership protocols that never shipped: KIP-642 (targets and steps), KIP-856 (single records)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from kraft_audit.rules.canonical import canonical_log
from kraft_audit.rules.history import ClusterHistory
from kraft_audit.rules.model import Case, Scope, Severity, Thresholds, undecided
from kraft_audit.rules.registry import rule
from kraft_audit.rules.voter_view import (
    Change,
    canonical_sets,
    change_evidence,
    changes,
    keys_of,
    named,
    was_pending,
)
from kraft_codec.schemas import Dialect


def _case(change: Change, summary: str, *others: Change) -> Case:
    return Case(
        f"voter set at offset {change.offset}",
        summary,
        from_offset=change.offset,
        from_ms=change.row["timestamp_ms"],
        epoch=change.row["from_epoch"],
        evidence=(change_evidence(change), *(change_evidence(other) for other in others)),
        is_over=not change.row["canonical"],
    )


def _pairs(history: ClusterHistory) -> list[tuple[Change, Change]]:
    chain = [change for change in changes(history) if change.row["canonical"]]
    return list(pairwise(chain))


def _judged(history: ClusterHistory, first: Change, second: Change, summary: str) -> Iterator[Case]:
    """The second is a fault if the first was not committed when it was appended."""
    pending = was_pending(history, first, second)
    if pending is True:
        yield _case(second, summary, first)
    elif pending is not False:
        reason = pending or f"no capture tells whether the record at offset {first.offset} was committed then"
        yield undecided(f"voter set at offset {second.offset}", reason, from_offset=second.offset)


@rule(
    "KV601",
    "target-changed-mid-step",
    Severity.HIGH,
    Scope.VOTERS,
    needs=("voter_sets", "watermarks"),
    dialects=(Dialect.KIP642,),
)
def kv601(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for first, second in _pairs(history):
        before, after = first.row["target_voters"], second.row["target_voters"]
        if first.is_membership and before is not None and after is not None and before != after:
            summary = (
                f"the target went from {before} to {after} while the step at offset {first.offset} was not committed"
            )
            yield from _judged(history, first, second, summary)


@rule(
    "KV602",
    "more-than-one-voter-a-step",
    Severity.HIGH,
    Scope.VOTERS,
    needs=("voter_sets",),
    dialects=(Dialect.KIP642,),
)
def kv602(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    for change in changes(history):
        if len(change.before ^ change.after) > 1:
            yield _case(change, f"one step leads from {named(change.before)} to {named(change.after)}")


@rule(
    "KV801",
    "change-while-pending",
    Severity.CRITICAL,
    Scope.VOTERS,
    needs=("voter_sets", "watermarks"),
    dialects=(Dialect.KIP856,),
)
def kv801(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    bootstrap = _bootstrap_offsets(history)
    for first, second in _pairs(history):
        if first.is_membership and second.is_membership and second.offset not in bootstrap:
            summary = f"appended while the change at offset {first.offset} was pending"
            yield from _judged(history, first, second, summary)


@rule(
    "KV802",
    "removed-before-added",
    Severity.HIGH,
    Scope.VOTERS,
    needs=("voter_sets", "watermarks"),
    dialects=(Dialect.KIP856,),
)
def kv802(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    added_by: dict[tuple[int, str | None], Change] = {}
    for change in changes(history):
        if not change.row["canonical"]:
            continue
        for key in sorted(change.removed, key=str):
            if key in added_by:
                summary = f"removes voter {key[0]}, whose addition at offset {added_by[key].offset} was not committed"
                yield from _judged(history, added_by[key], change, summary)
        added_by.update(dict.fromkeys(change.added, change))


@rule(
    "KV803",
    "bootstrap-split",
    Severity.HIGH,
    Scope.VOTERS,
    needs=("voter_sets", "batches"),
    dialects=(Dialect.KIP856,),
)
def kv803(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    offsets = _bootstrap_offsets(history)
    split = [change for change in changes(history) if change.offset in offsets]
    if split:
        first = next(row for row in canonical_sets(history) if row["source"] == "log")
        yield _case(
            split[0],
            f"the first voters came by {len(split) + 1} control batches, first {named(keys_of(first['voters']))}",
            *split[1:3],
        )


def _has_bare_id(row: dict[str, Any]) -> bool:
    return any(voter["directory_id"] is None for voter in row["voters"])


def _bootstrap_offsets(history: ClusterHistory) -> set[int]:
    """Additions that follow the first set in its epoch before any metadata record: they belong to the bootstrap.

    Where the configured ids are known, the bootstrap is what gives each of them its first UUID.
    """
    sets = canonical_sets(history)
    if not sets or sets[0]["source"] != "log":
        named_later = [row["from_offset"] for before, row in pairwise(sets) if _has_bare_id(before)]
        return set(named_later[1:])
    log = canonical_log(history)
    first = sets[0]["from_offset"]
    data = log.base_offset[~log.is_control & (log.base_offset > first)]
    until = int(data[0]) if len(data) else log.end_offset
    return {
        change.offset
        for change in changes(history)
        if change.row["canonical"]
        and first < change.offset < until
        and change.added
        and not change.removed
        and change.row["from_epoch"] == sets[0]["from_epoch"]
    }
