"""Records that one replica holds and the canonical log does not: stale, or all that is left of what was committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from kraft_audit.capture.plan import identity_of
from kraft_audit.rules.cluster_history import ClusterHistory, once_per_history
from kraft_audit.rules.columns.batch_copies import STILL_HELD
from kraft_audit.rules.columns.captures import newest_captures
from kraft_audit.rules.columns.frame import distinct
from kraft_audit.rules.columns.log_batches import (
    BatchColumns,
    CanonicalBatches,
    HeldBatches,
    canonical_log,
    log_batches,
    rows_of_held,
)
from kraft_audit.rules.columns.set_aside_runs import set_aside_cases
from kraft_audit.rules.families.committed_log import kq002
from kraft_audit.rules.families.leaders import kq003, kq014
from kraft_audit.rules.families.log_files import kq022
from kraft_audit.rules.families.lost_logs import kq020
from kraft_audit.rules.registry import rule, words_for
from kraft_audit.rules.rule_model import Case, Evidence, RuleFunction, Thresholds

IN_DOUBT: Final[Mapping[str, RuleFunction]] = {
    "KQ002": kq002,
    "KQ003": kq003,
    "KQ014": kq014,
    "KQ020": kq020,
    "KQ022": kq022,
}
"""The rules whose cases put in doubt that the canonical log holds everything that was committed."""


@rule("KQ001", control="log_integrity", needs=("captures", "batches", "watermarks"))
def kq001(history: ClusterHistory, _: Thresholds) -> Iterator[Case]:
    batches, log = log_batches(history), canonical_log(history)
    if not len(log.base_offset):
        return
    yield from set_aside_cases(history, is_version=False)
    apart = ~batches.is_canonical & (batches.last_offset >= log.start_offset)
    for run in history.altered or ():  # another version of the log's own batches: KQ022 judges it
        is_altered = (batches.base_offset >= run.from_offset) & (batches.last_offset < run.to_offset)
        apart &= ~(is_altered & (batches.leader_epoch == run.epoch))
    held = batches.as_held(apart)
    for number in distinct(held.replica).tolist():
        for suffix in _suffixes(held, np.flatnonzero(held.replica == number)):
            rows = _unproven(history, held, suffix)
            if any(_is_known(log, int(held.base_offset[row])) for row in rows):
                yield _suffix_case(history, held, log, rows)


def _is_known(log: CanonicalBatches, offset: int) -> bool:
    """Whether the canonical log holds an offset, or ends before it: between captured pieces it is not known."""
    return log.row_of(offset) is not None or offset >= log.end_offset


def _unproven(history: ClusterHistory, batches: HeldBatches, suffix: list[int]) -> list[int]:
    """A suffix without what captures once proved committed: losing that is no stale suffix, KQ002 judges it."""
    epochs, starts = batches.leader_epoch[suffix], batches.base_offset[suffix]
    ends = batches.last_offset[suffix] + 1
    proven = (
        row["low"]
        for row in history.rows("watermarks")
        if ((epochs == row["low_epoch"]) & (starts < row["low"]) & (row["low"] <= ends)).any()
    )
    end = max(proven, default=0)
    return [row for row in suffix if batches.base_offset[row] >= end]


def _suffixes(batches: HeldBatches, rows: Any) -> list[list[int]]:
    """A replica's divergent batches by suffix: a run of offsets, seen in one capture or growing through several.

    A batch that was cut off and came back, as from a restored disk, stands there as it was held last.
    """
    order = np.lexsort((batches.until[rows], batches.base_offset[rows], batches.leader_epoch[rows]))
    ordered = rows[order].tolist()
    suffixes: list[list[int]] = []
    for row in ordered:
        before = suffixes[-1][-1] if suffixes else None
        if before is not None and batches.last_offset[before] + 1 == batches.base_offset[row]:
            suffixes[-1].append(row)
        elif before is not None and _is_same_batch(batches, before, row):
            suffixes[-1][-1] = row
        else:
            suffixes.append([row])
    return suffixes


def _is_same_batch(batches: HeldBatches, row: int, again: int) -> bool:
    return bool(batches.base_offset[row] == batches.base_offset[again] and batches.crc[row] == batches.crc[again])


def _suffix_case(history: ClusterHistory, batches: HeldBatches, log: CanonicalBatches, rows: list[int]) -> Case:
    first = rows[0]
    identity = batches.identities[int(batches.replica[first])]
    node_id, directory_id, path = identity
    name = f"node {node_id}" if node_id >= 0 else f"replica at {path}"
    offset, epoch = int(batches.base_offset[first]), int(batches.leader_epoch[first])
    # Of batches that no disk holds any more only the offsets are known.
    from_ms = int(batches.timestamp_ms[first]) if batches.timestamp_ms[first] >= 0 else None
    end = int(batches.last_offset[rows[-1]]) + 1
    doubt = _doubt(history, batches, log, rows)
    is_newest = any(identity_of(capture) == identity for capture in newest_captures(history))
    is_over = not is_newest or all(batches.until[row] != STILL_HELD for row in rows)
    there = log.row_of(offset)
    theirs = "nothing: the canonical log ends before it" if there is None else _batch_text(log, there)
    text = "the first batch that differs"
    fact = Evidence(text, offset=offset, epoch=epoch, before=theirs, after=_batch_text(batches, first))
    return Case(
        name,
        f"holds [{offset}, {end}) of epoch {epoch}, which the canonical log does not"
        + ("; it was cut off later" if is_over else ""),
        from_offset=offset,
        from_ms=from_ms,
        epoch=epoch,
        evidence=(fact, *_places(history, batches, rows)),
        is_over=is_over,
        directory_id=directory_id if node_id >= 0 else None,
        **({} if doubt is None or is_over else {**words_for("KQ001", "in_doubt"), "why": doubt}),
    )


def _doubt(history: ClusterHistory, batches: HeldBatches, log: CanonicalBatches, rows: list[int]) -> str | None:
    """Why a suffix may hold committed records; None where an election by a majority rules that out.

    Raft's argument against it fails where a voter forgot its log or its vote, or a disk was altered.
    """
    if (contradiction := _contradiction(history)) is not None:
        return contradiction
    first = rows[0]
    epoch, offset = int(batches.leader_epoch[first]), int(batches.base_offset[first])
    is_data = any(not batches.is_control[row] and batches.leader_epoch[row] == epoch for row in rows[1:])
    if batches.is_control[first] and is_data and log.epoch_at(offset - 1) != epoch:
        return f"Its leader wrote metadata after offset {offset}: that offset of epoch {epoch} was committed."
    return None


@once_per_history
def _contradiction(history: ClusterHistory) -> str | None:
    """What is open and shows that a voter forgot, or that a disk was altered."""
    for rule_id, judge in IN_DOUBT.items():
        for case in judge(history, Thresholds()):
            if case.undecided is None and not case.is_over:
                return f"It may hold committed records ({rule_id}, {case.subject}: {case.summary})."
    return None


def _batch_text(batches: BatchColumns, row: int) -> str:
    offsets = f"[{int(batches.base_offset[row])}, {int(batches.last_offset[row]) + 1})"
    return f"batch {offsets} epoch {int(batches.leader_epoch[row])} crc {int(batches.crc[row]):08x}"


def _places(history: ClusterHistory, batches: HeldBatches, rows: list[int]) -> Iterator[Evidence]:
    for held in rows_of_held(history, batches, rows[:5]):
        place = {name: held[name] for name in ("node_id", "file_name", "position")}
        yield Evidence("held there", path=held["path"] or held["root"], **place)
