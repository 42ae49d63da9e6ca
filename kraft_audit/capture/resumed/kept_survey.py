"""What a plan's survey knew, kept for the next plan: its size follows epochs, branches and replicas, not batches.

What is read again is cut from it. Branches, epochs and control records are known by offset: that is exact.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

import pyarrow as pa

from kraft_audit.capture.altered_batches import Rejoin
from kraft_audit.capture.branches import Branch
from kraft_audit.capture.decoded_records import ControlRecord
from kraft_audit.capture.plan import BatchKey
from kraft_audit.capture.resumed.kept_log import KeptLog, LogMark, NotResumableError
from kraft_audit.capture.snapshots import BOOTSTRAP
from kraft_audit.capture.survey import BranchEpoch, EarlierLog, SurveyedSnapshot
from kraft_audit.tables.kept_parts import KeptPartsError

_BYTES: Final = "base64"
"""The key of an object that stands for bytes; no field of a control record is called so."""
_LENGTH_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class KeptCopy:
    """A complete copy of a snapshot, and the digest of what it says, in hexadecimal digits."""

    root: str
    path: str
    file_name: str
    digest: str

    @property
    def place(self) -> tuple[str, str, str]:
        return self.root, self.path, self.file_name


@dataclass(frozen=True, slots=True)
class KeptSnapshot:
    """A snapshot with its complete copies, and the control records of the one that was decoded."""

    source: str
    controls: tuple[ControlRecord, ...]
    copies: tuple[KeptCopy, ...]

    @property
    def surveyed(self) -> SurveyedSnapshot:
        """The snapshot as a survey has it, without its holders."""
        end_offset, epoch = ("0", "0") if self.source.startswith(BOOTSTRAP) else self.source.split("-")[:2]
        return SurveyedSnapshot(self.source, int(end_offset), int(epoch), (), self.controls)


@dataclass(frozen=True, slots=True)
class KeptSurvey:
    """A survey with the logs that it was made from. In `rejoins` the replicas are places in `logs`."""

    logs: tuple[KeptLog, ...]
    branches: tuple[Branch, ...]
    epochs: tuple[BranchEpoch, ...]
    controls: tuple[tuple[int, ControlRecord], ...]
    snapshots: tuple[KeptSnapshot, ...] = ()
    unsound_offsets: tuple[int, ...] = ()
    rejoins: tuple[Rejoin, ...] = ()
    is_overflowing: bool = False
    earlier_logs: tuple[EarlierLog, ...] = ()

    def path(self, branch: int | None) -> list[int]:
        """The branches from the first one to `branch`, each the parent of the next."""
        path: list[int] = []
        while branch is not None:
            path.append(branch)
            branch = self.branches[branch].parent
        return path[::-1]

    def to_bytes(self) -> bytes:
        """The same survey gives the same bytes."""
        fields = {
            "logs": [asdict(log) for log in self.logs],
            "branches": [asdict(branch) for branch in self.branches],
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "controls": [[branch, asdict(control)] for branch, control in self.controls],
            "snapshots": [asdict(snapshot) for snapshot in self.snapshots],
            "unsound_offsets": self.unsound_offsets,
            "rejoins": [[rejoin.followed, sorted(rejoin.replicas_of.items())] for rejoin in self.rejoins],
            "is_overflowing": self.is_overflowing,
            "earlier_logs": [asdict(log) for log in self.earlier_logs],
        }
        text = json.dumps(fields, separators=(",", ":"), default=_as_object).encode()
        return len(text).to_bytes(_LENGTH_BYTES, "big") + bytes(pa.compress(text, codec="zstd", asbytes=True))

    @classmethod
    def from_bytes(cls, content: bytes) -> KeptSurvey:
        """What `to_bytes` wrote. Raises KeptPartsError."""
        try:
            size = int.from_bytes(content[:_LENGTH_BYTES], "big")
            text = bytes(pa.decompress(content[_LENGTH_BYTES:], size, codec="zstd", asbytes=True))
            fields = json.loads(text, object_hook=_from_object)
            return cls(
                logs=tuple(map(_log, fields["logs"])),
                branches=tuple(_branch(each) for each in fields["branches"]),
                epochs=tuple(BranchEpoch(**each) for each in fields["epochs"]),
                controls=tuple((branch, ControlRecord(**each)) for branch, each in fields["controls"]),
                snapshots=tuple(map(_snapshot, fields["snapshots"])),
                unsound_offsets=tuple(fields["unsound_offsets"]),
                rejoins=tuple(_rejoin(followed, holders) for followed, holders in fields["rejoins"]),
                is_overflowing=fields["is_overflowing"],
                earlier_logs=tuple(map(_earlier_log, fields["earlier_logs"])),
            )
        except (ValueError, TypeError, LookupError, OverflowError, MemoryError, pa.ArrowException, OSError) as error:
            raise KeptPartsError(f"its survey cannot be read: {type(error).__name__}") from None


def _as_object(value: Any) -> Any:
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode("ascii")}
    raise TypeError(f"{type(value).__name__} is in no control record")


def _from_object(fields: dict[str, Any]) -> Any:
    return base64.b64decode(fields[_BYTES]) if fields.keys() == {_BYTES} else fields


def _log(fields: Mapping[str, Any]) -> KeptLog:
    own = dict(fields)
    last_batch = own["last_batch"]
    own["last_batch"] = None if last_batch is None else BatchKey(**last_batch)
    own["identity"] = tuple(own["identity"])
    own["marks"] = tuple(LogMark(**mark) for mark in own["marks"])
    return KeptLog(**own)


def _branch(fields: Mapping[str, Any]) -> Branch:
    return Branch(**{**fields, **{name: _pairs(fields[name]) for name in ("epochs", "gaps")}})


def _pairs(values: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    return [(first, second) for first, second in values]


def _snapshot(fields: Mapping[str, Any]) -> KeptSnapshot:
    controls = tuple(ControlRecord(**each) for each in fields["controls"])
    copies = tuple(KeptCopy(**each) for each in fields["copies"])
    return KeptSnapshot(fields["source"], controls, copies)


def _earlier_log(fields: Mapping[str, Any]) -> EarlierLog:
    return EarlierLog(
        fields["branch"],
        tuple(BranchEpoch(**each) for each in fields["epochs"]),
        tuple(ControlRecord(**each) for each in fields["controls"]),
        tuple(_surveyed_snapshot(each) for each in fields["snapshots"]),
    )


def _surveyed_snapshot(fields: Mapping[str, Any]) -> SurveyedSnapshot:
    controls = tuple(ControlRecord(**each) for each in fields["controls"])
    return SurveyedSnapshot(fields["source"], fields["end_offset"], fields["epoch"], (), controls)


def _rejoin(followed: int, holders: Sequence[tuple[int, Sequence[int]]]) -> Rejoin:
    return Rejoin(followed, {branch: tuple(replicas) for branch, replicas in holders})


@dataclass(frozen=True, slots=True)
class SurveyCut:
    """`cut_at` are, by branch, the offsets from which on batches are left out; `number_of` are the new numbers of the
    branches that stay, by their old ones.
    """

    earlier: KeptSurvey
    cut_at: Mapping[int, int]
    number_of: Mapping[int, int]

    @classmethod
    def of(cls, earlier: KeptSurvey, read_again: Mapping[int, tuple[int | None, int]]) -> Self:
        """`read_again`: of each log that is read again its branch, and from which offset on.

        Logs that share a branch are read from the same offset, if it lies on that branch or before it.
        """
        cut_at: dict[int, int] = {}
        for branch, offset in read_again.values():
            for number in earlier.path(branch):
                cut_at[number] = min(cut_at.get(number, offset), offset)
        stays = [each.number for each in earlier.branches if each.from_offset < cut_at.get(each.number, each.to_offset)]
        return cls(earlier, cut_at, {old: new for new, old in enumerate(stays)})

    def end(self, number: int) -> int:
        """Where a branch ends now: before a gap that reaches up to where it is cut."""
        branch, offset = self.earlier.branches[number], self.cut_at.get(number)
        if offset is None or branch.to_offset <= offset:
            return branch.to_offset
        return min(offset, next((start for start, end in branch.gaps if end >= offset), offset))

    def branches(self) -> list[Branch]:
        """The branches that stay."""
        return [self._branch(self.earlier.branches[number]) for number in self.number_of]

    def _branch(self, branch: Branch) -> Branch:
        offset = self.cut_at.get(branch.number, branch.to_offset)
        parent = None if branch.parent is None else self.number_of[branch.parent]
        epochs = [start for start in branch.epochs if start[1] < offset]
        return replace(
            branch,
            number=self.number_of[branch.number],
            parent=parent,
            to_offset=self.end(branch.number),
            last_epoch=epochs[-1][0] if epochs else branch.last_epoch,
            epochs=epochs,
            gaps=[gap for gap in branch.gaps if gap[1] < offset],
        )

    def epochs(self) -> Iterator[BranchEpoch]:
        """The epochs that begin before the cut."""
        for run in self.earlier.epochs:
            offset = self.cut_at.get(run.branch, run.to_offset)
            if run.branch not in self.number_of or run.from_offset >= offset:
                continue
            own = run.up_to(self.end(run.branch)) if run.to_offset > offset else run
            yield replace(own, branch=self.number_of[run.branch])

    def controls(self) -> list[tuple[int, ControlRecord]]:
        """The control records before the cut."""
        return [
            (self.number_of[branch], control)
            for branch, control in self.earlier.controls
            if branch in self.number_of and (branch not in self.cut_at or control.batch_start < self.cut_at[branch])
        ]

    def unsound_offsets(self) -> list[int]:
        """Those before the cut. Raises NotResumableError where they may be on a log that parted, too."""
        first = min(self.cut_at.values(), default=None)
        late = [offset for offset in self.earlier.unsound_offsets if first is not None and offset >= first]
        if late and any(branch.to_offset > late[0] for branch in self.branches()):
            raise NotResumableError("logs part where control batches cannot be decoded")
        return [offset for offset in self.earlier.unsound_offsets if offset not in late]

    def rejoins(self, place_of: Mapping[int, int]) -> list[Rejoin]:
        """Those before the cut, with replicas by number: `place_of` has it by their place among the kept logs."""
        rejoins = []
        for rejoin in self.earlier.rejoins:
            at = max(self.earlier.branches[branch].to_offset for branch in rejoin.replicas_of)
            if all(branch in self.number_of and at < self.cut_at.get(branch, at + 1) for branch in rejoin.replicas_of):
                holders = {
                    self.number_of[branch]: tuple(place_of[place] for place in places)
                    for branch, places in rejoin.replicas_of.items()
                }
                rejoins.append(Rejoin(self.number_of[rejoin.followed], holders))
        return rejoins
