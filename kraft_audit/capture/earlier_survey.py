"""What an earlier survey knew of a log before the offset where its disks begin now.

Kafka deletes the segments that a snapshot covers, and with them the records that say who led an epoch and which voter
sets there were. An earlier survey still has them. Its size follows epochs, branches and snapshots, not batches.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from kraft_audit.capture.branches import Branch, path_to
from kraft_audit.capture.decoded_records import ControlRecord
from kraft_audit.capture.survey import BranchEpoch, EarlierLog, Survey, SurveyedSnapshot, joined_epochs

_BYTES: Final = "base64"
"""The key of a JSON object that stands for bytes; no field of a control record is called so."""


@dataclass(frozen=True, slots=True)
class EarlierSurvey:
    """The parts of a survey that a later one may need."""

    branches: tuple[Branch, ...]
    epochs: tuple[BranchEpoch, ...]
    controls: tuple[tuple[int, ControlRecord], ...]
    snapshots: tuple[SurveyedSnapshot, ...] = ()
    earlier_logs: tuple[EarlierLog, ...] = ()

    @classmethod
    def of(cls, survey: Survey) -> EarlierSurvey:
        """What to keep of a survey; of logs that part too often nothing, as its last branch stands for several."""
        if survey.is_overflowing:
            return cls((), (), ())
        return cls(
            tuple(survey.branches),
            tuple(survey.epochs),
            tuple(survey.controls),
            tuple(replace(snapshot, replicas=(), versions=()) for snapshot in survey.snapshots if snapshot.replicas),
            tuple(survey.earlier_logs),
        )

    def path(self, branch: int | None) -> list[int]:
        """The branches from the first one to `branch`, each the parent of the next."""
        return path_to(self.branches, branch)

    def as_json(self) -> dict[str, Any]:
        """Fields of plain values; `from_json` reads them."""
        return {
            "branches": [asdict(branch) for branch in self.branches],
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "controls": [[branch, _control_fields(control)] for branch, control in self.controls],
            "snapshots": [_snapshot_fields(snapshot) for snapshot in self.snapshots],
            "earlier_logs": [
                {
                    "branch": log.branch,
                    "epochs": [asdict(epoch) for epoch in log.epochs],
                    "controls": list(map(_control_fields, log.controls)),
                    "snapshots": list(map(_snapshot_fields, log.snapshots)),
                }
                for log in self.earlier_logs
            ],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> EarlierSurvey:
        """Raises ValueError, TypeError or LookupError where the fields are not those of `as_json`."""
        return cls(
            tuple(map(_branch, fields["branches"])),
            tuple(BranchEpoch(**epoch) for epoch in fields["epochs"]),
            tuple((branch, _control(control)) for branch, control in fields["controls"]),
            tuple(map(_snapshot, fields["snapshots"])),
            tuple(
                EarlierLog(
                    log["branch"],
                    tuple(BranchEpoch(**epoch) for epoch in log["epochs"]),
                    tuple(map(_control, log["controls"])),
                    tuple(map(_snapshot, log["snapshots"])),
                )
                for log in fields["earlier_logs"]
            ),
        )


def _branch(fields: Mapping[str, Any]) -> Branch:
    pairs = {name: [(first, second) for first, second in fields[name]] for name in ("epochs", "gaps")}
    return Branch(**{**fields, **pairs})


def _snapshot_fields(snapshot: SurveyedSnapshot) -> dict[str, Any]:
    controls = list(map(_control_fields, snapshot.controls))
    return {
        "source": snapshot.source,
        "end_offset": snapshot.end_offset,
        "epoch": snapshot.epoch,
        "controls": controls,
    }


def _snapshot(fields: Mapping[str, Any]) -> SurveyedSnapshot:
    controls = tuple(map(_control, fields["controls"]))
    return SurveyedSnapshot(fields["source"], fields["end_offset"], fields["epoch"], (), controls)


def _control_fields(control: ControlRecord) -> dict[str, Any]:
    return {**asdict(control), "fields": _plain(dict(control.fields))}


def _control(fields: Mapping[str, Any]) -> ControlRecord:
    return ControlRecord(**{**fields, "fields": _as_it_was(fields["fields"])})


def _plain(value: Any) -> Any:
    """A value of a control record as JSON can hold it."""
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return list(map(_plain, value)) if isinstance(value, list) else value


def _as_it_was(value: Any) -> Any:
    """The value that `_plain` was given."""
    if isinstance(value, dict):
        if value.keys() == {_BYTES}:
            return base64.b64decode(value[_BYTES])
        return {name: _as_it_was(each) for name, each in value.items()}
    return list(map(_as_it_was, value)) if isinstance(value, list) else value


def earlier_logs(earlier: EarlierSurvey, survey: Survey) -> Iterator[EarlierLog]:
    """Of each log of a survey that begins after offset 0, what an earlier survey knew before that."""
    replicas: dict[int, set[int]] = defaultdict(set)
    for end in survey.ends:
        for first in survey.path(end.branch)[:1]:
            replicas[first].add(end.replica)
    for branch in survey.branches:
        if branch.parent is None and branch.from_offset > 0 and branch.epochs:
            known = _branch_with(earlier, branch, _snapshot_epochs(survey, branch, replicas[branch.number]))
            if known is not None:
                yield from _before(earlier, known, branch)


def _snapshot_epochs(survey: Survey, branch: Branch, replicas: Set[int]) -> set[int]:
    """The epochs of the record before a log, as snapshots say that end there.

    The snapshots of another log say nothing of this one. And epochs never go back in a log.
    """
    return {
        each.epoch
        for each in survey.snapshots
        if each.end_offset == branch.from_offset
        and each.epoch <= branch.epochs[0][0]
        and not replicas.isdisjoint(each.replicas)
    }


def _branch_with(earlier: EarlierSurvey, branch: Branch, snapshot_epochs: Set[int]) -> int | None:
    """The earlier branch that a log continues; None where that is not sure.

    Offset and epoch identify a record. The record before it is known by a snapshot that ends there, and where it is of
    the same epoch: its leader only appends. The history of another log would be worse than none, so nothing of this
    may contradict the rest.
    """
    epoch, last = branch.epochs[0][0], branch.from_offset - 1
    first_held_by = {run.branch for run in _runs_at(earlier, branch.from_offset) if run.epoch == epoch}
    last_held_by = {run.branch for run in _runs_at(earlier, last) if run.epoch in {*snapshot_epochs, epoch}}
    candidates = first_held_by or last_held_by
    if len(candidates) != 1:
        return None
    known = candidates.pop()
    path = set(earlier.path(known))
    last_epochs = {run.epoch for run in _runs_at(earlier, last) if run.branch in path}
    return known if last_held_by <= path and len(last_epochs | snapshot_epochs) <= 1 else None


def _runs_at(earlier: EarlierSurvey, offset: int) -> list[BranchEpoch]:
    return [run for run in earlier.epochs if run.from_offset <= offset < run.to_offset]


def _before(earlier: EarlierSurvey, known_branch: int, branch: Branch) -> Iterator[EarlierLog]:
    """What is known of the way to an earlier branch, before the first offset of the branch that continues it."""
    to_offset = branch.from_offset
    path = earlier.path(known_branch)
    known_log = next((log for log in earlier.earlier_logs if log.branch == path[0]), EarlierLog(branch.number))
    runs = [run for number in path for run in earlier.epochs if run.branch == number and run.from_offset < to_offset]
    epochs = joined_epochs([*known_log.epochs, *(run.up_to(to_offset) for run in runs)])
    if not epochs or epochs[-1].epoch > branch.epochs[0][0]:
        return
    own = (record for number, record in earlier.controls if number in path and record.offset < to_offset)
    snapshots = known_log.snapshots or tuple(_first_snapshots(earlier, epochs[0].from_offset))
    epochs = [replace(run, branch=branch.number) for run in epochs]
    yield EarlierLog(branch.number, tuple(epochs), (*known_log.controls, *own), snapshots)


def _first_snapshots(earlier: EarlierSurvey, from_offset: int) -> Iterator[SurveyedSnapshot]:
    """The snapshots that say which voter set a log began with: those that end by then, and the first one after."""
    for snapshot in sorted(earlier.snapshots, key=lambda each: each.end_offset):
        yield snapshot
        if snapshot.end_offset > from_offset:
            return
