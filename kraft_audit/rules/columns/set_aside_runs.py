"""Where a log that was set aside differs from the canonical one: what its node holds if the copy is the disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kraft_audit.capture.plan import identity_of
from kraft_audit.capture.set_aside import SetAsideBatch, SetAsideLog
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.captures import capture_evidence, is_no_evidence, newest_captures, replica_name
from kraft_audit.rules.columns.log_batches import CanonicalBatches, canonical_log
from kraft_audit.rules.rule_model import Case
from kraft_audit.text.readable import offset_span


@dataclass(frozen=True, slots=True)
class SetAsideRun:
    """Adjoining batches of one epoch. `is_version`: the canonical log has other bytes at the same offsets and epoch."""

    log: SetAsideLog
    from_offset: int
    to_offset: int
    epoch: int
    is_version: bool


def set_aside_cases(history: ClusterHistory, *, is_version: bool) -> Iterator[Case]:
    """An undecided case for each run of batches that the canonical log does not hold, of the newest copies."""
    rows = {identity_of(row): row for row in newest_captures(history) if is_no_evidence(row)}
    for run in _runs(history):
        row = rows.get(run.log.identity)
        if row is None or run.is_version is not is_version:
            continue
        where = f"{offset_span(run.from_offset, run.to_offset)} (epoch {run.epoch})"
        holds = f"other bytes at {where} than" if is_version else f"{where}, which are not in"
        text = f"if this copy is the disk, it holds {holds} the canonical log; {run.log.reason}: copy it again"
        fact = capture_evidence(row, "set aside", offset=run.from_offset, epoch=run.epoch)
        yield Case(
            replica_name(row), text, from_offset=run.from_offset, epoch=run.epoch, evidence=(fact,), undecided=text
        )


def _runs(history: ClusterHistory) -> list[SetAsideRun]:
    log = canonical_log(history)
    return [run for each in history.set_aside for run in _runs_of(each, log)] if len(log.base_offset) else []


def _runs_of(aside: SetAsideLog, log: CanonicalBatches) -> Iterator[SetAsideRun]:
    run: list[SetAsideBatch] = []
    for batch in aside.batches:
        differs = batch.base_offset >= log.start_offset and not _is_in(log, batch)
        if run and not (differs and batch.epoch == run[-1].epoch and batch.base_offset == run[-1].last_offset + 1):
            yield _run(aside, run, log)
            run = []
        if differs:
            run.append(batch)
    if run:
        yield _run(aside, run, log)


def _run(aside: SetAsideLog, run: Sequence[SetAsideBatch], log: CanonicalBatches) -> SetAsideRun:
    rows = [log.row_of(batch.base_offset) for batch in run]
    is_version = all(
        row is not None
        and (int(log.base_offset[row]), int(log.last_offset[row])) == (batch.base_offset, batch.last_offset)
        and int(log.leader_epoch[row]) == batch.epoch
        for row, batch in zip(rows, run, strict=True)
    )
    return SetAsideRun(aside, run[0].base_offset, run[-1].last_offset + 1, run[0].epoch, is_version)


def _is_in(log: CanonicalBatches, batch: SetAsideBatch) -> bool:
    row = log.row_of(batch.base_offset)
    if row is None:
        return False
    columns = (log.base_offset, log.last_offset, log.leader_epoch, log.crc)
    own = (batch.base_offset, batch.last_offset, batch.epoch, batch.crc)
    return tuple(int(column[row]) for column in columns) == own
